//! Four threads on four streams allocate, use and free, while passes move what they own. Every
//! block is filled by a kernel and verified by one at its free, on any of the streams.
//!
//! TERRANE_MOVE_OPS says how many operations; a million in optimised builds. A failure prints the
//! seed: TERRANE_MOVE_SEED runs it again.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use terrane_core::compact::{Goal, Limits, Mode, Verify};
use terrane_core::device::{Device, Region, StreamId, StreamSpec, Ticket};
use terrane_core::{Allocator, Config, Error, Growth, Handle, Limit, Request};

const THREADS: u64 = 4;
/// Blocks that a thread holds at most.
const HELD: usize = 24;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

struct Stage {
    device: Arc<dyn Device>,
    alloc: Allocator,
    streams: Vec<StreamId>,
    mismatches: AtomicU64,
    verified: AtomicU64,
    refused: AtomicU64,
    over: AtomicBool,
}

impl Stage {
    fn new(device: Arc<dyn Device>, most: u64, paging: bool) -> Self {
        let mut config = Config::for_device(device.caps());
        config.paging = paging;
        config.small_max = 0;
        config.growth = Growth::Proportional { min_bytes: 1 << 20, max_bytes: 2 << 20 };
        // Little more than what the threads hold: room is short now and then.
        let bytes = THREADS * HELD as u64 * (most / 2) * 2 / 5;
        config.limits = vec![Limit::Bytes(bytes.next_multiple_of(1 << 20))];
        config.verify_moves = Verify::OneIn(7);
        let alloc = Allocator::with_config(device.clone(), config).unwrap();
        let stream = |_| device.create_stream(StreamSpec::default()).unwrap();
        let streams = (0..THREADS).map(stream).collect();
        let (mismatches, verified, refused) = Default::default();
        let over = AtomicBool::new(false);
        Self { device, alloc, streams, mismatches, verified, refused, over }
    }

    fn fill(&self, stream: StreamId, handle: Handle, seed: u64) {
        let mut submission = self.alloc.submit(stream);
        let at = submission.resolve(handle).unwrap();
        let region = Region { place: at.place, bytes: at.bytes, seed };
        let compute = self.device.compute().unwrap();
        submission.close_at(compute.fill_pattern(stream, &[region]).unwrap());
    }

    fn verify(&self, stream: StreamId, handle: Handle, seed: u64) -> Ticket {
        let mut submission = self.alloc.submit(stream);
        let at = submission.resolve(handle).unwrap();
        let region = Region { place: at.place, bytes: at.bytes, seed };
        let ticket = self.device.compute().unwrap().verify(stream, &[region]).unwrap();
        submission.close_at(ticket.point);
        ticket
    }

    fn take(&self, ticket: Ticket) {
        self.alloc.wait(ticket.point, Duration::from_secs(60)).unwrap();
        let words = self.device.compute().unwrap().take_report(ticket).unwrap()[0];
        self.mismatches.fetch_add(words, Ordering::Relaxed);
        self.verified.fetch_add(1, Ordering::Relaxed);
    }

    /// One thread's operations.
    fn work(&self, thread: u64, ops: u64, seed: u64, most: u64) {
        let own = self.streams[thread as usize];
        let mut random = Random(seed * 1000 + thread);
        let mut held: Vec<(Handle, u64)> = Vec::new();
        let mut tickets: VecDeque<Ticket> = VecDeque::new();
        for op in 0..ops {
            let pattern = thread << 40 | op;
            match random.below(10) {
                0..4 if held.len() < HELD => {
                    let bytes = 256 + random.below(most - 256);
                    match self.alloc.alloc(&Request::new(bytes, own)) {
                        Ok(got) => {
                            self.fill(own, got.handle, pattern);
                            held.push((got.handle, pattern));
                        }
                        Err(Error::OutOfMemory(_) | Error::OverUserLimit { .. }) => {
                            self.refused.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                4..6 if !held.is_empty() => {
                    // Written anew, at whatever place it is by now.
                    let at = random.below(held.len() as u64) as usize;
                    self.fill(own, held[at].0, pattern);
                    held[at].1 = pattern;
                }
                6 if !held.is_empty() => {
                    let at = random.below(held.len() as u64) as usize;
                    drop(self.alloc.pin(held[at].0).unwrap());
                }
                _ if !held.is_empty() => {
                    let at = random.below(held.len() as u64) as usize;
                    let (handle, pattern) = held.swap_remove(at);
                    let stream = self.streams[random.below(THREADS) as usize];
                    tickets.push_back(self.verify(stream, handle, pattern));
                    self.alloc.free(handle).unwrap();
                }
                _ => {}
            }
            while tickets.len() > 32 {
                self.take(tickets.pop_front().unwrap());
            }
        }
        for (handle, pattern) in held {
            tickets.push_back(self.verify(own, handle, pattern));
            self.alloc.free(handle).unwrap();
        }
        tickets.into_iter().for_each(|ticket| self.take(ticket));
    }

    /// Passes of all sorts, one after the other, until the threads are done.
    fn passes(&self, seed: u64) {
        let mut random = Random(seed ^ 0xABCD);
        while !self.over.load(Ordering::Relaxed) {
            let goal = match random.below(3) {
                0 => Goal::Contiguous { bytes: 4096 + random.below(256 << 10), align: 256 },
                1 => Goal::Release { bytes: 1 << 20 },
                _ => Goal::Fragmentation { below: random.below(50) as f64 / 100.0 },
            };
            let mode = if random.below(4) == 0 { Mode::Background } else { Mode::Full };
            let limits = Limits::NONE.moves(1 + random.below(40)).mode(mode);
            let mut pass = self.alloc.begin_pass(goal, limits).unwrap();
            for _ in 0..random.below(6) {
                if pass.poll().unwrap().done {
                    break;
                }
                std::thread::yield_now();
            }
            // Ended, or just dropped, done or not.
            if random.below(2) == 0 {
                let report = pass.end_pass().unwrap();
                assert_eq!(report.verdicts.corrupt, 0, "{report:?}");
            }
        }
    }
}

fn run(name: &str, device: Arc<dyn Device>, ops: u64, most: u64) {
    let moves = run_on(name, device, ops, most, false);
    assert!(moves * 50 > ops / 10, "too little happened");
}

/// Gives how many blocks were moved.
fn run_on(name: &str, device: Arc<dyn Device>, ops: u64, most: u64, paging: bool) -> u64 {
    let seed = number("TERRANE_MOVE_SEED", 1);
    let stage = Stage::new(device, most, paging);
    std::thread::scope(|scope| {
        let passes = scope.spawn(|| stage.passes(seed));
        let stage = &stage;
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || stage.work(thread, ops / THREADS, seed, most)))
            .collect();
        let failed = threads.into_iter().filter_map(|thread| thread.join().err()).count();
        stage.over.store(true, Ordering::Relaxed);
        let failed = failed + usize::from(passes.join().is_err());
        assert_eq!(failed, 0, "threads that panicked; TERRANE_MOVE_SEED={seed} runs it again");
    });
    stage.alloc.check().unwrap();
    let moves = stage.alloc.stats().moves;
    let verified = stage.verified.load(Ordering::Relaxed);
    println!(
        "{name}: {ops} operations, {verified} blocks verified, {} refused; {} moves of {} bytes, \
         {} committed, {} cancelled, {} dropped, {} passes",
        stage.refused.load(Ordering::Relaxed),
        moves.moves,
        moves.bytes,
        moves.committed,
        moves.cancelled,
        moves.dropped,
        moves.passes,
    );
    assert_eq!(stage.mismatches.load(Ordering::Relaxed), 0, "words; TERRANE_MOVE_SEED={seed}");
    assert_eq!(moves.corrupt, 0);
    assert!(verified * 5 > ops, "too little happened");
    assert_eq!(stage.alloc.stats().total.blocks.current, 0);
    moves.moves
}

/// A million operations, or fewer where nothing is optimised.
fn ops(optimised: u64) -> u64 {
    number("TERRANE_MOVE_OPS", if cfg!(debug_assertions) { 20_000 } else { optimised })
}

#[test]
fn blocks_keep_their_contents_on_the_cpu_while_passes_move_them() {
    let device = terrane_core::device::host::Host::new().open().unwrap();
    run("host", device, ops(1_000_000), 16 << 10);
}

/// Here requests that find no pages have blocks moved.
#[test]
fn blocks_keep_their_contents_while_pages_are_freed_of_them() {
    let device = terrane_core::device::host::Host::new().open().unwrap();
    let page = device.caps().paging.unwrap().granularity;
    let moves = run_on("host, in pages", device, ops(100_000) / 2, page * 2, true);
    assert!(moves > 20, "only {moves} moves");
}

/// On the device named by TERRANE_VULKAN, or the best. Without a driver this is skipped, in words;
/// TERRANE_REQUIRE_VULKAN=1 makes that a failure.
#[cfg(feature = "program")]
#[test]
fn blocks_keep_their_contents_on_vulkan_while_passes_move_them() {
    let name = std::env::var("TERRANE_VULKAN").unwrap_or_default();
    match terrane::open(&terrane::Choice::Vulkan(name)) {
        Ok(opened) => {
            let most = if opened.device.info().is_cpu { 16 << 10 } else { 1 << 20 };
            run(
                "vulkan",
                opened.device,
                ops(1_000_000).min(number("TERRANE_MOVE_OPS", 100_000)),
                most,
            );
        }
        Err(error) => {
            println!("skipped: {error}");
            assert!(std::env::var_os("TERRANE_REQUIRE_VULKAN").is_none(), "{error}");
        }
    }
}

/// On the CUDA device named by TERRANE_CUDA; skipped where that is not set.
#[cfg(feature = "program")]
#[test]
fn blocks_keep_their_contents_on_cuda_while_passes_move_them() {
    let Ok(name) = std::env::var("TERRANE_CUDA") else {
        println!("skipped: TERRANE_CUDA is not set");
        return;
    };
    let opened = terrane::open(&format!("cuda:{name}").parse().unwrap()).unwrap();
    run("cuda", opened.device, ops(100_000), 1 << 20);
}

/// A report of checksums is for all moves of a submission, and can be taken once: whoever sees the
/// copies done must find all of them.
#[test]
fn moves_of_one_submission_are_settled_together_whoever_sees_its_end() {
    let device = terrane::open(&terrane::Choice::Host).unwrap().device;
    let mut config = Config::for_device(device.caps());
    (config.paging, config.small_max) = (false, 0);
    config.growth = Growth::Proportional { min_bytes: 4 << 20, max_bytes: 4 << 20 };
    config.verify_moves = Verify::Always;
    let alloc = Allocator::with_config(device.clone(), config).unwrap();
    let stream = device.create_stream(StreamSpec::default()).unwrap();
    let over = AtomicBool::new(false);
    let moved = std::thread::scope(|scope| {
        let reaper = scope.spawn(|| {
            // A pass that moves nothing: each poll takes in what is done.
            let none = Limits::NONE.moves(0);
            while !over.load(Ordering::Relaxed) {
                alloc.begin_pass(Goal::Release { bytes: 0 }, none).unwrap().poll().unwrap();
            }
        });
        let mut moved = 0;
        for _ in 0..number("TERRANE_MOVE_ROUNDS", 60) {
            let get = |_| alloc.alloc(&Request::new(8 << 10, stream)).unwrap().handle;
            let all: Vec<Handle> = (0..400).map(get).collect();
            let (gone, live): (Vec<_>, Vec<_>) =
                (0_u32..).zip(all).partition(|(at, _)| at % 2 == 0);
            gone.into_iter().for_each(|(_, handle)| alloc.free(handle).unwrap());
            let goal = Goal::Fragmentation { below: 0.1 };
            moved += alloc.compact(goal, Limits::NONE).unwrap().moves;
            live.into_iter().for_each(|(_, handle)| alloc.free(handle).unwrap());
            alloc.release_cached().unwrap();
        }
        over.store(true, Ordering::Relaxed);
        reaper.join().unwrap();
        moved
    });
    assert!(moved > 1_000, "{moved} moves");
    alloc.check().unwrap();
}
