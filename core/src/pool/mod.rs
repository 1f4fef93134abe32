//! A pool: segments of one memory class, and the search for room in them.
//!
//! A request is served in steps that never hold the lock over a device call: *find* (by value),
//! *take* (the range is reserved), device calls, then the block goes live or the range is given
//! back. This module knows ranges and segments; who asks, waits and pays is the allocator's.

mod growth;
mod moves;

use crate::device::{ClassId, HeapId, MemoryKind, Place, Plain, SpaceId};
use crate::point::{Points, StreamId, SyncPoint};
use crate::range::{Fit, Home, Join, NodeId, Ranges, SegmentId, State};
use crate::request::{Layout, Tag};
use crate::stats::Counter;

/// Where a block's range is, as its pool names it.
pub(crate) type Spot = NodeId;

/// A part of a segment.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub offset: u64,
    pub bytes: u64,
    /// The slot of the live block there.
    pub owner: Option<u32>,
    /// What a free range still waits for.
    pub pending: Points,
}

pub use growth::Growth;
pub(crate) use growth::{Situation, segment_sizes};
pub(crate) use moves::Behind;

/// Requests up to this size share segments of their own, so that small blocks that live long do
/// not split the room of large ones.
pub(crate) const SMALL_MAX: u64 = 1 << 20;

/// What distinguishes pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolKey {
    pub class: ClassId,
    pub small: bool,
    pub exportable: bool,
    /// The captured graph whose private pool this is.
    pub graph: Option<u32>,
}

/// Who has had data in a segment, for scrubbing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Touched {
    Nobody,
    By(Tag),
    Several,
}

/// One memory object and the range over it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub plain: Plain,
    /// When it last became wholly free, on the allocator's clock; `None` while it is in use.
    pub idle_since_ms: Option<u32>,
    touched: Touched,
}

/// Room for a request.
#[derive(Debug)]
pub(crate) enum Room {
    /// One free range.
    Hole(Fit),
    /// Several neighbours behind different waits.
    Joined(Join),
}

/// What was found without a wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub fit: Fit,
    /// Whether the requesting stream itself freed it.
    pub own: bool,
}

/// A range taken out of the free ones.
#[derive(Debug)]
pub(crate) struct Grabbed {
    pub node: NodeId,
    /// What those who used it before are still doing.
    pub points: Points,
    /// Bytes of it that were pending.
    pub pending: u64,
}

/// Segments of one memory class.
pub(crate) struct Pool {
    pub key: PoolKey,
    pub heap: HeapId,
    pub kind: MemoryKind,
    ranges: Ranges,
    segments: Vec<Option<Segment>>,
    /// Bytes of its memory objects.
    pub reserved: Counter,
    /// Segments that are wholly free and done, at most; kept as a hint for giving back.
    pub idle_segments: u32,
}

impl Pool {
    pub fn new(key: PoolKey, heap: HeapId, kind: MemoryKind) -> Self {
        Self {
            key,
            heap,
            kind,
            ranges: Ranges::new(),
            segments: Vec::new(),
            reserved: Counter::default(),
            idle_segments: 0,
        }
    }

    /// Room that `stream` can use at once: what it freed itself, or what is done, whichever is
    /// the tighter fit.
    pub fn find_ready(&self, layout: Layout, stream: StreamId) -> Option<Ready> {
        let Layout { bytes, align } = layout;
        let own = self.ranges.find(bytes, align, Home::Stream(stream));
        let done = self.ranges.find(bytes, align, Home::Done);
        match (own, done) {
            (Some(own), Some(done)) => {
                let own_is_tighter = self.ranges.bytes(own.node) <= self.ranges.bytes(done.node);
                let fit = if own_is_tighter { own } else { done };
                Some(Ready { fit, own: own_is_tighter })
            }
            (Some(fit), None) => Some(Ready { fit, own: true }),
            (None, Some(fit)) => Some(Ready { fit, own: false }),
            (None, None) => None,
        }
    }

    /// Room behind other streams' work.
    pub fn find_behind(&self, layout: Layout, stream: StreamId) -> Option<Room> {
        let Layout { bytes, align } = layout;
        let hole = self.ranges.find_waiting(bytes, align, Some(stream));
        hole.map(Room::Hole)
            .or_else(|| self.ranges.find_join_for(bytes, align, Some(stream)).map(Room::Joined))
    }

    /// Bytes of a block.
    pub fn bytes(&self, spot: Spot) -> u64 {
        self.ranges.bytes(spot)
    }

    /// What those who used a block, or its range before it, may still be doing.
    pub fn uses(&self, spot: Spot) -> &Points {
        self.ranges.points(spot)
    }

    /// Records uses of a block.
    pub fn add_uses(&mut self, spot: Spot, points: &Points) {
        self.ranges.points_mut(spot).merge(points);
    }

    /// Records one use of a block.
    pub fn add_use(&mut self, spot: Spot, point: SyncPoint) {
        self.ranges.points_mut(spot).insert(point);
    }

    /// Takes the recorded uses away: they are handed to [`free`](Self::free) with others.
    pub fn take_uses(&mut self, spot: Spot) -> Points {
        std::mem::take(self.ranges.points_mut(spot))
    }

    /// Names the block that a range belongs to, by its slot.
    pub fn set_owner(&mut self, spot: Spot, slot: u32) {
        self.ranges.set_owner(spot, slot);
    }

    /// Whether a range is live and belongs to the block in `slot`.
    pub fn is_owned_by(&self, spot: Spot, slot: u32) -> bool {
        self.ranges.state(spot) == State::Live && self.ranges.owner(spot) == slot
    }

    /// Takes in what is reached: `reached` tells the last value of a stream known to be. Gives
    /// the bytes that nothing is ordered before any more.
    pub fn reap(&mut self, reached: &dyn Fn(StreamId) -> u64) -> u64 {
        self.ranges.reap(&mut |point| point.value <= reached(point.stream))
    }

    /// Points that free ranges wait for: at least the first of each stream.
    pub fn awaited_points(&self) -> impl Iterator<Item = SyncPoint> + '_ {
        self.ranges.awaited_points()
    }

    /// All free bytes.
    pub fn free_bytes(&self) -> u64 {
        self.ranges.total_free()
    }

    /// The largest free range, neighbours behind different waits joined.
    pub fn largest_free(&self) -> u64 {
        self.ranges.largest_run()
    }

    /// What growing a block in place would have to wait for; `None` when there is no room.
    pub fn growth(&self, spot: Spot, bytes: u64) -> Option<Points> {
        self.ranges.growth(spot, bytes)
    }

    /// Grows a block in place as [`growth`](Self::growth) said it can; the points stay recorded
    /// on it. Gives the bytes taken over that were pending.
    pub fn grow_in_place(&mut self, spot: Spot, bytes: u64) -> Option<u64> {
        let before = self.pending();
        let points = self.ranges.grow_in_place(spot, bytes)?;
        self.ranges.points_mut(spot).merge(&points);
        Some(before - self.pending())
    }

    /// The parts of a segment in order of address.
    pub fn parts(&self, id: SegmentId) -> Vec<Part> {
        let part = |node: crate::range::NodeView<'_>| Part {
            offset: node.offset,
            bytes: node.bytes,
            owner: (node.state == State::Live).then_some(node.owner),
            pending: if node.state == State::Free { node.points.clone() } else { Points::NONE },
        };
        self.ranges.iter(id).map(part).collect()
    }

    /// Live ranges. O(n).
    pub fn live_ranges(&self) -> usize {
        self.segments()
            .flat_map(|(id, _)| self.ranges.iter(id))
            .filter(|node| node.state == State::Live)
            .count()
    }

    /// Walks everything. O(n).
    pub fn check(&self) -> Result<(), String> {
        self.ranges.check().map_err(|violation| violation.to_string())
    }

    /// Free bytes that work is still ordered before.
    pub fn pending(&self) -> u64 {
        self.ranges.total_free() - self.ranges.home_free(Home::Done)
    }

    /// Takes room that was found under the same lock. The block's range comes with the points of
    /// all who used it before, which stay recorded on it.
    pub fn take(&mut self, room: Room) -> Grabbed {
        let before = self.pending();
        let (node, points) = match room {
            Room::Hole(fit) => self.ranges.take(fit, State::Live),
            Room::Joined(join) => self.ranges.take_join(join, State::Live),
        };
        if !points.is_empty() {
            *self.ranges.points_mut(node) = points.clone();
        }
        self.note_use(node);
        Grabbed { node, points, pending: before - self.pending() }
    }

    /// Adds a new segment whose first `bytes` are taken.
    pub fn add(&mut self, plain: Plain, bytes: u64) -> NodeId {
        let (segment, node) = self.ranges.add_segment_full(plain.bytes, bytes);
        self.put(segment, plain, None);
        self.ranges.set_state(node, State::Live);
        node
    }

    /// Adds a new segment that is wholly free.
    pub fn add_free(&mut self, plain: Plain, now_ms: u32) {
        let segment = self.ranges.add_segment(plain.bytes);
        self.put(segment, plain, Some(now_ms));
        self.idle_segments += 1;
    }

    fn put(&mut self, id: SegmentId, plain: Plain, idle_since_ms: Option<u32>) {
        let at = id.index() as usize;
        if self.segments.len() <= at {
            self.segments.resize(at + 1, None);
        }
        self.segments[at] = Some(Segment { plain, idle_since_ms, touched: Touched::Nobody });
        self.reserved.add(plain.bytes);
    }

    fn note_use(&mut self, node: NodeId) {
        let id = self.ranges.segment(node);
        if let Some(segment) = self.segment_mut(id)
            && segment.idle_since_ms.take().is_some()
        {
            self.idle_segments -= 1;
        }
    }

    /// Frees a block's range. It can be used by others once `points` and the uses recorded on it
    /// are reached.
    pub fn free(&mut self, node: NodeId, points: Points, now_ms: u32) {
        let id = self.ranges.segment(node);
        self.ranges.free(node, points);
        self.note_idle(id, now_ms);
    }

    /// Notes when a segment has become wholly free.
    fn note_idle(&mut self, id: SegmentId, now_ms: u32) {
        if !self.ranges.is_wholly_free(id) {
            return;
        }
        if let Some(segment) = self.segment_mut(id)
            && segment.idle_since_ms.is_none()
        {
            segment.idle_since_ms = Some(now_ms);
            self.idle_segments += 1;
        }
    }

    /// Takes a wholly free segment out, if none of its work is outstanding, so that its memory
    /// object can be given back. Its bytes stay counted until [`forget`](Self::forget).
    pub fn detach(&mut self, id: SegmentId) -> Option<Plain> {
        if !self.is_done(id) {
            return None;
        }
        self.ranges.remove_segment(id).ok()?;
        let segment = self.segments.get_mut(id.index() as usize)?.take()?;
        if segment.idle_since_ms.is_some() {
            self.idle_segments -= 1;
        }
        Some(segment.plain)
    }

    /// Counts a detached memory object as gone.
    pub fn forget(&mut self, plain: &Plain) {
        self.reserved.sub(plain.bytes);
    }

    /// Whether no work is outstanding in a wholly free segment.
    pub fn is_done(&self, id: SegmentId) -> bool {
        self.ranges.is_wholly_free(id)
            && self.ranges.first(id).is_some_and(|node| {
                self.ranges.points(node).is_empty() && self.ranges.next(node).is_none()
            })
    }

    /// Segments that are wholly free, with the time since when.
    pub fn idle(&self) -> impl Iterator<Item = (SegmentId, u32)> + '_ {
        self.ranges.segments().filter_map(|id| Some((id, self.segment(id)?.idle_since_ms?)))
    }

    pub fn segment(&self, id: SegmentId) -> Option<&Segment> {
        self.segments.get(id.index() as usize)?.as_ref()
    }

    fn segment_mut(&mut self, id: SegmentId) -> Option<&mut Segment> {
        self.segments.get_mut(id.index() as usize)?.as_mut()
    }

    /// Segments there are.
    pub fn segments(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        self.ranges.segments().filter_map(|id| Some((id, self.segment(id)?)))
    }

    /// First byte of a block in its segment.
    pub fn offset(&self, spot: Spot) -> u64 {
        self.ranges.offset(spot)
    }

    /// Where a block is.
    pub fn place(&self, node: NodeId) -> Place {
        let id = self.ranges.segment(node);
        let space = self.segment(id).map_or(SpaceId(u64::MAX), |segment| segment.plain.space);
        Place { space, offset: self.ranges.offset(node) }
    }

    /// The device address of a block, where the device has addresses.
    pub fn address(&self, node: NodeId) -> Option<u64> {
        let base = self.segment(self.ranges.segment(node))?.plain.address?;
        base.checked_add(self.ranges.offset(node))
    }

    /// Notes that `tag` writes to the block's segment; tells whether another tag may have left
    /// data there.
    pub fn touch(&mut self, node: NodeId, tag: Tag) -> bool {
        let id = self.ranges.segment(node);
        let Some(segment) = self.segment_mut(id) else { return false };
        let others = match segment.touched {
            Touched::Nobody => false,
            Touched::By(owner) => owner != tag,
            Touched::Several => true,
        };
        segment.touched = if others { Touched::Several } else { Touched::By(tag) };
        others
    }

    /// Free bytes in partly live segments, in ranges below `bytes`.
    pub fn stranded(&self, bytes: u64) -> u64 {
        self.segments()
            .filter(|(id, _)| !self.ranges.is_wholly_free(*id))
            .flat_map(|(id, _)| self.ranges.iter(id))
            .filter(|node| node.state == State::Free && node.bytes < bytes)
            .map(|node| node.bytes)
            .sum()
    }
}
