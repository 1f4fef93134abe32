//! Captured graphs and their private pools.
//!
//! A captured graph replays with the addresses it was captured with. So blocks allocated while a
//! stream is captured come from a pool of the graph's own: they are never moved, unmapped or
//! trimmed, and freed ones are reused only inside the graph, until the graph is released.
//!
//! Other blocks that a graph uses, weights and inputs, keep their place for as long, and their
//! memory too: freed meanwhile, they stay as they are until the last such graph is released. So
//! no page under them is ever stolen, trimmed or handed out behind a replay's back.

use crate::device::{CaptureId, View};
use crate::error::Error;
use crate::id::Key;
use crate::point::{Points, StreamId};

use super::handle::Handle;
use super::state::{Deferred, State, flag};
use super::{Allocator, Inner};

/// The private memory of one captured graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Graph {
    pub(crate) number: u32,
    pub(crate) allocator: u32,
}

impl Allocator {
    /// The graph being captured on a stream, if any: keep it to release its memory when the
    /// captured graph is destroyed.
    ///
    /// # Errors
    /// Never now; reserved for devices whose captures can be lost.
    pub fn graph(&self, stream: StreamId) -> Result<Option<Graph>, Error> {
        let number = self.inner.graph_of(stream)?;
        Ok(number.map(|number| Graph { number, allocator: self.inner.id }))
    }

    /// Tells that a captured graph is destroyed and its last replay is over: its freed memory
    /// can be trimmed, and serves nobody else before that. Blocks of it that are still live stay
    /// until they are freed. Blocks from elsewhere that it used may move again, and those that
    /// were freed meanwhile are free now. Pre: all work that used its memory is done.
    ///
    /// The allocator knows of the uses that go through it, and of those that
    /// [`record_use`](Self::record_use) or [`free_on`](Self::free_on) name the captured stream
    /// for.
    ///
    /// # Errors
    /// [`Error::ForeignHandle`] for a graph of another allocator;
    /// [`DeviceError::Capturing`](crate::error::DeviceError) while it is being captured.
    pub fn release_graph(&self, graph: Graph) -> Result<(), Error> {
        if graph.allocator != self.inner.id {
            return Err(Error::ForeignHandle);
        }
        self.inner.refuse_in_capture()?;
        let mut state = self.inner.lock();
        let finished = state.release_graph_pools(graph.number);
        drop(state);
        for view in finished {
            self.inner.destroy_views(Some(view));
        }
        self.inner.run_deferred();
        Ok(())
    }
}

impl Inner {
    /// The number of the graph being captured on a stream.
    #[inline]
    pub(super) fn graph_of(&self, stream: StreamId) -> Result<Option<u32>, Error> {
        if !self.caps().capture {
            return Ok(None);
        }
        match self.device.capture_of(stream) {
            Some(capture) => self.graph_number(capture),
            None => Ok(None),
        }
    }

    #[cold]
    fn graph_number(&self, capture: CaptureId) -> Result<Option<u32>, Error> {
        let CaptureId(id) = capture;
        let mut state = self.lock();
        if let Some(&number) = state.graphs.get(&id) {
            return Ok(Some(number));
        }
        let number = state.next_graph;
        state.next_graph = number.checked_add(1).ok_or(Error::TableFull)?;
        state.graphs.insert(id, number);
        Ok(Some(number))
    }

    /// Notes that work on a stream uses a block, if the stream is being captured.
    pub(super) fn note_if_captured(&self, handle: Handle, stream: StreamId) -> Result<(), Error> {
        let Some(graph) = self.graph_of(stream)? else { return Ok(()) };
        let key = handle.key_for(self.id)?;
        let mut state = self.lock();
        state.block(key)?;
        state.note_captured(key, graph);
        Ok(())
    }
}

impl State {
    /// Notes that a graph uses a block. One of the graph's own pool is kept for it anyway.
    pub(super) fn note_captured(&mut self, key: Key, graph: u32) {
        let Ok(block) = self.blocks.get(key) else { return };
        if self.pool(block).key.graph == Some(graph) {
            return;
        }
        if let Ok(block) = self.blocks.get_mut(key) {
            block.flags |= flag::CAPTURED;
        }
        let graphs = self.captured.entry(key).or_default();
        let is_first = graphs.is_empty();
        if !graphs.contains(&graph) {
            graphs.push(graph);
        }
        if is_first {
            self.tell_hold(key);
        }
    }

    /// Frees a block whose free was put off, unless a graph uses it: then once that is released.
    /// Gives a view that nothing uses any more.
    pub(super) fn complete_free(&mut self, key: Key, points: Points) -> Option<View> {
        if self.blocks.get(key).is_ok_and(|block| block.has(flag::CAPTURED)) {
            self.deferred.push(Deferred { key, points });
            return None;
        }
        self.release(key, &points)
    }

    /// Forgets that a graph uses blocks: those that no other one uses are like any block again.
    fn forget_captured(&mut self, graph: u32) {
        let Self { captured, blocks, .. } = self;
        let mut let_go = Vec::new();
        captured.retain(|key, graphs| {
            graphs.retain(|&other| other != graph);
            if graphs.is_empty()
                && let Ok(block) = blocks.get_mut(*key)
            {
                block.flags &= !flag::CAPTURED;
                let_go.push(*key);
            }
            !graphs.is_empty()
        });
        let_go.into_iter().for_each(|key| self.tell_hold(key));
    }

    /// Makes the freed memory of a graph's pools anybody's; gives the views that were kept for
    /// it.
    fn release_graph_pools(&mut self, graph: u32) -> Vec<View> {
        self.graphs.retain(|_, number| *number != graph);
        self.forget_captured(graph);
        let mut released: Vec<(crate::device::MemoryKind, u64)> = Vec::new();
        for pool in self.pools.iter_mut().filter(|pool| pool.key.graph == Some(graph)) {
            // The graph's last replay is over, and with it every use of this memory.
            let done = pool.reap(&|_| u64::MAX);
            released.push((pool.kind, done));
        }
        for (kind, done) in released {
            self.count_done(kind, done);
        }
        let mut views = Vec::new();
        self.retired_views.retain(|retired| {
            let of_graph = retired.graph == Some(graph);
            if of_graph {
                views.push(retired.view);
            }
            !of_graph
        });
        views
    }
}
