//! What a device says about itself.

use std::thread::sleep;
use std::time::Duration;

use terrane_core::MemoryKind;
use terrane_core::device::HeapId;

use super::device;
use crate::clause::{Blame, Clause, Outcome, Stop, ensure, equal, refused};
use crate::rig::Rig;

use Blame::Backend;

pub(super) const CLAUSES: &[Clause] = &[
    device(
        "caps.names",
        "A device tells its backend, name and driver.",
        &[],
        "DeviceInfo",
        Backend,
        names,
    ),
    device(
        "caps.constant",
        "What a device says of itself never changes.",
        &[],
        "Device::caps",
        Backend,
        constant,
    ),
    device(
        "caps.heaps",
        "Every memory class counts in a heap that exists and is not empty.",
        &[],
        "Caps::classes, Caps::heaps",
        Backend,
        heaps,
    ),
    device(
        "caps.device-memory",
        "There is device memory.",
        &[],
        "MemoryKind::Device",
        Backend,
        device_memory,
    ),
    device(
        "caps.granularity",
        "The granularity is a power of two, and the largest segment is a multiple of it.",
        &[],
        "Caps::plain_granularity",
        Backend,
        granularity,
    ),
    device(
        "caps.alignment",
        "A block at the start of a segment is aligned well enough for kernels.",
        &[],
        "Caps::plain_base_align, Caps::binding_align",
        Backend,
        alignment,
    ),
    device(
        "caps.powers",
        "Each optional power is there exactly when the capabilities say so.",
        &[],
        "Device::paging, compute, host_access",
        Backend,
        powers,
    ),
    device(
        "caps.heap-use",
        "A heap never has more free than it has in all.",
        &[],
        "Device::heap_use",
        Blame::Driver,
        heap_use,
    ),
    device(
        "caps.unknown-heap",
        "A heap that does not exist is an invalid call.",
        &[],
        "Device::heap_use",
        Backend,
        unknown_heap,
    ),
    device(
        "caps.clock",
        "The device's clock never runs backwards.",
        &[],
        "Device::now_ns",
        Backend,
        clock,
    ),
];

fn names(rig: &Rig) -> Outcome {
    let info = rig.device().info();
    ensure!(!info.backend.is_empty(), "no backend's name");
    ensure!(!info.name.is_empty(), "no device's name");
    ensure!(!info.driver.is_empty(), "no driver's name");
    Ok(())
}

fn constant(rig: &Rig) -> Outcome {
    let said = |rig: &Rig| format!("{:?} {:?}", rig.device().info(), rig.caps());
    let before = said(rig);
    let stream = rig.stream()?;
    let plain = rig.plain(4096)?;
    rig.wait(rig.device().fill(stream, super::memory::start(plain), 256, 1)?)?;
    for _ in 0..3 {
        ensure!(said(rig) == before, "the device says something else after some work");
    }
    Ok(())
}

fn heaps(rig: &Rig) -> Outcome {
    let caps = rig.caps();
    ensure!(caps.classes.len() <= 32, "{} classes, at most 32", caps.classes.len());
    for (at, class) in caps.classes.iter().enumerate() {
        let heap = caps.heaps.get(usize::from(class.heap.0));
        ensure!(heap.is_some_and(|heap| heap.total > 0), "class {at} counts in {:?}", class.heap);
    }
    Ok(())
}

fn device_memory(rig: &Rig) -> Outcome {
    ensure!(rig.caps().classes_of(MemoryKind::Device).next().is_some(), "no class of the kind");
    Ok(())
}

fn granularity(rig: &Rig) -> Outcome {
    let caps = rig.caps();
    let granularity = caps.plain_granularity;
    ensure!(granularity.is_power_of_two(), "a granularity of {granularity}");
    let most = caps.max_plain_bytes;
    ensure!(most > 0 && most.is_multiple_of(granularity), "segments of at most {most} bytes");
    ensure!(caps.max_memory_objects > 0, "no memory object is allowed");
    Ok(())
}

fn alignment(rig: &Rig) -> Outcome {
    let caps = rig.caps();
    let (base, binding) = (caps.plain_base_align, caps.binding_align);
    ensure!(binding <= base, "bindings at {binding:?}, segments at {base:?} only");
    ensure!(caps.max_bindings > 0 && caps.max_binding_bytes > 0, "kernels can be given nothing");
    ensure!(caps.max_groups.iter().all(|&groups| groups > 0), "no group can run");
    Ok(())
}

fn powers(rig: &Rig) -> Outcome {
    let (device, caps) = (rig.device(), rig.caps());
    equal!(device.paging().is_some(), caps.paging.is_some(), "paging");
    equal!(device.compute().is_some(), caps.compute, "compute");
    let visible = caps.classes.iter().any(|class| class.host_visible);
    ensure!(!visible || device.host_access().is_some(), "host-visible memory without host access");
    Ok(())
}

fn heap_use(rig: &Rig) -> Outcome {
    for heap in 0..rig.caps().heaps.len() {
        let id = HeapId(u8::try_from(heap).map_err(|_| Stop::failed("over 256 heaps"))?);
        let found = rig.device().heap_use(id)?;
        ensure!(found.total > 0, "heap {heap} has no bytes");
        ensure!(found.free <= found.total, "heap {heap}: {found:?}");
    }
    Ok(())
}

fn unknown_heap(rig: &Rig) -> Outcome {
    refused(&rig.device().heap_use(HeapId(u8::MAX)), "the use of an unknown heap")
}

fn clock(rig: &Rig) -> Outcome {
    let mut last = rig.device().now_ns();
    for round in 0..100 {
        if round % 20 == 0 {
            sleep(Duration::from_millis(1));
        }
        let now = rig.device().now_ns();
        ensure!(now >= last, "{now} ns after {last} ns");
        last = now;
    }
    Ok(())
}
