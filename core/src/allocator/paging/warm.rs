//! Warming by a dry run: while it lasts, what is missing is made, never taken from elsewhere.

use crate::allocator::Allocator;

/// While it lives, requests that find no room get new memory even where free pages could be
/// mapped for them: after a dry run of a workload the allocator then holds enough, where it is
/// needed, to serve the same again without a driver call.
#[derive(Debug)]
#[must_use = "warming ends when the guard is dropped"]
pub struct Warming {
    alloc: Allocator,
}

impl Allocator {
    /// Begins a dry run that warms the allocator: allocate and free what will be needed, in the
    /// order in which it will be, then drop the guard. `terrane_trace::replay::warm` does so with
    /// a recorded workload.
    pub fn begin_warming(&self) -> Warming {
        self.inner.lock().warming += 1;
        Warming { alloc: self.clone() }
    }
}

impl Drop for Warming {
    fn drop(&mut self) {
        let mut state = self.alloc.inner.lock();
        state.warming = state.warming.saturating_sub(1);
    }
}
