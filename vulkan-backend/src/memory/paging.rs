//! Paged segments: sparse buffers as spaces, pieces of memory objects as pages.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ash::vk;
use terrane_core::device::{
    ClassId, DeviceError, Feature, MapOp, MemoryId, Paging, PagingCaps, Reserved, SpaceId,
    SyncPoint, UnmapOp,
};

use crate::device::{Shared, VulkanDevice};
use crate::open::caps::SPARSE;
use crate::stream::{Bind, Kept};

use super::buffers::Buffer;
use super::object::{Object, Wish};
use super::space::{Backing, Page, Pages, Space};

/// How long to wait for binds that hold on to address space which was given back.
const DRAIN: Duration = Duration::from_secs(5);

/// Memory objects that pages come from, and the address space taken.
#[derive(Default)]
pub struct PageStore {
    next: AtomicU64,
    objects: Mutex<HashMap<MemoryId, Mapped>>,
    /// Bytes of sparse buffers alive.
    pub taken: Arc<Taken>,
}

struct Mapped {
    object: Arc<Object>,
    /// Mappings of it.
    places: u64,
}

/// Bytes of address space taken.
#[derive(Default)]
pub struct Taken(AtomicU64);

/// A piece of address space, given back when dropped.
pub struct Piece {
    taken: Arc<Taken>,
    bytes: u64,
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.taken.0.fetch_sub(self.bytes, Relaxed);
    }
}

impl PageStore {
    fn lock(&self) -> MutexGuard<'_, HashMap<MemoryId, Mapped>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a piece of the device's sparse address space.
    pub fn piece(&self, bytes: u64, limit: u64) -> Result<Piece, DeviceError> {
        let room = |now: u64| now.checked_add(bytes).filter(|sum| *sum <= limit);
        self.taken
            .0
            .fetch_update(Relaxed, Relaxed, room)
            .map_err(|_| DeviceError::OutOfAddressSpace { bytes })?;
        Ok(Piece { taken: Arc::clone(&self.taken), bytes })
    }

    /// Forgets all memory objects.
    pub fn clear(&self) {
        let objects = std::mem::take(&mut *self.lock());
        drop(objects);
    }
}

impl Shared {
    /// Makes a sparse buffer of `bytes`, with its piece of address space.
    pub fn sparse_buffer(&self, bytes: u64) -> Result<(Buffer, Piece), DeviceError> {
        let caps = self.paging_caps()?;
        if bytes > caps.max_space_bytes {
            return Err(DeviceError::TooLarge { bytes, limit: caps.max_space_bytes });
        }
        let piece = self.pages.piece(bytes, caps.space_bytes).or_else(|_| {
            // Spaces that were given back stay until the binds that undid them are done.
            self.streams.drain_binds(DRAIN)?;
            self.pages.piece(bytes, caps.space_bytes)
        })?;
        let flags = match self.tuning.unaliased {
            true => SPARSE & !vk::BufferCreateFlags::SPARSE_ALIASED,
            false => SPARSE,
        };
        let buffer = self.buffers.create(bytes, flags, false).map_err(|error| match error {
            DeviceError::OutOfMemory { bytes } => DeviceError::OutOfAddressSpace { bytes },
            other => other,
        })?;
        Ok((buffer, piece))
    }

    fn paging_caps(&self) -> Result<PagingCaps, DeviceError> {
        self.caps.paging.ok_or(DeviceError::Unsupported(Feature::Paging))
    }

    fn whole_pages(&self, numbers: &[u64]) -> Result<(), DeviceError> {
        let granularity = self.paging_caps()?.granularity;
        if numbers.iter().all(|n| n.is_multiple_of(granularity)) {
            Ok(())
        } else {
            Err(DeviceError::InvalidCall("no multiple of the page granularity"))
        }
    }

    /// Notes the mappings of `ops` in the books; on an error the books are as before.
    fn note(&self, ops: &[MapOp]) -> Result<Vec<(Arc<Space>, Page)>, DeviceError> {
        let mut noted = Vec::with_capacity(ops.len());
        for op in ops {
            match self.note_one(op) {
                Ok(pair) => noted.push(pair),
                Err(error) => {
                    self.unnote(&ops[..noted.len()], &noted);
                    return Err(error);
                }
            }
        }
        Ok(noted)
    }

    fn note_one(&self, op: &MapOp) -> Result<(Arc<Space>, Page), DeviceError> {
        self.whole_pages(&[op.at.offset, op.memory_offset, op.bytes])?;
        let space = self.spaces.get(op.at.space)?;
        let mut objects = self.pages.lock();
        let mapped =
            objects.get_mut(&op.memory).ok_or(DeviceError::InvalidCall("no such memory object"))?;
        let end = op.memory_offset.checked_add(op.bytes);
        if op.bytes == 0
            || !space.holds(op.at.offset, op.bytes)
            || end.is_none_or(|end| end > mapped.object.bytes)
        {
            return Err(DeviceError::InvalidCall("a mapping outside its space or memory object"));
        }
        let page = Page {
            bytes: op.bytes,
            memory: op.memory,
            object: Arc::clone(&mapped.object),
            memory_offset: op.memory_offset,
        };
        {
            let mut pages =
                space.pages().ok_or(DeviceError::InvalidCall("the space is not paged"))?;
            if overlaps(&pages, op.at.offset, op.bytes) {
                return Err(DeviceError::InvalidCall("something is mapped there already"));
            }
            pages.insert(op.at.offset, page.clone());
        }
        mapped.places += 1;
        Ok((space, page))
    }

    fn unnote(&self, ops: &[MapOp], noted: &[(Arc<Space>, Page)]) {
        for (op, (space, page)) in ops.iter().zip(noted) {
            self.strike(space, op.at.offset, page);
        }
    }

    /// Takes a mapping out of the books.
    fn strike(&self, space: &Space, offset: u64, page: &Page) {
        let mut objects = self.pages.lock();
        if let Some(mut pages) = space.pages() {
            pages.remove(&offset);
        }
        if let Some(mapped) = objects.get_mut(&page.memory) {
            mapped.places = mapped.places.saturating_sub(1);
        }
    }

    fn mapping(&self, op: &UnmapOp) -> Result<(Arc<Space>, Page), DeviceError> {
        let space = self.spaces.get(op.at.space)?;
        let page = space.pages().and_then(|pages| pages.get(&op.at.offset).cloned());
        match page.filter(|page| page.bytes == op.bytes) {
            Some(page) => Ok((space, page)),
            None => Err(DeviceError::InvalidCall("no such mapping")),
        }
    }
}

/// Whether a mapping overlaps the range.
fn overlaps(pages: &Pages, offset: u64, bytes: u64) -> bool {
    let before = pages.range(..offset).next_back();
    before.is_some_and(|(at, page)| at + page.bytes > offset)
        || pages.range(offset..offset + bytes).next().is_some()
}

/// One bind per buffer, its pages in the order of the operations.
fn group(pages: impl Iterator<Item = (vk::Buffer, vk::SparseMemoryBind)>) -> Vec<Bind> {
    let mut binds: Vec<Bind> = Vec::new();
    for (buffer, page) in pages {
        match binds.iter_mut().find(|bind| bind.buffer == buffer) {
            Some(bind) => bind.pages.push(page),
            None => binds.push(Bind { buffer, pages: vec![page] }),
        }
    }
    binds
}

impl Paging for VulkanDevice {
    fn reserve(&self, class: ClassId, bytes: u64) -> Result<Reserved, DeviceError> {
        let s = &self.shared;
        s.driver.check()?;
        s.whole_pages(&[bytes])?;
        if bytes == 0
            || s.paging_caps()?.classes & 1_u32.checked_shl(class.0.into()).unwrap_or(0) == 0
        {
            return Err(DeviceError::InvalidCall("no bytes, or a class that can not be paged"));
        }
        let (buffer, piece) = s.sparse_buffer(bytes)?;
        buffer.name("terrane paged segment");
        let space = s.spaces.add(buffer, bytes, Backing::Paged(Mutex::default(), piece));
        Ok(Reserved { space: space.id, address: space.address })
    }

    fn unreserve(&self, space: SpaceId) -> Result<(), DeviceError> {
        if self.shared.driver.is_lost() {
            return Ok(());
        }
        let empty = |space: &Space| match space.pages() {
            None => Err(DeviceError::InvalidCall("the space is not paged")),
            Some(pages) if pages.is_empty() => Ok(()),
            Some(_) => Err(DeviceError::InvalidCall("something is mapped in the space")),
        };
        drop(self.shared.spaces.remove(space, empty)?);
        Ok(())
    }

    fn create(
        &self,
        class: ClassId,
        bytes: u64,
        exportable: bool,
    ) -> Result<MemoryId, DeviceError> {
        let s = &self.shared;
        s.driver.check()?;
        s.whole_pages(&[bytes])?;
        let class = *s.caps.class(class).ok_or(DeviceError::InvalidCall("no such memory class"))?;
        if bytes == 0 {
            return Err(DeviceError::InvalidCall("a memory object of no bytes"));
        }
        let limit = s.survey.max_memory_bytes;
        if bytes > limit {
            return Err(DeviceError::TooLarge { bytes, limit });
        }
        // On lavapipe exportable memory silently reads zeros through a sparse buffer.
        let blind = s.survey.driver_id == vk::DriverId::MESA_LLVMPIPE;
        if exportable && (blind || !s.caps.export) {
            return Err(DeviceError::Unsupported(Feature::Export));
        }
        let wish = Wish { class, bytes, exportable, priority: 0.5, dedicated: None };
        let object = Arc::new(s.objects.allocate(&wish, "terrane pages")?);
        let id = MemoryId(s.pages.next.fetch_add(1, Relaxed));
        s.pages.lock().insert(id, Mapped { object, places: 0 });
        Ok(id)
    }

    fn release(&self, memory: MemoryId) -> Result<(), DeviceError> {
        if self.shared.driver.is_lost() {
            return Ok(());
        }
        let mut objects = self.shared.pages.lock();
        let places = objects.get(&memory).map(|mapped| mapped.places);
        match places {
            None => Err(DeviceError::InvalidCall("no such memory object")),
            Some(0) => {
                let mapped = objects.remove(&memory);
                drop(objects);
                drop(mapped);
                Ok(())
            }
            Some(_) => Err(DeviceError::InvalidCall("the memory object is still mapped")),
        }
    }

    fn map(&self, ops: &[MapOp], after: &[SyncPoint]) -> Result<Option<SyncPoint>, DeviceError> {
        let s = &self.shared;
        s.driver.check()?;
        if ops.is_empty() {
            return Ok(None);
        }
        let noted = s.note(ops)?;
        let binds = group(ops.iter().zip(&noted).map(|(op, (space, page))| {
            let bind = vk::SparseMemoryBind::default()
                .resource_offset(op.at.offset)
                .size(op.bytes)
                .memory(page.object.raw)
                .memory_offset(op.memory_offset);
            (space.buffer.raw, bind)
        }));
        let keep: Kept = noted.iter().map(|pair| Box::new(pair.clone()) as _).collect();
        let result = s.streams.bind(&binds, after, keep);
        let point = result.inspect_err(|_| s.unnote(ops, &noted))?;
        s.streams.raise_floor(point);
        if s.driver.is_own() && s.streams.has_foreign() {
            // Nobody tells the host program, whose submissions do not pass here.
            s.streams.drain_binds(DRAIN)?;
        }
        Ok(Some(point))
    }

    fn unmap(
        &self,
        ops: &[UnmapOp],
        after: &[SyncPoint],
    ) -> Result<Option<SyncPoint>, DeviceError> {
        let s = &self.shared;
        s.driver.check()?;
        if ops.is_empty() {
            return Ok(None);
        }
        let mappings = ops.iter().map(|op| s.mapping(op)).collect::<Result<Vec<_>, _>>()?;
        let binds = group(ops.iter().zip(&mappings).map(|(op, (space, _))| {
            let bind = vk::SparseMemoryBind::default().resource_offset(op.at.offset).size(op.bytes);
            (space.buffer.raw, bind)
        }));
        let keep: Kept = mappings.iter().map(|pair| Box::new(pair.clone()) as _).collect();
        let point = s.streams.bind(&binds, after, keep)?;
        for (op, (space, page)) in ops.iter().zip(&mappings) {
            s.strike(space, op.at.offset, page);
        }
        Ok(Some(point))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_space_is_given_out_up_to_its_limit_and_comes_back() {
        let store = PageStore::default();
        let first = store.piece(60, 100).unwrap();
        assert!(store.piece(41, 100).is_err());
        assert!(store.piece(u64::MAX, 100).is_err());
        drop(first);
        assert!(store.piece(100, 100).is_ok());
    }
}
