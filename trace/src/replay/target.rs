//! What a replay runs on.

use std::sync::Arc;

use terrane_core::device::sim::{Completion, SimDevice};
use terrane_core::device::wrap::Paced;
use terrane_core::device::{Device, DeviceError, StreamSpec};
use terrane_core::point::{StreamId, SyncPoint};
use terrane_core::{Allocator, Handle};

use super::ReplayError;

/// Bytes at the start of a block that the work of a lane writes: enough to be a use, and no work
/// to speak of where a processor does it.
const USED_BYTES: u64 = 256;

/// The device under a replay.
#[derive(Clone)]
pub enum Target {
    /// The model: its clock follows the recorded times, and what the recording says about
    /// completed work is played into it.
    Sim(SimDevice),
    /// A device that does work: what is done when depends on it.
    Real(Arc<dyn Device>),
    /// A device that shows what all have in common and completes work when the recording says so:
    /// placements are the same on all of them.
    Paced(Arc<Paced>),
}

impl Target {
    /// The device.
    pub fn device(&self) -> Arc<dyn Device> {
        match self {
            Self::Sim(sim) => sim.shared(),
            Self::Real(device) => Arc::clone(device),
            Self::Paced(paced) => {
                let device: Arc<dyn Device> = Arc::clone(paced) as _;
                device
            }
        }
    }

    /// A stream whose work completes by [`complete`](Self::complete); `None` on a device that
    /// decides itself when its work is done.
    pub(super) fn lane(&self) -> Result<Option<StreamId>, DeviceError> {
        match self {
            Self::Sim(sim) => {
                let lane = sim.create_stream(StreamSpec::default())?;
                sim.set_completion(lane, Completion::ByHand)?;
                Ok(Some(lane))
            }
            Self::Paced(paced) => paced.create_by_hand().map(Some),
            Self::Real(_) => Ok(None),
        }
    }

    /// Submits work on a lane that uses a block.
    pub(super) fn use_block(
        &self,
        lane: StreamId,
        alloc: &Allocator,
        handle: Handle,
    ) -> Result<SyncPoint, ReplayError> {
        if let Self::Sim(sim) = self {
            return Ok(sim.submit(lane, 0)?);
        }
        let mut submission = alloc.submit(lane);
        let block = submission.resolve(handle).map_err(ReplayError::Open)?;
        let bytes = block.bytes.min(USED_BYTES);
        let point = self.device().fill(lane, block.place, bytes, 0)?;
        submission.close_at(point);
        Ok(point)
    }

    /// Has work of a lane be done.
    pub(super) fn complete(&self, point: SyncPoint) -> Result<(), DeviceError> {
        match self {
            Self::Sim(sim) => sim.complete(point),
            Self::Paced(paced) => paced.complete(point)?,
            Self::Real(_) => {}
        }
        Ok(())
    }

    /// Has the work of all lanes be done.
    pub(super) fn complete_all(&self) -> Result<(), DeviceError> {
        match self {
            Self::Sim(sim) => sim.complete_all(),
            Self::Paced(paced) => paced.complete_all()?,
            Self::Real(_) => {}
        }
        Ok(())
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
