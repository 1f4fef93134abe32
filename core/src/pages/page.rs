//! The store: memory objects, pages, and which page backs which granule.

use std::collections::BTreeMap;

pub use crate::device::MemoryId as ObjectId;
use crate::id::{Key, Table};
use crate::units::Align;

use super::free_pages::FreePages;

/// What a page is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Backing {
    /// The memory object.
    pub object: ObjectId,
    /// Bytes of the whole object, which reserved counts once.
    pub object_bytes: u64,
    /// Where in the object the page lies.
    pub offset: u64,
    /// Bytes of the page.
    pub bytes: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Page {
    pub backing: Backing,
    pub at: u64,
    /// Bytes under live blocks and ranges being mapped.
    pub live: u64,
    /// On its way elsewhere.
    pub in_flight: bool,
    /// Stale mappings of it that are being unmapped: it can not be given back meanwhile.
    pub unmapping: u32,
    /// When it last became wholly free.
    pub idle_since: u64,
}

impl Page {
    pub const fn is_free(&self) -> bool {
        self.live == 0 && !self.in_flight
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    pub bytes: u64,
    pub pages: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Store {
    /// A granule as a power of two.
    granule: u32,
    middle: u64,
    pub pages: Table<Page>,
    pub objects: BTreeMap<ObjectId, Object>,
    /// Per zone and granule: slot of the page plus one, 0 for none.
    granules: [Vec<u32>; 2],
    /// Wholly free pages.
    pub free: FreePages,
    pub free_bytes: u64,
    pub reserved: u64,
    pub reserved_peak: u64,
}

impl Store {
    pub const fn new(granule: Align, middle: u64) -> Self {
        Self {
            granule: granule.get().trailing_zeros(),
            middle,
            pages: Table::new(),
            objects: BTreeMap::new(),
            granules: [Vec::new(), Vec::new()],
            free: FreePages::new(),
            free_bytes: 0,
            reserved: 0,
            reserved_peak: 0,
        }
    }

    const fn slot(&self, at: u64) -> (usize, usize) {
        if at < self.middle {
            (0, (at >> self.granule) as usize)
        } else {
            (1, ((at - self.middle) >> self.granule) as usize)
        }
    }

    /// The page mapped at `at`.
    pub fn page_at(&self, at: u64) -> Option<(Key, &Page)> {
        let (zone, slot) = self.slot(at);
        let index = self.granules[zone].get(slot)?.checked_sub(1)?;
        self.pages.at(index)
    }

    pub fn paint(&mut self, at: u64, bytes: u64, index: Option<u32>) {
        let (zone, slot) = self.slot(at);
        let count = (bytes >> self.granule) as usize;
        let list = &mut self.granules[zone];
        if list.len() < slot + count {
            list.resize(slot + count, 0);
        }
        list[slot..slot + count].fill(index.map_or(0, |index| index + 1));
    }

    /// Enters or strikes a page in the list of free ones, as it now is.
    fn enlist(&mut self, index: u32, was_free: bool) {
        let Some((_, page)) = self.pages.at(index) else { return };
        let (bytes, is_free) = (page.backing.bytes, page.is_free());
        if is_free != was_free {
            self.list(index, bytes, is_free);
        }
    }

    /// Changes a page and keeps the list of free ones true.
    pub fn change(&mut self, index: u32, change: impl FnOnce(&mut Page)) {
        if let Some(page) = self.pages.at_mut(index) {
            let was_free = page.is_free();
            change(page);
            self.enlist(index, was_free);
        }
    }

    /// Calls `change(page, overlap)` for each page under a range, and keeps the list of free ones
    /// true.
    #[inline(always)]
    fn each_under(&mut self, start: u64, len: u64, mut change: impl FnMut(&mut Page, u64)) {
        let end = start + len;
        let (zone, mut slot) = self.slot(start);
        let mut at = start;
        while at < end {
            let index = self.granules[zone].get(slot).map_or(0, |&index| index);
            let page = index.checked_sub(1).and_then(|index| self.pages.at_mut(index));
            let Some(page) = page else {
                at = ((at >> self.granule) + 1) << self.granule;
                slot += 1;
                continue;
            };
            let bytes = page.backing.bytes;
            let page_end = page.at + bytes;
            let was_free = page.is_free();
            change(page, end.min(page_end) - at);
            let is_free = page.is_free();
            slot += ((page_end - at).div_ceil(1 << self.granule)) as usize;
            at = page_end;
            if was_free != is_free {
                self.list(index - 1, bytes, is_free);
            }
        }
    }

    /// Enters a page in the list of free ones, or strikes it.
    fn list(&mut self, index: u32, bytes: u64, is_free: bool) {
        if is_free {
            self.free.insert(bytes, index);
            self.free_bytes += bytes;
        } else {
            self.free.remove(bytes, index);
            self.free_bytes -= bytes;
        }
    }

    /// A block now lies on a range.
    pub fn cover(&mut self, start: u64, len: u64) {
        self.each_under(start, len, |page, overlap| page.live += overlap);
    }

    /// A block no longer lies on a range.
    pub fn uncover(&mut self, start: u64, len: u64, now: u64) {
        self.each_under(start, len, |page, overlap| {
            page.live -= overlap;
            if page.live == 0 {
                page.idle_since = now;
            }
        });
    }

    /// Adds a page at `at`, `live` bytes of it covered.
    pub fn add(&mut self, backing: Backing, at: u64, live: u64, now: u64) -> Option<Key> {
        let page = Page { backing, at, live, in_flight: false, unmapping: 0, idle_since: now };
        let key = self.pages.insert(page)?;
        self.paint(at, backing.bytes, Some(key.index()));
        self.enlist(key.index(), false);
        let fresh = Object { bytes: backing.object_bytes, pages: 0 };
        let object = self.objects.entry(backing.object).or_insert(fresh);
        if object.pages == 0 {
            self.reserved += object.bytes;
            self.reserved_peak = self.reserved_peak.max(self.reserved);
        }
        object.pages += 1;
        Some(key)
    }

    /// Takes a page out, its mapping too. Returns the object if that was its last page.
    pub fn remove(&mut self, key: Key) -> Option<ObjectId> {
        self.change(key.index(), |page| page.in_flight = true);
        let page = self.pages.remove(key).ok()?;
        self.paint(page.at, page.backing.bytes, None);
        let object = self.objects.get_mut(&page.backing.object)?;
        object.pages -= 1;
        if object.pages > 0 {
            return None;
        }
        self.reserved -= object.bytes;
        self.objects.remove(&page.backing.object);
        Some(page.backing.object)
    }
}
