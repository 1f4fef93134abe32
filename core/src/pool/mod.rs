//! A pool: segments of one memory class, and the search for room in them.
//!
//! A request is served in steps that never hold the lock over a device call: *find* (by value),
//! *take* (the range is reserved), device calls, then the block goes live or the range is given
//! back. This module knows ranges and segments; who asks, waits and pays is the allocator's.

mod blocks;
mod growth;
mod moves;
mod paged;
mod spot;

use crate::device::{ClassId, HeapId, MemoryKind, Plain};
use crate::point::{Points, StreamId, SyncPoint};
use crate::range::{Fit, Home, Join, NodeId, Ranges, SegmentId, State};
use crate::request::{Layout, Tag};
use crate::stats::Counter;

/// A part of a segment.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub offset: u64,
    pub bytes: u64,
    pub state: PartState,
    /// The slot of the live block there.
    pub owner: Option<u32>,
    /// What a free range still waits for.
    pub pending: Points,
}

/// What a part of a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PartState {
    /// A block.
    Live,
    /// Free, perhaps behind work that is still to be done.
    Free,
    /// Addresses without memory behind them.
    Unbacked,
    /// Its page is mapped elsewhere by now and the old mapping still stands: not to be used.
    Stale,
    /// Device calls about it are under way.
    InFlight,
}

pub use growth::Growth;
pub(crate) use growth::{Situation, segment_sizes};
pub(crate) use moves::Behind;
pub(crate) use paged::Paged;
pub(crate) use spot::{Spot, SpotKind};

/// Requests up to this size share segments of their own, so that small blocks that live long do
/// not split the room of large ones.
pub(crate) const SMALL_MAX: u64 = 1 << 20;

/// Free ranges looked at while the lock is held.
const REAPED_AT_ONCE: u32 = 128;
/// The same of its paged space, where each is entered into more indices.
const PAGED_REAPED_AT_ONCE: u32 = 16;

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

impl Touched {
    /// Notes that `tag` writes there; tells whether another tag may have left data.
    fn note(&mut self, tag: Tag) -> bool {
        let others = match *self {
            Self::Nobody => false,
            Self::By(owner) => owner != tag,
            Self::Several => true,
        };
        *self = if others { Self::Several } else { Self::By(tag) };
        others
    }
}

/// One memory object and the range over it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub plain: Plain,
    /// When it last became wholly free, on the allocator's clock; `None` while it is in use.
    pub idle_since_ms: Option<u32>,
    touched: Touched,
}

/// The time, as slabs and pages want it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Milliseconds since the allocator was opened.
    pub ms: u32,
    /// Nanoseconds of the device's clock.
    pub ns: u64,
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
    pub spot: Spot,
    /// What those who used it before are still doing.
    pub points: Points,
    /// Bytes of it that were pending.
    pub pending: u64,
}

/// Segments of one memory class: plain ones, each one memory object, and where the device pages
/// one paged space besides.
pub(crate) struct Pool {
    pub key: PoolKey,
    pub heap: HeapId,
    pub kind: MemoryKind,
    /// Made when the pool is first asked for memory, if the device pages its class.
    pub paged: Option<Box<Paged>>,
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
            paged: None,
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

    /// Takes room behind other streams' work.
    pub fn take_behind(
        &mut self,
        layout: Layout,
        stream: StreamId,
        now_ns: u64,
    ) -> Option<Grabbed> {
        if let Some(paged) = &mut self.paged
            && let Some(plan) = paged.find_behind(layout, stream, now_ns)
        {
            return paged.take(plan).ok();
        }
        let room = self.find_behind(layout, stream)?;
        Some(self.take(room))
    }

    /// Whether there is room behind other streams' work.
    pub fn is_behind(&self, layout: Layout, stream: StreamId, now_ns: u64) -> bool {
        let paged = self.paged.as_ref();
        paged.is_some_and(|paged| paged.find_behind(layout, stream, now_ns).is_some())
            || self.find_behind(layout, stream).is_some()
    }

    /// Room of its slabs behind other streams' work.
    fn find_behind(&self, layout: Layout, stream: StreamId) -> Option<Room> {
        let Layout { bytes, align } = layout;
        let hole = self.ranges.find_waiting(bytes, align, Some(stream));
        hole.map(Room::Hole)
            .or_else(|| self.ranges.find_join_for(bytes, align, Some(stream)).map(Room::Joined))
    }

    /// Takes in what is reached: `reached` tells the last value of a stream known to be. Gives
    /// the bytes that nothing is ordered before any more.
    pub fn reap(&mut self, reached: &dyn Fn(StreamId) -> u64) -> u64 {
        let paged = self.paged.as_mut().map_or(0, |paged| paged.pages.reap(reached));
        paged + self.ranges.reap(&mut |point| point.value <= reached(point.stream))
    }

    /// A part of [`reap`](Self::reap): looks at a bounded number of free ranges, first of its paged
    /// space, then of its slabs, and goes on where the part before has stopped.
    pub fn reap_some(&mut self, reached: &dyn Fn(StreamId) -> u64) -> u64 {
        let is_first = !self.walks().1;
        let paged = self.paged.as_mut().filter(|_| is_first);
        let (done, is_all) =
            paged.map_or((0, true), |paged| paged.pages.reap_some(reached, PAGED_REAPED_AT_ONCE));
        if !is_all {
            return done;
        }
        let is_reached = &mut |point: SyncPoint| point.value <= reached(point.stream);
        done + self.ranges.reap_some(is_reached, REAPED_AT_ONCE).bytes
    }

    /// How many walks over its free ranges have ended, and whether one is under way.
    pub fn walks(&self) -> (u32, bool) {
        self.ranges.walks()
    }

    /// Points that free ranges wait for: at least the first of each stream.
    pub fn awaited_points(&self) -> impl Iterator<Item = SyncPoint> + '_ {
        let paged = self.paged.iter().flat_map(|paged| paged.pages.awaited_points());
        self.ranges.awaited_points().chain(paged)
    }

    /// All free bytes.
    pub fn free_bytes(&self) -> u64 {
        self.ranges.total_free() + self.usage().free
    }

    /// What the paged space holds; nothing where there is none.
    pub fn usage(&self) -> crate::pages::Usage {
        self.paged.as_ref().map(|paged| paged.pages.usage()).unwrap_or_default()
    }

    /// The largest free range, neighbours behind different waits joined.
    pub fn largest_free(&self) -> u64 {
        let paged = self.paged.as_ref().map_or(0, |paged| paged.pages.longest_free());
        paged.max(self.ranges.largest_run())
    }

    /// The parts of a plain segment in order of address.
    pub fn parts(&self, id: SegmentId) -> Vec<Part> {
        let part = |node: crate::range::NodeView<'_>| Part {
            offset: node.offset,
            bytes: node.bytes,
            owner: (node.state == State::Live).then_some(node.owner),
            state: match node.state {
                State::Live => PartState::Live,
                State::Free | State::Pending => PartState::Free,
                State::Mapping => PartState::InFlight,
                State::Stale => PartState::Stale,
            },
            pending: if node.state == State::Free { node.points.clone() } else { Points::NONE },
        };
        self.ranges.iter(id).map(part).collect()
    }

    /// Live ranges. O(n).
    pub fn live_ranges(&self) -> usize {
        let slabs = self.segments().flat_map(|(id, _)| self.ranges.iter(id));
        let paged = self.paged.as_ref().map_or(0, |paged| paged.pages.live_blocks());
        slabs.filter(|node| node.state == State::Live).count() + paged
    }

    /// Walks everything. O(n).
    pub fn check(&self) -> Result<(), String> {
        self.ranges.check().map_err(|violation| violation.to_string())?;
        match &self.paged {
            Some(paged) => paged.pages.check().map_err(|broken| broken.to_string()),
            None => Ok(()),
        }
    }

    /// Free bytes that work is still ordered before.
    pub fn pending(&self) -> u64 {
        let paged = self.paged.as_ref().map_or(0, |paged| paged.pages.pending());
        self.ranges.total_free() - self.ranges.home_free(Home::Done) + paged
    }

    /// Takes room that was found under the same lock. The block's range comes with the points of
    /// all who used it before, which stay recorded on it.
    pub fn take(&mut self, room: Room) -> Grabbed {
        let (node, points, pending) = match room {
            Room::Hole(fit) => {
                let (node, points) = self.ranges.take(fit, State::Live);
                // A hole is as a whole behind its points.
                let pending = if points.is_empty() { 0 } else { fit.bytes };
                (node, points, pending)
            }
            Room::Joined(join) => {
                let before = self.pending();
                let (node, points) = self.ranges.take_join(join, State::Live);
                (node, points, before - self.pending())
            }
        };
        if !points.is_empty() {
            *self.ranges.points_mut(node) = points.clone();
        }
        self.note_use(node);
        Grabbed { spot: Spot::slab(node), points, pending }
    }

    /// Adds a new segment whose first `bytes` are taken.
    pub fn add(&mut self, plain: Plain, bytes: u64) -> Spot {
        let (segment, node) = self.ranges.add_segment_full(plain.bytes, bytes);
        self.put(segment, plain, None);
        self.ranges.set_state(node, State::Live);
        Spot::slab(node)
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
    pub fn free(&mut self, spot: Spot, points: Points, now: Now) {
        let node = match (spot.kind(), &mut self.paged) {
            (SpotKind::Slab(node), _) => node,
            (SpotKind::Page(slot), Some(paged)) => {
                if let Some(block) = paged.pages.block_in(slot) {
                    let freed = paged.pages.free(block, &points, now.ns);
                    debug_assert!(freed.is_ok(), "{freed:?}");
                }
                return;
            }
            (SpotKind::Page(_), None) => return,
        };
        let id = self.ranges.segment(node);
        self.ranges.free(node, points);
        self.note_idle(id, now.ms);
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

    /// Plain segments there are.
    pub fn segments(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        self.ranges.segments().filter_map(|id| Some((id, self.segment(id)?)))
    }

    /// Free bytes in partly live segments, in ranges below `bytes`.
    pub fn stranded(&self, bytes: u64) -> u64 {
        self.segments()
            .filter(|(id, _)| !self.ranges.is_wholly_free(*id))
            .flat_map(|(id, _)| self.ranges.iter(id))
            .filter(|node| node.state == State::Free && node.bytes < bytes)
            .map(|node| node.bytes)
            .sum::<u64>()
            + self.paged.as_ref().map_or(0, |paged| paged.pages.stranded_below(bytes))
    }
}
