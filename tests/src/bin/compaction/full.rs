//! Full mode: copies of a checkerboard beside the fastest single copy, both by the device's clock.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use terrane_core::PassReport;
use terrane_core::compact::{Goal, Limits};
use terrane_core::device::{
    CopyOp, Device, DeviceError, HeapId, MemoryKind, Place, PlainSpec, StreamId, StreamSpec,
};

use crate::board::{Board, Plan};
use crate::steady::compute_for;
use crate::{Args, Outcome, Shared, of_pass, wait};

/// Bytes of the single copy, at most.
const SINGLE: u64 = 4 << 30;
/// What is waited between two looks at a pass.
const PAUSE: Duration = Duration::from_micros(20);
/// How long the device works before it is measured.
const BUSY: Duration = Duration::from_millis(1500);

/// Seconds that copies take: the device's own, where it tells.
fn seconds(device: &dyn Device, stream: StreamId, op: CopyOp, by_kernel: bool) -> Outcome<f64> {
    let begin = Instant::now();
    match device.copy_timed(stream, &[op], by_kernel) {
        Ok(ticket) => {
            wait(device, ticket.point)?;
            let [from, to] = device.take_times(ticket)?;
            return Ok((to - from) as f64 / 1e9);
        }
        Err(DeviceError::Unsupported(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let compute = device.compute().filter(|_| by_kernel);
    let point = match compute {
        Some(compute) => compute.gather(stream, &[op])?,
        None => device.copy(stream, &[op])?,
    };
    wait(device, point)?;
    Ok(begin.elapsed().as_secs_f64())
}

/// The fastest single copy that any means reaches: bytes per second and the means.
pub fn fastest_copy(device: &dyn Device, bytes: u64) -> Outcome<(f64, &'static str)> {
    let class = device.caps().classes_of(MemoryKind::Device).next().ok_or("no device memory")?;
    let spec = PlainSpec { class, bytes, exportable: false, priority: 0.5, name: "copied" };
    let (from, to) = (device.create_plain(&spec)?, device.create_plain(&spec)?);
    let at = |space| Place { space, offset: 0 };
    let op = CopyOp { from: at(from.space), to: at(to.space), bytes };
    let mut best = (0.0_f64, "");
    for (means, copy_only) in [("copy", false), ("copy engine", true), ("gather", false)] {
        let stream = device.create_stream(StreamSpec { copy_only, high_priority: false })?;
        let by_kernel = means == "gather";
        for _ in 0..8 {
            if by_kernel && !device.caps().compute {
                break;
            }
            let rate = bytes as f64 / seconds(device, stream, op, by_kernel)?;
            if rate > best.0 {
                best = (rate, means);
            }
        }
        device.retire_stream(stream)?;
    }
    device.release_plain(from.space)?;
    device.release_plain(to.space)?;
    Ok(best)
}

pub fn measure(device: &Shared, args: &Args) -> Outcome<Value> {
    let room = args.heap.min(device.heap_use(HeapId(0))?.free / 2);
    let bytes = SINGLE.min(room / 4).min(device.caps().max_plain_bytes) / (2 << 20) * (2 << 20);
    let mut fastest = fastest_copy(&**device, bytes)?;
    let mut rounds = Vec::new();
    for round in 0..args.rounds.max(1) {
        let Args { blocks, heap, segments, .. } = *args;
        let board = Board::new(device, Plan { blocks, heap, segments, groups: 0, rate: 0 })?;
        // Beside each round, since what else runs on a machine changes from one second to the next.
        let (near, _) = fastest_copy(&**device, bytes)?;
        let (pass, seconds) = compact(device, &board)?;
        let mismatches = board.mismatches()?;
        let about = json!({
            "heap_bytes": board.heap,
            "segments": board.segments,
            "live_blocks": board.live.len(),
            "largest_block": board.largest_block,
        });
        board.end()?;
        // What is made at the first use is not part of the rate.
        if round > 0 || args.rounds < 2 {
            rounds.push((pass, seconds, (mismatches, near), about));
        }
    }
    // Asked again, so that a device that was slow at first makes nothing look fast.
    let again = fastest_copy(&**device, bytes)?;
    fastest = if again.0 > fastest.0 { again } else { fastest };
    let of_round = |round: &(PassReport, f64, (u64, f64), Value)| {
        let (pass, seconds, (mismatches, near), about) = round;
        let by_device = pass.device_ns.map(|ns| ns as f64 / 1e9);
        let rate = pass.copied_bytes as f64 / by_device.unwrap_or(*seconds);
        json!({
            "board": about,
            "by_the_device's_clock": by_device.is_some(),
            "seconds_on_the_host": seconds,
            "gb_per_s": rate / 1e9,
            "part_of_fastest": rate / fastest.0,
            "fastest_copy_before_gb_per_s": near / 1e9,
            "largest_free_of_free": pass.largest_free.1 as f64 / pass.free.1.max(1) as f64,
            "mismatched_words": mismatches,
            "pass": of_pass(pass),
        })
    };
    Ok(json!({
        "single_copy_bytes": bytes,
        "fastest_copy_gb_per_s": fastest.0 / 1e9,
        "fastest_copy_by": fastest.1,
        "rounds": rounds.iter().map(of_round).collect::<Vec<_>>(),
    }))
}

/// One pass over a checkerboard, with the seconds on the host from its first submission to the end
/// of its last copy.
fn compact(device: &Shared, board: &Board) -> Outcome<(PassReport, f64)> {
    let goal = Goal::Fragmentation { below: 0.05 };
    let mut pass = board.alloc.begin_pass(goal, Limits::NONE.timed(true))?;
    // The device was idle while the board was set up and the pass planned, and its clocks went
    // down; the single copies come one after the other.
    compute_for(device, BUSY)?;
    let begin = Instant::now();
    while !pass.poll()?.done {
        // The host's own copies need the processor.
        std::thread::sleep(PAUSE);
    }
    let seconds = begin.elapsed().as_secs_f64();
    Ok((pass.end_pass()?, seconds))
}
