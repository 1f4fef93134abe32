//! Stretches of a segment that could become one free range, cheapest first.

use std::collections::BinaryHeap;

use super::view::{Part, PoolView};

/// Stretches kept for each threshold; the rest is dearer.
const KEPT: usize = 12;

/// Parts `first..=last` of a segment, none of which is immovable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Window {
    /// Bytes of the blocks in it: each of them has to move.
    pub cost: u64,
    /// Blocks up to this size are to be placed elsewhere; larger ones are slid to its end.
    pub threshold: u64,
    pub segment: usize,
    pub first: usize,
    pub last: usize,
}

/// The cheapest stretches in which the free parts and the blocks of at most `threshold` bytes
/// are at least `bytes` together, in the segments for which `of` is true, cheapest first. O(n).
pub(super) fn cheapest(
    view: &PoolView,
    of: &impl Fn(usize) -> bool,
    bytes: u64,
    threshold: u64,
) -> Vec<Window> {
    let mut best = BinaryHeap::new();
    for (segment, at) in view.segments.iter().enumerate() {
        if !of(segment) || at.bytes < bytes || at.parts.is_empty() {
            continue;
        }
        in_segment(&at.parts, bytes, threshold, |first, last, cost| {
            best.push(Window { cost, threshold, segment, first, last });
            if best.len() > KEPT {
                best.pop();
            }
        });
    }
    best.into_sorted_vec()
}

/// What a part adds to the free range that comes of its stretch.
pub(super) const fn gain(part: &Part, threshold: u64) -> u64 {
    if part.is_free() || (part.is_movable() && part.bytes <= threshold) { part.bytes } else { 0 }
}

/// Calls `found` with the shortest stretch that ends at each part and yields enough.
fn in_segment(
    parts: &[Part],
    bytes: u64,
    threshold: u64,
    mut found: impl FnMut(usize, usize, u64),
) {
    let (mut first, mut gained, mut cost) = (0, 0, 0);
    for (last, part) in parts.iter().enumerate() {
        if !part.is_free() && !part.is_movable() {
            (first, gained, cost) = (last + 1, 0, 0);
            continue;
        }
        gained += gain(part, threshold);
        cost += part.movable();
        // What can go from the front goes: what adds nothing, and what is not needed.
        while first < last {
            let front = &parts[first];
            if gained - gain(front, threshold) < bytes && gain(front, threshold) > 0 {
                break;
            }
            gained -= gain(front, threshold);
            cost -= front.movable();
            first += 1;
        }
        if gained >= bytes && gain(part, threshold) > 0 {
            found(first, last, cost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::{SegmentView, What};
    use super::*;

    fn view(taken: &[(u64, u64)], bytes: u64) -> PoolView {
        let taken = taken.iter().zip(0..).map(|(&(offset, bytes), owner)| Part {
            offset,
            bytes,
            what: What::Movable { owner, align: 1 },
        });
        PoolView { segments: vec![SegmentView::new(0, bytes, taken.collect())] }
    }

    #[test]
    fn the_cheapest_stretch_has_the_fewest_live_bytes_not_the_fewest_blocks() {
        // 10 free, 30 live, 10 free, 4 + 4 live, 12 free.
        let view = view(&[(10, 30), (50, 4), (56, 4)], 72);
        let windows = cheapest(&view, &|_| true, 20, 0);
        assert_eq!((windows[0].first, windows[0].last, windows[0].cost), (2, 6, 8));
        let placed = cheapest(&view, &|_| true, 20, 4);
        assert_eq!(placed[0].cost, 8, "{placed:?}");
    }
}
