//! The course of moves and passes.

use terrane_core::compact::{Goal, Limits, Mode};
use terrane_core::device::SyncPoint;
use terrane_core::{Error, Growth, Limit, Request, Wait};

use super::{Board, HALF, UNIT, configure};
use crate::clause::{Outcome, Stop, ensure, equal, fails};
use crate::clauses::blocks::{paint, spoilt};
use crate::rig::Rig;

pub(super) fn contents(rig: &Rig) -> Outcome {
    let board = Board::new(rig)?;
    let report = board.alloc.compact(HALF, Limits::NONE)?;
    ensure!(report.reached, "not reached: {report:?}");
    ensure!(report.bytes <= 4 * UNIT, "{} bytes moved, four blocks suffice", report.bytes);
    equal!(report.verdicts.committed, report.moves, "committed moves");
    ensure!(report.largest_free.1 >= 8 * UNIT, "largest free {}", report.largest_free.1);
    board.assert_whole(rig)?;
    // Everything again, from the other end of the scale.
    let report = board.alloc.compact(Goal::Fragmentation { below: 0.0 }, Limits::NONE)?;
    equal!(report.moves, 0, "moves where nothing is left to do");
    board.assert_whole(rig)?;
    board.end()
}

pub(super) fn slides(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc_with(configure)?;
    let mut blocks = Vec::new();
    // 1 free, 3 live, 1 free, 5 live, 1 free, 2 live, 1 free, the rest live.
    for units in [1, 3, 1, 5, 1, 2, 1, 2] {
        let handle = alloc.alloc(&Request::new(units * UNIT, stream))?.handle;
        paint(rig, &alloc, stream, handle, units)?;
        blocks.push((units, handle));
    }
    for at in [6, 4, 2, 0] {
        alloc.free(blocks.remove(at).1)?;
    }
    rig.wait(rig.device().mark(stream)?)?;
    let goal = Goal::Contiguous { bytes: 4 * UNIT, align: 1 };
    let report = alloc.compact(goal, Limits::NONE)?;
    ensure!(report.reached, "not reached: {report:?}");
    for (seed, block) in &blocks {
        equal!(spoilt(rig, &alloc, stream, *block, *seed)?, 0, "spoilt words of {seed} units");
    }
    alloc.check().map_err(Stop::failed)?;
    let got = alloc.alloc(&Request::new(4 * UNIT, stream).wait(Wait::Never))?;
    alloc.free(got.handle)?;
    for (_, block) in blocks {
        alloc.free(block)?;
    }
    alloc.check().map_err(Stop::failed)
}

fn busy_with_all(rig: &Rig, board: &Board) -> Result<crate::busy::Busy, Stop> {
    let mut submission = board.alloc.submit(board.stream);
    let mut ranges = Vec::new();
    for (_, block) in board.live() {
        let at = submission.resolve(block)?;
        ranges.push((at.place, at.bytes));
    }
    let busy = rig.busy(board.stream, &ranges)?;
    submission.close_at(busy.point);
    Ok(busy)
}

pub(super) fn flip(rig: &Rig) -> Outcome {
    let board = Board::new(rig)?;
    let before = board.offsets()?;
    let busy = busy_with_all(rig, &board)?;
    let mut pass = board.alloc.begin_pass(HALF, Limits::NONE)?;
    equal!(board.moved(&before)?, 0, "blocks that moved before the submission");
    let Some(point) = pass.submit()? else { return Err(Stop::failed("nothing was submitted")) };
    let moved = board.moved(&before)?;
    ensure!(moved > 0, "no block is at its new place");
    ensure!(!rig.is_reached(point)?, "the copy did not wait for the last use");
    ensure!(!pass.poll()?.done, "done before the copy is");
    for (_, block) in board.live() {
        let waits = board.alloc.waits_of(block)?;
        let uses = board.alloc.info(block)?.uses;
        let knows = |p: SyncPoint| p.stream == point.stream && p.value <= point.value;
        let told = waits.iter().chain(uses.iter()).any(knows);
        let is_moved = waits.iter().any(knows);
        ensure!(told || !is_moved, "a moved block does not name its copy");
    }
    busy.finish();
    rig.wait(point)?;
    ensure!(pass.poll()?.done, "not done after the copy");
    let report = pass.end_pass()?;
    equal!(report.verdicts.committed, moved as u64, "committed moves");
    board.check()?;
    board.end()
}

pub(super) fn write_after(rig: &Rig) -> Outcome {
    let board = Board::new(rig)?;
    let busy = busy_with_all(rig, &board)?;
    let mut pass = board.alloc.begin_pass(HALF, Limits::NONE)?;
    let Some(point) = pass.submit()? else { return Err(Stop::failed("nothing was submitted")) };
    let other = rig.stream()?;
    // Written while the copy still waits, on another stream: it has to come after the copy.
    for (seed, block) in board.live() {
        paint(rig, &board.alloc, other, block, seed + 1000)?;
    }
    busy.finish();
    rig.wait(point)?;
    rig.wait(rig.device().mark(other)?)?;
    ensure!(pass.poll()?.done, "not done after the copy");
    pass.end_pass()?;
    for (seed, block) in board.live() {
        let words = spoilt(rig, &board.alloc, board.stream, block, seed + 1000)?;
        equal!(words, 0, "words of block {seed} that are not what was written last");
    }
    board.end()
}

pub(super) fn open_submission(rig: &Rig) -> Outcome {
    let board = Board::new(rig)?;
    let before = board.offsets()?;
    let mut submission = board.alloc.submit(board.stream);
    for (_, block) in board.live() {
        submission.resolve(block)?;
    }
    let report = board.alloc.compact(HALF, Limits::NONE)?;
    equal!(report.moves, 0, "blocks moved under an open submission");
    equal!(board.moved(&before)?, 0, "blocks that moved");
    submission.close()?;
    ensure!(board.alloc.compact(HALF, Limits::NONE)?.reached, "not after it was closed");
    board.assert_whole(rig)?;
    board.end()
}

pub(super) fn resolved_meanwhile(rig: &Rig) -> Outcome {
    let board = Board::new(rig)?;
    let before = board.offsets()?;
    let mut pass = board.alloc.begin_pass(HALF, Limits::NONE)?;
    let reserved = pass.progress().reserved;
    ensure!(reserved > 0, "nothing was reserved");
    let pins: Result<Vec<_>, Error> = board.live().map(|(_, b)| board.alloc.pin(b)).collect();
    let pins = pins?;
    pass.submit()?;
    let report = pass.end_pass()?;
    equal!(report.verdicts.cancelled, reserved, "cancelled moves");
    equal!(board.moved(&before)?, 0, "blocks that moved under a guard");
    drop(pins);
    board.assert_whole(rig)?;
    board.end()
}

pub(super) fn cancel(rig: &Rig) -> Outcome {
    let board = Board::new(rig)?;
    let (before, stats) = (board.offsets()?, board.alloc.stats());
    let pass = board.alloc.begin_pass(HALF, Limits::NONE)?;
    ensure!(pass.progress().reserved > 0, "nothing was reserved");
    let during = board.alloc.stats();
    ensure!(during.free < stats.free, "the places are not really reserved");
    let report = pass.end_pass()?;
    equal!(report.moves, 0, "moves");
    ensure!(report.verdicts.cancelled > 0, "nothing was cancelled");
    equal!(board.moved(&before)?, 0, "blocks that moved");
    equal!(board.alloc.stats().free, stats.free, "free bytes");
    equal!(board.alloc.stats().active.current, stats.active.current, "active bytes");
    board.assert_whole(rig)?;
    board.end()
}

pub(super) fn dropped(rig: &Rig) -> Outcome {
    let board = Board::new(rig)?;
    let busy = busy_with_all(rig, &board)?;
    let mut pass = board.alloc.begin_pass(HALF, Limits::NONE)?;
    let Some(point) = pass.submit()? else { return Err(Stop::failed("nothing was submitted")) };
    let moves = board.alloc.stats().moves.moves;
    for (_, block) in board.live() {
        board.alloc.free(block)?;
    }
    let all = Request::new(16 * UNIT, rig.stream()?);
    let answer = board.alloc.alloc(&all.wait(Wait::Never));
    fails(&answer, &Error::WouldWait { asked: 16 * UNIT }, "memory that a copy still reads")?;
    busy.finish();
    rig.wait(point)?;
    ensure!(pass.poll()?.done, "not done after the copy");
    equal!(pass.end_pass()?.verdicts.dropped, moves, "dropped moves");
    rig.wait(rig.device().mark(board.stream)?)?;
    let got = board.alloc.alloc(&all.wait(Wait::OnHost(rig.patience())))?;
    board.alloc.free(got.handle)?;
    board.end()
}

pub(super) fn freed_before(rig: &Rig) -> Outcome {
    let board = Board::new(rig)?;
    let mut pass = board.alloc.begin_pass(HALF, Limits::NONE)?;
    let reserved = pass.progress().reserved;
    for (_, block) in board.live() {
        board.alloc.free(block)?;
    }
    pass.submit()?;
    let report = pass.end_pass()?;
    equal!((report.moves, report.verdicts.dropped), (0, reserved), "moves, and dropped ones");
    board.end()
}

pub(super) fn limits(rig: &Rig) -> Outcome {
    let board = Board::new(rig)?;
    let limits = Limits::NONE.moves(1);
    let report = board.alloc.compact(HALF, limits)?;
    equal!((report.moves, report.reached), (1, false), "moves, and whether that was enough");
    let report = board.alloc.compact(HALF, Limits::NONE.bytes(2 * UNIT))?;
    ensure!(report.bytes <= 2 * UNIT, "{} bytes moved moved of at most two blocks'", report.bytes);
    let mut passes = 0;
    while !board.alloc.compact(HALF, limits)?.reached {
        passes += 1;
        ensure!(passes < 20, "small passes do not reach the goal");
    }
    board.assert_whole(rig)?;
    board.end()
}

pub(super) fn background(rig: &Rig) -> Outcome {
    let board = Board::new(rig)?;
    let report = board.alloc.compact(HALF, Limits::NONE.mode(Mode::Background))?;
    ensure!(report.reached, "not reached: {report:?}");
    board.assert_whole(rig)?;
    board.end()
}

pub(super) fn shortage(rig: &Rig) -> Outcome {
    let board = Board::new(rig)?;
    let request = Request::new(8 * UNIT, board.stream);
    let got = board.alloc.alloc(&request)?;
    ensure!(board.alloc.stats().moves.bytes <= 4 * UNIT, "more than the cheapest window moved");
    paint(rig, &board.alloc, board.stream, got.handle, 77)?;
    board.assert_whole(rig)?;
    equal!(spoilt(rig, &board.alloc, board.stream, got.handle, 77)?, 0, "words of the new block");
    board.alloc.free(got.handle)?;
    board.end()?;
    let board = Board::with(rig, |config| config.compact_on_shortage = false, |it| it)?;
    let answer = board.alloc.alloc(&request);
    ensure!(matches!(answer, Err(Error::OutOfMemory(_) | Error::OverUserLimit { .. })), "moved");
    board.end()
}

pub(super) fn release(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc_with(|config| {
        config.paging = false;
        config.small_max = 0;
        config.growth = Growth::Proportional { min_bytes: 4 * UNIT, max_bytes: 4 * UNIT };
        config.limits = vec![Limit::Bytes(32 * UNIT)];
    })?;
    let mut blocks = Vec::new();
    for seed in 0..32 {
        let handle = alloc.alloc(&Request::new(UNIT, stream))?.handle;
        paint(rig, &alloc, stream, handle, seed)?;
        blocks.push((seed, handle));
    }
    let (kept, freed): (Vec<_>, Vec<_>) = blocks.into_iter().partition(|(seed, _)| seed % 4 == 0);
    for (_, block) in freed {
        alloc.free(block)?;
    }
    rig.wait(rig.device().mark(stream)?)?;
    let before = alloc.stats().reserved.current;
    let report = alloc.compact(Goal::Release { bytes: 16 * UNIT }, Limits::NONE)?;
    ensure!(report.reached, "not reached: {report:?}");
    let after = alloc.stats().reserved.current;
    ensure!(after + 16 * UNIT <= before, "{after} of {before} bytes are still reserved");
    for (seed, block) in kept {
        equal!(spoilt(rig, &alloc, stream, block, seed)?, 0, "spoilt words of block {seed}");
        alloc.free(block)?;
    }
    alloc.check().map_err(Stop::failed)
}
