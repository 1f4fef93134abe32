//! Dropping stale mappings and giving wholly free pages back.

use std::collections::BTreeMap;

use super::page::{Backing, ObjectId};
use super::ranges::{Saved, State};
use super::{BlockId, PageId, Pages, PagesError, Points};
use crate::id::Key;

/// A stale range on record.
#[derive(Clone, Debug)]
pub(super) struct Stale {
    pub range: Key,
    /// The page that is mapped elsewhere by now.
    pub page: Key,
    /// What has to be reached before the mapping is dropped.
    pub after: Points,
}

/// A mapping that still stands though its page is mapped elsewhere, about to be unmapped. Ends in
/// [`Pages::unmapped`] or [`Pages::still_mapped`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "say how it ended"]
pub struct StaleMapping {
    range: Key,
    page: Key,
    /// First byte.
    pub at: u64,
    /// Bytes of the mapping.
    pub bytes: u64,
    /// What has to be reached before it may be unmapped.
    pub after: Points,
}

/// A page on its way back to the device. Ends in [`Pages::depart_done`] or
/// [`Pages::depart_failed`].
#[derive(Debug)]
#[must_use = "say how it ended"]
pub struct Departure {
    page: PageId,
    range: Key,
    saved: Vec<Saved>,
    /// Where the page is mapped.
    pub at: u64,
    /// What it is made of.
    pub backing: Backing,
    /// Other places where it is still mapped: to be unmapped with it, or the object stays in use.
    pub stale: Vec<StaleMapping>,
}

impl Pages {
    /// Takes up to `most` stale mappings, oldest first, for being unmapped as a batch once their
    /// `after` is reached.
    pub fn drop_stale(&mut self, most: usize) -> Vec<StaleMapping> {
        self.claim(|_| true, most)
    }

    /// As [`drop_stale`](Self::drop_stale), those only that nothing has to be reached for.
    pub fn drop_settled(&mut self, most: usize) -> Vec<StaleMapping> {
        let reached = std::mem::take(&mut self.reached);
        let settled = |stale: &Stale| {
            stale.after.iter().all(|point| {
                let (stream, value) = (point.stream, point.value);
                reached.get(&stream).is_some_and(|&known| known >= value)
            })
        };
        let claimed = self.claim(settled, most);
        self.reached = reached;
        claimed
    }

    /// The stale mappings of a page that is to be given back: its own mapping goes with them.
    pub fn stale_of(&mut self, page: PageId) -> Vec<StaleMapping> {
        self.claim(|stale| stale.page == page.0, usize::MAX)
    }

    fn claim(&mut self, wanted: impl Fn(&Stale) -> bool, most: usize) -> Vec<StaleMapping> {
        let mut claimed = Vec::new();
        let mut kept = std::collections::VecDeque::with_capacity(self.stale.len());
        for stale in std::mem::take(&mut self.stale) {
            if claimed.len() < most && wanted(&stale) {
                claimed.extend(self.claim_one(stale));
            } else {
                kept.push_back(stale);
            }
        }
        self.stale = kept;
        self.unmapping += claimed.len();
        claimed
    }

    fn claim_one(&mut self, stale: Stale) -> Option<StaleMapping> {
        let Stale { range, page, mut after } = stale;
        self.prune(&mut after);
        let (at, bytes) = self.block(BlockId(range)).ok()?;
        self.store.change(page.index(), |page| page.unmapping += 1);
        Some(StaleMapping { range, page, at, bytes, after })
    }

    /// Says that a stale mapping is gone: its range is a hole again.
    ///
    /// # Errors
    /// [`PagesError::Unknown`] for one that was reported gone before;
    /// [`PagesError::WrongState`] when what it has to wait for has not been reached.
    pub fn unmapped(&mut self, stale: &StaleMapping) -> Result<(), PagesError> {
        let range = self.ranges.table.get(stale.range)?;
        let mut after = range.points.clone();
        self.prune(&mut after);
        if range.state != State::Stale || !after.is_empty() {
            return Err(PagesError::WrongState);
        }
        self.forget_stale(stale);
        Ok(())
    }

    /// Says that the device drops a stale mapping in its own order, behind what it has to wait
    /// for and before any mapping made from now on: its range is a hole again.
    pub fn unmap_ordered(&mut self, stale: &StaleMapping) {
        self.forget_stale(stale);
    }

    fn forget_stale(&mut self, stale: &StaleMapping) {
        self.version += 1;
        self.unmapping = self.unmapping.saturating_sub(1);
        if self.store.pages.get(stale.page).is_ok() {
            self.store.change(stale.page.index(), |page| page.unmapping -= 1);
        }
        self.ranges.set(stale.range.index(), State::Hole, Points::NONE);
    }

    /// Says that a stale mapping could not be dropped: it stands as before.
    pub fn still_mapped(&mut self, stale: StaleMapping) {
        let StaleMapping { range, page, after, .. } = stale;
        self.version += 1;
        self.unmapping = self.unmapping.saturating_sub(1);
        if self.store.pages.get(page).is_ok() {
            self.store.change(page.index(), |page| page.unmapping -= 1);
        }
        self.stale.push_front(Stale { range, page, after });
    }

    /// Starts giving back wholly free pages whose points are reached, largest first, until
    /// `bytes` are on their way or none is left; only those idle since `idle_before` or earlier,
    /// and only with all other pages of their object: a part of one would give nothing back and
    /// serve nobody. The caller unmaps each, then says how it went.
    pub fn trim(&mut self, bytes: u64, idle_before: u64) -> Vec<Departure> {
        let mut whole: BTreeMap<ObjectId, Vec<u32>> = BTreeMap::new();
        let mut order = Vec::new();
        for (_, index) in self.store.free.between(0, u64::MAX).rev() {
            if let Some(object) = self.object_to_leave(index, idle_before) {
                whole.entry(object).or_default().push(index);
                order.push(object);
            }
        }
        let (mut going, mut left) = (Vec::new(), bytes);
        for object in order {
            if left == 0 {
                break;
            }
            // The first of its pages takes the others along.
            let Some(pages) = whole.remove(&object) else { continue };
            let Some(known) = self.store.objects.get(&object) else { continue };
            if pages.len() == known.pages as usize {
                left = left.saturating_sub(known.bytes);
                going.extend(pages.into_iter().filter_map(|page| self.depart_page(page)));
            }
        }
        self.version += u64::from(!going.is_empty());
        going
    }

    /// The object of a page that nobody uses and nothing is ordered before.
    fn object_to_leave(&self, index: u32, idle_before: u64) -> Option<ObjectId> {
        let (_, page) = self.store.pages.at(index)?;
        let idle = page.is_free() && page.unmapping == 0 && page.idle_since <= idle_before;
        let end = page.at + page.backing.bytes;
        (idle && self.points_under(page.at, end).is_empty()).then_some(page.backing.object)
    }

    fn depart_page(&mut self, index: u32) -> Option<Departure> {
        self.object_to_leave(index, u64::MAX)?;
        let (key, page) = self.store.pages.at(index)?;
        let (at, backing) = (page.at, page.backing);
        let stale = self.stale_of(PageId(key));
        self.store.change(index, |page| page.in_flight = true);
        let (range, saved) = self.depart(at, backing.bytes)?;
        Some(Departure { page: PageId(key), range, saved, at, backing, stale })
    }

    /// Takes a page out that is gone although the plan that gave it back failed. Returns its
    /// object when that was its last page.
    pub fn lose(&mut self, page: PageId) -> Option<ObjectId> {
        let departure = self.depart_page(page.0.index())?;
        self.depart_done(departure)
    }

    #[allow(clippy::needless_pass_by_value, reason = "a departure ends once")]
    /// Says that a page is unmapped, at all its places. Returns its object when that was its last
    /// page: release it.
    pub fn depart_done(&mut self, departure: Departure) -> Option<ObjectId> {
        self.version += 1;
        for stale in &departure.stale {
            self.forget_stale(stale);
        }
        let object = self.store.remove(departure.page.0);
        self.ranges.set(departure.range.index(), State::Hole, Points::NONE);
        object
    }

    /// Says that a page could not be unmapped: it is a free page again.
    pub fn depart_failed(&mut self, departure: Departure) {
        self.version += 1;
        for stale in departure.stale {
            self.still_mapped(stale);
        }
        self.store.change(departure.page.0.index(), |page| page.in_flight = false);
        self.restore(&[departure.range], departure.saved);
    }
}
