//! Moves in a paged space: blocks leave pages that they share with free bytes, so that the pages
//! can be mapped where they are wanted.

use crate::compact::{Goal, PageView, PagedMove, PagedView, Part, What, free_pages};
use crate::error::Error;
use crate::event::{Event, EventKind};
use crate::pages::{State as Held, Zone};
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

impl Inner {
    /// Moves blocks of paged spaces so that a request finds pages. Tells whether it would now.
    pub(super) fn compact_pages(&self, asked: &Asked<'_>, own: &mut u64) -> Result<bool, Error> {
        for class in allowed_classes(self.caps(), &self.config, asked.request) {
            let number = self.lock().by_key.get(&asked.key(class)).copied();
            let Some(pool) = number.filter(|_| asked.is_paged(class)) else { continue };
            let mut pass = self.new_pass(Goal::Release { bytes: asked.layout.bytes }, pool)?;
            let outcome = self.free_pages_for(&mut pass, asked);
            self.end(&mut pass);
            *own += 1;
            if outcome? {
                let last = pass.last.filter(|_| asked.request.wait != Wait::OnStream);
                if let Some(point) = last {
                    self.wait_all(&Points::one(point), PATIENCE, asked.layout.bytes)?;
                    self.reap()?;
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn free_pages_for(&self, pass: &mut Pass, asked: &Asked<'_>) -> Result<bool, Error> {
        let mut more = 0;
        for _ in 0..ROUNDS {
            let start = self.device.now_ns();
            let (view, missing) = {
                let state = self.lock();
                if state.finds_pages(pass.pool, asked) {
                    return Ok(pass.report.moves > 0);
                }
                (state.look_at_pages(pass.pool), state.missing(pass.pool, asked))
            };
            // What was freed before did not suffice: pages may be too short, or lie badly.
            let moves = free_pages(&view, missing + more);
            more = more * 2 + self.page_bytes();
            pass.report.plan_ns += self.device.now_ns().saturating_sub(start);
            let batch = self.reserve_paged(pass.pool, &moves);
            if batch.apart.is_empty() {
                if self.place_anew(pass, missing)? {
                    continue;
                }
                return Ok(false);
            }
            pass.batch = Some(batch);
            self.submit_due(pass)?;
        }
        Ok(self.lock().finds_pages(pass.pool, asked))
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
    /// Whether a request would find a place, behind work if need be.
    fn finds_pages(&self, pool: u16, asked: &Asked<'_>) -> bool {
        let pool = &self.pools[usize::from(pool)];
        let Some(paged) = &pool.paged else { return false };
        let (stream, left) = (asked.request.stream, self.budget.left(pool.heap));
        let now = self.now().ns;
        paged.find_behind(asked.layout, stream, now).is_some()
            || paged.find_backed(asked.layout, stream, true, now, left).is_ok()
    }

    /// Bytes of pages that a request is short of, if no part of a page in use can serve it.
    fn missing(&self, pool: u16, asked: &Asked<'_>) -> u64 {
        let pool = &self.pools[usize::from(pool)];
        let there = pool.usage().free_pages.saturating_add(self.budget.left(pool.heap));
        asked.layout.bytes.saturating_sub(there).max(1)
    }

    pub(super) fn look_at_pages(&self, number: u16) -> PagedView {
        let pool = &self.pools[usize::from(number)];
        let Some(paged) = &pool.paged else { return PagedView::default() };
        let mut pages: Vec<PageView> = paged
            .pages
            .page_places()
            .map(|(at, bytes, may_leave)| PageView { at, bytes, may_leave })
            .collect();
        pages.sort_unstable_by_key(|page| page.at);
        let zones = [Zone::Small, Zone::Large].into_iter();
        let parts = zones.flat_map(|zone| paged.pages.parts(zone)).map(|part| {
            let what = match (part.state, part.owner) {
                (Held::Free, _) => What::Free,
                (Held::Live, Some(owner)) => self.may_move(number, owner, part.at),
                _ => What::Busy,
            };
            Part { offset: part.at, bytes: part.bytes, what }
        });
        PagedView { parts: parts.collect(), pages }
    }

    fn may_move(&self, pool: u16, owner: u32, at: u64) -> What {
        let block = self.blocks.at(owner).map(|(_, block)| block);
        let Some(block) = block.filter(|block| block.pool == pool && block.spot.is_paged()) else {
            return What::Busy;
        };
        match self.why_not(block, false) {
            Some(why) => What::Fixed { owner, why },
            None => What::Movable { owner, align: block.align(at) },
        }
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
