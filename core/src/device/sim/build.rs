//! What is to be modelled, said by a builder.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Condvar, Mutex};

use super::lanes::Lanes;
use super::memory::Memory;
use super::referee::InFlight;
use super::{Completion, Inner, SimDevice, State};
use crate::device::calls::CallTable;
use crate::device::{Caps, Class, Costs, DeviceInfo, Heap, HeapId, Line, MemoryKind, PagingCaps};
use crate::units::{Align, GIB, MIB};

/// The builder of a [`SimDevice`].
#[derive(Clone, Debug)]
pub struct Sim {
    name: &'static str,
    caps: Caps,
    completion: Completion,
    keep_bytes: bool,
    log_max: usize,
    first_value: u64,
}

impl Sim {
    /// A device that can not page: segments are plain memory objects of at most 4 GiB.
    ///
    /// 16 GiB, all memory kinds, no alignment needs beyond 256 B, no costs.
    pub fn slabs() -> Self {
        Self {
            name: "slabs",
            caps: base_caps(16 * GIB),
            completion: Completion::Immediate,
            keep_bytes: false,
            log_max: 0,
            first_value: 0,
        }
    }

    /// CUDA's virtual memory management: handles of multiples of 2 MiB, mapped whole and at
    /// once, and the costs measured on an idle H200.
    pub fn cuda() -> Self {
        let mut sim = Self::slabs();
        sim.name = "cuda";
        sim.caps = base_caps(140 * GIB);
        sim.caps.plain_granularity = 512;
        sim.caps.max_plain_bytes = 140 * GIB;
        sim.caps.export = true;
        sim.caps.capture = true;
        sim.caps.paging = Some(PagingCaps {
            granularity: 2 * MIB,
            whole_objects: true,
            stream_ordered: false,
            submissions_wait: true,
            space_bytes: 1 << 47,
            max_space_bytes: 1 << 46,
            max_mappings: u64::MAX,
            classes: 1,
        });
        sim.caps.costs = cuda_costs();
        sim
    }

    /// Vulkan's sparse binding on a discrete GPU: pieces of larger memory objects, in pages of
    /// 64 KiB, bound in stream order.
    pub fn vulkan() -> Self {
        let mut sim = Self::slabs();
        sim.name = "vulkan";
        sim.caps = base_caps(140 * GIB);
        sim.caps.max_plain_bytes = 4_292_870_144;
        sim.caps.max_memory_objects = 4096;
        sim.caps.max_binding_bytes = u64::from(u32::MAX);
        sim.caps.linear_optimal_granularity = 1024;
        sim.caps.non_coherent_atom = 64;
        sim.caps.views = false;
        sim.caps.paging = Some(PagingCaps {
            granularity: 64 << 10,
            whole_objects: false,
            stream_ordered: true,
            submissions_wait: false,
            space_bytes: 1 << 40,
            max_space_bytes: 1 << 40,
            max_mappings: u64::MAX,
            classes: 1,
        });
        sim.caps.costs = vulkan_costs();
        sim
    }

    /// Bytes of the first heap, which serves [`MemoryKind::Device`].
    #[must_use]
    pub fn capacity(mut self, bytes: u64) -> Self {
        if let Some(heap) = self.caps.heaps.first_mut() {
            heap.total = bytes;
        }
        self
    }

    /// Heaps and classes instead of the preset's: device memory and host memory.
    #[must_use]
    pub fn heaps(mut self, heaps: Vec<Heap>, classes: Vec<Class>) -> Self {
        self.caps.heaps = heaps;
        self.caps.classes = classes;
        self
    }

    /// The most memory objects that can exist at once.
    #[must_use]
    pub fn max_objects(mut self, objects: u64) -> Self {
        self.caps.max_memory_objects = objects;
        self
    }

    /// The largest memory object in bytes.
    #[must_use]
    pub fn max_plain(mut self, bytes: u64) -> Self {
        self.caps.max_plain_bytes = bytes;
        self
    }

    /// The granularity of pages, or of plain segments where the device can not page, in bytes.
    #[must_use]
    pub fn granularity(mut self, bytes: u64) -> Self {
        match &mut self.caps.paging {
            Some(paging) => paging.granularity = bytes,
            None => self.caps.plain_granularity = bytes,
        }
        self
    }

    /// What calls cost.
    #[must_use]
    pub fn costs(mut self, costs: Costs) -> Self {
        self.caps.costs = costs;
        self
    }

    /// Anything else of the capabilities.
    #[must_use]
    pub fn caps(mut self, change: impl FnOnce(&mut Caps)) -> Self {
        change(&mut self.caps);
        self
    }

    /// When work completes; [`Completion::Immediate`] unless said.
    #[must_use]
    pub fn completion(mut self, rule: Completion) -> Self {
        self.completion = rule;
        self
    }

    /// Whether memory keeps what is written to it. Then compute and host access work, with
    /// kernels given as closures. Without, `read` gives undefined bytes.
    #[must_use]
    pub fn bytes(mut self, keep: bool) -> Self {
        self.keep_bytes = keep;
        self
    }

    /// Keeps the first `calls` calls in the log; 0, which is the default, keeps none.
    #[must_use]
    pub fn log(mut self, calls: usize) -> Self {
        self.log_max = calls;
        self
    }

    /// The value that the sync points of every stream begin after: near 2^64 in tests of large
    /// ones. 0 unless said.
    #[must_use]
    pub fn first_value(mut self, value: u64) -> Self {
        self.first_value = value;
        self
    }

    /// The device.
    pub fn open(self) -> SimDevice {
        let Self { name, mut caps, completion, keep_bytes, log_max, first_value } = self;
        caps.compute = keep_bytes;
        if !keep_bytes {
            for class in &mut caps.classes {
                class.host_visible = false;
            }
        }
        let mut lanes = Lanes::new(completion, first_value);
        let ordered = caps.paging.is_some_and(|paging| paging.stream_ordered);
        let bind_stream = ordered.then(|| lanes.open(false));
        let state = State {
            lanes,
            memory: Memory::new(caps.heaps.len(), keep_bytes),
            in_flight: InFlight::default(),
            calls: CallTable::new(log_max),
            violations: Vec::new(),
            lost: false,
            waiting: 0,
            captures: Vec::new(),
            tickets: HashMap::new(),
            kernels: HashMap::new(),
            dispatches: 0,
            next_id: 0,
            keep_bytes,
            bind_stream,
        };
        let info = DeviceInfo {
            backend: "sim",
            name: format!("model: {name}"),
            driver: format!("terrane-core {}", env!("CARGO_PKG_VERSION")),
            is_cpu: true,
            ..DeviceInfo::default()
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let capturing = AtomicUsize::new(0);
        SimDevice { inner: Arc::new(Inner { info, caps, state, changed, capturing }) }
    }
}

fn base_caps(device_bytes: u64) -> Caps {
    let class = |kind, heap, host_visible, native| Class {
        kind,
        heap: HeapId(heap),
        host_visible,
        coherent: true,
        native,
    };
    let align = |bytes| Align::new(bytes).unwrap_or_default();
    Caps {
        heaps: vec![
            Heap { total: device_bytes, device_local: true },
            Heap { total: 64 * GIB, device_local: false },
        ],
        classes: vec![
            class(MemoryKind::Device, 0, false, 0),
            class(MemoryKind::Upload, 1, true, 1),
            class(MemoryKind::Readback, 1, true, 2),
            class(MemoryKind::Shared, 1, true, 3),
        ],
        plain_granularity: 256,
        max_plain_bytes: 4 * GIB,
        max_memory_objects: 1 << 20,
        plain_base_align: align(256),
        binding_align: align(16),
        max_binding_bytes: u64::MAX,
        max_bindings: 16,
        max_push_bytes: 256,
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
        paging: None,
        compute: false,
        costs: Costs::default(),
    }
}

const fn line(fixed_us: f64, us_per_gib: f64) -> Line {
    Line { fixed_ns: fixed_us * 1e3, ns_per_mib: us_per_gib * 1e3 / 1024.0 }
}

/// An idle H200, each line through the figures at small and at 1 GiB: cuMemCreate 19 to 38 us,
/// cuMemMap with cuMemSetAccess 34 to 76 us, cuMemUnmap 21 to 32 us, cuMemRelease 30 to 690 us,
/// cudaMalloc with cudaFree 60 us to 2.5 ms, copies 5 us and 1.93 TB/s each way.
const fn cuda_costs() -> Costs {
    Costs {
        plain_create: line(30.0, 1_220.0),
        plain_release: line(30.0, 1_220.0),
        page_create: line(19.0, 19.0),
        page_map: line(34.0, 42.0),
        page_unmap: line(21.0, 11.0),
        page_release: line(30.0, 660.0),
        copy: line(5.0, 556.0),
        gather: line(5.0, 556.0),
    }
}

/// NVIDIA's Vulkan driver on the same card: vkAllocateMemory and vkFreeMemory, sparse binds in
/// batches, vkCmdCopyBuffer at 0.85 TB/s and a copy kernel at 4.1 TB/s, read and write.
const fn vulkan_costs() -> Costs {
    Costs {
        plain_create: line(130.0, 24_000.0),
        plain_release: line(210.0, 24_000.0),
        page_create: line(130.0, 24_000.0),
        page_map: line(35.0, 8_300.0),
        page_unmap: line(35.0, 8_300.0),
        page_release: line(210.0, 24_000.0),
        copy: line(5.0, 2_530.0),
        gather: line(5.0, 524.0),
    }
}

impl From<Sim> for Arc<dyn crate::device::Device> {
    fn from(sim: Sim) -> Self {
        Arc::new(sim.open())
    }
}
