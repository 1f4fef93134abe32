//! Pages: reservations, memory objects and whole-object mappings, by the driver's virtual memory
//! calls. None of them is ordered by streams, so whoever unmaps has waited first.
//!
//! Batches are transactions: when a call fails midway, what the batch did before is undone.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use terrane_core::device::{
    ClassId, DeviceError, Feature, MapOp, MemoryId, Paging, PagingCaps, Reserved, SpaceId,
    SyncPoint, UnmapOp,
};

use crate::CudaDevice;
use crate::driver::RawMemory;
use crate::inner::{Inner, lock, read};
use crate::space::{Backing, Space};

/// What is mapped where. One lock for all of it: the driver serialises these calls anyway.
#[derive(Default)]
pub(crate) struct Pages {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    memories: HashMap<u64, Memory>,
    /// By space and offset: bytes and memory object.
    mappings: HashMap<u64, BTreeMap<u64, (u64, MemoryId)>>,
}

/// A memory object and how many mappings it has.
struct Memory {
    raw: RawMemory,
    bytes: u64,
    class: ClassId,
    exportable: bool,
    mapped: u32,
}

const NO_MEMORY: DeviceError = DeviceError::InvalidCall("no such memory object");
const NO_SPACE: DeviceError = DeviceError::InvalidCall("no paged segment");

/// A mapping that was checked, with what the driver needs for it.
#[derive(Clone, Copy)]
struct Step {
    space: SpaceId,
    offset: u64,
    address: u64,
    bytes: u64,
    memory: MemoryId,
    raw: RawMemory,
}

impl State {
    fn insert(&mut self, step: Step) -> Result<(), DeviceError> {
        let mappings = self.mappings.get_mut(&step.space.0).ok_or(NO_SPACE)?;
        let below = mappings.range(..step.offset + step.bytes).next_back();
        if below.is_some_and(|(offset, (bytes, _))| offset + bytes > step.offset) {
            return Err(DeviceError::InvalidCall("something is mapped there"));
        }
        self.memories.get_mut(&step.memory.0).ok_or(NO_MEMORY)?.mapped += 1;
        mappings.insert(step.offset, (step.bytes, step.memory));
        Ok(())
    }

    fn remove(&mut self, step: Step) {
        if let Some(mappings) = self.mappings.get_mut(&step.space.0) {
            mappings.remove(&step.offset);
        }
        if let Some(memory) = self.memories.get_mut(&step.memory.0) {
            memory.mapped = memory.mapped.saturating_sub(1);
        }
    }
}

impl Pages {
    /// Unmaps and releases everything. Pre: entered, and no work runs.
    pub(crate) fn clear(&self, inner: &Inner) {
        let mut state = lock(&self.state);
        for (space, mappings) in state.mappings.drain() {
            let base = inner.spaces.with(SpaceId(space), |space| Ok(space.base));
            for (offset, (bytes, _)) in mappings {
                if let Ok(base) = base {
                    let _ = inner.driver.unmap(base + offset, bytes);
                }
            }
        }
        for (_, memory) in state.memories.drain() {
            let _ = inner.driver.release(memory.raw);
        }
    }

    /// The driver's handle of an exportable memory object.
    pub(crate) fn exportable(&self, id: MemoryId) -> Result<RawMemory, DeviceError> {
        let state = lock(&self.state);
        let memory = state.memories.get(&id.0).ok_or(NO_MEMORY)?;
        if memory.exportable {
            Ok(memory.raw)
        } else {
            Err(DeviceError::Unsupported(Feature::Export))
        }
    }

    /// Takes a memory object in that another process or API made.
    pub(crate) fn adopt(
        &self,
        inner: &Inner,
        raw: RawMemory,
        class: ClassId,
        bytes: u64,
    ) -> MemoryId {
        let id = inner.next_id();
        let memory = Memory { raw, bytes, class, exportable: false, mapped: 0 };
        lock(&self.state).memories.insert(id, memory);
        MemoryId(id)
    }

    /// Gives every device of the list access to all that is mapped. Pre: entered.
    pub(crate) fn grant(&self, inner: &Inner) -> Result<(), DeviceError> {
        let state = lock(&self.state);
        let devices = read(&inner.accessible).clone();
        for (&space, mappings) in &state.mappings {
            let base = inner.spaces.with(SpaceId(space), |space| Ok(space.base))?;
            for (&offset, &(bytes, _)) in mappings {
                inner
                    .driver
                    .set_access(base + offset, bytes, &devices)
                    .map_err(|fault| inner.fail(fault))?;
            }
        }
        Ok(())
    }
}

impl Inner {
    fn paging_caps(&self) -> Result<PagingCaps, DeviceError> {
        self.caps.paging.ok_or(DeviceError::Unsupported(Feature::Paging))
    }

    fn paged_class(&self, class: ClassId) -> Result<PagingCaps, DeviceError> {
        let caps = self.paging_caps()?;
        let known = usize::from(class.0) < self.caps.classes.len();
        if known && caps.classes & (1 << class.0) != 0 {
            Ok(caps)
        } else {
            Err(DeviceError::Unsupported(Feature::Paging))
        }
    }

    fn step(&self, state: &State, op: &MapOp) -> Result<Step, DeviceError> {
        let memory = state.memories.get(&op.memory.0).ok_or(NO_MEMORY)?;
        if op.memory_offset != 0 || op.bytes != memory.bytes {
            return Err(DeviceError::InvalidCall("a mapping covers a whole memory object"));
        }
        let granularity = self.paging_caps()?.granularity;
        if !op.at.offset.is_multiple_of(granularity) {
            return Err(DeviceError::InvalidCall("an offset is no multiple of the granularity"));
        }
        let address = self.spaces.with(op.at.space, |space| {
            if space.class != memory.class {
                return Err(DeviceError::InvalidCall("memory object and space differ in class"));
            }
            space.address(op.at.offset, op.bytes)
        })?;
        Ok(Step {
            space: op.at.space,
            offset: op.at.offset,
            address,
            bytes: op.bytes,
            memory: op.memory,
            raw: memory.raw,
        })
    }

    fn map_all(&self, ops: &[MapOp]) -> Result<(), DeviceError> {
        let mut state = lock(&self.spaces.pages.state);
        let mut done: Vec<Step> = Vec::with_capacity(ops.len());
        for op in ops {
            let result = self.step(&state, op).and_then(|step| {
                state.insert(step)?;
                self.map_page(step.address, step.bytes, step.raw)
                    .inspect_err(|_| state.remove(step))?;
                Ok(step)
            });
            match result {
                Ok(step) => done.push(step),
                Err(error) => {
                    self.undo_map(&mut state, &done);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn undo_map(&self, state: &mut State, done: &[Step]) {
        for &step in done.iter().rev() {
            if self.driver.unmap(step.address, step.bytes).is_err() {
                self.give_up("an undone mapping could not be unmapped");
            }
            state.remove(step);
        }
    }

    fn unmap_all(&self, ops: &[UnmapOp]) -> Result<(), DeviceError> {
        let mut state = lock(&self.spaces.pages.state);
        let steps = ops
            .iter()
            .map(|op| self.unmap_step(&state, op))
            .collect::<Result<Vec<_>, DeviceError>>()?;
        let mut offsets: Vec<_> = steps.iter().map(|step| (step.space, step.offset)).collect();
        offsets.sort_unstable();
        if offsets.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(DeviceError::InvalidCall("one mapping dropped twice in a batch"));
        }
        for (at, step) in steps.iter().enumerate() {
            if let Err(fault) = self.driver.unmap(step.address, step.bytes) {
                let error = self.fail(fault);
                for step in &steps[..at] {
                    if error != DeviceError::Lost
                        && self.map_page(step.address, step.bytes, step.raw).is_err()
                    {
                        self.give_up("an undone unmapping could not be mapped again");
                    }
                }
                return Err(error);
            }
        }
        for step in steps {
            state.remove(step);
        }
        Ok(())
    }

    fn unmap_step(&self, state: &State, op: &UnmapOp) -> Result<Step, DeviceError> {
        let none = DeviceError::InvalidCall("no such mapping");
        let mappings = state.mappings.get(&op.at.space.0).ok_or(NO_SPACE)?;
        let &(bytes, memory) = mappings.get(&op.at.offset).ok_or(none)?;
        if bytes != op.bytes {
            return Err(none);
        }
        let raw = state.memories.get(&memory.0).ok_or(NO_MEMORY)?.raw;
        let address = self.spaces.address(op.at, op.bytes)?;
        Ok(Step { space: op.at.space, offset: op.at.offset, address, bytes, memory, raw })
    }

    fn all_reached(&self, points: &[SyncPoint]) -> Result<(), DeviceError> {
        for &point in points {
            if !self.is_reached(point)? {
                return Err(DeviceError::InvalidCall("the device maps at once: wait first"));
            }
        }
        Ok(())
    }
}

impl Paging for CudaDevice {
    fn reserve(&self, class: ClassId, bytes: u64) -> Result<Reserved, DeviceError> {
        let inner = &self.inner;
        let caps = inner.paged_class(class)?;
        if bytes == 0 || !bytes.is_multiple_of(caps.granularity) {
            return Err(DeviceError::InvalidCall("bytes are no multiple of the granularity"));
        }
        if bytes > caps.max_space_bytes {
            return Err(DeviceError::TooLarge { bytes, limit: caps.max_space_bytes });
        }
        let _entered = inner.enter()?;
        let address = inner.driver.reserve(bytes, caps.granularity).map_err(|fault| match inner
            .fail(fault)
        {
            DeviceError::Lost => DeviceError::Lost,
            _ => DeviceError::OutOfAddressSpace { bytes },
        })?;
        let space = SpaceId(inner.next_id());
        lock(&inner.spaces.pages.state).mappings.insert(space.0, BTreeMap::new());
        inner.spaces.insert(space, Space::new(address, bytes, class, Backing::Paged));
        Ok(Reserved { space, address: Some(address) })
    }

    fn unreserve(&self, space: SpaceId) -> Result<(), DeviceError> {
        let inner = &self.inner;
        let entered = inner.enter_to_release()?;
        let mut state = lock(&inner.spaces.pages.state);
        let mapped = state.mappings.get(&space.0).ok_or(NO_SPACE)?;
        if entered.is_some() && !mapped.is_empty() {
            return Err(DeviceError::InvalidCall("pages are mapped in the space"));
        }
        let gone = inner.spaces.remove_if(space, |space| {
            let views = space.views.load(Ordering::Acquire);
            if views == 0 { Ok(()) } else { Err(DeviceError::InvalidCall("open host views")) }
        })?;
        state.mappings.remove(&space.0);
        drop(state);
        if entered.is_some() { inner.free_backing(&gone) } else { Ok(()) }
    }

    fn create(
        &self,
        class: ClassId,
        bytes: u64,
        exportable: bool,
    ) -> Result<MemoryId, DeviceError> {
        let inner = &self.inner;
        let caps = inner.paged_class(class)?;
        if bytes == 0 || !bytes.is_multiple_of(caps.granularity) {
            return Err(DeviceError::InvalidCall("bytes are no multiple of the granularity"));
        }
        if bytes > inner.caps.max_plain_bytes {
            return Err(DeviceError::TooLarge { bytes, limit: inner.caps.max_plain_bytes });
        }
        if exportable && !inner.caps.export {
            return Err(DeviceError::Unsupported(Feature::Export));
        }
        let _entered = inner.enter()?;
        let raw = inner
            .driver
            .create(bytes, inner.device, exportable)
            .map_err(|fault| inner.fail_memory(fault, bytes))?;
        let id = inner.next_id();
        let memory = Memory { raw, bytes, class, exportable, mapped: 0 };
        lock(&inner.spaces.pages.state).memories.insert(id, memory);
        Ok(MemoryId(id))
    }

    fn release(&self, memory: MemoryId) -> Result<(), DeviceError> {
        let inner = &self.inner;
        let entered = inner.enter_to_release()?;
        let mut state = lock(&inner.spaces.pages.state);
        let known = state.memories.get(&memory.0).ok_or(NO_MEMORY)?;
        if entered.is_some() && known.mapped > 0 {
            return Err(DeviceError::InvalidCall("the memory object is mapped"));
        }
        let raw = known.raw;
        state.memories.remove(&memory.0);
        drop(state);
        match entered {
            Some(_) => inner.driver.release(raw).map_err(|fault| inner.fail(fault)),
            None => Ok(()),
        }
    }

    fn map(&self, ops: &[MapOp], after: &[SyncPoint]) -> Result<Option<SyncPoint>, DeviceError> {
        let _entered = self.inner.enter()?;
        self.inner.all_reached(after)?;
        self.inner.map_all(ops)?;
        Ok(None)
    }

    fn unmap(
        &self,
        ops: &[UnmapOp],
        after: &[SyncPoint],
    ) -> Result<Option<SyncPoint>, DeviceError> {
        let Some(_entered) = self.inner.enter_to_release()? else {
            return Ok(None);
        };
        self.inner.all_reached(after)?;
        self.inner.unmap_all(ops)?;
        Ok(None)
    }
}
