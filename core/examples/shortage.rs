//! What a request costs that is served only after blocks have moved, and how long the lock is held
//! meanwhile: `cargo run --release -p terrane-core --example shortage -- [blocks]`.
//!
//! On the model of a device that pages, blocks are allocated up to a limit and every second one is
//! freed; then one request asks for nearly all that is free, and a pass brings together what is
//! left. The model copies nothing: what is measured is the planning and the bookkeeping.

use std::sync::OnceLock;
use std::time::Instant;

use terrane_core::compact::{Goal, Limits};
use terrane_core::device::sim::Sim;
use terrane_core::device::{Device, StreamSpec};
use terrane_core::{Allocator, Config, Error, Handle, Limit, Request, Wait};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let blocks = std::env::args().nth(1).map_or(Ok(100_000), |it| it.parse::<u64>())?;
    for (least, spread) in [(4_096, 60_000), (600_000, 800_000), (40_000_000, 60_000_000)] {
        // Long blocks are as many as a large device holds.
        let blocks = blocks.min((160 << 30) / (least + spread / 2));
        run(blocks, least, spread)?;
    }
    Ok(())
}

fn run(blocks: u64, least: u64, spread: u64) -> Result<(), Box<dyn std::error::Error>> {
    let sim = Sim::cuda().capacity(200 << 30).open();
    let limit = blocks * (least + spread / 2) * 101 / 100;
    let mut config = Config::for_device(sim.caps());
    config.limits = vec![Limit::Bytes(limit)];
    let alloc = Allocator::with_config(sim.shared(), config)?;
    let stream = sim.create_stream(StreamSpec::default())?;
    let (mut random, mut all) = (7_u64, Vec::<Handle>::new());
    for _ in 0..blocks {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let bytes = least + (random >> 33) % spread;
        match alloc.alloc(&Request::new(bytes, stream).wait(Wait::Never)) {
            Ok(block) => all.push(block.handle),
            Err(Error::OverUserLimit { .. } | Error::OutOfMemory(_)) => break,
            Err(error) => return Err(error.into()),
        }
    }
    all.iter().step_by(2).try_for_each(|&handle| alloc.free(handle))?;
    println!("{} live blocks of {least} to {} bytes", all.len() / 2, least + spread);
    // The model's own clock does not go by itself.
    alloc.watch_lock_by(wall_ns);
    alloc.watch_lock(true);
    let begin = Instant::now();
    let got = alloc.alloc(&Request::new(limit * 45 / 100, stream));
    let took = begin.elapsed();
    let moved = alloc.stats().moves;
    let served = if got.is_ok() { "served" } else { "refused" };
    println!(
        "  request for 45 % of the limit: {served} after {} moves of {} bytes, {took:.2?}",
        moved.moves, moved.bytes
    );
    tell_lock(&alloc);
    alloc.watch_lock(true);
    let begin = Instant::now();
    let report = alloc.compact(Goal::Release { bytes: u64::MAX }, Limits::NONE)?;
    let took = begin.elapsed();
    println!("  pass over all of it: {} moves, {took:.2?}", report.moves);
    tell_lock(&alloc);
    Ok(())
}

fn tell_lock(alloc: &Allocator) {
    let at = alloc.longest_lock_at().map(ToString::to_string).unwrap_or_default();
    println!("    lock held for {} us at most, at {at}", alloc.longest_lock_ns() / 1_000);
}

fn wall_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}
