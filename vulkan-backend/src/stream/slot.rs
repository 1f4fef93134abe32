//! A command buffer with all that one submission needs, used again and again.

use std::any::Any;
use std::sync::Arc;

use ash::vk;
use terrane_core::device::DeviceError;

use crate::calls::Call;
use crate::driver::Driver;

use super::timeline::Timeline;

/// Sets and storage buffers of one descriptor pool.
const SETS: u32 = 64;
const BUFFERS: u32 = 512;

/// A command buffer and its descriptor pools, and what its submission keeps alive.
pub struct Slot {
    driver: Arc<Driver>,
    pool: vk::CommandPool,
    pub commands: vk::CommandBuffer,
    descriptors: Vec<vk::DescriptorPool>,
    /// Descriptor pools that are full, counted from the first.
    full: usize,
    pub keep: Vec<Box<dyn Any + Send>>,
    pub waited: Vec<Arc<Timeline>>,
}

impl Slot {
    pub fn new(driver: &Arc<Driver>, family: u32, name: &str) -> Result<Self, DeviceError> {
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::TRANSIENT)
            .queue_family_index(family);
        // SAFETY: the family is one that the device was made with.
        let pool = driver
            .run(Call::CreateCommandPool, 0, |d| unsafe { d.create_command_pool(&info, None) })?;
        let mut slot = Self {
            driver: Arc::clone(driver),
            pool,
            commands: vk::CommandBuffer::null(),
            descriptors: Vec::new(),
            full: 0,
            keep: Vec::new(),
            waited: Vec::new(),
        };
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        // SAFETY: the pool was made just now. If this fails the slot is dropped with its pool.
        let list = driver.run(Call::AllocateCommandBuffers, 0, |d| unsafe {
            d.allocate_command_buffers(&info)
        })?;
        slot.commands = list.first().copied().unwrap_or_default();
        driver.name(slot.commands, name);
        driver.name(slot.pool, name);
        Ok(slot)
    }

    /// Makes the slot ready for another submission. Pre: the last one is done or never was made.
    pub fn reset(&mut self) -> Result<(), DeviceError> {
        self.keep.clear();
        self.waited.clear();
        self.full = 0;
        let (pool, flags) = (self.pool, vk::CommandPoolResetFlags::empty());
        self.driver.run(Call::ResetCommandPool, 0, |d| {
            // SAFETY: no submitted work uses the command buffer any more.
            unsafe { d.reset_command_pool(pool, flags) }
        })?;
        for &pool in &self.descriptors {
            // SAFETY: no submitted work uses the sets any more.
            self.driver.run(Call::ResetDescriptorPool, 0, |d| unsafe {
                d.reset_descriptor_pool(pool, vk::DescriptorPoolResetFlags::empty())
            })?;
        }
        Ok(())
    }

    /// A descriptor set that lives as long as the submission.
    pub fn set(
        &mut self,
        layout: vk::DescriptorSetLayout,
        buffers: u32,
    ) -> Result<vk::DescriptorSet, DeviceError> {
        loop {
            let fresh = self.full == self.descriptors.len();
            if fresh {
                let pool = self.new_pool(buffers)?;
                self.descriptors.push(pool);
            }
            let layouts = [layout];
            let info = vk::DescriptorSetAllocateInfo::default()
                .descriptor_pool(self.descriptors[self.full])
                .set_layouts(&layouts);
            // SAFETY: the pool is ours alone and the layout is alive.
            let sets = self.driver.try_run(Call::AllocateDescriptorSets, 0, |d| unsafe {
                d.allocate_descriptor_sets(&info)
            });
            match sets {
                Ok(sets) => return Ok(sets.first().copied().unwrap_or_default()),
                Err(vk::Result::ERROR_OUT_OF_POOL_MEMORY | vk::Result::ERROR_FRAGMENTED_POOL)
                    if !fresh =>
                {
                    self.full += 1;
                }
                Err(other) => {
                    let name = Call::AllocateDescriptorSets.name();
                    return Err(crate::error::meaning(name, other, 0));
                }
            }
        }
    }

    fn new_pool(&self, at_least: u32) -> Result<vk::DescriptorPool, DeviceError> {
        let sizes = [vk::DescriptorPoolSize {
            ty: vk::DescriptorType::STORAGE_BUFFER,
            descriptor_count: BUFFERS.max(at_least),
        }];
        let info = vk::DescriptorPoolCreateInfo::default().max_sets(SETS).pool_sizes(&sizes);
        // SAFETY: `info` is complete.
        let pool = self.driver.run(Call::CreateDescriptorPool, 0, |d| unsafe {
            d.create_descriptor_pool(&info, None)
        })?;
        self.driver.name(pool, "terrane descriptors");
        Ok(pool)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let driver = &self.driver;
        if !driver.is_here() {
            return;
        }
        // SAFETY: a slot is dropped when its submission is done, or when the device is idle.
        unsafe {
            for &pool in &self.descriptors {
                driver.device.destroy_descriptor_pool(pool, None);
            }
            driver.done(Call::DestroyCommandPool, |d| d.destroy_command_pool(self.pool, None));
        }
    }
}
