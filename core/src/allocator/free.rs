//! The way back: a block's range returns to its pool with the points of its last uses.

use std::panic::Location;

use rustc_hash::FxHashMap;

use crate::device::View;
use crate::error::Error;
use crate::event::{Event, EventKind};
use crate::id::Key;
use crate::point::{Points, StreamId, SyncPoint};

use super::handle::Handle;
use super::lock::Locked;
use super::state::{Block, Deferred, RetiredView, State, flag};
use super::{Allocator, Inner};

impl Allocator {
    /// Frees a block in stream order: later work on its stream may use the memory at once, other
    /// streams once the block's recorded uses are done.
    ///
    /// Work submitted through Terrane records its uses itself. On a wrapped foreign stream, all
    /// that was submitted so far counts as a use. Work launched by other means on further streams
    /// has to be told with [`record_use`](Self::record_use) or
    /// [`free_after`](Self::free_after).
    ///
    /// A block that is held is freed when its last guard is dropped.
    ///
    /// # Errors
    /// [`Error::DoubleFree`], [`Error::StaleHandle`], [`Error::ForeignHandle`]; nothing changes.
    #[track_caller]
    pub fn free(&self, handle: Handle) -> Result<(), Error> {
        self.inner.free(handle, &Points::NONE)
    }

    /// Frees a block that work submitted so far on `stream` may still use.
    ///
    /// # Errors
    /// As [`free`](Self::free), and the device's for an unknown stream.
    #[track_caller]
    pub fn free_on(&self, handle: Handle, stream: StreamId) -> Result<(), Error> {
        let point = self.inner.device.mark(stream)?;
        self.inner.note_if_captured(handle, stream)?;
        self.inner.free(handle, &Points::one(point))
    }

    /// Frees a block that is in use until all of `points` are reached.
    ///
    /// # Errors
    /// As [`free`](Self::free).
    #[track_caller]
    pub fn free_after(&self, handle: Handle, points: &Points) -> Result<(), Error> {
        self.inner.free(handle, points)
    }

    /// Records that work submitted so far on `stream` uses the block, so that a later free waits
    /// for it. On a stream that is being captured the use is the graph's, at every replay: the
    /// block keeps its place and its memory until [`release_graph`](Self::release_graph).
    ///
    /// # Errors
    /// [`Error::UseAfterFree`], [`Error::StaleHandle`], [`Error::ForeignHandle`], and the
    /// device's for an unknown stream.
    pub fn record_use(&self, handle: Handle, stream: StreamId) -> Result<(), Error> {
        let point = self.inner.device.mark(stream)?;
        self.inner.note_if_captured(handle, stream)?;
        self.inner.record_use(handle, &Points::one(point))
    }

    /// Records that the block is in use until `point` is reached.
    ///
    /// # Errors
    /// As [`record_use`](Self::record_use).
    pub fn record_use_until(&self, handle: Handle, point: SyncPoint) -> Result<(), Error> {
        self.inner.record_use(handle, &Points::one(point))
    }

    /// Makes later work on `stream` wait for `points`, such as [`Allocation::waits`].
    ///
    /// [`Allocation::waits`]: crate::Allocation::waits
    ///
    /// # Errors
    /// The device's for an unknown stream.
    pub fn insert_waits(&self, stream: StreamId, points: &Points) -> Result<(), Error> {
        Ok(self.inner.device.wait_on_stream(stream, points.as_slice())?)
    }

    /// Enlarges a block to `bytes` without moving it, if the memory after it is free; a smaller
    /// size only changes what is counted as requested. Gives the points that work using the new
    /// part has to wait for; work submitted through Terrane does by itself.
    ///
    /// # Errors
    /// [`Error::NoRoomToGrow`] when a neighbour is in the way; the block is as before.
    pub fn grow(&self, handle: Handle, bytes: u64) -> Result<Points, Error> {
        let key = handle.key_for(self.inner.id)?;
        self.inner.grow_in_place(key, bytes)
    }

    /// Tells the allocator that a stream ends: what is owed to it is settled by the points it
    /// has given so far, and the device's stream is retired.
    ///
    /// # Errors
    /// The device's for an unknown stream.
    pub fn retire_stream(&self, stream: StreamId) -> Result<(), Error> {
        self.inner.device.retire_stream(stream)?;
        self.inner.reap()?;
        let mut state = self.inner.lock();
        if !state.awaited_streams().contains(&stream) {
            state.reached.remove(&stream);
        }
        for paged in state.pools.iter_mut().filter_map(|pool| pool.paged.as_mut()) {
            paged.pages.forget_stream(stream);
        }
        Ok(())
    }
}

impl Inner {
    pub(super) fn record_use(&self, handle: Handle, points: &Points) -> Result<(), Error> {
        let key = handle.key_for(self.id)?;
        let mut state = self.lock_shelved();
        let block = *state.block(key)?;
        state.refuse_asleep(key, &block)?;
        state.pool_mut(&block).add_uses(block.spot, points);
        Ok(())
    }

    #[inline]
    #[track_caller]
    pub(super) fn free(&self, handle: Handle, points: &Points) -> Result<(), Error> {
        if self.checked {
            return self.free_checked(handle, points, Some(Location::caller()));
        }
        self.free_now(handle, points)
    }

    pub(super) fn free_now(&self, handle: Handle, points: &Points) -> Result<(), Error> {
        let key = handle.key_for(self.id)?;
        // May ask the driver, so it is asked before the lock is taken.
        let capturing = self.caps().capture && self.device.is_capturing();
        let mut state = self.lock_shelved();
        state.clock.tick(&*self.device);
        if !capturing && state.shelve(key, points) {
            self.unlock_and_tell(state);
            return Ok(());
        }
        let block = match state.block(key) {
            Ok(block) => block,
            Err(Error::UseAfterFree) => return Err(Error::DoubleFree),
            Err(error) => return Err(error),
        };
        let special = flag::FOREIGN | flag::MAPPED | flag::MOVING | flag::SLIDING | flag::CAPTURED;
        if capturing || block.holds > 0 || block.has(special) {
            return self.free_special(state, key, points.clone(), capturing);
        }
        let view = state.release(key, points);
        self.unlock_and_tell(state);
        self.destroy_views(view);
        Ok(())
    }

    /// Frees a block that others submit work for, that is held, moved, paused or used by a graph,
    /// or during a capture.
    #[cold]
    fn free_special(
        &self,
        mut state: Locked<'_>,
        key: Key,
        mut points: Points,
        capturing: bool,
    ) -> Result<(), Error> {
        let block = *state.block(key)?;
        if state.refuse_asleep(key, &block).is_err() {
            if block.holds > 0 {
                // It is being paused or resumed, which completes the free.
                state.block_mut(key)?.flags |= flag::FREE_LATER;
                return Ok(());
            }
            state.release_asleep(key);
            self.unlock_and_tell(state);
            return Ok(());
        }
        if block.has(flag::FOREIGN) {
            // `mark` takes at most a leaf lock and makes no driver call.
            points.insert(self.device.mark(block.stream)?);
        }
        if block.holds > 0 || block.has(flag::MOVING | flag::SLIDING) {
            state.pool_mut(&block).add_uses(block.spot, &points);
            state.block_mut(key)?.flags |= flag::FREE_LATER;
            state.tell_hold(key);
            return Ok(());
        }
        if capturing || block.has(flag::CAPTURED) {
            state.block_mut(key)?.flags |= flag::FREE_LATER;
            state.tell_hold(key);
            state.defer_or_free(key, points);
            return Ok(());
        }
        let view = state.release(key, &points);
        self.unlock_and_tell(state);
        self.destroy_views(view);
        Ok(())
    }

    #[inline]
    pub(super) fn destroy_views(&self, view: Option<View>) {
        if let Some(view) = view {
            // The view has no user left and the block is gone: there is nobody to tell.
            let _ = self.device.destroy_view(view);
        }
    }

    /// Completes frees that were put off until no capture is open, and no graph uses the block.
    pub(super) fn run_deferred(&self) {
        if self.caps().capture && self.device.is_capturing() {
            return;
        }
        let mut state = self.lock();
        let deferred = std::mem::take(&mut state.deferred);
        let views: Vec<_> =
            deferred.into_iter().filter_map(|d| state.complete_free(d.key, d.points)).collect();
        drop(state);
        for view in views {
            self.destroy_views(Some(view));
        }
    }
}

impl State {
    /// Returns a block's range to its pool. Gives a view that nothing uses any more.
    pub(super) fn release(&mut self, key: Key, points: &Points) -> Option<View> {
        self.close_order();
        let Ok(block) = self.blocks.remove(key) else { return None };
        self.checking.forget(key);
        let pool = &mut self.pools[usize::from(block.pool)];
        let (kind, pool_key) = (pool.kind, pool.key);
        let class = pool_key.class.0;
        let (_, bytes, uses) = pool.extent(block.spot)?;
        let has_parts = block.has(flag::HAS_WAITS | flag::HAS_GUESTS | flag::HAS_VIEW);
        let mut outcome = (true, None);
        if uses.is_empty() && points.is_empty() && !has_parts && pool_key.graph.is_none() {
            self.give_range(&block, Points::NONE);
        } else {
            let uses = std::mem::take(uses);
            outcome = self.release_used(key, &block, uses, points);
        }
        let (done, view) = outcome;
        let requested = bytes.saturating_sub(u64::from(block.pad));
        self.count_free(kind, block.tag, (requested, bytes), done);
        let event = Event::new(EventKind::FreeRequested).handle(key.to_bits()).a(requested);
        let event = event.b(bytes).of(class, block.tag.0).on(block.stream.0, block.site);
        self.event(event);
        if done {
            let event = Event::new(EventKind::FreeCompleted).handle(key.to_bits());
            self.event(event.b(bytes).of(class, block.tag.0).on(block.stream.0, 0));
        }
        self.frees += 1;
        view
    }

    /// Returns the range of a block that has uses, points that it waited for, guests, a view or a
    /// graph. Tells whether all uses are over, and gives a view that nothing uses any more.
    fn release_used(
        &mut self,
        key: Key,
        block: &Block,
        mut uses: Points,
        more: &Points,
    ) -> (bool, Option<View>) {
        uses.merge(more);
        if block.has(flag::HAS_WAITS)
            && let Some(waits) = self.waits.remove(key.index())
        {
            uses.merge(&waits);
        }
        if block.has(flag::HAS_GUESTS) {
            self.guests.remove(&key.index());
        }
        drop_reached(&mut uses, &self.reached);
        let pool = self.pool(block).key;
        let graph = pool.graph.filter(|&graph| self.is_replayable(graph));
        if graph.is_some() {
            // The graph may write there at any replay: nobody else's, and kept from trims.
            uses.insert(SyncPoint { stream: block.stream, value: SyncPoint::NEVER });
        }
        let done = uses.is_empty();
        self.tell_free_waits(key, uses.as_slice());
        let view = self.retire_view(key, block, graph, &uses);
        self.give_range(block, uses);
        (done, view)
    }

    /// Tells what a block that is being freed is in use until.
    #[cold]
    pub(super) fn tell_free_waits(&mut self, key: Key, points: &[SyncPoint]) {
        for SyncPoint { stream, value } in points.iter().copied() {
            let event = Event::new(EventKind::FreeWaits).handle(key.to_bits()).a(value);
            self.event(event.on(stream.0, 0));
        }
    }

    /// Returns a freed block's range to its pool.
    #[inline(always)]
    fn give_range(&mut self, block: &Block, uses: Points) {
        let freed = self.now();
        self.pools[usize::from(block.pool)].free(block.spot, uses, freed);
    }

    /// Takes a freed block's view: given back if nothing uses it, kept until then otherwise.
    fn retire_view(
        &mut self,
        key: Key,
        block: &Block,
        graph: Option<u32>,
        uses: &Points,
    ) -> Option<View> {
        if !block.has(flag::HAS_VIEW) {
            return None;
        }
        let view = self.views.remove(&key.index())?;
        if uses.is_empty() {
            return Some(view);
        }
        self.retired_views.push(RetiredView { view, graph, uses: uses.clone() });
        None
    }

    /// Views whose last uses are known to be over.
    pub(super) fn take_finished_views(&mut self) -> Vec<View> {
        let reached = &self.reached;
        let mut finished = Vec::new();
        self.retired_views.retain_mut(|retired| {
            drop_reached(&mut retired.uses, reached);
            if retired.uses.is_empty() {
                finished.push(retired.view);
            }
            !retired.uses.is_empty()
        });
        finished
    }

    /// Adds points that a block's next use has to wait for.
    pub(super) fn add_waits(&mut self, key: Key, waits: &Points) {
        // A block that was freed meanwhile has no next use.
        if let Ok(block) = self.block_mut(key) {
            block.flags |= flag::HAS_WAITS;
            self.waits.entry(key.index()).get_or_insert_default().merge(waits);
        }
    }

    /// A free during a capture: a block of the graph's own pool may be reused within the graph,
    /// any other only when no capture is open.
    fn defer_or_free(&mut self, key: Key, points: Points) {
        let Some((_, block)) = self.blocks.at(key.index()) else { return };
        if self.pool(block).key.graph.is_some() && !block.has(flag::CAPTURED) {
            // Reusable by the same stream of the same graph, by nobody else until it is released.
            let _ = self.release(key, &points);
        } else {
            self.deferred.push(Deferred { key, points });
        }
    }

    /// Points of everything that freed memory and retired objects wait for. Those of a graph's
    /// private pool are left out: waiting does not reach them.
    pub(super) fn awaited_points(&self) -> Vec<SyncPoint> {
        let mut points: Vec<SyncPoint> = self
            .pools
            .iter()
            .filter(|pool| pool.key.graph.is_none())
            .flat_map(|pool| pool.awaited_points())
            .collect();
        points.extend(self.retired_views.iter().flat_map(|view| view.uses.iter()));
        points.extend(self.moves.awaited_points());
        points.retain(|point| point.value != SyncPoint::NEVER);
        points.sort_unstable();
        points.dedup();
        points
    }
}

/// Drops the points that are known to be reached, by the last value of each stream that is.
#[inline]
pub(super) fn drop_reached(points: &mut Points, reached: &FxHashMap<StreamId, u64>) {
    if points.is_empty() {
        return;
    }
    points.retain(|point| {
        let (stream, value) = (point.stream, point.value);
        reached.get(&stream).is_none_or(|&reached| value > reached)
    });
}
