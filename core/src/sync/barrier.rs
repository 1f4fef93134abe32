//! Barriers of two weights. Of two barriers, one of which at least is heavy, the later one lets its
//! thread see what was written before the earlier one.
//!
//! Where the system puts a barrier into every thread of the process when it is asked to, on Linux,
//! the light one costs nothing. Elsewhere both are fences.
//! Source: `membarrier(2)`.

use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

/// Whether the system was asked and does so.
static BY_SYSTEM: AtomicBool = AtomicBool::new(false);

/// Asks the system once. To be called before the first [`light`] barrier that has a heavy
/// counterpart.
pub fn prepare() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| BY_SYSTEM.store(system::register(), Ordering::Relaxed));
}

/// For the side that comes often.
#[inline(always)]
pub fn light() {
    if BY_SYSTEM.load(Ordering::Relaxed) {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// For the side that comes seldom: some microseconds.
pub fn heavy() {
    fence(Ordering::SeqCst);
    if BY_SYSTEM.load(Ordering::Relaxed) {
        // It may be out of memory for a while, and nothing else will do by now.
        while !system::barrier() {
            system::register();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use rustix::thread::{MembarrierCommand as Command, membarrier, membarrier_query};

    /// Tells the system that this process will ask for barriers.
    pub fn register() -> bool {
        let (register, call) = (Command::RegisterPrivateExpedited, Command::PrivateExpedited);
        let known = membarrier_query();
        let has = |command| known.contains_command(command);
        has(register) && has(call) && membarrier(register).is_ok()
    }

    /// Puts a barrier into every thread of the process that runs.
    pub fn barrier() -> bool {
        membarrier(Command::PrivateExpedited).is_ok()
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub const fn register() -> bool {
        false
    }

    pub const fn barrier() -> bool {
        true
    }
}
