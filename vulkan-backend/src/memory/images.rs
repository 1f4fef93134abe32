//! Images: memory that never moves, out of the same budget as everything else.

use std::sync::Arc;

use ash::vk;
use gpu_allocator::MemoryLocation;
use gpu_allocator::vulkan::AllocationScheme;
use terrane_core::device::{DeviceError, Feature};

use crate::calls::Call;
use crate::device::VulkanDevice;
use crate::driver::Driver;

use super::fixed::{Fixed, FixedMemory, FixedWish};

/// A `VkImage` with its memory, both given back when this is dropped; no work may use it then.
pub struct Image {
    raw: vk::Image,
    bytes: u64,
    memory: Option<FixedMemory>,
    fixed: Arc<Fixed>,
    driver: Arc<Driver>,
}

impl VulkanDevice {
    /// Makes an image in device memory. Small ones share memory objects of 8 MiB; the driver's
    /// wish for memory of its own is met.
    ///
    /// # Safety
    /// `info` is valid for this device.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], and whatever the budget answers.
    pub unsafe fn image(
        &self,
        info: &vk::ImageCreateInfo<'_>,
        name: &str,
    ) -> Result<Image, DeviceError> {
        let s = &self.shared;
        s.driver.check()?;
        // SAFETY: the caller's promise.
        let raw = s.driver.run(Call::CreateImage, 0, |d| unsafe { d.create_image(info, None) })?;
        s.driver.name(raw, name);
        // From here on dropping `image` destroys what exists so far.
        let (fixed, driver) = (Arc::clone(&s.fixed), Arc::clone(&s.driver));
        let mut image = Image { raw, bytes: 0, memory: None, fixed, driver };
        let (needs, own) = image.needs();
        let types = s.survey.memory.memory_types_as_slice();
        let kind = device_type(types, needs.memory_type_bits)
            .ok_or(DeviceError::Unsupported(Feature::MemoryKind))?;
        let scheme = if own {
            AllocationScheme::DedicatedImage(raw)
        } else {
            AllocationScheme::GpuAllocatorManaged
        };
        let linear = info.tiling == vk::ImageTiling::LINEAR;
        let location = MemoryLocation::GpuOnly;
        let memory =
            s.fixed.allocate(&FixedWish { name, needs, kind, location, linear, scheme })?;
        let offset = memory.allocation.offset();
        // SAFETY: the memory is used through this handle only while the allocation lives.
        let object = unsafe { memory.allocation.memory() };
        image.bytes = needs.size;
        image.memory = Some(memory);
        // SAFETY: the memory was allocated for this image's needs.
        s.driver.run(Call::BindImageMemory, 0, |d| unsafe {
            d.bind_image_memory(raw, object, offset)
        })?;
        Ok(image)
    }
}

impl Image {
    /// The image.
    pub fn raw(&self) -> vk::Image {
        self.raw
    }

    /// Bytes of memory that it takes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What its memory has to be, and whether the driver wants an object of its own for it.
    fn needs(&self) -> (vk::MemoryRequirements, bool) {
        let mut dedicated = vk::MemoryDedicatedRequirements::default();
        let mut all = vk::MemoryRequirements2::default().push_next(&mut dedicated);
        let info = vk::ImageMemoryRequirementsInfo2::default().image(self.raw);
        // SAFETY: the image is alive.
        unsafe { self.driver.device.get_image_memory_requirements2(&info, &mut all) };
        let needs = all.memory_requirements;
        let own = dedicated.prefers_dedicated_allocation | dedicated.requires_dedicated_allocation;
        (needs, own != 0)
    }
}

/// The first device-local memory type that suits.
fn device_type(types: &[vk::MemoryType], allowed: u32) -> Option<u32> {
    let local = vk::MemoryPropertyFlags::DEVICE_LOCAL;
    let suits =
        |i: u32, t: &vk::MemoryType| allowed & (1 << i) != 0 && t.property_flags.contains(local);
    (0_u32..).zip(types).find(|(i, t)| suits(*i, t)).map(|(i, _)| i)
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: no work uses the image any more, by the contract.
        self.driver.done(Call::DestroyImage, |d| unsafe { d.destroy_image(self.raw, None) });
        if let Some(memory) = self.memory.take() {
            self.fixed.free(memory);
        }
    }
}
