//! Imported memory, mapped in a space of its own.

use std::sync::Arc;

use terrane_core::device::{
    ClassId, CopyOp, Device, DeviceError, MapOp, MemoryId, Paging, Place, StreamId, SyncPoint,
    UnmapOp,
};
use terrane_core::error::Feature;

use super::Imported;

/// Memory that a device has imported, where it is mapped. Unmapped and given back when dropped.
pub struct Mapped {
    device: Arc<dyn Device>,
    memory: MemoryId,
    at: Place,
    bytes: u64,
}

fn paging(device: &dyn Device) -> Result<&dyn Paging, DeviceError> {
    device.paging().ok_or(DeviceError::Unsupported(Feature::Paging))
}

impl Mapped {
    /// Maps imported memory, which it owns from here on.
    ///
    /// # Errors
    /// The device's; the memory is given back then.
    pub fn new(
        device: Arc<dyn Device>,
        class: ClassId,
        memory: MemoryId,
        bytes: u64,
    ) -> Result<Self, DeviceError> {
        let pages = paging(&*device)?;
        let space = match pages.reserve(class, bytes) {
            Ok(reserved) => reserved.space,
            Err(error) => {
                pages.release(memory)?;
                return Err(error);
            }
        };
        let at = Place { space, offset: 0 };
        if let Err(error) = pages.map(&[MapOp { at, memory, memory_offset: 0, bytes }], &[]) {
            pages.release(memory)?;
            pages.unreserve(space)?;
            return Err(error);
        }
        Ok(Self { device, memory, at, bytes })
    }

    fn give_back(&self) -> Result<(), DeviceError> {
        let pages = paging(&*self.device)?;
        pages.unmap(&[UnmapOp { at: self.at, bytes: self.bytes }], &[])?;
        pages.release(self.memory)?;
        pages.unreserve(self.at.space)
    }
}

impl Imported for Mapped {
    fn copy_to(&self, stream: StreamId, to: Place, bytes: u64) -> Result<SyncPoint, DeviceError> {
        self.device.copy(stream, &[CopyOp { from: self.at, to, bytes }])
    }

    fn copy_from(
        &self,
        stream: StreamId,
        from: Place,
        bytes: u64,
    ) -> Result<SyncPoint, DeviceError> {
        self.device.copy(stream, &[CopyOp { from, to: self.at, bytes }])
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let given_back = self.give_back();
        assert!(given_back.is_ok() || std::thread::panicking(), "{given_back:?}");
    }
}
