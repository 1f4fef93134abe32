//! The user's callbacks. They run with no lock held and may allocate, free and trim.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Shortage};

use super::alloc::Asked;
use super::handle::Allocation;
use super::{Allocator, Damage, Inner};
use crate::event::{Event, EventKind, Rung};

/// Called when a request is about to fail; tells whether it made room, so that the request is
/// tried once more.
type Hook = dyn Fn(&Allocator, &Shortage) -> bool + Send + Sync;

/// Called with what a check found.
type DamageHook = dyn Fn(&Damage) + Send + Sync;

/// Takes the call stack of the thread it runs on: gives its number, and the nanoseconds that
/// taking it cost.
type StackHook = dyn Fn() -> (u32, u64) + Send + Sync;

#[derive(Default)]
pub(crate) struct Hooks {
    /// The allocator is passed in rather than captured, so that a hook does not keep it alive.
    pressure: Mutex<Vec<Arc<Hook>>>,
    damage: Mutex<Vec<Arc<DamageHook>>>,
    stacks: Stacks,
}

/// Stacks that are taken of some requests.
#[derive(Default)]
struct Stacks {
    /// Of how many requests one is sampled; 0 for none.
    every: AtomicU32,
    served: AtomicU32,
    hook: Mutex<Option<Arc<StackHook>>>,
}

impl Allocator {
    /// Adds a callback for shortage. Callbacks are asked in the order in which they were added,
    /// until one says that it made room.
    ///
    /// They run with no lock of the allocator's held, on the thread of the request that runs
    /// short; they may free, trim and allocate (a request made inside a callback asks no
    /// callbacks). A callback that panics fails the request with [`Error::HookPanicked`].
    pub fn on_pressure(&self, hook: impl Fn(&Self, &Shortage) -> bool + Send + Sync + 'static) {
        let mut hooks = self.inner.hooks.pressure.lock().unwrap_or_else(PoisonError::into_inner);
        hooks.push(Arc::new(hook));
    }
}

impl Allocator {
    /// Adds a callback for what [`Checks`](crate::Checks) find. It runs with no lock of the
    /// allocator's held, on the thread of the call that noticed; one that panics is left out.
    pub fn on_damage(&self, hook: impl Fn(&Damage) + Send + Sync + 'static) {
        let mut hooks = self.inner.hooks.damage.lock().unwrap_or_else(PoisonError::into_inner);
        hooks.push(Arc::new(hook));
    }
}

impl Hooks {
    pub fn tell_damage(&self, damage: &Damage) {
        let hooks = self.damage.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for hook in hooks {
            // The finding is kept and recorded in any case.
            let _ = catch_unwind(AssertUnwindSafe(|| hook(damage)));
        }
    }
}

impl Allocator {
    /// Calls `take` on the allocating thread after every `every`-th request that was served, with
    /// no lock held. It gives the number of the call stack that it took, or 0 for none, and what
    /// that cost in nanoseconds; both are told as [`EventKind::Stack`]. There is one such callback;
    /// 0 ends it.
    pub fn sample_stacks(&self, every: u32, take: impl Fn() -> (u32, u64) + Send + Sync + 'static) {
        let stacks = &self.inner.hooks.stacks;
        let hook: Option<Arc<StackHook>> = (every != 0).then(|| Arc::new(take) as _);
        *stacks.hook.lock().unwrap_or_else(PoisonError::into_inner) = hook;
        stacks.every.store(every, Ordering::Relaxed);
    }
}

thread_local! {
    /// Whether this thread is inside a callback.
    static IN_HOOK: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Marks the thread as inside a callback until dropped, also when the callback panics.
struct InHook;

impl InHook {
    fn enter() -> Option<Self> {
        (!IN_HOOK.replace(true)).then_some(Self)
    }
}

impl Drop for InHook {
    fn drop(&mut self) {
        IN_HOOK.set(false);
    }
}

impl Inner {
    /// Whether the stacks of some requests are taken.
    #[inline(always)]
    pub(super) fn samples_stacks(&self) -> bool {
        self.hooks.stacks.every.load(Ordering::Relaxed) != 0
    }

    /// Has a stack taken, if this request is one of those sampled.
    pub(super) fn sample_stack(&self, allocation: &Allocation) {
        let stacks = &self.hooks.stacks;
        let every = stacks.every.load(Ordering::Relaxed);
        // Zero by now: that ended meanwhile.
        if every == 0 || !stacks.served.fetch_add(1, Ordering::Relaxed).is_multiple_of(every) {
            return;
        }
        let hook = stacks.hook.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(hook) = hook else { return };
        // Only a stack is missing if it panics.
        let Ok((number, cost_ns)) = catch_unwind(AssertUnwindSafe(|| hook())) else { return };
        if number != 0 {
            let event = Event::new(EventKind::Stack).handle(allocation.handle.key.to_bits());
            self.lock().event(event.a(u64::from(number)).b(cost_ns));
        }
    }

    /// Asks the callbacks to make room. Tells whether one did.
    pub(super) fn ask_hooks(self: &Arc<Self>, asked: &Asked<'_>) -> Result<bool, Error> {
        let hooks = self.hooks.pressure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if hooks.is_empty() {
            return Ok(false);
        }
        let Some(_inside) = InHook::enter() else { return Ok(false) };
        let shortage = {
            let mut state = self.lock();
            let event = Event::new(EventKind::Rung).a(Rung::Hook as u64);
            state.event(event.b(asked.layout.bytes).on(asked.request.stream.0, 0));
            self.shortage(&state, asked)
        };
        let allocator = Allocator { inner: Arc::clone(self) };
        for hook in hooks {
            let made_room = catch_unwind(AssertUnwindSafe(|| hook(&allocator, &shortage)));
            if made_room.map_err(|_| Error::HookPanicked)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
