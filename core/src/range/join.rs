//! Runs: adjacent free nodes of different homes, which a request may take together if it waits.

use std::iter::successors;

use crate::point::{Points, StreamId};
use crate::units::Align;

use super::node::{Home, NodeId, State};
use super::{Ranges, SegmentId};

/// Nodes looked at in a search for a join before the best so far is taken.
const VISITS: usize = 4096;

/// A place for a request over two or more adjacent free nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// The node that the place begins in.
    pub first: NodeId,
    /// The node that it ends in.
    pub last: NodeId,
    /// Where in the segment, aligned as asked.
    pub offset: u64,
    /// How much is to be taken.
    pub bytes: u64,
    /// What has to be reached on every stream before the whole place may be used.
    pub points: Points,
    /// Streams in `points` other than the one that asked.
    pub waits: u32,
}

impl Ranges {
    /// [`find_join_for`](Self::find_join_for) a request that is on no stream.
    pub fn find_join(&self, bytes: u64, align: Align) -> Option<Join> {
        self.find_join_for(bytes, align, None)
    }

    /// Adjacent free nodes that fit a request together and not alone: those with the fewest
    /// streams to wait for other than `own`, then the fewest bytes, then the lowest place.
    ///
    /// Free of cost while no two free nodes are adjacent. Otherwise it looks at the free nodes
    /// that are not done, and stops with the best so far after about `VISITS` nodes compared.
    pub fn find_join_for(&self, bytes: u64, align: Align, own: Option<StreamId>) -> Option<Join> {
        debug_assert!(bytes > 0, "a request of no bytes");
        let mut best: Option<(u32, u64, SegmentId, u64, Join)> = None;
        let mut visits = 0;
        for start in self.runs() {
            for first in self.run(start) {
                let Some((last, offset)) = self.window(first, bytes, align) else { continue };
                if first == last {
                    continue;
                }
                let (points, nodes) = self.union(first, last);
                let waits = points.iter().filter(|point| Some(point.stream) != own).count() as u32;
                let (from, to) = (&self.nodes[first], &self.nodes[last]);
                let cost = (waits, to.end() - from.offset, from.segment, from.offset);
                if best.as_ref().is_none_or(|best| cost < (best.0, best.1, best.2, best.3)) {
                    let join = Join { first, last, offset, bytes, points, waits };
                    best = Some((cost.0, cost.1, cost.2, cost.3, join));
                }
                visits += nodes;
                if visits >= VISITS {
                    return best.map(|best| best.4);
                }
            }
        }
        best.map(|best| best.4)
    }

    /// Takes the place of a join, which must be up to date; what is left of its first and last
    /// node stays free with that node's points. Gives the taken node and the points to wait for.
    pub fn take_join(&mut self, join: Join, state: State) -> (NodeId, Points) {
        let Join { first, offset, bytes, points: expected, .. } = join;
        let front = self.nodes[first].offset;
        debug_assert!(self.nodes[first].is_free() && offset >= front, "{first:?} has changed");
        self.unlink(first);
        let mut node = first;
        if offset > front {
            node = self.split(first, offset - front);
            self.nodes[node].points = self.nodes[first].points.clone();
            self.link(first);
        }
        self.cut_free_tail(node, bytes);
        while self.nodes[node].bytes < bytes {
            let next = self.nodes[node].next;
            debug_assert!(self.nodes[next].is_free(), "{next:?} is not free any more");
            self.unlink(next);
            self.cut_free_tail(next, bytes - self.nodes[node].bytes);
            self.absorb_next(node);
        }
        let points = std::mem::take(&mut self.nodes[node].points);
        debug_assert_eq!(points, expected, "the join is out of date");
        self.mark_taken(node, state);
        (node, points)
    }

    /// Makes what an unlinked node has beyond `bytes` a free node with the same points.
    pub(super) fn cut_free_tail(&mut self, node: NodeId, bytes: u64) {
        if bytes < self.nodes[node].bytes {
            let rest = self.split(node, bytes);
            self.nodes[rest].points = self.nodes[node].points.clone();
            self.link(rest);
        }
    }

    /// The most bytes that adjacent free nodes have together, whatever their homes.
    pub fn largest_run(&self) -> u64 {
        let joined =
            self.runs().map(|start| self.run(start).map(|node| self.nodes[node].bytes).sum());
        joined.fold(self.largest_free(), u64::max)
    }

    /// The first nodes of all runs of two or more free nodes. Two neighbours differ in home, so
    /// every run has a node that is not done: the first such node of a run stands for it.
    pub fn runs(&self) -> impl Iterator<Item = NodeId> + '_ {
        let any = self.boundaries > 0;
        self.homes
            .all()
            .filter(move |(home, _)| any && *home != Home::Done)
            .flat_map(|(_, bins)| bins.all(&self.nodes, &self.homes.rows))
            .filter_map(|node| self.run_start(node))
            .filter(|start| self.next_free(*start).is_some())
    }

    /// Where the run begins whose first node that is not done is `node`.
    fn run_start(&self, node: NodeId) -> Option<NodeId> {
        let Some(before) = self.previous_free(node) else { return Some(node) };
        let first = self.nodes[before].home() == Home::Done && self.previous_free(before).is_none();
        first.then_some(before)
    }

    fn run(&self, start: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        successors(Some(start), |node| self.next_free(*node))
    }

    fn next_free(&self, node: NodeId) -> Option<NodeId> {
        self.nodes[node].next.some().filter(|next| self.nodes[*next].is_free())
    }

    fn previous_free(&self, node: NodeId) -> Option<NodeId> {
        self.nodes[node].prev.some().filter(|prev| self.nodes[*prev].is_free())
    }

    /// Where a place that begins in `first` ends, and its offset.
    fn window(&self, first: NodeId, bytes: u64, align: Align) -> Option<(NodeId, u64)> {
        let node = &self.nodes[first];
        let offset = align.round_up(node.offset)?;
        let end = offset.checked_add(bytes)?;
        if offset >= node.end() {
            return None;
        }
        let last = self.run(first).find(|last| self.nodes[*last].end() >= end)?;
        Some((last, offset))
    }

    /// The points of the nodes from `first` to `last`, and how many nodes these are.
    fn union(&self, first: NodeId, last: NodeId) -> (Points, usize) {
        let mut points = Points::NONE;
        let mut nodes = 0;
        for node in self.run(first) {
            points.merge(&self.nodes[node].points);
            nodes += 1;
            if node == last {
                break;
            }
        }
        (points, nodes)
    }
}
