//! The view that a plan is made from, taken in slices so that nobody waits behind a long walk.
//!
//! The pool may change between two slices; a plan made from a view that is out of date is found
//! out when its places are reserved.

use rustc_hash::FxHashMap;

use crate::compact::{Part, PoolView, Refused, SegmentView, What, Why};
use crate::range::SegmentId;

use crate::event::{Event, EventKind};

use super::super::Inner;
use super::super::state::State;
use super::compactor::Pass;

/// Blocks that are not to be moved of which a pass tells one by one.
const REFUSALS_TOLD: usize = 256;

/// Ranges looked at while the lock is held.
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
        // Filled with the lock held, so it never grows; emptied without.
        let mut seen: Vec<(SegmentId, Part)> = Vec::with_capacity(SLICE as usize);
        let (mut from, mut slots) = (0_u32, 1_u32);
        while from < slots {
            let state = self.lock();
            slots = state.pools[usize::from(pool)].slots();
            let to = from.saturating_add(SLICE).min(slots);
            state.look_at(pool, offer_raw, from..to, &mut seen);
            drop(state);
            for (segment, part) in seen.drain(..) {
                taken.entry(segment.index()).or_default().push(part);
            }
            from = to;
        }
        let sizes = self.lock().pools[usize::from(pool)].segment_sizes();
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
        seen: &mut Vec<(SegmentId, Part)>,
    ) {
        for taken in self.pools[usize::from(pool)].taken_in(slots) {
            let block = taken.owner.and_then(|owner| Some((owner, self.blocks.at(owner)?.1)));
            let block = block.filter(|(_, it)| it.pool == pool && it.spot == taken.spot);
            let what = match block {
                // Of another move, or of a request that is being served.
                None => What::Busy,
                Some((owner, block)) => match self.why_not(block, offer_raw) {
                    Some(why) => What::Fixed { owner, why },
                    None => What::Movable { owner, align: block.align(taken.offset) },
                },
            };
            seen.push((taken.segment, Part { offset: taken.offset, bytes: taken.bytes, what }));
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

/// Keeps, for each reason, the most that was refused at once: passes look at a pool repeatedly.
fn merge_refusals(into: &mut Vec<(Why, Refused)>, survey: &Survey) {
    for &(why, refused) in &survey.refused {
        match into.iter_mut().find(|(other, _)| *other == why) {
            Some((_, most)) if most.blocks < refused.blocks => *most = refused,
            Some(_) => {}
            None => into.push((why, refused)),
        }
    }
}

impl Inner {
    /// Tells what is not to be moved: so many blocks one by one, and the rest as sums.
    pub(super) fn note_refusals(&self, pass: &mut Pass, survey: &Survey) {
        if pass.report.refused.is_empty() {
            let mut rest = survey.refused.clone();
            let parts = survey.view.segments.iter().flat_map(|segment| &segment.parts);
            let fixed = parts.filter_map(|part| match part.what {
                What::Fixed { owner, why } => Some((owner, why, part.bytes)),
                _ => None,
            });
            // Looked for before the lock is taken: there may be few of them among many parts.
            let told: Vec<_> = fixed.take(REFUSALS_TOLD).collect();
            let mut state = self.lock();
            for (owner, why, bytes) in told {
                if let Some((_, sum)) = rest.iter_mut().find(|(of, _)| *of == why) {
                    sum.blocks = sum.blocks.saturating_sub(1);
                    sum.bytes = sum.bytes.saturating_sub(bytes);
                }
                state.note_refused(owner, bytes, why);
            }
            for (why, refused) in rest.iter().filter(|(_, refused)| refused.blocks > 0) {
                let event = Event::new(EventKind::MoveRefused).a(*why as u64);
                state.event(event.b(refused.bytes).c(refused.blocks));
            }
        }
        merge_refusals(&mut pass.report.refused, survey);
    }
}
