//! Making the `VkDevice`.

use std::ffi::CStr;

use ash::vk;

use crate::error::{OpenError, meaning};
use crate::instance::Instance;

use super::parts::{Part, Parts};
use super::queues::WantedQueue;

/// The structs that turn parts on, to be put into a device's chain by [`Features::chain`].
#[derive(Default)]
pub struct Features {
    /// Features of Vulkan 1.0.
    pub core: vk::PhysicalDeviceFeatures,
    /// `timelineSemaphore`.
    pub timeline: vk::PhysicalDeviceTimelineSemaphoreFeatures<'static>,
    /// `bufferDeviceAddress`.
    pub address: vk::PhysicalDeviceBufferDeviceAddressFeatures<'static>,
    /// `memoryPriority`; chained only when its extension is wanted.
    pub priority: vk::PhysicalDeviceMemoryPriorityFeaturesEXT<'static>,
    parts: Parts,
}

impl Features {
    /// Those for `parts`.
    pub fn new(parts: Parts) -> Self {
        let on = |part: Part| vk::Bool32::from(parts.has(part));
        let mut features = Self { parts, ..Self::default() };
        features.core.sparse_binding = on(Part::SparseBinding);
        features.core.sparse_residency_buffer = on(Part::SparseResidencyBuffer);
        features.core.sparse_residency_aliased = on(Part::SparseResidencyAliased);
        features.core.shader_int64 = on(Part::ShaderInt64);
        features.timeline.timeline_semaphore = on(Part::TimelineSemaphore);
        features.address.buffer_device_address = on(Part::BufferDeviceAddress);
        features.priority.memory_priority = on(Part::MemoryPriority);
        features
    }

    /// Puts the structs into a device's chain.
    pub fn chain<'a>(&'a mut self, info: vk::DeviceCreateInfo<'a>) -> vk::DeviceCreateInfo<'a> {
        let mut info = info
            .enabled_features(&self.core)
            .push_next(&mut self.timeline)
            .push_next(&mut self.address);
        if self.parts.has(Part::MemoryPriority) {
            info = info.push_next(&mut self.priority);
        }
        info
    }
}

/// The extensions of parts.
pub fn extensions(parts: Parts) -> Vec<&'static CStr> {
    parts.iter().filter_map(Part::extension).collect()
}

/// Makes a device with `parts`, `queues` and further `extensions`.
pub fn device(
    instance: &Instance,
    physical: vk::PhysicalDevice,
    parts: Parts,
    queues: &[WantedQueue],
    more: &[&'static CStr],
) -> Result<ash::Device, OpenError> {
    let mut families: Vec<u32> = queues.iter().map(|q| q.family).collect();
    families.sort_unstable();
    families.dedup();
    let priorities: Vec<Vec<f32>> = families
        .iter()
        .map(|family| {
            let mut of: Vec<_> = queues.iter().filter(|q| q.family == *family).collect();
            of.sort_by_key(|q| q.index);
            of.iter().map(|q| q.priority).collect()
        })
        .collect();
    let infos: Vec<_> = families
        .iter()
        .zip(&priorities)
        .map(|(family, priorities)| {
            vk::DeviceQueueCreateInfo::default()
                .queue_family_index(*family)
                .queue_priorities(priorities)
        })
        .collect();
    let mut names = extensions(parts);
    names.extend(more.iter().filter(|name| !extensions(parts).contains(name)));
    let pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
    let mut features = Features::new(parts);
    let info = vk::DeviceCreateInfo::default()
        .queue_create_infos(&infos)
        .enabled_extension_names(&pointers);
    let info = features.chain(info);
    // SAFETY: the physical device belongs to the instance; `info` and its chain live through the
    // call and name only what the device has.
    let device = unsafe { instance.raw.create_device(physical, &info, None) };
    device.map_err(|result| match result {
        vk::Result::ERROR_EXTENSION_NOT_PRESENT => {
            OpenError::ExtensionMissing(more.first().and_then(|n| n.to_str().ok()).unwrap_or("?"))
        }
        other => OpenError::Device(meaning("vkCreateDevice", other, 0)),
    })
}
