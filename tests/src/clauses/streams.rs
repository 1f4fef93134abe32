//! Streams and sync points.

use std::time::{Duration, Instant};

use terrane_core::device::{CopyOp, DeviceError, StreamId, StreamSpec, SyncPoint};

use super::device;
use super::memory::start;
use crate::clause::{Blame, Clause, Need, Outcome, Stop, ensure, equal};
use crate::rig::{Rig, at};

use Blame::Backend;

pub(super) const CLAUSES: &[Clause] = &[
    device("streams.ids", "No two streams share an id.", &[], "StreamId", Backend, ids),
    device(
        "streams.values",
        "Every submission has its own stream's next value.",
        &[],
        "Streams and sync points",
        Backend,
        values,
    ),
    device(
        "streams.order",
        "Work of one stream runs in the order of its submission.",
        &[],
        "Device, rules for every method: order",
        Backend,
        order,
    ),
    device(
        "streams.mark",
        "A mark on a stream of our own is its last submission.",
        &[],
        "Device::mark",
        Backend,
        mark,
    ),
    device(
        "streams.mark-waits",
        "A mark is not reached before the work it covers.",
        &[Need::Busy],
        "Device::mark",
        Backend,
        mark_waits,
    ),
    device(
        "streams.reached",
        "What was waited for is reached, and what is reached stays so.",
        &[],
        "Device::reached",
        Backend,
        reached,
    ),
    device(
        "streams.zero",
        "The point before all work is reached at once.",
        &[],
        "SyncPoint",
        Backend,
        zero,
    ),
    device(
        "streams.unknown",
        "A stream that never was is told by every method.",
        &[],
        "DeviceError::UnknownStream",
        Backend,
        unknown,
    ),
    device(
        "streams.retire",
        "A retired stream's work still completes, its points stay valid, and it takes no more.",
        &[],
        "Device::retire_stream",
        Backend,
        retire,
    ),
    device(
        "streams.retire-busy",
        "Retiring a stream does not wait for its work, which completes later.",
        &[Need::Busy],
        "Device::retire_stream",
        Backend,
        retire_busy,
    ),
    device(
        "streams.wait",
        "Work behind a wait starts only after the point that it waits for.",
        &[Need::Busy],
        "Device::wait_on_stream",
        Backend,
        wait,
    ),
    device(
        "streams.wait-returns",
        "Putting a wait into a stream does not wait on the host.",
        &[Need::Busy],
        "Device::wait_on_stream",
        Backend,
        wait_returns,
    ),
    device(
        "streams.wait-own",
        "Waiting for one's own or for a reached point changes nothing.",
        &[],
        "Device::wait_on_stream",
        Backend,
        wait_own,
    ),
    device(
        "streams.chain",
        "Waits chain over many streams.",
        &[Need::Busy],
        "Device::wait_on_stream",
        Backend,
        chain,
    ),
    device(
        "streams.visible",
        "What one stream wrote is seen by work of another that waits for it.",
        &[],
        "Device, rules for every method: order",
        Backend,
        visible,
    ),
    device(
        "streams.independent",
        "Work of one stream is not held up by another that is busy.",
        &[Need::Busy],
        "Device, rules for every method: order",
        Backend,
        independent,
    ),
    device(
        "streams.wait-any",
        "A wait for any of several points ends with the first.",
        &[Need::Busy],
        "Device::wait_any",
        Backend,
        wait_any,
    ),
    device(
        "streams.wait-any-late",
        "A wait for work that is not done ends with its time and says so.",
        &[Need::Busy],
        "Device::wait_any",
        Backend,
        wait_any_late,
    ),
    device(
        "streams.wait-any-none",
        "A wait for nothing ends with its time.",
        &[],
        "Device::wait_any",
        Backend,
        wait_any_none,
    ),
    device(
        "streams.sorts",
        "Streams of every sort can copy, fill, write and read.",
        &[],
        "StreamSpec",
        Backend,
        sorts,
    ),
    device(
        "streams.threads",
        "Several threads may submit to one stream at once.",
        &[],
        "Device, rules for every method: threads",
        Backend,
        threads,
    ),
];

fn ids(rig: &Rig) -> Outcome {
    let mut ids = rig.streams::<16>()?;
    ids.sort_unstable();
    ensure!(ids.windows(2).all(|pair| pair[0] != pair[1]), "an id was given twice: {ids:?}");
    Ok(())
}

fn values(rig: &Rig) -> Outcome {
    let streams = rig.streams::<2>()?;
    let plain = rig.plain(4096)?;
    let mut last = streams.map(|stream| SyncPoint { stream, value: 0 });
    for round in 0..20 {
        let place = start(plain);
        let last = &mut last[round % 2];
        let stream = last.stream;
        if round > 1 {
            rig.device().wait_on_stream(stream, &[rig.device().mark(streams[(round + 1) % 2])?])?;
        }
        let point = match round / 2 % 3 {
            0 => rig.device().fill(stream, place, 64, 1)?,
            1 => rig.device().write(stream, place, &[1; 16])?,
            _ => rig.device().read(stream, place, 16)?.point,
        };
        equal!(point.stream, stream, "the stream of a submission's point");
        ensure!({ point.value } > { last.value }, "{point:?} after {last:?}");
        *last = point;
    }
    Ok(())
}

fn order(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(8 << 10)?;
    let (a, b) = (start(plain), at(plain.space, 4096));
    for round in 0..100 {
        rig.device().fill(stream, a, 4096, round)?;
        rig.device().copy(stream, &[CopyOp { from: a, to: b, bytes: 4096 }])?;
        rig.device().fill(stream, a, 4096, u32::MAX)?;
        if round % 10 == 9 {
            let words = rig.words(stream, b, 1024)?;
            ensure!(words.iter().all(|&word| word == round), "round {round}: out of order");
        }
    }
    Ok(())
}

fn mark(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(4096)?;
    for _ in 0..3 {
        let point = rig.device().fill(stream, start(plain), 64, 1)?;
        equal!(rig.device().mark(stream)?, point, "the mark after a fill");
    }
    let mark = rig.device().mark(stream)?;
    equal!(rig.device().mark(stream)?, mark, "the mark with no work between");
    rig.wait(mark)
}

fn mark_waits(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let busy = rig.busy(stream, &[])?;
    let mark = rig.device().mark(stream)?;
    ensure!(!rig.is_reached(mark)?, "{mark:?} is reached though the stream is busy");
    busy.finish();
    rig.wait(mark)
}

fn reached(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let plain = rig.plain(4096)?;
    let mut last = 0;
    for _ in 0..10 {
        let point = rig.device().fill(stream, start(plain), 4096, 1)?;
        let end = Instant::now() + rig.patience();
        while !rig.device().wait_any(&[point], Duration::from_millis(100))? {
            ensure!(Instant::now() < end, "{point:?} is never reached");
        }
        let reached = rig.device().reached(stream)?;
        ensure!(reached >= point.value, "{reached} reached after a wait for {point:?}");
        ensure!(reached >= last, "{reached} reached, {last} before");
        let made = rig.device().mark(stream)?.value;
        ensure!(reached <= made, "{reached} reached of {made} submissions");
        last = reached;
    }
    Ok(())
}

fn zero(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let before = SyncPoint { stream, value: 0 };
    ensure!(rig.device().wait_any(&[before], Duration::ZERO)?, "{before:?} is not reached");
    equal!({ rig.device().mark(stream)?.value }, 0, "the mark of a stream without work");
    rig.device().wait_on_stream(stream, &[before])?;
    Ok(())
}

fn all_unknown(rig: &Rig, stream: StreamId) -> Outcome {
    let plain = rig.plain(4096)?;
    let (device, place) = (rig.device(), start(plain));
    Rig::unknown(&device.mark(stream), "mark")?;
    Rig::unknown(&device.fill(stream, place, 64, 0), "fill")?;
    let op = CopyOp { from: place, to: at(plain.space, 64), bytes: 64 };
    Rig::unknown(&device.copy(stream, &[op]), "copy")?;
    Rig::unknown(&device.write(stream, place, &[0; 8]), "write")?;
    Rig::unknown(&device.read(stream, place, 8), "read")?;
    Rig::unknown(&device.wait_on_stream(stream, &[]), "wait on stream")?;
    Rig::unknown(&device.retire_stream(stream), "retire")
}

fn unknown(rig: &Rig) -> Outcome {
    let nobody = StreamId(4_000_000);
    Rig::unknown(&rig.device().reached(nobody), "reached")?;
    all_unknown(rig, nobody)
}

fn retire(rig: &Rig) -> Outcome {
    let [old, other] = rig.streams()?;
    let plain = rig.plain(1 << 20)?;
    let point = rig.device().fill(old, start(plain), 1 << 20, 5)?;
    rig.device().retire_stream(old)?;
    rig.forget_stream(old);
    rig.device().wait_on_stream(other, &[point])?;
    equal!(rig.words(other, at(plain.space, (1 << 20) - 4), 1)?, [5], "work of a retired stream");
    rig.wait(point)?;
    all_unknown(rig, old)
}

fn retire_busy(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let busy = rig.busy(stream, &[])?;
    rig.device().retire_stream(stream)?;
    rig.forget_stream(stream);
    ensure!(!rig.is_reached(busy.point)?, "the work is done though nobody let it");
    busy.finish();
    rig.wait(busy.point)
}

fn wait(rig: &Rig) -> Outcome {
    let [first, second] = rig.streams()?;
    let plain = rig.plain(4096)?;
    let busy = rig.busy(first, &[(start(plain), 4096)])?;
    rig.device().wait_on_stream(second, &[busy.point])?;
    let behind = rig.device().fill(second, start(plain), 4096, 1)?;
    std::thread::sleep(Duration::from_millis(20));
    ensure!(!rig.is_reached(behind)?, "{behind:?} did not wait for {:?}", busy.point);
    busy.finish();
    rig.wait(behind)
}

fn wait_returns(rig: &Rig) -> Outcome {
    let [first, second] = rig.streams()?;
    let busy = rig.busy(first, &[])?;
    let started = Instant::now();
    rig.device().wait_on_stream(second, &[busy.point])?;
    let took = started.elapsed();
    ensure!(took < Duration::from_millis(250), "the call took {took:?}");
    busy.finish();
    rig.wait(busy.point)
}

fn wait_own(rig: &Rig) -> Outcome {
    let [first, second] = rig.streams()?;
    let plain = rig.plain(4096)?;
    let own = rig.device().fill(first, start(plain), 64, 1)?;
    rig.device().wait_on_stream(first, &[own])?;
    rig.wait(rig.device().fill(first, start(plain), 64, 2)?)?;
    rig.device().wait_on_stream(second, &[own, own])?;
    rig.wait(rig.device().fill(second, start(plain), 64, 3)?)
}

fn chain(rig: &Rig) -> Outcome {
    let streams = rig.streams::<8>()?;
    let plain = rig.plain(8 * 4096)?;
    let busy = rig.busy(streams[0], &[(start(plain), 4096)])?;
    let mut point = busy.point;
    let mut points = Vec::new();
    for (part, &stream) in (1_u64..).zip(&streams[1..]) {
        rig.device().wait_on_stream(stream, &[point])?;
        let (from, to) = (at(plain.space, (part - 1) * 4096), at(plain.space, part * 4096));
        point = rig.device().copy(stream, &[CopyOp { from, to, bytes: 4096 }])?;
        points.push(point);
    }
    std::thread::sleep(Duration::from_millis(20));
    for point in &points {
        ensure!(!rig.is_reached(*point)?, "{point:?} overtook the head of its chain");
    }
    busy.finish();
    rig.wait(point)
}

fn visible(rig: &Rig) -> Outcome {
    let streams = rig.streams::<4>()?;
    let plain = rig.plain(8 << 10)?;
    let (a, b) = (start(plain), at(plain.space, 4096));
    let mut last = rig.device().fill(streams[0], a, 4096, 0)?;
    for round in 1..=200_u32 {
        let stream = streams[round as usize % 4];
        rig.device().wait_on_stream(stream, &[last])?;
        rig.device().copy(stream, &[CopyOp { from: a, to: b, bytes: 4096 }])?;
        let seen = rig.device().read(stream, at(plain.space, 8188), 4)?;
        last = rig.device().fill(stream, a, 4096, round)?;
        if round % 20 == 0 {
            equal!(rig.take(seen)?, (round - 1).to_le_bytes(), "what round {round} saw");
        } else {
            last = rig.device().mark(stream)?;
        }
    }
    rig.wait(last)
}

fn independent(rig: &Rig) -> Outcome {
    let [held, free] = rig.streams()?;
    let plain = rig.plain(4096)?;
    let busy = rig.busy(held, &[])?;
    rig.wait(rig.device().fill(free, start(plain), 4096, 1)?)?;
    ensure!(!rig.is_reached(busy.point)?, "the busy work is done");
    busy.finish();
    rig.wait(busy.point)
}

fn wait_any(rig: &Rig) -> Outcome {
    let [first, second, third] = rig.streams()?;
    let (a, b) = (rig.busy(first, &[])?, rig.busy(second, &[])?);
    let c = rig.busy(third, &[])?;
    b.finish();
    let points = [a.point, b.point, c.point];
    let one = rig.device().wait_any(&points, rig.patience())?;
    ensure!(one, "none of {points:?} is reached");
    ensure!(!rig.is_reached(a.point)? && !rig.is_reached(c.point)?, "it waited for the others");
    rig.wait(b.point)
}

fn wait_any_late(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let busy = rig.busy(stream, &[])?;
    let late = rig.device().wait_any(&[busy.point], Duration::from_millis(10))?;
    ensure!(!late, "{:?} is said to be reached", busy.point);
    busy.finish();
    rig.wait(busy.point)
}

fn wait_any_none(rig: &Rig) -> Outcome {
    let before = rig.device().now_ns();
    let any = rig.device().wait_any(&[], Duration::from_millis(20))?;
    let after = rig.device().now_ns();
    ensure!(!any, "one of no points is said to be reached");
    let took = after.saturating_sub(before);
    ensure!(took >= 19_000_000, "a wait of 20 ms ended after {took} ns");
    Ok(())
}

fn sorts(rig: &Rig) -> Outcome {
    let plain = rig.plain(8 << 10)?;
    for copy_only in [false, true] {
        for high_priority in [false, true] {
            let stream = rig.stream_like(StreamSpec { copy_only, high_priority })?;
            let (a, b) = (start(plain), at(plain.space, 4096));
            rig.device().fill(stream, a, 4096, 0x0202_0202)?;
            rig.device().write(stream, at(plain.space, 8), &[9; 4])?;
            rig.device().copy(stream, &[CopyOp { from: a, to: b, bytes: 4096 }])?;
            let words = rig.words(stream, b, 4)?;
            let expected = [0x0202_0202, 0x0202_0202, 0x0909_0909, 0x0202_0202];
            equal!(words, expected, "copy only {copy_only}, high priority {high_priority}");
        }
    }
    Ok(())
}

fn threads(rig: &Rig) -> Outcome {
    const EACH: u64 = 50;
    let stream = rig.stream()?;
    let plain = rig.plain(4 * 4096)?;
    let device = rig.device();
    let submit = |thread: u64| -> Result<Vec<u64>, DeviceError> {
        let place = at(plain.space, thread * 4096);
        (0..EACH).map(|_| Ok(device.fill(stream, place, 4096, thread as u32)?.value)).collect()
    };
    let values: Vec<Result<Vec<u64>, DeviceError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || submit(thread))).collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or(Err(DeviceError::InvalidCall("a thread panicked")))
        };
        threads.into_iter().map(ended).collect()
    });
    let mut all = Vec::new();
    for values in values {
        let values = values?;
        ensure!(values.is_sorted(), "one thread's submissions went backwards");
        all.extend(values);
    }
    all.sort_unstable();
    all.dedup();
    equal!(all.len() as u64, 4 * EACH, "values of as many submissions");
    let last = all.last().copied().ok_or_else(|| Stop::failed("nothing was submitted"))?;
    rig.wait(SyncPoint { stream, value: last })?;
    for thread in 0..4 {
        equal!(rig.words(stream, at(plain.space, thread * 4096), 1)?, [thread as u32], "contents");
    }
    Ok(())
}
