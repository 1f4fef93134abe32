//! Moves in a paged space: blocks leave pages that they share with free bytes, so that the pages
//! can be mapped where they are wanted.

use crate::compact::{Goal, PagedMove, free_pages};
use crate::error::Error;
use crate::event::{Event, EventKind};
use crate::point::Points;
use crate::request::Wait;

use super::super::Inner;
use super::super::alloc::Asked;
use super::super::config::allowed_classes;
use super::super::state::{State, flag};
use super::compactor::Pass;
use super::offer::Answer;
use super::reserve::{Apart, Batch};
use super::rung::PATIENCE;

/// Plans made for one request.
const ROUNDS: u32 = 8;
/// Places taken while the lock is held.
const SLICE: usize = 16;

/// What moving blocks has come to for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The request is where it was.
    Nothing,
    /// It would find a place now, behind work if need be.
    Found,
    /// There are free pages enough, but they can not be mapped for it: more than may be mapped
    /// twice, or too long for the gaps. Given back they make room for others.
    ToRelease,
}

impl Inner {
    /// Moves blocks of paged spaces so that a request finds pages. Tells whether it would now, or
    /// will once free pages are given back.
    pub(super) fn compact_pages(&self, asked: &Asked<'_>, own: &mut u64) -> Result<bool, Error> {
        for class in allowed_classes(self.caps(), &self.config, asked.request) {
            let number = self.lock().by_key.get(&asked.key(class)).copied();
            let Some(pool) = number.filter(|_| asked.is_paged(class)) else { continue };
            let mut pass = self.new_pass(Goal::Release { bytes: asked.layout.bytes }, pool)?;
            let outcome = self.free_pages_for(&mut pass, asked);
            self.end(&mut pass);
            *own += 1;
            let must_wait = match outcome? {
                Outcome::Nothing => continue,
                Outcome::Found => asked.request.wait != Wait::OnStream,
                Outcome::ToRelease => true,
            };
            if let Some(point) = pass.last.filter(|_| must_wait) {
                self.wait_all(&Points::one(point), PATIENCE, asked.layout.bytes)?;
                self.reap()?;
            }
            return Ok(true);
        }
        Ok(false)
    }

    fn free_pages_for(&self, pass: &mut Pass, asked: &Asked<'_>) -> Result<Outcome, Error> {
        let mut more = 0;
        for _ in 0..ROUNDS {
            let missing = {
                let state = self.lock();
                if state.finds_pages(pass.pool, asked) {
                    break;
                }
                // What is not there can not be brought together.
                let Some(missing) = state.missing(pass.pool, asked) else { break };
                missing
            };
            let start = self.device.now_ns();
            let view = self.look_at_pages(pass.pool);
            // What was freed before did not suffice: pages may be too short, or lie badly.
            let moves = free_pages(&view, missing + more);
            more = more * 2 + self.page_bytes();
            pass.report.plan_ns += self.device.now_ns().saturating_sub(start);
            let batch = self.reserve_paged(pass.pool, &moves);
            if batch.apart.is_empty() {
                if !self.place_anew(pass, missing)? {
                    break;
                }
                continue;
            }
            pass.batch = Some(batch);
            self.submit_due(pass)?;
        }
        Ok(self.lock().came_to(pass, asked))
    }

    fn page_bytes(&self) -> u64 {
        self.caps().paging.map_or(1, |paging| paging.granularity)
    }

    pub(super) fn reserve_paged(&self, pool: u16, moves: &[PagedMove]) -> Batch {
        let mut batch = Batch { apart: Vec::with_capacity(moves.len()), chain: None };
        for moves in moves.chunks(SLICE) {
            let mut state = self.lock();
            for it in moves {
                batch.apart.extend(state.reserve_paged(pool, it));
            }
        }
        batch
    }
}

impl State {
    /// What the moves so far have come to: without any, a request is where it was.
    fn came_to(&self, pass: &Pass, asked: &Asked<'_>) -> Outcome {
        if pass.report.moves == 0 {
            Outcome::Nothing
        } else if self.finds_pages(pass.pool, asked) {
            Outcome::Found
        } else if self.could_make_in(pass.pool, asked.layout.bytes) {
            Outcome::ToRelease
        } else {
            Outcome::Nothing
        }
    }

    /// Whether a request would find a place, behind work if need be.
    fn finds_pages(&self, pool: u16, asked: &Asked<'_>) -> bool {
        let pool = &self.pools[usize::from(pool)];
        let Some(paged) = &pool.paged else { return false };
        let (stream, left) = (asked.request.stream, self.budget.left(pool.heap));
        let now = self.now().ns;
        paged.find_behind(asked.layout, stream, now).is_some()
            || paged.find_backed(asked.layout, stream, true, now, left).is_ok()
    }

    /// Bytes of pages that a request is short of, if no part of a page in use can serve it. `None`
    /// where there are fewer free bytes than it needs, however they lie.
    fn missing(&self, pool: u16, asked: &Asked<'_>) -> Option<u64> {
        let pool = &self.pools[usize::from(pool)];
        let usage = pool.usage();
        let there = usage.free_pages.saturating_add(self.budget.left(pool.heap));
        let missing = asked.layout.bytes.saturating_sub(there);
        (missing <= usage.free.saturating_sub(usage.free_pages)).then_some(missing.max(1))
    }

    fn reserve_paged(&mut self, pool: u16, it: &PagedMove) -> Option<Apart> {
        let (key, block) = self.blocks.at(it.owner)?;
        let block = *block;
        let ranges = &self.pools[usize::from(pool)];
        let is_there = block.pool == pool
            && block.spot.is_paged()
            && ranges.offset(block.spot) == it.from
            && ranges.bytes(block.spot) == it.bytes;
        if !is_there || self.why_not(&block, false).is_some() {
            return None;
        }
        let to = self.pools[usize::from(pool)].reserve_paged(it.to, it.bytes)?;
        self.note_held(pool, &to);
        let (class, space) = self.class_and_space(pool, to.spot);
        let event = Event::new(EventKind::MoveReserved).handle(key.to_bits()).a(space).b(it.bytes);
        self.event(event.c(it.to).of(class, block.tag.0).on(block.stream.0, block.site));
        debug_assert!(!block.has(flag::RAW), "moved without being asked");
        let (answer, ends, view) = (Answer::default(), None, None);
        Some(Apart { key, from: block.spot, bytes: it.bytes, to, ends, raw: false, answer, view })
    }
}

#[cfg(test)]
mod tests {
    use crate::device::sim::{Sim, SimDevice};
    use crate::device::{Device, StreamId, StreamSpec};
    use crate::{Allocator, Config, Limit, Request};

    const LEAST: u64 = 600_000;

    /// Blocks of about half a page, of which every second was freed, at the limit.
    fn rig(configure: impl FnOnce(&mut Config)) -> (SimDevice, Allocator, StreamId) {
        let sim = Sim::cuda().capacity(8 << 30).open();
        let mut config = Config::for_device(sim.caps());
        config.limits = vec![Limit::Bytes(600 << 20)];
        configure(&mut config);
        let alloc = Allocator::with_config(sim.shared(), config).unwrap();
        let stream = sim.create_stream(StreamSpec::default()).unwrap();
        let (mut random, mut all) = (7_u64, Vec::new());
        loop {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let request = Request::new(LEAST + (random >> 33) % 800_000, stream);
            match alloc.alloc(&request.wait(crate::Wait::Never)) {
                Ok(block) => all.push(block.handle),
                Err(_) => break,
            }
        }
        all.iter().step_by(2).for_each(|&handle| alloc.free(handle).unwrap());
        (sim, alloc, stream)
    }

    #[test]
    fn most_of_what_is_free_between_blocks_serves_one_request() {
        let (sim, alloc, stream) = rig(|_| {});
        let got = alloc.alloc(&Request::new(260 << 20, stream));
        assert!(got.is_ok(), "{got:?}");
        alloc.check().unwrap();
        assert_eq!(sim.violations(), []);
    }

    #[test]
    fn pages_that_can_not_be_mapped_twice_are_given_back_and_made_anew() {
        let (sim, alloc, stream) = rig(|config| config.pages.stale_max = 8);
        let got = alloc.alloc(&Request::new(260 << 20, stream));
        assert!(got.is_ok(), "{got:?}");
        alloc.check().unwrap();
        assert_eq!(sim.violations(), []);
    }

    #[test]
    fn pages_of_another_pool_are_emptied_and_given_back() {
        let (sim, alloc, stream) = rig(|_| {});
        let got = alloc.alloc(&Request::new(200 << 20, stream).exportable(true));
        assert!(got.is_ok(), "{got:?}");
        alloc.check().unwrap();
        assert_eq!(sim.violations(), []);
    }

    #[test]
    fn nothing_moves_for_a_request_that_is_longer_than_all_that_is_free() {
        let (_sim, alloc, stream) = rig(|_| {});
        alloc.alloc(&Request::new(400 << 20, stream)).unwrap_err();
        assert_eq!(alloc.stats().moves.moves, 0);
    }

    #[test]
    fn pages_become_free_in_idle_time_where_that_is_asked_for() {
        for (below, moves) in [(None, false), (Some(0.1), true)] {
            let (sim, alloc, _) = rig(|config| config.idle_compaction = below);
            let free_pages =
                || alloc.inner.lock().pools.iter().map(|it| it.usage().free_pages).sum();
            let before: u64 = free_pages();
            for _ in 0..20 {
                alloc.inner.compact_when_idle().unwrap();
                sim.advance(10_000_000);
            }
            assert_eq!(free_pages() > before, moves, "{below:?}");
            alloc.check().unwrap();
            assert_eq!(sim.violations(), []);
        }
    }
}
