//! Stream captures: who takes part in one, and whether any is open.
//!
//! # What is seen
//! Captures of streams whose handle the program has: those it wrapped, and ours whose handle it
//! took by [`raw_stream`](crate::CudaDevice::raw_stream). Each is asked every time, so the answer
//! is never stale; with none of them, the usual case, nothing is asked. The default stream of a
//! thread is asked by that thread only, as its handle means another stream elsewhere. Where the
//! legacy default stream is wrapped, a capture of any stream that orders itself with it is seen.
//!
//! # What the program has to tell
//! A capture on other streams is not seen. No call made here breaks it, as all are made in the
//! relaxed mode; but blocks that are freed while it is open may be reused at once, although its
//! graph still names them. So a program wraps every stream whose captures use this device's
//! memory, before the capture, and retires it after; one that captures nothing may say so by
//! [`Options::capture`](crate::Options::capture) and saves the questions.

use terrane_core::device::{CaptureId, StreamId};

use crate::driver::{CaptureState, RawStream, code};
use crate::inner::Inner;
use crate::stream::Stream;

impl Inner {
    pub(crate) fn capture_of(&self, stream: StreamId) -> Option<CaptureId> {
        // One load where there is nothing to find: every request asks.
        if !self.options.capture || !self.streams.any_shared() {
            return None;
        }
        let stream = self.streams.get(stream).ok()?;
        if !stream.is_shared() {
            return None;
        }
        let _entered = self.enter().ok()?;
        match stream.capture_state(self) {
            Ok(CaptureState::Active(id)) => Some(CaptureId(id)),
            // The legacy stream answers with an error while a blocking stream is captured; it
            // takes part in no capture itself.
            Ok(CaptureState::None) | Err(_) => None,
        }
    }

    /// Whether a capture is open, as far as the module's text says. Without streams whose handle
    /// the program has, one load.
    pub(crate) fn is_capturing(&self) -> bool {
        if !self.options.capture || !self.streams.any_shared() {
            return false;
        }
        let Ok(_entered) = self.enter() else { return false };
        self.streams.any_of_shared(|stream| self.sees_capture(stream))
    }

    fn sees_capture(&self, stream: &Stream) -> bool {
        match stream.capture_state(self) {
            Ok(state) => state != CaptureState::None,
            Err(fault) => {
                stream.raw == RawStream::LEGACY && fault.code == code::STREAM_CAPTURE_IMPLICIT
            }
        }
    }
}
