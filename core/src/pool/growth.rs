//! How large a new segment is.

use crate::request::Layout;
use crate::units::{Align, MIB};

use super::SMALL_MAX;

/// How segments grow on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// As close to the need as reuse allows: as many blocks of the size asked for as go into
    /// 2 MiB (requests up to 1 MiB), 20 MiB (below 10 MiB) or 64 MiB (below 32 MiB), else the
    /// request rounded up to 2 MiB. For devices that make memory objects quickly.
    Fine,
    /// A quarter of what is held, between these bounds: the number of memory objects grows with
    /// the logarithm of the bytes. For devices where memory objects are slow to make, or few.
    Proportional {
        /// The smallest segment in bytes.
        min_bytes: u64,
        /// The largest segment in bytes, unless one block needs more.
        max_bytes: u64,
    },
}

/// What the size of a segment depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    pub growth: Growth,
    /// Sizes are multiples of this.
    pub granularity: Align,
    /// The largest segment that the device makes.
    pub max_bytes: u64,
    /// Bytes held in the heap.
    pub held: u64,
    /// Bytes of the heap.
    pub heap: u64,
    /// Most memory objects that the device allows.
    pub max_objects: u64,
}

/// Sizes to try for a segment that has to hold a block, largest first, each with room for whole
/// blocks of that size; the last is what the block itself needs. Smaller ones are for the case
/// that the device or the budget refuses.
pub(crate) fn segment_sizes(
    layout: Layout,
    dedicated: bool,
    at: &Situation,
) -> impl Iterator<Item = u64> {
    let need = at.granularity.round_up(layout.bytes).unwrap_or(u64::MAX);
    let step = if dedicated { need } else { wanted(layout, at) };
    let first = at.granularity.round_up(step).unwrap_or(need).min(at.max_bytes).max(need);
    let granularity = at.granularity;
    std::iter::successors(Some(first), move |&bytes| {
        let half = granularity.round_up(whole_blocks(bytes / 2, layout.bytes)).unwrap_or(need);
        (bytes > need).then(|| half.max(need))
    })
}

fn wanted(layout: Layout, at: &Situation) -> u64 {
    let step = match at.growth {
        Growth::Fine if layout.bytes <= SMALL_MAX => whole_blocks(2 * MIB, layout.bytes),
        Growth::Fine if layout.bytes < 10 * MIB => whole_blocks(20 * MIB, layout.bytes),
        Growth::Fine if layout.bytes < 32 * MIB => whole_blocks(64 * MIB, layout.bytes),
        Growth::Fine => layout.bytes.div_ceil(2 * MIB).saturating_mul(2 * MIB),
        Growth::Proportional { min_bytes, max_bytes } => {
            (at.held / 4).next_multiple_of(MIB).clamp(min_bytes, max_bytes.max(min_bytes))
        }
    };
    // Where objects are few, each has to be large enough for all of them to cover the heap.
    let share = if at.max_objects < 4096 { at.heap / at.max_objects.max(1) } else { 0 };
    step.max(share)
}

/// The most blocks of `block` bytes that go into `step`: a rest would fit nobody.
const fn whole_blocks(step: u64, block: u64) -> u64 {
    step / block * block
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Situation = Situation {
        growth: Growth::Fine,
        granularity: Align::ONE,
        max_bytes: u64::MAX,
        held: 0,
        heap: 1 << 40,
        max_objects: u64::MAX,
    };

    fn sizes(bytes: u64, at: &Situation) -> Vec<u64> {
        segment_sizes(Layout { bytes, align: Align::ONE }, false, at).collect()
    }

    #[test]
    fn sizes_end_with_what_the_block_needs() {
        assert_eq!(sizes(MIB, &AT), [2 * MIB, MIB]);
        assert_eq!(sizes(9 * MIB, &AT), [18 * MIB, 9 * MIB]);
        assert_eq!(sizes(11 * MIB, &AT), [55 * MIB, 22 * MIB, 11 * MIB]);
        assert_eq!(sizes(33 * MIB, &AT), [34 * MIB, 33 * MIB]);
    }

    #[test]
    fn few_objects_are_large_ones() {
        let at = Situation { max_objects: 16, heap: 16 << 30, ..AT };
        assert_eq!(sizes(256, &at)[0], 1 << 30);
    }

    #[test]
    fn the_device_limit_caps_the_step_but_not_the_need() {
        let at = Situation { max_bytes: 4 * MIB, ..AT };
        assert_eq!(sizes(3 * MIB, &at), [4 * MIB, 3 * MIB]);
    }
}
