//! Moves against everything else, in every order of two threads at the allocator's lock:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p terrane-core --test moves_loom`.

#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use loom::thread;
use terrane_core::compact::{Goal, Limits};
use terrane_core::device::sim::{Sim, SimDevice};
use terrane_core::device::{Device, StreamId, StreamSpec};
use terrane_core::event::RecorderMode;
use terrane_core::{Allocator, Config, Error, Growth, Handle, Limit, Request};

const UNIT: u64 = 64 << 10;
const GOAL: Goal = Goal::Contiguous { bytes: 2 * UNIT, align: 1 };

struct Rig {
    sim: SimDevice,
    alloc: Allocator,
    stream: StreamId,
    /// The block in the way: free, block, free, block.
    block: Handle,
}

fn rig() -> Rig {
    let sim = Sim::slabs().open();
    let mut config = Config::for_device(sim.caps());
    config.small_max = 0;
    config.recorder = RecorderMode::Off;
    config.growth = Growth::Proportional { min_bytes: 4 * UNIT, max_bytes: 4 * UNIT };
    config.limits = vec![Limit::Bytes(4 * UNIT)];
    let alloc = Allocator::with_config(sim.shared(), config).unwrap();
    let stream = sim.create_stream(StreamSpec::default()).unwrap();
    let get = || alloc.alloc(&Request::new(UNIT, stream)).unwrap().handle;
    let all: Vec<Handle> = (0..4).map(|_| get()).collect();
    alloc.free(all[0]).unwrap();
    alloc.free(all[2]).unwrap();
    Rig { sim, alloc, stream, block: all[1] }
}

/// Runs the test in every order; it tells each time whether the block moved, and both has to be.
fn explore(test: impl Fn() -> bool + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.max_branches = 20_000;
    let (test, seen) = (Arc::new(test), Arc::new([AtomicU64::new(0), AtomicU64::new(0)]));
    let counts = Arc::clone(&seen);
    model.check(move || {
        // The model's own thread has a stack too small for an allocator.
        let test = Arc::clone(&test);
        let moved = large(move || test()).join().unwrap();
        counts[usize::from(moved)].fetch_add(1, Ordering::Relaxed);
    });
    println!("{seen:?} orders in which the block stayed and moved");
    assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) > 0), "{seen:?}");
}

/// A thread with room for what the allocator and the model of a device put on the stack.
fn large<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    thread::Builder::new().stack_size(1 << 18).spawn(run).unwrap()
}

/// What a resolver was told stays true until it closes.
#[test]
fn a_flip_against_a_resolve() {
    explore(|| {
        let rig = rig();
        let (alloc, block) = (rig.alloc.clone(), rig.block);
        let mover = large(move || alloc.compact(GOAL, Limits::NONE).unwrap());
        let mut submission = rig.alloc.submit(rig.stream);
        let told = submission.resolve(block).unwrap().place;
        assert_eq!(rig.alloc.info(block).unwrap().place, told, "moved while it was held");
        submission.close().unwrap();
        let report = mover.join().unwrap();
        assert_eq!(report.verdicts.corrupt + report.verdicts.dropped, 0, "{report:?}");
        rig.alloc.check().unwrap();
        assert_eq!(rig.sim.violations(), []);
        rig.alloc.info(block).unwrap().place.offset != UNIT
    });
}

/// A free in the middle of a move completes, once, and no byte is lost or counted twice.
#[test]
fn a_commit_against_a_free() {
    explore(|| {
        let rig = rig();
        let (alloc, block) = (rig.alloc.clone(), rig.block);
        let mover = large(move || alloc.compact(GOAL, Limits::NONE).unwrap());
        rig.alloc.free(block).unwrap();
        mover.join().unwrap();
        assert_eq!(rig.alloc.free(block), Err(Error::DoubleFree));
        rig.alloc.check().unwrap();
        assert_eq!(rig.alloc.stats().free, 3 * UNIT);
        assert_eq!(rig.sim.violations(), []);
        rig.alloc.stats().moves.moves > 0
    });
}

/// A guard keeps its block where it is, whenever in a pass it was taken.
#[test]
fn a_hold_against_a_begin() {
    explore(|| {
        let rig = rig();
        let (alloc, block) = (rig.alloc.clone(), rig.block);
        let mover = large(move || {
            let mut pass = alloc.begin_pass(GOAL, Limits::NONE).unwrap();
            pass.submit().unwrap();
            pass.end_pass().unwrap();
        });
        let pin = rig.alloc.pin(block).unwrap();
        let place = pin.at().place;
        assert_eq!(rig.alloc.info(block).unwrap().place, place, "moved under a guard");
        drop(pin);
        mover.join().unwrap();
        rig.alloc.check().unwrap();
        assert_eq!(rig.sim.violations(), []);
        rig.alloc.info(block).unwrap().place.offset != UNIT
    });
}
