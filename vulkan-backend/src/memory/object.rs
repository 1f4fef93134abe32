//! Memory objects: `VkDeviceMemory`, counted against the device's limit on their number.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use ash::vk;
use terrane_core::device::{Class, DeviceError, Feature};

use crate::calls::Call;
use crate::driver::Driver;

/// Makes memory objects and counts them.
pub struct Objects {
    driver: Arc<Driver>,
    /// How many may exist at once.
    limit: u64,
    alive: AtomicU64,
    /// Bytes alive per heap.
    heaps: [AtomicU64; vk::MAX_MEMORY_HEAPS],
}

/// What a memory object is to be.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    pub class: Class,
    pub bytes: u64,
    pub exportable: bool,
    pub priority: f32,
    /// The only buffer that it may be bound to, where the driver insists.
    pub dedicated: Option<vk::Buffer>,
}

/// A memory object, freed with this.
pub struct Object {
    objects: Arc<Objects>,
    pub raw: vk::DeviceMemory,
    pub bytes: u64,
    pub class: Class,
    pub exportable: bool,
    pub dedicated: bool,
    mapped: Mutex<Option<Mapped>>,
}

#[derive(Clone, Copy)]
struct Mapped(NonNull<u8>);

// SAFETY: the pointer is only handed out; who uses it keeps the contract of `HostAccess`.
unsafe impl Send for Mapped {}

impl Objects {
    pub fn new(driver: Arc<Driver>, limit: u64) -> Self {
        Self { driver, limit, alive: AtomicU64::new(0), heaps: Default::default() }
    }

    /// Bytes of a heap in objects alive.
    pub fn heap_bytes(&self, heap: usize) -> u64 {
        self.heaps.get(heap).map_or(0, |bytes| bytes.load(Relaxed))
    }

    /// Objects alive.
    pub fn alive(&self) -> u64 {
        self.alive.load(Relaxed)
    }

    /// Makes one.
    pub fn allocate(self: &Arc<Self>, wish: &Wish, name: &str) -> Result<Object, DeviceError> {
        let too_many = DeviceError::TooManyObjects { limit: self.limit };
        // Reserved before the call, so that two threads can not both take the last one.
        self.alive
            .fetch_update(Relaxed, Relaxed, |n| (n < self.limit).then_some(n + 1))
            .map_err(|_| too_many)?;
        let result = self.allocate_counted(wish).map_err(|result| match result {
            vk::Result::ERROR_TOO_MANY_OBJECTS => too_many,
            other => crate::error::meaning(Call::AllocateMemory.name(), other, wish.bytes),
        });
        match result {
            Ok(raw) => {
                self.driver.name(raw, name);
                self.heaps[usize::from(wish.class.heap.0)].fetch_add(wish.bytes, Relaxed);
                Ok(Object {
                    objects: Arc::clone(self),
                    raw,
                    bytes: wish.bytes,
                    class: wish.class,
                    exportable: wish.exportable,
                    dedicated: wish.dedicated.is_some(),
                    mapped: Mutex::new(None),
                })
            }
            Err(error) => {
                self.alive.fetch_sub(1, Relaxed);
                Err(error)
            }
        }
    }

    fn allocate_counted(&self, wish: &Wish) -> Result<vk::DeviceMemory, vk::Result> {
        let enabled = self.driver.enabled;
        let mut flags =
            vk::MemoryAllocateFlagsInfo::default().flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
        let priority = if wish.priority.is_nan() { 0.5 } else { wish.priority.clamp(0.0, 1.0) };
        let mut priority = vk::MemoryPriorityAllocateInfoEXT::default().priority(priority);
        let mut export = vk::ExportMemoryAllocateInfo::default()
            .handle_types(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        let mut dedicated = vk::MemoryDedicatedAllocateInfo::default();
        let mut info = vk::MemoryAllocateInfo::default()
            .allocation_size(wish.bytes)
            .memory_type_index(wish.class.native);
        if enabled.addresses {
            info = info.push_next(&mut flags);
        }
        if enabled.memory_priority {
            info = info.push_next(&mut priority);
        }
        if wish.exportable {
            info = info.push_next(&mut export);
        }
        if let Some(buffer) = wish.dedicated {
            dedicated = dedicated.buffer(buffer);
            info = info.push_next(&mut dedicated);
        }
        // SAFETY: `info` and its chain live through the call and use only what is enabled.
        self.driver.try_run(Call::AllocateMemory, wish.bytes, |d| unsafe {
            d.allocate_memory(&info, None)
        })
    }
}

impl Object {
    /// The address at which the host sees the first byte; maps the object the first time.
    pub fn pointer(&self) -> Result<NonNull<u8>, DeviceError> {
        if !self.class.host_visible {
            return Err(DeviceError::Unsupported(Feature::HostMapping));
        }
        let mut mapped = self.mapped.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Mapped(pointer)) = *mapped {
            return Ok(pointer);
        }
        let flags = vk::MemoryMapFlags::empty();
        // SAFETY: the memory is host-visible, and not mapped yet since this lock is held.
        let pointer = self.objects.driver.run(Call::MapMemory, self.bytes, |d| unsafe {
            d.map_memory(self.raw, 0, vk::WHOLE_SIZE, flags)
        })?;
        let pointer = NonNull::new(pointer.cast())
            .ok_or(DeviceError::Driver { call: Call::MapMemory.name(), code: 0 })?;
        *mapped = Some(Mapped(pointer));
        Ok(pointer)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let objects = &self.objects;
        // SAFETY: nobody else owns the memory; work and buffers that use it are gone, by the
        // contract. Freeing unmaps.
        objects.driver.done(Call::FreeMemory, |d| unsafe { d.free_memory(self.raw, None) });
        objects.heaps[usize::from(self.class.heap.0)].fetch_sub(self.bytes, Relaxed);
        objects.alive.fetch_sub(1, Relaxed);
    }
}
