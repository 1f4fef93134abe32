//! Heaps, memory objects, spaces and mappings of the model, with every rule of the contract.

// Keys are numbers of the model's own making.
use rustc_hash::FxHashMap as HashMap;

use super::paging::{aligned, pageable};
use super::store::{Store, UNWRITTEN};
use crate::device::mapping::{Mapping, Mappings, Piece, covering, pieces};
use crate::device::rules::inside;
use crate::device::{
    Caps, ClassId, DeviceError, Feature, HeapId, HeapUse, MapOp, MemoryId, PagingCaps, Place,
    Plain, PlainSpec, Reserved, SpaceId, UnmapOp,
};

struct Object {
    class: ClassId,
    heap: HeapId,
    bytes: u64,
    /// Whether it belongs to a plain segment, and whether others may open it.
    plain: bool,
    exportable: bool,
    /// Mappings by both tables.
    declared: u64,
    actual: u64,
    /// It was given back; the last of its mappings goes behind work.
    leaving: bool,
    store: Option<Store>,
}

struct Space {
    class: ClassId,
    bytes: u64,
    /// The memory object of a plain segment.
    plain: Option<u64>,
    /// It was given back; the last of its mappings goes behind work.
    leaving: bool,
    /// The mappings as the calls so far add up.
    declared: Mappings,
    /// The mappings as work finds them now: behind `declared` where paging is stream-ordered.
    actual: Mappings,
}

pub(super) struct Memory {
    objects: HashMap<u64, Object>,
    spaces: HashMap<u64, Space>,
    /// Bytes of memory objects, and bytes that others hold, by heap.
    used: Vec<u64>,
    others: Vec<u64>,
    mappings: u64,
    space_bytes: u64,
    next_id: u64,
    next_address: u64,
    keep_bytes: bool,
}

const INVALID: fn(&'static str) -> DeviceError = DeviceError::InvalidCall;

impl Memory {
    pub(super) fn new(heaps: usize, keep_bytes: bool) -> Self {
        Self {
            objects: HashMap::default(),
            spaces: HashMap::default(),
            used: vec![0; heaps],
            others: vec![0; heaps],
            mappings: 0,
            space_bytes: 0,
            next_id: 1,
            next_address: 1 << 40,
            keep_bytes,
        }
    }

    pub(super) fn heap_use(&self, caps: &Caps, heap: HeapId) -> Result<HeapUse, DeviceError> {
        let at = usize::from(heap.0);
        let total = caps.heaps.get(at).ok_or(INVALID("no such heap"))?.total;
        let held = self.used[at].saturating_add(self.others[at]);
        Ok(HeapUse { total, free: total.saturating_sub(held), process: Some(self.used[at]) })
    }

    pub(super) fn set_others(&mut self, heap: HeapId, bytes: u64) {
        if let Some(others) = self.others.get_mut(usize::from(heap.0)) {
            *others = bytes;
        }
    }

    pub(super) fn object_count(&self) -> u64 {
        self.objects.len() as u64
    }

    pub(super) fn mapping_count(&self) -> u64 {
        self.mappings
    }

    /// Makes an object after all checks that plain and paged ones share.
    fn new_object(
        &mut self,
        caps: &Caps,
        class: ClassId,
        bytes: u64,
        [plain, exportable]: [bool; 2],
    ) -> Result<u64, DeviceError> {
        let spec = caps.class(class).ok_or(INVALID("no such class"))?;
        if bytes == 0 {
            return Err(INVALID("zero bytes"));
        }
        if self.object_count() >= caps.max_memory_objects {
            return Err(DeviceError::TooManyObjects { limit: caps.max_memory_objects });
        }
        if bytes > self.heap_use(caps, spec.heap)?.free {
            return Err(DeviceError::OutOfMemory { bytes });
        }
        let store = match (self.keep_bytes, spec.host_visible) {
            (false, _) => None,
            (true, false) => Some(Store::sparse()),
            (true, true) => Some(Store::whole(bytes).ok_or(DeviceError::OutOfMemory { bytes })?),
        };
        self.used[usize::from(spec.heap.0)] += bytes;
        let id = self.take_id();
        let object = Object {
            class,
            heap: spec.heap,
            bytes,
            plain,
            exportable,
            declared: 0,
            actual: 0,
            leaving: false,
            store,
        };
        self.objects.insert(id, object);
        Ok(id)
    }

    fn drop_object(&mut self, id: u64) {
        if let Some(object) = self.objects.remove(&id) {
            self.used[usize::from(object.heap.0)] -= object.bytes;
        }
    }

    fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn take_address(&mut self, caps: &Caps, bytes: u64) -> Option<u64> {
        let align = caps.plain_base_align.max(crate::units::Align::new(2 << 20)?);
        let address = align.round_up(self.next_address)?;
        // A gap between segments, so that one range never runs into the next.
        self.next_address = address.checked_add(bytes)?.checked_add(align.get())?;
        caps.addresses.then_some(address)
    }

    pub(super) fn create_plain(
        &mut self,
        caps: &Caps,
        spec: &PlainSpec<'_>,
    ) -> Result<Plain, DeviceError> {
        let PlainSpec { class, bytes, exportable, .. } = *spec;
        if !bytes.is_multiple_of(caps.plain_granularity) {
            return Err(INVALID("bytes are no multiple of the granularity"));
        }
        if exportable && !caps.export {
            return Err(DeviceError::Unsupported(Feature::Export));
        }
        if bytes > caps.max_plain_bytes {
            return Err(DeviceError::TooLarge { bytes, limit: caps.max_plain_bytes });
        }
        let memory = self.new_object(caps, class, bytes, [true, exportable])?;
        Ok(self.plain_over(caps, class, memory, bytes))
    }

    /// Another plain segment over the memory of one that others may open.
    pub(super) fn import(&mut self, caps: &Caps, space: SpaceId) -> Result<Plain, DeviceError> {
        let memory = self.plain_object(space)?;
        let object = self.objects.get(&memory).filter(|object| object.exportable);
        let object = object.ok_or(DeviceError::Unsupported(Feature::Export))?;
        Ok(self.plain_over(caps, object.class, memory, object.bytes))
    }

    fn plain_over(&mut self, caps: &Caps, class: ClassId, memory: u64, bytes: u64) -> Plain {
        let id = self.take_id();
        let whole = Mappings::from([(0, Mapping { bytes, memory, memory_offset: 0 })]);
        let space = Space {
            class,
            bytes,
            plain: Some(memory),
            leaving: false,
            declared: whole.clone(),
            actual: whole,
        };
        self.spaces.insert(id, space);
        let address = self.take_address(caps, bytes);
        Plain { space: SpaceId(id), bytes, address }
    }

    /// The memory object of a plain segment.
    pub(super) fn plain_object(&self, space: SpaceId) -> Result<u64, DeviceError> {
        let segment = self.spaces.get(&space.0).and_then(|space| space.plain);
        segment.ok_or(INVALID("the space is no plain segment"))
    }

    pub(super) fn release_plain(&mut self, space: SpaceId) -> Result<(), DeviceError> {
        let memory = self.plain_object(space)?;
        self.spaces.remove(&space.0);
        let is_shared = self.objects.get(&memory).is_some_and(|object| object.exportable);
        if !is_shared || self.spaces.values().all(|space| space.plain != Some(memory)) {
            self.drop_object(memory);
        }
        Ok(())
    }

    /// Bytes of a plain segment; 0 for what is none.
    pub(super) fn plain_bytes(&self, space: SpaceId) -> u64 {
        self.plain_object(space).map_or(0, |memory| self.object_bytes(memory))
    }

    /// Bytes of a memory object; 0 for an unknown one.
    pub(super) fn object_bytes(&self, memory: u64) -> u64 {
        self.objects.get(&memory).map_or(0, |object| object.bytes)
    }

    pub(super) fn reserve(
        &mut self,
        caps: &Caps,
        paging: &PagingCaps,
        class: ClassId,
        bytes: u64,
    ) -> Result<Reserved, DeviceError> {
        pageable(caps, paging, class)?;
        aligned(paging, bytes)?;
        if bytes > paging.max_space_bytes {
            return Err(DeviceError::TooLarge { bytes, limit: paging.max_space_bytes });
        }
        if bytes > paging.space_bytes.saturating_sub(self.space_bytes) {
            return Err(DeviceError::OutOfAddressSpace { bytes });
        }
        self.space_bytes += bytes;
        let id = self.take_id();
        let (declared, actual) = Default::default();
        self.spaces
            .insert(id, Space { class, bytes, plain: None, leaving: false, declared, actual });
        Ok(Reserved { space: SpaceId(id), address: self.take_address(caps, bytes) })
    }

    pub(super) fn unreserve(&mut self, id: SpaceId) -> Result<(), DeviceError> {
        let space = self.paged(id)?;
        if !space.declared.is_empty() {
            return Err(INVALID("something is mapped in the space"));
        }
        if space.actual.is_empty() {
            self.drop_space(id.0);
        } else if let Some(space) = self.spaces.get_mut(&id.0) {
            space.leaving = true;
        }
        Ok(())
    }

    fn drop_space(&mut self, id: u64) {
        if let Some(space) = self.spaces.remove(&id) {
            self.space_bytes -= space.bytes;
        }
    }

    fn paged(&self, id: SpaceId) -> Result<&Space, DeviceError> {
        let paged = |space: &&Space| space.plain.is_none() && !space.leaving;
        let space = self.spaces.get(&id.0).filter(paged);
        space.ok_or(INVALID("the space is no paged segment"))
    }

    pub(super) fn create(
        &mut self,
        caps: &Caps,
        paging: &PagingCaps,
        class: ClassId,
        bytes: u64,
        exportable: bool,
    ) -> Result<MemoryId, DeviceError> {
        pageable(caps, paging, class)?;
        aligned(paging, bytes)?;
        if exportable && !caps.export {
            return Err(DeviceError::Unsupported(Feature::Export));
        }
        // Pages of one memory object are bound like parts of a plain one: same limit.
        if bytes > caps.max_plain_bytes {
            return Err(DeviceError::TooLarge { bytes, limit: caps.max_plain_bytes });
        }
        self.new_object(caps, class, bytes, [false, exportable]).map(MemoryId)
    }

    pub(super) fn release(&mut self, memory: MemoryId) -> Result<(), DeviceError> {
        let object = self.page_object(memory)?;
        if object.declared > 0 {
            return Err(INVALID("the memory object is still mapped"));
        }
        if object.actual == 0 {
            self.drop_object(memory.0);
        } else if let Some(object) = self.objects.get_mut(&memory.0) {
            object.leaving = true;
        }
        Ok(())
    }

    fn page_object(&self, memory: MemoryId) -> Result<&Object, DeviceError> {
        let object = self.objects.get(&memory.0).filter(|object| !object.plain && !object.leaving);
        object.ok_or(INVALID("no such memory object"))
    }

    /// Checks `ops` as a whole and takes them into the declared table; all or none.
    pub(super) fn declare_map(
        &mut self,
        paging: &PagingCaps,
        ops: &[MapOp],
    ) -> Result<(), DeviceError> {
        if self.mappings.saturating_add(ops.len() as u64) > paging.max_mappings {
            return Err(DeviceError::TooManyObjects { limit: paging.max_mappings });
        }
        for (done, op) in ops.iter().enumerate() {
            if let Err(error) = self.declare_one(paging, op) {
                for undo in &ops[..done] {
                    self.undeclare(undo.at);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn declare_one(&mut self, paging: &PagingCaps, op: &MapOp) -> Result<(), DeviceError> {
        let MapOp { at, memory, memory_offset, bytes } = *op;
        aligned(paging, bytes)?;
        if !at.offset.is_multiple_of(paging.granularity)
            || !memory_offset.is_multiple_of(paging.granularity)
        {
            return Err(INVALID("an offset is no multiple of the granularity"));
        }
        let space = self.paged(at.space)?;
        let object = self.page_object(memory)?;
        if object.class != space.class {
            return Err(INVALID("memory object and space are of different classes"));
        }
        if paging.whole_objects && (memory_offset != 0 || bytes != object.bytes) {
            return Err(INVALID("a mapping has to cover a whole memory object"));
        }
        if !inside(memory_offset, bytes, object.bytes) || !inside(at.offset, bytes, space.bytes) {
            return Err(INVALID("a range lies outside its memory object or space"));
        }
        if covering(&space.declared, at.offset, bytes).next().is_some() {
            return Err(INVALID("something is mapped there already"));
        }
        let mapping = Mapping { bytes, memory: memory.0, memory_offset };
        if let Some(space) = self.spaces.get_mut(&at.space.0) {
            space.declared.insert(at.offset, mapping);
        }
        if let Some(object) = self.objects.get_mut(&memory.0) {
            object.declared += 1;
        }
        self.mappings += 1;
        Ok(())
    }

    fn undeclare(&mut self, at: Place) {
        let space = self.spaces.get_mut(&at.space.0);
        if let Some(old) = space.and_then(|space| space.declared.remove(&at.offset)) {
            self.mappings -= 1;
            if let Some(object) = self.objects.get_mut(&old.memory) {
                object.declared -= 1;
            }
        }
    }

    /// The mapping that an unmap names, which has to be exactly one.
    pub(super) fn mapping(&self, op: &UnmapOp) -> Result<Piece, DeviceError> {
        let space = self.paged(op.at.space)?;
        let found = space.declared.get(&op.at.offset).filter(|m| m.bytes == op.bytes);
        let found = found.ok_or(INVALID("the range is no mapping"))?;
        let Mapping { bytes, memory, memory_offset: offset } = *found;
        Ok(Piece { memory, offset, bytes, at: op.at })
    }

    pub(super) fn declare_unmap(&mut self, ops: &[UnmapOp]) -> Result<(), DeviceError> {
        for (index, op) in ops.iter().enumerate() {
            self.mapping(op)?;
            if ops[..index].iter().any(|other| other.at == op.at) {
                return Err(INVALID("a mapping is dropped twice"));
            }
        }
        for op in ops {
            self.undeclare(op.at);
        }
        Ok(())
    }

    /// Makes mappings visible to work.
    pub(super) fn map_now(&mut self, ops: &[MapOp]) {
        for op in ops {
            let memory_offset = op.memory_offset;
            let mapping = Mapping { bytes: op.bytes, memory: op.memory.0, memory_offset };
            if let Some(space) = self.spaces.get_mut(&op.at.space.0) {
                space.actual.insert(op.at.offset, mapping);
            }
            if let Some(object) = self.objects.get_mut(&op.memory.0) {
                object.actual += 1;
            }
        }
    }

    /// Hides mappings from work.
    pub(super) fn unmap_now(&mut self, ops: &[UnmapOp]) {
        for op in ops {
            let space = self.spaces.get_mut(&op.at.space.0);
            if let Some(old) = space.and_then(|space| space.actual.remove(&op.at.offset))
                && let Some(object) = self.objects.get_mut(&old.memory)
            {
                object.actual -= 1;
                if object.leaving && object.actual == 0 {
                    self.drop_object(old.memory);
                }
            }
            let space = self.spaces.get(&op.at.space.0);
            if space.is_some_and(|space| space.leaving && space.actual.is_empty()) {
                self.drop_space(op.at.space.0);
            }
        }
    }

    /// Whether the range lies inside a space of the device.
    pub(super) fn contains(&self, place: Place, bytes: u64) -> Result<(), DeviceError> {
        let space = self.spaces.get(&place.space.0).filter(|space| !space.leaving);
        let space = space.ok_or(INVALID("no such space"))?;
        if inside(place.offset, bytes, space.bytes) {
            Ok(())
        } else {
            Err(INVALID("a range lies outside its space"))
        }
    }

    /// The class of the memory in a space.
    pub(super) fn class_of(&self, space: SpaceId) -> Option<ClassId> {
        self.spaces.get(&space.0).map(|space| space.class)
    }

    /// The pieces under a range as the calls so far add up, or `None` where one is missing.
    pub(super) fn declared(&self, place: Place, bytes: u64) -> Option<Vec<Piece>> {
        pieces(&self.spaces.get(&place.space.0)?.declared, place, bytes)
    }

    /// The pieces under a range as work finds them now.
    pub(super) fn actual(&self, place: Place, bytes: u64) -> Option<Vec<Piece>> {
        pieces(&self.spaces.get(&place.space.0)?.actual, place, bytes)
    }

    /// The address of a place in a plain host-visible segment.
    pub(super) fn pointer(&self, place: Place) -> Option<std::ptr::NonNull<u8>> {
        let memory = self.spaces.get(&place.space.0)?.plain?;
        self.objects.get(&memory)?.store.as_ref()?.pointer(place.offset)
    }

    /// Reads what work would see; false where something is unmapped, and nothing is read there.
    pub(super) fn read(&self, place: Place, into: &mut [u8]) -> bool {
        let Some(pieces) = self.actual(place, into.len() as u64) else {
            into.fill(UNWRITTEN);
            return false;
        };
        let mut rest = into;
        for piece in pieces {
            let (now, later) = rest.split_at_mut(piece.bytes as usize);
            match self.objects.get(&piece.memory).and_then(|object| object.store.as_ref()) {
                Some(store) => store.read(piece.offset, now),
                None => now.fill(UNWRITTEN),
            }
            rest = later;
        }
        true
    }

    /// Writes as work would; false where something is unmapped, and nothing is written then.
    pub(super) fn write(&mut self, place: Place, data: &[u8]) -> bool {
        let Some(pieces) = self.actual(place, data.len() as u64) else { return false };
        let mut rest = data;
        for piece in pieces {
            let (now, later) = rest.split_at(piece.bytes as usize);
            let object = self.objects.get_mut(&piece.memory);
            if let Some(store) = object.and_then(|object| object.store.as_mut()) {
                store.write(piece.offset, now);
            }
            rest = later;
        }
        true
    }
}
