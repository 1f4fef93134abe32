//! A device that is made smaller than it is.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Answer, Ask, Hook, Object, Wrapped};
use crate::device::calls::CallKind;
use crate::device::{Caps, Device, DeviceError, HeapUse};

/// A device that gives out less memory than the one inside could.
pub type Limited = Wrapped<Counting>;

/// The most that a [`Limited`] device gives out. `None` leaves the device's own limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all memory objects together.
    pub bytes: Option<u64>,
    /// Memory objects.
    pub objects: Option<u64>,
}

/// The state of a [`Limited`] device.
pub struct Counting {
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    objects: HashMap<Object, u64>,
    used_bytes: u64,
    /// Calls on their way: what they ask for counts already, so that two at once do not both
    /// take the last bytes.
    asked_bytes: u64,
    asked_objects: u64,
}

impl Counting {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn makes(kind: CallKind) -> bool {
    matches!(kind, CallKind::CreatePlain | CallKind::CreateMemory)
}

impl Hook for Counting {
    fn caps(&self, mut caps: Caps) -> Caps {
        let (bytes, objects) =
            (self.limits.bytes.unwrap_or(u64::MAX), self.limits.objects.unwrap_or(u64::MAX));
        for heap in &mut caps.heaps {
            heap.total = heap.total.min(bytes);
        }
        caps.max_plain_bytes = caps.max_plain_bytes.min(bytes);
        caps.max_memory_objects = caps.max_memory_objects.min(objects);
        caps
    }

    fn before(&self, ask: &Ask) -> Option<Answer> {
        if !makes(ask.kind) {
            return None;
        }
        let mut state = self.lock();
        let (objects, bytes) = (
            state.objects.len() as u64 + state.asked_objects,
            state.used_bytes.saturating_add(state.asked_bytes),
        );
        let limit = self.limits.bytes.unwrap_or(u64::MAX);
        if let Some(limit) = self.limits.objects.filter(|limit| objects >= *limit) {
            return Some(Answer::Error(DeviceError::TooManyObjects { limit }));
        }
        if ask.bytes > limit {
            return Some(Answer::Error(DeviceError::TooLarge { bytes: ask.bytes, limit }));
        }
        if ask.bytes > limit.saturating_sub(bytes) {
            return Some(Answer::Error(DeviceError::OutOfMemory { bytes: ask.bytes }));
        }
        // A device without a limit can be asked for any number of bytes, and will refuse.
        state.asked_bytes = state.asked_bytes.saturating_add(ask.bytes);
        state.asked_objects += 1;
        None
    }

    fn after(&self, ask: &Ask, _: [u64; 2], error: Option<DeviceError>) {
        if makes(ask.kind) && error.is_some() {
            let mut state = self.lock();
            state.asked_bytes = state.asked_bytes.saturating_sub(ask.bytes);
            state.asked_objects -= 1;
        }
    }

    fn made(&self, object: Object, asked: u64, bytes: u64) {
        let mut state = self.lock();
        state.asked_bytes = state.asked_bytes.saturating_sub(asked);
        state.asked_objects -= 1;
        state.used_bytes += bytes;
        state.objects.insert(object, bytes);
    }

    fn given_back(&self, object: Object) {
        let mut state = self.lock();
        if let Some(bytes) = state.objects.remove(&object) {
            state.used_bytes -= bytes;
        }
    }

    fn heap_use(&self, mut heap: HeapUse) -> HeapUse {
        if let Some(limit) = self.limits.bytes {
            heap.total = heap.total.min(limit);
            heap.free = heap.free.min(limit.saturating_sub(self.lock().used_bytes));
        }
        heap
    }
}

impl Limited {
    /// A device around `inner` that gives out no more than `limits`.
    pub fn new(inner: Arc<dyn Device>, limits: Limits) -> Arc<Self> {
        Self::around(inner, Counting { limits, state: Mutex::default() })
    }

    /// Bytes of the memory objects that exist.
    pub fn used_bytes(&self) -> u64 {
        self.hook.lock().used_bytes
    }
}
