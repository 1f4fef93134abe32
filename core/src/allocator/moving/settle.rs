//! Settling: a submitted move whose copy is done is committed, or dropped if its block was freed
//! meanwhile; where checksums are compared, the old place is kept until they are.

use rustc_hash::FxHashMap;

use crate::compact::Verdict;
use crate::device::Report;
use crate::error::Error;
use crate::id::Key;

use super::super::Inner;
use super::super::handle::Handle;
use super::super::state::State;
use super::report::Corrupt;
use super::state::{Check, Flight};
use super::submit::SLICE;

impl State {
    /// Takes out the moves whose copies are known to be done.
    pub fn take_finished_moves(&mut self) -> Vec<Flight> {
        if self.moves.flights.is_empty() {
            return Vec::new();
        }
        let reached = &self.reached;
        let is_done = |flight: &mut Flight| {
            let known = reached.get(&flight.point.stream);
            known.is_some_and(|&known| known >= flight.point.value)
        };
        self.moves.flights.extract_if(.., is_done).collect()
    }
}

impl Inner {
    /// Counts finished moves, compares the checksums of those that have some, and lets go of
    /// their old places.
    pub fn settle_moves(&self, flights: Vec<Flight>) -> Result<(), Error> {
        let mut reports: FxHashMap<u64, (Report, Report)> = FxHashMap::default();
        let mut failure = None;
        for (before, after) in flights.iter().filter_map(|it| Some(it.check.as_ref()?.tickets)) {
            if reports.contains_key(&after.id) {
                continue;
            }
            let taken = self.compute().and_then(|compute| {
                Ok((compute.take_report(before)?, compute.take_report(after)?))
            });
            match taken {
                Ok(pair) => {
                    reports.insert(after.id, pair);
                }
                Err(error) => failure = Some(error),
            }
        }
        let mut flights = flights.into_iter().peekable();
        while flights.peek().is_some() {
            let mut state = self.lock();
            for flight in flights.by_ref().take(SLICE) {
                self.settle_one(&mut state, flight, &reports);
            }
            self.unlock_and_tell(state);
        }
        failure.map_or(Ok(()), Err)
    }

    fn settle_one(
        &self,
        state: &mut State,
        flight: Flight,
        reports: &FxHashMap<u64, (Report, Report)>,
    ) {
        let Flight { pass, key, bytes, check, .. } = flight;
        let is_live = state.block(key).is_ok();
        let mut verdict = if is_live { Verdict::Committed } else { Verdict::Dropped };
        if let Some(check) = check {
            let pair = reports.get(&check.tickets.1.id);
            let sums = pair.and_then(|(old, new)| Some((old.get(check.at)?, new.get(check.at)?)));
            // Without a report (the device is lost) nothing can be said: the block stays.
            if sums.is_some_and(|(old, new)| old != new) {
                verdict = Verdict::Corrupt;
                self.note_corrupt(state, pass, key, bytes, &check);
            } else {
                state.let_go(check.pool, check.source, check.points);
            }
        }
        state.verdict(pass, key, bytes, verdict);
        state.forget_pass(pass);
    }

    /// Keeps the old place and stops all moving.
    fn note_corrupt(&self, state: &mut State, pass: u32, key: Key, bytes: u64, check: &Check) {
        state.moves.stopped = true;
        let old = state.pools[usize::from(check.pool)].place(check.source);
        let new = state.block(key).map_or(old, |block| state.pool(block).place(block.node));
        let handle = Handle { key, allocator: self.id };
        let corrupt = Corrupt { handle, old, new, bytes };
        if let Some(books) = state.moves.passes.get_mut(&pass) {
            books.corrupt.push(corrupt);
        }
    }
}

impl State {
    /// Forgets a pass that was ended, once none of its moves is under way.
    pub(super) fn forget_pass(&mut self, pass: u32) {
        let is_over = self.moves.passes.get(&pass).is_some_and(|books| books.ended)
            && self.moves.flights.iter().all(|flight| flight.pass != pass);
        if is_over {
            self.moves.passes.remove(&pass);
        }
    }
}
