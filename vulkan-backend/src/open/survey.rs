//! What a physical device says of itself, read once.

use ash::vk;
use terrane_core::device::DeviceInfo;

use crate::driver::{Faults, Told};
use crate::error::OpenError;
use crate::instance::Instance;

use super::parts::{Part, Parts};

/// A physical device's answers.
pub struct Survey {
    pub info: DeviceInfo,
    pub kind: vk::PhysicalDeviceType,
    pub driver_id: vk::DriverId,
    pub api: u32,
    pub limits: vk::PhysicalDeviceLimits,
    pub max_memory_bytes: u64,
    pub max_buffer_bytes: u64,
    pub memory: vk::PhysicalDeviceMemoryProperties,
    pub families: Vec<vk::QueueFamilyProperties>,
    /// What the device has; not what is enabled.
    pub parts: Parts,
    /// Memory types that may be used; all, but where a test hides some.
    pub memory_types: u32,
    /// Names the device and the driver's build in pipeline caches.
    pub pipeline_uuid: [u8; 16],
}

impl Survey {
    /// Asks a device everything the backend wants to know.
    pub fn of(instance: &Instance, physical: vk::PhysicalDevice, index: u32) -> Self {
        let raw = &instance.raw;
        // SAFETY: the physical device belongs to the instance, which is alive.
        let base = unsafe { raw.get_physical_device_properties(physical) };
        let extensions = extensions(raw, physical);
        let v13 = base.api_version >= vk::API_VERSION_1_3;
        let mut ids = vk::PhysicalDeviceIDProperties::default();
        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut third = vk::PhysicalDeviceMaintenance3Properties::default();
        let mut fourth = vk::PhysicalDeviceMaintenance4Properties::default();
        let mut all =
            vk::PhysicalDeviceProperties2::default().push_next(&mut ids).push_next(&mut third);
        if base.api_version >= vk::API_VERSION_1_2 {
            all = all.push_next(&mut driver);
        }
        if v13 {
            all = all.push_next(&mut fourth);
        }
        // SAFETY: as above; the chain holds only structs that the device's version has.
        unsafe { raw.get_physical_device_properties2(physical, &mut all) };
        let text = |s: &[std::ffi::c_char]| {
            let bytes: Vec<u8> = s.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let info = DeviceInfo {
            backend: "vulkan",
            name: text(&base.device_name),
            driver: format!("{} {}", text(&driver.driver_name), text(&driver.driver_info)),
            index,
            uuid: Some(ids.device_uuid),
            is_cpu: base.device_type == vk::PhysicalDeviceType::CPU,
        };
        let max_memory_bytes = third.max_memory_allocation_size;
        Self {
            info,
            kind: base.device_type,
            driver_id: driver.driver_id,
            api: base.api_version,
            limits: base.limits,
            max_memory_bytes,
            // Without maintenance4 the device states no limit of its own for buffers.
            max_buffer_bytes: if v13 { fourth.max_buffer_size } else { max_memory_bytes },
            // SAFETY: as above.
            memory: unsafe { raw.get_physical_device_memory_properties(physical) },
            // SAFETY: as above.
            families: unsafe { raw.get_physical_device_queue_family_properties(physical) },
            parts: parts(raw, physical, base.api_version, &extensions),
            memory_types: u32::MAX,
            pipeline_uuid: base.pipeline_cache_uuid,
        }
    }

    /// Lets a test change what the device said.
    pub fn alter(&mut self, faults: &dyn Faults) {
        let mut told = Told { api: self.api, memory_types: u32::MAX, can_compute: true };
        faults.alter(&mut told);
        self.api = told.api;
        self.memory_types = told.memory_types;
        if !told.can_compute {
            for family in &mut self.families {
                family.queue_flags &= !vk::QueueFlags::COMPUTE;
            }
        }
    }

    /// Refuses devices that the backend can not use.
    pub fn check(&self) -> Result<(), OpenError> {
        if self.api < vk::API_VERSION_1_2 {
            let (major, minor) = (vk::api_version_major(self.api), vk::api_version_minor(self.api));
            return Err(OpenError::TooOld { major, minor });
        }
        if !self.parts.has(Part::TimelineSemaphore) {
            return Err(OpenError::NoTimelineSemaphores);
        }
        let compute =
            |f: &vk::QueueFamilyProperties| f.queue_flags.contains(vk::QueueFlags::COMPUTE);
        if self.families.iter().any(compute) { Ok(()) } else { Err(OpenError::NoQueue) }
    }

    /// Higher is better: real GPUs before software, discrete before integrated, then memory.
    pub fn score(&self) -> (u8, u64) {
        let kind = match self.kind {
            vk::PhysicalDeviceType::DISCRETE_GPU => 4,
            vk::PhysicalDeviceType::VIRTUAL_GPU => 3,
            vk::PhysicalDeviceType::INTEGRATED_GPU => 2,
            vk::PhysicalDeviceType::OTHER => 1,
            _ => 0,
        };
        let heaps = self.memory.memory_heaps_as_slice().iter();
        let local = heaps.filter(|h| h.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
        (kind, local.map(|h| h.size).sum())
    }
}

fn extensions(raw: &ash::Instance, physical: vk::PhysicalDevice) -> Vec<vk::ExtensionProperties> {
    // SAFETY: the physical device belongs to the instance, which is alive.
    unsafe { raw.enumerate_device_extension_properties(physical) }.unwrap_or_default()
}

fn parts(
    raw: &ash::Instance,
    physical: vk::PhysicalDevice,
    api: u32,
    extensions: &[vk::ExtensionProperties],
) -> Parts {
    let listed = |part: Part| match part.extension() {
        Some(name) => {
            extensions.iter().any(|e| e.extension_name_as_c_str().is_ok_and(|n| n == name))
        }
        None => true,
    };
    let mut twelve = vk::PhysicalDeviceVulkan12Features::default();
    let mut priority = vk::PhysicalDeviceMemoryPriorityFeaturesEXT::default();
    let mut all = vk::PhysicalDeviceFeatures2::default();
    if api >= vk::API_VERSION_1_2 {
        all = all.push_next(&mut twelve);
    }
    if listed(Part::MemoryPriority) {
        all = all.push_next(&mut priority);
    }
    // SAFETY: the chain holds only structs that the device's version and extensions have.
    unsafe { raw.get_physical_device_features2(physical, &mut all) };
    let core = all.features;
    let has = |part: Part| {
        listed(part)
            && match part {
                Part::TimelineSemaphore => twelve.timeline_semaphore != 0,
                Part::BufferDeviceAddress => twelve.buffer_device_address != 0,
                Part::SparseBinding => core.sparse_binding != 0,
                Part::SparseResidencyBuffer => core.sparse_residency_buffer != 0,
                Part::SparseResidencyAliased => core.sparse_residency_aliased != 0,
                Part::MemoryPriority => priority.memory_priority != 0,
                Part::ShaderInt64 => core.shader_int64 != 0,
                Part::MemoryBudget | Part::ExternalMemoryFd => true,
                // Of the instance; whoever made that knows.
                Part::DebugUtils => false,
            }
    };
    Part::ALL.into_iter().filter(|part| has(*part)).collect()
}
