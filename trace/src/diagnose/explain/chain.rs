//! The allocator's state at the failure, and what each way out would have given.

use crate::model::{PlacedBlock, Pytorch, PytorchConfig, PytorchState, SegmentEvent, replay_each};
use crate::snapshot::{Attempt, History};
use crate::{Lifetime, Reason, Trace};
use serde::Serialize;

/// Numbers behind a verdict, bytes. "After the ladder" means that cached segments had been given
/// back and pending frees waited for, which the allocator does before it gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Chain {
    /// Bytes asked for.
    pub asked: u64,
    /// After rounding.
    pub rounded: u64,
    /// Segment that would have been made.
    pub segment_bytes: u64,
    /// Pool that served it: requests up to 1 MiB are small.
    pub large_pool: bool,
    /// Bytes of live blocks, rounded: "allocated by PyTorch".
    pub allocated: u64,
    /// Bytes still in use by other streams when the request came.
    pub pending: u64,
    /// Microseconds from the request until the last of those uses had ended; `None` where there
    /// are none, or the recording ends before.
    pub pending_until_us: Option<u64>,
    /// Reserved after the ladder.
    pub reserved: u64,
    /// Reserved and free after the ladder: "reserved by PyTorch but unallocated".
    pub free: u64,
    /// What the ladder gave back to the driver.
    pub released: u64,
    /// Largest free block of the same stream and pool.
    pub best_hole: u64,
    /// Largest free block of another stream, same pool, before the ladder.
    pub best_hole_other_stream: u64,
    /// The stream it belongs to. A hole is its stream's until its whole segment is free and given
    /// back.
    pub best_hole_stream: Option<u32>,
    /// Largest free block of the same stream and pool once pending frees are waited for.
    pub best_hole_with_pending: u64,
    /// Free bytes in blocks of this pool and stream.
    pub free_same_pool: u64,
    /// Number of free blocks.
    pub holes: u64,
    /// Bytes of pages of 2 MiB that are wholly free: what stealing pages could gather.
    pub stealable: u64,
    /// The stretch of one segment that is cheapest to empty for the request.
    pub window: Option<Window>,
    /// The driver's free memory at that moment.
    pub device_free: u64,
}

/// A stretch of addresses that would hold the request if its live blocks were elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Window {
    /// First address.
    pub address: u64,
    /// Bytes of live blocks in it.
    pub live_bytes: u64,
    /// Number of them.
    pub live_blocks: u64,
}

const PAGE: u64 = 2 << 20;

/// A replay up to the last failure.
pub(super) struct Replayed {
    before: PytorchState,
    before_blocks: Vec<PlacedBlock>,
    after: PytorchState,
    after_blocks: Vec<PlacedBlock>,
    best_other: Vec<(u32, bool, u64)>,
    sizes: (u64, u64),
    pending_until_us: Option<u64>,
    pub(super) exact: bool,
}

impl Replayed {
    pub(super) fn until_last_failure(
        history: &History,
        config: &PytorchConfig,
        capacity: Option<u64>,
    ) -> Result<Self, Reason> {
        let (trace, attempt_of) = history.with_attempts()?;
        let last = history.attempts.len().checked_sub(1).and_then(|n| u32::try_from(n).ok());
        let at = attempt_of.iter().position(|number| *number == last).unwrap_or(0);
        let mut model = Pytorch::new(config.clone(), capacity)
            .with_addresses(history.placed())
            .logging_segments();
        let asked = history.attempts.last().map_or(0, |attempt| attempt.bytes);
        let sizes = model.sizes_for(asked).unwrap_or((u64::MAX, u64::MAX));
        let mut replayed = Self {
            before: PytorchState::default(),
            before_blocks: Vec::new(),
            after: PytorchState::default(),
            after_blocks: Vec::new(),
            best_other: Vec::new(),
            sizes,
            pending_until_us: pending_until_us(&trace, at),
            exact: false,
        };
        replay_each(&trace, &mut model, |step, model: &Pytorch| {
            if step.event + 1 == at {
                replayed.before = model.state();
                replayed.before_blocks = model.placed_blocks();
                let free = model.free_blocks();
                replayed.best_other = free.map(|b| (b.stream, b.large, b.bytes)).collect();
            }
            if step.event == at {
                replayed.after = model.state();
                replayed.after_blocks = model.placed_blocks();
                replayed.exact = step.refused && same_segments(model.segment_events(), history);
            }
        });
        Ok(replayed)
    }
}

/// Microseconds from event `at` until all that was freed before it and still used by other
/// streams had ended; `None` where there is none, or one has no end in the recording.
fn pending_until_us(trace: &Trace, at: usize) -> Option<u64> {
    let now = trace.events().get(at)?.time_us;
    let is_pending = |lifetime: &Lifetime| {
        lifetime.requested.is_some_and(|requested| requested < at)
            && lifetime.completed.is_none_or(|completed| completed > at)
    };
    let ends = trace.lifetimes().into_iter().filter(is_pending);
    let ends: Option<Vec<u64>> =
        ends.map(|lifetime| Some(trace.events().get(lifetime.completed?)?.time_us)).collect();
    ends?.into_iter().max().map(|end| end.saturating_sub(now))
}

/// True when the model made, so far, the segments that were recorded before the last failure.
fn same_segments(made: &[SegmentEvent], history: &History) -> bool {
    let Some(last) = history.attempts.last() else { return false };
    let recorded = history.segments.iter().take_while(|change| change.entry < last.entry);
    made.iter().eq(recorded.map(|change| &change.event))
}

impl Chain {
    pub(super) fn of(last: &Attempt, replayed: &Replayed) -> Self {
        let (rounded, segment_bytes) = replayed.sizes;
        let large_pool = rounded > 1 << 20;
        let (before, after) = (replayed.before, replayed.after);
        let same = |b: &&PlacedBlock| b.stream == last.stream && b.large == large_pool && b.free;
        let holes = || replayed.after_blocks.iter().filter(same);
        let best = |blocks: &[PlacedBlock]| {
            blocks.iter().filter(same).map(|block| block.bytes).max().unwrap_or(0)
        };
        let others = replayed.best_other.iter();
        let other = others
            .filter(|b| b.0 != last.stream && b.1 == large_pool)
            .max_by_key(|b| (b.2, std::cmp::Reverse(b.0)));
        Self {
            asked: last.bytes,
            rounded,
            segment_bytes,
            large_pool,
            allocated: after.allocated_bytes,
            pending: before.pending_bytes,
            pending_until_us: replayed.pending_until_us,
            reserved: after.reserved_bytes,
            free: after.free_bytes,
            released: before.reserved_bytes.saturating_sub(after.reserved_bytes),
            best_hole: best(&replayed.before_blocks),
            best_hole_other_stream: other.map_or(0, |b| b.2),
            best_hole_stream: other.map(|b| b.0),
            best_hole_with_pending: best(&replayed.after_blocks),
            free_same_pool: holes().map(|block| block.bytes).sum(),
            holes: replayed.after_blocks.iter().filter(|block| block.free).count() as u64,
            stealable: stealable(&replayed.after_blocks),
            window: cheapest_window(&replayed.after_blocks, rounded, large_pool),
            device_free: last.device_free,
        }
    }

    /// Bytes that live blocks and the request need together, after rounding.
    pub(super) fn needed(&self) -> u64 {
        self.allocated.saturating_add(self.rounded)
    }
}

/// Bytes in pages that lie wholly in free blocks.
fn stealable(blocks: &[PlacedBlock]) -> u64 {
    let free = blocks.iter().filter(|block| block.free);
    free.map(|block| {
        let end = block.address.saturating_add(block.bytes) / PAGE;
        end.saturating_sub(block.address.div_ceil(PAGE)) * PAGE
    })
    .sum()
}

/// The run of neighbouring blocks of at least `bytes` with the fewest live bytes in it.
fn cheapest_window(blocks: &[PlacedBlock], bytes: u64, large: bool) -> Option<Window> {
    let mut best: Option<Window> = None;
    for segment in blocks.chunk_by(|a, b| a.segment == b.segment) {
        if segment[0].large != large {
            continue;
        }
        let (mut end, mut length) = (0, 0u64);
        let (mut live_bytes, mut live_blocks) = (0, 0);
        for start in 0..segment.len() {
            while length < bytes && end < segment.len() {
                length += segment[end].bytes;
                live_bytes += if segment[end].free { 0 } else { segment[end].bytes };
                live_blocks += u64::from(!segment[end].free);
                end += 1;
            }
            if length < bytes {
                break;
            }
            if best.is_none_or(|best| live_bytes < best.live_bytes) {
                best = Some(Window { address: segment[start].address, live_bytes, live_blocks });
            }
            length -= segment[start].bytes;
            live_bytes -= if segment[start].free { 0 } else { segment[start].bytes };
            live_blocks -= u64::from(!segment[start].free);
        }
    }
    best
}
