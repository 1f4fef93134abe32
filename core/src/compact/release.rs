//! Emptying whole segments, those with the least in them for their size first.

use super::holes::{Holes, Packing};
use super::plan::{Move, Plan, To};
use super::view::{Part, PoolView, SegmentView, What};

/// Segments that are tried for one to be free.
const LOWEST: usize = 4;

/// Moves that empty segments of at least `bytes` together; with fewer reachable, those that can
/// be emptied. O(n log n).
pub(super) fn release(view: &PoolView, bytes: u64) -> Plan {
    let idle = |segment: &&SegmentView| segment.is_wholly_free();
    let mut left = bytes.saturating_sub(view.segments.iter().filter(idle).map(|s| s.bytes).sum());
    if left == 0 {
        return Plan::met();
    }
    let mut victims = candidates(view);
    victims.sort_by(|a, b| {
        // Live bytes for each byte given back, without dividing.
        let (a_cost, b_cost) = (a.1 as u128 * b.2 as u128, b.1 as u128 * a.2 as u128);
        a_cost.cmp(&b_cost).then(b.0.cmp(&a.0))
    });
    let holes = Holes::new(view, |at| !view.segments[at].is_wholly_free());
    let mut packing = holes.packing(0..0);
    let mut moves = Vec::new();
    for (segment, _, segment_bytes) in victims {
        if left == 0 {
            break;
        }
        // What has taken blocks of others stays.
        if packing.touches(holes.of_segment(segment)) {
            continue;
        }
        if let Some(more) = empty(view, &holes, &mut packing, segment) {
            moves.extend(more);
            left = left.saturating_sub(segment_bytes);
        }
    }
    let reachable = left == 0 || (bytes == u64::MAX && !moves.is_empty());
    let met = bytes == u64::MAX && moves.is_empty();
    Plan { moves, met, reachable: reachable || met, ..Plan::default() }
}

/// Moves that empty the lowest segment that can be emptied, below the highest in use.
pub(super) fn empty_lowest(view: &PoolView) -> Option<Plan> {
    let (top, _) = view.top()?;
    let holes = Holes::new(view, |at| !view.segments[at].is_wholly_free());
    let mut packing = holes.packing(0..0);
    let mut lowest = candidates(view);
    lowest.retain(|(at, ..)| *at < top);
    lowest.sort_unstable();
    let moves =
        lowest.iter().take(LOWEST).find_map(|it| empty(view, &holes, &mut packing, it.0))?;
    Some(Plan { moves, reachable: true, more: true, ..Plan::default() })
}

/// Segments in use of which every block may move: index, live bytes, bytes.
fn candidates(view: &PoolView) -> Vec<(usize, u64, u64)> {
    let movable = |part: &Part| part.is_free() || part.is_movable();
    let segments = view.segments.iter().enumerate();
    let of_use = segments.filter(|(_, s)| !s.is_wholly_free() && s.parts.iter().all(movable));
    of_use.map(|(at, s)| (at, s.bytes - s.free(), s.bytes)).collect()
}

/// Places every block of a segment elsewhere, or gives `None` when one fits nowhere.
fn empty(
    view: &PoolView,
    holes: &Holes,
    packing: &mut Packing<'_>,
    segment: usize,
) -> Option<Vec<Move>> {
    let own = holes.of_segment(segment);
    packing.close(own.clone());
    let mut blocks: Vec<&Part> =
        view.segments[segment].parts.iter().filter(|part| part.is_movable()).collect();
    blocks.sort_by_key(|part| (std::cmp::Reverse(part.bytes), part.offset));
    let moves = blocks.into_iter().map(|part| {
        let What::Movable { owner, align } = part.what else { return None };
        let spot = packing.place(part.bytes, align)?;
        let hole = holes.all[spot.hole];
        let to = To { segment: hole.segment, part: hole.part, offset: spot.offset };
        Some(Move { owner, segment, from: part.offset, bytes: part.bytes, to })
    });
    let moves: Option<Vec<Move>> = moves.collect();
    if moves.is_some() {
        packing.keep();
    } else {
        packing.undo();
        packing.open(own);
    }
    moves
}
