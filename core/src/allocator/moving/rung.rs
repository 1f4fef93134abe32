//! Compaction without being asked: for a request that finds no room, and in idle time.

use std::sync::Arc;
use std::time::Duration;

use crate::compact::{Goal, Limits, Mode};
use crate::error::Error;
use crate::event::Rung;
use crate::point::Points;
use crate::request::Wait;

use super::super::Inner;
use super::super::alloc::Asked;
use super::super::config::allowed_classes;
use super::compactor::Pass;

/// The longest wait on the host for copies that empty a segment which has to be given back.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

impl Inner {
    /// Moves blocks so that a request finds room: together in a segment of its pools, or else
    /// out of segments that are then given back. Tells whether anything has changed.
    ///
    /// Room in a segment comes at once, behind the copies in stream order. Memory objects can be
    /// given back only when the copies are done, for which the host waits.
    pub(in crate::allocator) fn compact_for(
        self: &Arc<Self>,
        asked: &Asked<'_>,
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
        if self.compact_pages(asked)? {
            return Ok(true);
        }
        if !asked.request.dedicated && self.compact_within(asked)? {
            return Ok(true);
        }
        self.compact_away(asked)
    }

    fn compact_within(&self, asked: &Asked<'_>) -> Result<bool, Error> {
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
        let mut pass = self.begin(goal, Limits::NONE, pools)?;
        let outcome = self.run_to_submission(&mut pass);
        self.end(&mut pass);
        outcome?;
        Ok(pass.is_reached())
    }

    fn compact_away(&self, asked: &Asked<'_>) -> Result<bool, Error> {
        let heaps: Vec<_> = allowed_classes(self.caps(), &self.config, asked.request)
            .filter_map(|id| self.caps().class(id))
            .map(|class| class.heap)
            .collect();
        let pools = self.lock().movable_pools(|pool| heaps.contains(&pool.heap));
        let goal = Goal::Release { bytes: asked.layout.bytes };
        let mut pass = self.begin(goal, Limits::NONE, pools)?;
        let outcome = self.run_to_submission(&mut pass);
        self.end(&mut pass);
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
        let pools = self.lock().movable_pools(|_| true);
        let limits = Limits::NONE.bytes(self.config.idle_bytes).mode(Mode::Background);
        let mut pass = self.begin(Goal::Fragmentation { below }, limits, pools)?;
        let outcome = self.advance(&mut pass);
        self.end(&mut pass);
        outcome
    }
}
