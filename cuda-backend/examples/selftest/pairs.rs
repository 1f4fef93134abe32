//! What a request costs the host, beside the driver's own pool in the same run.

use std::time::Instant;

use cudarc::driver::sys;
use serde_json::json;
use terrane_core::device::{Device, StreamId};
use terrane_core::{Allocator, Config, Handle, Keep, Request};

use crate::allocator::{driver_calls, shared};
use crate::capture::{raw_of_device, with_context};
use crate::streams::driver;
use crate::support::{Failure, MIB, Outcome, Random, Setup, median};
use crate::{Check, ensure};

pub const BENCHES: &[Check] = &[("bench: alloc and free beside cudaMallocAsync", pairs)];

/// Blocks that are live while sizes are mixed.
const LIVE: usize = 256;
/// Sizes that a program with usual sizes has.
const SIZES: u64 = 64;
/// Blocks that such a program frees and asks for again in a round, in another order each.
const BATCH: usize = 32;

/// Either allocator, by what its blocks are called.
trait Pairs {
    type Block: Copy;
    fn get(&mut self, bytes: u64) -> Result<Self::Block, Failure>;
    fn give(&mut self, block: Self::Block) -> Result<(), Failure>;
}

struct Ours<'a> {
    alloc: &'a Allocator,
    stream: StreamId,
}

impl Pairs for Ours<'_> {
    type Block = Handle;

    fn get(&mut self, bytes: u64) -> Result<Handle, Failure> {
        Ok(self.alloc.alloc(&Request::new(bytes, self.stream))?.handle)
    }

    fn give(&mut self, block: Handle) -> Result<(), Failure> {
        Ok(self.alloc.free(block)?)
    }
}

struct Theirs(sys::CUstream);

impl Pairs for Theirs {
    type Block = u64;

    fn get(&mut self, bytes: u64) -> Result<u64, Failure> {
        let mut address = 0;
        // SAFETY: the stream is alive; the pointer is to a local.
        let code = unsafe { sys::cuMemAllocAsync(&raw mut address, bytes as usize, self.0) };
        driver("cuMemAllocAsync", code)?;
        Ok(address)
    }

    fn give(&mut self, block: u64) -> Result<(), Failure> {
        // SAFETY: the block is live and used by nothing but its stream.
        Ok(driver("cuMemFreeAsync", unsafe { sys::cuMemFreeAsync(block, self.0) })?)
    }
}

/// Nanoseconds of one alloc and free of the same size; the median of some rounds.
fn cached<P: Pairs>(pairs: &mut P, count: u32) -> Result<f64, Failure> {
    let mut rounds = Vec::new();
    for _ in 0..9 {
        let start = Instant::now();
        for _ in 0..count {
            let block = pairs.get(MIB)?;
            pairs.give(block)?;
        }
        rounds.push(start.elapsed().as_nanos() as f64 / f64::from(count));
    }
    Ok(median(&mut rounds))
}

/// From 512 B to 16 MiB, each power of two as likely.
fn any_size(random: &mut Random) -> u64 {
    let bits = 9 + random.below(15);
    (1 << bits) + random.below(1 << bits)
}

/// Nanoseconds of one free and alloc of usual sizes: blocks are freed in one order and asked for
/// again in another, as the layers of a model are; the median of some rounds.
fn usual<P: Pairs>(pairs: &mut P, count: u32) -> Result<f64, Failure> {
    let mut random = Random(5);
    let mut live = Vec::with_capacity(LIVE);
    for _ in 0..LIVE {
        let bytes = any_size(&mut Random(1 + random.below(SIZES)));
        live.push((bytes, pairs.get(bytes)?));
    }
    let (mut batch, mut rounds) = (Vec::with_capacity(BATCH), Vec::new());
    for round in 0..12 {
        let start = Instant::now();
        for _ in 0..count / BATCH as u32 {
            let from = random.below((LIVE - BATCH) as u64) as usize;
            for (bytes, block) in live.drain(from..from + BATCH) {
                pairs.give(block)?;
                batch.push(bytes);
            }
            for at in (1..batch.len()).rev() {
                batch.swap(at, random.below(at as u64 + 1) as usize);
            }
            for bytes in batch.drain(..) {
                live.push((bytes, pairs.get(bytes)?));
            }
        }
        // The first three fill the caches.
        if round >= 3 {
            rounds.push(start.elapsed().as_nanos() as f64 / f64::from(count));
        }
    }
    live.into_iter().try_for_each(|(_, block)| pairs.give(block))?;
    Ok(median(&mut rounds))
}

/// Nanoseconds of one free and alloc among live blocks where no size comes twice; the median of
/// some rounds.
fn mixed<P: Pairs>(pairs: &mut P, count: u32) -> Result<f64, Failure> {
    let mut random = Random(5);
    let mut live =
        (0..LIVE).map(|_| pairs.get(any_size(&mut random))).collect::<Result<Vec<_>, _>>()?;
    let mut rounds = Vec::new();
    for round in 0..12 {
        let start = Instant::now();
        for _ in 0..count {
            let at = random.below(LIVE as u64) as usize;
            pairs.give(live[at])?;
            live[at] = pairs.get(any_size(&mut random))?;
        }
        // The first three fill the caches.
        if round >= 3 {
            rounds.push(start.elapsed().as_nanos() as f64 / f64::from(count));
        }
    }
    live.into_iter().try_for_each(|block| pairs.give(block))?;
    Ok(median(&mut rounds))
}

/// Has the driver's pool keep what is freed, as a program would that cares for speed.
fn keep_all(device: u32) -> Result<(), Failure> {
    let (mut pool, mut most) = (std::ptr::null_mut(), u64::MAX);
    let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: the pointers are to locals of the types that the driver wants.
    unsafe {
        let code = sys::cuDeviceGetDefaultMemPool(&raw mut pool, device.cast_signed());
        driver("cuDeviceGetDefaultMemPool", code)?;
        let code = sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut most).cast());
        Ok(driver("cuMemPoolSetAttribute", code)?)
    }
}

/// What pairs cost, in nanoseconds.
struct Cost {
    cached: f64,
    usual: f64,
    mixed: f64,
    driver_calls: u64,
}

impl Cost {
    fn of<P: Pairs>(pairs: &mut P, count: u32) -> Result<Self, Failure> {
        cached(pairs, count / 10)?;
        let before = driver_calls();
        let cached = cached(pairs, count)?;
        let driver_calls = driver_calls() - before;
        let (usual, mixed) = (usual(pairs, count)?, mixed(pairs, count)?);
        Ok(Self { cached, usual, mixed, driver_calls })
    }

    fn to_json(&self) -> serde_json::Value {
        json!({ "one_size_ns": self.cached, "usual_sizes_ns": self.usual, "never_the_same_ns": self.mixed })
    }
}

/// Times our pairs on a stream, with memory mapped page by page or in plain segments.
fn ours(
    device: &std::sync::Arc<terrane_cuda::CudaDevice>,
    stream: StreamId,
    (paging, keep): (bool, Keep),
    count: u32,
) -> Result<Cost, Failure> {
    let mut config = Config::for_device(device.caps());
    (config.paging, config.keep) = (paging, keep);
    let alloc = Allocator::with_config(device.clone(), config)?;
    let cost = Cost::of(&mut Ours { alloc: &alloc, stream }, count)?;
    let calls = cost.driver_calls;
    ensure!(calls == 0, "{calls} driver calls on hits");
    alloc.check()?;
    Ok(cost)
}

/// Nanoseconds of one call of something that every pair asks the device.
fn each<T>(count: u32, mut call: impl FnMut() -> T) -> f64 {
    let start = Instant::now();
    for _ in 0..count {
        std::hint::black_box(call());
    }
    start.elapsed().as_nanos() as f64 / f64::from(count)
}

fn pairs(setup: &Setup) -> Outcome {
    let device = shared(setup)?;
    with_context(&device, || {
        let stream = device.create_stream(Default::default())?;
        let other = device.create_stream(Default::default())?;
        let raw = raw_of_device(&device, other)?;
        keep_all(device.info().index)?;
        // The handle of a stream makes frees ask about captures; this one ends before they are
        // timed.
        let count = setup.size(200_000, 500) as u32;
        let theirs = Cost::of(&mut Theirs(raw), count)?;
        device.wait_any(&[device.mark(other)?], crate::support::LONG)?;
        device.retire_stream(other)?;
        let in_order = ours(&device, stream, (true, Keep::InOrder), count)?;
        let by_size = ours(&device, stream, (true, Keep::BySize), count)?;
        let plain = ours(&device, stream, (false, Keep::InOrder), count)?;
        let plain_by_size = ours(&device, stream, (false, Keep::BySize), count)?;
        Ok(json!({
            "now_ns": each(count, || device.now_ns()),
            "is_capturing_ns": each(count, || device.is_capturing()),
            "capture_of_ns": each(count, || device.capture_of(stream)),
            "cudaMallocAsync": theirs.to_json(),
            "paged_in_order": in_order.to_json(), "paged_by_size": by_size.to_json(),
            "plain_in_order": plain.to_json(), "plain_by_size": plain_by_size.to_json(),
            "times_faster_one_size": theirs.cached / in_order.cached,
            "times_faster_usual_sizes_by_size": theirs.usual / by_size.usual,
        }))
    })
}
