//! What a replay runs on.

use std::sync::Arc;

use terrane_core::device::Device;
use terrane_core::device::sim::SimDevice;

/// The device under a replay.
#[derive(Clone)]
pub enum Target {
    /// The model: its clock follows the recorded times, and what the recording says about
    /// completed work is played into it.
    Sim(SimDevice),
    /// A device that does work: what is done when depends on it.
    Real(Arc<dyn Device>),
}

impl Target {
    /// The device.
    pub fn device(&self) -> Arc<dyn Device> {
        match self {
            Self::Sim(sim) => sim.shared(),
            Self::Real(device) => Arc::clone(device),
        }
    }

    /// Backend and name in one line.
    pub fn name(&self) -> String {
        let device = self.device();
        let info = device.info();
        format!("{}: {}", info.backend, info.name)
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}
