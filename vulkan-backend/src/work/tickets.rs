//! Results that come later.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use terrane_core::device::{DeviceError, SyncPoint, Ticket};

/// Results on their way, by the number of their ticket.
pub struct Tickets<T> {
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, (SyncPoint, T)>>,
}

impl<T> Default for Tickets<T> {
    fn default() -> Self {
        Self { next: AtomicU64::new(1), waiting: Mutex::default() }
    }
}

impl<T> Tickets<T> {
    /// Keeps `result` until its ticket is taken.
    pub fn add(&self, point: SyncPoint, result: T) -> Ticket {
        let id = self.next.fetch_add(1, Relaxed);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.insert(id, (point, result));
        Ticket { id, point }
    }

    /// The result of a ticket for which `reached` is true.
    pub fn take(
        &self,
        ticket: Ticket,
        reached: impl FnOnce(SyncPoint) -> Result<bool, DeviceError>,
    ) -> Result<T, DeviceError> {
        let unknown = DeviceError::InvalidCall("no such ticket, or it was taken");
        let point = {
            let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.get(&ticket.id).map(|(point, _)| *point).ok_or(unknown)?
        };
        if !reached(point)? {
            return Err(DeviceError::InvalidCall("the ticket's point is not reached"));
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.remove(&ticket.id).map(|(_, result)| result).ok_or(unknown)
    }

    /// Drops all results.
    pub fn clear(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
