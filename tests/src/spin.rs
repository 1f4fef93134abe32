//! Keeping CUDA streams busy: a kernel of one thread that waits for a word in host memory.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use terrane_core::MemoryKind;
use terrane_core::device::{
    Access, Binding, Device, DeviceError, KernelId, Place, PlainSpec, SpaceId, StreamId, SyncPoint,
};

use crate::busy::{Held, Keeper};
use crate::clauses::kernels::ptx;

/// Bytes between two flags: what any device wants bindings aligned to.
const STRIDE: u64 = 256;
/// A test that forgets to let go, or hangs in a call that waits for the device, holds it for so
/// long and no longer.
const MOST_NS: u64 = 8_000_000_000;

/// The way for devices that run CUDA kernels; `None` for others.
pub(crate) fn keeper(device: &Arc<dyn Device>) -> Option<Arc<dyn Keeper>> {
    Some(Arc::new(Spin::new(Arc::clone(device))?))
}

struct Spin {
    shared: Arc<Flags>,
}

/// The kernel and the words that it waits for.
struct Flags {
    device: Arc<dyn Device>,
    kernel: KernelId,
    space: SpaceId,
    /// The host's view of the words.
    words: NonNull<u8>,
    free: Mutex<Vec<u64>>,
}

// SAFETY: the words are only used as atomics, and live as long as the struct.
unsafe impl Send for Flags {}
// SAFETY: as above.
unsafe impl Sync for Flags {}

impl Spin {
    fn new(device: Arc<dyn Device>) -> Option<Self> {
        let compute = device.compute()?;
        let source = ptx("terrane_suite_wait", [1, 1, 1]);
        // SAFETY: the kernel reads the one word that its binding names.
        let kernel = unsafe { compute.load_unchecked(&source) }.ok()?;
        let class = device.caps().classes_of(MemoryKind::Upload).next()?;
        let bytes = device.caps().plain_granularity.max(16 * STRIDE);
        let name = "suite flags";
        let spec = PlainSpec { class, bytes, exportable: false, priority: 0.5, name };
        let space = device.create_plain(&spec).ok()?.space;
        let words = device.host_access()?.pointer(Place { space, offset: 0 }).ok()?;
        let free = Mutex::new((0..bytes / STRIDE).map(|n| n * STRIDE).collect());
        Some(Self { shared: Arc::new(Flags { device, kernel, space, words, free }) })
    }
}

impl Flags {
    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the offset is one of those made from the segment's size, a multiple of 256, and
        // the device only reads the word, by volatile loads.
        unsafe { AtomicU32::from_ptr(self.words.as_ptr().add(offset as usize).cast()) }
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<u64>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Flags {
    fn drop(&mut self) {
        if let Some(compute) = self.device.compute() {
            let _ = compute.unload(self.kernel);
        }
        let _ = self.device.release_plain(self.space);
    }
}

impl Keeper for Spin {
    fn hold(&self, stream: StreamId) -> Result<Box<dyn Held>, DeviceError> {
        let flags = Arc::clone(&self.shared);
        let none = DeviceError::InvalidCall("all flags of the suite are in use");
        let offset = flags.free().pop().ok_or(none)?;
        flags.word(offset).store(0, Ordering::SeqCst);
        let place = Place { space: flags.space, offset };
        let binding = Binding { place, bytes: STRIDE, access: Access::Read };
        let compute = flags.device.compute();
        let compute = compute.ok_or(DeviceError::InvalidCall("the power is gone"))?;
        let push = MOST_NS.to_le_bytes();
        let point = compute.dispatch(stream, flags.kernel, &[binding], &push, [1, 1, 1])?;
        Ok(Box::new(Spinning { flags, offset, point }))
    }
}

struct Spinning {
    flags: Arc<Flags>,
    offset: u64,
    point: SyncPoint,
}

impl Held for Spinning {
    fn point(&self) -> SyncPoint {
        self.point
    }

    fn let_go(&self) {
        self.flags.word(self.offset).store(1, Ordering::SeqCst);
    }
}

impl Drop for Spinning {
    fn drop(&mut self) {
        self.let_go();
        // The word serves again once nobody reads it any more.
        let soon = std::time::Duration::from_secs(1);
        if self.flags.device.wait_any(&[self.point], soon) == Ok(true) {
            self.flags.free().push(self.offset);
        }
    }
}
