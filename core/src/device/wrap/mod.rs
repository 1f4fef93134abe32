//! Devices around a device: one that fails on purpose, one that counts, one that is smaller.
//!
//! Each is a [`Device`](super::Device) with all the powers of the one inside, and they can be
//! put around each other: `Logged::new(Faulty::new(Limited::new(device, limits), faults))`.
//!
//! A fourth, [`Watched`], only tells of its calls. All are a [`Wrapped`] device with a hook that
//! sees every call before it is made and after it was answered.

mod faulty;
mod limited;
mod logged;
mod pass;
#[cfg(test)]
mod tests;
mod watched;

pub use faulty::{Faults, Faulty};
pub use limited::{Limited, Limits};
pub use logged::Logged;
pub use pass::{Ask, Wrapped};
pub use watched::Watched;

use super::{Caps, DeviceError, HeapUse, MemoryId, SpaceId};

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
