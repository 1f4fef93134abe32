//! Taking, freeing and resizing nodes.
//!
//! A node is in a bin exactly while its state is free: `link` and `unlink` change both, and the
//! count of boundaries with them.

use std::mem;

use crate::point::Points;

use super::find::Fit;
use super::node::{Home, NO_OWNER, Node, NodeId, State};
use super::{Ranges, SegmentId};

impl Ranges {
    /// Takes the bytes of `fit`, which must be within one free node and up to date; what is left
    /// of that node before and after them stays free with the same points.
    ///
    /// Gives the taken node (owner unset) and the points to wait for; its own are empty from now
    /// on and record its uses.
    pub fn take(&mut self, fit: Fit, state: State) -> (NodeId, Points) {
        debug_assert!(state != State::Free, "taken as free");
        let front = self.nodes[fit.node].offset;
        debug_assert!(self.nodes[fit.node].is_free(), "{:?} is not free", fit.node);
        debug_assert!(
            fit.bytes > 0
                && fit.offset >= front
                && fit.offset - front <= self.nodes[fit.node].bytes
                && fit.bytes <= self.nodes[fit.node].bytes - (fit.offset - front),
            "{fit:?} is not within its node"
        );
        self.unlink(fit.node);
        let points = mem::take(&mut self.nodes[fit.node].points);
        let mut node = fit.node;
        if fit.offset > front {
            node = self.split(fit.node, fit.offset - front);
            self.nodes[fit.node].points = points.clone();
            self.link(fit.node);
        }
        if fit.bytes < self.nodes[node].bytes {
            let rest = self.split(node, fit.bytes);
            self.nodes[rest].points = points.clone();
            self.link(rest);
        }
        self.mark_taken(node, state);
        (node, points)
    }

    /// Changes one taken state into another.
    pub fn set_state(&mut self, node: NodeId, state: State) {
        let old = &mut self.nodes[node].state;
        debug_assert!(
            *old != State::Free && state != State::Free,
            "{node:?}: {old:?} to {state:?}"
        );
        if *old != State::Free && state != State::Free {
            *old = state;
        }
    }

    /// Frees a taken node: it waits for `points` and for the uses recorded on it, and is
    /// coalesced with free neighbours of the same home, keeping the latest point of each stream.
    ///
    /// Gives the free node that it is now part of.
    pub fn free(&mut self, node: NodeId, points: Points) -> NodeId {
        debug_assert!(!self.nodes[node].is_free(), "{node:?} is freed twice");
        if self.nodes[node].is_free() {
            return node;
        }
        let bytes = self.nodes[node].bytes;
        self.count_free(self.nodes[node].segment, bytes);
        self.add_points(node, points);
        self.settle(node)
    }

    /// The points that growing `node` to `new_bytes` in place would have to wait for, or `None`
    /// if the free bytes right after it do not suffice. O(nodes taken over).
    pub fn growth(&self, node: NodeId, new_bytes: u64) -> Option<Points> {
        let mut missing = new_bytes.saturating_sub(self.nodes[node].bytes);
        let mut points = Points::NONE;
        let mut at = node;
        while missing > 0 {
            at = self.nodes[at].next.some()?;
            let next = &self.nodes[at];
            if !next.is_free() {
                return None;
            }
            points.merge(&next.points);
            missing = missing.saturating_sub(next.bytes);
        }
        Some(points)
    }

    /// Grows a taken node to `new_bytes` by taking over free bytes right after it, whatever their
    /// homes, and gives the points to wait for before the new bytes are used. `None`, and nothing
    /// changes, when those bytes do not suffice. O(nodes taken over).
    pub fn grow_in_place(&mut self, node: NodeId, new_bytes: u64) -> Option<Points> {
        debug_assert!(!self.nodes[node].is_free(), "{node:?} is free");
        let points = self.growth(node, new_bytes)?;
        while self.nodes[node].bytes < new_bytes {
            let next = self.nodes[node].next;
            let missing = new_bytes - self.nodes[node].bytes;
            self.unlink(next);
            self.cut_free_tail(next, missing);
            self.count_taken(self.nodes[next].segment, self.nodes[next].bytes);
            self.nodes[next].points = Points::NONE;
            self.absorb_next(node);
        }
        Some(points)
    }

    /// Cuts a taken node to its first `new_bytes` (1 to its size); the tail becomes free, waiting
    /// for `points` and for the uses recorded on the node.
    pub fn shrink(&mut self, node: NodeId, new_bytes: u64, points: Points) {
        debug_assert!(!self.nodes[node].is_free(), "{node:?} is free");
        debug_assert!(new_bytes > 0, "shrunk to nothing");
        if new_bytes == 0 || new_bytes >= self.nodes[node].bytes {
            return;
        }
        let tail = self.split(node, new_bytes);
        self.nodes[tail].points = self.nodes[node].points.clone();
        self.add_points(tail, points);
        self.count_free(self.nodes[tail].segment, self.nodes[tail].bytes);
        self.settle(tail);
    }

    /// Makes an unlinked node free: coalesces it with neighbours of the same home and links the
    /// result, which it gives.
    pub(super) fn settle(&mut self, mut node: NodeId) -> NodeId {
        let home = self.nodes[node].home();
        let Node { prev, next, .. } = self.nodes[node];
        // A neighbour that is absorbed brings its other boundary along.
        if next != NodeId::NONE && self.nodes[next].is_free() {
            if self.nodes[next].home() == home {
                self.homes.remove(next, home, &mut self.nodes);
                self.absorb_next(node);
            } else {
                self.boundaries += 1;
            }
        }
        if prev != NodeId::NONE && self.nodes[prev].is_free() {
            if self.nodes[prev].home() == home {
                self.homes.remove(prev, home, &mut self.nodes);
                self.absorb_next(prev);
                node = prev;
            } else {
                self.boundaries += 1;
            }
        }
        self.nodes[node].state = State::Free;
        self.homes.insert(node, &mut self.nodes);
        node
    }

    /// Puts an unlinked node into its bin and state free. Its neighbours have other homes.
    pub(super) fn link(&mut self, node: NodeId) {
        self.boundaries += self.free_neighbours(node);
        self.nodes[node].state = State::Free;
        self.homes.insert(node, &mut self.nodes);
    }

    /// Takes a free node out of its bin; its state is mapping until somebody says otherwise.
    pub(super) fn unlink(&mut self, node: NodeId) {
        self.unlink_from(node, self.nodes[node].home());
    }

    /// [`unlink`](Self::unlink) for a node whose points were changed since it was linked.
    pub(super) fn unlink_from(&mut self, node: NodeId, home: Home) {
        self.homes.remove(node, home, &mut self.nodes);
        let entry = &mut self.nodes[node];
        entry.state = State::Mapping;
        entry.back = NO_OWNER;
        entry.forward = NodeId::NONE;
        if self.boundaries > 0 {
            self.boundaries -= self.free_neighbours(node);
        }
    }

    fn free_neighbours(&self, node: NodeId) -> u32 {
        let Node { prev, next, .. } = self.nodes[node];
        [prev, next]
            .into_iter()
            .filter(|at| at.some().is_some_and(|at| self.nodes[at].is_free()))
            .count() as u32
    }

    /// Cuts an unlinked node after `bytes`; the new node after it has no points.
    pub(super) fn split(&mut self, node: NodeId, bytes: u64) -> NodeId {
        let Node { offset, bytes: whole, next, segment, .. } = self.nodes[node];
        let tail = self.nodes.insert(Node {
            offset: offset + bytes,
            bytes: whole - bytes,
            points: Points::NONE,
            prev: node,
            next,
            segment,
            back: NO_OWNER,
            forward: NodeId::NONE,
            state: State::Mapping,
        });
        self.nodes[node].bytes = bytes;
        self.nodes[node].next = tail;
        match next.some() {
            Some(next) => self.nodes[next].prev = tail,
            None => self.segments[segment.0 as usize].last = tail,
        }
        tail
    }

    /// Makes the unlinked node after an unlinked one part of it, points included.
    pub(super) fn absorb_next(&mut self, node: NodeId) {
        let gone = self.nodes[node].next;
        let points = mem::take(&mut self.nodes[gone].points);
        let Node { bytes, next, segment, .. } = self.nodes[gone];
        self.add_points(node, points);
        self.nodes[node].bytes += bytes;
        self.nodes[node].next = next;
        match next.some() {
            Some(next) => self.nodes[next].prev = node,
            None => self.segments[segment.0 as usize].last = node,
        }
        self.nodes.remove(gone);
    }

    fn add_points(&mut self, node: NodeId, points: Points) {
        let mine = &mut self.nodes[node].points;
        if mine.is_empty() {
            *mine = points;
        } else {
            mine.merge(&points);
        }
    }

    /// Gives an unlinked node its taken state and counts its bytes as taken.
    pub(super) fn mark_taken(&mut self, node: NodeId, state: State) {
        let entry = &mut self.nodes[node];
        // Free would break the bins; a caller that asks for it gets a node it can free.
        entry.state = if state == State::Free { State::Mapping } else { state };
        let (segment, bytes) = (entry.segment, entry.bytes);
        self.count_taken(segment, bytes);
    }

    fn count_taken(&mut self, segment: SegmentId, bytes: u64) {
        self.segments[segment.0 as usize].free -= bytes;
        self.free -= bytes;
    }

    pub(super) fn count_free(&mut self, segment: SegmentId, bytes: u64) {
        self.segments[segment.0 as usize].free += bytes;
        self.free += bytes;
    }
}
