//! Where a block's range is, as its pool names it.

use crate::range::NodeId;

/// A range of a pool: a node in its slabs, or a range in its paged space. Four bytes, since every
/// block carries one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Spot(u32);

/// The bit that tells the two apart: neither table grows to 2^31 entries, 100 GB of them.
const PAGED: u32 = 1 << 31;

/// A spot, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpotKind {
    Slab(NodeId),
    /// The slot of the range.
    Page(u32),
}

impl Spot {
    pub const fn slab(node: NodeId) -> Self {
        Self(node.index() & !PAGED)
    }

    pub const fn page(slot: u32) -> Self {
        Self(slot | PAGED)
    }

    pub const fn kind(self) -> SpotKind {
        if self.0 & PAGED == 0 {
            SpotKind::Slab(NodeId::at(self.0))
        } else {
            SpotKind::Page(self.0 & !PAGED)
        }
    }

    /// Whether it lies in a paged space.
    pub const fn is_paged(self) -> bool {
        self.0 & PAGED != 0
    }
}

impl std::fmt::Debug for Spot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.kind().fmt(f)
    }
}
