//! The one place where the driver is called: every call is counted, timed and may be made to fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ash::vk;
use terrane_core::device::DeviceError;

use crate::calls::{Call, Calls};
use crate::error::meaning;
use crate::instance::Instance;

/// Makes driver calls fail on purpose, for tests of what a given driver never shows.
pub trait Faults: Send + Sync {
    /// The result that the call is to have instead of being made, or `None` to make it.
    /// `bytes` is the size of the object that the call is about, or 0.
    fn fail(&self, call: Call, bytes: u64) -> Option<vk::Result>;

    /// Changes what the device says of itself before it is believed.
    fn alter(&self, told: &mut Told) {
        let _ = told;
    }
}

/// What a device says of itself, for [`Faults::alter`] to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// The Vulkan version, as `vk::make_api_version` packs it.
    pub api: u32,
    /// Memory types that may be used, a bit each.
    pub memory_types: u32,
    /// Whether any queue family computes.
    pub can_compute: bool,
}

/// Which optional parts of the device are enabled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Enabled {
    pub addresses: bool,
    pub sparse: bool,
    pub memory_budget: bool,
    pub memory_priority: bool,
    pub external_fd: bool,
    pub int64: bool,
}

/// A `VkDevice` and what belongs to all users of it; destroyed when the last of them is gone.
pub struct Driver {
    pub instance: Arc<Instance>,
    pub device: ash::Device,
    pub physical: vk::PhysicalDevice,
    pub enabled: Enabled,
    pub calls: Calls,
    names: Option<ash::ext::debug_utils::Device>,
    external_fd: Option<ash::khr::external_memory_fd::Device>,
    faults: Option<Arc<dyn Faults>>,
    lost: AtomicBool,
    owned: bool,
    process: u32,
}

impl Driver {
    pub fn new(
        instance: Arc<Instance>,
        device: ash::Device,
        physical: vk::PhysicalDevice,
        enabled: Enabled,
        faults: Option<Arc<dyn Faults>>,
        owned: bool,
    ) -> Self {
        let names = instance
            .debug_utils
            .then(|| ash::ext::debug_utils::Device::new(&instance.raw, &device));
        let external_fd = enabled
            .external_fd
            .then(|| ash::khr::external_memory_fd::Device::new(&instance.raw, &device));
        Self {
            instance,
            device,
            physical,
            enabled,
            calls: Calls::new(),
            names,
            external_fd,
            faults,
            lost: AtomicBool::new(false),
            owned,
            process: std::process::id(),
        }
    }

    /// Whether Terrane made the device, rather than a host program.
    pub const fn is_own(&self) -> bool {
        self.owned
    }

    /// Whether the device was found lost.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Relaxed)
    }

    /// `Lost` once the device is lost, `AfterFork` in a forked child, which must not call a driver
    /// that its parent opened.
    pub fn check(&self) -> Result<(), DeviceError> {
        if self.is_lost() {
            return Err(DeviceError::Lost);
        }
        if self.is_here() { Ok(()) } else { Err(DeviceError::AfterFork) }
    }

    /// Whether this is the process that opened the device. What a forked child drops stays with
    /// the driver, whose threads and locks are the parent's: a call may never come back.
    pub fn is_here(&self) -> bool {
        std::process::id() == self.process
    }

    /// Makes a call about an object of `bytes`, counted, timed, and perhaps made to fail.
    pub fn run<T>(
        &self,
        call: Call,
        bytes: u64,
        f: impl FnOnce(&ash::Device) -> Result<T, vk::Result>,
    ) -> Result<T, DeviceError> {
        self.try_run(call, bytes, f).map_err(|result| meaning(call.name(), result, bytes))
    }

    /// As [`run`](Self::run), with the driver's own result.
    pub fn try_run<T>(
        &self,
        call: Call,
        bytes: u64,
        f: impl FnOnce(&ash::Device) -> Result<T, vk::Result>,
    ) -> Result<T, vk::Result> {
        let injected = self.faults.as_ref().and_then(|faults| faults.fail(call, bytes));
        let result = match injected {
            Some(result) => Err(result),
            None => {
                let start = Instant::now();
                let result = f(&self.device);
                self.calls.add(call, start.elapsed());
                result
            }
        };
        if matches!(result, Err(vk::Result::ERROR_DEVICE_LOST)) {
            self.lost.store(true, Relaxed);
        }
        result
    }

    /// Makes a call that can not fail.
    pub fn done(&self, call: Call, f: impl FnOnce(&ash::Device)) {
        if !self.is_here() {
            return;
        }
        let start = Instant::now();
        f(&self.device);
        self.calls.add(call, start.elapsed());
    }

    /// Counts a call that a crate makes for us.
    pub fn count(&self, call: Call, time: Duration) {
        self.calls.add(call, time);
    }

    /// Gives an object a name that debuggers and the validation layer show.
    pub fn name<H: vk::Handle>(&self, object: H, name: &str) {
        let Some(fns) = &self.names else { return };
        let name = std::ffi::CString::new(name.replace('\0', " ")).unwrap_or_default();
        let info =
            vk::DebugUtilsObjectNameInfoEXT::default().object_handle(object).object_name(&name);
        self.done(Call::SetDebugName, |_| {
            // SAFETY: the object belongs to this device and nobody else knows it yet. A name that
            // can not be set harms nobody.
            let _ = unsafe { fns.set_debug_utils_object_name(&info) };
        });
    }

    /// A file descriptor that names an exportable memory object in other processes and APIs.
    pub fn memory_fd(&self, memory: vk::DeviceMemory) -> Result<i32, DeviceError> {
        let Some(fns) = &self.external_fd else {
            return Err(DeviceError::Unsupported(terrane_core::device::Feature::Export));
        };
        let info = vk::MemoryGetFdInfoKHR::default()
            .memory(memory)
            .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        // SAFETY: the caller passes live memory that was made exportable with this handle type.
        self.run(Call::GetMemoryFd, 0, |_| unsafe { fns.get_memory_fd(&info) })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.owned && self.is_here() {
            // SAFETY: every object made from the device holds this struct, so none is left, and
            // the device was made idle before they went.
            unsafe { self.device.destroy_device(None) };
        }
    }
}
