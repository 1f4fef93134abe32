//! Compaction without being asked: for a request that finds no room, and in idle time.

use std::sync::Arc;
use std::time::Duration;

use crate::compact::{Goal, Limits, Mode};
use crate::error::Error;
use crate::event::Rung;
use crate::point::Points;
use crate::pool::Pool;
use crate::request::Wait;
use crate::sync::this_thread;

use super::super::Inner;
use super::super::alloc::Asked;
use super::super::config::allowed_classes;
use super::super::patience::Patience;
use super::compactor::Pass;
use super::spaces::Spaces;

/// The longest wait on the host for copies that empty a segment which has to be given back.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// How long somebody who waits for a pass to end sleeps at most: nobody tells that time is over.
const LOOK: Duration = Duration::from_millis(20);

impl Inner {
    /// Moves blocks so that a request finds room: together in a segment of its pools, or else
    /// out of segments that are then given back. Tells whether anything has changed.
    ///
    /// `own` counts the passes that were made for it.
    ///
    /// Room in a segment comes at once, behind the copies in stream order. Memory objects can be
    /// given back only when the copies are done, for which the host waits.
    pub(in crate::allocator) fn compact_for(
        self: &Arc<Self>,
        asked: &Asked<'_>,
        own: &mut u64,
    ) -> Result<bool, Error> {
        let config = &self.config;
        if !config.moves
            || !config.compact_on_shortage
            || asked.request.wait == Wait::Never
            || asked.graph.is_some()
            || self.device.is_capturing()
            || self.lock().moves.stopped
        {
            return Ok(false);
        }
        self.rung(asked, Rung::Compact);
        if self.compact_pages(asked, own)? {
            return Ok(true);
        }
        if !asked.request.dedicated && self.compact_within(asked, own)? {
            return Ok(true);
        }
        self.compact_away(asked, own)
    }

    /// Waits while passes that calls in other threads make now hold room: what they have reserved
    /// and not submitted, and old places that are kept for their checksums. Tells whether there
    /// were such passes, or one has ended since `ended` had: there may be room now.
    ///
    /// Only a request that lets its stream wait does so, for as long as its own moves might make it
    /// wait; the others have waited as long as they may.
    pub(in crate::allocator) fn await_passes(&self, asked: &Asked<'_>, ended: u64) -> bool {
        if asked.request.wait != Wait::OnStream || self.device.is_capturing() {
            return false;
        }
        let (mut patience, here) = (Patience::new(&*self.device, PATIENCE), this_thread());
        let mut state = self.lock();
        let open = state.moves.brief.iter().filter(|(_, thread)| *thread != here);
        let open: Vec<u32> = open.map(|(pass, _)| *pass).collect();
        while state.moves.bytes_held > 0
            && state.moves.brief.iter().any(|(pass, _)| open.contains(pass))
        {
            let told = state.told;
            state.waiting += 1;
            state = self.wait_locked(state, LOOK);
            state.waiting -= 1;
            let least = if state.told == told { LOOK } else { Duration::ZERO };
            if !patience.is_left(&*self.device, least) {
                break;
            }
        }
        state.moves.brief_ended != ended || !open.is_empty()
    }

    fn compact_within(&self, asked: &Asked<'_>, own: &mut u64) -> Result<bool, Error> {
        let pools: Vec<u16> = {
            let state = self.lock();
            let classes = allowed_classes(self.caps(), &self.config, asked.request);
            classes.filter_map(|class| state.by_key.get(&asked.key(class)).copied()).collect()
        };
        if pools.is_empty() {
            return Ok(false);
        }
        let (bytes, align) = (asked.layout.bytes, asked.layout.align.get());
        let goal = Goal::Contiguous { bytes, align };
        let mut pass = self.begin(goal, Limits::NONE, pools, true)?;
        let outcome = self.run_to_submission(&mut pass);
        self.end(&mut pass);
        *own += 1;
        outcome?;
        Ok(pass.is_reached())
    }

    fn compact_away(&self, asked: &Asked<'_>, own: &mut u64) -> Result<bool, Error> {
        let allowed = || allowed_classes(self.caps(), &self.config, asked.request);
        let heaps: Vec<_> =
            allowed().filter_map(|id| self.caps().class(id)).map(|class| class.heap).collect();
        // Its own paged spaces were looked at before.
        let own_keys: Vec<_> = allowed().map(|class| asked.key(class)).collect();
        let (pools, spaces) = {
            let state = self.lock();
            let there = |pool: &Pool| heaps.contains(&pool.heap);
            let others = |pool: &Pool| there(pool) && !own_keys.contains(&pool.key);
            (state.movable_pools(there), state.paged_pools(others))
        };
        let goal = Goal::Release { bytes: asked.layout.bytes };
        let mut pass = self.begin(goal, Limits::NONE, pools, true)?;
        pass.spaces = Spaces::of(spaces);
        let outcome = self.run_to_submission(&mut pass);
        self.end(&mut pass);
        *own += 1;
        outcome?;
        let Some(point) = pass.last else { return Ok(false) };
        self.wait_all(&Points::one(point), PATIENCE, asked.layout.bytes)?;
        self.reap()?;
        Ok(true)
    }

    /// Submits moves until the goal is met or nothing more can be done. Waits only where the old
    /// places of moves are kept until their checksums are compared.
    fn run_to_submission(&self, pass: &mut Pass) -> Result<(), Error> {
        loop {
            self.advance(pass)?;
            let Some(point) = pass.last.filter(|_| self.lock().moves.has_checks(pass.id)) else {
                return Ok(());
            };
            self.wait_all(&Points::one(point), PATIENCE, 0)?;
            self.reap()?;
        }
    }

    /// A little compaction in the background, where the configuration wants it.
    pub(in crate::allocator) fn compact_when_idle(&self) -> Result<(), Error> {
        let Some(below) = self.config.idle_compaction else { return Ok(()) };
        let stopped = self.lock().moves.stopped;
        if !self.config.moves || stopped {
            return Ok(());
        }
        let (pools, spaces) = {
            let state = self.lock();
            (state.movable_pools(|_| true), state.paged_pools(|_| true))
        };
        let limits = Limits::NONE.bytes(self.config.idle_bytes).mode(Mode::Background);
        let mut pass = self.begin(Goal::Fragmentation { below }, limits, pools, true)?;
        pass.spaces = Spaces::of(spaces);
        let outcome = self.advance(&mut pass);
        self.end(&mut pass);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::device::sim::{Sim, SimDevice};
    use crate::device::{Device, StreamId, StreamSpec};
    use crate::{Allocator, Config, Growth, Handle, Limit, Request};

    const UNIT: u64 = 64 << 10;
    const GOAL: Goal = Goal::Contiguous { bytes: 2 * UNIT, align: 1 };

    /// Free, block, free, block; no more memory than that.
    fn rig() -> (SimDevice, Allocator, StreamId, Handle) {
        let sim = Sim::slabs().open();
        let mut config = Config::for_device(sim.caps());
        config.small_max = 0;
        config.growth = Growth::Proportional { min_bytes: 4 * UNIT, max_bytes: 4 * UNIT };
        config.limits = vec![Limit::Bytes(4 * UNIT)];
        let alloc = Allocator::with_config(sim.shared(), config).unwrap();
        let stream = sim.create_stream(StreamSpec::default()).unwrap();
        let all = [(); 4].map(|()| alloc.alloc(&Request::new(UNIT, stream)).unwrap().handle);
        alloc.free(all[0]).unwrap();
        alloc.free(all[2]).unwrap();
        (sim, alloc, stream, all[1])
    }

    fn begin(alloc: &Allocator, brief: bool) -> Pass {
        let pools = alloc.inner.lock().movable_pools(|_| true);
        let pass = alloc.inner.begin(GOAL, Limits::NONE, pools, brief).unwrap();
        assert!(alloc.inner.lock().moves.bytes_held > 0, "nothing is reserved");
        pass
    }

    /// Has another thread ask for what there is only when the pass is over; ends the pass when that
    /// thread waits or has got its answer.
    fn ask_meanwhile(
        (alloc, request): (&Allocator, &Request<'_>),
        end: impl FnOnce(),
    ) -> Result<Handle, Error> {
        let answered = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let asker = scope.spawn(|| {
                let got = alloc.alloc(request).map(|got| got.handle);
                answered.store(true, Ordering::Release);
                got
            });
            while alloc.inner.lock().waiting == 0 && !answered.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            end();
            asker.join().unwrap()
        })
    }

    #[test]
    fn a_request_waits_for_what_the_pass_of_another_thread_gives_back() {
        let (sim, alloc, stream, _) = rig();
        let mut pass = begin(&alloc, true);
        // The last free place, so that only what the pass holds is left.
        let _ = alloc.alloc(&Request::new(UNIT, stream));
        let request = Request::new(UNIT, stream);
        ask_meanwhile((&alloc, &request), || alloc.inner.end(&mut pass)).unwrap();
        alloc.check().unwrap();
        assert_eq!(sim.violations(), []);
    }

    #[test]
    fn a_request_waits_for_what_the_pass_of_another_thread_moves() {
        let (sim, alloc, stream, block) = rig();
        let place = alloc.info(block).unwrap().place;
        let mut pass = begin(&alloc, true);
        let _ = alloc.alloc(&Request::new(UNIT, stream));
        let request = Request::new(UNIT, stream);
        let got = ask_meanwhile((&alloc, &request), || {
            alloc.inner.advance(&mut pass).unwrap();
        });
        assert_eq!(alloc.info(got.unwrap()).unwrap().place, place, "where the block was");
        alloc.inner.end(&mut pass);
        alloc.check().unwrap();
        assert_eq!(sim.violations(), []);
    }

    #[test]
    fn nobody_waits_who_may_not_or_for_what_may_not_end() {
        let (_sim, alloc, stream, _) = rig();
        let mut pass = begin(&alloc, true);
        let _ = alloc.alloc(&Request::new(UNIT, stream));
        let request = Request::new(UNIT, stream);
        let is_short = |error| matches!(error, Error::OverUserLimit { .. } | Error::OutOfMemory(_));
        // The pass is this thread's, as in a hook.
        assert!(is_short(alloc.alloc(&request).unwrap_err()));
        let never = request.wait(Wait::Never);
        assert!(is_short(ask_meanwhile((&alloc, &never), || {}).unwrap_err()));
        alloc.inner.end(&mut pass);
        // The program's own pass, which it ends when it likes.
        let last = alloc.alloc(&request).unwrap().handle;
        alloc.free(last).unwrap();
        let mut pass = begin(&alloc, false);
        assert!(is_short(ask_meanwhile((&alloc, &request), || {}).unwrap_err()));
        alloc.inner.end(&mut pass);
    }
}
