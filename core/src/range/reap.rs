//! Dropping points that are reached from free nodes.

use crate::point::{Points, StreamId, SyncPoint};

use super::Ranges;
use super::bins::Bin;
use super::node::{Home, NodeId};

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
        let before = self.homes.done.bytes;
        let mut from = Some(StreamId(0));
        while let Some((stream, bins)) = from.and_then(|from| self.homes.stream_from(from)) {
            let lowest = bins.lowest;
            if reached(SyncPoint { stream, value: lowest }) {
                self.reap_home(stream, reached);
            }
            from = stream.0.checked_add(1).map(StreamId);
        }
        self.reap_shared(reached);
        self.homes.done.bytes - before
    }

    /// [`reap`](Self::reap) for one stream whose work is known to be done up to `value`.
    pub fn reap_stream(&mut self, stream: StreamId, value: u64) -> u64 {
        let before = self.homes.done.bytes;
        let mut reached = |point: SyncPoint| point.stream == stream && point.value <= value;
        if self.homes.get(Home::Stream(stream)).is_some_and(|bins| bins.lowest <= value) {
            self.reap_home(stream, &mut reached);
        }
        self.reap_shared(&mut reached);
        self.homes.done.bytes - before
    }

    /// Moves the reached nodes of a stream's home to done. Coalescing there removes nothing from
    /// the home under the walk but the node in hand.
    fn reap_home(&mut self, stream: StreamId, reached: &mut dyn FnMut(SyncPoint) -> bool) {
        let home = Home::Stream(stream);
        let (mut known, mut lowest) = (0, u64::MAX);
        let mut bin = Bin::FIRST;
        while let Some((at, mut node)) = self.first_from(home, bin) {
            while node != NodeId::NONE {
                let next = self.nodes[node].forward;
                let value = self.nodes[node].points.as_slice().first().map_or(0, |p| p.value);
                if value <= known || (value < lowest && reached(SyncPoint { stream, value })) {
                    known = known.max(value);
                    self.unlink(node);
                    self.nodes[node].points = Points::NONE;
                    self.settle(node);
                } else {
                    lowest = lowest.min(value);
                }
                node = next;
            }
            bin = at.after();
        }
        self.homes.set_lowest(stream, lowest);
    }

    /// Drops reached points from shared nodes. A node that leaves may be coalesced in its new
    /// home, which removes nothing from this one.
    fn reap_shared(&mut self, reached: &mut dyn FnMut(SyncPoint) -> bool) {
        let mut bin = Bin::FIRST;
        while let Some((at, mut node)) = self.first_from(Home::Shared, bin) {
            while node != NodeId::NONE {
                let next = self.nodes[node].forward;
                // In place and asked once: the answer may change from one question to the next.
                let points = &mut self.nodes[node].points;
                points.retain(|point| !reached(*point));
                if points.len() < 2 {
                    self.unlink_from(node, Home::Shared);
                    self.settle(node);
                }
                node = next;
            }
            bin = at.after();
        }
    }

    fn first_from(&self, home: Home, from: Bin) -> Option<(Bin, NodeId)> {
        let bins = self.homes.get(home)?;
        let bin = bins.next_from(from, &self.homes.rows)?;
        Some((bin, bins.head(bin, &self.homes.rows)))
    }
}
