//! What becomes of checks once the device has done them.

use std::time::Duration;

use crate::device::Report;
use crate::error::Error;
use crate::event::{Event, EventKind};
use crate::id::Key;

use super::super::patience::Patience;
use super::super::{Allocator, Inner};
use super::Damage;
use super::state::{Stage, Visit};

/// The longest single wait, so that what others find is noticed too.
const SLICE: Duration = Duration::from_millis(100);

impl Allocator {
    /// Compares the margins of all live blocks and what is in the quarantine now, waits for that,
    /// at most `time` on the device's clock, and gives everything that was found and not taken
    /// before. Work of other streams than a block's own that is not recorded as a use of the block
    /// may write while it is compared: inside the block it does no harm.
    ///
    /// Nothing, without [`Checks`](crate::Checks).
    ///
    /// # Errors
    /// The device's; [`Error::TimedOut`] (with 0 bytes asked) when work is not done by then.
    pub fn check_blocks(&self, time: Duration) -> Result<Vec<Damage>, Error> {
        self.inner.refuse_in_capture()?;
        self.inner.visit_live()?;
        self.inner.finish_checks(time)?;
        if !self.inner.lock().checking.visits.is_empty() {
            return Err(Error::TimedOut { asked: 0 });
        }
        Ok(self.damage())
    }

    /// Takes what checks have found since the last call, oldest first, at most 1,024 findings.
    pub fn damage(&self) -> Vec<Damage> {
        std::mem::take(&mut self.inner.lock().checking.found)
    }
}

impl Inner {
    /// Submits a comparison of the margins of every live block.
    fn visit_live(&self) -> Result<(), Error> {
        let keys: Vec<Key> = {
            let state = self.lock();
            let live = |key: &Key| state.block(*key).is_ok();
            let armed = |key: &Key| {
                state.checking.guarded.get(&key.index()).is_some_and(|guarded| guarded.armed)
            };
            state.blocks.iter().map(|(key, _)| key).filter(live).filter(armed).collect()
        };
        for key in keys {
            // Freed meanwhile, mapped or paused: looked at when it is freed.
            if self.lock_still(key).hold(key).is_err() {
                continue;
            }
            if let Err(error) = self.submit_look(key) {
                self.unhold(&[key], None);
                return Err(error);
            }
        }
        Ok(())
    }

    fn submit_look(&self, key: Key) -> Result<(), Error> {
        let (stream, guarded, place) = self.wait_for_uses(key)?;
        let regions = guarded.armed_margins(key, place);
        let compared: Vec<_> = regions.iter().map(|(_, region)| *region).collect();
        let ticket = self.compute()?.verify(stream, &compared)?;
        let point = ticket.point;
        self.enqueue(Visit { key, stage: Stage::Alive, regions, ticket: Some(ticket), point });
        Ok(())
    }

    /// Takes in the checks that the device has done, and lets blocks go that the quarantine has
    /// no room for.
    pub(in crate::allocator) fn poll_checks(&self) -> Result<(), Error> {
        let stream = {
            let state = self.lock();
            let idle = state.checking.visits.is_empty();
            state.checking.stream.filter(|_| !idle)
        };
        let Some(stream) = stream else { return Ok(()) };
        let reached = self.device.reached(stream)?;
        loop {
            let mut state = self.lock();
            let visits = &mut state.checking.visits;
            if visits.front().is_none_or(|visit| visit.point.value > reached) {
                break;
            }
            let Some(visit) = visits.pop_front() else { break };
            drop(state);
            self.settle_visit(&visit);
        }
        self.shrink_quarantine(self.config.checks.quarantine)
    }

    /// Has everything that was freed compared and released, as far as the device gets in `time` on
    /// its clock.
    pub(in crate::allocator) fn finish_checks(&self, time: Duration) -> Result<(), Error> {
        let mut patience = Patience::new(&*self.device, time);
        loop {
            self.poll_checks()?;
            self.shrink_quarantine(0)?;
            let Some(point) = self.lock().checking.visits.front().map(|visit| visit.point) else {
                return Ok(());
            };
            if patience.wait(&*self.device, &[point], SLICE)?.is_none() {
                return Ok(());
            }
        }
    }

    /// Submits the last comparison of the oldest blocks in the quarantine until at most `most`
    /// bytes stay.
    fn shrink_quarantine(&self, most: u64) -> Result<(), Error> {
        loop {
            let mut state = self.lock();
            let checking = &mut state.checking;
            if checking.kept_bytes <= most {
                return Ok(());
            }
            let Some((key, bytes)) = checking.kept.pop_front() else { return Ok(()) };
            checking.kept_bytes -= bytes;
            drop(state);
            if let Err(error) = self.submit_leave(key) {
                self.give_up_check(key);
                return Err(error);
            }
        }
    }

    fn submit_leave(&self, key: Key) -> Result<(), Error> {
        let (stream, guarded, place) = self.wait_for_uses(key)?;
        let mut regions = guarded.armed_margins(key, place);
        regions.push((super::DamageKind::AfterFree, guarded.inside(key, place)));
        let compared: Vec<_> = regions.iter().map(|(_, region)| *region).collect();
        let ticket = self.compute()?.verify(stream, &compared)?;
        let point = ticket.point;
        self.enqueue(Visit { key, stage: Stage::Leaving, regions, ticket: Some(ticket), point });
        Ok(())
    }

    fn settle_visit(&self, visit: &Visit) {
        // Without a report (the device is lost) nothing can be said.
        let report = visit.ticket.and_then(|ticket| self.compute().ok()?.take_report(ticket).ok());
        self.note_damage(visit, &report.unwrap_or_default());
        match visit.stage {
            Stage::Alive => self.unhold(&[visit.key], None),
            Stage::Freed if self.config.checks.quarantine > 0 => self.keep_back(visit.key),
            Stage::Freed | Stage::Leaving => self.end_check(visit.key),
        }
    }

    fn keep_back(&self, key: Key) {
        let mut state = self.lock();
        let bytes = state.checking.guarded.get(&key.index()).map_or(0, |guarded| guarded.total());
        state.checking.kept.push_back((key, bytes));
        state.checking.kept_bytes += bytes;
    }

    fn note_damage(&self, visit: &Visit, report: &Report) {
        let found = visit.regions.iter().zip(report).filter(|(_, words)| **words > 0);
        for (&region, &words) in found {
            let mut state = self.lock();
            let damage = state.damage(self.id, visit.key, region, words);
            // Told once.
            state.checking.disarm(visit.key);
            let Some(damage) = damage else { continue };
            let event = Event::new(EventKind::Damage).handle(visit.key.to_bits()).a(words);
            let event = event.b(damage.bytes).c(damage.place.offset);
            let site = state.blocks.get(visit.key).map_or(0, |block| block.site);
            state.event(event.within(damage.place.space.0).on(visit.point.stream.0, site));
            state.checking.keep(damage.clone());
            drop(state);
            self.tell_damage(&damage);
        }
    }

    #[allow(clippy::print_stderr, reason = "the person who set the variable reads it there")]
    fn tell_damage(&self, damage: &Damage) {
        if self.config.checks.to_stderr {
            eprintln!("terrane: {damage}");
        }
        self.hooks.tell_damage(damage);
    }

    /// Releases a block whose checks are over.
    fn end_check(&self, key: Key) {
        self.lock().checking.forget(key);
        self.unhold(&[key], None);
    }

    /// Releases a block that could not be checked, behind what was submitted about it.
    pub(super) fn give_up_check(&self, key: Key) {
        let stream = {
            let mut state = self.lock();
            state.checking.forget(key);
            state.checking.stream
        };
        let point = stream.and_then(|stream| self.device.mark(stream).ok());
        self.unhold(&[key], point);
    }

    /// Ends the checks: what the device has not done within `time` is not waited for.
    pub(in crate::allocator) fn close_checks(&self, time: Duration) {
        // A lost device can not be asked about anything any more.
        let _ = self.finish_checks(time);
        if let Some(stream) = self.lock().checking.stream.take() {
            let _ = self.device.retire_stream(stream);
        }
    }
}
