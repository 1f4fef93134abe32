//! Memory types and heaps turned into the classes of the contract. Pure functions.

use ash::vk::{self, MemoryPropertyFlags as Flags};
use terrane_core::device::{Class, Heap, HeapId, MemoryKind};

/// The most classes that one kind gets.
const PER_KIND: usize = 8;

/// The heaps, in the driver's order.
pub fn heaps(memory: &vk::PhysicalDeviceMemoryProperties) -> Vec<Heap> {
    let heap = |h: &vk::MemoryHeap| Heap {
        total: h.size,
        device_local: h.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL),
    };
    memory.memory_heaps_as_slice().iter().map(heap).collect()
}

/// The classes that serve each kind, the best first.
///
/// `allowed` has a bit for each memory type that can hold the backend's buffers. With `spill`,
/// memory of the host is the last resort for kind `Device`.
pub fn classes(
    memory: &vk::PhysicalDeviceMemoryProperties,
    allowed: u32,
    spill: bool,
) -> Vec<Class> {
    let mut classes = Vec::new();
    for kind in MemoryKind::ALL {
        let mut ranked: Vec<(u32, u32)> = (0_u32..)
            .zip(memory.memory_types_as_slice())
            .filter(|(index, t)| allowed & (1 << index) != 0 && usable(memory, t))
            .filter_map(|(index, t)| Some((rank(kind, t.property_flags, spill)?, index)))
            .collect();
        // The driver lists better types first, so the sort must keep its order among equals.
        ranked.sort_by_key(|(rank, _)| *rank);
        ranked.truncate(PER_KIND);
        classes.extend(ranked.into_iter().map(|(_, index)| class(memory, kind, index)));
    }
    classes
}

fn usable(memory: &vk::PhysicalDeviceMemoryProperties, t: &vk::MemoryType) -> bool {
    let special = Flags::PROTECTED
        | Flags::LAZILY_ALLOCATED
        | Flags::DEVICE_COHERENT_AMD
        | Flags::DEVICE_UNCACHED_AMD
        | Flags::RDMA_CAPABLE_NV;
    let heap = memory.memory_heaps_as_slice().get(t.heap_index as usize);
    !t.property_flags.intersects(special) && heap.is_some_and(|h| h.size > 0)
}

/// How well memory with `flags` serves `kind`, 0 the best; `None` where it can not.
fn rank(kind: MemoryKind, flags: Flags, spill: bool) -> Option<u32> {
    let local = flags.contains(Flags::DEVICE_LOCAL);
    let visible = flags.contains(Flags::HOST_VISIBLE);
    let coherent = flags.contains(Flags::HOST_COHERENT);
    let cached = flags.contains(Flags::HOST_CACHED);
    let penalty = |wanted: bool, weight: u32| if wanted { 0 } else { weight };
    match kind {
        MemoryKind::Device if local => Some(penalty(!visible, 1)),
        MemoryKind::Device => spill.then(|| 4 + penalty(!visible, 1)),
        _ if !visible => None,
        // The host writes in sequence: write-combined memory serves best, and the host's own, so
        // that the small window into device memory stays for those who ask for it.
        MemoryKind::Upload => Some(penalty(coherent, 4) + penalty(!local, 2) + penalty(!cached, 1)),
        // Uncached reads are a hundred times slower, so even flushing is better.
        MemoryKind::Readback => {
            Some(penalty(cached, 4) + penalty(coherent, 2) + penalty(!local, 1))
        }
        MemoryKind::Shared => Some(penalty(local, 4) + penalty(coherent, 2) + penalty(cached, 1)),
    }
}

fn class(memory: &vk::PhysicalDeviceMemoryProperties, kind: MemoryKind, index: u32) -> Class {
    let t = memory.memory_types[index as usize];
    let visible = t.property_flags.contains(Flags::HOST_VISIBLE) && kind != MemoryKind::Device;
    Class {
        kind,
        heap: HeapId(t.heap_index as u8),
        host_visible: visible,
        coherent: t.property_flags.contains(Flags::HOST_COHERENT),
        native: index,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: vk::MemoryHeapFlags = vk::MemoryHeapFlags::DEVICE_LOCAL;
    const HOST: vk::MemoryHeapFlags = vk::MemoryHeapFlags::empty();

    fn table(
        heaps: &[(u64, vk::MemoryHeapFlags)],
        types: &[(Flags, u32)],
    ) -> vk::PhysicalDeviceMemoryProperties {
        let mut memory = vk::PhysicalDeviceMemoryProperties {
            memory_heap_count: heaps.len() as u32,
            memory_type_count: types.len() as u32,
            ..Default::default()
        };
        for (slot, (size, flags)) in memory.memory_heaps.iter_mut().zip(heaps) {
            *slot = vk::MemoryHeap { size: *size, flags: *flags };
        }
        for (slot, (flags, heap)) in memory.memory_types.iter_mut().zip(types) {
            *slot = vk::MemoryType { property_flags: *flags, heap_index: *heap };
        }
        memory
    }

    fn natives(classes: &[Class], kind: MemoryKind) -> Vec<u32> {
        classes.iter().filter(|c| c.kind == kind).map(|c| c.native).collect()
    }

    fn discrete() -> vk::PhysicalDeviceMemoryProperties {
        let both = Flags::HOST_VISIBLE | Flags::HOST_COHERENT;
        table(
            &[(8 << 30, DEVICE), (16 << 30, HOST), (256 << 20, DEVICE)],
            &[
                (Flags::empty(), 1),
                (Flags::DEVICE_LOCAL, 0),
                (both, 1),
                (both | Flags::HOST_CACHED, 1),
                (Flags::DEVICE_LOCAL | both, 2),
            ],
        )
    }

    #[test]
    fn a_discrete_gpu_with_a_window_serves_each_kind_from_the_right_type() {
        let classes = classes(&discrete(), u32::MAX, false);
        assert_eq!(natives(&classes, MemoryKind::Device), [1, 4]);
        assert_eq!(natives(&classes, MemoryKind::Upload), [2, 3, 4]);
        assert_eq!(natives(&classes, MemoryKind::Readback), [3, 2, 4]);
        assert_eq!(natives(&classes, MemoryKind::Shared), [4, 3, 2]);
    }

    #[test]
    fn device_memory_spills_to_the_host_only_when_asked() {
        let classes = classes(&discrete(), u32::MAX, true);
        assert_eq!(natives(&classes, MemoryKind::Device), [1, 4, 0, 2, 3]);
    }

    #[test]
    fn types_that_can_not_hold_the_buffers_are_left_out() {
        let classes = classes(&discrete(), 0b01101, false);
        assert!(natives(&classes, MemoryKind::Device).is_empty());
        assert_eq!(natives(&classes, MemoryKind::Upload), [2, 3]);
    }

    #[test]
    fn non_coherent_memory_is_offered_and_marked() {
        let memory = table(
            &[(1 << 30, DEVICE)],
            &[(Flags::DEVICE_LOCAL, 0), (Flags::HOST_VISIBLE | Flags::HOST_CACHED, 0)],
        );
        let classes = classes(&memory, u32::MAX, false);
        assert_eq!(natives(&classes, MemoryKind::Readback), [1]);
        assert!(classes.iter().filter(|c| c.host_visible).all(|c| !c.coherent));
    }

    #[test]
    fn one_type_for_everything_serves_every_kind_and_device_memory_is_not_host_visible() {
        let all = Flags::DEVICE_LOCAL | Flags::HOST_VISIBLE | Flags::HOST_COHERENT;
        let classes = classes(&table(&[(1 << 30, DEVICE)], &[(all, 0)]), u32::MAX, false);
        assert_eq!(classes.len(), 4);
        assert!(classes.iter().all(|c| c.host_visible == (c.kind != MemoryKind::Device)));
    }

    #[test]
    fn protected_lazy_and_empty_memory_is_left_out() {
        let memory = table(
            &[(0, DEVICE), (1 << 30, DEVICE)],
            &[
                (Flags::DEVICE_LOCAL, 0),
                (Flags::DEVICE_LOCAL | Flags::PROTECTED, 1),
                (Flags::DEVICE_LOCAL | Flags::LAZILY_ALLOCATED, 1),
                (Flags::DEVICE_LOCAL, 1),
            ],
        );
        assert_eq!(natives(&classes(&memory, u32::MAX, false), MemoryKind::Device), [3]);
    }
}
