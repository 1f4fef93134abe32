//! Who may use whose memory, and when.

use std::sync::Arc;
use std::time::Duration;

use terrane_core::device::{StreamId, SyncPoint};
use terrane_core::point::Points;
use terrane_core::{Allocation, Error, Handle, Request, Reuse, Wait};

use super::allocator;
use super::blocks::{paint, spoilt};
use crate::busy::Busy as Work;
use crate::clause::{Clause, Need, Outcome, Stop, ensure, equal, fails};
use crate::rig::Rig;
use crate::subject::Subject;

use Need::{Busy, Compute};

pub(super) const CLAUSES: &[Clause] = &[
    allocator(
        "reuse.on-stream",
        "Memory in use comes with the point to wait for, and work through Terrane waits for it.",
        &[Busy],
        "Wait::OnStream",
        on_stream,
    ),
    allocator(
        "reuse.never",
        "A request that may not wait does not get memory in use, and is told that it is there.",
        &[Busy],
        "Wait::Never, Error::WouldWait",
        never,
    ),
    allocator(
        "reuse.on-host",
        "A request that waits on the host returns when the work is done.",
        &[Busy],
        "Wait::OnHost",
        on_host,
    ),
    allocator(
        "reuse.timed-out",
        "A request that waits on the host gives up when its time is over.",
        &[Busy],
        "Error::TimedOut",
        timed_out,
    ),
    allocator(
        "reuse.just-enough",
        "A request waits for no more work than the memory it gets.",
        &[Busy],
        "DESIGN 4.2",
        just_enough,
    ),
    allocator(
        "reuse.record-use",
        "Memory is not handed out before a use that was recorded by hand is over.",
        &[Busy],
        "Allocator::record_use",
        record_use,
    ),
    allocator(
        "reuse.free-after",
        "Memory freed after points, or on a stream, is not handed out before them.",
        &[Busy],
        "Allocator::free_after, free_on",
        free_after,
    ),
    allocator(
        "reuse.frame",
        "Memory freed with a frame stays where it is until the frame ends, then waits for its work.",
        &[Busy],
        "Allocator::frame, Frame::end",
        frame,
    ),
    allocator(
        "reuse.frame-given-up",
        "Memory freed with a frame that was never submitted waits for nothing of it.",
        &[],
        "Frame, dropping",
        frame_given_up,
    ),
    allocator(
        "reuse.submission",
        "Closing a submission marks the use of all blocks that were resolved in it.",
        &[Busy],
        "Submission::close",
        submission,
    ),
    allocator(
        "reuse.guest",
        "The first use on another stream waits for what the block's own stream did.",
        &[Busy],
        "Submission::resolve",
        guest,
    ),
    allocator(
        "reuse.head-of-line",
        "What a fast stream freed is not held up by what a slow one freed before.",
        &[Busy],
        "DESIGN 4.1",
        head_of_line,
    ),
    allocator(
        "reuse.declared-only",
        "By policy, placement does not depend on how fast the device is.",
        &[Busy],
        "Reuse::DeclaredOrderOnly",
        declared_only,
    ),
    allocator(
        "reuse.contents",
        "Streams that take over each other's memory never see or spoil each other's work.",
        &[Compute],
        "Device, rules for every method: order",
        contents,
    ),
    allocator(
        "reuse.retire",
        "What a stream owes is settled when it is retired.",
        &[],
        "Allocator::retire_stream",
        retire,
    ),
];

const MIB: u64 = 1 << 20;

/// An allocator that holds 6 MiB at most.
fn small(rig: &Rig) -> Result<Subject, Stop> {
    rig.alloc_with(|config| config.limits = vec![terrane_core::Limit::Bytes(6 * MIB)])
}

/// Work on a stream that uses a block until the test says so.
fn work(rig: &Rig, alloc: &Subject, handle: Handle, stream: StreamId) -> Result<Work, Stop> {
    let mut submission = alloc.submit(stream);
    let at = submission.resolve(handle)?;
    let busy = rig.busy(stream, &[(at.place, at.bytes)])?;
    submission.close_at(busy.point);
    Ok(busy)
}

/// A block of 5 MiB freed while another stream is busy with it.
fn in_flight(rig: &Rig) -> Result<(Subject, StreamId, Work), Stop> {
    let alloc = small(rig)?;
    let [s0, s1] = rig.streams()?;
    let block = alloc.get(5 * MIB, s0)?;
    let busy = work(rig, &alloc, block, s1)?;
    alloc.free(block)?;
    Ok((alloc, s0, busy))
}

fn ask(alloc: &Subject, stream: StreamId, wait: Wait) -> Result<Allocation, Error> {
    alloc.alloc(&Request::new(5 * MIB, stream).wait(wait))
}

fn on_stream(rig: &Rig) -> Outcome {
    let (alloc, s0, busy) = in_flight(rig)?;
    let got = ask(&alloc, s0, Wait::OnStream)?;
    equal!(got.waits.as_slice(), [busy.point], "what the request has to wait for");
    let behind = alloc.write(s0, got.handle, 0, b"not before the other is done")?;
    std::thread::sleep(Duration::from_millis(10));
    ensure!(!rig.is_reached(behind)?, "work on the memory overtook its last use");
    busy.finish();
    rig.wait(behind)?;
    alloc.sound()
}

fn never(rig: &Rig) -> Outcome {
    let (alloc, s0, busy) = in_flight(rig)?;
    let answer = ask(&alloc, s0, Wait::Never).map(drop);
    fails(&answer, &Error::WouldWait { asked: 5 * MIB }, "a request that may not wait")?;
    busy.finish();
    rig.wait(busy.point)?;
    let got = ask(&alloc, s0, Wait::Never)?;
    ensure!(got.waits.is_empty(), "memory that is ready waits for {:?}", got.waits);
    alloc.sound()
}

fn on_host(rig: &Rig) -> Outcome {
    let (alloc, s0, busy) = in_flight(rig)?;
    let point = busy.point;
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        busy.finish();
    });
    let got = ask(&alloc, s0, Wait::OnHost(Duration::from_secs(20)));
    let reached = rig.is_reached(point)?;
    late.join().map_err(|_| Stop::failed("the helper panicked"))?;
    ensure!(got?.waits.is_empty(), "a wait on the host left something to wait for");
    ensure!(reached, "memory in use was handed out");
    alloc.sound()
}

fn timed_out(rig: &Rig) -> Outcome {
    let (alloc, s0, busy) = in_flight(rig)?;
    let answer = ask(&alloc, s0, Wait::OnHost(Duration::from_millis(20))).map(drop);
    fails(&answer, &Error::TimedOut { asked: 5 * MIB }, "a request whose time was over")?;
    busy.finish();
    alloc.sound()
}

fn just_enough(rig: &Rig) -> Outcome {
    let alloc =
        rig.alloc_with(|config| config.limits = vec![terrane_core::Limit::Bytes(12 * MIB)])?;
    let [s0, s1, s2] = rig.streams()?;
    let (a, b) = (alloc.get(5 * MIB, s0)?, alloc.get(5 * MIB, s0)?);
    let slow = work(rig, &alloc, a, s1)?;
    let fast = work(rig, &alloc, b, s2)?;
    alloc.free(a)?;
    alloc.free(b)?;
    let late = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        fast.finish();
    });
    let got = ask(&alloc, s0, Wait::OnHost(Duration::from_secs(20)));
    late.join().map_err(|_| Stop::failed("the helper panicked"))?;
    let _ = got?;
    ensure!(!rig.is_reached(slow.point)?, "the request waited for the slow stream too");
    slow.finish();
    alloc.sound()
}

fn record_use(rig: &Rig) -> Outcome {
    for by_point in [false, true] {
        let alloc = small(rig)?;
        let [s0, s1] = rig.streams()?;
        let block = alloc.get(5 * MIB, s0)?;
        let busy = rig.busy(s1, &[])?;
        if by_point {
            alloc.record_use_until(block, busy.point)?;
        } else {
            alloc.record_use(block, s1)?;
        }
        alloc.free(block)?;
        let answer = ask(&alloc, s0, Wait::Never).map(drop);
        fails(&answer, &Error::WouldWait { asked: 5 * MIB }, "memory with a recorded use")?;
        busy.finish();
        rig.wait(busy.point)?;
        let _ = ask(&alloc, s0, Wait::Never)?;
    }
    Ok(())
}

fn free_after(rig: &Rig) -> Outcome {
    for on in [false, true] {
        let alloc = small(rig)?;
        let [s0, s1] = rig.streams()?;
        let block = alloc.get(5 * MIB, s0)?;
        let busy = rig.busy(s1, &[])?;
        if on {
            alloc.free_on(block, s1)?;
        } else {
            alloc.free_after(block, &Points::one(busy.point))?;
        }
        let got = ask(&alloc, s0, Wait::OnStream)?;
        equal!(got.waits.as_slice(), [busy.point], "what the next owner waits for");
        busy.finish();
    }
    Ok(())
}

fn frame(rig: &Rig) -> Outcome {
    let alloc = small(rig)?;
    let [s0, s1] = rig.streams()?;
    let block = alloc.get(5 * MIB, s0)?;
    let place = alloc.info(block)?.place;
    let mut frame = alloc.frame();
    frame.free(block)?;
    fails(&frame.free(block), &Error::DoubleFree, "a block that is in the frame already")?;
    fails(&alloc.free(block), &Error::DoubleFree, "a free of a block in a frame")?;
    let early = ask(&alloc, s0, Wait::OnStream).map(drop);
    ensure!(early.is_err(), "the memory of a frame was handed out before its end");
    let busy = rig.busy(s1, &[])?;
    frame.end(&Points::one(busy.point));
    let got = ask(&alloc, s0, Wait::OnStream)?;
    equal!(got.waits.as_slice(), [busy.point], "what the next owner waits for");
    equal!(alloc.info(got.handle)?.place, place, "where the next owner is");
    busy.finish();
    alloc.sound()
}

fn frame_given_up(rig: &Rig) -> Outcome {
    let alloc = small(rig)?;
    let [s0, s1] = rig.streams()?;
    let mut frame = alloc.frame();
    frame.keep(alloc.buffer(&Request::new(5 * MIB, s0))?)?;
    equal!(frame.len(), 1, "blocks in the frame");
    drop(frame);
    let got = ask(&alloc, s1, Wait::Never)?;
    ensure!(got.waits.is_empty(), "it waits for {:?}", got.waits);
    alloc.sound()
}

fn submission(rig: &Rig) -> Outcome {
    let alloc = rig.alloc()?;
    let [s0, s1] = rig.streams()?;
    let blocks = [alloc.get(1000, s0)?, alloc.get(2000, s0)?, alloc.get(3000, s0)?];
    let mut submission = alloc.submit(s1);
    for block in blocks {
        submission.resolve(block)?;
        equal!(alloc.info(block)?.holds, 1, "holds of a block in an open submission");
    }
    let busy = rig.busy(s1, &[])?;
    let point = submission.close()?;
    equal!(point, busy.point, "the point of a closed submission");
    for block in blocks {
        let info = alloc.info(block)?;
        equal!(info.holds, 0, "holds after the submission was closed");
        ensure!(info.uses.as_slice().contains(&point), "{:?} lack {point:?}", info.uses);
    }
    busy.finish();
    alloc.sound()
}

fn guest(rig: &Rig) -> Outcome {
    let alloc = rig.alloc()?;
    let [own, guest] = rig.streams()?;
    let block = alloc.get(4096, own)?;
    let busy = work(rig, &alloc, block, own)?;
    let behind = alloc.write(guest, block, 0, b"after the block's own stream")?;
    std::thread::sleep(Duration::from_millis(10));
    ensure!(!rig.is_reached(behind)?, "the guest overtook the block's own stream");
    busy.finish();
    rig.wait(behind)?;
    alloc.sound()
}

fn head_of_line(rig: &Rig) -> Outcome {
    let alloc =
        rig.alloc_with(|config| config.limits = vec![terrane_core::Limit::Bytes(12 * MIB)])?;
    let [s0, s1, s2] = rig.streams()?;
    let (x, y) = (alloc.get(5 * MIB, s0)?, alloc.get(5 * MIB, s0)?);
    let slow = work(rig, &alloc, x, s1)?;
    let fast = work(rig, &alloc, y, s2)?;
    let place = alloc.info(y)?.place;
    alloc.free(x)?;
    alloc.free(y)?;
    fast.finish();
    rig.wait(fast.point)?;
    let got = ask(&alloc, s0, Wait::OnStream)?;
    ensure!(got.waits.is_empty(), "the request waits for {:?}", got.waits);
    equal!(alloc.info(got.handle)?.place, place, "where the request was served");
    slow.finish();
    alloc.sound()
}

fn declared_only(rig: &Rig) -> Outcome {
    let alloc = rig.alloc_with(|config| {
        config.limits = vec![terrane_core::Limit::Bytes(6 * MIB)];
        config.reuse = Reuse::DeclaredOrderOnly;
    })?;
    let [s0, s1] = rig.streams()?;
    let block = alloc.get(5 * MIB, s0)?;
    let busy = work(rig, &alloc, block, s1)?;
    alloc.free(block)?;
    busy.finish();
    rig.wait(busy.point)?;
    // It is done, but nobody declared to wait for it.
    let got = ask(&alloc, s0, Wait::OnStream)?;
    equal!(got.waits.as_slice(), [busy.point], "what the request waits for");
    alloc.sound()
}

fn contents(rig: &Rig) -> Outcome {
    let alloc = Arc::new(rig.alloc_with(|config| {
        config.limits = vec![terrane_core::Limit::Bytes(16 * MIB)];
        config.prefer = terrane_core::Prefer::Waiting;
    })?);
    let streams = rig.streams::<4>()?;
    let mut random = rig.random();
    let mut live: Vec<(Handle, u64, StreamId)> = Vec::new();
    for seed in 0..160 {
        let stream = streams[random.below(4) as usize];
        while live.len() > 6 {
            let (handle, seed, owner) = live.swap_remove(random.below(7) as usize);
            let reader = if random.one_in(2) { owner } else { streams[random.below(4) as usize] };
            equal!(spoilt(rig, &alloc, reader, handle, seed)?, 0, "spoilt words of block {seed}");
            // Written once more, so that its next owner has something to wait for.
            paint(rig, &alloc, reader, handle, !seed)?;
            alloc.free(handle)?;
        }
        let handle = alloc.get(random.size(MIB / 4, MIB), stream)?;
        paint(rig, &alloc, stream, handle, seed)?;
        live.push((handle, seed, stream));
    }
    for (handle, seed, owner) in live {
        equal!(spoilt(rig, &alloc, owner, handle, seed)?, 0, "spoilt words of block {seed}");
    }
    alloc.sound()
}

fn retire(rig: &Rig) -> Outcome {
    let alloc = rig.alloc()?;
    let s0 = rig.stream()?;
    let mut reserved = 0;
    for round in 0..40 {
        let stream = rig.stream()?;
        let got = alloc.alloc(&Request::new(5 * MIB, stream))?;
        let point: SyncPoint = alloc.write(stream, got.handle, 0, &[1; 4096])?;
        alloc.free(got.handle)?;
        rig.wait(point)?;
        rig.forget_stream(stream);
        alloc.retire_stream(stream)?;
        if round == 0 {
            reserved = alloc.stats().reserved.current;
        }
    }
    equal!(alloc.stats().reserved.current, reserved, "bytes reserved after forty streams");
    equal!(alloc.tracked_streams(), 0, "streams that something is kept about");
    alloc.get(5 * MIB, s0)?;
    equal!(alloc.stats().reserved.current, reserved, "bytes reserved after another's request");
    alloc.sound()
}
