//! Work that still uses a block when its free is requested, as the recording shows it.
//!
//! The recording says when such work was over, not on which stream it ran. It is played on lanes
//! of its own: blocks whose frees complete in the order in which they were requested share a
//! lane, as work of one stream would. The fewest lanes that keep every recorded completion are
//! used.

use terrane_core::device::{DeviceError, MemoryId};
use terrane_core::point::{Points, StreamId, SyncPoint};
use terrane_core::{Allocator, Handle};

use super::{ReplayError, Target};
use crate::{Lifetime, Trace};

/// A piece of a memory object: object, first byte, bytes.
pub(super) type Piece = (MemoryId, u64, u64);

/// A use that goes on after the free was requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overlap {
    lane: u32,
    /// When it ends, in recorded microseconds; the end of the recording if it was not seen.
    pub until_us: u64,
}

/// Uses by block, and the streams that play them.
pub(super) struct Overlaps {
    by_block: Vec<Option<Overlap>>,
    lanes: Vec<StreamId>,
    /// When each submission of each lane ends, by lane: its value and the time.
    ends_us: Vec<Vec<(u64, u64)>>,
    points: Vec<Option<SyncPoint>>,
    /// The memory that unfinished uses are of.
    in_use: Vec<InUse>,
}

/// A piece of a memory object that work still uses.
#[derive(Clone, Copy, Debug)]
struct InUse {
    memory: MemoryId,
    start: u64,
    end: u64,
    until: SyncPoint,
}

impl Overlaps {
    /// Plans all uses of a trace and makes their streams; `None` on a device that decides itself
    /// when work is done.
    pub fn new(trace: &Trace, target: &Target) -> Result<Option<Self>, DeviceError> {
        if matches!(target, Target::Real(_)) {
            return Ok(None);
        }
        let (by_block, count) = plan(trace);
        let mut lanes = Vec::new();
        for _ in 0..count {
            lanes.extend(target.lane()?);
        }
        let points = vec![None; by_block.len()];
        let ends_us = vec![Vec::new(); lanes.len()];
        Ok(Some(Self { by_block, ends_us, lanes, points, in_use: Vec::new() }))
    }

    /// The number of a lane among all.
    pub fn lane_of(&self, stream: StreamId) -> Option<usize> {
        self.lanes.iter().position(|&lane| lane == stream)
    }

    /// Submits the use of a block that goes on, if one does. `backing` is where the block lies.
    pub fn begin(
        &mut self,
        block: u32,
        target: &Target,
        (alloc, handle): (&Allocator, Handle),
        backing: &[Piece],
    ) -> Result<Option<SyncPoint>, ReplayError> {
        let Some(Overlap { lane, until_us }) = self.by_block[block as usize] else {
            return Ok(None);
        };
        let point = target.use_block(self.lanes[lane as usize], alloc, handle)?;
        self.ends_us[lane as usize].push((point.value, until_us));
        self.points[block as usize] = Some(point);
        let piece = |&(memory, start, bytes): &Piece| InUse {
            memory,
            start,
            end: start + bytes,
            until: point,
        };
        self.in_use.extend(backing.iter().map(piece));
        Ok(Some(point))
    }

    /// A use of the same memory that has not ended and that nobody who waits for `waits` waits
    /// for: memory handed out with these waits is handed out too early.
    pub fn overtaken(&self, backing: &[Piece], waits: &Points) -> Option<SyncPoint> {
        let is_awaited = |point: SyncPoint| {
            waits.iter().any(|wait| wait.stream == point.stream && wait.value >= point.value)
        };
        let overlaps = |used: &InUse| {
            backing.iter().any(|&(memory, start, bytes)| {
                memory == used.memory && start < used.end && used.start < start + bytes
            })
        };
        let unawaited = self.in_use.iter().filter(|used| !is_awaited(used.until));
        unawaited.filter(|used| overlaps(used)).map(|used| used.until).next()
    }

    /// Ends the use of a block.
    pub fn end(&mut self, block: u32, target: &Target) -> Result<(), DeviceError> {
        if let Some(point) = self.points[block as usize].take() {
            target.complete(point)?;
            self.in_use.retain(|used| used.until != point);
        }
        Ok(())
    }

    /// When a point of one of the lanes is reached, in recorded microseconds.
    pub fn until_us(&self, point: SyncPoint) -> Option<u64> {
        let ends = &self.ends_us[self.lane_of(point.stream)?];
        let wanted = point.value;
        let at = ends.binary_search_by_key(&wanted, |&(value, _)| value).ok()?;
        Some(ends[at].1)
    }
}

/// Gives each use the lane whose last use ends latest, but not after it.
fn plan(trace: &Trace) -> (Vec<Option<Overlap>>, usize) {
    let events = trace.events();
    let end_us = events.last().map_or(0, |event| event.time_us);
    let lifetimes = trace.lifetimes();
    let mut by_block = vec![None; lifetimes.len()];
    let mut last_ends: Vec<usize> = Vec::new();
    let mut requested: Vec<(usize, usize)> = lifetimes
        .iter()
        .enumerate()
        .filter_map(|(block, lifetime)| goes_on(lifetime, trace).map(|at| (at, block)))
        .collect();
    requested.sort_unstable();
    for (_, block) in requested {
        let completed = lifetimes[block].completed;
        let end = completed.unwrap_or(usize::MAX);
        let fitting = (0..last_ends.len()).filter(|&lane| last_ends[lane] <= end);
        let lane = fitting.max_by_key(|&lane| last_ends[lane]).unwrap_or_else(|| {
            last_ends.push(0);
            last_ends.len() - 1
        });
        last_ends[lane] = end;
        let until_us = completed.map_or(end_us, |at| events[at].time_us);
        by_block[block] = Some(Overlap { lane: lane as u32, until_us });
    }
    (by_block, last_ends.len())
}

/// The index of the request to free a block that is used beyond it.
fn goes_on(lifetime: &Lifetime, trace: &Trace) -> Option<usize> {
    let requested = lifetime.requested?;
    let at = |index: usize| trace.events()[index].time_us;
    match lifetime.completed {
        Some(completed) if at(completed) == at(requested) => None,
        _ => Some(requested),
    }
}

#[cfg(test)]
mod tests {
    use terrane_core::device::Device;

    use super::*;
    use crate::{Op, TraceBuilder};

    #[test]
    fn memory_handed_out_without_its_wait_is_noticed() {
        let mut builder = TraceBuilder::new();
        builder.push(Op::Alloc, 0, 0, 512, 0).unwrap();
        builder.push(Op::FreeRequested, 1, 0, 512, 0).unwrap();
        builder.push(Op::FreeCompleted, 9, 0, 512, 0).unwrap();
        let sim = terrane_core::device::sim::Sim::cuda().open();
        let alloc = Allocator::new(sim.shared()).unwrap();
        let stream = sim.create_stream(Default::default()).unwrap();
        let handle = alloc.alloc(&terrane_core::Request::new(512, stream)).unwrap().handle;
        let target = Target::Sim(sim);
        let mut overlaps = Overlaps::new(&builder.finish(), &target).unwrap().unwrap();
        let piece = |memory, start, bytes| [(MemoryId(memory), start, bytes)];
        let block = (&alloc, handle);
        let point = overlaps.begin(0, &target, block, &piece(3, 1000, 512)).unwrap().unwrap();
        let early = |overlaps: &Overlaps, pieces: &[Piece], waits: &Points| {
            overlaps.overtaken(pieces, waits)
        };
        assert_eq!(early(&overlaps, &piece(3, 1511, 8), &Points::NONE), Some(point));
        assert_eq!(early(&overlaps, &piece(3, 1511, 8), &Points::one(point)), None);
        assert_eq!(early(&overlaps, &piece(3, 1512, 8), &Points::NONE), None);
        assert_eq!(early(&overlaps, &piece(4, 1000, 8), &Points::NONE), None);
        overlaps.end(0, &target).unwrap();
        assert_eq!(early(&overlaps, &piece(3, 1511, 8), &Points::NONE), None);
    }

    #[test]
    fn uses_that_end_in_order_share_a_lane_and_others_get_their_own() {
        let mut builder = TraceBuilder::new();
        for block in 0..4 {
            builder.push(Op::Alloc, 0, block, 512, 0).unwrap();
        }
        for block in 0..4 {
            builder.push(Op::FreeRequested, block + 1, block, 512, 0).unwrap();
        }
        // 0 ends first, then 2, then 1; 3 never ends.
        for (time, block) in [(10, 0), (11, 2), (12, 1)] {
            builder.push(Op::FreeCompleted, time, block, 512, 0).unwrap();
        }
        let (plan, lanes) = plan(&builder.finish());
        let lane: Vec<u32> = plan.iter().map(|overlap| overlap.unwrap().lane).collect();
        assert_eq!((lane, lanes), (vec![0, 0, 1, 0], 2));
        assert_eq!(plan[1].unwrap().until_us, 12);
        assert_eq!(plan[3].unwrap().until_us, 12);
    }
}
