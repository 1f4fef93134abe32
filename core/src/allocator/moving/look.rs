//! Paged spaces as plans are made from them, taken in slices so that nobody waits behind a long
//! walk.
//!
//! As for segments ([`survey`](super::survey)): a plan made from what is out of date is found out
//! when its places are reserved.

use rustc_hash::FxHashMap;

use crate::compact::{PageView, PagedView, Part, What};
use crate::pages::Pages;
use crate::units::Align;

use super::super::Inner;
use super::super::state::{Block, State};

/// Ranges or pages looked at while the lock is held.
const SLICE: u32 = 32;

/// A paged space for trials, and the blocks that may move in it.
pub(super) struct Ground {
    pub pages: Pages,
    /// The alignment of each, by its slot.
    pub movable: FxHashMap<u32, Align>,
    pub now_ns: u64,
}

/// The slots from `from` on that are looked at next.
fn next(from: u32, all: u32) -> std::ops::Range<u32> {
    from..from.saturating_add(SLICE).min(all)
}

impl Inner {
    /// Slots of ranges and of pages in a paged space.
    fn slots_of(&self, number: u16) -> (u32, u32) {
        let state = self.lock();
        state.pools[usize::from(number)].paged.as_ref().map_or((0, 0), |it| it.pages.slots())
    }

    /// What lies where in a paged space.
    pub(super) fn look_at_pages(&self, number: u16) -> PagedView {
        let (mut taken, mut pages) = (Vec::new(), Vec::new());
        // Filled with the lock held, so they are short and never grow: memory that is written to
        // for the first time may take long. Emptied without.
        let (mut seen, mut seen_pages) =
            (Vec::with_capacity(SLICE as usize), Vec::with_capacity(SLICE as usize));
        // What begins after this is no part of the view, so that the walk has an end.
        let all = self.slots_of(number);
        let (mut ranges, mut backed) = (0, 0);
        loop {
            taken.append(&mut seen);
            pages.append(&mut seen_pages);
            let state = self.lock();
            let Some(paged) = state.pools[usize::from(number)].paged.as_ref() else { break };
            if ranges < all.0 {
                let slots = next(ranges, all.0);
                ranges = slots.end;
                seen.extend(paged.pages.taken_in(slots).map(|(offset, bytes, owner)| {
                    let what =
                        owner.map_or(What::Busy, |owner| state.may_move(number, owner, offset));
                    Part { offset, bytes, what }
                }));
            } else if backed < all.1 {
                let slots = next(backed, all.1);
                backed = slots.end;
                let found = paged.pages.pages_at(slots);
                let view = |(at, bytes, may_leave)| PageView { at, bytes, may_leave };
                seen_pages.extend(found.map(view));
            } else {
                break;
            }
        }
        PagedView::new(taken, pages)
    }

    /// A paged space with the blocks of its large zone that may move; `None` where it has none.
    pub(super) fn ground_of(&self, number: u16) -> Option<Ground> {
        let mut sketch = self.lock().pools[usize::from(number)].paged.as_ref()?.pages.sketch()?;
        let (mut movable, mut seen) = (FxHashMap::default(), Vec::with_capacity(SLICE as usize));
        let all = self.slots_of(number);
        let (mut ranges, mut backed) = (0, 0);
        loop {
            sketch.take_in(SLICE as usize);
            movable.extend(seen.drain(..));
            let state = self.lock();
            let paged = state.pools[usize::from(number)].paged.as_ref()?;
            if ranges < all.0 {
                let slots = next(ranges, all.0);
                ranges = slots.end;
                sketch.add_ranges(&paged.pages, slots, |owner, at| {
                    if let What::Movable { owner, align } = state.may_move(number, owner, at) {
                        seen.extend(Align::new(align).map(|align| (owner, align)));
                    }
                });
            } else if backed < all.1 {
                let slots = next(backed, all.1);
                backed = slots.end;
                sketch.add_pages(&paged.pages, slots);
            } else {
                let now_ns = state.now().ns;
                drop(state);
                return Some(Ground { pages: sketch.build(), movable, now_ns });
            }
        }
    }
}

impl State {
    fn may_move(&self, pool: u16, owner: u32, at: u64) -> What {
        let is_there = |block: &&Block| {
            block.pool == pool
                && block.spot.is_paged()
                && self.pools[usize::from(pool)].offset(block.spot) == at
        };
        // Else the range is where the block moves from or to.
        let Some(block) = self.blocks.at(owner).map(|(_, block)| block).filter(is_there) else {
            return What::Busy;
        };
        match self.why_not(block, false) {
            Some(why) => What::Fixed { owner, why },
            None => What::Movable { owner, align: block.align(at) },
        }
    }
}
