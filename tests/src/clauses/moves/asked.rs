//! What does not move, what moves only when somebody agrees, and what is told of it.

use std::time::Duration;

use terrane_core::compact::{Limits, Verify, Why};
use terrane_core::event::{EventKind, RecorderMode};
use terrane_core::{Answer, Error, MemoryKind, Request};

use super::{Board, HALF, UNIT, refused};
use crate::clause::{Outcome, Stop, ensure, equal, fails};
use crate::clauses::blocks::spoilt;
use crate::rig::Rig;

pub(super) fn held(rig: &Rig) -> Outcome {
    let board = Board::new(rig)?;
    let before = board.offsets()?;
    let pins: Result<Vec<_>, Error> = board.live().map(|(_, b)| board.alloc.pin(b)).collect();
    let pins = pins?;
    let report = board.alloc.compact(HALF, Limits::NONE)?;
    ensure!(!report.reached && report.moves == 0, "a pinned block moved: {report:?}");
    equal!(refused(&report, Why::Held), 8, "blocks refused as held");
    drop(pins);
    equal!(board.moved(&before)?, 0, "blocks that moved");
    let visible = rig.class_visible(true)?;
    if rig.caps().class(visible).is_some_and(|c| c.kind == MemoryKind::Device) {
        let first = board.blocks[0];
        let mapped = board.alloc.map(first, Duration::from_secs(5))?;
        let mut pass = board.alloc.begin_pass(HALF, Limits::NONE)?;
        pass.submit()?;
        let report = pass.end_pass()?;
        equal!(refused(&report, Why::Mapped), 1, "blocks refused as mapped");
        drop(mapped);
    }
    board.end()?;
    let board = Board::with(rig, |_| {}, |request| request.movable(false))?;
    let report = board.alloc.compact(HALF, Limits::NONE)?;
    equal!((report.moves, refused(&report, Why::Asked)), (0, 8), "moves of fixed blocks");
    board.end()
}

pub(super) fn raw(rig: &Rig) -> Outcome {
    let board = Board::with(rig, |_| {}, |request| request.raw_handle(true))?;
    let before = board.offsets()?;
    let report = board.alloc.compact(HALF, Limits::NONE)?;
    equal!((report.moves, refused(&report, Why::RawHandle)), (0, 8), "moves without asking");
    let mut pass = board.alloc.begin_pass(HALF, Limits::NONE.offer_raw(true))?;
    let offers = pass.offers();
    ensure!(offers.len() >= 3, "{} offers", offers.len());
    for (at, offer) in offers.iter().enumerate() {
        ensure!(offer.old.place != offer.new.place, "an offer of the same place");
        let answer = [Answer::Copy, Answer::Ignore, Answer::Destroy][at % 3];
        pass.answer(offer.handle, answer)?;
    }
    if let Some(point) = pass.submit()? {
        rig.wait(point)?;
    }
    for (at, offer) in offers.iter().enumerate() {
        let now = board.alloc.info(offer.handle).map(|info| info.place);
        match at % 3 {
            0 => equal!(now, Ok(offer.new.place), "where a copied block is"),
            1 => equal!(now, Ok(offer.old.place), "where an ignored block is"),
            _ => equal!(now, Err(Error::UseAfterFree), "a destroyed block"),
        }
    }
    pass.end_pass()?;
    ensure!(before.len() == 8, "the board has eight blocks");
    for (seed, block) in board.live() {
        if board.alloc.info(block).is_ok() {
            equal!(spoilt(rig, &board.alloc, board.stream, block, seed)?, 0, "block {seed}");
        }
    }
    board.end()
}

pub(super) fn views(rig: &Rig) -> Outcome {
    let board = Board::new(rig)?;
    let old: Result<Vec<_>, Error> = board.live().map(|(_, b)| board.alloc.view(b)).collect();
    let old = old?;
    let report = board.alloc.compact(HALF, Limits::NONE)?;
    equal!((report.moves, refused(&report, Why::Viewed)), (0, 8), "moves under a view");
    let mut pass = board.alloc.begin_pass(HALF, Limits::NONE.offer_raw(true))?;
    let offers = pass.offers();
    ensure!(!offers.is_empty(), "no move is offered");
    for offer in &offers {
        ensure!(offer.old.view.is_some_and(|view| old.contains(&view)), "another old view");
        ensure!(offer.new.view.is_some() && offer.new.view != offer.old.view, "no new view");
        pass.answer(offer.handle, Answer::Copy)?;
    }
    if let Some(point) = pass.submit()? {
        rig.wait(point)?;
    }
    for offer in &offers {
        equal!(Some(board.alloc.view(offer.handle)?), offer.new.view, "the view of a moved block");
    }
    pass.end_pass()?;
    // A pass that is given up destroys what it made for nothing.
    drop(board.alloc.begin_pass(HALF, Limits::NONE.offer_raw(true))?);
    board.assert_whole(rig)?;
    board.end()
}

pub(super) fn verified(rig: &Rig) -> Outcome {
    let board = Board::with(rig, |config| config.verify_moves = Verify::Always, |it| it)?;
    let before = board.alloc.stats();
    let mut pass = board.alloc.begin_pass(HALF, Limits::NONE)?;
    let Some(point) = pass.submit()? else { return Err(Stop::failed("nothing was submitted")) };
    let during = board.alloc.stats();
    ensure!(during.free < before.free, "the old places are not kept");
    rig.wait(point)?;
    let mut polls = 0;
    while !pass.poll()?.done {
        polls += 1;
        ensure!(polls < 10_000, "the pass does not end");
        std::thread::yield_now();
    }
    let report = pass.end_pass()?;
    ensure!(report.reached && report.verdicts.corrupt == 0, "{report:?}");
    equal!(board.alloc.stats().free, before.free, "free bytes");
    board.assert_whole(rig)?;
    board.end()
}

pub(super) fn off(rig: &Rig) -> Outcome {
    let board = Board::with(rig, |config| config.moves = false, |it| it)?;
    let answer = board.alloc.compact(HALF, Limits::NONE);
    fails(&answer, &Error::MovesOff, "a pass where moves are off")?;
    let answer = board.alloc.alloc(&Request::new(8 * UNIT, board.stream));
    ensure!(answer.is_err(), "blocks were moved for a request");
    board.end()
}

pub(super) fn captured(rig: &Rig) -> Outcome {
    let board = Board::new(rig)?;
    let (before, other) = (board.offsets()?, rig.stream()?);
    let capture = rig.capture(other)?;
    let mut submission = board.alloc.submit(other);
    for (_, block) in board.live() {
        submission.resolve(block)?;
    }
    submission.close()?;
    capture.end()?;
    let report = board.alloc.compact(HALF, Limits::NONE)?;
    equal!((report.moves, refused(&report, Why::Captured)), (0, 8), "moves under a graph");
    equal!(board.moved(&before)?, 0, "blocks that moved");
    board.end()
}

pub(super) fn events(rig: &Rig) -> Outcome {
    let mode = RecorderMode::Stream { capacity: 1 << 12 };
    let board = Board::with(rig, |config| config.recorder = mode, |it| it)?;
    let mut events = Vec::new();
    board.alloc.drain_events(&mut events, usize::MAX);
    events.clear();
    let report = board.alloc.compact(HALF, Limits::NONE)?;
    board.alloc.drain_events(&mut events, usize::MAX);
    let count = |kind| events.iter().filter(|event| event.is(kind)).count() as u64;
    equal!(count(EventKind::PassBegin), 1, "passes begun");
    equal!(count(EventKind::PassEnd), 1, "passes ended");
    for kind in [EventKind::MoveReserved, EventKind::MoveSubmitted, EventKind::MoveCommitted] {
        equal!(count(kind), report.moves, "events of {kind:?}");
    }
    board.end()
}
