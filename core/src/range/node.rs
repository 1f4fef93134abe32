//! Nodes, their states, and the slab they live in.

use std::fmt;
use std::ops::{Index, IndexMut};

use crate::point::{Points, StreamId};

use super::SegmentId;

/// The name of a node: an index, reused after the node is gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(super) u32);

impl NodeId {
    /// No node.
    pub(super) const NONE: Self = Self(u32::MAX);

    /// The node of an index.
    pub const fn at(index: u32) -> Self {
        Self(index)
    }

    /// The index: dense from 0, so that it can number a side table.
    pub const fn index(self) -> u32 {
        self.0
    }

    /// The node, unless this is [`NONE`](Self::NONE).
    pub(super) fn some(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE { write!(f, "N-") } else { write!(f, "N{}", self.0) }
    }
}

/// What a node is used for. Everything but [`Free`](Self::Free) is a *taken* state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// A hole: coalesced with neighbours of the same home and found by `find`.
    Free,
    /// Reserved; the device calls that make it usable are under way.
    Mapping,
    /// Holds an allocation.
    Live,
    /// Freed, but not reusable until its owner says so (memory of a captured graph).
    Pending,
    /// Its page was mapped elsewhere and its own mapping still stands: neither hole nor
    /// destination until it is unmapped.
    Stale,
}

/// Which requests may take a free node without waiting for other streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Home {
    /// All work on it is done: any request.
    Done,
    /// Requests on this stream, since they come after all work on it.
    Stream(StreamId),
    /// None: work of several streams is ahead.
    Shared,
}

impl Home {
    /// The home of a free node that has to wait for `points`.
    pub fn of(points: &Points) -> Self {
        match points.single_stream() {
            Some(stream) => Self::Stream(stream),
            None if points.is_empty() => Self::Done,
            None => Self::Shared,
        }
    }
}

/// The user word of a node that nobody has set.
pub const NO_OWNER: u32 = u32::MAX;

pub(super) struct Node {
    pub offset: u64,
    pub bytes: u64,
    /// Of a free node: what to wait for. Of a taken one: the uses recorded so far.
    pub points: Points,
    /// Neighbours by address.
    pub prev: NodeId,
    /// Of a vacant slot: the next vacant one.
    pub next: NodeId,
    pub segment: SegmentId,
    /// Of a free node: the one before it in its bin. Of a taken one: the user word.
    // One field for both keeps a node within 56 bytes.
    pub back: u32,
    /// Of a free node: the one after it in its bin.
    pub forward: NodeId,
    pub state: State,
}

impl Node {
    const VACANT: Self = Self {
        offset: 0,
        bytes: 0,
        points: Points::NONE,
        prev: NodeId::NONE,
        next: NodeId::NONE,
        segment: SegmentId(0),
        back: NO_OWNER,
        forward: NodeId::NONE,
        state: State::Mapping,
    };

    pub fn is_free(&self) -> bool {
        self.state == State::Free
    }

    pub fn home(&self) -> Home {
        Home::of(&self.points)
    }

    pub fn end(&self) -> u64 {
        self.offset + self.bytes
    }

    /// Small and low comes first.
    pub fn rank(&self) -> (u64, SegmentId, u64) {
        (self.bytes, self.segment, self.offset)
    }
}

const CHUNK_BITS: u32 = 9;
const CHUNK_LEN: usize = 1 << CHUNK_BITS;

/// Nodes in chunks: growing never copies, and no insertion costs more than one chunk.
#[derive(Default)]
pub(super) struct Slab {
    // Arrays, not vectors: the length is known and an access costs one bounds check.
    chunks: Vec<Box<[Node; CHUNK_LEN]>>,
    /// Slots ever used; those from here on are in no list.
    slots: u32,
    pub vacant: Option<NodeId>,
    /// Slots in use.
    len: u32,
}

impl Slab {
    pub fn insert(&mut self, node: Node) -> NodeId {
        self.len += 1;
        let id = match self.vacant {
            Some(id) => {
                self.vacant = self[id].next.some();
                id
            }
            None => self.fresh(),
        };
        self[id] = node;
        id
    }

    fn fresh(&mut self) -> NodeId {
        if self.slots as usize == self.chunks.len() * CHUNK_LEN {
            self.chunks.push(Box::new([const { Node::VACANT }; CHUNK_LEN]));
        }
        // 2^32 nodes would take 240 GB: memory ends before the numbers do.
        self.slots += 1;
        NodeId(self.slots - 1)
    }

    /// Makes the slot vacant. The node must hold no points any more.
    pub fn remove(&mut self, id: NodeId) {
        debug_assert!(self[id].points.is_empty(), "points of {id:?} would be lost");
        let vacant = self.vacant.unwrap_or(NodeId::NONE);
        let node = &mut self[id];
        node.next = vacant;
        node.state = State::Mapping;
        node.bytes = 0;
        self.vacant = Some(id);
        self.len -= 1;
    }

    pub fn len(&self) -> u32 {
        self.len
    }

    /// Slots ever used.
    pub fn slots(&self) -> usize {
        self.slots as usize
    }

    /// The node in a slot of any kind, vacant included.
    pub fn get(&self, id: NodeId) -> Option<&Node> {
        (id.0 < self.slots).then(|| &self[id])
    }

    pub fn first_vacant(&self) -> Option<NodeId> {
        self.vacant
    }
}

impl Index<NodeId> for Slab {
    type Output = Node;

    #[inline]
    fn index(&self, id: NodeId) -> &Node {
        &self.chunks[(id.0 >> CHUNK_BITS) as usize][id.0 as usize % CHUNK_LEN]
    }
}

impl IndexMut<NodeId> for Slab {
    #[inline]
    fn index_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.chunks[(id.0 >> CHUNK_BITS) as usize][id.0 as usize % CHUNK_LEN]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_at_most_56_bytes() {
        assert!(size_of::<Node>() <= 56, "{}", size_of::<Node>());
    }
}
