//! The state's lock, and an instrument that tells how long it was held at most.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::device::Device;
use crate::id::Key;
use crate::sync::{Guard, Leave};

use super::state::{State, flag};
use super::{Allocator, Inner};

/// Measures the longest time for which the lock was held. Off it costs one load.
#[derive(Default)]
pub(crate) struct Watch {
    is_on: AtomicBool,
    longest_ns: AtomicU64,
    /// How often it was held for 2^i nanoseconds and more, but less than twice that.
    holds: [AtomicU64; 32],
    /// Where the lock that was held for longest was taken.
    longest_at: Mutex<Option<&'static Location<'static>>>,
    /// What tells the time instead of the device.
    clock: OnceLock<fn() -> u64>,
}

impl Watch {
    fn now_ns(&self, device: &dyn Device) -> u64 {
        self.clock.get().map_or_else(|| device.now_ns(), |clock| clock())
    }
}

/// One time that the lock is held; ends when dropped.
pub(crate) struct Span {
    watch: Arc<Watch>,
    device: Arc<dyn Device>,
    at: &'static Location<'static>,
    from_ns: u64,
}

impl Drop for Span {
    fn drop(&mut self) {
        let ns = self.watch.now_ns(&*self.device).saturating_sub(self.from_ns);
        let power = ns.max(1).ilog2().min(31);
        self.watch.holds[power as usize].fetch_add(1, Ordering::Relaxed);
        if self.watch.longest_ns.fetch_max(ns, Ordering::Relaxed) < ns {
            let at = self.watch.longest_at.lock();
            *at.unwrap_or_else(PoisonError::into_inner) = Some(self.at);
        }
    }
}

/// The state, locked.
pub(crate) type Locked<'a> = Guard<'a, State>;

impl Leave for State {
    #[inline(always)]
    fn leave(&mut self) {
        if self.span.is_some() {
            self.end_span();
        }
    }
}

impl State {
    #[cold]
    fn end_span(&mut self) {
        self.span = None;
    }
}

impl Inner {
    /// The state, locked, as it is: freed blocks may be on the shelf, still taken in the indices.
    /// For requests that hit, frees and holds, which look at live blocks and exact counters.
    ///
    /// A panic under the lock can only come from a bug; the state is then used as it is, rather
    /// than making every later free fail.
    #[inline(always)]
    #[track_caller]
    pub fn lock_shelved(&self) -> Locked<'_> {
        let mut state = self.state.lock();
        if self.watch.is_on.load(Ordering::Relaxed) {
            self.start_span(&mut state, Location::caller());
        }
        state
    }

    #[cold]
    fn start_span(&self, state: &mut State, at: &'static Location<'static>) {
        let (watch, device) = (Arc::clone(&self.watch), Arc::clone(&self.device));
        let from_ns = watch.now_ns(&*device);
        state.span = Some(Box::new(Span { watch, device, at, from_ns }));
    }

    /// Lets go of the lock until [`unlock_and_tell`](Self::unlock_and_tell) or the time has passed.
    #[track_caller]
    pub fn wait_locked<'a>(&'a self, state: Locked<'a>, time: Duration) -> Locked<'a> {
        let mut state = state.wait(&self.changed, time, |state| state.told);
        // Others may have put blocks there meanwhile.
        state.close_shelf();
        if self.watch.is_on.load(Ordering::Relaxed) {
            self.start_span(&mut state, Location::caller());
        }
        state
    }

    /// The state, locked at a moment at which the block is not being slid over its own old
    /// place. That lasts as long as a submission of copies takes, never as long as the copies.
    #[track_caller]
    pub fn lock_still(&self, key: Key) -> Locked<'_> {
        let mut state = self.lock_shelved();
        while state.blocks.get(key).is_ok_and(|block| block.has(flag::SLIDING)) {
            state.waiting += 1;
            state = self.wait_locked(state, Duration::from_secs(1));
            state.waiting -= 1;
        }
        state
    }
}

impl Allocator {
    /// Starts to measure how long the allocator's lock is held, from zero, or stops it.
    pub fn watch_lock(&self, on: bool) {
        let watch = &self.inner.watch;
        watch.longest_ns.store(0, Ordering::Relaxed);
        watch.holds.iter().for_each(|holds| holds.store(0, Ordering::Relaxed));
        self.inner.watch.is_on.store(on, Ordering::Relaxed);
    }

    /// Lets another clock, in nanoseconds, tell how long the lock is held: such as one that counts
    /// what the calling thread computes, where the system takes the processor away from it now
    /// and then. The first one given stays.
    pub fn watch_lock_by(&self, clock: fn() -> u64) {
        // The second one given is left out, as promised.
        let _ = self.inner.watch.clock.set(clock);
    }

    /// The longest time for which the lock was held since
    /// [`watch_lock`](Self::watch_lock), in nanoseconds of the device's clock or of
    /// [another](Self::watch_lock_by).
    pub fn longest_lock_ns(&self) -> u64 {
        self.inner.watch.longest_ns.load(Ordering::Relaxed)
    }

    /// How often the lock was held since [`watch_lock`](Self::watch_lock), in all and for at least
    /// 2^`power` nanoseconds.
    pub fn lock_holds(&self, power: u32) -> (u64, u64) {
        let holds = self.inner.watch.holds.iter().map(|holds| holds.load(Ordering::Relaxed));
        (0_u32..).zip(holds).fold((0, 0), |(all, long), (at, holds)| {
            (all + holds, if at >= power { long + holds } else { long })
        })
    }

    /// Where in Terrane's sources the lock was taken that was held for longest.
    pub fn longest_lock_at(&self) -> Option<&'static Location<'static>> {
        *self.inner.watch.longest_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
