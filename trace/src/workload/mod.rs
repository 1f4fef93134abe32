//! A recorded workload: what was allocated and freed, in order.

mod build;
mod figures;

pub(crate) use build::Live;
pub use build::TraceBuilder;
pub use figures::{Figures, Lifetime};

use std::num::NonZeroU64;

/// What an event says about its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// The block was handed out.
    Alloc,
    /// The program freed the block; work of other streams may still use it.
    FreeRequested,
    /// The last use ended: from here on the memory can be reused.
    FreeCompleted,
}

/// One line of a recorded workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Microseconds since the start of the recording. Never smaller than the event before.
    pub time_us: u64,
    /// Bytes asked for, not rounded, the same at all events of one block. At least 1.
    pub bytes: u64,
    /// Which block: an index below [`Trace::block_count`], numbered in order of allocation. A
    /// number is never used for a second block.
    pub block: u32,
    /// Stream that owns the block; 0 is the default stream.
    pub stream: u32,
    /// What happened.
    pub op: Op,
}

/// A recorded workload, checked: every block has one `Alloc`, then at most one `FreeRequested`,
/// then at most one `FreeCompleted`, all with the same bytes and stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    events: Vec<Event>,
    streams: Vec<u32>,
    block_count: u32,
    clock_reversals: u64,
}

impl Trace {
    /// The events in the order in which they happened.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The events by value, in order: what a replay walks over.
    pub fn iter(&self) -> std::iter::Copied<std::slice::Iter<'_, Event>> {
        self.events.iter().copied()
    }

    /// How many different blocks there are.
    #[must_use]
    pub fn block_count(&self) -> u32 {
        self.block_count
    }

    /// The streams that own blocks, ascending.
    #[must_use]
    pub fn streams(&self) -> &[u32] {
        &self.streams
    }

    /// How many events had an earlier time than the one before and were given its time instead.
    /// Clocks read on several threads differ by a little; the order of the file is what counts.
    #[must_use]
    pub fn clock_reversals(&self) -> u64 {
        self.clock_reversals
    }

    /// The same workload with every size divided by `divisor`, rounded up, and at least 256
    /// bytes: contents and order can be tested with it on a small device. Its fragmentation says
    /// nothing about the workload, and every figure must be computed anew from it.
    #[must_use]
    pub fn scaled(&self, divisor: NonZeroU64) -> Self {
        let mut scaled = self.clone();
        for event in &mut scaled.events {
            event.bytes = event.bytes.div_ceil(divisor.get()).max(SCALED_BYTES_MIN);
        }
        scaled
    }

    /// Peaks, totals and times, counted in one walk.
    #[must_use]
    pub fn figures(&self) -> Figures {
        figures::count(self)
    }

    /// For every block, at its index, the events that made and ended it.
    #[must_use]
    pub fn lifetimes(&self) -> Vec<Lifetime> {
        figures::lifetimes(self)
    }
}

/// Smallest size in a scaled workload, bytes.
const SCALED_BYTES_MIN: u64 = 256;

impl<'a> IntoIterator for &'a Trace {
    type Item = Event;
    type IntoIter = std::iter::Copied<std::slice::Iter<'a, Event>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
