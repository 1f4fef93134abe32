//! Queues, each behind one leaf lock.

use std::sync::{Arc, Mutex, PoisonError};

use ash::vk;

use crate::open::Role;

/// A host program's lock over a queue that it uses too.
///
/// Vulkan wants calls on one queue to follow one another; a program that hands over a queue
/// which it goes on using gives this so that both sides take turns.
pub trait QueueLock: Send + Sync {
    /// Runs `call` while nobody else uses the queue. It makes one driver call and takes no locks.
    fn with(&self, call: &mut dyn FnMut());
}

enum Lock {
    Ours(Mutex<()>),
    Hosts(Arc<dyn QueueLock>),
}

/// A queue of the device.
pub struct Queue {
    raw: vk::Queue,
    pub family: u32,
    pub flags: vk::QueueFlags,
    pub role: Role,
    lock: Lock,
}

impl Queue {
    pub fn new(
        raw: vk::Queue,
        family: u32,
        flags: vk::QueueFlags,
        role: Role,
        lock: Option<Arc<dyn QueueLock>>,
    ) -> Self {
        let lock = lock.map_or_else(|| Lock::Ours(Mutex::new(())), Lock::Hosts);
        Self { raw, family, flags, role, lock }
    }

    /// Runs one driver call on the queue while nobody else uses it.
    pub fn locked<T>(&self, call: impl FnOnce(vk::Queue) -> T) -> Option<T> {
        match &self.lock {
            Lock::Ours(mutex) => {
                let _turn = mutex.lock().unwrap_or_else(PoisonError::into_inner);
                Some(call(self.raw))
            }
            Lock::Hosts(lock) => {
                let (mut call, mut result) = (Some(call), None);
                lock.with(&mut || {
                    if let Some(call) = call.take() {
                        result = Some(call(self.raw));
                    }
                });
                result
            }
        }
    }

    pub fn can_compute(&self) -> bool {
        self.flags.contains(vk::QueueFlags::COMPUTE)
    }

    pub fn can_bind(&self) -> bool {
        self.flags.contains(vk::QueueFlags::SPARSE_BINDING)
    }
}
