//! What would another allocator have done? Models of allocators, driven by a recorded workload.
//!
//! A model keeps the books of an allocator and touches no memory. [`replay`] drives it through
//! a [`Trace`] and reports the peak it reserves, at any capacity. The premise of every result:
//! the program makes the same requests in the same order, also after a request failed.

mod bfc;
mod cuda_async;
mod driver;
mod extents;
mod pending;
mod pytorch;
mod rmm;
mod spec;
mod table;
mod vma;

pub use bfc::BfcConfig;
pub use driver::Placed;
pub use pytorch::{FreeBlock, PlacedBlock, Pytorch, PytorchConfig, PytorchState};
pub use pytorch::{SegmentEvent, SegmentOp};
pub use rmm::{ArenaConfig, PoolConfig};
pub use spec::{ModelSpec, SpecError};
pub use vma::VmaConfig;

use crate::{Op, Trace};
use serde::Serialize;

/// One request to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Block of the trace, a dense index; named again at its free.
    pub block: u32,
    /// Bytes asked for, not rounded.
    pub bytes: u64,
    /// Stream that will own the block.
    pub stream: u32,
}

/// The books of an allocator.
///
/// A block that was refused may still be freed: that does nothing.
pub trait Model {
    /// Serves a request; false when the model's allocator would have run out of memory.
    fn alloc(&mut self, request: Request) -> bool;
    /// The program frees a block; work on other streams may still use it.
    fn free_requested(&mut self, block: u32);
    /// The last use of a freed block has ended.
    fn free_completed(&mut self, block: u32);
    /// Bytes obtained from the driver and not given back.
    fn reserved(&self) -> u64;
    /// Times that the allocator gave its cache back, or waited, to ask the driver once more.
    fn retries(&self) -> u64 {
        0
    }
    /// Times that a stream had to wait for another one to reuse its memory.
    fn waits(&self) -> u64 {
        0
    }
}

/// How far a model may be believed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Validation {
    /// Its peak was compared with recorded runs.
    Validated {
        /// Largest difference seen, per cent of the recorded peak.
        within_percent: f64,
        /// What it was compared with.
        against: &'static str,
    },
    /// It follows the allocator's published rules and was compared with no recorded run.
    NotValidated {
        /// What the rules do not say and the model assumes.
        assumes: &'static str,
    },
}

impl std::fmt::Display for Validation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Validated { within_percent, against } => {
                write!(f, "validated to {within_percent} % ({against})")
            }
            Self::NotValidated { assumes } => write!(f, "not validated (assumes {assumes})"),
        }
    }
}

/// A request that a model refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Index of the event in the trace.
    pub event: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Stream that asked.
    pub stream: u32,
    /// Bytes asked for by live and pending blocks at that moment, this request not included.
    pub held: u64,
    /// Bytes reserved at that moment.
    pub reserved: u64,
}

/// What a model did with a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Peak of the bytes asked for, each until its free completed; a property of the workload.
    pub peak_requested: u64,
    /// Peak of the bytes obtained from the driver.
    pub peak_reserved: u64,
    /// Index of the event at which that peak was first reached.
    pub peak_event: u64,
    /// Bytes reserved after the last event.
    pub reserved_at_end: u64,
    /// Requests refused. The replay goes on without them.
    pub failures: u64,
    /// The first of them.
    pub first_failure: Option<Failure>,
    /// Times that the allocator emptied its cache, or waited, to ask the driver once more.
    pub retries: u64,
    /// Times that a stream had to wait for another one.
    pub waits: u64,
}

/// Drives `model` through `trace`.
pub fn replay<M: Model + ?Sized>(trace: &Trace, model: &mut M) -> Outcome {
    replay_each(trace, model, |_, _| {})
}

/// What a model did at one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Index of the event.
    pub event: usize,
    /// Bytes reserved after it.
    pub reserved: u64,
    /// True when the model refused the request.
    pub refused: bool,
}

/// The same; `each` sees every step and the model after it.
pub fn replay_each<M: Model + ?Sized>(
    trace: &Trace,
    model: &mut M,
    mut each: impl FnMut(Step, &M),
) -> Outcome {
    let mut outcome = Outcome {
        peak_requested: 0,
        peak_reserved: 0,
        peak_event: 0,
        reserved_at_end: 0,
        failures: 0,
        first_failure: None,
        retries: 0,
        waits: 0,
    };
    let mut held = 0u64;
    for (index, event) in trace.iter().enumerate() {
        let mut refused = false;
        match event.op {
            Op::Alloc => {
                let (block, bytes, stream) = (event.block, event.bytes, event.stream);
                refused = !model.alloc(Request { block, bytes, stream });
                if refused {
                    outcome.failures += 1;
                    let reserved = model.reserved();
                    let failure = Failure { event: index as u64, bytes, stream, held, reserved };
                    outcome.first_failure.get_or_insert(failure);
                }
                held += bytes;
                outcome.peak_requested = outcome.peak_requested.max(held);
            }
            Op::FreeRequested => model.free_requested(event.block),
            Op::FreeCompleted => {
                held -= event.bytes;
                model.free_completed(event.block);
            }
        }
        let reserved = model.reserved();
        if reserved > outcome.peak_reserved {
            (outcome.peak_reserved, outcome.peak_event) = (reserved, index as u64);
        }
        each(Step { event: index, reserved, refused }, model);
    }
    outcome.reserved_at_end = model.reserved();
    outcome.retries = model.retries();
    outcome.waits = model.waits();
    outcome
}
