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

/// Room for what [`State::take_finished_moves`] takes out at once, unless checksums are compared.
pub(in crate::allocator) fn room_for_moves() -> Vec<Flight> {
    Vec::with_capacity(2 * SLICE)
}

impl State {
    /// Takes out some of the moves whose copies are known to be done; the others wait for the
    /// next call. Those whose checksums are compared come together, since they share a report.
    ///
    /// `finished` is best made by [`room_for_moves`]: an allocation with the lock held may take
    /// long where much was freed before it.
    pub fn take_finished_moves(&mut self, mut finished: Vec<Flight>) -> Vec<Flight> {
        let has_checks = self.moves.passes.values().any(|books| books.checks > 0);
        for flights in &mut self.moves.flights {
            while let Some(last) = flights.front().and_then(|flights| flights.last()) {
                let known = self.reached.get(&last.point.stream).copied().unwrap_or(0);
                let is_full = finished.len() >= SLICE
                    && finished.last().is_none_or(|it| !has_checks || it.point != last.point);
                if last.point.value > known || is_full {
                    break;
                }
                finished.extend(flights.pop_front().into_iter().flatten());
            }
        }
        finished
    }
}

impl Inner {
    /// Settles what more is known to be done, a few moves at a time.
    pub fn settle_all_moves(&self) -> Result<(), Error> {
        loop {
            let room = room_for_moves();
            let moved = self.lock().take_finished_moves(room);
            if moved.is_empty() {
                return Ok(());
            }
            self.settle_moves(moved)?;
        }
    }

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
        if let Some(books) = state.moves.passes.get_mut(&pass) {
            books.under_way -= 1;
            books.checks -= u64::from(check.is_some());
        }
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
        let new = state.block(key).map_or(old, |block| state.pool(block).place(block.spot));
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
        let books = self.moves.passes.get(&pass);
        let is_over = books.is_some_and(|books| books.ended && books.under_way == 0);
        if is_over {
            self.moves.passes.remove(&pass);
        }
    }
}
