//! Address ranges that work can use, and the plain segments among them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, RwLock};

use terrane_core::device::{
    ClassId, DeviceError, Feature, MemoryKind, Place, Plain, PlainSpec, SpaceId,
};

use crate::driver::{Dev, RawMemory};
use crate::inner::{Inner, read, write};
use crate::paging::Pages;

/// What stands behind a space.
pub(crate) enum Backing {
    /// `cuMemAlloc` or `cuMemAllocManaged`.
    Alloc,
    /// `cuMemAllocAsync`.
    Async,
    /// `cuMemHostAlloc`.
    Host,
    /// One memory object mapped into a reservation: exportable or guarded memory.
    Mapped(Mapped),
    /// Pages, which [`Pages`] knows.
    Paged,
}

/// A reservation with one memory object at its start.
#[derive(Clone, Copy)]
pub(crate) struct Mapped {
    reserved_at: u64,
    reserved_bytes: u64,
    mapped_bytes: u64,
    memory: RawMemory,
}

/// An address range.
pub(crate) struct Space {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    pub(crate) class: ClassId,
    pub(crate) backing: Backing,
    /// Host views that are open: while there is one, the memory stays.
    pub(crate) views: Arc<AtomicU32>,
}

impl Space {
    pub(crate) fn new(base: u64, bytes: u64, class: ClassId, backing: Backing) -> Self {
        Self { base, bytes, class, backing, views: Arc::default() }
    }

    /// The address of a range of it.
    pub(crate) fn address(&self, offset: u64, bytes: u64) -> Result<u64, DeviceError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(self.base + offset),
            _ => Err(DeviceError::InvalidCall("a range outside its space")),
        }
    }
}

/// All spaces, by number, and what pages are mapped.
#[derive(Default)]
pub(crate) struct Spaces {
    table: RwLock<HashMap<u64, Space>>,
    pub(crate) pages: Pages,
}

const NO_SPACE: DeviceError = DeviceError::InvalidCall("no such space");

impl Spaces {
    pub(crate) fn insert(&self, id: SpaceId, space: Space) {
        write(&self.table).insert(id.0, space);
    }

    pub(crate) fn remove_if(
        &self,
        id: SpaceId,
        check: impl FnOnce(&Space) -> Result<(), DeviceError>,
    ) -> Result<Space, DeviceError> {
        let mut table = write(&self.table);
        check(table.get(&id.0).ok_or(NO_SPACE)?)?;
        table.remove(&id.0).ok_or(NO_SPACE)
    }

    /// Looks at a space.
    pub(crate) fn with<T>(
        &self,
        id: SpaceId,
        look: impl FnOnce(&Space) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        look(read(&self.table).get(&id.0).ok_or(NO_SPACE)?)
    }

    /// The address of a range.
    pub(crate) fn address(&self, place: Place, bytes: u64) -> Result<u64, DeviceError> {
        self.with(place.space, |space| space.address(place.offset, bytes))
    }

    /// The addresses of many ranges under one lock, in order.
    pub(crate) fn addresses(
        &self,
        ranges: impl Iterator<Item = (Place, u64)>,
    ) -> Result<Vec<u64>, DeviceError> {
        let table = read(&self.table);
        ranges
            .map(|(place, bytes)| {
                let space = table.get(&place.space.0).ok_or(NO_SPACE)?;
                space.address(place.offset, bytes)
            })
            .collect()
    }

    /// Gives everything back. Pre: entered, and no work runs.
    pub(crate) fn clear(&self, inner: &Inner) {
        self.pages.clear(inner);
        for (_, space) in write(&self.table).drain() {
            let _ = inner.free_backing(&space);
        }
    }
}

impl Inner {
    pub(crate) fn create_plain(&self, spec: &PlainSpec<'_>) -> Result<Plain, DeviceError> {
        let class = self.caps.class(spec.class).ok_or(DeviceError::InvalidCall("no such class"))?;
        let granularity = self.caps.plain_granularity;
        if spec.bytes == 0 || !spec.bytes.is_multiple_of(granularity) {
            return Err(DeviceError::InvalidCall("bytes are no multiple of the granularity"));
        }
        if spec.bytes > self.caps.max_plain_bytes {
            let limit = self.caps.max_plain_bytes;
            return Err(DeviceError::TooLarge { bytes: spec.bytes, limit });
        }
        if spec.exportable && (class.kind != MemoryKind::Device || !self.caps.export) {
            return Err(DeviceError::Unsupported(Feature::Export));
        }
        let _entered = self.enter()?;
        let space = self.new_plain(class.kind, spec)?;
        let id = SpaceId(self.next_id());
        let plain = Plain { space: id, bytes: space.bytes, address: Some(space.base) };
        self.spaces.insert(id, space);
        Ok(plain)
    }

    fn new_plain(&self, kind: MemoryKind, spec: &PlainSpec<'_>) -> Result<Space, DeviceError> {
        let (driver, bytes) = (self.driver.as_ref(), spec.bytes);
        let (address, backing) = match kind {
            MemoryKind::Device if spec.exportable || self.options.guard => {
                return self.new_mapped(spec);
            }
            MemoryKind::Device => match self.source {
                None => (driver.alloc(bytes), Backing::Alloc),
                Some(stream) => {
                    // Every stream may use the memory at once, so its birth is waited for; the
                    // source stream carries nothing else.
                    let address = driver
                        .alloc_async(bytes, stream)
                        .and_then(|address| driver.stream_synchronize(stream).map(|()| address));
                    (address, Backing::Async)
                }
            },
            MemoryKind::Upload | MemoryKind::Readback => (driver.host_alloc(bytes), Backing::Host),
            MemoryKind::Shared => (driver.managed_alloc(bytes), Backing::Alloc),
        };
        let address = address.map_err(|fault| self.fail_memory(fault, bytes))?;
        let space = Space::new(address, bytes, spec.class, backing);
        if !self.caps.plain_base_align.divides(address) {
            let _ = self.free_backing(&space);
            return Err(DeviceError::Driver { call: "an allocation's alignment", code: 0 });
        }
        Ok(space)
    }

    /// One memory object in a reservation of its own. In guard mode the block ends where the
    /// mapped pages end, and the page after them stays unmapped: the first access past the end
    /// faults.
    fn new_mapped(&self, spec: &PlainSpec<'_>) -> Result<Space, DeviceError> {
        let page = self.details.page_granularity;
        let too_large = DeviceError::TooLarge { bytes: spec.bytes, limit: u64::MAX / 4 };
        let mapped_bytes = spec.bytes.checked_next_multiple_of(page).ok_or(too_large)?;
        let gap = if self.options.guard { page } else { 0 };
        let reserved_bytes = mapped_bytes.checked_add(gap).ok_or(too_large)?;
        let driver = self.driver.as_ref();
        let reserved_at = driver
            .reserve(reserved_bytes, page)
            .map_err(|_| DeviceError::OutOfAddressSpace { bytes: reserved_bytes })?;
        let memory = match driver.create(mapped_bytes, self.device, spec.exportable) {
            Ok(memory) => memory,
            Err(fault) => {
                let _ = driver.unreserve(reserved_at, reserved_bytes);
                return Err(self.fail_memory(fault, mapped_bytes));
            }
        };
        let mapped = Mapped { reserved_at, reserved_bytes, mapped_bytes, memory };
        if let Err(error) = self.map_page(reserved_at, mapped_bytes, memory) {
            let _ = driver.release(memory);
            let _ = driver.unreserve(reserved_at, reserved_bytes);
            return Err(error);
        }
        let slack = if self.options.guard { mapped_bytes - spec.bytes } else { 0 };
        let bytes = mapped_bytes - slack;
        Ok(Space::new(reserved_at + slack, bytes, spec.class, Backing::Mapped(mapped)))
    }

    /// Maps a whole memory object and gives access; undoes the mapping when that fails.
    pub(crate) fn map_page(
        &self,
        address: u64,
        bytes: u64,
        memory: RawMemory,
    ) -> Result<(), DeviceError> {
        let driver = self.driver.as_ref();
        driver.map(address, bytes, memory).map_err(|fault| self.fail_memory(fault, bytes))?;
        let devices: Vec<Dev> = read(&self.accessible).clone();
        driver.set_access(address, bytes, &devices).map_err(|fault| {
            let _ = driver.unmap(address, bytes);
            self.fail_memory(fault, bytes)
        })
    }

    pub(crate) fn release_plain(&self, id: SpaceId) -> Result<(), DeviceError> {
        let entered = self.enter_to_release()?;
        let space = self.spaces.remove_if(id, |space| {
            if matches!(space.backing, Backing::Paged) {
                return Err(DeviceError::InvalidCall("no plain segment"));
            }
            if space.views.load(Ordering::Acquire) > 0 {
                return Err(DeviceError::InvalidCall("the segment has open host views"));
            }
            Ok(())
        })?;
        match entered {
            Some(_) => self.free_backing(&space),
            None => Ok(()),
        }
    }

    /// Gives the memory of a plain segment back. Pre: entered.
    pub(crate) fn free_backing(&self, space: &Space) -> Result<(), DeviceError> {
        let driver = self.driver.as_ref();
        match &space.backing {
            Backing::Alloc => driver.free(space.base),
            Backing::Host => driver.host_free(space.base),
            Backing::Async => match self.source {
                Some(stream) => driver.free_async(space.base, stream),
                None => Ok(()),
            },
            Backing::Mapped(mapped) => driver
                .unmap(mapped.reserved_at, mapped.mapped_bytes)
                .and_then(|()| driver.release(mapped.memory))
                .and_then(|()| driver.unreserve(mapped.reserved_at, mapped.reserved_bytes)),
            Backing::Paged => driver.unreserve(space.base, space.bytes),
        }
        .map_err(|fault| self.fail(fault))
    }

    /// The memory object of an exportable plain segment.
    pub(crate) fn exported_plain(&self, id: SpaceId) -> Result<RawMemory, DeviceError> {
        self.spaces.with(id, |space| match &space.backing {
            Backing::Mapped(mapped) => Ok(mapped.memory),
            _ => Err(DeviceError::Unsupported(Feature::Export)),
        })
    }
}
