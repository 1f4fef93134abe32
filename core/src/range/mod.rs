//! The offset index of a pool: which parts of its segments are taken and which are free.
//!
//! Pure bookkeeping outside the memory it describes: no device, no `unsafe`. A [`Ranges`] holds
//! the segments of one pool; a *segment* is an offset space `[0, len)`, tiled by *nodes* in order
//! of address. A node is taken (in one of four states) or free.
//!
//! A free node may still have work ahead of it: its [`Points`](crate::point::Points) say what has
//! to be reached before another stream may touch it. They decide its [`Home`]: *done* when there
//! are none, the home of *one stream* when only that stream's work is ahead (later work on the same
//! stream needs no wait), *shared* otherwise. Adjacent free nodes of the same home are always
//! coalesced, and each
//! home has a free index of its own (see `bins`), so one search is one lookup.
//!
//! Counting: bytes of a segment = bytes of its taken nodes + its free bytes; free bytes of all
//! segments = sum over homes of the bytes in their bins. [`Ranges::check`] walks everything.
//!
//! Costs: `find`, `take`, `free`, `set_state`, `shrink` are O(1) up to the stated search bounds
//! and allocate only when a chunk of nodes or the bins of a home are first needed; others say
//! theirs.
//!
//! Node and segment ids are plain indices, and an index is used again after its node is gone:
//! callers keep ids only of what they have taken, and guard them with names of their own. An id
//! or [`Fit`] that is out of date is a caller's bug; it gives a wrong answer or panics, so ids
//! never leave the allocator.

mod bins;
mod check;
mod edit;
mod find;
mod homes;
mod join;
mod node;
mod reap;
mod segment;
mod slide;
#[cfg(test)]
mod tests;
mod view;

pub use check::{Problem, Violation};
pub use find::Fit;
pub use join::Join;
pub use node::{Home, NO_OWNER, NodeId, State};
pub use reap::Reaped;
pub use segment::{NotFree, SegmentId};
pub use view::NodeView;

use homes::Homes;
use node::Slab;
use segment::Segment;

/// The segments of one pool and the nodes that tile them.
#[derive(Default)]
pub struct Ranges {
    nodes: Slab,
    homes: Homes,
    segments: Vec<Segment>,
    vacant_segments: Vec<SegmentId>,
    /// Bytes of all free nodes.
    free: u64,
    /// Pairs of adjacent free nodes, which differ in home. While there are none no join exists.
    boundaries: u32,
}

impl Ranges {
    /// No segments yet.
    pub fn new() -> Self {
        Self::default()
    }
}
