//! The heap at one moment, rebuilt by replaying the recorded allocator.

use super::explain::settings;
use crate::model::{PlacedBlock, Pytorch, replay_each};
use crate::snapshot::{History, Snapshot};
use std::collections::HashMap;

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

/// The heap after `events` events of the history.
#[must_use]
pub fn heap_after(snapshot: &Snapshot, history: &History, events: usize) -> Heap {
    let mut model =
        Pytorch::new(settings(snapshot), None).with_addresses(history.placed()).logging_segments();
    let mut heap = Heap::default();
    let lifetimes = history.trace.lifetimes();
    replay_each(&history.trace, &mut model, |step, model: &Pytorch| {
        if step.event + 1 != events {
            return;
        }
        heap.blocks = model.placed_blocks();
        let recorded = history.segments.iter().take_while(|change| change.before_event < events);
        let made = model.segment_events();
        heap.exact = !made.is_empty() && made.iter().eq(recorded.map(|change| &change.event));
        for (block, life) in (0..).zip(&lifetimes) {
            if life.alloc < events && life.completed.is_none_or(|end| end >= events) {
                heap.at.extend(model.place_of(block).map(|(address, _)| (address, block)));
            }
        }
    });
    heap
}
