//! The view that a plan is made from, taken in slices so that nobody waits behind a long walk.
//!
//! The pool may change between two slices; a plan made from a view that is out of date is found
//! out when its places are reserved.

use rustc_hash::FxHashMap;

use crate::compact::{Part, PoolView, Refused, SegmentView, What, Why};
use crate::range::SegmentId;

use super::super::Inner;
use super::super::state::State;

/// Blocks looked at while the lock is held.
const SLICE: u32 = 128;

/// A pool as it is now, with what may not move in it.
pub(super) struct Survey {
    pub view: PoolView,
    /// The pool's segments in the order of the view.
    pub segments: Vec<SegmentId>,
    pub refused: Vec<(Why, Refused)>,
}

impl Inner {
    pub(super) fn survey(&self, pool: u16, offer_raw: bool) -> Survey {
        let mut taken: FxHashMap<u32, Vec<Part>> = FxHashMap::default();
        let mut from = 0_u32;
        loop {
            let state = self.lock();
            let slots = state.blocks.slots();
            let to = from.saturating_add(SLICE).min(slots);
            state.look_at(pool, offer_raw, from..to, &mut taken);
            from = to;
            if from == slots {
                break;
            }
        }
        let state = self.lock();
        state.look_at_busy(pool, &mut taken);
        let sizes = state.pools[usize::from(pool)].segment_sizes();
        drop(state);
        let refused = count_refused(taken.values().flatten());
        let segments = sizes.iter().map(|(id, _)| *id).collect();
        let parts = |id: &SegmentId| taken.remove(&id.index()).unwrap_or_default();
        let mut parts = parts;
        let view = |(id, bytes): &(SegmentId, u64)| SegmentView::new(id.index(), *bytes, parts(id));
        let view = PoolView { segments: sizes.iter().map(view).collect() };
        Survey { view, segments, refused }
    }
}

impl State {
    fn look_at(
        &self,
        pool: u16,
        offer_raw: bool,
        slots: std::ops::Range<u32>,
        taken: &mut FxHashMap<u32, Vec<Part>>,
    ) {
        let ranges = &self.pools[usize::from(pool)];
        for owner in slots {
            let Some((_, block)) = self.blocks.at(owner).filter(|(_, block)| block.pool == pool)
            else {
                continue;
            };
            let Some(segment) = ranges.segment_of(block.spot) else { continue };
            let offset = ranges.offset(block.spot);
            let what = match self.why_not(block, offer_raw) {
                Some(why) => What::Fixed { owner, why },
                None => What::Movable { owner, align: block.align(offset) },
            };
            let part = Part { offset, bytes: ranges.bytes(block.spot), what };
            taken.entry(segment.index()).or_default().push(part);
        }
    }

    fn look_at_busy(&self, pool: u16, taken: &mut FxHashMap<u32, Vec<Part>>) {
        let ranges = &self.pools[usize::from(pool)];
        for &(_, spot) in self.moves.busy.iter().filter(|(of, _)| *of == pool) {
            let (offset, bytes) = (ranges.offset(spot), ranges.bytes(spot));
            let Some(segment) = ranges.segment_of(spot) else { continue };
            taken.entry(segment.index()).or_default().push(Part {
                offset,
                bytes,
                what: What::Busy,
            });
        }
    }
}

fn count_refused<'a>(parts: impl Iterator<Item = &'a Part>) -> Vec<(Why, Refused)> {
    let mut refused: Vec<(Why, Refused)> = Vec::new();
    for part in parts {
        let What::Fixed { why, .. } = part.what else { continue };
        let at = match refused.binary_search_by_key(&why, |(why, _)| *why) {
            Ok(at) => at,
            Err(at) => {
                refused.insert(at, (why, Refused::default()));
                at
            }
        };
        refused[at].1.blocks += 1;
        refused[at].1.bytes += part.bytes;
    }
    refused
}
