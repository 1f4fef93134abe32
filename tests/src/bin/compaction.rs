//! Measures compaction on a device and prints one JSON object: how near copies come to the
//! fastest single copy, what a pass in the background costs other work, and how long the
//! allocator's lock is held.
//!
//! `cargo run --release -p terrane-tests --bin compaction -- --device cuda`

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::{Value, json};
use terrane_core::compact::{Goal, Limits, Mode};
use terrane_core::device::{CopyOp, Device, HeapId, MemoryKind, PlainSpec, Region, StreamId};
use terrane_core::device::{StreamSpec, SyncPoint};
use terrane_core::{Allocator, Config, Error, Growth, Handle, Limit, PassReport, Request};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// What to measure on.
#[derive(Parser)]
struct Args {
    /// `best`, `host`, `vulkan[:NAME]` or `cuda[:N]`.
    #[arg(long, default_value = "best")]
    device: terrane::Choice,
    /// Blocks of the checkerboard.
    #[arg(long, default_value_t = 10_000)]
    blocks: u64,
    /// The most bytes of the heap that it takes; sizes are scaled down to fit.
    #[arg(long, default_value_t = 64 << 30)]
    heap: u64,
    /// Live blocks while the lock is watched.
    #[arg(long, default_value_t = 100_000)]
    many: u64,
}

fn main() -> Outcome<()> {
    let args = Args::parse();
    let opened = terrane::open(&args.device)?;
    let device = opened.device.clone();
    let report = json!({
        "device": format!("{}: {}", opened.choice, device.info().name),
        "driver": device.info().driver,
        "prefer_gather": device.caps().prefer_gather,
        "full": full(&device, &args)?,
        "background": background(&device, &args)?,
        "lock": lock(&device, &args)?,
    });
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}

fn wait(device: &dyn Device, point: SyncPoint) -> Outcome<()> {
    while device.reached(point.stream)? < point.value {
        device.wait_any(&[point], Duration::from_millis(100))?;
    }
    Ok(())
}

/// Bytes that the device gives for a heap of its own.
fn room(device: &dyn Device, most: u64) -> Outcome<u64> {
    let free = device.heap_use(HeapId(0))?.free;
    let room = most.min(free / 2).min(device.caps().max_plain_bytes);
    Ok(room / (2 << 20) * (2 << 20))
}

fn allocator(device: &Arc<dyn Device>, heap: u64) -> Outcome<Allocator> {
    let mut config = Config::for_device(device.caps());
    config.paging = false;
    config.small_max = 0;
    config.growth = Growth::Proportional { min_bytes: heap, max_bytes: heap };
    config.limits = vec![Limit::Bytes(heap)];
    Ok(Allocator::with_config(device.clone(), config)?)
}

/// The fastest single copy of `bytes` that any means reaches, in bytes per second.
fn fastest_copy(device: &dyn Device, bytes: u64) -> Outcome<(f64, &'static str)> {
    let class = device.caps().classes_of(MemoryKind::Device).next().ok_or("no device memory")?;
    let spec = PlainSpec { class, bytes, exportable: false, priority: 0.5, name: "copied" };
    let (from, to) = (device.create_plain(&spec)?, device.create_plain(&spec)?);
    let at = |space| terrane_core::device::Place { space, offset: 0 };
    let op = CopyOp { from: at(from.space), to: at(to.space), bytes };
    let mut best = (0.0_f64, "");
    for (means, copy_only) in [("copy", false), ("copy engine", true), ("gather", false)] {
        let stream = device.create_stream(StreamSpec { copy_only, high_priority: false })?;
        for _ in 0..5 {
            let begin = Instant::now();
            let point = match (means, device.compute()) {
                ("gather", Some(compute)) => compute.gather(stream, &[op])?,
                ("gather", None) => break,
                _ => device.copy(stream, &[op])?,
            };
            wait(device, point)?;
            let rate = bytes as f64 / begin.elapsed().as_secs_f64();
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

/// A heap in which every second block was freed. Sizes spread evenly over their logarithms, from 1
/// to 256 times the smallest.
struct Board {
    alloc: Allocator,
    stream: StreamId,
    live: Vec<(Handle, u64)>,
}

impl Board {
    fn new(device: &Arc<dyn Device>, heap: u64, blocks: u64) -> Outcome<Self> {
        let alloc = allocator(device, heap)?;
        let stream = device.create_stream(StreamSpec::default())?;
        // The mean of such sizes is 46 times the smallest.
        let smallest = (heap as f64 / blocks as f64 / 46.0).clamp(256.0, 65_536.0);
        let mut random = 1_u64;
        let mut all = Vec::new();
        while (all.len() as u64) < blocks {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let part = (random >> 11) as f64 / (1_u64 << 53) as f64;
            let bytes = (smallest * 256_f64.powf(part)) as u64;
            match alloc.alloc(&Request::new(bytes.next_multiple_of(16), stream)) {
                Ok(block) => all.push((block.handle, block.bytes)),
                Err(error) if error.is_transient() => break,
                Err(error) => return Err(error.into()),
            }
        }
        let mut live = Vec::new();
        for (at, block) in all.into_iter().enumerate() {
            if at % 2 == 0 {
                live.push(block);
            } else {
                alloc.free(block.0)?;
            }
        }
        let board = Self { alloc, stream, live };
        board.each(|compute, stream, regions| Ok(compute.fill_pattern(stream, regions)?))?;
        Ok(board)
    }

    /// Kernels over all blocks, some hundred at a time.
    fn each(
        &self,
        work: impl Fn(&dyn terrane_core::device::Compute, StreamId, &[Region]) -> Outcome<SyncPoint>,
    ) -> Outcome<()> {
        let compute = self.alloc.device().compute().ok_or("the device runs no kernels")?;
        let mut seed = 0;
        for blocks in self.live.chunks(256) {
            let mut submission = self.alloc.submit(self.stream);
            let mut regions = Vec::new();
            for (handle, bytes) in blocks {
                seed += 1;
                let place = submission.resolve(*handle)?.place;
                regions.push(Region { place, bytes: *bytes, seed });
            }
            let point = work(compute, self.stream, &regions)?;
            submission.close_at(point);
            wait(&**self.alloc.device(), point)?;
        }
        Ok(())
    }

    /// Words of all blocks that are not what was written.
    fn mismatches(&self) -> Outcome<u64> {
        let words = std::cell::Cell::new(0);
        self.each(|compute, stream, regions| {
            let ticket = compute.verify(stream, regions)?;
            wait(&**self.alloc.device(), ticket.point)?;
            words.set(words.get() + compute.take_report(ticket)?.iter().sum::<u64>());
            Ok(ticket.point)
        })?;
        Ok(words.get())
    }

    fn end(self) -> Outcome<()> {
        for (handle, _) in &self.live {
            self.alloc.free(*handle)?;
        }
        self.alloc.release_cached()?;
        Ok(self.alloc.retire_stream(self.stream)?)
    }
}

fn full(device: &Arc<dyn Device>, args: &Args) -> Outcome<Value> {
    let heap = room(&**device, args.heap)?;
    let (fastest, means) = fastest_copy(&**device, (heap / 4).min(4 << 30))?;
    let board = Board::new(device, heap, args.blocks)?;
    let goal = Goal::Fragmentation { below: 0.05 };
    let mut pass = board.alloc.begin_pass(goal, Limits::NONE)?;
    let begin = Instant::now();
    while !pass.poll()?.done {
        std::hint::spin_loop();
    }
    let seconds = begin.elapsed().as_secs_f64();
    let report = pass.end_pass()?;
    let rate = report.copied_bytes as f64 / seconds;
    let mismatches = board.mismatches()?;
    let blocks = board.live.len();
    board.end()?;
    Ok(json!({
        "heap_bytes": heap,
        "live_blocks": blocks,
        "fastest_copy_gb_per_s": fastest / 1e9,
        "fastest_copy_by": means,
        "seconds_from_first_submit_to_last_copy_done": seconds,
        "gb_per_s": rate / 1e9,
        "part_of_fastest": rate / fastest,
        "mismatched_words": mismatches,
        "pass": of_pass(&report),
    }))
}

fn of_pass(report: &PassReport) -> Value {
    json!({
        "reached": report.reached,
        "moves": report.moves,
        "bytes": report.bytes,
        "copied_bytes": report.copied_bytes,
        "submissions": report.submissions,
        "by_kernel": report.by_kernel,
        "committed": report.verdicts.committed,
        "cancelled": report.verdicts.cancelled,
        "plan_us": report.plan_ns / 1000,
        "submit_us": report.submit_ns / 1000,
        "commit_us": report.commit_ns / 1000,
        "total_us": report.total_ns / 1000,
        "fragmentation": [report.fragmentation.0, report.fragmentation.1],
        "largest_free": [report.largest_free.0, report.largest_free.1],
        "free": [report.free.0, report.free.1],
    })
}

/// A loop of kernels beside a pass in the background: kernels per second alone and meanwhile.
fn background(device: &Arc<dyn Device>, args: &Args) -> Outcome<Value> {
    let heap = room(&**device, args.heap.min(8 << 30))?;
    let mut results = Vec::new();
    // One loop works in a cache, the other in memory.
    for (name, bytes) in [("in cache", 8_u64 << 20), ("in memory", (heap / 8).min(1 << 30))] {
        let board = Board::new(device, heap, args.blocks.min(4_000))?;
        let alone = kernels(device, bytes, Duration::from_secs(2), || Ok(true))?;
        let limits = Limits::NONE.mode(Mode::Background);
        let mut pass = board.alloc.begin_pass(Goal::Fragmentation { below: 0.05 }, limits)?;
        let begin = Instant::now();
        let longest = Duration::from_secs(20);
        let beside = kernels(device, bytes, longest, || Ok(!pass.poll()?.done))?;
        let seconds = begin.elapsed().as_secs_f64();
        let report = pass.end_pass()?;
        let mismatches = board.mismatches()?;
        board.end()?;
        results.push(json!({
            "loop": name,
            "bytes_of_each_kernel": bytes,
            "kernels_per_s_alone": alone,
            "kernels_per_s_meanwhile": beside,
            "slowed_by": 1.0 - beside / alone,
            "seconds": seconds,
            "moved_gb_per_s": report.bytes as f64 / seconds / 1e9,
            "mismatched_words": mismatches,
            "pass": of_pass(&report),
        }));
    }
    Ok(Value::Array(results))
}

/// Kernels per second of a loop that keeps a few kernels ahead, while `goes_on` says so.
fn kernels(
    device: &Arc<dyn Device>,
    bytes: u64,
    longest: Duration,
    mut goes_on: impl FnMut() -> Outcome<bool>,
) -> Outcome<f64> {
    let class = device.caps().classes_of(MemoryKind::Device).next().ok_or("no device memory")?;
    let spec = PlainSpec { class, bytes, exportable: false, priority: 0.5, name: "loop" };
    let plain = device.create_plain(&spec)?;
    let stream = device.create_stream(StreamSpec::default())?;
    let compute = device.compute().ok_or("the device runs no kernels")?;
    let place = terrane_core::device::Place { space: plain.space, offset: 0 };
    let mut ahead = VecDeque::new();
    let (begin, mut done) = (Instant::now(), 0_u64);
    while begin.elapsed() < longest && goes_on()? {
        let region = Region { place, bytes, seed: done };
        ahead.push_back(compute.fill_pattern(stream, &[region])?);
        if ahead.len() > 8
            && let Some(point) = ahead.pop_front()
        {
            wait(&**device, point)?;
            done += 1;
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    for point in ahead {
        wait(&**device, point)?;
    }
    device.retire_stream(stream)?;
    device.release_plain(plain.space)?;
    Ok(done as f64 / seconds)
}

/// How long the lock is held, and what requests take, while a tenth of the heap moves.
fn lock(device: &Arc<dyn Device>, args: &Args) -> Outcome<Value> {
    let heap = (args.many * 2 * 4096).next_multiple_of(2 << 20) + (64 << 20);
    let board_alloc = allocator(device, heap)?;
    let stream = device.create_stream(StreamSpec::default())?;
    let mut live = Vec::new();
    for at in 0..args.many * 2 {
        let handle = board_alloc.alloc(&Request::new(4096, stream))?.handle;
        live.push((at, handle));
    }
    let (live, freed): (Vec<_>, Vec<_>) = live.into_iter().partition(|(at, _)| at % 2 == 0);
    freed.iter().try_for_each(|(_, handle)| board_alloc.free(*handle))?;
    let over = AtomicBool::new(false);
    let (report, times) = std::thread::scope(|scope| -> Outcome<_> {
        let user = scope.spawn(|| requests(&board_alloc, stream, &over));
        std::thread::sleep(Duration::from_millis(200));
        board_alloc.watch_lock(true);
        let limits = Limits::NONE.bytes(heap / 10);
        let report = board_alloc.compact(Goal::Fragmentation { below: 0.01 }, limits);
        let longest = board_alloc.longest_lock_ns();
        over.store(true, Ordering::Relaxed);
        let times = user.join().map_err(|_| "the thread of requests panicked")??;
        Ok((report?, (longest, times)))
    })?;
    let (longest, mut times) = times;
    times.sort_unstable();
    let at = |part: f64| times.get((times.len() as f64 * part) as usize).copied();
    let result = json!({
        "live_blocks": args.many,
        "heap_bytes": heap,
        "longest_lock_us": longest as f64 / 1e3,
        "pairs_of_alloc_and_free": times.len(),
        "p50_ns": at(0.5),
        "p999_ns": at(0.999),
        "most_ns": times.last(),
        "pass": of_pass(&report),
    });
    live.iter().try_for_each(|(_, handle)| board_alloc.free(*handle))?;
    board_alloc.release_cached()?;
    device.retire_stream(stream)?;
    Ok(result)
}

/// Nanoseconds of each pair of a request and its free.
fn requests(alloc: &Allocator, stream: StreamId, over: &AtomicBool) -> Result<Vec<u64>, Error> {
    let mut times = Vec::with_capacity(1 << 22);
    while !over.load(Ordering::Relaxed) && times.len() < 1 << 26 {
        let begin = Instant::now();
        let block = alloc.alloc(&Request::new(2048, stream))?;
        alloc.free(block.handle)?;
        times.push(begin.elapsed().as_nanos() as u64);
    }
    Ok(times)
}
