//! Devices around a device: one that fails on purpose, one that counts, one that is smaller.
//!
//! Each is a [`Device`] with all the powers of the one inside, and they can be
//! put around each other: `Logged::new(Faulty::new(Limited::new(device, limits), faults))`.
//!
//! A fourth, [`Watched`], only tells of its calls; [`Priced`] says that they cost otherwise;
//! [`Paced`] shows what all devices have in common, and its work counts as done when its caller
//! says so. All are a [`Wrapped`] device with a hook that sees every call before it is made and
//! after it was answered.

mod common;

mod faulty;
mod limited;
mod logged;
mod paced;
mod pass;
mod priced;
#[cfg(test)]
mod tests;
mod watched;

pub use common::Common;
pub use faulty::{Faults, Faulty};
pub use limited::{Limited, Limits};
pub use logged::Logged;
pub use paced::Paced;
pub use pass::{Ask, Wrapped};
pub use priced::Priced;
pub use watched::Watched;

use std::time::Duration;

use super::{
    Caps, Device, DeviceError, HeapUse, MemoryId, Plain, Reserved, SpaceId, StreamId, SyncPoint,
};

/// What a call made or gave back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Object {
    Plain(SpaceId),
    Memory(MemoryId),
}

/// What a wrapper does beside passing calls on.
trait Hook: Send + Sync + 'static {
    /// What the wrapped device claims to be able to do.
    fn caps(&self, caps: Caps) -> Caps {
        caps
    }

    /// Before a call: `Some` answers it without asking the device.
    fn before(&self, ask: &Ask) -> Option<Answer> {
        let _ = ask;
        None
    }

    /// After the device answered; `now_ns` is its clock before and after.
    fn after(&self, ask: &Ask, now_ns: [u64; 2], error: Option<DeviceError>) {
        let _ = (ask, now_ns, error);
    }

    /// A memory object of `bytes` was made, where `asked` bytes were asked for.
    fn made(&self, object: Object, asked: u64, bytes: u64) {
        let _ = (object, asked, bytes);
    }

    /// A memory object was given back.
    fn given_back(&self, object: Object) {
        let _ = object;
    }

    /// What a heap has, as the wrapper shows it.
    fn heap_use(&self, heap: HeapUse) -> HeapUse {
        heap
    }

    /// What a new plain segment of at least `asked` bytes is shown as.
    fn plain(&self, asked: u64, plain: Plain) -> Plain {
        let _ = asked;
        plain
    }

    /// What a new space is shown as.
    fn reserved(&self, reserved: Reserved) -> Reserved {
        reserved
    }

    /// What is shown to be reached on a stream.
    fn reached(&self, device: &dyn Device, stream: StreamId) -> Result<u64, DeviceError> {
        device.reached(stream)
    }

    /// Waits until one of `points` is shown to be reached.
    fn wait_any(
        &self,
        device: &dyn Device,
        points: &[SyncPoint],
        timeout: Duration,
    ) -> Result<bool, DeviceError> {
        device.wait_any(points, timeout)
    }

    /// A stream waits for `points` from now on.
    fn waits(&self, device: &dyn Device, stream: StreamId, points: &[SyncPoint]) {
        let _ = (device, stream, points);
    }

    /// The point, as it is shown, of mappings that were just made or dropped.
    fn mapped(
        &self,
        device: &dyn Device,
        point: Option<SyncPoint>,
    ) -> Result<Option<SyncPoint>, DeviceError> {
        let _ = device;
        Ok(point)
    }

    /// Whether [`after`](Self::after) wants the time.
    fn wants_time(&self) -> bool {
        false
    }
}

/// An answer in the device's place.
enum Answer {
    Error(DeviceError),
    /// `Ok`, without doing anything: what giving back does once the device is lost.
    Nothing,
}
