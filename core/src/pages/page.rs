//! The store: memory objects, pages, and which page backs which granule.

use std::collections::{BTreeMap, BTreeSet};

pub use crate::device::MemoryId as ObjectId;
use crate::id::{Key, Table};

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
    /// How many shields it is under.
    pub excluded: u32,
    /// On its way elsewhere.
    pub in_flight: bool,
    /// Stale mappings of it that are being unmapped: it can not be given back meanwhile.
    pub unmapping: u32,
    /// When it last became wholly free.
    pub idle_since: u64,
}

impl Page {
    pub const fn is_free(&self) -> bool {
        self.live == 0 && self.excluded == 0 && !self.in_flight
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Object {
    pub bytes: u64,
    pub pages: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Store {
    granule: u64,
    middle: u64,
    pub pages: Table<Page>,
    pub objects: BTreeMap<ObjectId, Object>,
    /// Per zone and granule: slot of the page plus one, 0 for none.
    granules: [Vec<u32>; 2],
    /// Wholly free pages by size.
    pub free: BTreeSet<(u64, u32)>,
    pub free_bytes: u64,
    pub reserved: u64,
    pub reserved_peak: u64,
}

impl Store {
    pub const fn new(granule: u64, middle: u64) -> Self {
        Self {
            granule,
            middle,
            pages: Table::new(),
            objects: BTreeMap::new(),
            granules: [Vec::new(), Vec::new()],
            free: BTreeSet::new(),
            free_bytes: 0,
            reserved: 0,
            reserved_peak: 0,
        }
    }

    const fn slot(&self, at: u64) -> (usize, usize) {
        if at < self.middle {
            (0, (at / self.granule) as usize)
        } else {
            (1, ((at - self.middle) / self.granule) as usize)
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
        let count = (bytes / self.granule) as usize;
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
        if is_free && !was_free {
            self.free.insert((bytes, index));
            self.free_bytes += bytes;
        } else if was_free && !is_free {
            self.free.remove(&(bytes, index));
            self.free_bytes -= bytes;
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

    /// Calls `change(page, overlap)` for each page under a range.
    fn each_under(&mut self, start: u64, len: u64, mut change: impl FnMut(&mut Page, u64)) {
        let end = start + len;
        let mut at = start;
        while at < end {
            let Some((key, page)) = self.page_at(at) else {
                at = (at / self.granule + 1) * self.granule;
                continue;
            };
            let page_end = page.at + page.backing.bytes;
            let overlap = end.min(page_end) - at;
            self.change(key.index(), |page| change(page, overlap));
            at = page_end;
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

    /// Shields the pages under a range or ends that; false when there is no shield to end.
    pub fn exclude(&mut self, start: u64, len: u64, excluded: bool) -> bool {
        let mut shielded = true;
        self.each_under(start, len, |page, _| shielded &= page.excluded > 0);
        if !excluded && !shielded {
            return false;
        }
        self.each_under(start, len, |page, _| {
            page.excluded = if excluded { page.excluded + 1 } else { page.excluded - 1 };
        });
        true
    }

    /// Adds a page at `at`, `live` bytes of it covered.
    pub fn add(&mut self, backing: Backing, at: u64, live: u64, now: u64) -> Option<Key> {
        let page = Page {
            backing,
            at,
            live,
            excluded: 0,
            in_flight: false,
            unmapping: 0,
            idle_since: now,
        };
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
