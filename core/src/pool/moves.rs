//! What moves need of a pool: places taken at a given offset, and blocks that change places.

use crate::point::Points;
use crate::range::{SegmentId, State};

use super::{Grabbed, Pool, Spot};

/// Where a reservation is looked for: behind a taken range, or from the start of the segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behind {
    pub segment: SegmentId,
    pub spot: Option<Spot>,
}

impl Pool {
    /// Numbers and bytes of the segments.
    pub fn segment_sizes(&self) -> Vec<(SegmentId, u64)> {
        self.segments().map(|(id, segment)| (id, segment.plain.bytes)).collect()
    }

    /// Whether its blocks can be moved at all: not in a graph's private pool, which replays with
    /// the addresses of its capture.
    pub const fn is_movable(&self) -> bool {
        self.key.graph.is_none()
    }

    /// Free bytes of the segments in use, and the largest free range of the pool. O(segments).
    pub fn free_in_use(&self) -> (u64, u64) {
        let used = self.segments().filter(|(id, _)| !self.ranges.is_wholly_free(*id));
        let free = used.map(|(id, _)| self.ranges.segment_free(id)).sum();
        (free, self.largest_free().min(free))
    }

    /// The segment of a taken range.
    pub fn segment_of(&self, spot: Spot) -> SegmentId {
        self.ranges.segment(spot)
    }

    /// Takes exactly these bytes, if all of them are free, for a block that is to move there.
    /// The points to wait for are given, not kept on the range.
    pub fn reserve_at(&mut self, behind: Behind, offset: u64, bytes: u64) -> Option<Grabbed> {
        let join = self.ranges.room_at(behind.segment, behind.spot, offset, bytes)?;
        let before = self.pending();
        let (node, points) = self.ranges.take_join(join, State::Mapping);
        self.note_use(node);
        Some(Grabbed { node, points, pending: before - self.pending() })
    }

    /// Makes a reserved range the block's, in use until `points` are reached.
    pub fn make_live(&mut self, spot: Spot, slot: u32, points: Points) {
        self.ranges.set_state(spot, State::Live);
        self.ranges.set_owner(spot, slot);
        *self.ranges.points_mut(spot) = points;
    }

    /// Makes a block's range nobody's, still taken; gives the uses recorded on it.
    pub fn make_source(&mut self, spot: Spot) -> Points {
        self.ranges.set_state(spot, State::Mapping);
        self.take_uses(spot)
    }

    /// Lets the block at `spot` change places with the gap beside it. Gives the block's range and
    /// the gap, or `None` when they are not neighbours.
    pub fn slide(&mut self, gap: Spot, spot: Spot, up: bool) -> Option<(Spot, Spot)> {
        if up { self.ranges.slide_up(spot, gap) } else { self.ranges.slide_down(gap, spot) }
    }

    /// Joins a gap with a reserved range right after it (before it, when `up`); gives the whole.
    pub fn join_gap(&mut self, gap: Spot, next: Spot, up: bool) -> Option<Spot> {
        let (first, second) = if up { (next, gap) } else { (gap, next) };
        self.ranges.join_taken(first, second).then_some(first)
    }

    /// Cuts `bytes` off the end of a gap that lies away from the block which slides past it, so
    /// that the block ends up aligned. Gives what is left, and the piece that was cut off.
    pub fn cut_gap(&mut self, gap: Spot, bytes: u64, up: bool) -> (Spot, Option<Spot>) {
        let at = if up { self.ranges.bytes(gap).saturating_sub(bytes) } else { bytes };
        match self.ranges.cut_taken(gap, at) {
            Some(rest) if bytes > 0 && up => (gap, Some(rest)),
            Some(rest) if bytes > 0 => (rest, Some(gap)),
            _ => (gap, None),
        }
    }
}
