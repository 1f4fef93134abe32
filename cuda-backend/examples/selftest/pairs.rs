//! What a request costs the host, beside the driver's own pool in the same run.

use std::time::Instant;

use cudarc::driver::sys;
use serde_json::json;
use terrane_core::device::{Device, StreamId};
use terrane_core::{Allocator, Config, Handle, Request};

use crate::allocator::{driver_calls, shared};
use crate::capture::{raw_of_device, with_context};
use crate::streams::driver;
use crate::support::{Failure, MIB, Outcome, Random, Setup, median};
use crate::{Check, ensure};

pub const BENCHES: &[Check] = &[("bench: alloc and free beside cudaMallocAsync", pairs)];

/// Blocks that are live while sizes are mixed.
const LIVE: usize = 256;

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

/// Nanoseconds of one free and alloc of mixed sizes among live blocks; the median of some rounds.
fn mixed<P: Pairs>(pairs: &mut P, count: u32) -> Result<f64, Failure> {
    let mut random = Random(5);
    let size = |random: &mut Random| {
        let bits = 9 + random.below(15);
        (1 << bits) + random.below(1 << bits)
    };
    let mut live =
        (0..LIVE).map(|_| pairs.get(size(&mut random))).collect::<Result<Vec<_>, _>>()?;
    let mut rounds = Vec::new();
    for round in 0..12 {
        let start = Instant::now();
        for _ in 0..count {
            let at = random.below(LIVE as u64) as usize;
            pairs.give(live[at])?;
            live[at] = pairs.get(size(&mut random))?;
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

/// What our pairs cost.
struct Cost {
    cached: f64,
    mixed: f64,
    driver_calls: u64,
}

/// Times our pairs on a stream, with memory mapped page by page or in plain segments.
fn ours(
    device: &std::sync::Arc<terrane_cuda::CudaDevice>,
    stream: StreamId,
    paging: bool,
    count: u32,
) -> Result<Cost, Failure> {
    let mut config = Config::for_device(device.caps());
    config.paging = paging;
    let alloc = Allocator::with_config(device.clone(), config)?;
    let mut ours = Ours { alloc: &alloc, stream };
    cached(&mut ours, count / 10)?;
    let before = driver_calls();
    let cached = cached(&mut ours, count)?;
    let calls = driver_calls() - before;
    let mixed = mixed(&mut ours, count)?;
    ensure!(calls == 0, "{calls} driver calls on hits");
    alloc.check()?;
    Ok(Cost { cached, mixed, driver_calls: calls })
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
        let (theirs, theirs_mixed) = {
            let mut pool = Theirs(raw);
            (cached(&mut pool, count / 10)?, mixed(&mut pool, count / 10)?)
        };
        device.wait_any(&[device.mark(other)?], crate::support::LONG)?;
        device.retire_stream(other)?;
        let paged = ours(&device, stream, true, count)?;
        let plain = ours(&device, stream, false, count)?;
        Ok(json!({
            "now_ns": each(count, || device.now_ns()),
            "is_capturing_ns": each(count, || device.is_capturing()),
            "capture_of_ns": each(count, || device.capture_of(stream)),
            "cached_pair_ns": paged.cached, "mixed_pair_ns": paged.mixed,
            "plain_cached_pair_ns": plain.cached, "plain_mixed_pair_ns": plain.mixed,
            "driver_calls_of_hits": paged.driver_calls + plain.driver_calls,
            "cudaMallocAsync_cached_pair_ns": theirs, "cudaMallocAsync_mixed_pair_ns": theirs_mixed,
            "times_faster_cached": theirs / paged.cached,
            "times_faster_mixed": theirs_mixed / paged.mixed,
        }))
    })
}
