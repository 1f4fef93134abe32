//! Kernels made into pipelines.

use std::sync::Arc;

use ash::vk;
use terrane_core::device::DeviceError;

use crate::calls::Call;
use crate::driver::Driver;

/// The cache that all pipelines of a device are made through.
pub struct PipelineCache {
    driver: Arc<Driver>,
    raw: vk::PipelineCache,
}

impl PipelineCache {
    /// Begins with what an earlier run saved, if it fits this device and driver.
    pub fn new(driver: &Arc<Driver>, saved: &[u8], uuid: &[u8; 16]) -> Result<Self, DeviceError> {
        let saved = if fits(saved, uuid) { saved } else { &[] };
        let info = vk::PipelineCacheCreateInfo::default().initial_data(saved);
        // SAFETY: the data was made by this driver for this device, by its header.
        let raw = driver.run(Call::CreatePipelineCache, 0, |d| unsafe {
            d.create_pipeline_cache(&info, None)
        })?;
        driver.name(raw, "terrane pipeline cache");
        Ok(Self { driver: Arc::clone(driver), raw })
    }

    /// What a later run can begin with.
    pub fn data(&self) -> Result<Vec<u8>, DeviceError> {
        // SAFETY: the cache is alive.
        self.driver
            .run(Call::GetPipelineCacheData, 0, |d| unsafe { d.get_pipeline_cache_data(self.raw) })
    }
}

/// Whether saved data has the header of version one with this UUID; the UUID names the driver's
/// build and the device.
fn fits(saved: &[u8], uuid: &[u8; 16]) -> bool {
    let word =
        |at: usize| saved.get(at..at + 4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
    word(0).is_some_and(|length| length >= 32 && length as usize <= saved.len())
        && word(4) == Some(1)
        && saved.get(16..32) == Some(uuid)
}

impl Drop for PipelineCache {
    fn drop(&mut self) {
        if !self.driver.is_here() {
            return;
        }
        // SAFETY: nobody else owns the cache.
        unsafe { self.driver.device.destroy_pipeline_cache(self.raw, None) };
    }
}

/// What a pipeline is made from.
pub struct Recipe<'a> {
    pub words: &'a [u32],
    pub entry: &'a str,
    pub bindings: u32,
    pub push_bytes: u32,
    /// Whether dispatches may begin at other workgroups than the first.
    pub based: bool,
    pub name: &'a str,
}

/// A compute pipeline with its layouts.
pub struct Pipeline {
    driver: Arc<Driver>,
    pub raw: vk::Pipeline,
    pub layout: vk::PipelineLayout,
    pub set: vk::DescriptorSetLayout,
    pub push_bytes: u32,
}

impl Pipeline {
    pub fn new(
        driver: &Arc<Driver>,
        cache: &PipelineCache,
        recipe: &Recipe<'_>,
    ) -> Result<Self, DeviceError> {
        let bindings: Vec<_> = (0..recipe.bindings)
            .map(|i| {
                vk::DescriptorSetLayoutBinding::default()
                    .binding(i)
                    .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                    .descriptor_count(1)
                    .stage_flags(vk::ShaderStageFlags::COMPUTE)
            })
            .collect();
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        // From here on dropping `made` destroys what exists so far; destroying null is allowed.
        let mut made = Self {
            driver: Arc::clone(driver),
            raw: vk::Pipeline::null(),
            layout: vk::PipelineLayout::null(),
            set: vk::DescriptorSetLayout::null(),
            push_bytes: recipe.push_bytes,
        };
        // SAFETY: `info` is complete.
        made.set = driver.run(Call::CreateDescriptorSetLayout, 0, |d| unsafe {
            d.create_descriptor_set_layout(&info, None)
        })?;
        let sets = [made.set];
        let push = [vk::PushConstantRange::default()
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
            .size(recipe.push_bytes)];
        let push = if recipe.push_bytes == 0 { &[] } else { &push[..] };
        let info =
            vk::PipelineLayoutCreateInfo::default().set_layouts(&sets).push_constant_ranges(push);
        // SAFETY: as above.
        made.layout = driver.run(Call::CreatePipelineLayout, 0, |d| unsafe {
            d.create_pipeline_layout(&info, None)
        })?;
        made.raw = made.pipeline(cache, recipe)?;
        driver.name(made.raw, recipe.name);
        driver.name(made.layout, recipe.name);
        driver.name(made.set, recipe.name);
        Ok(made)
    }

    fn pipeline(
        &self,
        cache: &PipelineCache,
        recipe: &Recipe<'_>,
    ) -> Result<vk::Pipeline, DeviceError> {
        let driver = &self.driver;
        let entry = std::ffi::CString::new(recipe.entry)
            .map_err(|_| DeviceError::InvalidCall("an entry point's name with a zero in it"))?;
        let info = vk::ShaderModuleCreateInfo::default().code(recipe.words);
        // SAFETY: the words come from naga, are built in, or the caller of `load_unchecked`
        // vouches for them.
        let module = driver
            .run(Call::CreateShaderModule, 0, |d| unsafe { d.create_shader_module(&info, None) })?;
        driver.name(module, recipe.name);
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module)
            .name(&entry);
        let flags = if recipe.based {
            vk::PipelineCreateFlags::DISPATCH_BASE
        } else {
            vk::PipelineCreateFlags::empty()
        };
        let info = [vk::ComputePipelineCreateInfo::default()
            .stage(stage)
            .layout(self.layout)
            .flags(flags)];
        // SAFETY: the module and the layout are alive and fit each other.
        let made = driver.try_run(Call::CreateComputePipelines, 0, |d| unsafe {
            d.create_compute_pipelines(cache.raw, &info, None).map_err(|(_, result)| result)
        });
        // SAFETY: pipelines do not need their module once they are made.
        unsafe { driver.device.destroy_shader_module(module, None) };
        match made {
            Ok(list) => Ok(list.first().copied().unwrap_or_default()),
            Err(result) => {
                Err(crate::error::meaning(Call::CreateComputePipelines.name(), result, 0))
            }
        }
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        if !self.driver.is_here() {
            return;
        }
        let device = &self.driver.device;
        // SAFETY: submissions keep the pipelines that they use.
        unsafe {
            device.destroy_pipeline(self.raw, None);
            device.destroy_pipeline_layout(self.layout, None);
            device.destroy_descriptor_set_layout(self.set, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_pipelines_are_used_only_with_the_header_of_the_same_driver() {
        let uuid = [7; 16];
        let mut saved = vec![32, 0, 0, 0, 1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        saved.extend(uuid);
        assert!(fits(&saved, &uuid));
        assert!(!fits(&saved, &[8; 16]));
        assert!(!fits(&saved[..31], &uuid));
        assert!(!fits(&[], &uuid));
        saved[4] = 2;
        assert!(!fits(&saved, &uuid));
    }
}
