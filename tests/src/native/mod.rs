//! The device's own API, used beside Terrane as programs do.

#[cfg(feature = "program")]
pub(crate) mod cuda;
#[cfg(feature = "program")]
mod imported;
mod mapped;
#[cfg(feature = "program")]
pub(crate) mod vulkan;

pub use mapped::Mapped;
use terrane_core::device::sim::SimDevice;
use terrane_core::device::{
    CaptureId, CopyOp, Device, DeviceError, Place, SpaceId, StreamId, SyncPoint,
};

use crate::busy::{Held, Keeper};
use crate::clause::Outcome;

/// Streams of a program's own, wrapped.
pub trait Foreign: Send + Sync {
    /// Makes a stream and wraps it. The suite retires it.
    ///
    /// # Errors
    /// What the device says.
    fn wrap(&self) -> Result<StreamId, DeviceError>;

    /// Work that the program submits to it by itself, which waits for what the stream is to wait
    /// for and is done after [`Held::let_go`]. Works of one stream are let go in their order. The
    /// point is a mark made behind it.
    ///
    /// # Errors
    /// What the device says.
    fn submit(&self, stream: StreamId) -> Result<Box<dyn Held>, DeviceError>;

    /// Lets the program go on as far as it can: called while the suite waits, for one that has no
    /// thread of its own.
    fn go_on(&self) {}
}

/// Captures of streams into graphs, as a program begins and ends them.
pub trait Captures: Send + Sync {
    /// Begins to capture a stream.
    ///
    /// # Errors
    /// What the device says.
    fn begin(&self, stream: StreamId) -> Result<(), DeviceError>;

    /// Ends the capture on the stream on which it began. The graph is never launched.
    ///
    /// # Errors
    /// What the device says.
    fn end(&self, stream: StreamId) -> Result<(), DeviceError>;
}

/// Memory that is exported, opened as another API or process does.
pub trait Imports: Send + Sync {
    /// Opens what an exportable plain segment of so many bytes exports.
    ///
    /// # Errors
    /// What the device says.
    fn import(&self, space: SpaceId, bytes: u64) -> Result<Box<dyn Imported>, DeviceError>;
}

/// Memory that was opened, given back when dropped. Pre: no work uses it any more then.
pub trait Imported {
    /// Copies its first `bytes` to a place, in the order of a stream.
    ///
    /// # Errors
    /// What the device says.
    fn copy_to(&self, stream: StreamId, to: Place, bytes: u64) -> Result<SyncPoint, DeviceError>;

    /// Copies `bytes` from a place to its start, in the order of a stream.
    ///
    /// # Errors
    /// What the device says.
    fn copy_from(
        &self,
        stream: StreamId,
        from: Place,
        bytes: u64,
    ) -> Result<SyncPoint, DeviceError>;
}

/// What a model's segment exports, opened.
pub(crate) struct OfModel(SimDevice, SpaceId);

impl OfModel {
    pub fn open(sim: &SimDevice, space: SpaceId) -> Result<Box<dyn Imported>, DeviceError> {
        Ok(Box::new(Self(sim.clone(), sim.import(space)?.space)))
    }
}

impl Imported for OfModel {
    fn copy_to(&self, stream: StreamId, to: Place, bytes: u64) -> Result<SyncPoint, DeviceError> {
        let from = Place { space: self.1, offset: 0 };
        self.0.copy(stream, &[CopyOp { from, to, bytes }])
    }

    fn copy_from(
        &self,
        stream: StreamId,
        from: Place,
        bytes: u64,
    ) -> Result<SyncPoint, DeviceError> {
        let to = Place { space: self.1, offset: 0 };
        self.0.copy(stream, &[CopyOp { from, to, bytes }])
    }
}

impl Drop for OfModel {
    fn drop(&mut self) {
        let _ = self.0.release_plain(self.1);
    }
}

/// An open capture, ended when dropped at the latest.
pub(crate) struct Capture(Option<Opened>);

enum Opened {
    Model(SimDevice, CaptureId),
    Kept(std::sync::Arc<dyn Keeper>, StreamId),
}

impl Capture {
    /// On a model.
    pub fn of_model(sim: &SimDevice, stream: StreamId) -> Result<Self, DeviceError> {
        let capture = sim.begin_capture(stream)?;
        Ok(Self(Some(Opened::Model(sim.clone(), capture))))
    }

    /// By the device's own API; `None` where the suite does not speak it.
    pub fn kept(
        keeper: &std::sync::Arc<dyn Keeper>,
        stream: StreamId,
    ) -> Result<Option<Self>, DeviceError> {
        let Some(captures) = keeper.captures() else { return Ok(None) };
        captures.begin(stream)?;
        Ok(Some(Self(Some(Opened::Kept(std::sync::Arc::clone(keeper), stream)))))
    }

    /// Ends it.
    pub fn end(mut self) -> Outcome {
        Ok(self.close()?)
    }

    fn close(&mut self) -> Result<(), DeviceError> {
        match self.0.take() {
            Some(Opened::Model(sim, capture)) => sim.end_capture(capture),
            Some(Opened::Kept(keeper, stream)) => {
                keeper.captures().map_or(Ok(()), |captures| captures.end(stream))
            }
            None => Ok(()),
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = self.close();
    }
}
