//! A device that counts and times its calls.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Ask, Hook, Wrapped};
use crate::device::calls::{Call, CallTable};
use crate::device::{Device, DeviceError};

/// A device whose calls are counted and timed by the clock of the device inside, which is the
/// virtual one on a model. Calls of other threads at the same time count in each other's time.
pub type Logged = Wrapped<Counted>;

/// The state of a [`Logged`] device.
pub struct Counted {
    calls: Mutex<CallTable>,
}

impl Counted {
    fn lock(&self) -> MutexGuard<'_, CallTable> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hook for Counted {
    fn after(&self, ask: &Ask, [before, at_ns]: [u64; 2], error: Option<DeviceError>) {
        let Ask { kind, items, bytes, .. } = *ask;
        let ns = at_ns.saturating_sub(before);
        self.lock().record(Call { kind, at_ns, ns, items, bytes, error });
    }

    fn wants_time(&self) -> bool {
        true
    }
}

impl Logged {
    /// A device around `inner` that counts all calls and keeps the first `log_max` one by one.
    pub fn new(inner: Arc<dyn Device>, log_max: usize) -> Arc<Self> {
        Self::around(inner, Counted { calls: Mutex::new(CallTable::new(log_max)) })
    }

    /// Calls so far.
    pub fn calls(&self) -> CallTable {
        self.hook.lock().clone()
    }

    /// Forgets the calls so far.
    pub fn clear_calls(&self) {
        self.hook.lock().clear();
    }
}
