//! The state's lock, and an instrument that tells how long it was held at most.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::device::Device;
use crate::id::Key;
use crate::sync::{Condvar, MutexGuard};

use super::state::{State, flag};
use super::{Allocator, Inner};

/// Measures the longest time for which the lock was held. Off it costs one load.
#[derive(Default)]
pub(crate) struct Watch {
    is_on: AtomicBool,
    longest_ns: AtomicU64,
}

impl Watch {
    pub fn start<'a>(&'a self, device: &'a dyn Device) -> Option<Span<'a>> {
        let is_on = self.is_on.load(Ordering::Relaxed);
        is_on.then(|| Span { watch: self, device, from_ns: device.now_ns() })
    }
}

/// One time that the lock is held; ends when dropped.
pub(crate) struct Span<'a> {
    watch: &'a Watch,
    device: &'a dyn Device,
    from_ns: u64,
}

impl Drop for Span<'_> {
    fn drop(&mut self) {
        let ns = self.device.now_ns().saturating_sub(self.from_ns);
        self.watch.longest_ns.fetch_max(ns, Ordering::Relaxed);
    }
}

/// The state, locked.
pub(crate) struct Locked<'a> {
    // Before the guard, so that it ends while the lock is still held.
    span: Option<Span<'a>>,
    guard: MutexGuard<'a, State>,
}

impl<'a> Locked<'a> {
    pub const fn new(guard: MutexGuard<'a, State>, span: Option<Span<'a>>) -> Self {
        Self { span, guard }
    }

    /// Lets go of the lock until `changed` is told or the time has passed.
    pub fn wait(self, changed: &Condvar, time: Duration) -> Self {
        let Self { span, guard } = self;
        let restart = span.as_ref().map(|span| (span.watch, span.device));
        drop(span);
        let (guard, _) = changed.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner);
        let span = restart.and_then(|(watch, device)| watch.start(device));
        Self { span, guard }
    }
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.guard
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.guard
    }
}

impl Inner {
    /// The state, locked at a moment at which the block is not being slid over its own old
    /// place. That lasts as long as a submission of copies takes, never as long as the copies.
    pub fn lock_still(&self, key: Key) -> Locked<'_> {
        let mut state = self.lock();
        while state.blocks.get(key).is_ok_and(|block| block.has(flag::SLIDING)) {
            state.waiting += 1;
            state = state.wait(&self.changed, Duration::from_secs(1));
            state.waiting -= 1;
        }
        state
    }
}

impl Allocator {
    /// Starts to measure how long the allocator's lock is held, from zero, or stops it.
    pub fn watch_lock(&self, on: bool) {
        self.inner.watch.longest_ns.store(0, Ordering::Relaxed);
        self.inner.watch.is_on.store(on, Ordering::Relaxed);
    }

    /// The longest time for which the lock was held since
    /// [`watch_lock`](Self::watch_lock), in nanoseconds of the device's clock.
    pub fn longest_lock_ns(&self) -> u64 {
        self.inner.watch.longest_ns.load(Ordering::Relaxed)
    }
}
