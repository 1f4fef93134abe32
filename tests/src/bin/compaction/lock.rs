//! How long the lock is held, and what requests and launches take, while a tenth of the heap moves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use terrane_core::compact::{Goal, Limits};
use terrane_core::device::{DeviceError, Feature, Region, StreamId, StreamSpec};
use terrane_core::{Allocator, Config, Error, Growth, Handle, Limit, Request};

use crate::{Args, Outcome, Shared, of_pass, quantile};

const BLOCK: u64 = 4096;
/// Blocks that the loop of kernels uses: few, so that its submissions are a program's usual ones.
const USED: usize = 4;

/// Measures by the clock on the wall, and again by what the holder of the lock computes: on a busy
/// machine the system takes the processor away from it now and then.
///
/// In one segment, and where the device pages also in a paged space.
pub fn measure(device: &Shared, args: &Args) -> Outcome<Value> {
    let both = |paging: bool| -> Outcome<Value> {
        Ok(json!({
            "by_wall_clock": run(device, args, paging, None)?,
            "by_cpu_time": run(device, args, paging, Some(cpu_ns))?,
        }))
    };
    let paged = device.caps().paging.is_some().then(|| both(true)).transpose()?;
    Ok(json!({ "in_a_segment": both(false)?, "in_a_paged_space": paged }))
}

/// Nanoseconds that this thread has computed for.
fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn run(device: &Shared, args: &Args, paging: bool, clock: Option<fn() -> u64>) -> Outcome<Value> {
    let heap = (args.many * 2 * BLOCK).next_multiple_of(2 << 20) + (64 << 20);
    let mut config = Config::for_device(device.caps());
    config.paging = paging;
    config.small_max = 0;
    config.growth = Growth::Proportional { min_bytes: heap, max_bytes: heap };
    config.limits = vec![Limit::Bytes(heap)];
    let alloc = Allocator::with_config(device.clone(), config)?;
    let stream = device.create_stream(StreamSpec::default())?;
    let (mut live, mut freed) = (Vec::new(), Vec::new());
    for at in 0..args.many * 2 {
        let handle = alloc.alloc(&Request::new(BLOCK, stream))?.handle;
        if at % 2 == 0 { live.push(handle) } else { freed.push(handle) }
    }
    freed.iter().try_for_each(|handle| alloc.free(*handle))?;
    let over = AtomicBool::new(false);
    let (report, longest, (requests, launches)) = std::thread::scope(|scope| -> Outcome<_> {
        let requests = scope.spawn(|| requests(&alloc, stream, &over));
        let launches = scope.spawn(|| launches(&alloc, &live[..USED.min(live.len())], &over));
        std::thread::sleep(Duration::from_millis(200));
        clock.into_iter().for_each(|clock| alloc.watch_lock_by(clock));
        alloc.watch_lock(true);
        let limits = Limits::NONE.bytes(heap / 10);
        let report = alloc.compact(Goal::Fragmentation { below: 0.01 }, limits);
        let longest = (alloc.longest_lock_ns(), alloc.longest_lock_at());
        let (holds, long) = alloc.lock_holds(15);
        // The same requests and launches without a pass: what the machine adds by itself.
        alloc.watch_lock(true);
        std::thread::sleep(Duration::from_nanos(report.as_ref().map_or(0, |it| it.total_ns)));
        let without = (alloc.longest_lock_ns(), alloc.lock_holds(15));
        over.store(true, Ordering::Relaxed);
        let requests = requests.join().map_err(|_| "the thread of requests panicked")??;
        let launches = launches.join().map_err(|_| "the thread of launches panicked")??;
        Ok((report?, (longest, holds, long, without), (requests, launches)))
    })?;
    let result = json!({
        "live_blocks": args.many,
        "heap_bytes": heap,
        "longest_lock_us": longest.0.0 as f64 / 1e3,
        "longest_lock_at": longest.0.1.map(ToString::to_string),
        "holds": longest.1,
        "holds_of_33_us_and_more": longest.2,
        "without_a_pass": {
            "longest_lock_us": longest.3.0 as f64 / 1e3,
            "holds": longest.3.1.0,
            "holds_of_33_us_and_more": longest.3.1.1,
        },
        "requests": of_times(&requests[0]),
        "frees": of_times(&requests[1]),
        "launches": of_times(&launches),
        "pass": of_pass(&report),
    });
    live.iter().try_for_each(|handle| alloc.free(*handle))?;
    alloc.release_cached()?;
    device.retire_stream(stream)?;
    Ok(result)
}

fn of_times(times: &[u64]) -> Value {
    let mut times = times.to_vec();
    times.sort_unstable();
    json!({
        "count": times.len(),
        "p50_ns": quantile(&times, 0.5),
        "p99_ns": quantile(&times, 0.99),
        "p999_ns": quantile(&times, 0.999),
        "most_ns": times.last(),
    })
}

/// Nanoseconds of each request and of each free.
fn requests(
    alloc: &Allocator,
    stream: StreamId,
    over: &AtomicBool,
) -> Result<[Vec<u64>; 2], Error> {
    let mut times = [Vec::with_capacity(1 << 22), Vec::with_capacity(1 << 22)];
    while !over.load(Ordering::Relaxed) && times[0].len() < 1 << 26 {
        let begin = Instant::now();
        let block = alloc.alloc(&Request::new(2048, stream))?;
        let between = Instant::now();
        alloc.free(block.handle)?;
        times[0].push((between - begin).as_nanos() as u64);
        times[1].push(between.elapsed().as_nanos() as u64);
    }
    Ok(times)
}

/// Nanoseconds of each launch: from the start of a submission to its close, on a stream that is
/// waited for now and then.
fn launches(alloc: &Allocator, blocks: &[Handle], over: &AtomicBool) -> Result<Vec<u64>, Error> {
    let device = &**alloc.device();
    let compute = device.compute().ok_or(DeviceError::Unsupported(Feature::Compute))?;
    let stream = device.create_stream(StreamSpec::default())?;
    let mut times = Vec::with_capacity(1 << 20);
    while !over.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let mut submission = alloc.submit(stream);
        let mut regions = Vec::with_capacity(blocks.len());
        for &handle in blocks {
            let at = submission.resolve(handle)?;
            regions.push(Region { place: at.place, bytes: at.bytes, seed: 1 });
        }
        let point = compute.fill_pattern(stream, &regions)?;
        submission.close_at(point);
        times.push(begin.elapsed().as_nanos() as u64);
        if times.len().is_multiple_of(8) {
            alloc.wait(point, Duration::from_secs(10))?;
        }
    }
    alloc.wait(device.mark(stream)?, Duration::from_secs(10))?;
    alloc.retire_stream(stream)?;
    Ok(times)
}
