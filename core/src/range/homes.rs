//! The free index: bins per home. Bins of a stream are made when the first hole comes home to it
//! and dropped with the last, so a stream that is gone leaves nothing behind.

use crate::point::StreamId;

use super::bins::{Bins, Rows};
use super::node::{Home, NodeId, Slab};
use super::reap::Walk;

/// Dropped bins kept for the next stream, so that a home that comes and goes allocates nothing.
const SPARE: usize = 4;

#[derive(Default)]
pub(super) struct Homes {
    pub rows: Rows,
    pub done: Bins,
    pub shared: Bins,
    /// Ordered by stream; none is empty.
    // Boxed, so that keeping the order moves 16 bytes a home.
    pub streams: Vec<(StreamId, Box<Bins>)>,
    /// How far the search for what is reached is.
    pub walk: Walk,
    #[allow(clippy::vec_box)]
    spare: Vec<Box<Bins>>,
}

impl Homes {
    /// The bins of a home, if it has any entry.
    #[inline]
    pub fn get(&self, home: Home) -> Option<&Bins> {
        match home {
            Home::Done => Some(&self.done),
            Home::Shared => Some(&self.shared),
            Home::Stream(stream) => {
                let at = self.streams.binary_search_by_key(&stream, |home| home.0).ok()?;
                Some(&self.streams[at].1)
            }
        }
    }

    pub fn insert(&mut self, id: NodeId, nodes: &mut Slab) {
        match nodes[id].home() {
            Home::Done => self.done.insert(id, nodes, &mut self.rows),
            Home::Shared => self.shared.insert(id, nodes, &mut self.rows),
            Home::Stream(stream) => {
                let at = match self.streams.binary_search_by_key(&stream, |home| home.0) {
                    Ok(at) => at,
                    Err(at) => {
                        let bins = self.spare.pop().unwrap_or_default();
                        self.streams.insert(at, (stream, bins));
                        at
                    }
                };
                self.streams[at].1.insert(id, nodes, &mut self.rows);
            }
        }
    }

    /// Takes a node out of the bins of `home`, which its points told when it went in.
    pub fn remove(&mut self, id: NodeId, home: Home, nodes: &mut Slab) {
        if self.walk.node == id {
            self.walk.node = nodes[id].forward;
        }
        match home {
            Home::Done => self.done.remove(id, nodes, &mut self.rows),
            Home::Shared => self.shared.remove(id, nodes, &mut self.rows),
            Home::Stream(stream) => {
                let Ok(at) = self.streams.binary_search_by_key(&stream, |home| home.0) else {
                    debug_assert!(false, "{id:?} is in no bin");
                    return;
                };
                let bins = &mut self.streams[at].1;
                bins.remove(id, nodes, &mut self.rows);
                if bins.nodes == 0 {
                    let (_, mut bins) = self.streams.remove(at);
                    if self.spare.len() < SPARE {
                        // The rest is as in new bins, since nothing is left in them.
                        (bins.lowest, bins.fresh) = (u64::MAX, u64::MAX);
                        self.spare.push(bins);
                    }
                }
            }
        }
    }

    /// The bins of the streams, in order.
    pub fn streams(&self) -> impl Iterator<Item = (StreamId, &Bins)> {
        self.streams.iter().map(|(stream, bins)| (*stream, &**bins))
    }

    /// The first stream not below `from` that has bins.
    pub fn stream_from(&self, from: StreamId) -> Option<(StreamId, &Bins)> {
        let at = self.streams.partition_point(|home| home.0 < from);
        self.streams.get(at).map(|(stream, bins)| (*stream, &**bins))
    }

    /// Notes that a walk over a stream's entries begins.
    pub fn begin_walk(&mut self, stream: StreamId) {
        if let Ok(at) = self.streams.binary_search_by_key(&stream, |home| home.0) {
            self.streams[at].1.fresh = u64::MAX;
        }
    }

    /// Raises the lower bound of a stream's values after a walk over those that were there when it
    /// began.
    pub fn raise_lowest(&mut self, stream: StreamId, found: Option<u64>) {
        let fresh = self.get(Home::Stream(stream)).map(|bins| bins.fresh);
        if let (Some(found), Some(fresh)) = (found, fresh) {
            self.set_lowest(stream, found.min(fresh));
        }
    }

    /// Sets the lower bound of a stream's values.
    pub fn set_lowest(&mut self, stream: StreamId, lowest: u64) {
        if let Ok(at) = self.streams.binary_search_by_key(&stream, |home| home.0) {
            self.streams[at].1.lowest = lowest;
        }
    }

    /// The bins of all homes: done, the streams in order, shared.
    pub fn all(&self) -> impl Iterator<Item = (Home, &Bins)> {
        std::iter::once((Home::Done, &self.done))
            .chain(self.streams().map(|(stream, bins)| (Home::Stream(stream), bins)))
            .chain(std::iter::once((Home::Shared, &self.shared)))
    }
}
