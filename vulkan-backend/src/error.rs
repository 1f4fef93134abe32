//! Typed answers: why a device could not be opened, and what a driver's code means.

use ash::vk;
use terrane_core::device::DeviceError;

/// Why there is no Vulkan device to work with, and what to install or change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The Vulkan loader is not installed.
    #[error("no Vulkan loader (libvulkan.so.1): install the package libvulkan1 or vulkan-loader")]
    NoLoader,
    /// The loader could not make an instance.
    #[error(
        "the Vulkan loader made no instance (code {code}): check VK_DRIVER_FILES, VK_ICD_FILENAMES and VK_INSTANCE_LAYERS"
    )]
    NoInstance {
        /// The `VkResult`.
        code: i32,
    },
    /// The loader is there but no driver is.
    #[error(
        "no Vulkan driver: install the GPU's driver, or mesa-vulkan-drivers for a software device"
    )]
    NoDriver,
    /// The validation layer was asked for and is not installed.
    #[error("no validation layer: install vulkan-validationlayers, or open without validation")]
    NoValidation,
    /// No device matches the selector.
    #[error("none of the {devices} Vulkan devices matches: list them and choose by name or index")]
    NoSuchDevice {
        /// Devices that are there.
        devices: u32,
    },
    /// The device's Vulkan version is too old.
    #[error("the device has Vulkan {major}.{minor}, 1.2 is needed: update its driver")]
    TooOld {
        /// Major version.
        major: u32,
        /// Minor version.
        minor: u32,
    },
    /// The device has no timeline semaphores, or the host program did not enable them.
    #[error("timeline semaphores are missing: update the driver, or enable timelineSemaphore")]
    NoTimelineSemaphores,
    /// No queue family can compute, or the host program gave no queue that can.
    #[error("no queue that can compute: choose another device, or hand over a compute queue")]
    NoQueue,
    /// An extension that was asked for by name is missing.
    #[error("the device has no extension {0}: update its driver, or do not ask for it")]
    ExtensionMissing(&'static str),
    /// No memory type can hold buffers.
    #[error("the device has no memory that can hold buffers")]
    NoMemory,
    /// The device was found but failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// The meaning of a driver's result, for a call about an object of `bytes`.
pub fn meaning(call: &'static str, result: vk::Result, bytes: u64) -> DeviceError {
    match result {
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY
        | vk::Result::ERROR_OUT_OF_HOST_MEMORY
        | vk::Result::ERROR_FRAGMENTATION
        | vk::Result::ERROR_OUT_OF_POOL_MEMORY
        | vk::Result::ERROR_MEMORY_MAP_FAILED => DeviceError::OutOfMemory { bytes },
        vk::Result::ERROR_DEVICE_LOST => DeviceError::Lost,
        other => DeviceError::Driver { call, code: other.as_raw() },
    }
}
