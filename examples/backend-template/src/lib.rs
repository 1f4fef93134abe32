//! A backend to start from: a device whose memory is the process's own and whose streams do their
//! work at once. It keeps every rule of `terrane_core::device::Device`, which the conformance suite
//! shows; replace its parts one by one by calls of your driver. docs/porting.md tells the order.

mod compute;
mod memory;

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use terrane_core::device::{
    Caps, Class, Compute, CopyOp, Costs, Device, DeviceError, DeviceInfo, Feature, Heap, HeapId,
    HeapUse, MemoryKind, Place, Plain, PlainSpec, Report, SpaceId, StreamId, StreamSpec, SyncPoint,
    Ticket, rules,
};
use terrane_core::units::Align;

use memory::Memory;

/// Bytes of the only heap.
const HEAP: u64 = 1 << 30;
const GRANULARITY: u64 = 4096;

/// The device.
pub struct Template {
    info: DeviceInfo,
    caps: Caps,
    opened: Instant,
    /// The process that opened it.
    process: u32,
    state: Mutex<State>,
}

struct State {
    memory: Memory,
    streams: Vec<Stream>,
    /// Results that were promised and not taken.
    reads: HashMap<u64, Vec<u8>>,
    reports: HashMap<u64, Report>,
    next_ticket: u64,
    dispatches: u64,
}

/// An ordered lane of work. Here all that was submitted is done.
#[derive(Clone, Copy, Default)]
struct Stream {
    submitted: u64,
    retired: bool,
}

impl Template {
    /// Opens the device. A real backend finds out here what its driver can do.
    pub fn open() -> Self {
        let align = |bytes| Align::new(bytes).unwrap_or_default();
        let class =
            |kind| Class { kind, heap: HeapId(0), host_visible: false, coherent: false, native: 0 };
        let caps = Caps {
            heaps: vec![Heap { total: HEAP, device_local: true }],
            classes: MemoryKind::ALL.map(class).to_vec(),
            plain_granularity: GRANULARITY,
            max_plain_bytes: HEAP,
            max_memory_objects: 1 << 16,
            plain_base_align: align(4096),
            binding_align: align(256),
            max_binding_bytes: HEAP,
            max_bindings: 8,
            max_push_bytes: 128,
            max_groups: [65_535; 3],
            linear_optimal_granularity: 1,
            non_coherent_atom: 1,
            usages: u64::MAX,
            addresses: false,
            views: false,
            export: false,
            capture: false,
            few_large_objects: false,
            prefer_gather: false,
            gather_within: false,
            paging: None,
            compute: true,
            costs: Costs::default(),
        };
        let info = DeviceInfo {
            backend: "template",
            name: "the template".to_owned(),
            driver: "none".to_owned(),
            is_cpu: true,
            ..DeviceInfo::default()
        };
        let state = State {
            memory: Memory::default(),
            streams: Vec::new(),
            reads: HashMap::new(),
            reports: HashMap::new(),
            next_ticket: 1,
            dispatches: 0,
        };
        let process = std::process::id();
        Self { info, caps, opened: Instant::now(), process, state: Mutex::new(state) }
    }

    /// Every call begins here. A forked child has no device: a driver's threads and locks stay
    /// with the parent, and a call might never come back.
    fn lock(&self) -> Result<MutexGuard<'_, State>, DeviceError> {
        if std::process::id() != self.process {
            return Err(DeviceError::AfterFork);
        }
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn open_stream(&mut self, stream: StreamId) -> Result<&mut Stream, DeviceError> {
        let found = self.streams.get_mut(stream.0 as usize);
        found.filter(|stream| !stream.retired).ok_or(DeviceError::UnknownStream)
    }

    fn any_stream(&self, stream: StreamId) -> Result<Stream, DeviceError> {
        self.streams.get(stream.0 as usize).copied().ok_or(DeviceError::UnknownStream)
    }

    /// Does work in the stream's turn, which is now. Nothing is submitted when it is refused.
    fn submit<T>(
        &mut self,
        stream: StreamId,
        work: impl FnOnce(&mut Memory) -> Result<T, &'static str>,
    ) -> Result<(T, SyncPoint), DeviceError> {
        self.open_stream(stream)?;
        let done = work(&mut self.memory).map_err(DeviceError::InvalidCall)?;
        let lane = self.open_stream(stream)?;
        lane.submitted += 1;
        Ok((done, SyncPoint { stream, value: lane.submitted }))
    }

    fn ticket(&mut self, point: SyncPoint) -> Ticket {
        self.next_ticket += 1;
        Ticket { id: self.next_ticket, point }
    }

    /// Whether a point is reached; one that was never submitted is a mistake of the caller.
    fn is_reached(&self, point: SyncPoint) -> Result<bool, DeviceError> {
        if point.value > self.any_stream(point.stream)?.submitted {
            return Err(DeviceError::InvalidCall("the point was never submitted"));
        }
        Ok(true)
    }
}

impl Device for Template {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn heap_use(&self, heap: HeapId) -> Result<HeapUse, DeviceError> {
        if heap != HeapId(0) {
            return Err(DeviceError::InvalidCall("no such heap"));
        }
        let used = self.lock()?.memory.used();
        Ok(HeapUse { total: HEAP, free: HEAP - used, process: Some(used) })
    }

    fn create_plain(&self, spec: &PlainSpec<'_>) -> Result<Plain, DeviceError> {
        let bytes = spec.bytes;
        if self.caps.class(spec.class).is_none() {
            return Err(DeviceError::InvalidCall("no such class"));
        }
        if spec.exportable {
            return Err(DeviceError::Unsupported(Feature::Export));
        }
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
            return Err(DeviceError::InvalidCall("a size that is no multiple of the granularity"));
        }
        if bytes > HEAP {
            return Err(DeviceError::TooLarge { bytes, limit: HEAP });
        }
        let mut state = self.lock()?;
        if bytes > HEAP - state.memory.used() {
            return Err(DeviceError::OutOfMemory { bytes });
        }
        let space = state.memory.add(bytes).ok_or(DeviceError::OutOfMemory { bytes })?;
        Ok(Plain { space, bytes, address: None })
    }

    fn release_plain(&self, space: SpaceId) -> Result<(), DeviceError> {
        self.lock()?.memory.remove(space).map_err(DeviceError::InvalidCall)
    }

    fn create_stream(&self, _: StreamSpec) -> Result<StreamId, DeviceError> {
        let mut state = self.lock()?;
        let number = u32::try_from(state.streams.len());
        let number = number.map_err(|_| DeviceError::InvalidCall("too many streams"))?;
        state.streams.push(Stream::default());
        Ok(StreamId(number))
    }

    fn retire_stream(&self, stream: StreamId) -> Result<(), DeviceError> {
        self.lock()?.open_stream(stream)?.retired = true;
        Ok(())
    }

    fn mark(&self, stream: StreamId) -> Result<SyncPoint, DeviceError> {
        let value = self.lock()?.open_stream(stream)?.submitted;
        Ok(SyncPoint { stream, value })
    }

    fn reached(&self, stream: StreamId) -> Result<u64, DeviceError> {
        Ok(self.lock()?.any_stream(stream)?.submitted)
    }

    fn wait_on_stream(&self, stream: StreamId, points: &[SyncPoint]) -> Result<(), DeviceError> {
        let mut state = self.lock()?;
        state.open_stream(stream)?;
        points.iter().try_for_each(|point| state.is_reached(*point).map(drop))
    }

    fn wait_any(&self, points: &[SyncPoint], timeout: Duration) -> Result<bool, DeviceError> {
        let state = self.lock()?;
        if points.is_empty() {
            drop(state);
            std::thread::sleep(timeout);
            return Ok(false);
        }
        points.iter().try_for_each(|point| state.is_reached(*point).map(drop))?;
        Ok(true)
    }

    fn copy(&self, stream: StreamId, ops: &[CopyOp]) -> Result<SyncPoint, DeviceError> {
        rules::copies(ops, 4).map_err(DeviceError::InvalidCall)?;
        Ok(self.lock()?.submit(stream, |memory| memory.copy(ops))?.1)
    }

    fn fill(
        &self,
        stream: StreamId,
        place: Place,
        bytes: u64,
        word: u32,
    ) -> Result<SyncPoint, DeviceError> {
        rules::fill(place.offset, bytes).map_err(DeviceError::InvalidCall)?;
        let fill = |memory: &mut Memory| {
            let words = memory.bytes_mut(place, bytes)?.chunks_exact_mut(4);
            words.for_each(|at| at.copy_from_slice(&word.to_le_bytes()));
            Ok(())
        };
        Ok(self.lock()?.submit(stream, fill)?.1)
    }

    fn write(&self, stream: StreamId, place: Place, data: &[u8]) -> Result<SyncPoint, DeviceError> {
        let write = |memory: &mut Memory| {
            memory.bytes_mut(place, data.len() as u64)?.copy_from_slice(data);
            Ok(())
        };
        Ok(self.lock()?.submit(stream, write)?.1)
    }

    fn read(&self, stream: StreamId, place: Place, bytes: u64) -> Result<Ticket, DeviceError> {
        let mut state = self.lock()?;
        let read = |memory: &mut Memory| Ok(memory.bytes(place, bytes)?.to_vec());
        let (data, point) = state.submit(stream, read)?;
        let ticket = state.ticket(point);
        state.reads.insert(ticket.id, data);
        Ok(ticket)
    }

    fn take_read(&self, ticket: Ticket) -> Result<Vec<u8>, DeviceError> {
        let taken = self.lock()?.reads.remove(&ticket.id);
        taken.ok_or(DeviceError::InvalidCall("no such read, or it was taken"))
    }

    fn compute(&self) -> Option<&dyn Compute> {
        Some(self)
    }
}
