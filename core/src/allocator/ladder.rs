//! The slow way: remedies for a shortage, one rung after the other.
//!
//! Each rung is climbed at most once for a request, and is an event. Waiting and asking the hooks
//! start the search anew, since either may have changed everything.

use std::sync::Arc;
use std::time::Duration;

use crate::device::DeviceError;
use crate::error::{Error, Shortage};
use crate::event::{Event, EventKind, Rung, Why};
use crate::point::SyncPoint;
use crate::request::Wait;

use super::Inner;
use super::alloc::{Asked, Taken};
use super::config::{Prefer, Reuse, allowed_classes};
use super::handle::Allocation;
use super::moving::room_for_moves;
use super::patience::Patience;
use super::state::State;

/// The longest single wait on the host, so that frees by other threads are noticed too.
const SLICE: Duration = Duration::from_millis(1);

/// How often blocks are moved for one request.
const COMPACTIONS: u32 = 4;

/// How often the ends of other threads' passes are waited for.
const PASSES: u32 = 4;

/// What the device or the budget said when asked for new memory.
type Refusal = Error;

impl Inner {
    /// Serves a request that found no hole at once.
    pub(super) fn climb(self: &Arc<Self>, asked: &Asked<'_>) -> Result<Allocation, Error> {
        let mut patience = self.patience(asked);
        let (mut compactions, mut passes, mut hooked) = (0, 0, false);
        loop {
            // Passes that had ended before the search, and later this request's own too.
            let mut ended = self.lock().moves.brief_ended;
            let refusal = match self.climb_once(asked) {
                Ok(allocation) => return Ok(self.note_retry(allocation)),
                Err(refusal) if !is_shortage(refusal) => return Err(refusal),
                Err(refusal) => refusal,
            };
            if self.is_hopeless(asked) {
                return self.give_up(asked, refusal, false);
            }
            if self.await_in_flight() || self.await_work(asked, patience.as_mut())? {
                continue;
            }
            // What moves made room for may be found to lie badly once they are done.
            if compactions < COMPACTIONS {
                compactions += 1;
                if self.compact_for(asked, &mut ended)? {
                    continue;
                }
                compactions = COMPACTIONS;
            }
            if passes < PASSES && self.await_passes(asked, ended) {
                passes += 1;
                // What the passes held may have been all that was missing for this one.
                compactions -= 1;
                continue;
            }
            if !hooked && self.ask_hooks(asked)? {
                hooked = true;
                continue;
            }
            return self.give_up(asked, refusal, patience.is_some());
        }
    }

    fn note_retry(&self, allocation: Allocation) -> Allocation {
        self.lock().counters.retries += 1;
        allocation
    }

    /// The rungs that need no wait of the caller.
    fn climb_once(&self, asked: &Asked<'_>) -> Result<Allocation, Refusal> {
        let forbidden = self.device.is_capturing();
        if !forbidden && self.config.reuse == Reuse::AsSoonAsDone {
            self.rung(asked, Rung::Reap);
            self.reap()?;
        }
        if !asked.request.dedicated
            && let Some(allocation) = self.search(asked, true)?
        {
            return Ok(allocation);
        }
        if self.config.prefer == Prefer::Waiting
            && let Some(allocation) = self.take_behind(asked)?
        {
            return Ok(allocation);
        }
        let mut refusal = match self.grow(asked) {
            Ok(allocation) => return Ok(allocation),
            Err(refusal) if !is_shortage(refusal) => return Err(refusal),
            Err(refusal) => refusal,
        };
        if !forbidden && self.trim_for(asked)? {
            self.rung(asked, Rung::TrimOthers);
            match self.grow(asked) {
                Ok(allocation) => return Ok(allocation),
                Err(again) => refusal = again,
            }
        }
        match self.take_behind(asked)? {
            Some(allocation) => Ok(allocation),
            None => Err(refusal),
        }
    }

    pub(super) fn rung(&self, asked: &Asked<'_>, rung: Rung) {
        let mut state = self.lock();
        let event = Event::new(EventKind::Rung).a(rung as u64).b(asked.layout.bytes);
        state.event(event.on(asked.request.stream.0, 0));
    }

    /// Looks for a hole that needs no wait.
    fn search(&self, asked: &Asked<'_>, read_clock: bool) -> Result<Option<Allocation>, Error> {
        let mut state = self.lock();
        if read_clock {
            state.clock.read(&*self.device);
        }
        match self.take_ready(&mut state, asked) {
            Some(taken) => self.commit(&mut state, asked, taken).map(Some),
            None => Ok(None),
        }
    }

    /// Takes a hole behind other streams' work, where the request lets its stream wait.
    fn take_behind(&self, asked: &Asked<'_>) -> Result<Option<Allocation>, Error> {
        if asked.request.wait != Wait::OnStream || asked.request.dedicated {
            return Ok(None);
        }
        if let Some(allocation) = self.take_hole_behind(asked)? {
            return Ok(Some(allocation));
        }
        for class in allowed_classes(self.caps(), &self.config, asked.request) {
            match self.map_pages(asked, class, true) {
                Err(error) if is_shortage(error) => {}
                Ok(None) => {}
                outcome => return outcome,
            }
        }
        Ok(None)
    }

    fn take_hole_behind(&self, asked: &Asked<'_>) -> Result<Option<Allocation>, Error> {
        let mut state = self.lock();
        let now = state.now().ns;
        for class in allowed_classes(self.caps(), &self.config, asked.request) {
            let Some(&number) = state.by_key.get(&asked.key(class)) else { continue };
            let pool = &mut state.pools[usize::from(number)];
            // Points of a graph's private pool are reached only when the graph is released.
            if pool.key.graph.is_some() {
                continue;
            }
            let stream = asked.request.stream;
            let Some(range) = pool.take_behind(asked.layout, stream, now) else { continue };
            for point in range.points.without(stream).iter() {
                let SyncPoint { stream: behind, value } = point;
                let event = Event::new(EventKind::Wait).a(value).c(u64::from(stream.0));
                state.event(event.on(behind.0, 0));
            }
            let taken = Taken { pool: number, range, why: Why::Wait };
            return self.commit(&mut state, asked, taken).map(Some);
        }
        Ok(None)
    }

    /// Asks the device how far the awaited streams are, and takes in what is done.
    pub(super) fn reap(&self) -> Result<(), Error> {
        if self.checked {
            self.poll_checks()?;
        }
        let streams = self.lock().awaited_streams();
        let mut reached = Vec::with_capacity(streams.len());
        for stream in streams {
            match self.device.reached(stream) {
                Ok(value) => reached.push((stream, value)),
                Err(DeviceError::Capturing) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let pools = {
            let mut state = self.lock();
            for (stream, value) in reached {
                state.note_reached(stream, value);
            }
            state.pools.len()
        };
        (0..pools).for_each(|pool| self.reap_pool(pool));
        let room = room_for_moves();
        let mut state = self.lock();
        let moved = state.take_finished_moves(room);
        let views = state.take_finished_views();
        drop(state);
        for view in views {
            self.device.destroy_view(view)?;
        }
        self.settle_moves(moved)?;
        self.settle_all_moves()?;
        self.run_deferred();
        Ok(())
    }

    /// Takes in what is known to be done in a pool, a few ranges at a time.
    fn reap_pool(&self, pool: usize) {
        let (ended, is_under_way) = self.lock().pools[pool].walks();
        // What was done before a walk under way began may lie behind it.
        let wanted = ended.wrapping_add(1 + u32::from(is_under_way));
        while (self.lock().reap_some(pool).0.wrapping_sub(wanted) as i32) < 0 {}
    }

    /// Waits for device calls of other threads that may end the shortage. Tells whether there
    /// were any.
    fn await_in_flight(&self) -> bool {
        let mut state = self.lock();
        if state.in_flight == 0 {
            return false;
        }
        state.waiting += 1;
        self.wait_locked(state, Duration::from_secs(10)).waiting -= 1;
        true
    }

    /// Whether the request alone is more than every limit allows.
    fn is_hopeless(&self, asked: &Asked<'_>) -> bool {
        let state = self.lock();
        allowed_classes(self.caps(), &self.config, asked.request).all(|class| {
            let heap = self.caps().class(class).map(|class| class.heap);
            heap.is_none_or(|heap| asked.layout.bytes > state.budget.limit(heap))
        })
    }

    /// How long a request that waits on the host does so.
    fn patience(&self, asked: &Asked<'_>) -> Option<Patience> {
        match asked.request.wait {
            Wait::OnHost(time) => Some(Patience::new(&*self.device, time)),
            Wait::OnStream | Wait::Never => None,
        }
    }

    /// Waits until some work completes or somebody frees. `false` when the request may not wait
    /// (any longer).
    fn await_work(
        &self,
        asked: &Asked<'_>,
        patience: Option<&mut Patience>,
    ) -> Result<bool, Error> {
        let Some(patience) = patience else { return Ok(false) };
        if self.device.is_capturing() {
            return Ok(false);
        }
        self.rung(asked, Rung::Wait);
        loop {
            let (points, frees) = {
                let state = self.lock();
                (state.awaited_points(), state.frees)
            };
            match patience.wait(&*self.device, &points, SLICE)? {
                None => return Ok(false),
                Some(reached) if reached || self.lock().frees != frees => return Ok(true),
                Some(_) => {}
            }
        }
    }

    /// The typed error, with the state at this moment; or the block after all, where another
    /// thread made room since the search: no error says what was not true when it was made.
    fn give_up(
        &self,
        asked: &Asked<'_>,
        refusal: Refusal,
        waited: bool,
    ) -> Result<Allocation, Error> {
        let device_left = self.device_left(asked);
        let mut state = self.lock();
        if !asked.request.dedicated
            && let Some(taken) = self.take_ready(&mut state, asked)
        {
            return self.commit(&mut state, asked, taken);
        }
        Err(self.refuse(&mut state, asked, refusal, (waited, device_left)))
    }

    /// The error of a request for which there is no room.
    fn refuse(
        &self,
        state: &mut State,
        asked: &Asked<'_>,
        refusal: Refusal,
        (waited, device_left): (bool, u64),
    ) -> Error {
        let shortage = self.shortage(state, asked);
        state.counters.out_of_memory += 1;
        let Shortage { asked: bytes, largest_free, budget_left, .. } = shortage;
        let event = Event::new(EventKind::OutOfMemory).a(bytes).b(largest_free);
        let event = event.c(budget_left.min(device_left));
        state.event(event.on(asked.request.stream.0, 0));
        if self.device.is_capturing() {
            return Error::OutOfMemoryInCapture(shortage);
        }
        if waited {
            return Error::TimedOut { asked: bytes };
        }
        if asked.request.wait == Wait::Never && self.is_there_behind(state, asked) {
            return Error::WouldWait { asked: bytes };
        }
        match refusal {
            Error::TooManyObjects { .. } => refusal,
            Error::OverUserLimit { limit, used, .. } if self.exceeds(state, asked, limit) => {
                Error::OverUserLimit { asked: bytes, used, limit }
            }
            _ => Error::OutOfMemory(shortage),
        }
    }

    /// What the device has free in the heaps that could serve the request; everything where it
    /// can not be asked.
    fn device_left(&self, asked: &Asked<'_>) -> u64 {
        if self.device.is_capturing() {
            return u64::MAX;
        }
        let classes = allowed_classes(self.caps(), &self.config, asked.request);
        let heaps = classes.filter_map(|class| self.caps().class(class).map(|class| class.heap));
        let free = |heap| self.device.heap_use(heap).map_or(u64::MAX, |heap| heap.free);
        heaps.map(free).max().unwrap_or(u64::MAX)
    }

    /// Whether what is live, with the request, is more than a limit: no reuse could help.
    fn exceeds(&self, state: &State, asked: &Asked<'_>, limit: u64) -> bool {
        let live = state.counters.total.active().current + state.budget.charged();
        live.saturating_add(asked.layout.bytes) > limit
    }

    fn is_there_behind(&self, state: &State, asked: &Asked<'_>) -> bool {
        let now = state.now().ns;
        allowed_classes(self.caps(), &self.config, asked.request).any(|class| {
            state
                .by_key
                .get(&asked.key(class))
                .map(|&number| &state.pools[usize::from(number)])
                .is_some_and(|pool| pool.is_behind(asked.layout, asked.request.stream, now))
        })
    }

    /// Why the request can not be served, in numbers.
    pub(super) fn shortage(&self, state: &State, asked: &Asked<'_>) -> Shortage {
        let mut shortage = Shortage { asked: asked.layout.bytes, ..Shortage::default() };
        for class in allowed_classes(self.caps(), &self.config, asked.request) {
            let heap = self.caps().class(class).map(|class| class.heap);
            let left = heap.map_or(0, |heap| state.budget.left(heap));
            shortage.budget_left = shortage.budget_left.max(left);
            for pool in state.pools_of(class) {
                shortage.largest_free = shortage.largest_free.max(pool.largest_free());
                shortage.total_free += pool.free_bytes();
                shortage.pending += pool.pending();
                shortage.reserved += pool.reserved.current;
            }
        }
        shortage
    }
}

/// Whether a remedy may help.
pub(crate) fn is_shortage(error: Error) -> bool {
    match error {
        Error::OverUserLimit { .. } | Error::TooManyObjects { .. } | Error::OutOfMemory(_) => true,
        Error::Device(error) => error.is_shortage(),
        _ => false,
    }
}
