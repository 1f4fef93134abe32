//! Reading nodes, segments and sums.

use std::iter::successors;

use crate::point::Points;

use super::node::{Home, NO_OWNER, Node, NodeId, State};
use super::{Ranges, SegmentId};

/// A node as it is now.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'a> {
    /// Its name.
    pub id: NodeId,
    /// Where it begins in its segment.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// What it is used for.
    pub state: State,
    /// The user word; [`NO_OWNER`] if free or not set.
    pub owner: u32,
    /// Of a free node: what to wait for. Of a taken one: the uses recorded so far.
    pub points: &'a Points,
}

impl Ranges {
    /// The node with all that is known of it.
    pub fn view(&self, id: NodeId) -> NodeView<'_> {
        let Node { offset, bytes, state, ref points, .. } = self.nodes[id];
        NodeView { id, offset, bytes, state, owner: self.owner(id), points }
    }

    /// Its length in bytes.
    pub fn bytes(&self, node: NodeId) -> u64 {
        self.nodes[node].bytes
    }

    /// Where it begins in its segment.
    pub fn offset(&self, node: NodeId) -> u64 {
        self.nodes[node].offset
    }

    /// The segment that it is a part of.
    pub fn segment(&self, node: NodeId) -> SegmentId {
        self.nodes[node].segment
    }

    /// What it is used for.
    pub fn state(&self, node: NodeId) -> State {
        self.nodes[node].state
    }

    /// Of a free node: what to wait for. Of a taken one: the uses recorded so far.
    pub fn points(&self, node: NodeId) -> &Points {
        &self.nodes[node].points
    }

    /// The uses recorded on a taken node, to add to or clear. Not for free nodes, whose points
    /// decide which bin they are in.
    pub fn points_mut(&mut self, node: NodeId) -> &mut Points {
        debug_assert!(!self.nodes[node].is_free(), "{node:?} is free");
        &mut self.nodes[node].points
    }

    /// The user word of a taken node; [`NO_OWNER`] if free or not set.
    pub fn owner(&self, node: NodeId) -> u32 {
        let node = &self.nodes[node];
        if node.is_free() { NO_OWNER } else { node.back }
    }

    /// Sets the user word of a taken node. It is lost when the node is freed.
    pub fn set_owner(&mut self, node: NodeId, owner: u32) {
        debug_assert!(!self.nodes[node].is_free(), "{node:?} is free");
        if !self.nodes[node].is_free() {
            self.nodes[node].back = owner;
        }
    }

    /// The node after this one in its segment.
    pub fn next(&self, node: NodeId) -> Option<NodeId> {
        self.nodes[node].next.some()
    }

    /// The node before this one in its segment.
    pub fn prev(&self, node: NodeId) -> Option<NodeId> {
        self.nodes[node].prev.some()
    }

    /// The node at offset 0; `None` only if the segment has no bytes.
    pub fn first(&self, segment: SegmentId) -> Option<NodeId> {
        self.segments[segment.0 as usize].first.some()
    }

    /// The node at the end; `None` only if the segment has no bytes.
    pub fn last(&self, segment: SegmentId) -> Option<NodeId> {
        self.segments[segment.0 as usize].last.some()
    }

    /// Segment, first byte, bytes and recorded uses of a taken node.
    #[inline(always)]
    pub fn extent(&mut self, node: NodeId) -> (SegmentId, u64, u64, &mut Points) {
        let node = &mut self.nodes[node];
        (node.segment, node.offset, node.bytes, &mut node.points)
    }

    /// The nodes of a segment in order of address.
    pub fn iter(&self, segment: SegmentId) -> impl Iterator<Item = NodeView<'_>> + '_ {
        successors(self.first(segment), |node| self.next(*node)).map(|node| self.view(node))
    }

    /// The free nodes of a home, roughly by size (in order of their bins).
    pub fn iter_free(&self, home: Home) -> impl Iterator<Item = NodeView<'_>> + '_ {
        let bins = self.homes.get(home).into_iter();
        bins.flat_map(|bins| bins.all(&self.nodes, &self.homes.rows)).map(|node| self.view(node))
    }

    /// The segments there are, by number.
    pub fn segments(&self) -> impl Iterator<Item = SegmentId> + '_ {
        let present = self.segments.iter().enumerate().filter(|(_, segment)| segment.present);
        present.map(|(at, _)| SegmentId(at as u32))
    }

    /// Length of a segment in bytes.
    pub fn segment_len(&self, segment: SegmentId) -> u64 {
        self.segments[segment.0 as usize].len
    }

    /// Free bytes of a segment, in all homes.
    pub fn segment_free(&self, segment: SegmentId) -> u64 {
        self.segments[segment.0 as usize].free
    }

    /// Whether nothing of the segment is taken; its free nodes may still wait for work.
    pub fn is_wholly_free(&self, segment: SegmentId) -> bool {
        let segment = &self.segments[segment.0 as usize];
        segment.free == segment.len
    }

    /// Nodes there are, free and taken.
    pub fn nodes(&self) -> usize {
        self.nodes.len() as usize
    }

    /// Free bytes of all segments and homes.
    pub fn total_free(&self) -> u64 {
        self.free
    }

    /// Free bytes of one home in all segments; of [`Home::Done`]: free with nothing to wait for.
    pub fn home_free(&self, home: Home) -> u64 {
        self.homes.get(home).map_or(0, |bins| bins.bytes)
    }

    /// The most bytes that a single free node of any home has. O(homes + nodes in one bin each).
    pub fn largest_free(&self) -> u64 {
        self.largest_among(usize::MAX)
    }

    /// The most bytes of a free node, of no more than `most` nodes for each home: where more nodes
    /// are about as large as the largest, that can be up to 3 % larger. O(homes + nodes).
    pub fn largest_among(&self, most: usize) -> u64 {
        let rows = &self.homes.rows;
        self.homes.all().map(|(_, bins)| bins.largest(&self.nodes, rows, most)).max().unwrap_or(0)
    }

    /// Slots of nodes that were ever used: [`taken_in`](Self::taken_in) looks at them.
    pub fn slots(&self) -> u32 {
        self.nodes.slots() as u32
    }

    /// The taken nodes in a part of the slots, in no order. A walk over all of them, in parts
    /// between which things change, sees every node that was there all the time.
    pub fn taken_in(&self, slots: std::ops::Range<u32>) -> impl Iterator<Item = NodeView<'_>> + '_ {
        slots.map(NodeId).filter_map(|id| {
            let node = self.nodes.get(id)?;
            (node.bytes > 0 && !node.is_free()).then(|| self.view(id))
        })
    }

    /// 1 - largest free node / total free: 0 when all free bytes are in one node or there are
    /// none, near 1 when they are scattered.
    pub fn external_fragmentation(&self) -> f64 {
        if self.free == 0 {
            return 0.0;
        }
        1.0 - self.largest_free() as f64 / self.free as f64
    }
}
