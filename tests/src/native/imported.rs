//! Exported memory, opened by a Vulkan program: a buffer of its own over the memory that a
//! descriptor names.

use std::os::fd::{FromRawFd as _, OwnedFd};

use ash::vk;
use terrane::core::device::{Device, DeviceError, MemoryKind, Place, SpaceId, StreamId, SyncPoint};
use terrane::vulkan::VulkanDevice;

use super::vulkan::Program;
use super::{Imported, Imports};

const OPAQUE: vk::ExternalMemoryHandleTypeFlags = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;

struct Bound {
    device: VulkanDevice,
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
}

fn told<T>(call: &'static str, answer: Result<T, vk::Result>) -> Result<T, DeviceError> {
    answer.map_err(|result| DeviceError::Driver { call, code: result.as_raw() })
}

impl Imports for Program {
    fn import(&self, space: SpaceId, bytes: u64) -> Result<Box<dyn Imported>, DeviceError> {
        let device = self.device();
        let class = device.caps().classes_of(MemoryKind::Device).next();
        let class = class.and_then(|class| device.caps().class(class));
        let native = class.ok_or(DeviceError::InvalidCall("no device memory"))?.native;
        let mut bound = Bound {
            device: device.clone(),
            buffer: vk::Buffer::null(),
            memory: vk::DeviceMemory::null(),
        };
        let usage = vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST;
        let mut external = vk::ExternalMemoryBufferCreateInfo::default().handle_types(OPAQUE);
        let info = vk::BufferCreateInfo::default().size(bytes).usage(usage);
        let info = info.push_next(&mut external);
        let ash = device.ash();
        // SAFETY: `info` and its chain live through the call.
        bound.buffer = told("vkCreateBuffer", unsafe { ash.create_buffer(&info, None) })?;
        // The driver's own once it is imported.
        let fd = device.export_fd(space)?;
        let mut import = vk::ImportMemoryFdInfoKHR::default().handle_type(OPAQUE).fd(fd);
        let info = vk::MemoryAllocateInfo::default().allocation_size(bytes);
        let info = info.memory_type_index(native).push_next(&mut import);
        // SAFETY: `info` and its chain live through the call; size and type are those exported.
        let answer = unsafe { ash.allocate_memory(&info, None) };
        bound.memory = told("vkAllocateMemory", answer).inspect_err(|_| {
            // SAFETY: the descriptor is the caller's where it was not imported.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        })?;
        // SAFETY: the memory is as long as the buffer, which is bound to nothing yet.
        let answer = unsafe { ash.bind_buffer_memory(bound.buffer, bound.memory, 0) };
        told("vkBindBufferMemory", answer)?;
        Ok(Box::new(bound))
    }
}

impl Bound {
    fn copy(
        &self,
        stream: StreamId,
        [from, to]: [(vk::Buffer, u64); 2],
        bytes: u64,
    ) -> Result<SyncPoint, DeviceError> {
        let all = vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE;
        let barrier = [vk::MemoryBarrier::default().src_access_mask(all).dst_access_mask(all)];
        let stage = vk::PipelineStageFlags::ALL_COMMANDS;
        let part = vk::BufferCopy { src_offset: from.1, dst_offset: to.1, size: bytes };
        // SAFETY: both buffers live until the suite has waited for the copy. Nobody else knows
        // that the memory has two buffers, so barriers stand before and behind it.
        unsafe {
            self.device.record(stream, |ash, commands| {
                let none = vk::DependencyFlags::empty();
                ash.cmd_pipeline_barrier(commands, stage, stage, none, &barrier, &[], &[]);
                ash.cmd_copy_buffer(commands, from.0, to.0, &[part]);
                ash.cmd_pipeline_barrier(commands, stage, stage, none, &barrier, &[], &[]);
            })
        }
    }
}

impl Imported for Bound {
    fn copy_to(&self, stream: StreamId, to: Place, bytes: u64) -> Result<SyncPoint, DeviceError> {
        let raw = self.device.raw(to)?;
        self.copy(stream, [(self.buffer, 0), (raw.buffer, raw.offset)], bytes)
    }

    fn copy_from(
        &self,
        stream: StreamId,
        from: Place,
        bytes: u64,
    ) -> Result<SyncPoint, DeviceError> {
        let raw = self.device.raw(from)?;
        self.copy(stream, [(raw.buffer, raw.offset), (self.buffer, 0)], bytes)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let ash = self.device.ash();
        // SAFETY: the suite has waited for all work that uses them; null is nothing.
        unsafe {
            ash.destroy_buffer(self.buffer, None);
            ash.free_memory(self.memory, None);
        }
    }
}
