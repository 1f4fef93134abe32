//! `VkBuffer`s: made alike everywhere, usable on all queue families in use.

use std::sync::Arc;

use ash::vk;
use terrane_core::device::DeviceError;

use crate::calls::Call;
use crate::driver::Driver;

/// Makes buffers of one device.
pub struct Buffers {
    driver: Arc<Driver>,
    families: Vec<u32>,
    pub usage: vk::BufferUsageFlags,
}

/// What a driver wants for a buffer's memory.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    pub bytes: u64,
    pub align: u64,
    pub types: u32,
    pub dedicated: bool,
}

/// The uses that need no feature.
const USAGE: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::TRANSFER_SRC.as_raw()
        | vk::BufferUsageFlags::TRANSFER_DST.as_raw()
        | vk::BufferUsageFlags::UNIFORM_TEXEL_BUFFER.as_raw()
        | vk::BufferUsageFlags::STORAGE_TEXEL_BUFFER.as_raw()
        | vk::BufferUsageFlags::UNIFORM_BUFFER.as_raw()
        | vk::BufferUsageFlags::STORAGE_BUFFER.as_raw()
        | vk::BufferUsageFlags::INDEX_BUFFER.as_raw()
        | vk::BufferUsageFlags::VERTEX_BUFFER.as_raw()
        | vk::BufferUsageFlags::INDIRECT_BUFFER.as_raw(),
);

impl Buffers {
    /// For buffers shared by `families`, with `more` uses beside all that need no feature.
    pub fn new(driver: Arc<Driver>, families: Vec<u32>, more: vk::BufferUsageFlags) -> Self {
        let mut usage = USAGE | more;
        if driver.enabled.addresses {
            usage |= vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS;
        }
        Self { driver, families, usage }
    }

    /// Makes a buffer without memory.
    pub fn create(
        &self,
        bytes: u64,
        flags: vk::BufferCreateFlags,
        exportable: bool,
    ) -> Result<Buffer, DeviceError> {
        let mut external = vk::ExternalMemoryBufferCreateInfo::default()
            .handle_types(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        let mut info = vk::BufferCreateInfo::default().size(bytes).usage(self.usage).flags(flags);
        if self.families.len() > 1 {
            info =
                info.sharing_mode(vk::SharingMode::CONCURRENT).queue_family_indices(&self.families);
        }
        if exportable {
            info = info.push_next(&mut external);
        }
        // SAFETY: `info` is complete and lives through the call.
        let raw = self
            .driver
            .run(Call::CreateBuffer, bytes, |d| unsafe { d.create_buffer(&info, None) })?;
        self.driver.name(raw, "terrane buffer");
        Ok(Buffer { driver: Arc::clone(&self.driver), raw })
    }
}

/// A buffer, destroyed with this.
pub struct Buffer {
    driver: Arc<Driver>,
    pub raw: vk::Buffer,
}

impl Buffer {
    /// What its memory has to be.
    pub fn needs(&self) -> Needs {
        let mut dedicated = vk::MemoryDedicatedRequirements::default();
        let mut all = vk::MemoryRequirements2::default().push_next(&mut dedicated);
        let info = vk::BufferMemoryRequirementsInfo2::default().buffer(self.raw);
        // SAFETY: the buffer is alive.
        unsafe { self.driver.device.get_buffer_memory_requirements2(&info, &mut all) };
        let base = all.memory_requirements;
        Needs {
            bytes: base.size,
            align: base.alignment,
            types: base.memory_type_bits,
            dedicated: dedicated.requires_dedicated_allocation != 0,
        }
    }

    /// Gives it a name that debuggers show.
    pub fn name(&self, name: &str) {
        self.driver.name(self.raw, name);
    }

    /// Binds it to memory.
    ///
    /// # Safety
    /// The memory is alive, suits [`needs`](Self::needs) at this offset, and outlives the buffer.
    pub unsafe fn bind(&self, memory: vk::DeviceMemory, offset: u64) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        self.driver.run(Call::BindBufferMemory, 0, |d| unsafe {
            d.bind_buffer_memory(self.raw, memory, offset)
        })
    }

    /// The device address of its first byte, where the device has addresses. Pre: it is bound or
    /// sparse.
    pub fn address(&self) -> Option<u64> {
        let info = vk::BufferDeviceAddressInfo::default().buffer(self.raw);
        // SAFETY: the buffer is alive and was made for addresses when they are enabled.
        self.driver
            .enabled
            .addresses
            .then(|| unsafe { self.driver.device.get_buffer_device_address(&info) })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: nobody else owns the buffer; work that uses it is done, by the contract.
        self.driver.done(Call::DestroyBuffer, |d| unsafe { d.destroy_buffer(self.raw, None) });
    }
}
