//! Passes over paged spaces: blocks leave pages that they share with free bytes, so that whole
//! pages are free, which can be mapped where they are wanted or be given back.

use crate::compact::{Goal, Limits, Mode, PagedMove, PagedView, free_pages, worth_making};
use crate::error::Error;
use crate::event::MoveKind;
use crate::pages::{Anew, Means};
use crate::pool::Pool;

use super::super::state::State;
use super::super::{Allocator, Inner};
use super::compactor::{Compactor, Pass};
use super::report::{MoveChoice, PassReport};

/// Plans made for one space.
const ROUNDS: u32 = 8;

/// What is left to do in paged spaces.
#[derive(Debug, Default)]
pub(super) struct Spaces {
    /// Pools whose spaces are still to be worked on.
    left: Vec<u16>,
    /// Plans made for the present one.
    rounds: u32,
}

impl Spaces {
    pub const fn of(left: Vec<u16>) -> Self {
        Self { left, rounds: 0 }
    }

    pub const fn is_done(&self) -> bool {
        self.left.is_empty()
    }
}

impl Allocator {
    /// A pass over all pools, and after them over their paged spaces.
    pub(super) fn begin_anywhere(
        &self,
        goal: Goal,
        limits: Limits,
        brief: bool,
    ) -> Result<Compactor, Error> {
        let (pools, spaces) = {
            let state = self.inner.lock();
            (state.movable_pools(|_| true), state.paged_pools(|_| true))
        };
        let mut pass = self.inner.begin(goal, limits, pools, brief)?;
        pass.spaces = Spaces::of(spaces);
        Ok(Compactor { alloc: self.clone(), pass })
    }
}

impl Inner {
    /// Goes on in paged spaces once all segments are done with. Tells whether there may be more.
    pub(super) fn advance_spaces(&self, pass: &mut Pass) -> Result<bool, Error> {
        if pass.is_reached() && !pass.goal_is_for_all() {
            pass.spaces = Spaces::default();
        }
        let Some(&pool) = pass.spaces.left.last() else { return Ok(false) };
        pass.pool = pool;
        let wanted = self.lock().wanted_pages(pool, pass.goal);
        let is_spent = self.is_spent(pass);
        if wanted > 0 && !is_spent && pass.spaces.rounds < ROUNDS && self.free_more(pass, wanted)? {
            pass.spaces.rounds += 1;
            return Ok(true);
        }
        // As many as can be are all that are asked for.
        let is_met = wanted == 0 || (!is_spent && pass.goal == Goal::Release { bytes: u64::MAX });
        pass.note_met(is_met);
        pass.spaces.left.pop();
        pass.spaces.rounds = 0;
        Ok(true)
    }

    /// Plans moves after which more pages are free, and reserves or makes them. Tells whether there
    /// are any.
    fn free_more(&self, pass: &mut Pass, wanted: u64) -> Result<bool, Error> {
        let start = self.device.now_ns();
        let view = self.look_at_pages(pass.pool);
        let mut moves = free_pages(&view, wanted);
        pass.report.plan_ns += self.device.now_ns().saturating_sub(start);
        truncate(&mut moves, &view, pass);
        let batch = self.reserve_paged(pass.pool, &moves);
        if !batch.apart.is_empty() {
            pass.batch = Some(batch);
            return Ok(true);
        }
        // These are submitted at once, and may be long.
        if pass.limits.mode == Mode::Background {
            return Ok(false);
        }
        self.place_anew(pass, wanted)
    }
}

/// Leaves out what is beyond the limits of a pass, and what is not worth making without it.
fn truncate(moves: &mut Vec<PagedMove>, view: &PagedView, pass: &Pass) {
    let left = pass.left();
    let mut bytes = 0_u64;
    let fits = |it: &&PagedMove| {
        bytes = bytes.saturating_add(it.bytes);
        bytes <= left.bytes
    };
    let most = usize::try_from(left.moves).unwrap_or(usize::MAX);
    let count = moves.iter().take_while(fits).count().min(most);
    if count < moves.len() {
        moves.truncate(worth_making(view, moves, count));
    }
}

impl Pass {
    /// Whether the goal is for every pool, not for one of them.
    const fn goal_is_for_all(&self) -> bool {
        matches!(self.goal, Goal::Fragmentation { .. } | Goal::Release { bytes: u64::MAX })
    }

    /// Counts a pool or a space in which the goal is met, or is not.
    pub(super) fn note_met(&mut self, is_met: bool) {
        self.met.0 += u32::from(is_met);
        self.met.1 += u32::from(!is_met);
    }

    /// Tells how a move in a paged space was made, and why.
    pub(super) fn note_choice(&mut self, it: &Anew) {
        if self.report.choices.len() < PassReport::CHOICES_TOLD {
            let is_remap = matches!(it.by, Means::Remap { .. });
            let by = if is_remap { MoveKind::Remap } else { MoveKind::Copy };
            let Anew { bytes, gain, copy_ns, remap_ns, .. } = *it;
            self.report.choices.push(MoveChoice { bytes, freed: gain, by, copy_ns, remap_ns });
        }
    }
}

impl State {
    /// The pools that have a paged space, of those for which `of` is true.
    pub(super) fn paged_pools(&self, of: impl Fn(&Pool) -> bool) -> Vec<u16> {
        let pools = (0_u16..).zip(&self.pools);
        pools.filter(|(_, pool)| pool.paged.is_some() && of(pool)).map(|(at, _)| at).collect()
    }

    /// Bytes of whole pages that a goal is short of in a paged space.
    fn wanted_pages(&self, pool: u16, goal: Goal) -> u64 {
        let usage = self.pools[usize::from(pool)].usage();
        let shared = usage.free.saturating_sub(usage.free_pages);
        let short = match goal {
            Goal::Contiguous { bytes, .. } | Goal::Release { bytes } => {
                bytes.saturating_sub(usage.free_pages)
            }
            Goal::Fragmentation { below } => {
                let together = (usage.free as f64 * (1.0 - below)).ceil() as u64;
                together.saturating_sub(usage.free_pages)
            }
        };
        // What is not there can not be brought together.
        if matches!(goal, Goal::Contiguous { .. }) && short > shared {
            0
        } else {
            short.min(shared)
        }
    }
}
