//! The locks of the allocator: the standard library's, or `loom`'s where every order of two
//! threads is tried (`RUSTFLAGS="--cfg loom"`), and one of our own over them.

#[cfg(not(loom))]
mod barrier;
#[allow(unsafe_code, reason = "one thread enters by two stores; docs/decisions/0006")]
mod lock;

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(loom)]
use loom::thread;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
use std::thread;

pub use lock::{Guard, Leave, Lock};

#[cfg(not(loom))]
use barrier::{heavy, light, prepare};
#[cfg(loom)]
use model::{heavy, light, prepare};

/// The name of a thread.
pub(crate) type Thread = thread::ThreadId;

/// The thread that asks.
pub(crate) fn this_thread() -> Thread {
    thread::current().id()
}

/// The barriers of a model, in which both cost the same.
#[cfg(loom)]
mod model {
    use loom::sync::atomic::{Ordering, fence};

    pub const fn prepare() {}

    pub fn light() {
        fence(Ordering::SeqCst);
    }

    pub fn heavy() {
        fence(Ordering::SeqCst);
    }
}
