//! Dropping points that are reached from free nodes.

use crate::point::{Points, StreamId, SyncPoint};

use super::Ranges;
use super::bins::Bin;
use super::node::{Home, NodeId};

/// What a part of a walk did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reaped {
    /// Bytes that became done.
    pub bytes: u64,
    /// Whether the walk has come to its end.
    pub is_over: bool,
}

/// How far a walk over the free nodes that wait for something is.
#[derive(Clone, Copy)]
pub(super) struct Walk {
    /// The home under the walk; done while there is no walk.
    pub home: Home,
    /// The bin that comes next.
    bin: Bin,
    /// The node that comes next. Whoever takes it out of its bin moves this on.
    pub node: NodeId,
    /// The highest value of the stream that is known to be reached.
    known: u64,
    /// The lowest value that was found not to be reached; none where nothing was looked at.
    lowest: Option<u64>,
    /// Walks that have come to their end.
    pub ended: u32,
}

impl Walk {
    pub const NONE: Self = Self {
        home: Home::Done,
        bin: Bin::FIRST,
        node: NodeId::NONE,
        known: 0,
        lowest: None,
        ended: 0,
    };
}

impl Default for Walk {
    fn default() -> Self {
        Self::NONE
    }
}

impl Ranges {
    /// For each stream that free nodes wait for, a point that is not after the first of theirs;
    /// of nodes that wait for several streams, every point. In no order, with repetitions.
    pub fn awaited_points(&self) -> impl Iterator<Item = SyncPoint> + '_ {
        let one = self.homes.streams();
        let one = one.map(|(stream, bins)| SyncPoint { stream, value: bins.lowest });
        one.chain(self.iter_free(Home::Shared).flat_map(|node| node.points.iter()))
    }

    /// Drops the points for which `reached` is true from all free nodes, re-homes and coalesces
    /// them; gives the bytes that became done.
    ///
    /// `reached` is asked stream by stream in their order, last about shared nodes; it must stay
    /// true for a point, and be true for lower values of the same stream, once it was true. A
    /// stream whose lowest value is not reached costs one question; otherwise the cost is
    /// proportional to the free nodes that are not done.
    pub fn reap(&mut self, reached: &mut dyn FnMut(SyncPoint) -> bool) -> u64 {
        self.homes.walk = Walk { ended: self.homes.walk.ended, ..Walk::NONE };
        let mut bytes = 0;
        loop {
            let part = self.reap_some(reached, u32::MAX);
            bytes += part.bytes;
            if part.is_over {
                return bytes;
            }
        }
    }

    /// [`reap`](Self::reap) for one stream whose work is known to be done up to `value`.
    pub fn reap_stream(&mut self, stream: StreamId, value: u64) -> u64 {
        self.reap(&mut |point| point.stream == stream && point.value <= value)
    }

    /// A part of a [`reap`](Self::reap): goes on with the walk that is under way, or begins one,
    /// and looks at no more than `most` nodes. Anything may be taken and freed between two parts:
    /// what is freed behind the walk is left to the next one.
    pub fn reap_some(&mut self, reached: &mut dyn FnMut(SyncPoint) -> bool, most: u32) -> Reaped {
        let before = self.homes.done.bytes;
        let mut is_over = false;
        for _ in 0..most {
            match self.homes.walk.node.some() {
                Some(node) => self.visit(node, reached),
                None => is_over = !self.walk_on(reached),
            }
            if is_over {
                break;
            }
        }
        Reaped { bytes: self.homes.done.bytes - before, is_over }
    }

    /// Walks that have come to their end, and whether one is under way.
    pub fn walks(&self) -> (u32, bool) {
        (self.homes.walk.ended, self.homes.walk.home != Home::Done)
    }

    /// Drops what is reached from one node. Coalescing may take other nodes out of their bins; the
    /// walk then goes on behind them.
    fn visit(&mut self, node: NodeId, reached: &mut dyn FnMut(SyncPoint) -> bool) {
        self.homes.walk.node = self.nodes[node].forward;
        let Home::Stream(stream) = self.homes.walk.home else {
            // In place and asked once: the answer may change from one question to the next.
            let points = &mut self.nodes[node].points;
            points.retain(|point| !reached(*point));
            if points.len() < 2 {
                self.unlink_from(node, Home::Shared);
                self.settle(node);
            }
            return;
        };
        let value = self.nodes[node].points.as_slice().first().map_or(0, |point| point.value);
        let Walk { known, lowest, .. } = &mut self.homes.walk;
        let least = lowest.unwrap_or(u64::MAX);
        if value <= *known || (value < least && reached(SyncPoint { stream, value })) {
            *known = value.max(*known);
            self.unlink(node);
            self.nodes[node].points = Points::NONE;
            self.settle(node);
        } else {
            *lowest = Some(value.min(least));
        }
    }

    /// Goes on to the next bin that holds something, or to the next home. `false` at the end.
    fn walk_on(&mut self, reached: &mut dyn FnMut(SyncPoint) -> bool) -> bool {
        let Walk { home, bin, lowest, ended, .. } = self.homes.walk;
        if home != Home::Done
            && let Some((at, node)) = self.first_from(home, bin)
        {
            (self.homes.walk.bin, self.homes.walk.node) = (at.after(), node);
            return true;
        }
        let next = match home {
            Home::Done => self.homes.stream_from(StreamId(0)),
            Home::Stream(stream) => {
                self.homes.raise_lowest(stream, lowest);
                let next = stream.0.checked_add(1).map(StreamId);
                next.and_then(|from| self.homes.stream_from(from))
            }
            Home::Shared => {
                self.homes.walk = Walk { ended: ended.wrapping_add(1), ..Walk::NONE };
                return false;
            }
        };
        let walk = Walk { ended, ..Walk::NONE };
        self.homes.walk = match next.map(|(stream, bins)| (stream, bins.lowest)) {
            None => Walk { home: Home::Shared, ..walk },
            Some((stream, value)) if reached(SyncPoint { stream, value }) => {
                self.homes.begin_walk(stream);
                Walk { home: Home::Stream(stream), lowest: Some(u64::MAX), ..walk }
            }
            // Nothing of it is reached: past its last bin.
            Some((stream, _)) => Walk { home: Home::Stream(stream), bin: Bin::END, ..walk },
        };
        true
    }

    fn first_from(&self, home: Home, from: Bin) -> Option<(Bin, NodeId)> {
        let bins = self.homes.get(home)?;
        let bin = bins.next_from(from, &self.homes.rows)?;
        Some((bin, bins.head(bin, &self.homes.rows)))
    }
}
