//! Host-visible buffers for data on its way, used again and again.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use ash::vk;
use gpu_allocator::MemoryLocation;
use gpu_allocator::vulkan::AllocationScheme;
use terrane_core::device::{DeviceError, Feature};

use super::buffers::{Buffer, Buffers};
use super::fixed::{Fixed, FixedMemory, FixedWish};

/// The largest chunk; longer data is cut into several.
pub const MAX_CHUNK: u64 = 4 << 20;
const MIN_CHUNK: u64 = 16 << 10;
/// Chunks kept for later, in bytes per direction.
const KEPT: u64 = 64 << 20;

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The host writes, the device reads.
    Up = 0,
    /// The device writes, the host reads.
    Down = 1,
    /// Nowhere: the host does not see it. For kernels' own use.
    Local = 2,
}

/// Makes and keeps chunks.
pub struct Staging {
    fixed: Arc<Fixed>,
    buffers: Arc<Buffers>,
    /// The memory type for each way.
    types: [Option<u32>; 3],
    free: [Mutex<Vec<Block>>; 3],
}

struct Block {
    buffer: Buffer,
    memory: FixedMemory,
    pointer: NonNull<u8>,
    bytes: u64,
    address: Option<u64>,
}

// SAFETY: the pointer is to mapped memory that the block owns.
unsafe impl Send for Block {}

/// A buffer that the host sees, given back when dropped.
pub struct Chunk {
    staging: Arc<Staging>,
    block: Option<Block>,
    way: Way,
    pub buffer: vk::Buffer,
    pub address: Option<u64>,
    pointer: NonNull<u8>,
    bytes: u64,
    /// Bytes that the host sees.
    seen: usize,
}

// SAFETY: the pointer is to mapped memory that the chunk owns; shared borrows only read it.
unsafe impl Send for Chunk {}
// SAFETY: as above.
unsafe impl Sync for Chunk {}

impl Staging {
    pub fn new(
        fixed: Arc<Fixed>,
        buffers: Arc<Buffers>,
        memory: &vk::PhysicalDeviceMemoryProperties,
        allowed: u32,
    ) -> Self {
        let types = [Way::Up, Way::Down, Way::Local].map(|way| pick(memory, allowed, way));
        Self { fixed, buffers, types, free: Default::default() }
    }

    /// A chunk of at least `bytes`, at most [`MAX_CHUNK`].
    pub fn take(self: &Arc<Self>, way: Way, bytes: u64) -> Result<Chunk, DeviceError> {
        if bytes > MAX_CHUNK {
            return Err(DeviceError::TooLarge { bytes, limit: MAX_CHUNK });
        }
        let bytes = bytes.max(MIN_CHUNK).next_power_of_two();
        let kept = {
            let mut free = self.free[way as usize].lock().unwrap_or_else(PoisonError::into_inner);
            free.iter().position(|block| block.bytes == bytes).map(|at| free.swap_remove(at))
        };
        let block = match kept {
            Some(block) => block,
            None => self.make(way, bytes)?,
        };
        Ok(Chunk {
            staging: Arc::clone(self),
            buffer: block.buffer.raw,
            address: block.address,
            pointer: block.pointer,
            seen: if way == Way::Local { 0 } else { usize::try_from(block.bytes).unwrap_or(0) },
            bytes: block.bytes,
            block: Some(block),
            way,
        })
    }

    fn make(&self, way: Way, bytes: u64) -> Result<Block, DeviceError> {
        let kind =
            self.types[way as usize].ok_or(DeviceError::Unsupported(Feature::HostMapping))?;
        let (name, location) = match way {
            Way::Up => ("terrane upload", MemoryLocation::CpuToGpu),
            Way::Down => ("terrane readback", MemoryLocation::GpuToCpu),
            Way::Local => ("terrane scratch", MemoryLocation::GpuOnly),
        };
        let buffer = self.buffers.create(bytes, vk::BufferCreateFlags::empty(), false)?;
        let needs = buffer.needs();
        let memory = self.fixed.allocate(&FixedWish {
            name,
            needs: vk::MemoryRequirements {
                size: needs.bytes,
                alignment: needs.align,
                memory_type_bits: needs.types,
            },
            kind,
            location,
            linear: true,
            scheme: AllocationScheme::GpuAllocatorManaged,
        })?;
        let (raw, offset) = (
            // SAFETY: the memory is used through this handle while the allocation lives only.
            unsafe { memory.allocation.memory() },
            memory.allocation.offset(),
        );
        let pointer = match way {
            Way::Local => Some(NonNull::dangling()),
            _ => memory.allocation.mapped_ptr().map(NonNull::cast),
        };
        // SAFETY: the allocation was made for this buffer; the block drops the buffer first.
        let bound = unsafe { buffer.bind(raw, offset) };
        match (bound, pointer) {
            (Ok(()), Some(pointer)) => {
                buffer.name(name);
                let address = buffer.address();
                Ok(Block { buffer, memory, pointer, bytes, address })
            }
            (bound, _) => {
                drop(buffer);
                self.fixed.free(memory);
                Err(bound.err().unwrap_or(DeviceError::OutOfMemory { bytes }))
            }
        }
    }

    fn give_back(&self, way: Way, block: Block) {
        let mut free = self.free[way as usize].lock().unwrap_or_else(PoisonError::into_inner);
        let kept: u64 = free.iter().map(|b| b.bytes).sum();
        if kept + block.bytes <= KEPT {
            free.push(block);
        } else {
            drop(free);
            self.destroy(block);
        }
    }

    fn destroy(&self, block: Block) {
        let Block { buffer, memory, .. } = block;
        drop(buffer);
        self.fixed.free(memory);
    }

    /// Gives the chunks kept for later back to the driver; bytes given back.
    pub fn trim(&self) -> u64 {
        let before = self.fixed.reserved();
        for free in &self.free {
            let blocks = std::mem::take(&mut *free.lock().unwrap_or_else(PoisonError::into_inner));
            for block in blocks {
                self.destroy(block);
            }
        }
        before.saturating_sub(self.fixed.reserved())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.trim();
    }
}

/// Staging memory is coherent always, so that nothing needs to be flushed.
fn pick(memory: &vk::PhysicalDeviceMemoryProperties, allowed: u32, way: Way) -> Option<u32> {
    use vk::MemoryPropertyFlags as Flags;
    let needed = match way {
        Way::Local => Flags::DEVICE_LOCAL,
        _ => Flags::HOST_VISIBLE | Flags::HOST_COHERENT,
    };
    let rank = |flags: Flags| {
        let cached = flags.contains(Flags::HOST_CACHED);
        let local = flags.contains(Flags::DEVICE_LOCAL);
        match way {
            Way::Up => (local, cached),
            Way::Down => (!cached, local),
            Way::Local => (flags.contains(Flags::HOST_VISIBLE), cached),
        }
    };
    (0_u32..)
        .zip(memory.memory_types_as_slice())
        .filter(|(index, t)| allowed & (1 << index) != 0 && t.property_flags.contains(needed))
        .min_by_key(|(_, t)| rank(t.property_flags))
        .map(|(index, _)| index)
}

impl Chunk {
    /// Bytes of the buffer.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// The bytes, to read; none of a local chunk.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is mapped while the chunk lives. Work that writes to it is done
        // before anybody reads.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.seen) }
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the chunk is not submitted yet.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.seen) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.staging.give_back(self.way, block);
        }
    }
}
