//! Time of the calls that get, map, unmap and give back memory.

use terrane_core::device::Device;
use terrane_core::device::calls::CallKind;

use super::Target;

/// Nanoseconds so far. On a device that does not tell, what its stated costs make of the segments
/// that came and went.
pub(super) fn mapping_ns(target: &Target) -> u64 {
    match target {
        Target::Sim(sim) => sim.calls().total_ns(|kind| kind.gets() || kind.gives_back()),
        Target::Real(_) => 0,
    }
}

/// Memory objects ever made for pages.
pub(super) fn pages_created(target: &Target) -> u64 {
    match target {
        Target::Sim(sim) => {
            let calls = sim.calls().of(CallKind::CreateMemory);
            calls.calls - calls.failed
        }
        Target::Real(_) => 0,
    }
}

/// Kernels run so far.
pub(super) fn dispatches(device: &dyn Device) -> u64 {
    device.compute().map_or(0, |compute| compute.dispatches())
}
