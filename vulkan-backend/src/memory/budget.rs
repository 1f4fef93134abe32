//! The budget that memory taken beside the allocator's segments counts against.

use terrane_core::device::{DeviceError, HeapId};

/// Asked before the backend takes memory of its own (staging, readback, images).
///
/// Calls come from any thread, with a leaf lock of the backend held: an implementation must not
/// call the device.
pub trait Budget: Send + Sync {
    /// Counts `bytes` of a heap, or refuses.
    ///
    /// # Errors
    /// What the one who asked for the memory is told, usually [`DeviceError::OutOfMemory`].
    fn charge(&self, heap: HeapId, bytes: u64) -> Result<(), DeviceError>;

    /// Gives counted bytes back.
    fn refund(&self, heap: HeapId, bytes: u64);
}

/// A budget without limit.
pub struct Unlimited;

impl Budget for Unlimited {
    fn charge(&self, _heap: HeapId, _bytes: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    fn refund(&self, _heap: HeapId, _bytes: u64) {}
}
