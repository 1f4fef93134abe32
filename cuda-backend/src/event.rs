//! Driver events, reused: making one costs more than recording it.

use std::sync::{Arc, Mutex};

use crate::driver::{Answer, Driver, RawEvent};
use crate::inner::lock;

/// Events that nobody waits for, ready to be recorded again.
pub(crate) struct EventPool {
    driver: Arc<dyn Driver>,
    free: Mutex<Vec<RawEvent>>,
}

impl EventPool {
    pub(crate) fn new(driver: Arc<dyn Driver>) -> Self {
        Self { driver, free: Mutex::new(Vec::new()) }
    }

    /// An event to record. Pre: the device's context is current.
    pub(crate) fn take(self: &Arc<Self>) -> Answer<Event> {
        let free = lock(&self.free).pop();
        let raw = match free {
            Some(raw) => raw,
            None => self.driver.event_create(false)?,
        };
        Ok(Event { raw, pool: Arc::clone(self) })
    }

    /// Destroys the free events. Pre: the device's context is current.
    pub(crate) fn clear(&self) {
        for raw in lock(&self.free).drain(..) {
            let _ = self.driver.event_destroy(raw);
        }
    }
}

/// An event in use; back in its pool when the last user lets go.
///
/// A waiting stream keeps its own reference until the driver has taken the wait, so an event is
/// never recorded anew between being chosen for a wait and being waited for.
pub(crate) struct Event {
    pub(crate) raw: RawEvent,
    pool: Arc<EventPool>,
}

impl Drop for Event {
    fn drop(&mut self) {
        lock(&self.pool.free).push(self.raw);
    }
}
