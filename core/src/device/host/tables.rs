//! Spaces, memory objects and mappings of the CPU device, and who uses their bytes.
//!
//! This table is what makes the device memory-safe whatever its caller does: a [`Span`] is
//! given out only over bytes that are mapped, together with a claim; while a claim lives, its
//! bytes can not be unmapped or released, and no host view of them can be made.

use std::collections::HashMap;

use super::os::{PageFile, Region};
use super::span::Span;
use crate::device::mapping::{Mapping, Mappings, Piece, covering, pieces};
use crate::device::rules::inside;
use crate::device::{
    Caps, ClassId, DeviceError, MapOp, MemoryId, PagingCaps, Place, Plain, PlainSpec, Reserved,
    SpaceId, UnmapOp,
};

const INVALID: fn(&'static str) -> DeviceError = DeviceError::InvalidCall;

struct Space {
    region: Region,
    class: ClassId,
    bytes: u64,
    /// The memory object of a plain segment.
    plain: Option<u64>,
    mappings: Mappings,
}

struct Object {
    class: ClassId,
    bytes: u64,
    /// Where a memory object for pages lies in the file.
    file_offset: Option<u64>,
    mappings: u64,
}

/// What holds bytes in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// Submitted work.
    Work,
    /// A view by the host, which no one else may touch.
    View,
}

pub(super) struct Tables {
    spaces: HashMap<u64, Space>,
    objects: HashMap<u64, Object>,
    claims: HashMap<u64, (Holder, Vec<Piece>)>,
    views: u64,
    file: PageFile,
    used_bytes: u64,
    space_bytes: u64,
    mappings: u64,
    last_id: u64,
}

/// Names a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim(u64);

/// What was taken out of the tables and has to be dropped, or punched, without the lock.
pub(super) enum Remains {
    Region { region: Region, bytes: u64 },
    Range { offset: u64, bytes: u64 },
}

impl Tables {
    pub(super) fn new(file: PageFile) -> Self {
        Self {
            spaces: HashMap::new(),
            objects: HashMap::new(),
            claims: HashMap::new(),
            views: 0,
            file,
            used_bytes: 0,
            space_bytes: 0,
            mappings: 0,
            last_id: 0,
        }
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(super) fn take_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn room(&self, caps: &Caps, class: ClassId, bytes: u64) -> Result<(), DeviceError> {
        let heap = caps.class(class).ok_or(INVALID("no such class"))?.heap;
        let total = caps.heaps.get(usize::from(heap.0)).map_or(0, |heap| heap.total);
        if bytes == 0 {
            return Err(INVALID("zero bytes"));
        }
        if bytes > caps.max_plain_bytes {
            return Err(DeviceError::TooLarge { bytes, limit: caps.max_plain_bytes });
        }
        if self.objects.len() as u64 >= caps.max_memory_objects {
            return Err(DeviceError::TooManyObjects { limit: caps.max_memory_objects });
        }
        if bytes > total.saturating_sub(self.used_bytes) {
            return Err(DeviceError::OutOfMemory { bytes });
        }
        Ok(())
    }

    pub(super) fn create_plain(
        &mut self,
        caps: &Caps,
        spec: &PlainSpec<'_>,
    ) -> Result<Plain, DeviceError> {
        let PlainSpec { class, bytes, .. } = *spec;
        if !bytes.is_multiple_of(caps.plain_granularity) {
            return Err(INVALID("bytes are no multiple of the granularity"));
        }
        self.room(caps, class, bytes)?;
        let region = Region::memory(bytes)?;
        let address = Some(region.base().as_ptr().addr() as u64);
        self.used_bytes += bytes;
        let (memory, id) = (self.take_id(), self.take_id());
        self.objects.insert(memory, Object { class, bytes, file_offset: None, mappings: 1 });
        let mappings = Mappings::from([(0, Mapping { bytes, memory, memory_offset: 0 })]);
        self.spaces.insert(id, Space { region, class, bytes, plain: Some(memory), mappings });
        Ok(Plain { space: SpaceId(id), bytes, address })
    }

    pub(super) fn release_plain(&mut self, id: SpaceId) -> Result<Remains, DeviceError> {
        let memory = self.spaces.get(&id.0).and_then(|space| space.plain);
        let memory = memory.ok_or(INVALID("the space is no plain segment"))?;
        if self.held(|piece| piece.memory == memory) {
            return Err(INVALID("the segment is in use"));
        }
        self.objects.remove(&memory);
        let space = self.spaces.remove(&id.0).ok_or(INVALID("no such space"))?;
        Ok(Remains::Region { region: space.region, bytes: space.bytes })
    }

    pub(super) fn reserve(
        &mut self,
        paging: &PagingCaps,
        class: ClassId,
        bytes: u64,
    ) -> Result<Reserved, DeviceError> {
        pageable(paging, class)?;
        aligned(paging, bytes)?;
        if bytes > paging.max_space_bytes {
            return Err(DeviceError::TooLarge { bytes, limit: paging.max_space_bytes });
        }
        if bytes > paging.space_bytes.saturating_sub(self.space_bytes) {
            return Err(DeviceError::OutOfAddressSpace { bytes });
        }
        let region = Region::reserved(bytes, paging.granularity)?;
        let address = Some(region.base().as_ptr().addr() as u64);
        self.space_bytes += bytes;
        let id = self.take_id();
        let mappings = Mappings::new();
        self.spaces.insert(id, Space { region, class, bytes, plain: None, mappings });
        Ok(Reserved { space: SpaceId(id), address })
    }

    pub(super) fn unreserve(&mut self, id: SpaceId) -> Result<Remains, DeviceError> {
        if !self.paged(id)?.mappings.is_empty() {
            return Err(INVALID("something is mapped in the space"));
        }
        let space = self.spaces.remove(&id.0).ok_or(INVALID("no such space"))?;
        self.space_bytes -= space.bytes;
        Ok(Remains::Region { region: space.region, bytes: 0 })
    }

    fn paged(&self, id: SpaceId) -> Result<&Space, DeviceError> {
        let space = self.spaces.get(&id.0).filter(|space| space.plain.is_none());
        space.ok_or(INVALID("the space is no paged segment"))
    }

    pub(super) fn create(
        &mut self,
        caps: &Caps,
        paging: &PagingCaps,
        class: ClassId,
        bytes: u64,
    ) -> Result<MemoryId, DeviceError> {
        pageable(paging, class)?;
        aligned(paging, bytes)?;
        self.room(caps, class, bytes)?;
        let file_offset = Some(self.file.extend(bytes)?);
        self.used_bytes += bytes;
        let id = self.take_id();
        self.objects.insert(id, Object { class, bytes, file_offset, mappings: 0 });
        Ok(MemoryId(id))
    }

    pub(super) fn release(&mut self, memory: MemoryId) -> Result<Remains, DeviceError> {
        let (object, offset) = self.page_object(memory)?;
        if object.mappings > 0 {
            return Err(INVALID("the memory object is still mapped"));
        }
        let bytes = object.bytes;
        self.objects.remove(&memory.0);
        Ok(Remains::Range { offset, bytes })
    }

    /// The last step of giving memory back: afterwards it counts as free.
    pub(super) fn given_back(&mut self, bytes: u64) {
        self.used_bytes = self.used_bytes.saturating_sub(bytes);
    }

    pub(super) fn punch(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.file.punch(offset, bytes)
    }

    fn page_object(&self, memory: MemoryId) -> Result<(&Object, u64), DeviceError> {
        let object = self.objects.get(&memory.0);
        let found = object.and_then(|object| Some((object, object.file_offset?)));
        found.ok_or(INVALID("no such memory object"))
    }

    /// Makes all mappings or none.
    pub(super) fn map(&mut self, paging: &PagingCaps, ops: &[MapOp]) -> Result<(), DeviceError> {
        if self.mappings.saturating_add(ops.len() as u64) > paging.max_mappings {
            return Err(DeviceError::TooManyObjects { limit: paging.max_mappings });
        }
        for (done, op) in ops.iter().enumerate() {
            if let Err(error) = self.map_one(paging, op) {
                for op in &ops[..done] {
                    // Nobody can have claimed what was mapped a moment ago under this lock.
                    let _ = self.unmap_one(op.at);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    #[allow(unsafe_code)]
    fn map_one(&mut self, paging: &PagingCaps, op: &MapOp) -> Result<(), DeviceError> {
        let MapOp { at, memory, memory_offset, bytes } = *op;
        aligned(paging, bytes)?;
        if !at.offset.is_multiple_of(paging.granularity)
            || !memory_offset.is_multiple_of(paging.granularity)
        {
            return Err(INVALID("an offset is no multiple of the granularity"));
        }
        let space = self.paged(at.space)?;
        let (object, file_offset) = self.page_object(memory)?;
        if object.class != space.class {
            return Err(INVALID("memory object and space are of different classes"));
        }
        if !inside(memory_offset, bytes, object.bytes) || !inside(at.offset, bytes, space.bytes) {
            return Err(INVALID("a range lies outside its memory object or space"));
        }
        if covering(&space.mappings, at.offset, bytes).next().is_some() {
            return Err(INVALID("something is mapped there already"));
        }
        // SAFETY: nothing is mapped in the range by the check above, so no span covers it, and
        // whoever touches it faults today as before.
        unsafe {
            space.region.map_file(at.offset, &self.file, file_offset + memory_offset, bytes)?;
        }
        let mapping = Mapping { bytes, memory: memory.0, memory_offset };
        if let Some(space) = self.spaces.get_mut(&at.space.0) {
            space.mappings.insert(at.offset, mapping);
        }
        if let Some(object) = self.objects.get_mut(&memory.0) {
            object.mappings += 1;
        }
        self.mappings += 1;
        Ok(())
    }

    /// Drops all mappings or none.
    pub(super) fn unmap(&mut self, ops: &[UnmapOp]) -> Result<(), DeviceError> {
        let mut named: Vec<Place> = ops.iter().map(|op| op.at).collect();
        named.sort_unstable();
        if named.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(INVALID("a mapping is dropped twice"));
        }
        for UnmapOp { at, bytes } in ops {
            let mappings = &self.paged(at.space)?.mappings;
            if mappings.get(&at.offset).is_none_or(|mapping| mapping.bytes != *bytes) {
                return Err(INVALID("the range is no mapping"));
            }
            let end = at.offset + bytes;
            if self.held(|piece| {
                piece.at.space == at.space
                    && piece.at.offset < end
                    && at.offset < piece.at.offset + piece.bytes
            }) {
                return Err(INVALID("the mapping is in use"));
            }
        }
        let mut done = Vec::new();
        for op in ops {
            match self.unmap_one(op.at) {
                Ok(mapping) => done.push((op.at, mapping)),
                Err(error) => {
                    done.into_iter().for_each(|(at, mapping)| self.restore(at, mapping));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Maps again what was dropped in a call that failed later.
    #[allow(unsafe_code)]
    fn restore(&mut self, at: Place, mapping: Mapping) {
        let Mapping { bytes, memory, memory_offset } = mapping;
        let offset = self.objects.get(&memory).and_then(|object| object.file_offset);
        let (Some(space), Some(offset)) = (self.spaces.get_mut(&at.space.0), offset) else {
            return;
        };
        // SAFETY: the range was dropped under this same lock, so nothing uses it.
        let mapped =
            unsafe { space.region.map_file(at.offset, &self.file, offset + memory_offset, bytes) };
        // Where even this fails the mapping stays dropped, in the table as in the process.
        if mapped.is_ok() {
            space.mappings.insert(at.offset, mapping);
            self.mappings += 1;
            if let Some(object) = self.objects.get_mut(&memory) {
                object.mappings += 1;
            }
        }
    }

    #[allow(unsafe_code)]
    fn unmap_one(&mut self, at: Place) -> Result<Mapping, DeviceError> {
        let space = self.spaces.get_mut(&at.space.0).ok_or(INVALID("no such space"))?;
        let mapping = *space.mappings.get(&at.offset).ok_or(INVALID("no such mapping"))?;
        let Mapping { bytes, memory, .. } = mapping;
        // SAFETY: no claim covers the range, as the callers checked under this lock, so no span
        // reaches it.
        unsafe { space.region.clear(at.offset, bytes)? };
        space.mappings.remove(&at.offset);
        self.mappings -= 1;
        if let Some(object) = self.objects.get_mut(&memory) {
            object.mappings -= 1;
        }
        Ok(mapping)
    }

    fn held(&self, which: impl Fn(&Piece) -> bool) -> bool {
        self.claims.values().flat_map(|(_, pieces)| pieces).any(which)
    }

    fn resolve(&self, place: Place, bytes: u64) -> Result<(Span, Vec<Piece>), DeviceError> {
        let space = self.spaces.get(&place.space.0).ok_or(INVALID("no such space"))?;
        if !inside(place.offset, bytes, space.bytes) {
            return Err(INVALID("a range lies outside its space"));
        }
        let pieces = pieces(&space.mappings, place, bytes);
        let pieces = pieces.ok_or(INVALID("nothing is mapped in the range"))?;
        Ok((self.span(space, place.offset, bytes), pieces))
    }

    #[allow(unsafe_code)]
    fn span(&self, space: &Space, offset: u64, bytes: u64) -> Span {
        // SAFETY: the callers checked that the range is inside the space and mapped; their
        // claim keeps it so for as long as the span is used.
        unsafe { Span::new(space.region.base().add(offset as usize), bytes as usize) }
    }

    /// Claims ranges for work: they stay mapped until [`unclaim`](Self::unclaim).
    pub(super) fn claim(
        &mut self,
        ranges: impl IntoIterator<Item = (Place, u64)>,
    ) -> Result<(Claim, Vec<Span>), DeviceError> {
        let (mut spans, mut all) = (Vec::new(), Vec::new());
        for (place, bytes) in ranges {
            let (span, pieces) = self.resolve(place, bytes)?;
            if self.views > 0 && self.seen(&pieces, |holder| holder == Holder::View) {
                return Err(INVALID("the host views bytes of the range"));
            }
            spans.push(span);
            all.extend(pieces);
        }
        let id = self.take_id();
        self.claims.insert(id, (Holder::Work, all));
        Ok((Claim(id), spans))
    }

    /// Claims a range for the host alone.
    pub(super) fn claim_view(
        &mut self,
        place: Place,
        bytes: u64,
    ) -> Result<(Claim, Span), DeviceError> {
        let (span, pieces) = self.resolve(place, bytes)?;
        if self.seen(&pieces, |_| true) {
            return Err(INVALID("work or another view uses the range"));
        }
        let id = self.take_id();
        self.views += 1;
        self.claims.insert(id, (Holder::View, pieces));
        Ok((Claim(id), span))
    }

    fn seen(&self, pieces: &[Piece], by: impl Fn(Holder) -> bool) -> bool {
        let mut claims = self.claims.values().filter(|(holder, _)| by(*holder));
        claims.any(|(_, theirs)| theirs.iter().any(|t| pieces.iter().any(|p| p.overlaps(t))))
    }

    pub(super) fn unclaim(&mut self, claim: Claim) {
        if let Some((Holder::View, _)) = self.claims.remove(&claim.0) {
            self.views -= 1;
        }
    }

    /// The address of a range of one byte or more, mapped or not yet.
    pub(super) fn address(&self, place: Place) -> Result<std::ptr::NonNull<u8>, DeviceError> {
        let space = self.spaces.get(&place.space.0).ok_or(INVALID("no such space"))?;
        if place.offset >= space.bytes {
            return Err(INVALID("a range lies outside its space"));
        }
        let address = space.region.base().as_ptr().wrapping_add(place.offset as usize);
        std::ptr::NonNull::new(address).ok_or(INVALID("no such address"))
    }
}

fn pageable(paging: &PagingCaps, class: ClassId) -> Result<(), DeviceError> {
    let pageable = u32::from(class.0) < 32 && paging.classes >> class.0 & 1 == 1;
    pageable.then_some(()).ok_or(INVALID("the class can not be paged"))
}

fn aligned(paging: &PagingCaps, bytes: u64) -> Result<(), DeviceError> {
    let aligned = bytes > 0 && bytes.is_multiple_of(paging.granularity);
    aligned.then_some(()).ok_or(INVALID("bytes are zero or no multiple of the granularity"))
}
