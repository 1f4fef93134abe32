//! Kernels: the built-in ones, the demo's, and those that users load.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use terrane_core::device::{DeviceError, Feature, KernelId, Points, UnsafeKernelSource};

use crate::driver::{Driver, Fault, RawFunction, RawModule, code};
use crate::inner::{Inner, lock, read, write};

/// PTX of the built-in kernels, made from `kernels/builtin.cu`.
pub(crate) const BUILTIN_PTX: &str = include_str!("../kernels/builtin.ptx");
/// PTX of the demo's kernels, made from `kernels/demo.cu`.
pub(crate) const DEMO_PTX: &str = include_str!("../kernels/demo.ptx");

/// Dynamic shared memory that every kernel may have, in bytes.
const SHARED_BYTES: u32 = 48 << 10;
/// Threads of one workgroup.
const MAX_THREADS: u64 = 1024;
/// Results of the driver that mean that the image or the PTX in it is no good.
const BAD_IMAGE: [i32; 7] = [200, 209, 218, 221, 222, 225, 300];

fn demo(entry: &str, threads: [u32; 3]) -> UnsafeKernelSource {
    UnsafeKernelSource::Cuda {
        image: DEMO_PTX.as_bytes().into(),
        entry: entry.into(),
        threads,
        shared_bytes: 0,
    }
}

/// `c[i] = a[i] + b[i]`: bindings a, b, c of `n` 4-byte floats; push data `n` as `u32`; one group
/// for every 256 elements.
pub fn vector_add() -> UnsafeKernelSource {
    demo("terrane_vector_add", [256, 1, 1])
}

/// `C = A * B`: bindings A, B, C of `n * n` 4-byte floats, row by row; push data `n` as `u32`; one
/// group for every 16 by 16 elements of C.
pub fn matmul() -> UnsafeKernelSource {
    demo("terrane_matmul", [16, 16, 1])
}

/// `out += sum(values)`: bindings values of `n` 4-byte floats and out of one; push data `n` as
/// `u32`; any number of groups.
pub fn sum() -> UnsafeKernelSource {
    demo("terrane_sum", [256, 1, 1])
}

/// The built-in kernels, loaded when first used.
#[derive(Clone, Copy)]
pub(crate) struct Builtin {
    module: RawModule,
    pub(crate) fill_pattern: RawFunction,
    pub(crate) verify: RawFunction,
    pub(crate) checksum: RawFunction,
    pub(crate) gather: RawFunction,
}

/// A kernel of a user's.
pub(crate) struct Kernel {
    module: RawModule,
    pub(crate) function: RawFunction,
    pub(crate) threads: [u32; 3],
    pub(crate) shared_bytes: u32,
    /// The last submissions with it, so that it is unloaded after them.
    pub(crate) used: Mutex<Points>,
}

#[derive(Default)]
pub(crate) struct Kernels {
    builtin: Mutex<Option<Builtin>>,
    loaded: RwLock<HashMap<u64, Arc<Kernel>>>,
    /// Unloaded by the user, and perhaps still running.
    leaving: Mutex<Vec<Arc<Kernel>>>,
    pub(crate) dispatches: AtomicU64,
}

impl Kernels {
    pub(crate) fn get(&self, id: KernelId) -> Result<Arc<Kernel>, DeviceError> {
        let kernel = read(&self.loaded).get(&id.0).cloned();
        kernel.ok_or(DeviceError::InvalidCall("no such kernel"))
    }

    pub(crate) fn count(&self) {
        self.dispatches.fetch_add(1, Ordering::Relaxed);
    }

    /// Unloads everything. Pre: entered, and no work runs.
    pub(crate) fn clear(&self, driver: &dyn Driver) {
        for (_, kernel) in write(&self.loaded).drain() {
            let _ = driver.module_unload(kernel.module);
        }
        for kernel in lock(&self.leaving).drain(..) {
            let _ = driver.module_unload(kernel.module);
        }
        if let Some(builtin) = lock(&self.builtin).take() {
            let _ = driver.module_unload(builtin.module);
        }
    }
}

impl Inner {
    /// The built-in kernels. Pre: entered.
    pub(crate) fn builtin(&self) -> Result<Builtin, DeviceError> {
        let mut builtin = lock(&self.kernels.builtin);
        if let Some(builtin) = *builtin {
            return Ok(builtin);
        }
        let module = self.load_image(BUILTIN_PTX.as_bytes())?;
        let function = |name| self.entry(module, name);
        let loaded = Builtin {
            module,
            fill_pattern: function("terrane_fill_pattern")?,
            verify: function("terrane_verify")?,
            checksum: function("terrane_checksum")?,
            gather: function("terrane_gather")?,
        };
        *builtin = Some(loaded);
        Ok(loaded)
    }

    fn load_image(&self, image: &[u8]) -> Result<RawModule, DeviceError> {
        // The driver reads PTX up to a zero byte; a cubin does not mind one more.
        let mut ended = Vec::with_capacity(image.len() + 1);
        ended.extend_from_slice(image);
        ended.push(0);
        self.driver.module_load(&ended).map_err(|fault| self.fail_image(fault))
    }

    fn fail_image(&self, fault: Fault) -> DeviceError {
        if BAD_IMAGE.contains(&fault.code) {
            return DeviceError::InvalidCall("the kernel's image does not load: see the log");
        }
        self.fail_memory(fault, 0)
    }

    fn entry(&self, module: RawModule, name: &str) -> Result<RawFunction, DeviceError> {
        self.driver.function(module, name).map_err(|fault| match fault.code {
            code::NOT_FOUND => DeviceError::InvalidCall("the image has no such entry point"),
            _ => self.fail(fault),
        })
    }

    pub(crate) fn load_kernel(&self, source: &UnsafeKernelSource) -> Result<KernelId, DeviceError> {
        let UnsafeKernelSource::Cuda { image, entry, threads, shared_bytes } = source else {
            return Err(DeviceError::Unsupported(Feature::KernelLanguage));
        };
        let count = threads.iter().try_fold(1_u64, |all, &n| all.checked_mul(u64::from(n)));
        if !count.is_some_and(|count| (1..=MAX_THREADS).contains(&count)) {
            return Err(DeviceError::InvalidCall("a workgroup has 1 to 1,024 threads"));
        }
        let _entered = self.enter()?;
        self.unload_finished();
        let module = self.load_image(image)?;
        let function = self.entry(module, entry).and_then(|function| {
            if *shared_bytes > SHARED_BYTES {
                let allowed = self.driver.allow_shared(function, *shared_bytes);
                allowed.map_err(|fault| self.fail(fault))?;
            }
            Ok(function)
        });
        let function = function.inspect_err(|_| {
            let _ = self.driver.module_unload(module);
        })?;
        let id = self.next_id();
        let kernel = Kernel {
            module,
            function,
            threads: *threads,
            shared_bytes: *shared_bytes,
            used: Mutex::default(),
        };
        write(&self.kernels.loaded).insert(id, Arc::new(kernel));
        Ok(KernelId(id))
    }

    pub(crate) fn unload_kernel(&self, id: KernelId) -> Result<(), DeviceError> {
        let entered = self.enter_to_release()?;
        let kernel = write(&self.kernels.loaded).remove(&id.0);
        let kernel = kernel.ok_or(DeviceError::InvalidCall("no such kernel"))?;
        lock(&self.kernels.leaving).push(kernel);
        if entered.is_some() {
            self.unload_finished();
        }
        Ok(())
    }

    /// Unloads what users gave up and no work uses any more. Pre: entered.
    fn unload_finished(&self) {
        lock(&self.kernels.leaving).retain(|kernel| {
            let points = lock(&kernel.used).clone();
            // A dispatch that took the kernel before it was unloaded may not have submitted yet.
            let idle = Arc::strong_count(kernel) == 1
                && points.iter().all(|point| self.is_reached(point).unwrap_or(false));
            !(idle && self.driver.module_unload(kernel.module).is_ok())
        });
    }
}
