//! Warming an allocator by a recorded workload, before serving begins.

use std::collections::BTreeMap;

use terrane_core::{Allocator, Handle, Request};

use super::ReplayError;
use crate::{Op, Trace};
use terrane_core::point::StreamId;

/// Dry runs at most: each but the last made something.
const MOST_ROUNDS: u32 = 16;

/// What warming did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warmed {
    /// Dry runs it took until one needed nothing new.
    pub rounds: u32,
    /// Bytes of memory objects held afterwards.
    pub reserved: u64,
}

/// Allocates and frees everything that `trace` does, on the streams that stand for
/// [`Trace::streams`], until a run of it needs no new memory. No work is submitted. Afterwards the
/// same requests in the same order, freed no later, make no driver call that gets or maps memory.
///
/// # Errors
/// [`ReplayError::Event`] when a request is refused: everything is freed again, what was made
/// stays; copies of moves that the request had begun may still be under way.
/// [`ReplayError::NotSettled`] when each of many runs still needed something.
pub fn warm(alloc: &Allocator, trace: &Trace, streams: &[StreamId]) -> Result<Warmed, ReplayError> {
    let warming = alloc.begin_warming();
    let held = || {
        let stats = alloc.stats();
        (stats.reserved.current, stats.pages_created, stats.memory_objects.allocated)
    };
    for rounds in 1..=MOST_ROUNDS {
        let before = held();
        dry_run(alloc, trace, streams)?;
        if held() == before {
            drop(warming);
            return Ok(Warmed { rounds, reserved: before.0 });
        }
    }
    Err(ReplayError::NotSettled { rounds: MOST_ROUNDS })
}

fn dry_run(alloc: &Allocator, trace: &Trace, streams: &[StreamId]) -> Result<(), ReplayError> {
    let lanes: BTreeMap<u32, StreamId> =
        trace.streams().iter().copied().zip(streams.iter().copied()).collect();
    let mut live: Vec<Option<Handle>> = vec![None; trace.block_count() as usize];
    let mut outcome = Ok(());
    for (at, event) in trace.iter().enumerate() {
        let failed = |error| ReplayError::Event { event: at, error };
        let slot = &mut live[event.block as usize];
        match event.op {
            Op::Alloc => {
                let Some(&stream) = lanes.get(&event.stream) else { continue };
                match alloc.alloc(&Request::new(event.bytes, stream)) {
                    Ok(allocation) => *slot = Some(allocation.handle),
                    Err(error) => {
                        outcome = Err(failed(error));
                        break;
                    }
                }
            }
            Op::FreeRequested => {}
            Op::FreeCompleted => {
                if let Some(handle) = slot.take() {
                    alloc.free(handle).map_err(failed)?;
                }
            }
        }
    }
    for handle in live.into_iter().flatten() {
        let _ = alloc.free(handle);
    }
    outcome
}
