//! Every order of two threads at the allocator's lock, by loom: moves, frees that are pending, and
//! the ring of events.
//! `RUSTFLAGS="--cfg loom" cargo test --release -p terrane-core --test orders`, or
//! `cargo xtask loom`.

#![cfg(loom)]
#![allow(clippy::unwrap_used)]

mod events;
mod lock;
mod moves;
mod pending;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use loom::thread;

const UNIT: u64 = 64 << 10;

/// Runs the test in every order; it tells each time which of two
/// things happened, and both have to.
fn explore(test: impl Fn() -> bool + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.max_branches = 20_000;
    let (test, seen) = (Arc::new(test), Arc::new([AtomicU64::new(0), AtomicU64::new(0)]));
    let counts = Arc::clone(&seen);
    model.check(move || {
        // The model's own thread has a stack too small for an allocator.
        let test = Arc::clone(&test);
        let happened = large(move || test()).join().unwrap();
        counts[usize::from(happened)].fetch_add(1, Ordering::Relaxed);
    });
    println!("{seen:?} orders in which it did not happen and did");
    assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) > 0), "{seen:?}");
}

/// A thread with room for what the allocator and the model of a device put on the stack.
fn large<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    thread::Builder::new().stack_size(1 << 18).spawn(run).unwrap()
}
