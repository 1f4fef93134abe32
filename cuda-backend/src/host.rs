//! The host's side: views of page-locked and managed memory, and how much memory the host has.
//! The one module with Linux-only reading (`/proc/meminfo`).

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use terrane_core::device::{DeviceError, Feature, HostAccess, HostView, Place};

use crate::CudaDevice;
use crate::inner::Inner;

/// Bytes of host memory: all of it, and what can still be had. 0 where unknown.
pub(crate) fn host_memory() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        kib.unwrap_or(0).saturating_mul(1024)
    };
    (field("MemTotal:"), field("MemAvailable:"))
}

/// Bytes of a segment seen by the host. While it lives the segment can not be released and the
/// device stays open.
struct View {
    start: NonNull<u8>,
    bytes: usize,
    open: Arc<AtomicU32>,
    _device: Arc<Inner>,
}

// SAFETY: the pointer names memory that belongs to no thread, and only this view uses it.
unsafe impl Send for View {}

impl HostView for View {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the segment stays while the view is open; by the contract of `view` no
        // submitted work uses the range and no other view of it exists.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and this borrow is the view's only one.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Release);
    }
}

impl Inner {
    fn host_pointer(
        &self,
        place: Place,
        bytes: u64,
        opens: bool,
    ) -> Result<(NonNull<u8>, Arc<AtomicU32>), DeviceError> {
        self.spaces.with(place.space, |space| {
            let visible = self.caps.class(space.class).is_some_and(|class| class.host_visible);
            if !visible {
                return Err(DeviceError::Unsupported(Feature::HostMapping));
            }
            let address = space.address(place.offset, bytes)?;
            let pointer = ptr::with_exposed_provenance_mut::<u8>(address as usize);
            let pointer = NonNull::new(pointer).ok_or(DeviceError::InvalidCall("null"))?;
            if opens {
                space.views.fetch_add(1, Ordering::Relaxed);
            }
            Ok((pointer, Arc::clone(&space.views)))
        })
    }
}

impl HostAccess for CudaDevice {
    fn view(&self, place: Place, bytes: u64) -> Result<Box<dyn HostView>, DeviceError> {
        self.inner.usable()?;
        let length = isize::try_from(bytes).map_err(|_| DeviceError::InvalidCall("too long"))?;
        let (start, open) = self.inner.host_pointer(place, bytes, true)?;
        let device = Arc::clone(&self.inner);
        Ok(Box::new(View { start, bytes: length.unsigned_abs(), open, _device: device }))
    }

    fn pointer(&self, place: Place) -> Result<NonNull<u8>, DeviceError> {
        self.inner.usable()?;
        Ok(self.inner.host_pointer(place, 0, false)?.0)
    }

    fn flush(&self, place: Place, bytes: u64) -> Result<(), DeviceError> {
        // All host-visible memory of CUDA is coherent; only the range is checked.
        self.inner.host_pointer(place, bytes, false).map(|_| ())
    }

    fn invalidate(&self, place: Place, bytes: u64) -> Result<(), DeviceError> {
        self.inner.host_pointer(place, bytes, false).map(|_| ())
    }
}
