//! Keeping Vulkan streams busy: they wait for a timeline semaphore that the host signals.

use std::sync::Arc;
use std::time::Duration;

use ash::vk;
use terrane::core::device::{Device, DeviceError, StreamId, StreamSpec, SyncPoint};
use terrane::vulkan::{VulkanDevice, WrappedTimeline};

use crate::busy::{Held, Keeper};
use crate::native::vulkan::Program;
use crate::native::{Foreign, Imports};

/// A program beside Terrane. It holds streams up where the device has a queue for each of three:
/// with fewer, a stream that waits holds up the others.
pub(crate) fn keeper(device: &VulkanDevice) -> Arc<dyn Keeper> {
    let (device, program) = (device.clone(), Program::new(device.clone()));
    let mut gates = Gates { device, program, independent: false };
    gates.independent = gates.are_independent().unwrap_or(false);
    Arc::new(gates)
}

struct Gates {
    device: VulkanDevice,
    program: Program,
    independent: bool,
}

impl Gates {
    fn are_independent(&self) -> Result<bool, DeviceError> {
        let device = &self.device;
        let streams = [(); 4].map(|()| device.create_stream(StreamSpec::default()));
        let held = self.hold(streams[0]?)?;
        let mut independent = true;
        for &stream in &streams[1..3] {
            // SAFETY: there are no commands.
            let point = unsafe { device.record(stream?, |_, _| {}) }?;
            independent &= device.wait_any(&[point], Duration::from_millis(300))?;
        }
        held.let_go();
        for stream in streams {
            let stream = stream?;
            device.wait_any(&[device.mark(stream)?], Duration::from_secs(10))?;
            device.retire_stream(stream)?;
        }
        Ok(independent)
    }
}

/// A semaphore, destroyed when the device lets go of it.
pub(crate) struct Semaphore {
    pub device: ash::Device,
    pub raw: vk::Semaphore,
}

impl Semaphore {
    /// A timeline that begins at 0.
    pub fn new(device: &VulkanDevice) -> Result<Self, DeviceError> {
        let mut kind =
            vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: timeline semaphores are enabled on every device of this backend.
        let raw = unsafe { device.ash().create_semaphore(&info, None) };
        let raw = raw.map_err(|_| DeviceError::OutOfMemory { bytes: 0 })?;
        Ok(Self { device: device.ash().clone(), raw })
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        // SAFETY: its last owner is gone, and with it all work that waits for it.
        unsafe { self.device.destroy_semaphore(self.raw, None) };
    }
}

struct Gate {
    semaphore: Arc<Semaphore>,
    device: VulkanDevice,
    timeline: StreamId,
    point: SyncPoint,
}

impl Keeper for Gates {
    fn hold(&self, stream: StreamId) -> Result<Box<dyn Held>, DeviceError> {
        let device = &self.device;
        let semaphore = Arc::new(Semaphore::new(device)?);
        let owner: Arc<dyn std::any::Any + Send + Sync> = semaphore.clone();
        let wrapped = WrappedTimeline { semaphore: semaphore.raw, owner: Some(owner) };
        // SAFETY: the semaphore is of this device and is kept by its owner.
        let timeline = unsafe { device.wrap_timeline(&wrapped) }?;
        let open = device.announce(timeline, 1)?;
        device.wait_on_stream(stream, &[open])?;
        // SAFETY: there are no commands.
        let point = unsafe { device.record(stream, |_, _| {}) }?;
        Ok(Box::new(Gate { semaphore, device: device.clone(), timeline, point }))
    }

    fn can_hold(&self) -> bool {
        self.independent
    }

    fn foreign(&self) -> Option<&dyn Foreign> {
        Some(&self.program)
    }

    fn imports(&self) -> Option<&dyn Imports> {
        Some(&self.program)
    }
}

impl Held for Gate {
    fn point(&self) -> SyncPoint {
        self.point
    }

    fn let_go(&self) {
        let info = vk::SemaphoreSignalInfo::default().semaphore(self.semaphore.raw).value(1);
        // SAFETY: the semaphore is alive. The second signal of a value is refused by nobody but
        // does nothing, so it is left out.
        unsafe {
            let device = &self.semaphore.device;
            if device.get_semaphore_counter_value(self.semaphore.raw) == Ok(0) {
                let _ = device.signal_semaphore(&info);
            }
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.let_go();
        let _ = self.device.wait_any(&[self.point], Duration::from_secs(10));
        let _ = self.device.retire_stream(self.timeline);
    }
}
