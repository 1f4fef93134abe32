//! A free while something is checked.

use std::panic::Location;

use crate::device::{StreamId, StreamSpec, SyncPoint};
use crate::error::Error;
use crate::id::Key;
use crate::point::Points;

use super::super::Inner;
use super::super::handle::Handle;
use super::super::state::flag;
use super::FREED_WORD;
use super::state::{Stage, Visit};

impl Inner {
    /// Frees a block that is checked first. Its handle is gone at once, its memory comes back
    /// when it was compared.
    #[cold]
    pub(in crate::allocator) fn free_checked(
        &self,
        handle: Handle,
        points: &Points,
        site: Option<&'static Location<'static>>,
    ) -> Result<(), Error> {
        let key = handle.key_for(self.id)?;
        let mut state = self.lock_still(key);
        let block = match state.block(key) {
            Ok(block) => *block,
            Err(Error::UseAfterFree) => return Err(Error::DoubleFree),
            Err(error) => return Err(error),
        };
        let is_asleep = state.refuse_asleep(key, &block).is_err();
        let beside = state.beside(&block);
        let is_guarded = state.checking.guarded.get_mut(&key.index()).is_some_and(|guarded| {
            (guarded.freed, guarded.beside) = (site, beside);
            true
        });
        let in_graph = self.device.is_capturing() || block.has(flag::CAPTURED);
        if !is_guarded || is_asleep || in_graph {
            state.checking.forget(key);
            drop(state);
            return self.free_now(handle, points);
        }
        state.pool_mut(&block).add_uses(block.spot, points);
        if block.holds > 0 || block.has(flag::MAPPED) {
            // Whoever holds it last begins the check.
            state.block_mut(key)?.flags |= flag::FREE_LATER;
            return Ok(());
        }
        state.hold(key)?;
        state.block_mut(key)?.flags |= flag::FREE_LATER;
        drop(state);
        self.begin_check(key);
        // What earlier checks found is told now rather than never; the free itself has succeeded.
        let _ = self.poll_checks();
        Ok(())
    }

    /// Submits the check of a freed block, which is held for it. Where that fails nothing can be
    /// said of the block, and it is released unchecked.
    pub(in crate::allocator) fn begin_check(&self, key: Key) {
        let submitted = !self.device.is_capturing() && self.submit_check(key).is_ok();
        if !submitted {
            self.give_up_check(key);
        }
    }

    fn submit_check(&self, key: Key) -> Result<(), Error> {
        let (stream, guarded, place) = self.wait_for_uses(key)?;
        let compute = self.compute()?;
        let regions = guarded.armed_margins(key, place);
        let compared: Vec<_> = regions.iter().map(|(_, region)| *region).collect();
        let mut ticket = None;
        if !compared.is_empty() {
            ticket = Some(compute.verify(stream, &compared)?);
        }
        let checks = &self.config.checks;
        let filled = if checks.quarantine > 0 {
            Some(compute.fill_pattern(stream, &[guarded.inside(key, place)])?)
        } else if checks.poison {
            Some(self.device.fill(stream, place, guarded.bytes, FREED_WORD)?)
        } else {
            None
        };
        let point = match (filled, ticket) {
            (Some(point), _) => point,
            (None, Some(ticket)) => ticket.point,
            (None, None) => self.device.mark(stream)?,
        };
        self.enqueue(Visit { key, stage: Stage::Freed, regions, ticket, point });
        Ok(())
    }

    /// Orders the checks' stream behind all uses of a block, and tells what is to be compared.
    pub(super) fn wait_for_uses(
        &self,
        key: Key,
    ) -> Result<(StreamId, super::state::Guarded, crate::device::Place), Error> {
        let stream = self.check_stream()?;
        let (own, mut uses, guarded, place) = {
            let state = self.lock();
            let block = *state.blocks.get(key).map_err(super::super::state::key_error)?;
            let guarded = state.checking.guarded.get(&key.index()).copied();
            let guarded = guarded.ok_or(Error::UseAfterFree)?;
            let mut uses = state.pool(&block).uses(block.spot).clone();
            uses.merge(&state.waits.get(key.index()).cloned().unwrap_or_default());
            let whole = state.resolved(block.pool, block.spot, None);
            (block.stream, uses, guarded, state.checking.shown(key, whole).place)
        };
        // A stream that was retired has no work that is not among the uses.
        if let Ok(point) = self.device.mark(own) {
            uses.insert(point);
        }
        uses.retain(|point| point.value != SyncPoint::NEVER && point.stream != stream);
        self.device.wait_on_stream(stream, uses.as_slice())?;
        Ok((stream, guarded, place))
    }

    /// Notes submitted work of the checks.
    pub(super) fn enqueue(&self, visit: Visit) {
        let mut state = self.lock();
        let visits = &mut state.checking.visits;
        // Two threads may submit in one order and come here in the other.
        let at = visits.partition_point(|other| other.point.value <= visit.point.value);
        visits.insert(at, visit);
    }

    /// The stream that compares, made at the first check.
    fn check_stream(&self) -> Result<StreamId, Error> {
        if let Some(stream) = self.lock().checking.stream {
            return Ok(stream);
        }
        let made = self.device.create_stream(StreamSpec::default())?;
        let mut state = self.lock();
        let first = *state.checking.stream.get_or_insert(made);
        drop(state);
        if first != made {
            self.device.retire_stream(made)?;
        }
        Ok(first)
    }
}
