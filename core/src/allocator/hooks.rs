//! The user's callbacks. They run with no lock held and may allocate, free and trim.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Shortage};

use super::alloc::Asked;
use super::{Allocator, Inner};
use crate::event::{Event, EventKind, Rung};

/// Called when a request is about to fail; tells whether it made room, so that the request is
/// tried once more.
type Hook = dyn Fn(&Allocator, &Shortage) -> bool + Send + Sync;

#[derive(Default)]
pub(crate) struct Hooks {
    /// The allocator is passed in rather than captured, so that a hook does not keep it alive.
    pressure: Mutex<Vec<Arc<Hook>>>,
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
