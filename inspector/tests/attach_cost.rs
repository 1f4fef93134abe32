//! What it costs a program to be looked on at, on the thread that allocates. Run with optimisation:
//! `cargo test --release -p terrane-inspector --test attach_cost -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, reason = "a benchmark")]

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use terrane_core::device::StreamSpec;
use terrane_core::device::sim::Sim;
use terrane_core::point::StreamId;
use terrane_core::{Allocator, Handle, Request};
use terrane_trace::file::{Meta, Tap};
use terrane_trace::live::{Client, Message};
use terrane_trace::recording::Follow;

/// Pairs of alloc and free in a burst; after each there is a pause that is not counted.
const BURST: u32 = 1_000;
const BURSTS: u32 = 60;
const PAUSE: Duration = Duration::from_millis(2);
const ROUNDS: usize = 15;
const LIVE: usize = 500;

/// Nanoseconds that this thread was busy: other programs on the machine do not count.
fn busy_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn spin(turns: u64) {
    for turn in 0..turns {
        black_box(turn);
    }
}

/// Turns of [`spin`] that take so many nanoseconds.
fn turns_for(ns: u64) -> u64 {
    let turns = 20_000_000;
    let begin = busy_ns();
    spin(turns);
    turns * ns / (busy_ns() - begin).max(1)
}

struct Program {
    alloc: Allocator,
    stream: StreamId,
    live: VecDeque<Handle>,
}

impl Program {
    fn new() -> Self {
        let device = Sim::cuda().open().shared();
        let alloc = Allocator::new(device.clone()).unwrap();
        let stream = device.create_stream(StreamSpec::default()).unwrap();
        let mut program = Self { alloc, stream, live: VecDeque::new() };
        (0..LIVE as u64).for_each(|number| program.request(number));
        program
    }

    fn request(&mut self, number: u64) {
        let request = Request::new(4096 + number * 7919 % 100_000, self.stream);
        self.live.push_back(self.alloc.alloc(&request).unwrap().handle);
    }

    /// Nanoseconds of a pair of alloc and free with work between pairs.
    fn pairs(&mut self, turns: u64) -> f64 {
        let mut busy = 0;
        for burst in 0..BURSTS {
            let begin = busy_ns();
            for pair in 0..BURST {
                self.request(u64::from(burst * BURST + pair));
                self.alloc.free(self.live.pop_front().unwrap()).unwrap();
                spin(turns);
            }
            busy += busy_ns() - begin;
            std::thread::sleep(PAUSE);
        }
        busy as f64 / f64::from(BURST * BURSTS)
    }
}

/// Takes in everything as the window does.
fn look_on(socket: &std::path::Path, stop: &AtomicBool, seen: &AtomicU64, lost: &AtomicU64) {
    let mut client = Client::connect(socket, Duration::from_secs(5)).unwrap();
    let mut follow = Follow::new();
    while !stop.load(Ordering::Relaxed) {
        match client.receive().unwrap() {
            Some(Message::Texts(texts)) => follow.texts(&texts),
            Some(Message::State(state)) => follow.state(&state).unwrap(),
            Some(Message::Events(events)) => follow.events(&events).unwrap(),
            Some(_) => {}
            None => return,
        }
        seen.store(follow.len() as u64, Ordering::Relaxed);
        lost.store(follow.lost(), Ordering::Relaxed);
    }
}

/// How the program is looked at while it allocates.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Off,
    Recorded,
    Attached,
}

fn round(mode: Mode, turns: u64, dir: &std::path::Path, told: &mut (u64, u64)) -> f64 {
    let mut program = Program::new();
    if mode == Mode::Off {
        return program.pairs(turns);
    }
    let tap = Tap::new(&program.alloc, Meta::default()).file(&dir.join("cost.terrane")).socket();
    let recorder = tap.start().unwrap();
    let (stop, seen, lost) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicU64::new(0)),
    );
    let socket = recorder.socket().unwrap().to_owned();
    let looker = (mode == Mode::Attached).then(|| {
        let shared = (Arc::clone(&stop), Arc::clone(&seen), Arc::clone(&lost));
        std::thread::spawn(move || look_on(&socket, &shared.0, &shared.1, &shared.2))
    });
    while mode == Mode::Attached && seen.load(Ordering::Relaxed) < LIVE as u64 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let cost = program.pairs(turns);
    stop.store(true, Ordering::Relaxed);
    drop(recorder);
    looker.into_iter().for_each(|looker| looker.join().unwrap());
    told.0 += seen.load(Ordering::Relaxed);
    told.1 += lost.load(Ordering::Relaxed);
    cost
}

#[test]
#[ignore = "a benchmark: cargo test --release -p terrane-inspector --test attach_cost -- --ignored"]
fn being_looked_on_at() {
    let dir = tempfile::tempdir().unwrap();
    for (name, turns) in [("a pair alone", 0), ("a pair and 2 us of work", turns_for(2_000))] {
        let modes = [Mode::Off, Mode::Recorded, Mode::Attached];
        let mut costs = [const { Vec::new() }; 3];
        let mut told = (0, 0);
        for _ in 0..ROUNDS {
            for (mode, costs) in modes.into_iter().zip(&mut costs) {
                costs.push(round(mode, turns, dir.path(), &mut told));
            }
        }
        let [off, recorded, attached] = costs.map(|mut costs| {
            costs.sort_by(f64::total_cmp);
            costs[costs.len() / 2]
        });
        println!(
            "{name}: off {off:.1} ns, recorded {recorded:.1} ({:+.1} %), attached {attached:.1} \
             ({:+.1} % of recorded, {:+.1} % of off); the looker saw {} events and lost {}",
            (recorded / off - 1.0) * 100.0,
            (attached / recorded - 1.0) * 100.0,
            (attached / off - 1.0) * 100.0,
            told.0,
            told.1
        );
    }
}
