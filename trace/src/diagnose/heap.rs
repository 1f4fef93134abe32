//! The heap at one moment, rebuilt by replaying the recorded allocator.

use super::explain::{Limit, settings};
use crate::Op;
use crate::model::{PlacedBlock, Pytorch, SegmentOp, replay_each};
use crate::snapshot::{History, Snapshot};
use std::collections::{BTreeMap, HashMap};

/// Blocks and holes at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heap {
    /// By segment, then by address.
    pub blocks: Vec<PlacedBlock>,
    /// Blocks of the trace by the address at which they lie.
    pub at: HashMap<u64, u32>,
    /// True when the replay reserves at that moment what was recorded, so that the picture is
    /// that of the run; otherwise it is what PyTorch's rules would have made of the requests.
    pub exact: bool,
}

/// The heap after `events` events of a history of PyTorch's allocator, or of one without
/// addresses: rebuilt by PyTorch's rules, with the requests that failed and under the limit that
/// they prove, because a failure empties the cache.
#[must_use]
pub fn heap_after(snapshot: &Snapshot, history: &History, events: usize) -> Heap {
    let config = settings(snapshot);
    let capacity = Limit::of(snapshot, history, &config, None).of_the_run();
    let mut heap = Heap::default();
    // Sizes that cannot all exist were refused when the history was made.
    let Ok((trace, attempt_of)) = history.with_attempts() else { return heap };
    let mut model =
        Pytorch::new(config, capacity).with_addresses(history.placed()).logging_segments();
    let lifetimes = history.trace.lifetimes();
    // Blocks of the history by their number in the trace with attempts.
    let mut numbers: Vec<Option<u32>> = Vec::new();
    let (mut served, mut blocks) = (0, 0);
    for (event, attempt) in trace.iter().zip(&attempt_of).filter(|(e, _)| e.op == Op::Alloc) {
        debug_assert_eq!(event.block as usize, numbers.len());
        numbers.push(attempt.is_none().then_some(blocks));
        blocks += u32::from(attempt.is_none());
    }
    replay_each(&trace, &mut model, |step, model: &Pytorch| {
        let is_served = attempt_of[step.event].is_none();
        served += usize::from(is_served);
        if !is_served || served != events {
            return;
        }
        heap.blocks = model.placed_blocks();
        let recorded = history.segments.iter().take_while(|change| change.before_event < events);
        let made = model.segment_events();
        heap.exact = !made.is_empty() && made.iter().eq(recorded.map(|change| &change.event));
        for (number, block) in (0..).zip(&numbers) {
            let Some(block) = *block else { continue };
            let life = &lifetimes[block as usize];
            if life.alloc < events && life.completed.is_none_or(|end| end >= events) {
                heap.at.extend(model.place_of(number).map(|(address, _)| (address, block)));
            }
        }
    });
    heap
}

/// The heap after `events` events of a history whose addresses are those of its segments, as our
/// own trace files have them: nothing is rebuilt.
#[must_use]
pub fn heap_by_address(history: &History, events: usize) -> Heap {
    let mut ranges: BTreeMap<u64, u64> = BTreeMap::new();
    for change in history.segments.iter().take_while(|change| change.before_event < events) {
        let (address, bytes) = (change.event.address, change.event.bytes);
        match change.event.op {
            SegmentOp::Alloc | SegmentOp::Map => _ = ranges.insert(address, bytes),
            SegmentOp::Free | SegmentOp::Unmap => _ = ranges.remove(&address),
        }
    }
    // Pages side by side are one segment.
    let mut segments: Vec<(u64, u64)> = Vec::new();
    for (start, bytes) in ranges {
        match segments.last_mut() {
            Some((first, length)) if first.checked_add(*length) == Some(start) => {
                *length = length.saturating_add(bytes);
            }
            _ => segments.push((start, bytes)),
        }
    }
    let mut heap = Heap { exact: true, ..Heap::default() };
    let mut live: BTreeMap<u64, (u64, u32, u32)> = BTreeMap::new();
    let moved = moved_before(history, events);
    for (block, life) in (0..).zip(history.trace.lifetimes()) {
        if life.alloc < events && life.completed.is_none_or(|end| end >= events) {
            let made = history.blocks[block as usize].address;
            let address = moved.get(&block).copied().unwrap_or(made);
            live.insert(address, (life.bytes, life.stream, block));
        }
    }
    for (number, (start, bytes)) in (0..).zip(segments) {
        let end = start.saturating_add(bytes);
        let part = |address, bytes, stream, free| PlacedBlock {
            address,
            bytes,
            stream,
            large: true,
            free,
            segment: number,
        };
        let mut at = start;
        for (&address, &(bytes, stream, block)) in live.range(start..end) {
            if address > at {
                heap.blocks.push(part(at, address - at, 0, true));
            }
            let bytes = bytes.min(end - address);
            heap.blocks.push(part(address, bytes, stream, false));
            heap.at.insert(address, block);
            at = at.max(address.saturating_add(bytes));
        }
        if at < end {
            heap.blocks.push(part(at, end - at, 0, true));
        }
    }
    heap
}

/// Where the blocks lie that moved before an event.
fn moved_before(history: &History, events: usize) -> HashMap<u32, u64> {
    let before = history.happenings.iter().take_while(|it| it.before_event <= events);
    let moves = before.filter(|it| it.what.is_move());
    moves.filter_map(|it| Some((it.block?, it.address))).collect()
}
