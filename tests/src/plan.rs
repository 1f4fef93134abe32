//! How a clause is to be run, and on what.

use std::sync::Arc;
use std::time::Duration;

use terrane_core::device::Device;
use terrane_core::device::sim::Sim;

use crate::busy::Keeper;
use crate::calls::CallLog;
use crate::probe::Flaw;
use crate::spin;

/// Where devices under test come from.
#[derive(Clone)]
pub enum Source {
    /// A new model for every clause.
    Model(fn() -> Sim),
    /// A new CPU device for every clause.
    Host,
    /// One device for all clauses, with a way to keep its streams busy where there is one.
    Shared(Arc<dyn Device>, Option<Arc<dyn Keeper>>),
}

impl Source {
    /// One device for all clauses: opening real ones takes time. Where it runs CUDA kernels, the
    /// suite keeps its streams busy by one that waits.
    pub fn shared(device: Arc<dyn Device>) -> Self {
        let keeper = spin::keeper(&device);
        Self::Shared(device, keeper)
    }

    /// As [`shared`](Self::shared), with somebody who keeps the device's streams busy.
    pub fn kept(device: Arc<dyn Device>, keeper: Arc<dyn Keeper>) -> Self {
        Self::Shared(device, Some(keeper))
    }
}

/// How a clause is to be run.
#[derive(Clone)]
pub struct Plan {
    /// The device.
    pub source: Source,
    /// The seed of everything random.
    pub seed: u64,
    /// What is broken on purpose.
    pub flaw: Flaw,
    /// Whether allocators map pages, where the device can; `None` for the device's default.
    pub paging: Option<bool>,
    /// Whether allocators count generations of handles and events from just below the end of their
    /// numbers.
    pub near_ends: bool,
    /// The longest time that submitted work may take.
    pub patience: Duration,
    /// Where the device calls are noted, if they are.
    pub log: Option<CallLog>,
}

impl Plan {
    /// The usual: seed 1, nothing broken.
    pub const fn new(source: Source) -> Self {
        let patience = Duration::from_secs(30);
        let (flaw, near_ends) = (Flaw::None, false);
        Self { source, seed: 1, flaw, paging: None, near_ends, patience, log: None }
    }
}
