//! Dropping stale mappings and giving wholly free pages back.

use super::page::{Backing, ObjectId};
use super::ranges::{Saved, State};
use super::{PageId, Pages, PagesError, Points};
use crate::id::Key;

/// A mapping that still stands though its page is mapped elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleMapping {
    range: Key,
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
}

impl Pages {
    /// Up to `most` stale mappings, oldest first: unmap them as a batch once `after` is reached,
    /// then call [`unmapped`](Self::unmapped) for each. Until then nothing has changed.
    pub fn drop_stale(&self, most: usize) -> Vec<StaleMapping> {
        let named = |(range, points): &(Key, Points)| {
            let mut after = points.clone();
            self.prune(&mut after);
            let (at, bytes) = self.block(super::BlockId(*range)).ok()?;
            Some(StaleMapping { range: *range, at, bytes, after })
        };
        self.stale.iter().take(most).filter_map(named).collect()
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
        self.version += 1;
        self.stale.retain(|(range, _)| *range != stale.range);
        self.ranges.set(stale.range.index(), State::Hole, Points::NONE);
        Ok(())
    }

    /// Starts giving back wholly free pages whose points are reached, largest first, until
    /// `bytes` are on their way or none is left; only those idle since `idle_before` or earlier.
    /// The caller unmaps each, then says how it went.
    pub fn trim(&mut self, bytes: u64, idle_before: u64) -> Vec<Departure> {
        let mut going = Vec::new();
        let mut left = bytes;
        let candidates: Vec<u32> = self.store.free.iter().rev().map(|&(_, index)| index).collect();
        for index in candidates {
            if left == 0 {
                break;
            }
            let Some((key, page)) = self.store.pages.at(index) else { continue };
            let (at, backing, idle) = (page.at, page.backing, page.idle_since);
            let points = self.points_under(at, at + backing.bytes);
            if idle > idle_before || !points.is_empty() {
                continue;
            }
            self.store.change(index, |page| page.in_flight = true);
            if let Some((range, saved)) = self.depart(at, backing.bytes) {
                left = left.saturating_sub(backing.bytes);
                going.push(Departure { page: PageId(key), range, saved, at, backing });
            }
        }
        self.version += u64::from(!going.is_empty());
        going
    }

    /// Bytes of wholly free pages beyond what the policy keeps.
    pub const fn excess(&self) -> u64 {
        self.store.free_bytes.saturating_sub(self.policy.keep)
    }

    #[allow(clippy::needless_pass_by_value, reason = "a departure ends once")]
    /// Says that a page is unmapped. Returns its object when that was its last page: release it.
    pub fn depart_done(&mut self, departure: Departure) -> Option<ObjectId> {
        self.version += 1;
        let object = self.store.remove(departure.page.0);
        self.ranges.set(departure.range.index(), State::Hole, Points::NONE);
        object
    }

    /// Says that a page could not be unmapped: it is a free page again.
    pub fn depart_failed(&mut self, departure: Departure) {
        self.version += 1;
        self.store.change(departure.page.0.index(), |page| page.in_flight = false);
        self.restore(&[departure.range], departure.saved);
    }
}
