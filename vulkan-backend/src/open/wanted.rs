//! A host program's own `VkDevice`: what to enable for Terrane, and taking the device over.

use std::ffi::CStr;
use std::sync::Arc;

use ash::vk;
use terrane_core::device::DeviceInfo;

use crate::device::VulkanDevice;
use crate::driver::Driver;
use crate::error::OpenError;
use crate::instance::Instance;
use crate::stream::{Queue, QueueLock};

use super::create::{Features, extensions};
use super::parts::{Part, Parts};
use super::queues::{Role, WantedQueue, plan};
use super::survey::Survey;
use super::{OpenOptions, enabled as switches};

/// What a host program should enable and create for Terrane on a device, as data.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The device.
    pub info: DeviceInfo,
    /// The features and extensions that the device has and Terrane can use. Only
    /// [`Part::TimelineSemaphore`] is required; [`Part::without`] says what each of the others
    /// is for.
    pub parts: Parts,
    /// The queues to create, the most useful first. One that computes is required;
    /// [`Role::without`] says what the others are for.
    pub queues: Vec<WantedQueue>,
}

impl Wanted {
    /// The device extensions of [`parts`](Self::parts).
    pub fn extensions(&self) -> Vec<&'static CStr> {
        extensions(self.parts)
    }

    /// The feature structs that turn [`parts`](Self::parts) on, for the `pNext` chain of
    /// `VkDeviceCreateInfo`; a program that builds its own chain sets the same members.
    pub fn features(&self) -> Features {
        Features::new(self.parts)
    }

    /// What is lost when only `enabled` of the parts are.
    pub fn lost(&self, enabled: Parts) -> Vec<(Part, &'static str)> {
        let lost = |part: &Part| !enabled.has(*part);
        self.parts.iter().filter(lost).map(|part| (part, part.without())).collect()
    }
}

/// What to enable on a device so that Terrane can use all of it.
///
/// # Safety
/// `physical` belongs to `instance`, and both are valid.
///
/// # Errors
/// [`OpenError::TooOld`], [`OpenError::NoTimelineSemaphores`], [`OpenError::NoQueue`].
pub unsafe fn wanted(
    entry: &ash::Entry,
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
) -> Result<Wanted, OpenError> {
    let instance = Instance::of_host(entry.clone(), instance.clone(), false);
    let survey = Survey::of(&instance, physical, 0);
    survey.check()?;
    let queues = plan(&survey.families, survey.parts.can_page());
    Ok(Wanted { info: survey.info, parts: survey.parts, queues })
}

/// A queue that a host program hands over.
#[derive(Clone)]
pub struct HostQueue {
    /// The queue.
    pub raw: vk::Queue,
    /// Its family.
    pub family: u32,
    /// What it is to be used for.
    pub role: Role,
    /// Given when the program goes on using the queue itself: both sides take turns by it.
    pub lock: Option<Arc<dyn QueueLock>>,
}

impl VulkanDevice {
    /// Works in a host program's `VkDevice`, which is never destroyed here.
    ///
    /// `enabled` are the parts that the program enabled when it made the device;
    /// [`Part::DebugUtils`] among them when its instance has `VK_EXT_debug_utils`. Of `options`,
    /// those about the instance and about extensions are ignored.
    ///
    /// # Safety
    /// All handles belong together and stay valid until the last clone of the device is dropped;
    /// `enabled` is the truth; the queues are used by nobody else except through their locks.
    ///
    /// # Errors
    /// As [`open`](super::open).
    pub unsafe fn from_host(
        entry: &ash::Entry,
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        device: &ash::Device,
        queues: &[HostQueue],
        enabled: Parts,
        options: &OpenOptions,
    ) -> Result<Self, OpenError> {
        let names = enabled.has(Part::DebugUtils);
        let instance = Arc::new(Instance::of_host(entry.clone(), instance.clone(), names));
        let survey = Survey::of(&instance, physical, 0);
        survey.check()?;
        let usable = |part: &Part| survey.parts.has(*part) && !options.without.has(*part);
        let parts: Parts = enabled.iter().filter(usable).collect();
        if !parts.has(Part::TimelineSemaphore) {
            return Err(OpenError::NoTimelineSemaphores);
        }
        let queues = queues.iter().filter_map(|queue| queue.take(&survey)).collect();
        let (device, faults) = (device.clone(), options.faults.clone());
        let driver = Driver::new(instance, device, physical, switches(parts), faults, false);
        Self::build(Arc::new(driver), survey, queues, options)
    }
}

impl HostQueue {
    fn take(&self, survey: &Survey) -> Option<Arc<Queue>> {
        let flags = survey.families.get(self.family as usize)?.queue_flags;
        Some(Arc::new(Queue::new(self.raw, self.family, flags, self.role, self.lock.clone())))
    }
}
