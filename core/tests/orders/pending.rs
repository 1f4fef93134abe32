//! Freed memory: who gets it, when, and only once.

use loom::thread;
use terrane_core::device::sim::{Completion, Sim, SimDevice};
use terrane_core::device::{Device, StreamId, StreamSpec};
use terrane_core::event::RecorderMode;
use terrane_core::point::Points;
use terrane_core::{Allocator, Config, Error, Growth, Handle, Limit, Request, Wait};

use super::{UNIT, explore, large};

/// An allocator whose only segment holds two blocks, both taken.
struct Rig {
    sim: SimDevice,
    alloc: Allocator,
    /// The blocks' own stream, and two more: one whose work completes by hand.
    streams: [StreamId; 3],
    blocks: [Handle; 2],
}

fn rig() -> Rig {
    let sim = Sim::slabs().open();
    let mut config = Config::for_device(sim.caps());
    config.small_max = 0;
    config.recorder = RecorderMode::Off;
    config.growth = Growth::Proportional { min_bytes: 2 * UNIT, max_bytes: 2 * UNIT };
    config.limits = vec![Limit::Bytes(2 * UNIT)];
    let alloc = Allocator::with_config(sim.shared(), config).unwrap();
    let streams = [(); 3].map(|()| sim.create_stream(StreamSpec::default()).unwrap());
    sim.set_completion(streams[2], Completion::ByHand).unwrap();
    let blocks = [(); 2].map(|()| alloc.alloc(&Request::new(UNIT, streams[0])).unwrap().handle);
    Rig { sim, alloc, streams, blocks }
}

impl Rig {
    fn no_waits(&self) -> Request<'static> {
        Request::new(UNIT, self.streams[1]).wait(Wait::Never)
    }

    /// What holds whatever happened.
    fn check(&self) {
        self.sim.complete_all();
        self.alloc.check().unwrap();
        assert_eq!(self.sim.violations(), []);
    }
}

/// Memory that work still uses is handed out without a wait only after that work.
#[test]
fn a_completion_against_a_request_that_may_not_wait() {
    explore(|| {
        let rig = rig();
        let point = rig.sim.submit(rig.streams[2], 0).unwrap();
        rig.alloc.free_after(rig.blocks[0], &Points::one(point)).unwrap();
        let (sim, alloc) = (rig.sim.clone(), rig.alloc.clone());
        let other = large(move || {
            sim.complete(point);
            alloc.maintain().unwrap();
        });
        let got = rig.alloc.alloc(&rig.no_waits());
        let is_done = rig.sim.reached(rig.streams[2]).unwrap() >= point.value;
        match &got {
            Ok(allocation) => assert!(is_done && allocation.waits.is_empty(), "too early"),
            Err(error) => assert!(matches!(error, Error::WouldWait { .. }), "{error}"),
        }
        other.join().unwrap();
        rig.check();
        got.is_ok()
    });
}

/// A request that lets its stream wait gets the memory in every order, with the wait it needs.
#[test]
fn a_completion_against_a_request_that_waits_on_its_stream() {
    explore(|| {
        let rig = rig();
        let point = rig.sim.submit(rig.streams[2], 0).unwrap();
        rig.alloc.free_after(rig.blocks[0], &Points::one(point)).unwrap();
        let (sim, alloc) = (rig.sim.clone(), rig.alloc.clone());
        let other = large(move || {
            sim.complete(point);
            alloc.maintain().unwrap();
        });
        let got = rig.alloc.alloc(&Request::new(UNIT, rig.streams[1])).unwrap();
        let is_done = rig.sim.reached(rig.streams[2]).unwrap() >= point.value;
        assert!(is_done || got.waits == Points::one(point), "{got:?}");
        other.join().unwrap();
        rig.check();
        got.waits.is_empty()
    });
}

/// What one thread frees, another gets whole or is told that there is nothing.
#[test]
fn a_free_against_a_request() {
    explore(|| {
        let rig = rig();
        let (alloc, block) = (rig.alloc.clone(), rig.blocks[0]);
        let other = large(move || alloc.free(block).unwrap());
        let got = rig.alloc.alloc(&rig.no_waits());
        other.join().unwrap();
        // Its name may have been given to the block that took its place.
        let again = rig.alloc.free(block).unwrap_err();
        assert!(matches!(again, Error::DoubleFree | Error::StaleHandle), "{again}");
        rig.check();
        let live = 1 + u64::from(got.is_ok());
        assert_eq!(rig.alloc.stats().total.allocated.current, live * UNIT);
        got.is_ok()
    });
}

/// A block that two threads free is freed once; the other is told.
#[test]
fn a_free_against_a_free() {
    explore(|| {
        let rig = rig();
        let (alloc, block) = (rig.alloc.clone(), rig.blocks[0]);
        let other = large(move || alloc.free(block));
        let mine = rig.alloc.free(block);
        let both = [mine, other.join().unwrap()];
        assert!(both.contains(&Ok(())) && both.contains(&Err(Error::DoubleFree)), "{both:?}");
        rig.check();
        assert_eq!(rig.alloc.stats().total.allocated.current, UNIT);
        both[0].is_ok()
    });
}

/// One hole goes to one of two requests.
#[test]
fn a_request_against_a_request() {
    explore(|| {
        let rig = rig();
        rig.alloc.free(rig.blocks[0]).unwrap();
        let (alloc, request) = (rig.alloc.clone(), rig.no_waits());
        let other = large(move || alloc.alloc(&request).is_ok());
        let mine = rig.alloc.alloc(&rig.no_waits()).is_ok();
        assert_ne!(mine, other.join().unwrap(), "one hole, one block");
        rig.check();
        mine
    });
}

/// A guard keeps its block's memory from everybody until it is dropped, whatever is freed.
#[test]
fn a_hold_against_a_free_and_the_next_request() {
    explore(|| {
        let rig = rig();
        let (alloc, block, request) = (rig.alloc.clone(), rig.blocks[0], rig.no_waits());
        let place = rig.alloc.info(block).unwrap().place;
        let other = large(move || {
            alloc.free(block).unwrap();
            alloc.alloc(&request).map(|got| alloc.info(got.handle).unwrap().place)
        });
        let held = match rig.alloc.pin(block) {
            Ok(pin) => {
                assert_eq!(pin.at().place, place);
                // The other thread runs on meanwhile.
                thread::yield_now();
                let got = other.join().unwrap();
                assert!(got.is_err(), "handed out under a guard: {got:?}");
                drop(pin);
                let freed = rig.alloc.alloc(&rig.no_waits());
                assert!(freed.is_ok(), "the last guard frees: {freed:?}");
                true
            }
            Err(error) => {
                assert!(matches!(error, Error::UseAfterFree | Error::StaleHandle), "{error}");
                assert_eq!(other.join().unwrap().unwrap(), place);
                false
            }
        };
        rig.check();
        held
    });
}
