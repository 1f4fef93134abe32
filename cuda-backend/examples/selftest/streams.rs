//! Sync points, waits between streams, and streams of the program's own.

use std::time::{Duration, Instant};

use cudarc::driver::sys;
use serde_json::json;
use terrane_core::device::{CopyOp, Device, DeviceError, StreamSpec, SyncPoint};

use crate::support::{DEVICE, GIB, MIB, Outcome, Setup, at};
use crate::{Check, ensure};

pub const CHECKS: [Check; 7] = [
    ("streams: points are reached in order and not before their work", points),
    ("streams: a wait between streams orders their work", waits),
    ("streams: a foreign stream's own work is covered by a mark", foreign),
    ("streams: the legacy and the per-thread default stream can be wrapped", defaults),
    ("streams: a retired stream's points stay good", retired),
    ("streams: eight threads submit at once", threads),
    ("streams: the caller's context and capture mode come back", context),
];

fn points(setup: &Setup) -> Outcome {
    let stream =
        setup.device.create_stream(StreamSpec { high_priority: true, copy_only: false })?;
    let bytes = setup.size(4 * GIB, 64 * MIB);
    let segment = setup.plain(DEVICE, bytes)?;
    let place = at(segment.space, 0);
    let points = (0..20_u32)
        .map(|word| setup.device.fill(stream, place, bytes, word))
        .collect::<Result<Vec<_>, _>>()?;
    ensure!(points.windows(2).all(|pair| { pair[0].value } < pair[1].value), "values must grow");
    let last = points[points.len() - 1];
    let early = setup.device.wait_any(&[last], Duration::ZERO)?;
    ensure!(setup.quick || !early, "20 fills of {bytes} bytes were done at once");
    setup.wait(last)?;
    ensure!(setup.device.reached(stream)? == { last.value }, "reached is not the last value");
    for point in points {
        ensure!(setup.device.wait_any(&[point], Duration::ZERO)?, "an earlier point is behind");
    }
    let start = Instant::now();
    ensure!(!setup.device.wait_any(&[], Duration::from_millis(5))?, "nothing was reached");
    ensure!(start.elapsed() >= Duration::from_millis(5), "came back too soon");
    setup.finish(stream)?;
    setup.device.release_plain(segment.space)?;
    Ok(json!({ "still_running_when_asked": !early }))
}

fn waits(setup: &Setup) -> Outcome {
    let (one, two) = (setup.stream()?, setup.stream()?);
    let bytes = setup.size(GIB, 32 * MIB);
    let segment = setup.plain(DEVICE, bytes + 2 * MIB)?;
    let rounds = setup.size(50, 5) as u32;
    for round in 1..=rounds {
        // A long fill, then its last word copied on another stream behind a wait.
        let written = setup.device.fill(one, at(segment.space, 0), bytes, round)?;
        setup.device.wait_on_stream(two, &[written])?;
        let op =
            CopyOp { from: at(segment.space, bytes - 4), to: at(segment.space, bytes), bytes: 4 };
        let copied = setup.device.copy(two, &[op])?;
        let got = setup.contents(two, at(segment.space, bytes), 4)?;
        ensure!(got == round.to_le_bytes(), "round {round}: {got:?}");
        setup.device.wait_on_stream(one, &[copied])?;
    }
    setup.finish(one)?;
    setup.finish(two)?;
    setup.device.release_plain(segment.space)?;
    Ok(json!({ "rounds": rounds }))
}

/// Calls the driver as a program beside us would.
pub fn driver(call: &str, code: sys::CUresult) -> Result<(), String> {
    if code == sys::CUresult::CUDA_SUCCESS { Ok(()) } else { Err(format!("{call}: {code:?}")) }
}

/// A stream made as a program beside us would make it, with our context current.
pub fn foreign_stream(setup: &Setup) -> Result<sys::CUstream, String> {
    let mut stream = std::ptr::null_mut();
    let context = setup.device.raw_context() as usize as sys::CUcontext;
    // SAFETY: the context is alive as long as the device; the stream is destroyed by the caller.
    unsafe {
        driver("push", sys::cuCtxPushCurrent_v2(context))?;
        let made = driver("stream", sys::cuStreamCreate(&raw mut stream, 1));
        let mut popped = std::ptr::null_mut();
        driver("pop", sys::cuCtxPopCurrent_v2(&raw mut popped))?;
        made?;
    }
    Ok(stream)
}

fn foreign(setup: &Setup) -> Outcome {
    let raw = foreign_stream(setup)?;
    // SAFETY: the stream is alive until it is retired below.
    let stream = unsafe { setup.device.wrap_stream(raw as u64) }?;
    let other = setup.stream()?;
    ensure!(setup.device.is_foreign(stream), "it does not count as foreign");
    let bytes = setup.size(2 * GIB, 32 * MIB);
    let segment = setup.plain(DEVICE, bytes)?;
    let address = segment.address.ok_or("no address")?;
    for round in 1..=10_u32 {
        // SAFETY: the range is ours; the work is waited for below.
        let code = unsafe { sys::cuMemsetD32Async(address, round, bytes as usize / 4, raw) };
        driver("cuMemsetD32Async", code)?;
        let point = setup.device.mark(stream)?;
        setup.device.wait_on_stream(other, &[point])?;
        let got = setup.contents(other, at(segment.space, bytes - 4), 4)?;
        ensure!(got == round.to_le_bytes(), "round {round}: {got:?}");
    }
    setup.wait(setup.device.mark(stream)?)?;
    setup.device.retire_stream(stream)?;
    // SAFETY: retired, so nobody uses it any more.
    driver("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(raw) })?;
    setup.finish(other)?;
    setup.device.release_plain(segment.space)?;
    Ok(json!(null))
}

fn defaults(setup: &Setup) -> Outcome {
    let segment = setup.plain(DEVICE, 2 * MIB)?;
    let place = at(segment.space, 0);
    for raw in [0, 1, 2] {
        // SAFETY: the default streams live as long as the context.
        let stream = unsafe { setup.device.wrap_stream(raw) }?;
        let point = setup.device.fill(stream, place, MIB, raw as u32 + 7)?;
        setup.wait(point)?;
        let got = setup.contents(stream, place, 4)?;
        ensure!(got == (raw as u32 + 7).to_le_bytes(), "stream {raw}: {got:?}");
        if raw == 2 {
            let device = &setup.device;
            let (refused, reached) = std::thread::scope(|scope| {
                let asked = scope.spawn(move || {
                    let point = device.mark(stream);
                    let reached =
                        point.and_then(|point| device.wait_any(&[point], Duration::from_secs(5)));
                    (device.fill(stream, place, 64, 1), reached)
                });
                asked.join().map_err(|_| "the thread panicked")
            })?;
            ensure!(matches!(refused, Err(DeviceError::InvalidCall(_))), "{refused:?}");
            ensure!(reached == Ok(true), "asked from another thread: {reached:?}");
        }
        // 0 and 1 are one stream, wrapped anew after each retirement.
        setup.device.retire_stream(stream)?;
    }
    setup.device.release_plain(segment.space)?;
    Ok(json!(null))
}

fn retired(setup: &Setup) -> Outcome {
    let stream = setup.stream()?;
    let bytes = setup.size(4 * GIB, 32 * MIB);
    let segment = setup.plain(DEVICE, bytes)?;
    let mut point = SyncPoint { stream, value: 0 };
    for word in 0..10 {
        point = setup.device.fill(stream, at(segment.space, 0), bytes, word)?;
    }
    setup.device.retire_stream(stream)?;
    let refused = setup.device.fill(stream, at(segment.space, 0), 4, 0);
    ensure!(refused == Err(DeviceError::UnknownStream), "{refused:?}");
    setup.wait(point)?;
    ensure!(setup.device.reached(stream)? == { point.value }, "reached");
    let other = setup.stream()?;
    setup.device.wait_on_stream(other, &[point])?;
    let got = setup.contents(other, at(segment.space, bytes - 4), 4)?;
    ensure!(got == 9_u32.to_le_bytes(), "{got:?}");
    setup.finish(other)?;
    setup.device.release_plain(segment.space)?;
    Ok(json!(null))
}

fn threads(setup: &Setup) -> Outcome {
    let shared = setup.stream()?;
    let rounds = setup.size(400, 20) as u32;
    let one_thread = |thread: u32| -> Result<(), String> {
        let fail = |error: crate::support::Failure| format!("thread {thread}: {error}");
        let own = setup.stream().map_err(fail)?;
        let segment = setup.plain(DEVICE, 4 * MIB).map_err(fail)?;
        for round in 0..rounds {
            let word = thread << 16 | round;
            let inner = || -> Result<Vec<u8>, crate::support::Failure> {
                let stream = if round % 3 == 0 { shared } else { own };
                let point = setup.device.fill(stream, at(segment.space, 0), 4 * MIB, word)?;
                setup.device.wait_on_stream(own, &[point])?;
                let got = setup.contents(own, at(segment.space, 4 * MIB - 4), 4)?;
                setup.device.wait_on_stream(shared, &[setup.device.mark(own)?])?;
                Ok(got)
            };
            let got = inner().map_err(fail)?;
            if got != word.to_le_bytes() {
                return Err(format!("thread {thread}, round {round}: {got:?}"));
            }
        }
        setup.finish(own).map_err(fail)?;
        setup.device.release_plain(segment.space).map_err(|error| fail(error.into()))
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..8).map(|n| scope.spawn(move || one_thread(n))).collect();
        all.into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())))
            .collect::<Result<Vec<()>, String>>()
    })?;
    setup.finish(shared)?;
    Ok(json!({ "rounds_each": rounds }))
}

fn context(setup: &Setup) -> Outcome {
    let current = || -> Result<(usize, u32), String> {
        let mut context = std::ptr::null_mut();
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        // SAFETY: both only look at, or set and put back, this thread's state.
        unsafe {
            driver("get", sys::cuCtxGetCurrent(&raw mut context))?;
            driver("mode", sys::cuThreadExchangeStreamCaptureMode(&raw mut mode))?;
            let was = mode as u32;
            driver("mode", sys::cuThreadExchangeStreamCaptureMode(&raw mut mode))?;
            Ok((context.addr(), was))
        }
    };
    let before = current()?;
    let stream = setup.stream()?;
    let segment = setup.plain(DEVICE, 2 * MIB)?;
    let point = setup.device.fill(stream, at(segment.space, 0), MIB, 1)?;
    setup.wait(point)?;
    let refused = setup.device.fill(stream, at(segment.space, 0), 3, 1);
    ensure!(refused.is_err(), "3 bytes were filled");
    setup.finish(stream)?;
    setup.device.release_plain(segment.space)?;
    let after = current()?;
    ensure!(before == after, "{before:?} became {after:?}");
    Ok(json!({ "context_was": before.0, "capture_mode": before.1 }))
}
