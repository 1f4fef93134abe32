//! What moves need of the index: free room at a given place, and a block that changes places with
//! the gap beside it.

use std::iter::successors;
use std::mem;

use crate::point::Points;

use super::node::{NodeId, State};
use super::{Join, Ranges, SegmentId};

/// Nodes that a search for a given place passes at most: it is made with the lock held.
const STEPS_MAX: usize = 64;

impl Ranges {
    /// Free bytes at exactly `offset`, looked for from `after` (a taken node before it, or the
    /// start of the segment) over taken nodes up to there. `None` when they are not all free, and
    /// when more than 64 nodes lie between: the lock is held meanwhile.
    pub fn room_at(
        &self,
        segment: SegmentId,
        after: Option<NodeId>,
        offset: u64,
        bytes: u64,
    ) -> Option<Join> {
        self.room_from(segment, after, offset, bytes, STEPS_MAX).filter(|join| join.bytes == bytes)
    }

    /// [`room_at`](Self::room_at) for the front of a range that may consist of many free nodes: of
    /// the first `most` of them.
    pub fn room_from(
        &self,
        segment: SegmentId,
        after: Option<NodeId>,
        offset: u64,
        bytes: u64,
        most: usize,
    ) -> Option<Join> {
        let from = after.or_else(|| self.first(segment))?;
        let end = offset.checked_add(bytes)?;
        let mut near = successors(Some(from), |node| self.next(*node)).take(STEPS_MAX);
        let first = near.find(|node| self.nodes[*node].end() > offset)?;
        if self.nodes[first].offset > offset {
            return None;
        }
        let mut join =
            Join { first, last: first, offset, bytes: 0, points: Points::NONE, waits: 0 };
        for node in successors(Some(first), |node| self.next(*node)).take(most) {
            let at = &self.nodes[node];
            if !at.is_free() {
                return None;
            }
            join.points.merge(&at.points);
            (join.last, join.bytes) = (node, at.end().min(end) - offset);
            if at.end() >= end {
                break;
            }
        }
        Some(join)
    }

    /// Lets a taken node change places with the taken node right before it (the gap): it begins
    /// where the gap began. Its recorded uses stay with it, its user word is lost. Gives the
    /// node that it is now, live, and the gap behind it; `None`, and nothing changes, when they
    /// are no such neighbours.
    pub fn slide_down(&mut self, gap: NodeId, node: NodeId) -> Option<(NodeId, NodeId)> {
        if self.next(gap) != Some(node) || self.is_any_free(gap, node) {
            return None;
        }
        let bytes = self.nodes[node].bytes;
        self.nodes[gap].points = Points::NONE;
        self.absorb_next(gap);
        let rest = self.split(gap, bytes);
        self.nodes[gap].state = State::Live;
        Some((gap, rest))
    }

    /// [`slide_down`](Self::slide_down) the other way: the gap is right behind the node.
    pub fn slide_up(&mut self, node: NodeId, gap: NodeId) -> Option<(NodeId, NodeId)> {
        if self.next(node) != Some(gap) || self.is_any_free(node, gap) {
            return None;
        }
        let bytes = self.nodes[gap].bytes;
        let uses = mem::take(&mut self.nodes[node].points);
        self.nodes[gap].points = Points::NONE;
        self.absorb_next(node);
        let block = self.split(node, bytes);
        self.nodes[block].points = uses;
        self.nodes[block].state = State::Live;
        self.nodes[node].state = State::Mapping;
        Some((block, node))
    }

    /// Makes a taken node part of the taken node right before it, whose state and user word stay.
    /// Tells whether they were such neighbours.
    pub fn join_taken(&mut self, node: NodeId, next: NodeId) -> bool {
        if self.next(node) != Some(next) || self.is_any_free(node, next) {
            return false;
        }
        self.absorb_next(node);
        true
    }

    /// Cuts a taken node after `bytes` (more than none, less than all): the rest is a taken node
    /// of its own, without points, in state mapping.
    pub fn cut_taken(&mut self, node: NodeId, bytes: u64) -> Option<NodeId> {
        let whole = &self.nodes[node];
        if whole.is_free() || bytes == 0 || bytes >= whole.bytes {
            return None;
        }
        Some(self.split(node, bytes))
    }

    fn is_any_free(&self, a: NodeId, b: NodeId) -> bool {
        self.nodes[a].is_free() || self.nodes[b].is_free()
    }
}
