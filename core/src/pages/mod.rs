//! Paged address space: blocks packed byte by byte over pages that can be mapped elsewhere.
//!
//! One [`Pages`] manages one growing space of one memory kind and class. It is pure: it calls no
//! device and no clock, takes no lock and holds no memory. Whoever owns it asks, calls the
//! device, and says how that went:
//!
//! 1. [`find`](Pages::find) looks for a place and returns a [`Plan`] by value: an address, what
//!    has to be waited for, and the [`Step`]s that back it (none for a hole that fits).
//! 2. [`reserve`](Pages::reserve) marks the range *mapping* and its pages *in flight*; nobody
//!    else merges, steals or gives back what is in flight.
//! 3. The caller makes the device calls, then [`commit`](Pages::commit)s with the memory objects
//!    it made, or [`rollback`](Pages::rollback)s to the state before.
//! 4. [`free`](Pages::free) returns the block with the sync points of its uses;
//!    [`settle`](Pages::settle) says which points have been reached.
//!
//! **Placement.** Blocks below [`Policy::large`] and the others live in two zones far apart.
//! Small blocks take, by address, the first hole that holds a whole number of them with little
//! over (blocks of one size tend to die together, and such a hole is what they left), else the
//! first that fits. Large ones take, of the shortest holes that fit, the end that strands least:
//! bytes of wholly free pages that would become partly used. Where memory must not grow, a hole
//! of the other zone comes next. A miss is placed where it needs the fewest new bytes, strands
//! the fewest and has the fewest gaps to fill. `docs/fragmentation.md` has the figures.
//!
//! **Stealing.** A gap is filled with new pages while reserved bytes stay below the peak of
//! active bytes, and with wholly free pages from elsewhere past it. The old range of a stolen
//! page is *stale*: neither hole nor destination until [`drop_stale`](Pages::drop_stale) names
//! it and [`unmapped`](Pages::unmapped) confirms that its mapping is gone.
//!
//! Counting: `reserved = sum of memory objects, each once`; `active = live + mapping + pending`;
//! `mapped = sum of pages`; span = `live + free + mapping + leaving + stale + holes`, and what of
//! paused blocks nothing backs.
//!
//! Invariants, all verified by [`check`](Pages::check): see `check.rs`.

mod anew;
mod append;
mod blocks;
mod check;
mod fill;
mod find;
mod free_pages;
mod give_back;
mod index;
mod join;
#[cfg(test)]
mod model_tests;
mod page;
mod pause;
#[cfg(test)]
mod pause_tests;
mod place;
mod policy;
mod ranges;
mod reached;
mod remap;
#[cfg(test)]
mod remap_tests;
mod reserve;
mod sketch;
#[cfg(test)]
mod sketch_tests;
#[cfg(test)]
pub(super) mod tests;
mod together;

use crate::id::{Key, KeyError};
use crate::point::{Points, StreamId, SyncPoint};
use crate::units::Align;
use std::collections::BTreeMap;

pub use anew::{Anew, Means, Prices};
pub use blocks::{MappedPage, Part};
pub use check::Broken;
pub use give_back::{Departure, StaleMapping};
pub use page::{Backing, ObjectId};
pub use pause::{Parting, Pausing, Resuming};
pub use policy::Policy;
pub use ranges::State;
pub use remap::{Landed, Remap};
pub use reserve::Reservation;
pub use sketch::Sketch;

use give_back::Stale;
use index::Index;
use page::Store;
use policy::Heat;
use ranges::Ranges;

/// The name of a block, from [`Pages::reserve`] until [`Pages::free`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub(super) Key);

impl BlockId {
    /// The slot of its range, reused after the block is freed.
    pub const fn slot(self) -> u32 {
        self.0.index()
    }
}

/// The name of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub(super) Key);

/// The two parts of the space, by size of block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Zone {
    /// Blocks below [`Policy::large`].
    Small = 0,
    /// The others.
    Large = 1,
}

impl Zone {
    const fn other(self) -> Self {
        match self {
            Self::Small => Self::Large,
            Self::Large => Self::Small,
        }
    }
}

/// What a block is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Bytes, already rounded as the caller rounds.
    pub bytes: u64,
    /// Alignment of the offset.
    pub align: Align,
    /// The stream that will use it first.
    pub stream: StreamId,
    /// Whether a hole behind another stream's work may serve.
    pub may_wait: bool,
}

/// How far reserved bytes may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes that may be created before anything is stolen. 0: steal first.
    pub before_stealing: u64,
    /// Bytes that may be created at all. 0: serve by stealing alone.
    pub at_most: u64,
}

/// One thing to do to back a range, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make a memory object (or take a piece of one) and map it.
    Create {
        /// Bytes, a multiple of the granule.
        bytes: u64,
        /// Where to map it.
        at: u64,
    },
    /// Map a wholly free page at a second place; its old mapping stands until it is dropped.
    Steal {
        /// The page.
        page: PageId,
        /// Its object, and where in it the page lies.
        backing: Backing,
        /// Where it is mapped.
        from: u64,
        /// Where to map it as well.
        at: u64,
    },
    /// Unmap a page whose points are all reached, and give its memory back.
    Release {
        /// The page.
        page: PageId,
        /// Its object, and where in it the page lies.
        backing: Backing,
        /// Where it is mapped.
        at: u64,
    },
}

/// Where a plan found its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// A hole, ready for this stream.
    Hole,
    /// Gaps to be filled, by [`Step`]s.
    Backed,
    /// A hole behind other streams' work: the plan's waits are to be honoured first.
    Wait,
}

/// A place for a block, found but not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// First byte of the block.
    pub at: u64,
    /// Bytes of the block.
    pub bytes: u64,
    /// What has to be done, in order.
    pub steps: Vec<Step>,
    /// What the first use has to wait for: never the request's own stream.
    pub waits: Points,
    /// Where it was found.
    pub why: Why,
    /// A range at or before the place.
    hint: u32,
    now: u64,
    version: u64,
}

/// Why there is no place, or why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PagesError {
    /// Nothing fits within the room: give room, free something, or wait. Transient.
    #[error("no place within the room: {missing} bytes more would have to be created")]
    NoRoom {
        /// Bytes that would have to be created beyond the room.
        missing: u64,
    },
    /// The space has no addresses left for this size: use plain memory. Permanent until stale
    /// ranges are dropped or blocks are freed.
    #[error("no addresses left for {bytes} bytes: use plain memory")]
    NoAddresses {
        /// Bytes asked for.
        bytes: u64,
    },
    /// Zero bytes, or more than the zone can ever hold. Permanent.
    #[error("not a size this space can hold")]
    BadSize,
    /// The state has changed since the plan was made: find again. Transient.
    #[error("the plan is outdated: find again")]
    Outdated,
    /// No such block or page (any more). A mistake in the caller.
    #[error("no such block or page: {0}")]
    Unknown(#[from] KeyError),
    /// The range is not in the state that the call needs. A mistake in the caller.
    #[error("the range is not in the state that the call needs")]
    WrongState,
    /// The backings do not match the plan's steps. A mistake in the caller.
    #[error("one backing, whole granules long, is needed for each page created")]
    BadBacking,
    /// All names are in use. Permanent.
    #[error("too many ranges or pages")]
    TooMany,
}

/// Bytes of a space, by what they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Blocks in use, and ranges being mapped for blocks.
    pub live: u64,
    /// Free, mapped bytes.
    pub free: u64,
    /// The part of them that is behind sync points.
    pub pending: u64,
    /// Memory objects, each once.
    pub reserved: u64,
    /// Largest `reserved` so far.
    pub reserved_peak: u64,
    /// Largest `live + pending` so far.
    pub active_peak: u64,
    /// Pages that are wholly free and may be stolen or given back.
    pub free_pages: u64,
    /// Addresses from the bases of the zones to their tops.
    pub span: u64,
    /// Bytes of paused blocks that nothing backs.
    pub paused: u64,
    /// Stale mappings that still stand.
    pub stale: usize,
    /// Number of pages.
    pub pages: usize,
}

/// One growing address space backed page by page. See the module's documentation.
#[derive(Clone, Debug)]
pub struct Pages {
    policy: Policy,
    granule: Align,
    ranges: Ranges,
    store: Store,
    /// Latest point reached, per stream.
    reached: BTreeMap<StreamId, u64>,
    /// Stale ranges whose unmapping has not begun, oldest first.
    stale: std::collections::VecDeque<Stale>,
    /// Number of stale ranges whose unmapping is under way.
    unmapping: usize,
    live: u64,
    /// Bytes of paused blocks that nothing backs.
    paused: u64,
    active_peak: u64,
    /// Whether new pages are made rather than stolen.
    eager: bool,
    heat: Heat,
    /// Remap moves whose blocks have not changed over.
    remaps: Vec<remap::Moving>,
    /// Counts changes, so that an outdated plan is recognised.
    version: u64,
}

impl Pages {
    /// A space of `bytes` addresses from 0, nothing mapped, with pages that are multiples of
    /// `granule`. A quarter of the addresses serve the small zone.
    ///
    /// # Errors
    /// [`PagesError::BadSize`] when the space is shorter than eight granules.
    pub fn new(granule: Align, bytes: u64, policy: Policy) -> Result<Self, PagesError> {
        let bytes = granule.round_down(bytes);
        if bytes / granule.get() < 8 {
            return Err(PagesError::BadSize);
        }
        let middle = granule.round_down(bytes / 4);
        Ok(Self {
            policy,
            granule,
            ranges: Ranges::new(0, middle, bytes),
            store: Store::new(granule, middle),
            reached: BTreeMap::new(),
            stale: std::collections::VecDeque::new(),
            unmapping: 0,
            live: 0,
            paused: 0,
            active_peak: 0,
            eager: false,
            heat: Heat::default(),
            remaps: Vec::new(),
            version: 0,
        })
    }

    /// The knobs.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The unit of backing.
    pub const fn granule(&self) -> Align {
        self.granule
    }

    /// Bytes of the space, by what they are. O(1).
    pub fn usage(&self) -> Usage {
        Usage {
            live: self.live,
            free: self.ranges.free_bytes,
            pending: self.ranges.pending_bytes,
            reserved: self.store.reserved,
            reserved_peak: self.store.reserved_peak,
            active_peak: self.active_peak,
            free_pages: self.store.free_bytes,
            span: self.ranges.spans.iter().map(|span| span.top - span.base).sum(),
            paused: self.paused,
            stale: self.stale.len() + self.unmapping,
            pages: self.store.pages.len(),
        }
    }

    /// Free bytes behind sync points.
    pub const fn pending(&self) -> u64 {
        self.ranges.pending_bytes
    }

    /// Whether [`room`](Self::room) lets new pages be made wherever something is missing.
    pub const fn set_eager(&mut self, eager: bool) {
        self.eager = eager;
    }

    /// The room that the policy gives a request of `bytes`, where `at_most` may be created.
    pub fn room(&self, bytes: u64, at_most: u64) -> Room {
        if self.eager {
            return Room { before_stealing: at_most, at_most };
        }
        let active =
            (self.live + self.ranges.pending_bytes).saturating_add(bytes).max(self.active_peak);
        let line = active.saturating_add(self.policy.slack(active));
        Room { before_stealing: line.saturating_sub(self.store.reserved).min(at_most), at_most }
    }

    /// First byte and bytes of a block.
    ///
    /// # Errors
    /// [`PagesError::Unknown`].
    pub fn block(&self, block: BlockId) -> Result<(u64, u64), PagesError> {
        let range = self.ranges.table.get(block.0)?;
        Ok((range.start, range.len))
    }

    /// All ranges in order of address: first byte, bytes, state, points.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64, State, &Points)> {
        let mut order: Vec<_> = self.ranges.table.iter().map(|(_, range)| range).collect();
        order.sort_unstable_by_key(|range| range.start);
        order.into_iter().map(|range| (range.start, range.len, range.state, &range.points))
    }

    /// All pages that are mapped: id, backing, first byte.
    pub fn pages(&self) -> impl Iterator<Item = (PageId, Backing, u64)> {
        self.store.pages.iter().map(|(key, page)| (PageId(key), page.backing, page.at))
    }

    /// Returns a block. `points` are its uses that have been submitted; `now` is for the age of
    /// the pages that become free by it.
    ///
    /// # Errors
    /// [`PagesError::Unknown`], [`PagesError::WrongState`]; nothing has changed then.
    pub fn free(&mut self, block: BlockId, points: &Points, now: u64) -> Result<(), PagesError> {
        let range = self.ranges.table.get(block.0)?;
        if range.state == State::Paused {
            return self.free_paused(block, now);
        }
        if range.state == State::Mapping && self.abandon(block, points, now).is_some() {
            return Ok(());
        }
        let range = self.ranges.table.get(block.0)?;
        if range.state != State::Live {
            return Err(PagesError::WrongState);
        }
        let (start, len) = (range.start, range.len);
        // The block's own waits are over once its uses are: they were submitted behind them. A
        // block that was never used passes on what it was given.
        let mut left = range.points.clone();
        left.merge(points);
        if !left.is_empty() {
            self.prune(&mut left);
        }
        self.version += 1;
        self.live -= len;
        self.retire_name(block, left);
        self.store.uncover(start, len, now);
        Ok(())
    }

    /// Frees the range of a block under a new name, so that the old one is stale for good.
    fn retire_name(&mut self, block: BlockId, points: Points) {
        let index = block.0.index();
        if self.ranges.table.renew(block.0).is_some() {
            // A live range is in no index: it only has to enter one.
            if let Some(range) = self.ranges.table.at_mut(index) {
                (range.state, range.points) = (State::Free, points);
            }
            self.ranges.coalesce(index);
            return;
        }
        let Some(range) = self.ranges.at(index) else { return };
        let (prev, next) = (range.prev, range.next);
        if let Some(saved) = self.ranges.remove(index) {
            self.ranges.add_free(saved.start, saved.len, points, prev, next);
        }
    }

    /// Points of the free ranges that tile `[start, end)`.
    fn points_under(&self, start: u64, end: u64) -> Points {
        let mut points = Points::NONE;
        if self.ranges.pending_bytes == 0 {
            return points;
        }
        let mut at = start;
        while at < end {
            let Some(range) = self.ranges.find(at).and_then(|index| self.ranges.at(index)) else {
                break;
            };
            points.merge(&range.points);
            at = range.end();
        }
        points
    }

    /// Points of the free ranges that overlap `[start, end)`; `hint` is a range at or before it.
    fn points_over(&self, hint: u32, start: u64, end: u64) -> Points {
        let mut points = Points::NONE;
        let mut index = hint;
        while let Some(range) = self.ranges.at(index).filter(|range| range.start < end) {
            if range.end() > start {
                points.merge(&range.points);
            }
            index = range.next;
        }
        points
    }
}
