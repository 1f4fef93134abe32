//! The capabilities of a device, from its survey and two probing buffers.

use ash::vk;
use terrane_core::device::{Caps, Costs, DeviceError, MemoryKind, PagingCaps};
use terrane_core::units::{Align, KIB};

use crate::driver::Driver;
use crate::error::OpenError;
use crate::memory::buffers::{Buffers, Needs};
use crate::memory::classes;

use super::survey::Survey;

/// Memory objects left to staging and images when the device limits their number.
const SPARED_OBJECTS: u64 = 256;

/// The flags of a paged segment's buffer.
pub const SPARSE: vk::BufferCreateFlags = vk::BufferCreateFlags::from_raw(
    vk::BufferCreateFlags::SPARSE_BINDING.as_raw()
        | vk::BufferCreateFlags::SPARSE_RESIDENCY.as_raw()
        | vk::BufferCreateFlags::SPARSE_ALIASED.as_raw(),
);

/// What the driver wants for buffers like ours.
pub struct Probe {
    pub plain: Needs,
    pub sparse: Option<Needs>,
}

impl Probe {
    pub fn of(driver: &Driver, buffers: &Buffers) -> Result<Self, DeviceError> {
        let bytes = 64 * KIB;
        let plain = buffers.create(bytes, vk::BufferCreateFlags::empty(), false)?.needs();
        let sparse = match driver.enabled.sparse {
            true => Some(buffers.create(bytes, SPARSE, false)?.needs()),
            false => None,
        };
        Ok(Self { plain, sparse })
    }
}

/// The capabilities. `usage` is what every buffer has, `spill` as in [`classes::classes`];
/// `paging` says whether a queue can bind.
pub fn caps(
    survey: &Survey,
    driver: &Driver,
    probe: &Probe,
    usage: vk::BufferUsageFlags,
    spill: bool,
    paging: bool,
) -> Result<Caps, OpenError> {
    let limits = &survey.limits;
    let atom = limits.non_coherent_atom_size.max(1);
    let granularity = (64 * KIB).max(probe.plain.align).max(atom);
    let most = survey.max_memory_bytes.min(survey.max_buffer_bytes);
    let types = probe.plain.types & survey.memory_types;
    let classes = classes::classes(&survey.memory, types, spill);
    if !classes.iter().any(|c| c.kind == MemoryKind::Device) {
        return Err(OpenError::NoMemory);
    }
    let binding = limits.min_storage_buffer_offset_alignment.max(probe.plain.align).max(16);
    let objects = u64::from(limits.max_memory_allocation_count);
    let mut caps = Caps {
        heaps: classes::heaps(&survey.memory),
        classes,
        plain_granularity: granularity,
        max_plain_bytes: most / granularity * granularity,
        max_memory_objects: objects - SPARED_OBJECTS.min(objects / 4),
        plain_base_align: Align::new(4 * KIB).unwrap_or(Align::ONE),
        binding_align: Align::new(binding).unwrap_or(Align::ONE),
        max_binding_bytes: u64::from(limits.max_storage_buffer_range),
        max_bindings: limits
            .max_per_stage_descriptor_storage_buffers
            .min(limits.max_descriptor_set_storage_buffers)
            .min(64),
        max_push_bytes: limits.max_push_constants_size,
        max_groups: groups(limits.max_compute_work_group_count),
        linear_optimal_granularity: limits.buffer_image_granularity.max(1),
        non_coherent_atom: atom,
        addresses: driver.enabled.addresses,
        views: true,
        export: driver.enabled.external_fd,
        capture: false,
        usages: u64::from(usage.as_raw()),
        few_large_objects: true,
        prefer_gather: false,
        gather_within: false,
        paging: None,
        compute: true,
        costs: Costs::default(),
    };
    caps.paging =
        probe.sparse.filter(|_| paging).and_then(|needs| paged(driver, survey, needs, &caps));
    Ok(caps)
}

/// Rows of workgroups are folded into two dimensions where they are longer than the driver takes.
fn groups([x, y, z]: [u32; 3]) -> [u32; 3] {
    [x.saturating_mul(y), y, z]
}

/// The longest sparse buffer made on NVIDIA's driver. It reports 1 TiB of sparse addresses and
/// makes a buffer of 900 GiB, but the first bind into that one loses the device; buffers of 768 GiB
/// work (docs/conformance/h200-vulkan-sparse.json).
const NVIDIA_SPARSE_BYTES: u64 = 512 << 30;

fn paged(driver: &Driver, survey: &Survey, needs: Needs, caps: &Caps) -> Option<PagingCaps> {
    let granularity = needs.align.max(1);
    let bit = |(i, class): (u32, &terrane_core::device::Class)| {
        let can = class.kind == MemoryKind::Device && needs.types & (1 << class.native) != 0;
        u32::from(can) << i
    };
    let classes = (0_u32..).zip(&caps.classes).map(bit).fold(0, |all, bit| all | bit);
    let space_bytes = survey.limits.sparse_address_space_size / granularity * granularity;
    let mut max_space_bytes = space_bytes.min(survey.max_buffer_bytes / granularity * granularity);
    if survey.driver_id == vk::DriverId::NVIDIA_PROPRIETARY {
        max_space_bytes = max_space_bytes.min(NVIDIA_SPARSE_BYTES / granularity * granularity);
    }
    (classes != 0 && max_space_bytes > 0).then_some(PagingCaps {
        granularity,
        whole_objects: false,
        stream_ordered: true,
        submissions_wait: driver.is_own(),
        space_bytes,
        max_space_bytes,
        max_mappings: u64::MAX,
        classes,
    })
}
