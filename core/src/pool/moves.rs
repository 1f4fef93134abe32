//! What moves need of a pool: places taken at a given offset, and blocks that change places. In a
//! paged space blocks move to free whole pages, and never slide.

use crate::point::Points;
use crate::range::{Join, NO_OWNER, NodeId, SegmentId, State};

use super::{Grabbed, Pool, Spot, SpotKind};

/// Where a reservation is looked for: behind a taken range, or from the start of the segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behind {
    pub segment: SegmentId,
    pub spot: Option<Spot>,
}

/// A taken range of a slab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub spot: Spot,
    pub segment: SegmentId,
    pub offset: u64,
    pub bytes: u64,
    /// The slot of the block there.
    pub owner: Option<u32>,
}

/// Free ranges among which the largest is looked for, of each stream and of those nobody uses.
const LARGEST_OF: usize = 64;

/// Free ranges that become one gap while the lock is held.
const JOINED_AT_ONCE: usize = 16;

const fn node_of(spot: Spot) -> Option<NodeId> {
    match spot.kind() {
        SpotKind::Slab(node) => Some(node),
        SpotKind::Page(_) => None,
    }
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

    /// Free bytes of the segments in use, and their largest free range as far as neighbours behind
    /// different waits have come together; where many are about as large, up to 3 % less.
    /// O(segments).
    pub fn free_in_use(&self) -> (u64, u64) {
        let used = self.segments().filter(|(id, _)| !self.ranges.is_wholly_free(*id));
        let free = used.map(|(id, _)| self.ranges.segment_free(id)).sum();
        (free, self.ranges.largest_among(LARGEST_OF).min(free))
    }

    /// The segment of a taken range; `None` in a paged space.
    pub fn segment_of(&self, spot: Spot) -> Option<SegmentId> {
        node_of(spot).map(|node| self.ranges.segment(node))
    }

    /// Slots of its slabs' ranges that were ever used.
    pub fn slots(&self) -> u32 {
        self.ranges.slots()
    }

    /// The taken ranges of its slabs in a part of the slots, in no order.
    pub fn taken_in(&self, slots: std::ops::Range<u32>) -> impl Iterator<Item = Taken> + '_ {
        self.ranges.taken_in(slots).map(|node| Taken {
            spot: Spot::slab(node.id),
            segment: self.ranges.segment(node.id),
            offset: node.offset,
            bytes: node.bytes,
            owner: (node.state == State::Live && node.owner != NO_OWNER).then_some(node.owner),
        })
    }

    /// Takes exactly these bytes, if all of them are free, for a block that is to move there.
    /// The points to wait for are given, not kept on the range.
    pub fn reserve_at(&mut self, behind: Behind, offset: u64, bytes: u64) -> Option<Grabbed> {
        let after = behind.spot.and_then(node_of);
        let join = self.ranges.room_at(behind.segment, after, offset, bytes)?;
        Some(self.reserve(join))
    }

    /// [`reserve_at`](Self::reserve_at) for the front of a range that may consist of many parts
    /// behind different waits: as much as a few of them are.
    pub fn reserve_front(&mut self, behind: Behind, offset: u64, bytes: u64) -> Option<Grabbed> {
        let after = behind.spot.and_then(node_of);
        let join = self.ranges.room_from(behind.segment, after, offset, bytes, JOINED_AT_ONCE)?;
        Some(self.reserve(join))
    }

    fn reserve(&mut self, join: Join) -> Grabbed {
        let before = self.pending();
        let (node, points) = self.ranges.take_join(join, State::Mapping);
        self.note_use(node);
        Grabbed { spot: Spot::slab(node), points, pending: before - self.pending() }
    }

    /// Takes exactly these bytes of the paged space, if all of them are free and backed.
    pub fn reserve_paged(&mut self, at: u64, bytes: u64) -> Option<Grabbed> {
        let pages = &mut self.paged.as_mut()?.pages;
        let before = pages.usage().pending;
        let slot = pages.take_at(at, bytes)?.slot();
        let pending = before.saturating_sub(pages.usage().pending);
        let points = pages.uses_mut(slot).map(std::mem::take).unwrap_or_default();
        Some(Grabbed { spot: Spot::page(slot), points, pending })
    }

    /// Makes a reserved range the block's, in use until `points` are reached.
    pub fn make_live(&mut self, spot: Spot, slot: u32, points: Points) {
        if let Some(node) = node_of(spot) {
            self.ranges.set_state(node, State::Live);
            self.ranges.set_owner(node, slot);
            *self.ranges.points_mut(node) = points;
        } else {
            self.set_owner(spot, slot);
            self.add_uses(spot, &points);
        }
    }

    /// Makes a block's range nobody's, still taken; gives the uses recorded on it.
    pub fn make_source(&mut self, spot: Spot) -> Points {
        if let Some(node) = node_of(spot) {
            self.ranges.set_state(node, State::Mapping);
        }
        if let (SpotKind::Page(slot), Some(paged)) = (spot.kind(), &mut self.paged) {
            paged.pages.disown(slot);
        }
        self.take_uses(spot)
    }

    /// Lets the block at `spot` change places with the gap beside it. Gives the block's range and
    /// the gap, or `None` when they are not neighbours.
    pub fn slide(&mut self, gap: Spot, spot: Spot, up: bool) -> Option<(Spot, Spot)> {
        let (gap, node) = (node_of(gap)?, node_of(spot)?);
        let slid =
            if up { self.ranges.slide_up(node, gap) } else { self.ranges.slide_down(gap, node) };
        slid.map(|(block, gap)| (Spot::slab(block), Spot::slab(gap)))
    }

    /// Joins a gap with a reserved range right after it (before it, when `up`); gives the whole.
    pub fn join_gap(&mut self, gap: Spot, next: Spot, up: bool) -> Option<Spot> {
        let (first, second) = if up { (next, gap) } else { (gap, next) };
        self.ranges.join_taken(node_of(first)?, node_of(second)?).then_some(first)
    }

    /// Cuts `bytes` off the end of a gap that lies away from the block which slides past it, so
    /// that the block ends up aligned. Gives what is left, and the piece that was cut off.
    pub fn cut_gap(&mut self, gap: Spot, bytes: u64, up: bool) -> (Spot, Option<Spot>) {
        let at = if up { self.bytes(gap).saturating_sub(bytes) } else { bytes };
        let rest = node_of(gap).and_then(|node| self.ranges.cut_taken(node, at));
        match rest.map(Spot::slab) {
            Some(rest) if bytes > 0 && up => (gap, Some(rest)),
            Some(rest) if bytes > 0 => (rest, Some(gap)),
            _ => (gap, None),
        }
    }
}
