//! Telling whether this process is the one that opened the device.
//!
//! Every call asks, so it has to cost next to nothing: a page that the kernel empties in every
//! forked child answers with one load, where asking for the process number is a system call.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// What stands in the page as long as nobody forked.
const HERE: u32 = 1;

/// The process in which it was made.
pub(crate) enum Birthplace {
    /// Holds [`HERE`] in that process and 0 in its forked children.
    Page(Page),
    /// The process number, where the kernel has no such pages (Linux before 4.14).
    Process(u32),
}

impl Birthplace {
    pub(crate) fn new() -> Self {
        Page::new().map_or_else(|| Self::Process(std::process::id()), Self::Page)
    }

    /// Whether the calling process is that one.
    pub(crate) fn is_here(&self) -> bool {
        match self {
            Self::Page(page) => page.word().load(Ordering::Relaxed) == HERE,
            Self::Process(process) => std::process::id() == *process,
        }
    }
}

/// Private memory that a forked child finds empty.
pub(crate) struct Page(NonNull<AtomicU32>);

// SAFETY: the memory belongs to the value alone and holds nothing but an atomic.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    fn new() -> Option<Self> {
        let bytes = rustix::param::page_size();
        // SAFETY: new memory at an address that the kernel chooses.
        let memory = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE)
        }
        .ok()?;
        let page = Self(NonNull::new(memory.cast())?);
        // SAFETY: exactly the memory mapped above, which nobody else uses.
        unsafe { rustix::mm::madvise(memory, bytes, Advice::LinuxWipeOnFork) }.ok()?;
        page.word().store(HERE, Ordering::Relaxed);
        Some(page)
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: mapped, zeroed and aligned to a page until the value is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this size; the borrow of `word` ended.
        let unmapped =
            unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), rustix::param::page_size()) };
        debug_assert!(unmapped.is_ok(), "a page of our own");
    }
}

#[cfg(test)]
mod tests {
    use super::Birthplace;

    unsafe extern "C" {
        fn fork() -> i32;
        fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
        fn _exit(code: i32) -> !;
    }

    #[test]
    fn a_forked_child_is_not_where_the_parent_was_born() {
        for birthplace in [Birthplace::new(), Birthplace::Process(std::process::id())] {
            assert!(birthplace.is_here());
            // SAFETY: the child looks at memory and makes at most one system call, then ends.
            let process = unsafe { fork() };
            if process == 0 {
                // SAFETY: ends this process without running anything of the parent's.
                unsafe { _exit(i32::from(birthplace.is_here())) };
            }
            assert!(process > 0, "fork failed");
            let mut status = -1;
            // SAFETY: the child made above; the status outlives the call.
            assert_eq!(unsafe { waitpid(process, &raw mut status, 0) }, process);
            assert_eq!(status, 0, "the child took itself for its parent");
            assert!(birthplace.is_here());
        }
    }

    #[test]
    fn this_kernel_has_pages_that_forks_empty() {
        assert!(matches!(Birthplace::new(), Birthplace::Page(_)));
    }
}
