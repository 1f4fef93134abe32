//! Figures of a recorded workload that need no allocator.

use super::{Op, Trace};
use serde::Serialize;

/// Peaks, totals and times of a workload. Bytes are the sizes asked for, never rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Number of events.
    pub events: u64,
    /// Number of blocks allocated.
    pub blocks: u64,
    /// Peak of the bytes asked for, each counted from its allocation until its free *completed*:
    /// what an allocator needs that reuses nothing earlier.
    pub peak_requested: u64,
    /// Index of the event at which that peak was first reached.
    pub peak_event: u64,
    /// The same peak with each block counted only until its free was *requested*: what an
    /// allocator could need that reuses behind a wait.
    pub peak_until_requested: u64,
    /// Sum of all bytes ever asked for.
    pub allocated_bytes: u64,
    /// Largest single request.
    pub largest_bytes: u64,
    /// Blocks whose free was never requested.
    pub live_at_end: u64,
    /// Their bytes.
    pub live_bytes_at_end: u64,
    /// Blocks whose free was requested and did not complete within the recording.
    pub pending_at_end: u64,
    /// Their bytes.
    pub pending_bytes_at_end: u64,
    /// Microseconds from the first event to the last.
    pub recorded_us: u64,
    /// Time, as events carry it, at which the first tenth of the recorded time ends. Set-up is
    /// judged apart from what follows.
    pub first_tenth_us: u64,
    /// Number of events up to and including that time.
    pub first_tenth_events: u64,
}

/// Events that made and ended one block, as indices into [`Trace::events`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// Bytes asked for.
    pub bytes: u64,
    /// Stream that owns it.
    pub stream: u32,
    /// Its allocation.
    pub alloc: usize,
    /// The request to free it, `None` when it lived to the end.
    pub requested: Option<usize>,
    /// The completion of that free, `None` when the recording ended before.
    pub completed: Option<usize>,
}

impl Figures {
    /// Milliseconds from the first event to the last.
    #[must_use]
    pub fn recorded_ms(&self) -> f64 {
        self.recorded_us as f64 / 1e3
    }
}

pub(super) fn count(trace: &Trace) -> Figures {
    let events = trace.events();
    let first_us = events.first().map_or(0, |e| e.time_us);
    let recorded_us = events.last().map_or(0, |e| e.time_us - first_us);
    let first_tenth_us = first_us + recorded_us / 10;
    let mut figures = Figures {
        events: events.len() as u64,
        blocks: trace.block_count().into(),
        recorded_us,
        first_tenth_us,
        first_tenth_events: events.partition_point(|e| e.time_us <= first_tenth_us) as u64,
        ..Figures::default()
    };
    // `held` counts from allocation to completion, `wanted` only to the request to free.
    let (mut held, mut wanted) = (0u64, 0u64);
    for (index, event) in events.iter().enumerate() {
        match event.op {
            Op::Alloc => {
                held += event.bytes;
                wanted += event.bytes;
                figures.live_at_end += 1;
                figures.allocated_bytes += event.bytes;
                figures.largest_bytes = figures.largest_bytes.max(event.bytes);
                figures.peak_until_requested = figures.peak_until_requested.max(wanted);
                if held > figures.peak_requested {
                    figures.peak_requested = held;
                    figures.peak_event = index as u64;
                }
            }
            Op::FreeRequested => {
                wanted -= event.bytes;
                figures.live_at_end -= 1;
                figures.pending_at_end += 1;
            }
            Op::FreeCompleted => {
                held -= event.bytes;
                figures.pending_at_end -= 1;
            }
        }
    }
    figures.live_bytes_at_end = wanted;
    figures.pending_bytes_at_end = held - wanted;
    figures
}

pub(super) fn lifetimes(trace: &Trace) -> Vec<Lifetime> {
    let mut lifetimes: Vec<Lifetime> = Vec::with_capacity(trace.block_count() as usize);
    for (index, event) in trace.iter().enumerate() {
        match event.op {
            // Blocks are numbered in order of allocation, so the index is the next free slot.
            Op::Alloc => lifetimes.push(Lifetime {
                bytes: event.bytes,
                stream: event.stream,
                alloc: index,
                requested: None,
                completed: None,
            }),
            Op::FreeRequested => lifetimes[event.block as usize].requested = Some(index),
            Op::FreeCompleted => lifetimes[event.block as usize].completed = Some(index),
        }
    }
    lifetimes
}
