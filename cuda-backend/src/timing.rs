//! Time as the device sees it.

use std::collections::HashMap;
use std::sync::Arc;

use terrane_core::device::{CopyOp, DeviceError, StreamId, SyncPoint, Ticket, rules};

use crate::CudaDevice;
use crate::driver::{Driver, RawEvent, RawStream};
use crate::inner::{Inner, lock};

/// Events around submissions, by ticket, and the event that their times are counted from: the
/// driver only tells the time between two events, in a number that gets coarse as that time grows.
#[derive(Default)]
pub(crate) struct Stamps {
    waiting: HashMap<u64, ([RawEvent; 2], SyncPoint)>,
    base: Option<(RawEvent, f64)>,
}

/// Where the count begins: times before the first event are positive too.
const START_NS: f64 = 1e15;
/// After so long the count goes on from a later event.
const BASE_NS: f64 = 1e9;

impl Stamps {
    /// Destroys all events. Pre: entered, and no work runs.
    pub(crate) fn clear(&mut self, driver: &dyn Driver) {
        let base = self.base.take().map(|(event, _)| event);
        for event in self.waiting.drain().flat_map(|(_, (events, _))| events).chain(base) {
            let _ = driver.event_destroy(event);
        }
    }
}

impl Inner {
    /// Two events that tell the time. Pre: entered.
    pub(crate) fn stamp_events(&self) -> Result<[RawEvent; 2], DeviceError> {
        let create = || self.driver.event_create(true).map_err(|fault| self.fail(fault));
        let first = create()?;
        let second = create().inspect_err(|_| self.drop_events([first]))?;
        Ok([first, second])
    }

    pub(crate) fn drop_events(&self, events: impl IntoIterator<Item = RawEvent>) {
        for event in events {
            let _ = self.driver.event_destroy(event);
        }
    }

    /// Copies by the driver, with two events around them. Pre: entered.
    pub(crate) fn copy_between(
        &self,
        stream: StreamId,
        ops: &[CopyOp],
        times: Option<[RawEvent; 2]>,
    ) -> Result<SyncPoint, DeviceError> {
        let stream = self.streams.get(stream)?;
        let from = self.spaces.addresses(ops.iter().map(|op| (op.from, op.bytes)))?;
        let to = self.spaces.addresses(ops.iter().map(|op| (op.to, op.bytes)))?;
        rules::copies(ops, 4).map_err(DeviceError::InvalidCall)?;
        stream.submit(|raw| {
            self.between(times, raw, || {
                for ((op, from), to) in ops.iter().zip(from).zip(to) {
                    if op.bytes > 0 {
                        let copied = self.driver.copy(to, from, op.bytes, raw);
                        copied.map_err(|fault| self.fail(fault))?;
                    }
                }
                Ok(())
            })
        })
    }

    /// Submits work with an event before and one after it, where there are some.
    pub(crate) fn between(
        &self,
        times: Option<[RawEvent; 2]>,
        stream: RawStream,
        work: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let record = |event: Option<RawEvent>| {
            event.map_or(Ok(()), |event| {
                let recorded = self.driver.event_record(event, stream);
                recorded.map_err(|fault| self.fail(fault))
            })
        };
        record(times.map(|events| events[0]))?;
        work()?;
        record(times.map(|events| events[1]))
    }

    pub(crate) fn copy_timed(
        &self,
        stream: StreamId,
        ops: &[CopyOp],
        by_kernel: bool,
    ) -> Result<Ticket, DeviceError> {
        let _entered = self.enter()?;
        let lane = self.streams.get(stream)?;
        self.not_captured(&lane)?;
        let events = self.stamp_events()?;
        let submitted = if by_kernel {
            self.gather(stream, ops, u32::MAX, Some(events))
        } else {
            self.copy_between(stream, ops, Some(events))
        };
        match submitted {
            Ok(point) => Ok(self.keep_stamps(events, point)),
            Err(error) => {
                self.drop_events(events);
                Err(error)
            }
        }
    }

    /// Keeps the events around a submission until their times are taken.
    pub(crate) fn keep_stamps(&self, events: [RawEvent; 2], point: SyncPoint) -> Ticket {
        let id = self.next_id();
        lock(&self.stamps).waiting.insert(id, (events, point));
        Ticket { id, point }
    }

    pub(crate) fn take_times(&self, ticket: Ticket) -> Result<[u64; 2], DeviceError> {
        let _entered = self.enter()?;
        let mut stamps = lock(&self.stamps);
        let unknown = DeviceError::InvalidCall("no such ticket of timed copies, or it was taken");
        let &([first, second], point) = stamps.waiting.get(&ticket.id).ok_or(unknown)?;
        if !self.is_reached(point)? {
            return Err(DeviceError::InvalidCall("the ticket's point is not reached"));
        }
        let (base, base_ns) = stamps.base.unwrap_or((first, START_NS));
        let after = |event| {
            let ms = self.driver.event_elapsed(base, event).map_err(|fault| self.fail(fault));
            ms.map(|ms| f64::from(ms) * 1e6)
        };
        // The driver refuses to tell the time from an event to itself on some versions.
        let begin = if base == first { 0.0 } else { after(first)? };
        let end = after(second)?;
        stamps.waiting.remove(&ticket.id);
        if stamps.base.is_none() {
            stamps.base = Some((first, START_NS));
            self.drop_events([second]);
        } else if begin > BASE_NS {
            stamps.base = Some((first, base_ns + begin));
            self.drop_events([base, second]);
        } else {
            self.drop_events([first, second]);
        }
        Ok([begin, end].map(|ns| (base_ns + ns) as u64))
    }
}

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
