//! Making room where the holes of the segments that are to stay are too small for the blocks of
//! those that are to be emptied: by way of a segment that is free, or by sliding.

use super::chain;
use super::holes::round_up;
use super::plan::{Chain, Move, Need, Plan, To};
use super::view::{Part, PoolView, SegmentView, What};
use super::window::Window;

/// Free parts from which a slide is tried: before the first few the gap can be too small for the
/// block after it.
const STARTS: usize = 32;
/// A stretch counts as slid together when its largest free part is this much of what is free.
const TOGETHER: f64 = 0.95;

/// The next slide: of the segments with the most in them, as many as can hold everything, the first
/// whose free parts are not together.
pub(super) fn squeeze(view: &PoolView) -> Option<Chain> {
    let used = view.segments.iter().enumerate().filter(|(_, segment)| !segment.is_wholly_free());
    let mut used: Vec<(u64, usize, u64)> =
        used.map(|(at, it)| (it.bytes - it.free(), at, it.bytes)).collect();
    let live: u64 = used.iter().map(|it| it.0).sum();
    used.sort_by_key(|&(live, at, _)| (std::cmp::Reverse(live), at));
    let mut room = 0_u64;
    let stay = used.iter().take_while(|(_, _, bytes)| {
        let is_needed = room < live;
        room = room.saturating_add(*bytes);
        is_needed
    });
    let stay: Vec<usize> = stay.map(|&(_, at, _)| at).collect();
    // Where nothing can be emptied there is nobody to make room for.
    if stay.len() == used.len() {
        return None;
    }
    stay.into_iter().find_map(|at| in_segment(view, at))
}

/// Moves the blocks of the highest segments into the lowest free one, one behind the other, as many
/// whole segments as it takes. `None` where that brings nothing together.
pub(super) fn rotate(view: &PoolView) -> Option<Plan> {
    let (top, _) = view.top()?;
    let empty = (0..top).find(|at| view.segments[*at].is_wholly_free())?;
    let room = view.segments[empty].bytes;
    let (mut end, mut moves, mut emptied, mut scattered) = (0, Vec::new(), 0, 0);
    for segment in (empty + 1..=top).rev() {
        let it = &view.segments[segment];
        if it.is_wholly_free() || !it.parts.iter().all(|part| part.is_free() || part.is_movable()) {
            continue;
        }
        let Some((after, more)) = behind(it, segment, (empty, end), room) else { continue };
        // A segment that is full of blocks gains nothing by a move.
        if is_together(it) && it.free() < it.bytes / 2 {
            continue;
        }
        scattered += u32::from(!is_together(it));
        emptied += 1;
        moves.extend(more);
        end = after;
    }
    let is_worth_it = emptied > 1 || scattered > 0;
    is_worth_it.then(|| Plan { moves, reachable: true, more: true, ..Plan::default() })
}

/// The blocks of a segment from `end` of a free one on, if all of them fit.
fn behind(
    it: &SegmentView,
    segment: usize,
    (empty, end): (usize, u64),
    room: u64,
) -> Option<(u64, Vec<Move>)> {
    let mut at = end;
    let mut moves = Vec::new();
    for part in &it.parts {
        let What::Movable { owner, align } = part.what else { continue };
        let offset = round_up(at, align);
        at = offset + part.bytes;
        let to = To { segment: empty, part: 0, offset };
        moves.push(Move { owner, segment, from: part.offset, bytes: part.bytes, to });
    }
    (at <= room).then_some((at, moves))
}

fn is_together(it: &SegmentView) -> bool {
    it.largest_free() as f64 >= it.free() as f64 * TOGETHER
}

fn in_segment(view: &PoolView, segment: usize) -> Option<Chain> {
    let parts = &view.segments[segment].parts;
    let mut first = 0;
    while first < parts.len() {
        let is_in = |part: &&Part| part.is_free() || part.is_movable();
        let run = parts[first..].iter().take_while(is_in).count();
        if run > 0
            && let Some(chain) = in_run(view, segment, first, first + run - 1)
        {
            return Some(chain);
        }
        first += run + 1;
    }
    None
}

fn in_run(view: &PoolView, segment: usize, first: usize, last: usize) -> Option<Chain> {
    let parts = &view.segments[segment].parts[first..=last];
    let free: u64 = parts.iter().map(Part::free).sum();
    let largest = parts.iter().map(Part::free).max().unwrap_or(0);
    if largest as f64 >= free as f64 * TOGETHER {
        return None;
    }
    let starts = (first..=last).filter(|at| view.segments[segment].parts[*at].is_free());
    let need = Need { bytes: largest + 1, align: 1 };
    let window = |first| Window { cost: 0, threshold: 0, segment, first, last };
    starts.take(STARTS).find_map(|first| chain::slide(view, window(first), need))
}
