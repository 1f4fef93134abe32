//! What a device is, can do and costs: plain data, read once.

use super::MemoryKind;
use crate::units::Align;

/// Which device this is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// `host`, `sim`, `vulkan` or `cuda`; backends elsewhere choose their own word.
    pub backend: &'static str,
    /// The name that the driver gives, such as `NVIDIA H200`.
    pub name: String,
    /// Driver and version as the driver writes them.
    pub driver: String,
    /// The number of the device among its backend's, from 0.
    pub index: u32,
    /// The identity shared by the APIs that see the same device.
    pub uuid: Option<[u8; 16]>,
    /// Whether this is a processor's own memory, without a GPU behind it.
    pub is_cpu: bool,
}

/// A heap of memory, an index into [`Caps::heaps`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HeapId(pub u8);

/// A memory class, an index into [`Caps::classes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u8);

/// Memory with a size of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heap {
    /// Bytes.
    pub total: u64,
    /// Whether it is the device's own memory.
    pub device_local: bool,
}

/// A way to get memory: a Vulkan memory type, a CUDA allocation function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// What it serves. Several classes may serve one kind: the first in the list is preferred,
    /// the others are fallbacks.
    pub kind: MemoryKind,
    /// Where its bytes count.
    pub heap: HeapId,
    /// Whether the host can map it.
    pub host_visible: bool,
    /// Whether host and device see each other's writes without flush and invalidate.
    pub coherent: bool,
    /// The backend's own number: the Vulkan memory type index.
    pub native: u32,
}

/// A cost that grows with size: `fixed_ns` plus `ns_per_mib` for each MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Line {
    /// Nanoseconds of one call.
    pub fixed_ns: f64,
    /// Nanoseconds for each MiB.
    pub ns_per_mib: f64,
}

impl Line {
    /// The cost of a call for `bytes`, in nanoseconds.
    pub fn ns(self, bytes: u64) -> f64 {
        self.fixed_ns + self.ns_per_mib * (bytes as f64 / (1 << 20) as f64)
    }
}

/// What the device's calls cost, measured or modelled. Zero means unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// A plain memory object made.
    pub plain_create: Line,
    /// A plain memory object released.
    pub plain_release: Line,
    /// A memory object for pages made.
    pub page_create: Line,
    /// A page mapped, access included.
    pub page_map: Line,
    /// A page unmapped.
    pub page_unmap: Line,
    /// A memory object for pages released.
    pub page_release: Line,
    /// A block copied by [`Device::copy`](super::Device::copy).
    pub copy: Line,
    /// A block copied by [`Compute::gather`](super::Compute::gather).
    pub gather: Line,
}

/// What paging can do here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagingCaps {
    /// Every size and offset of a mapping is a multiple of this many bytes.
    pub granularity: u64,
    /// A mapping covers a whole memory object, from its first byte (CUDA).
    pub whole_objects: bool,
    /// [`Paging::map`](super::Paging::map) and unmap take their turn behind sync points on the
    /// device (Vulkan); else the host has to wait first.
    pub stream_ordered: bool,
    /// All work submitted after a [`Paging::map`](super::Paging::map) waits for its mappings by
    /// itself; else work waits for the point that the call gives.
    pub submissions_wait: bool,
    /// Bytes of address space that all spaces together can have.
    pub space_bytes: u64,
    /// Bytes of one space.
    pub max_space_bytes: u64,
    /// Mappings that can exist at once; `u64::MAX` for no limit.
    pub max_mappings: u64,
    /// Classes that can be paged, bit `i` for [`ClassId`] `i`.
    pub classes: u32,
}

/// What a device can do, and its limits. Bytes unless said otherwise.
#[derive(Clone, Debug)]
pub struct Caps {
    /// Heaps, by [`HeapId`].
    pub heaps: Vec<Heap>,
    /// Memory classes, by [`ClassId`], at most 32.
    pub classes: Vec<Class>,
    /// Sizes of plain segments are multiples of this.
    pub plain_granularity: u64,
    /// The largest plain segment.
    pub max_plain_bytes: u64,
    /// Plain segments and page memory objects that can exist at once.
    pub max_memory_objects: u64,
    /// What the base address of a plain segment is aligned to at least.
    pub plain_base_align: Align,
    /// What the offset of a block has to be aligned to so that kernels can be given it.
    pub binding_align: Align,
    /// The largest range that one binding of a user's kernel can have.
    pub max_binding_bytes: u64,
    /// Bindings of one dispatch.
    pub max_bindings: u32,
    /// Bytes of push data of one dispatch.
    pub max_push_bytes: u32,
    /// Workgroups of one dispatch in each dimension.
    pub max_groups: [u32; 3],
    /// Bytes that linear and optimal resources keep between them in one memory object; 1 for no
    /// constraint.
    pub linear_optimal_granularity: u64,
    /// Host flushes and invalidations cover multiples of this.
    pub non_coherent_atom: u64,
    /// What every segment can be used for, in the device's own words: on Vulkan the bits of
    /// `VkBufferUsageFlags` that its buffers have. `u64::MAX` where memory is just memory.
    pub usages: u64,
    /// Whether places have device addresses.
    pub addresses: bool,
    /// Whether [`Device::create_view`](super::Device::create_view) works.
    pub views: bool,
    /// Whether memory can be exported to other processes and APIs.
    pub export: bool,
    /// Whether streams can be captured into graphs.
    pub capture: bool,
    /// Whether the API asks for few, large memory objects (Vulkan), so that segments are to grow
    /// with what is held rather than stay close to the need.
    pub few_large_objects: bool,
    /// Whether a gather by kernel was measured faster than the driver's copy.
    pub prefer_gather: bool,
    /// Whether [`Compute::gather_within`](super::Compute::gather_within) works.
    pub gather_within: bool,
    /// Present exactly when [`Device::paging`](super::Device::paging) is.
    pub paging: Option<PagingCaps>,
    /// True exactly when [`Device::compute`](super::Device::compute) is present.
    pub compute: bool,
    /// Costs of the device's calls.
    pub costs: Costs,
}

impl Caps {
    /// The classes that serve `kind`, preferred ones first.
    pub fn classes_of(&self, kind: MemoryKind) -> impl Iterator<Item = ClassId> + '_ {
        (0_u8..)
            .zip(&self.classes)
            .filter(move |(_, class)| class.kind == kind)
            .map(|(id, _)| ClassId(id))
    }

    /// The class under `id`.
    pub fn class(&self, id: ClassId) -> Option<&Class> {
        self.classes.get(usize::from(id.0))
    }
}
