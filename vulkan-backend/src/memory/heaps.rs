//! What the driver says of the heaps.

use ash::vk;
use terrane_core::device::{DeviceError, HeapId, HeapUse};

use crate::device::Shared;

/// Memory of a heap now: the driver's word where VK_EXT_memory_budget gives it, else the heap's
/// size less what this device has taken.
pub fn heap_use(shared: &Shared, heap: HeapId) -> Result<HeapUse, DeviceError> {
    shared.driver.check()?;
    let index = usize::from(heap.0);
    let total = shared.caps.heaps.get(index).ok_or(DeviceError::InvalidCall("no such heap"))?.total;
    if !shared.driver.enabled.memory_budget {
        let ours = shared.objects.heap_bytes(index) + shared.fixed.heap_bytes(index);
        return Ok(HeapUse { total, free: total.saturating_sub(ours), process: None });
    }
    let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let mut all = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
    let instance = &shared.driver.instance.raw;
    // SAFETY: the device has the extension.
    unsafe {
        instance.get_physical_device_memory_properties2(shared.driver.physical, &mut all);
    }
    let (allowed, used) = (budget.heap_budget[index], budget.heap_usage[index]);
    Ok(HeapUse { total, free: allowed.saturating_sub(used), process: Some(used) })
}
