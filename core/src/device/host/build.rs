//! Opening the CPU device.

use std::sync::Arc;
use std::thread::{self, available_parallelism};

use super::device::HostDevice;
use super::os::{self, Birth, PageFile};
use super::shared::Shared;
use super::tables::Tables;
use crate::device::{
    Caps, Class, Costs, DeviceError, DeviceInfo, Heap, HeapId, Line, MemoryKind, PagingCaps,
};
use crate::units::{Align, KIB};

/// Mappings that the rest of the process keeps: libraries, stacks, other allocators.
const MAPPINGS_ELSEWHERE: u64 = 8192;

/// The builder of a [`HostDevice`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Host {
    limit: Option<u64>,
    workers: Option<usize>,
    page: Option<u64>,
    max_objects: Option<u64>,
}

impl Host {
    /// Seven eighths of the memory that the machine and its control groups have left, one
    /// worker per processor but at least two, pages of 64 KiB.
    pub fn new() -> Self {
        Self::default()
    }

    /// The most bytes that the device gives out, where less than it would by itself.
    #[must_use]
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = Some(bytes);
        self
    }

    /// Threads that serve the streams; 0 counts as 1. A kernel that blocks holds one of them.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers.max(1));
        self
    }

    /// Granularity of mappings in bytes; rounded up to a power of two and to a page of the
    /// operating system. Mappings are counted by the kernel, memory is not: larger pages let
    /// more memory be mapped.
    #[must_use]
    pub fn page(mut self, bytes: u64) -> Self {
        self.page = Some(bytes);
        self
    }

    /// The most memory objects, where fewer than `vm.max_map_count` allows.
    #[must_use]
    pub fn max_objects(mut self, objects: u64) -> Self {
        self.max_objects = Some(objects);
        self
    }

    /// Opens the device and starts its workers.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] when the system refuses threads or the page file.
    pub fn open(self) -> Result<Arc<HostDevice>, DeviceError> {
        let spare = available_parallelism().map_or(2, usize::from).max(2);
        let workers = self.workers.unwrap_or(spare);
        let (name, driver) = os::names();
        let info =
            DeviceInfo { backend: "host", name, driver, is_cpu: true, ..DeviceInfo::default() };
        let tables = Tables::new(PageFile::new()?);
        let shared = Arc::new(Shared::new(info, self.caps(), Birth::new()?, tables, workers));
        // The device first: when a thread is refused, dropping it ends the others.
        let mut device = HostDevice { shared, workers: Vec::new() };
        for number in 0..workers {
            let shared = Arc::clone(&device.shared);
            let thread = thread::Builder::new().name(format!("terrane host {number}"));
            let refused = |error: std::io::Error| DeviceError::Driver {
                call: "thread",
                code: error.raw_os_error().unwrap_or(0),
            };
            device.workers.push(thread.spawn(move || shared.serve()).map_err(refused)?);
        }
        Ok(Arc::new(device))
    }

    fn caps(&self) -> Caps {
        let available = os::available_bytes();
        let total = self.limit.unwrap_or(u64::MAX).min(available - available / 8);
        let os_page = os::page_bytes();
        let wanted = self.page.unwrap_or(64 * KIB).max(os_page);
        let granularity = wanted.checked_next_power_of_two().unwrap_or(1 << 63);
        let mappings = os::max_map_count().saturating_sub(MAPPINGS_ELSEWHERE).max(64);
        // A plain segment takes one mapping of the kernel's. A page takes two at worst: itself
        // and the hole behind it. Together they stay within what is left.
        let objects = self.max_objects.unwrap_or(u64::MAX).min(mappings / 4);
        Caps {
            heaps: vec![Heap { total, device_local: true }],
            classes: MemoryKind::ALL.iter().map(|kind| class(*kind)).collect(),
            plain_granularity: os_page,
            max_plain_bytes: total - total % os_page,
            max_memory_objects: objects,
            plain_base_align: Align::new(os_page).unwrap_or_default(),
            binding_align: Align::new(16).unwrap_or_default(),
            max_binding_bytes: u64::MAX,
            max_bindings: 64,
            max_push_bytes: 4096,
            max_groups: [65_535; 3],
            linear_optimal_granularity: 1,
            non_coherent_atom: 1,
            addresses: true,
            views: false,
            export: false,
            capture: false,
            usages: u64::MAX,
            few_large_objects: false,
            prefer_gather: false,
            gather_within: false,
            paging: Some(PagingCaps {
                granularity,
                whole_objects: false,
                stream_ordered: false,
                submissions_wait: true,
                space_bytes: 1 << 45,
                max_space_bytes: 1 << 44,
                max_mappings: mappings / 8 * 3,
                classes: 0b1111,
            }),
            compute: true,
            costs: COSTS,
        }
    }
}

const fn class(kind: MemoryKind) -> Class {
    Class { kind, heap: HeapId(0), host_visible: true, coherent: true, native: 0 }
}

const fn line(fixed_ns: f64, ns_per_mib: f64) -> Line {
    Line { fixed_ns, ns_per_mib }
}

/// Orders of magnitude from one machine of two processors. What memory costs when it is first
/// touched comes on top; giving touched pages back costs more than all else.
const COSTS: Costs = Costs {
    plain_create: line(4_000.0, 0.0),
    plain_release: line(20_000.0, 4_000.0),
    page_create: line(5_000.0, 0.0),
    page_map: line(10_000.0, 0.0),
    page_unmap: line(20_000.0, 200_000.0),
    page_release: line(20_000.0, 500_000.0),
    copy: line(5_000.0, 200_000.0),
    gather: line(5_000.0, 200_000.0),
};
