//! Moves against everything else.

use terrane_core::compact::{Goal, Limits};
use terrane_core::device::sim::{Sim, SimDevice};
use terrane_core::device::{Device, StreamId, StreamSpec};
use terrane_core::event::RecorderMode;
use terrane_core::{Allocator, Config, Error, Growth, Handle, Limit, Request};

use super::{UNIT, explore, large};

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

/// Memory that a move leaves is handed out once, behind the copy that reads it. While a pass holds
/// its room a request waits for it, and is always served.
#[test]
fn a_commit_against_a_request() {
    explore(|| {
        let rig = rig();
        let alloc = rig.alloc.clone();
        let mover = large(move || alloc.compact(GOAL, Limits::NONE).unwrap());
        let request = Request::new(UNIT, rig.stream);
        let got = rig.alloc.alloc(&request).unwrap().handle;
        mover.join().unwrap();
        let all = [rig.alloc.info(got).unwrap(), rig.alloc.info(rig.block).unwrap()];
        assert_ne!(all[0].place, all[1].place, "two blocks on one place");
        rig.alloc.check().unwrap();
        assert_eq!(rig.alloc.stats().free, UNIT);
        assert_eq!(rig.sim.violations(), []);
        // The block's old place is had only behind its move.
        all[0].place.offset == UNIT
    });
}
