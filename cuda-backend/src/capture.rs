//! Stream captures: who takes part in one, and whether any is open.

use terrane_core::device::{CaptureId, StreamId};

use crate::driver::{CaptureState, RawStream};
use crate::inner::Inner;
use crate::stream::Origin;

impl Inner {
    pub(crate) fn capture_of(&self, stream: StreamId) -> Option<CaptureId> {
        let stream = self.streams.get(stream).ok()?;
        let _entered = self.enter().ok()?;
        match self.driver.capture_state(stream.raw) {
            Ok(CaptureState::Active(id)) => Some(CaptureId(id)),
            // The legacy stream answers with an error while a blocking stream is captured; it
            // takes part in no capture itself.
            Ok(CaptureState::None) | Err(_) => None,
        }
    }

    /// Whether a stream known here is captured, or any stream that orders itself with the legacy
    /// default stream (the driver tells that without naming it).
    pub(crate) fn is_capturing(&self) -> bool {
        let Ok(_entered) = self.enter() else { return false };
        if self
            .driver
            .capture_state(RawStream::LEGACY)
            .is_err_and(|fault| fault.code == crate::driver::code::STREAM_CAPTURE_IMPLICIT)
        {
            return true;
        }
        self.streams.live().iter().any(|stream| {
            !matches!(stream.origin, Origin::PerThread(_))
                && matches!(self.driver.capture_state(stream.raw), Ok(CaptureState::Active(_)))
        })
    }
}
