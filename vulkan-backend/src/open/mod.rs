//! Opening: from names to a working device, or a typed reason why not.

pub mod caps;
pub mod create;
mod parts;
mod queues;
mod survey;
mod wanted;

use std::ffi::CStr;
use std::sync::Arc;

use ash::vk;
use terrane_core::device::DeviceInfo;

use crate::device::VulkanDevice;
use crate::driver::{Driver, Enabled, Faults};
use crate::error::OpenError;
use crate::instance::Instance;
use crate::stream::Queue;

pub use create::Features;
pub use parts::{Part, Parts};
pub use queues::{Role, WantedQueue, plan};
pub use survey::Survey;
pub use wanted::{HostQueue, Wanted, wanted};

/// Which device to open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Selector {
    /// A real GPU before a software device; among equals the one with the most memory.
    #[default]
    Best,
    /// The first whose name contains this text, without regard to case.
    Name(String),
    /// By its number in [`list`].
    Index(u32),
    /// By its UUID, which CUDA shares.
    Uuid([u8; 16]),
}

impl Selector {
    /// Reads `best`, a number, 32 hexadecimal digits (with or without hyphens), or a part of a
    /// name. The empty text means `best`.
    pub fn parse(text: &str) -> Self {
        if text.is_empty() || text.eq_ignore_ascii_case("best") {
            return Self::Best;
        }
        if let Ok(index) = text.parse() {
            return Self::Index(index);
        }
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        match u128::from_str_radix(&digits, 16) {
            Ok(uuid) if digits.len() == 32 => Self::Uuid(uuid.to_be_bytes()),
            _ => Self::Name(text.to_owned()),
        }
    }

    fn choose(&self, surveys: &[Survey]) -> Option<usize> {
        let find = |f: &dyn Fn(&Survey) -> bool| surveys.iter().position(f);
        match self {
            Self::Best => {
                // The last maximum would win, so count from the back: the first among equals.
                let usable = (0..surveys.len()).rev().filter(|i| surveys[*i].check().is_ok());
                usable.max_by_key(|i| surveys[*i].score()).or_else(|| find(&|_| true))
            }
            Self::Name(name) => {
                let name = name.to_lowercase();
                find(&|s| s.info.name.to_lowercase().contains(&name))
            }
            Self::Index(index) => find(&|s| s.info.index == *index),
            Self::Uuid(uuid) => find(&|s| s.info.uuid == Some(*uuid)),
        }
    }
}

/// Choices that a program has no reason to make; zero and false mean what is usual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Bytes that one workgroup of a built-in kernel works on.
    pub tile_bytes: u64,
    /// Make paged segments without the alias flag. Pages must not be mapped twice then, and there
    /// are no views of them.
    pub unaliased: bool,
}

/// How to open a device.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// Turn the validation layer on, with synchronization validation; its messages are kept for
    /// [`VulkanDevice::validation_messages`]. For tests.
    pub validation: bool,
    /// Parts not to be used although the device has them.
    pub without: Parts,
    /// Device extensions to enable for the program's own use.
    pub extensions: Vec<&'static CStr>,
    /// Uses of buffers beyond those that need no feature.
    pub buffer_usage: vk::BufferUsageFlags,
    /// Offer the host's memory as the last resort for kind `Device`.
    pub spill_to_host: bool,
    /// Skip measuring copy against gather; the driver's copy is preferred then.
    pub skip_calibration: bool,
    /// What [`VulkanDevice::pipeline_cache`] gave in an earlier run; wrong data does no harm.
    pub pipeline_cache: Vec<u8>,
    /// What is otherwise chosen, for measurements.
    pub tuning: Tuning,
    /// Makes driver calls fail, for tests.
    pub faults: Option<Arc<dyn Faults>>,
}

/// The devices of this machine, usable or not, in the driver's order.
///
/// # Errors
/// [`OpenError::NoLoader`], [`OpenError::NoInstance`], [`OpenError::NoDriver`].
pub fn list() -> Result<Vec<DeviceInfo>, OpenError> {
    let instance = Instance::load(false)?;
    Ok(surveys(&instance, &instance.devices()?).into_iter().map(|s| s.info).collect())
}

fn surveys(instance: &Instance, devices: &[vk::PhysicalDevice]) -> Vec<Survey> {
    (0..).zip(devices).map(|(index, device)| Survey::of(instance, *device, index)).collect()
}

/// Opens a device of its own.
///
/// # Errors
/// Each variant of [`OpenError`] says what to install or change.
pub fn open(selector: &Selector, options: &OpenOptions) -> Result<VulkanDevice, OpenError> {
    let instance = Arc::new(Instance::load(options.validation)?);
    let physicals = instance.devices()?;
    let mut surveys = surveys(&instance, &physicals);
    let devices = surveys.len() as u32;
    let at = selector.choose(&surveys).ok_or(OpenError::NoSuchDevice { devices })?;
    let (mut survey, physical) = (surveys.swap_remove(at), physicals[at]);
    if let Some(faults) = &options.faults {
        survey.alter(&**faults);
    }
    survey.check()?;
    let parts: Parts = survey.parts.iter().filter(|p| !options.without.has(*p)).collect();
    if !parts.has(Part::TimelineSemaphore) {
        return Err(OpenError::NoTimelineSemaphores);
    }
    has_extensions(&instance, physical, &options.extensions)?;
    let wanted = plan(&survey.families, parts.can_page());
    let device = create::device(&instance, physical, parts, &wanted, &options.extensions)?;
    let queues = wanted
        .iter()
        .map(|w| {
            // SAFETY: the device was made with these queues.
            let raw = unsafe { device.get_device_queue(w.family, w.index) };
            let flags = survey.families[w.family as usize].queue_flags;
            Arc::new(Queue::new(raw, w.family, flags, w.role, None))
        })
        .collect();
    let faults = options.faults.clone();
    let driver = Driver::new(instance, device, physical, enabled(parts), faults, true);
    VulkanDevice::build(Arc::new(driver), survey, queues, options)
}

/// What of `parts` the driver is called with.
pub fn enabled(parts: Parts) -> Enabled {
    Enabled {
        addresses: parts.has(Part::BufferDeviceAddress),
        sparse: parts.can_page(),
        memory_budget: parts.has(Part::MemoryBudget),
        memory_priority: parts.has(Part::MemoryPriority),
        external_fd: parts.has(Part::ExternalMemoryFd),
        int64: parts.has(Part::ShaderInt64),
    }
}

fn has_extensions(
    instance: &Instance,
    physical: vk::PhysicalDevice,
    wanted: &[&'static CStr],
) -> Result<(), OpenError> {
    // SAFETY: the physical device belongs to the instance.
    let list = unsafe { instance.raw.enumerate_device_extension_properties(physical) };
    let list = list.unwrap_or_default();
    let there =
        |name: &CStr| list.iter().any(|e| e.extension_name_as_c_str().is_ok_and(|n| n == name));
    match wanted.iter().find(|name| !there(name)) {
        Some(name) => Err(OpenError::ExtensionMissing(name.to_str().unwrap_or("?"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_read_from_text() {
        assert_eq!(Selector::parse(""), Selector::Best);
        assert_eq!(Selector::parse("Best"), Selector::Best);
        assert_eq!(Selector::parse("1"), Selector::Index(1));
        assert_eq!(Selector::parse("llvmpipe"), Selector::Name("llvmpipe".into()));
        let uuid = Selector::parse("00010203-0405-0607-0809-0a0b0c0d0e0f");
        assert_eq!(uuid, Selector::Uuid([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]));
    }
}
