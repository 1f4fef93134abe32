//! Memory that never moves (staging, readback, images), from gpu-allocator, within the budget.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use ash::vk;
use gpu_allocator::vulkan::{
    Allocation, AllocationCreateDesc, AllocationScheme, Allocator, AllocatorCreateDesc,
};
use gpu_allocator::{AllocationError, AllocationSizes, AllocatorReport, MemoryLocation};
use terrane_core::device::{DeviceError, HeapId};

use crate::calls::Call;
use crate::driver::Driver;

use super::budget::{Budget, Unlimited};

/// Bytes of the memory objects that allocations share; larger ones get their own.
pub const BLOCK: u64 = 8 << 20;

/// The allocator for what never moves.
pub struct Fixed {
    // Before the driver, so that memory goes before the device.
    allocator: Mutex<Allocator>,
    driver: Arc<Driver>,
    budget: RwLock<Arc<dyn Budget>>,
    /// Bytes of memory objects held, per heap.
    heaps: [AtomicU64; vk::MAX_MEMORY_HEAPS],
    memory: vk::PhysicalDeviceMemoryProperties,
}

/// What an allocation is to be.
pub struct FixedWish<'a> {
    pub name: &'a str,
    pub needs: vk::MemoryRequirements,
    /// The memory type, which has to suit `needs` and `location`.
    pub kind: u32,
    pub location: MemoryLocation,
    /// Whether it holds a buffer or a linear image.
    pub linear: bool,
    pub scheme: AllocationScheme,
}

/// An allocation with the heap that it is counted in.
pub struct FixedMemory {
    pub allocation: Allocation,
    heap: HeapId,
}

impl Fixed {
    pub fn new(
        driver: &Arc<Driver>,
        memory: vk::PhysicalDeviceMemoryProperties,
    ) -> Result<Self, DeviceError> {
        let description = AllocatorCreateDesc {
            instance: driver.instance.raw.clone(),
            device: driver.device.clone(),
            physical_device: driver.physical,
            debug_settings: Default::default(),
            buffer_device_address: driver.enabled.addresses,
            allocation_sizes: AllocationSizes::new(BLOCK, BLOCK),
        };
        let allocator = Allocator::new(&description).map_err(|error| meaning(&error, 0))?;
        Ok(Self {
            driver: Arc::clone(driver),
            allocator: Mutex::new(allocator),
            budget: RwLock::new(Arc::new(Unlimited)),
            heaps: Default::default(),
            memory,
        })
    }

    /// Asks `budget` from now on, beginning with what is held already.
    pub fn set_budget(&self, budget: Arc<dyn Budget>) -> Result<(), DeviceError> {
        // No allocation may come between the count of what is held and the change.
        let _still = self.allocator.lock().unwrap_or_else(PoisonError::into_inner);
        let held: Vec<_> = (0_u8..)
            .zip(&self.heaps)
            .map(|(heap, bytes)| (HeapId(heap), bytes.load(Relaxed)))
            .filter(|(_, bytes)| *bytes > 0)
            .collect();
        for (done, &(heap, bytes)) in held.iter().enumerate() {
            if let Err(error) = budget.charge(heap, bytes) {
                held[..done].iter().for_each(|&(heap, bytes)| budget.refund(heap, bytes));
                return Err(error);
            }
        }
        *self.budget.write().unwrap_or_else(PoisonError::into_inner) = budget;
        Ok(())
    }

    /// Bytes of a heap held.
    pub fn heap_bytes(&self, heap: usize) -> u64 {
        self.heaps.get(heap).map_or(0, |bytes| bytes.load(Relaxed))
    }

    fn budget(&self) -> Arc<dyn Budget> {
        Arc::clone(&self.budget.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Allocates, after asking the budget for the most that this can take.
    pub fn allocate(&self, wish: &FixedWish<'_>) -> Result<FixedMemory, DeviceError> {
        let heap = HeapId(self.memory.memory_types[wish.kind as usize].heap_index as u8);
        let bytes = wish.needs.size;
        let most = bytes.max(BLOCK);
        let mut allocator = self.allocator.lock().unwrap_or_else(PoisonError::into_inner);
        let budget = self.budget();
        budget.charge(heap, most)?;
        let before = allocator.capacity();
        let requirements =
            vk::MemoryRequirements { memory_type_bits: 1 << wish.kind, ..wish.needs };
        let start = Instant::now();
        let result = self.driver.try_run(Call::AllocateFixed, bytes, |_| {
            Ok(allocator.allocate(&AllocationCreateDesc {
                name: wish.name,
                requirements,
                location: wish.location,
                linear: wish.linear,
                allocation_scheme: wish.scheme,
            }))
        });
        let taken = allocator.capacity().saturating_sub(before);
        self.heaps[usize::from(heap.0)].fetch_add(taken, Relaxed);
        drop(allocator);
        if taken > 0 {
            self.driver.count(Call::AllocateMemory, start.elapsed());
        }
        budget.refund(heap, most.saturating_sub(taken));
        match result {
            Ok(Ok(allocation)) => {
                if taken > 0 {
                    // SAFETY: the memory is named while its allocation is held.
                    let memory = unsafe { allocation.memory() };
                    self.driver.name(memory, "terrane staging and images");
                }
                Ok(FixedMemory { allocation, heap })
            }
            Ok(Err(error)) => Err(meaning(&error, bytes)),
            Err(code) => Err(crate::error::meaning(Call::AllocateFixed.name(), code, bytes)),
        }
    }

    /// Frees. Pre: no work uses the memory any more.
    pub fn free(&self, memory: FixedMemory) {
        let mut allocator = self.allocator.lock().unwrap_or_else(PoisonError::into_inner);
        let before = allocator.capacity();
        if let Err(error) = allocator.free(memory.allocation) {
            tracing::error!(%error, "gpu-allocator did not take an allocation back");
        }
        let given = before.saturating_sub(allocator.capacity());
        self.heaps[usize::from(memory.heap.0)].fetch_sub(given, Relaxed);
        let budget = self.budget();
        drop(allocator);
        budget.refund(memory.heap, given);
    }

    /// Bytes of memory objects held.
    pub fn reserved(&self) -> u64 {
        self.allocator.lock().unwrap_or_else(PoisonError::into_inner).capacity()
    }

    /// What is allocated where.
    pub fn report(&self) -> AllocatorReport {
        self.allocator.lock().unwrap_or_else(PoisonError::into_inner).generate_report()
    }
}

fn meaning(error: &AllocationError, bytes: u64) -> DeviceError {
    match error {
        AllocationError::OutOfMemory | AllocationError::FailedToMap(_) => {
            DeviceError::OutOfMemory { bytes }
        }
        other => {
            tracing::error!(%other, "gpu-allocator failed");
            DeviceError::Driver { call: "gpu-allocator", code: 0 }
        }
    }
}
