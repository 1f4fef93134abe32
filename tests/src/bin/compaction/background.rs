//! What a pass in the background costs other work: a loop of kernels beside it, one that only
//! computes and one that only writes memory, counted while copies are under way and while none are.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use terrane_core::PassReport;
use terrane_core::compact::{Goal, Limits, Mode};
use terrane_core::device::{
    DeviceError, HeapId, MemoryKind, Place, PlainSpec, Region, StreamId, StreamSpec, SyncPoint,
};

use crate::board::{Board, Plan};
use crate::full::fastest_copy;
use crate::kernel::Multiply;
use crate::steady::{AHEAD, sized};
use crate::{Args, Outcome, Shared, of_pass};

/// What the thread that polls waits between two polls.
const PAUSE: Duration = Duration::from_micros(30);
/// How long the loop is watched at a time, alone and beside copies.
const TURN: Duration = Duration::from_millis(100);
/// Passes at most, however short they are.
const PASSES: usize = 100;

type Step<'a> = &'a (dyn Fn(StreamId) -> Result<SyncPoint, DeviceError> + Sync);

pub fn measure(device: &Shared, args: &Args) -> Outcome<Value> {
    let room = args.heap.min(device.heap_use(HeapId(0))?.free / 2);
    let single = (room / 4).min(4 << 30).min(device.caps().max_plain_bytes);
    let (fastest, _) = fastest_copy(&**device, single / (2 << 20) * (2 << 20))?;
    let multiply = Multiply::new(device)?;
    let groups = sized(device, 1, 1 << 24, |stream, groups| multiply.run(stream, groups as u32))?;
    let class = device.caps().classes_of(MemoryKind::Device).next().ok_or("no device memory")?;
    let most = (room / 8).min(1 << 30).min(device.caps().max_plain_bytes) / (2 << 20) * (2 << 20);
    let spec = PlainSpec { class, bytes: most, exportable: false, priority: 0.5, name: "loop" };
    let space = device.create_plain(&spec)?.space;
    let write = |stream, bytes| {
        let region = Region { place: Place { space, offset: 0 }, bytes, seed: 1 };
        let compute = device.compute().ok_or(DeviceError::InvalidCall("no kernels"))?;
        compute.fill_pattern(stream, &[region])
    };
    // Well beyond what any cache holds, where there is room.
    let bytes = sized(device, most.min(256 << 20), most, write)?;
    let computes: Step<'_> = &|stream| multiply.run(stream, groups as u32);
    let writes: Step<'_> = &|stream| write(stream, bytes);
    let mut results = Vec::new();
    for &groups_of_copies in &args.groups {
        for (name, step) in [("computes", computes), ("writes memory", writes)] {
            let watched = watch(device, args, groups_of_copies, step)?;
            results.push(watched.told(name, groups_of_copies, fastest));
        }
    }
    device.release_plain(space)?;
    multiply.end()?;
    Ok(json!({
        "fastest_copy_gb_per_s": fastest / 1e9,
        "kernel_groups": groups,
        "kernel_bytes": bytes,
        "loops": results,
    }))
}

/// What a loop did alone and beside passes.
#[derive(Default)]
struct Watched {
    /// Kernels and seconds without copies, and while copies were under way.
    alone: (u64, f64),
    beside: (u64, f64),
    copied: u64,
    passes: Vec<PassReport>,
    mismatches: u64,
}

fn watch(device: &Shared, args: &Args, groups: u32, step: Step<'_>) -> Outcome<Watched> {
    let mut watched = Watched::default();
    let window = Duration::from_millis(args.window).as_secs_f64();
    while watched.beside.1 < window && watched.passes.len() < PASSES {
        let Args { blocks, heap, segments, rate, .. } = *args;
        let board = Board::new(device, Plan { blocks, heap, segments, groups, rate })?;
        let over = AtomicBool::new(false);
        let (ends, spans) = std::thread::scope(|scope| -> Outcome<_> {
            let running = scope.spawn(|| ends_of_kernels(device, step, &over));
            let passed = pass(&board, &mut watched);
            over.store(true, Ordering::Relaxed);
            let ends = running.join().map_err(|_| "the loop panicked")??;
            Ok((ends, passed?))
        })?;
        let within = |from: Instant, to: Instant| {
            ends.iter().filter(|end| **end >= from && **end < to).count() as u64
        };
        for Span { from, to, is_beside } in spans {
            let sum = if is_beside { &mut watched.beside } else { &mut watched.alone };
            sum.0 += within(from, to);
            sum.1 += (to - from).as_secs_f64();
        }
        watched.mismatches += board.mismatches()?;
        board.end()?;
    }
    Ok(watched)
}

/// A time that is counted.
struct Span {
    from: Instant,
    to: Instant,
    /// Whether copies were under way.
    is_beside: bool,
}

/// Lets the loop run alone and beside a pass, in turns: what the device does by itself, such as to
/// change its clock, counts for both.
fn pass(board: &Board, watched: &mut Watched) -> Outcome<Vec<Span>> {
    let limits = Limits::NONE.mode(Mode::Background);
    // Planned before anything is counted.
    let mut pass = board.alloc.begin_pass(Goal::Fragmentation { below: 0.05 }, limits)?;
    let (mut spans, mut is_over) = (Vec::new(), false);
    while !is_over {
        // What was submitted last is done by then.
        std::thread::sleep(Duration::from_millis(20));
        let from = Instant::now();
        std::thread::sleep(TURN);
        let begin = Instant::now();
        spans.push(Span { from, to: begin, is_beside: false });
        while !is_over && begin.elapsed() < TURN {
            is_over = pass.poll()?.done;
            std::thread::sleep(PAUSE);
        }
        spans.push(Span { from: begin, to: Instant::now(), is_beside: true });
    }
    let report = pass.end_pass()?;
    watched.copied += report.copied_bytes;
    watched.passes.push(report);
    Ok(spans)
}

/// Runs kernels until it is over; when each was seen to be done.
fn ends_of_kernels(
    device: &Shared,
    step: Step<'_>,
    over: &AtomicBool,
) -> Result<Vec<Instant>, DeviceError> {
    let stream = device.create_stream(StreamSpec::default())?;
    let (mut ends, mut ahead) = (Vec::with_capacity(1 << 16), VecDeque::new());
    while !over.load(Ordering::Relaxed) {
        ahead.push_back(step(stream)?);
        if ahead.len() > AHEAD
            && let Some(point) = ahead.pop_front()
        {
            while device.reached(stream)? < point.value {
                device.wait_any(&[point], Duration::from_millis(100))?;
            }
            ends.push(Instant::now());
        }
    }
    for point in ahead {
        device.wait_any(&[point], Duration::from_secs(10))?;
    }
    device.retire_stream(stream)?;
    Ok(ends)
}

impl Watched {
    fn told(&self, name: &str, groups: u32, fastest: f64) -> Value {
        let rate = |(kernels, seconds): (u64, f64)| kernels as f64 / seconds.max(1e-9);
        let (alone, beside) = (rate(self.alone), rate(self.beside));
        let copied = self.copied as f64 / self.beside.1.max(1e-9);
        json!({
            "loop": name,
            "groups_that_copy": groups,
            "kernels_per_s_alone": alone,
            "kernels_per_s_meanwhile": beside,
            "slowed_by": 1.0 - beside / alone,
            "copied_of_fastest": copied / fastest,
            "copied_gb_per_s": copied / 1e9,
            "seconds_of_copying": self.beside.1,
            "passes": self.passes.len(),
            "mismatched_words": self.mismatches,
            "first_pass": self.passes.first().map(of_pass),
        })
    }
}
