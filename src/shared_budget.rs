//! The allocator's budget, charged for memory that a Vulkan device takes for itself.

use std::sync::Arc;

use terrane_core::device::{DeviceError, HeapId};
use terrane_core::{Allocator, Budget, Error};
use terrane_vulkan::VulkanDevice;

/// Charges what the device holds, and all that it takes from now on, to the allocator's budget.
/// The device keeps no allocator alive; once it is gone, everything is allowed.
pub(crate) fn share(device: &VulkanDevice, alloc: &Allocator) -> Result<(), Error> {
    let budget = Charged(alloc.budget());
    Ok(device.set_budget(Arc::new(budget))?)
}

struct Charged(Budget);

impl terrane_vulkan::Budget for Charged {
    fn charge(&self, heap: HeapId, bytes: u64) -> Result<(), DeviceError> {
        self.0.charge(heap, bytes).map_err(|_| DeviceError::OutOfMemory { bytes })
    }

    fn refund(&self, heap: HeapId, bytes: u64) {
        self.0.refund(heap, bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use terrane_core::device::{Place, PlainSpec};
    use terrane_core::{Config, Limit, MemoryKind, Request};

    use super::*;
    use crate::{Choice, StreamSpec, open};

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_that_a_vulkan_device_takes_for_itself_counts_against_the_limit() {
        let opened = match open(&Choice::Vulkan(String::new())) {
            Ok(opened) => opened,
            Err(error) if std::env::var_os("TERRANE_REQUIRE_VULKAN").is_none() => {
                println!("skipped: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let device = opened.vulkan.clone().unwrap();
        device.trim_staging();
        // Room for the block and one memory object of staging (8 MiB), and nothing more.
        let config = Config::for_device(opened.device.caps());
        let alloc = opened.allocator(config.limit(Limit::Bytes(48 * MIB))).unwrap();
        let stream = opened.device.create_stream(StreamSpec::default()).unwrap();
        let block = alloc.buffer(&Request::new(4 * MIB, stream)).unwrap();
        let caps = opened.device.caps();
        let class = |kind| caps.classes_of(kind).next().unwrap();
        let heap = |kind| caps.class(class(kind)).unwrap().heap;
        let upload = heap(MemoryKind::Upload);
        let point = alloc.write(stream, block.handle(), 0, &[1; 4096]).unwrap();
        alloc.wait(point, Duration::from_secs(10)).unwrap();
        let same = upload == heap(MemoryKind::Device);
        let segments = if same { alloc.stats().reserved.current } else { 0 };
        let staging = 48 * MIB - alloc.budget_left(upload) - segments;
        assert!(staging >= 8 * MIB, "{staging} bytes are charged for staging");
        // Twelve chunks of 4 MiB at once are more than what is left.
        let whole = vec![2; 48 << 20];
        let spec = PlainSpec {
            class: class(MemoryKind::Device),
            bytes: 64 * MIB,
            exportable: false,
            priority: 0.5,
            name: "beside",
        };
        let beside = opened.device.create_plain(&spec).unwrap();
        let place = Place { space: beside.space, offset: 0 };
        let refused = opened.device.write(stream, place, &whole);
        assert!(matches!(refused, Err(DeviceError::OutOfMemory { .. })), "{refused:?}");
        drop((block, alloc));
        let point = opened.device.write(stream, place, &whole).unwrap();
        assert!(opened.device.wait_any(&[point], Duration::from_secs(10)).unwrap());
        opened.device.release_plain(beside.space).unwrap();
    }
}
