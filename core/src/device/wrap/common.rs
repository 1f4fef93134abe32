//! Capabilities that every device can be shown with.

use crate::device::{Caps, Costs, DeviceError, Heap, HeapId, MemoryKind, PagingCaps};
use crate::units::{Align, GIB, MIB};

/// The capabilities that a [`Paced`](super::Paced) device shows: less than any device has, so that
/// an allocator decides the same on all of them.
///
/// One heap of 2 GiB with one class of device memory; no views, no export, no capture, no costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Common {
    /// Plain segments of up to 1 GiB, in multiples of 2 MiB.
    Slabs,
    /// Plain segments as with [`Slabs`](Self::Slabs), and pages of 2 MiB, each a whole memory
    /// object, mapped on the host's time.
    Pages,
}

const HEAP_BYTES: u64 = 2 * GIB;
const PLAIN_BYTES: u64 = GIB;
const PLAIN_GRANULARITY: u64 = 2 * MIB;
const PAGE_BYTES: u64 = 2 * MIB;
const ALIGN: u64 = 256;
const OBJECTS: u64 = 2048;

impl Common {
    /// In one word, as the command line takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slabs => "slabs",
            Self::Pages => "pages",
        }
    }

    /// The capabilities, over a device that has `caps`.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] for pages on a device that has none,
    /// [`DeviceError::InvalidCall`] for a device that has less than all others.
    pub(super) fn over(self, caps: &Caps) -> Result<Caps, DeviceError> {
        let class = caps.classes.iter().position(|class| class.kind == MemoryKind::Device);
        let class = class.ok_or(DeviceError::Unsupported(crate::error::Feature::MemoryKind))?;
        // Classes keep their numbers, which are the device's, so those before stay.
        let mut classes = caps.classes[..=class].to_vec();
        for class in &mut classes {
            (class.heap, class.host_visible) = (HeapId(0), false);
        }
        let heap = caps.heaps.get(usize::from(caps.classes[class].heap.0));
        fits(
            heap.is_some_and(|heap| heap.total >= HEAP_BYTES),
            "the device's heap is below 2 GiB",
        )?;
        fits(caps.max_plain_bytes >= PLAIN_BYTES, "the device's segments are below 1 GiB")?;
        fits(
            PLAIN_GRANULARITY.is_multiple_of(caps.plain_granularity),
            "the device's segments are no parts of 2 MiB",
        )?;
        fits(caps.max_memory_objects >= OBJECTS, "the device has fewer than 2,048 objects")?;
        let aligned = caps.plain_base_align.get() >= ALIGN && caps.binding_align.get() <= ALIGN;
        fits(aligned, "the device's alignments do not allow 256 bytes")?;
        let align = Align::new(ALIGN).unwrap_or_default();
        Ok(Caps {
            heaps: vec![Heap { total: HEAP_BYTES, device_local: true }],
            classes,
            plain_granularity: PLAIN_GRANULARITY,
            max_plain_bytes: PLAIN_BYTES,
            max_memory_objects: OBJECTS,
            plain_base_align: align,
            binding_align: align,
            linear_optimal_granularity: 1,
            non_coherent_atom: 1,
            usages: u64::MAX,
            addresses: false,
            views: false,
            export: false,
            capture: false,
            few_large_objects: false,
            prefer_gather: false,
            gather_within: false,
            paging: self.paging(caps, class)?,
            costs: Costs::default(),
            ..caps.clone()
        })
    }

    fn paging(self, caps: &Caps, class: usize) -> Result<Option<PagingCaps>, DeviceError> {
        if self == Self::Slabs {
            return Ok(None);
        }
        let no_paging = DeviceError::Unsupported(crate::error::Feature::Paging);
        let paging = caps.paging.ok_or(no_paging)?;
        if paging.classes >> class & 1 == 0 {
            return Err(no_paging);
        }
        fits(
            PAGE_BYTES.is_multiple_of(paging.granularity),
            "the device's pages are no parts of 2 MiB",
        )?;
        let room = paging.space_bytes >= HEAP_BYTES && paging.max_space_bytes >= HEAP_BYTES / 2;
        fits(room, "the device's address space is below 2 GiB")?;
        fits(paging.max_mappings >= OBJECTS, "the device has fewer than 2,048 mappings")?;
        Ok(Some(PagingCaps {
            granularity: PAGE_BYTES,
            whole_objects: true,
            stream_ordered: false,
            // By waiting on the host for each mapping, where the device's take their turn.
            submissions_wait: true,
            space_bytes: HEAP_BYTES,
            max_space_bytes: HEAP_BYTES / 2,
            max_mappings: OBJECTS,
            classes: 1 << class,
        }))
    }
}

impl std::str::FromStr for Common {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Slabs, Self::Pages];
        let found = all.into_iter().find(|common| common.name() == text);
        found.ok_or_else(|| format!("`{text}`: say slabs or pages"))
    }
}

fn fits(fits: bool, why_not: &'static str) -> Result<(), DeviceError> {
    if fits { Ok(()) } else { Err(DeviceError::InvalidCall(why_not)) }
}
