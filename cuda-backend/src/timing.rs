//! Time as the device sees it.

use std::sync::Arc;

use terrane_core::device::{DeviceError, StreamId, SyncPoint};

use crate::CudaDevice;
use crate::driver::RawEvent;
use crate::inner::Inner;

/// A moment on a stream: the device's clock when everything submitted before was done.
pub struct Stamp {
    event: RawEvent,
    point: SyncPoint,
    device: Arc<Inner>,
}

impl Stamp {
    /// The moment has come once this is reached.
    pub fn point(&self) -> SyncPoint {
        self.point
    }
}

impl Drop for Stamp {
    fn drop(&mut self) {
        if let Ok(_entered) = self.device.enter() {
            let _ = self.device.driver.event_destroy(self.event);
        }
    }
}

impl CudaDevice {
    /// Takes the time on a stream.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`]; [`DeviceError::Capturing`] for a stream in a capture.
    pub fn stamp(&self, stream: StreamId) -> Result<Stamp, DeviceError> {
        let inner = &self.inner;
        let stream = inner.streams.get(stream)?;
        let _entered = inner.enter()?;
        inner.not_captured(&stream)?;
        let event = inner.driver.event_create(true).map_err(|fault| inner.fail(fault))?;
        let submitted = stream
            .submit(|raw| inner.driver.event_record(event, raw).map_err(|fault| inner.fail(fault)));
        match submitted {
            Ok(point) => Ok(Stamp { event, point, device: Arc::clone(inner) }),
            Err(error) => {
                let _ = inner.driver.event_destroy(event);
                Err(error)
            }
        }
    }

    /// Nanoseconds from one moment to a later one, to about half a microsecond.
    ///
    /// # Errors
    /// [`DeviceError::InvalidCall`] while one of them has not come, or for another device's.
    pub fn elapsed_ns(&self, from: &Stamp, to: &Stamp) -> Result<f64, DeviceError> {
        let inner = &self.inner;
        if !Arc::ptr_eq(inner, &from.device) || !Arc::ptr_eq(inner, &to.device) {
            return Err(DeviceError::InvalidCall("a stamp of another device"));
        }
        let _entered = inner.enter()?;
        if !inner.is_reached(from.point)? || !inner.is_reached(to.point)? {
            return Err(DeviceError::InvalidCall("the moment has not come yet"));
        }
        let ms = inner.driver.event_elapsed(from.event, to.event);
        Ok(f64::from(ms.map_err(|fault| inner.fail(fault))?) * 1e6)
    }
}
