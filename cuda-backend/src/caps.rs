//! What a CUDA device can do, read once when it is opened.

use terrane_core::device::{Caps, Class, Costs, Heap, HeapId, Line, MemoryKind, PagingCaps};
use terrane_core::units::Align;

use crate::Options;
use crate::driver::{Answer, Attribute, Dev, Driver};

/// The heap of the device's own memory.
pub(crate) const DEVICE_HEAP: HeapId = HeapId(0);
/// The heap of page-locked host memory.
pub(crate) const HOST_HEAP: HeapId = HeapId(1);

/// Sizes of plain segments are multiples of this: what the driver's own allocator takes at a time.
const PLAIN_GRANULARITY: u64 = 2 << 20;
/// In guard mode blocks end at the unmapped page to within this, which still keeps them aligned.
const GUARD_GRANULARITY: u64 = 256;
/// Address space that all spaces together may have: the half of what 48 bits can name.
const SPACE_BYTES: u64 = 1 << 47;
/// Bytes of parameters that a kernel of any device can have.
pub(crate) const MAX_PARAM_BYTES: u64 = 4096;
/// Bytes of push data, and the rest of the parameters for addresses of 8 bytes.
pub(crate) const MAX_PUSH_BYTES: u32 = 1024;

/// What CUDA says beyond [`Caps`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Details {
    /// Compute capability, major and minor.
    pub compute_capability: (i32, i32),
    /// The driver's version, 1,000 times the major number plus 10 times the minor.
    pub driver_version: i32,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Engines that copy beside kernels.
    pub copy_engines: u32,
    /// Whether virtual memory management is there: paging, export, guard mode.
    pub virtual_memory: bool,
    /// Bytes that mappings of pages are multiples of; 0 without virtual memory.
    pub page_granularity: u64,
    /// Whether memory can be exported as posix file descriptors.
    pub posix_export: bool,
    /// Whether `cuMemAllocAsync` works.
    pub memory_pools: bool,
    /// Whether managed memory works at all.
    pub managed: bool,
    /// Whether host and device may use managed memory at the same time.
    pub concurrent_managed: bool,
    /// Whether the device shares the host's memory (Tegra).
    pub integrated: bool,
}

impl Details {
    pub(crate) fn read(driver: &dyn Driver, device: Dev) -> Answer<Self> {
        let number = |attribute| driver.attribute(attribute, device);
        let flag = |attribute| number(attribute).map(|value| value != 0);
        let virtual_memory = flag(Attribute::VirtualMemory)? && flag(Attribute::UnifiedAddressing)?;
        let granularity = if virtual_memory { driver.granularity(device)? } else { 0 };
        Ok(Self {
            compute_capability: (
                number(Attribute::ComputeMajor)?,
                number(Attribute::ComputeMinor)?,
            ),
            driver_version: driver.version()?,
            multiprocessors: number(Attribute::MultiProcessors)?.max(1).unsigned_abs(),
            copy_engines: number(Attribute::CopyEngines)?.unsigned_abs(),
            virtual_memory,
            page_granularity: granularity,
            posix_export: virtual_memory && flag(Attribute::PosixDescriptors)?,
            memory_pools: flag(Attribute::MemoryPools)?,
            managed: flag(Attribute::Managed)?,
            concurrent_managed: flag(Attribute::ConcurrentManaged)?,
            integrated: flag(Attribute::Integrated)?,
        })
    }
}

/// What one H200 needed for these calls: where nothing is measured yet, the best guess for any
/// device with this driver. [`crate::CudaDevice::calibrate`] measures.
///
/// All but the last two come from the self-test (`examples/selftest`) of 2026-11-30, driver
/// 580.159.04: lines with the least squares of the relative error through its figures "page calls
/// by size" (2 to 1,024 MiB) and "plain segments by size" (device memory, 2 to 1,024 MiB). They
/// are within 30 % of each figure, but for the release of pages of 64 MiB, which took twice as
/// long as the line says. Copies and gathers are older figures of the same kind of card.
pub(crate) const MODELLED: Costs = Costs {
    plain_create: Line { fixed_ns: 44_600.0, ns_per_mib: 35.0 },
    plain_release: Line { fixed_ns: 32_400.0, ns_per_mib: 294.0 },
    page_create: Line { fixed_ns: 12_000.0, ns_per_mib: 16.0 },
    page_map: Line { fixed_ns: 25_900.0, ns_per_mib: 36.0 },
    page_unmap: Line { fixed_ns: 17_800.0, ns_per_mib: 10.8 },
    page_release: Line { fixed_ns: 12_900.0, ns_per_mib: 333.0 },
    copy: Line { fixed_ns: 5_000.0, ns_per_mib: 540.0 },
    gather: Line { fixed_ns: 100.0, ns_per_mib: 540.0 },
};

fn classes(details: &Details) -> Vec<Class> {
    let class =
        |kind, heap, host_visible| Class { kind, heap, host_visible, coherent: true, native: 0 };
    let mut classes = vec![
        class(MemoryKind::Device, DEVICE_HEAP, false),
        class(MemoryKind::Upload, HOST_HEAP, true),
        class(MemoryKind::Readback, HOST_HEAP, true),
    ];
    // Without concurrent access the host must not touch managed memory while any kernel runs,
    // which the contract of host views does not promise.
    if details.managed && details.concurrent_managed {
        classes.push(class(MemoryKind::Shared, DEVICE_HEAP, true));
    }
    classes
}

fn paging(details: &Details, options: &Options, total: u64) -> Option<PagingCaps> {
    (details.virtual_memory && options.paging && !options.guard).then(|| PagingCaps {
        granularity: details.page_granularity,
        whole_objects: true,
        stream_ordered: false,
        submissions_wait: true,
        space_bytes: SPACE_BYTES,
        max_space_bytes: total.saturating_mul(8).clamp(1 << 36, SPACE_BYTES / 4)
            / details.page_granularity
            * details.page_granularity,
        max_mappings: u64::MAX,
        classes: 1,
    })
}

pub(crate) fn caps(
    driver: &dyn Driver,
    device: Dev,
    details: &Details,
    options: &Options,
) -> Answer<Caps> {
    let total = driver.device_memory(device)?;
    let grid = |attribute| driver.attribute(attribute, device).map(i32::unsigned_abs);
    let guarded = options.guard;
    let granularity = if guarded { GUARD_GRANULARITY } else { PLAIN_GRANULARITY };
    Ok(Caps {
        heaps: vec![
            Heap { total, device_local: true },
            Heap { total: crate::host::host_memory().0, device_local: false },
        ],
        classes: classes(details),
        plain_granularity: granularity,
        // A card's size need not be a multiple: an H200's is not.
        max_plain_bytes: total / granularity * granularity,
        max_memory_objects: u64::MAX,
        plain_base_align: Align::new(GUARD_GRANULARITY).unwrap_or_default(),
        binding_align: Align::new(16).unwrap_or_default(),
        max_binding_bytes: total,
        max_bindings: ((MAX_PARAM_BYTES - u64::from(MAX_PUSH_BYTES)) / 8) as u32,
        max_push_bytes: MAX_PUSH_BYTES,
        max_groups: [grid(Attribute::GridX)?, grid(Attribute::GridY)?, grid(Attribute::GridZ)?],
        linear_optimal_granularity: 1,
        non_coherent_atom: 1,
        addresses: true,
        views: false,
        export: details.posix_export,
        capture: options.capture,
        usages: u64::MAX,
        few_large_objects: false,
        prefer_gather: true,
        gather_within: true,
        paging: paging(details, options, total),
        compute: true,
        costs: MODELLED,
    })
}
