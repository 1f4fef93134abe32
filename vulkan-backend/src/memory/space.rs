//! Spaces by their ids, and places resolved to buffers.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use ash::vk;
use terrane_core::device::{DeviceError, MemoryId, Place, SpaceId};

use super::buffers::Buffer;
use super::object::Object;
use super::paging::Piece;

/// An address range with a buffer over all of it.
pub struct Space {
    pub id: SpaceId,
    // Before the backing, so that the buffer goes before its memory.
    pub buffer: Buffer,
    pub bytes: u64,
    pub address: Option<u64>,
    pub backing: Backing,
}

/// What backs a space.
pub enum Backing {
    /// One memory object.
    Plain(Arc<Object>),
    /// Pages, by their offset in the space, and the piece of address space.
    Paged(Mutex<Pages>, #[allow(dead_code)] Piece), // the piece is held, never read
}

/// Mapped pages by offset.
pub type Pages = BTreeMap<u64, Page>;

/// A mapping.
#[derive(Clone)]
pub struct Page {
    pub bytes: u64,
    pub memory: MemoryId,
    pub object: Arc<Object>,
    pub memory_offset: u64,
}

impl Space {
    /// The memory object of a plain segment.
    pub fn plain(&self) -> Option<&Arc<Object>> {
        match &self.backing {
            Backing::Plain(object) => Some(object),
            Backing::Paged(..) => None,
        }
    }

    /// The pages of a paged segment.
    pub fn pages(&self) -> Option<MutexGuard<'_, Pages>> {
        match &self.backing {
            Backing::Plain(_) => None,
            Backing::Paged(pages, _) => Some(pages.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }

    /// Whether `bytes` from `offset` lie inside.
    pub fn holds(&self, offset: u64, bytes: u64) -> bool {
        offset.checked_add(bytes).is_some_and(|end| end <= self.bytes)
    }
}

/// The table of spaces.
#[derive(Default)]
pub struct Spaces {
    next: AtomicU64,
    table: RwLock<HashMap<SpaceId, Arc<Space>>>,
}

/// A range of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub space: SpaceId,
    pub buffer: vk::Buffer,
    pub offset: u64,
    pub bytes: u64,
    /// The device address of the range's first byte.
    pub address: Option<u64>,
}

impl Spaces {
    /// Adds a space under a new id.
    pub fn add(&self, buffer: Buffer, bytes: u64, backing: Backing) -> Arc<Space> {
        let id = SpaceId(self.next.fetch_add(1, Relaxed));
        let address = buffer.address();
        let space = Arc::new(Space { id, buffer, bytes, address, backing });
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.insert(id, Arc::clone(&space));
        space
    }

    /// A space.
    pub fn get(&self, id: SpaceId) -> Result<Arc<Space>, DeviceError> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.get(&id).cloned().ok_or(DeviceError::InvalidCall("no such space"))
    }

    /// Takes a space out if `may` agrees.
    pub fn remove(
        &self,
        id: SpaceId,
        may: impl FnOnce(&Space) -> Result<(), DeviceError>,
    ) -> Result<Arc<Space>, DeviceError> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let space = table.get(&id).ok_or(DeviceError::InvalidCall("no such space"))?;
        may(space)?;
        table.remove(&id).ok_or(DeviceError::InvalidCall("no such space"))
    }

    /// The buffer's range at a place.
    pub fn range(&self, place: Place, bytes: u64) -> Result<Range, DeviceError> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let space = table.get(&place.space).ok_or(DeviceError::InvalidCall("no such space"))?;
        if !space.holds(place.offset, bytes) {
            return Err(DeviceError::InvalidCall("a range outside its space"));
        }
        Ok(Range {
            space: place.space,
            buffer: space.buffer.raw,
            offset: place.offset,
            bytes,
            address: space.address.map(|base| base + place.offset),
        })
    }

    /// Forgets all spaces.
    pub fn clear(&self) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let spaces = std::mem::take(&mut *table);
        drop(table);
        drop(spaces);
    }
}
