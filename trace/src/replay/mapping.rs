//! What the device's calls added up to: time of those that get, map, unmap and give back memory.

use std::sync::Arc;

use terrane_core::device::Device;
use terrane_core::device::calls::{CallKind, CallTable};
use terrane_core::device::wrap::Logged;

use super::Target;

/// Counts and times the calls of a replay's device.
pub(super) struct Meter {
    target: Target,
    logged: Option<Arc<Logged>>,
    /// What the model had counted before.
    before: u64,
    calls_before: u64,
}

impl Meter {
    /// A meter on a device. The model counts by itself; another is wrapped.
    pub fn new(target: Target) -> Self {
        let logged = match &target {
            Target::Sim(_) => None,
            Target::Real(_) | Target::Paced(_) => Some(Logged::new(target.device(), 0)),
        };
        let mut meter = Self { target, logged, before: 0, calls_before: 0 };
        meter.restart();
        meter
    }

    /// The device whose calls are counted.
    pub fn device(&self) -> Arc<dyn Device> {
        match &self.logged {
            Some(logged) => {
                let device: Arc<dyn Device> = logged.clone();
                device
            }
            None => self.target.device(),
        }
    }

    /// Counts from here on.
    pub fn restart(&mut self) {
        self.before += self.mapping_ns();
        self.calls_before += self.mapping_calls();
    }

    /// Calls so far that get, map, unmap and give back memory.
    pub fn mapping_calls(&self) -> u64 {
        let calls = self.calls();
        let kinds = CallKind::ALL.iter().filter(|kind| kind.gets() || kind.gives_back());
        kinds.map(|kind| calls.of(*kind).calls).sum::<u64>() - self.calls_before
    }

    fn calls(&self) -> CallTable {
        match (&self.target, &self.logged) {
            (Target::Sim(sim), _) => sim.calls(),
            (_, Some(logged)) => logged.calls(),
            (_, None) => CallTable::default(),
        }
    }

    /// Nanoseconds of mapping so far: modelled on the model, measured elsewhere.
    pub fn mapping_ns(&self) -> u64 {
        let ns = self.calls().total_ns(|kind| kind.gets() || kind.gives_back());
        ns - self.before
    }
}

/// Kernels run so far.
pub(super) fn dispatches(device: &dyn Device) -> u64 {
    device.compute().map_or(0, |compute| compute.dispatches())
}
