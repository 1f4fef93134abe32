//! Case 8 in full: over a run of more than 500 device calls, the k-th call fails for every k: the
//! k-th of each kind with the error that is usual for it, and the k-th of all by losing the device.
//! After each, the books are right, contents are whole and nothing has leaked.
//!
//! TERRANE_FAULT_STEP tries only every so manieth k.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use terrane_core::compact::{Goal, Limits, Verify};
use terrane_core::device::calls::CallKind;
use terrane_core::device::sim::{Sim, SimDevice};
use terrane_core::device::wrap::{Faults, Faulty};
use terrane_core::device::{Compute, Device, DeviceError, Region, StreamId, StreamSpec};
use terrane_core::{
    Allocator, Config, Contents, Error, Growth, Handle, Limit, MemoryKind, Request, Selection,
    Slice,
};

/// So small that a thousand runs, each with all contents compared, take no minute.
const UNIT: u64 = 128;
const LIMIT: u64 = 3072 * UNIT;
/// In units: of both sides of a page, so that pages are stolen and joined.
const SIZES: [u64; 12] = [192, 24, 320, 8, 160, 136, 40, 256, 16, 384, 72, 144];
const TIME: Duration = Duration::from_secs(30);

/// A device of small pages and small segments, so that a short run makes many calls.
fn model(paging: bool) -> Sim {
    let sim = if paging { Sim::cuda() } else { Sim::vulkan() };
    sim.granularity(64 * UNIT).bytes(true).caps(|caps| caps.max_plain_bytes = 1024 * UNIT)
}

/// A live block with the pattern that it holds, if that is known.
struct Item {
    handle: Handle,
    seed: Option<u64>,
}

struct Run {
    device: Arc<Faulty>,
    alloc: Allocator,
    streams: [StreamId; 2],
    live: Vec<Item>,
    errors: Vec<Error>,
    /// Whether a block's words were found to differ.
    spoilt: u64,
}

impl Run {
    fn new(sim: &SimDevice, paging: bool) -> Self {
        let device = Faulty::new(sim.shared(), Faults::none());
        let mut config = Config::for_device(device.caps());
        config.limits = vec![Limit::Bytes(LIMIT)];
        config.growth = Growth::Proportional { min_bytes: 256 * UNIT, max_bytes: 512 * UNIT };
        config.paging = paging;
        config.small_max = 0;
        config.verify_moves = Verify::OneIn(3);
        config.pages.stale_max = 8;
        let shared: Arc<dyn Device> = device.clone();
        let alloc = Allocator::with_config(shared, config).unwrap();
        let streams = [(); 2].map(|()| device.create_stream(StreamSpec::default()).unwrap());
        Self { device, alloc, streams, live: Vec::new(), errors: Vec::new(), spoilt: 0 }
    }

    fn note<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        result.map_err(|error| self.errors.push(error)).ok()
    }

    /// Fills a block on its stream; tells whether it holds the pattern.
    fn paint(&mut self, stream: StreamId, handle: Handle, seed: u64) -> bool {
        let mut submission = self.alloc.submit(stream);
        let at = match submission.resolve(handle) {
            Ok(at) => at,
            Err(error) => {
                self.errors.push(error);
                return false;
            }
        };
        let region = Region { place: at.place, bytes: at.bytes, seed };
        match self.device.fill_pattern(stream, &[region]) {
            Ok(point) => submission.close_at(point),
            Err(error) => {
                self.errors.push(error.into());
                return false;
            }
        }
        true
    }

    /// Compares a block with its pattern, if the device lets us.
    fn verify(&mut self, at: usize) {
        let Item { handle, seed: Some(seed) } = self.live[at] else { return };
        let mut submission = self.alloc.submit(self.streams[0]);
        let outcome = submission.resolve(handle).and_then(|at| {
            let region = Region { place: at.place, bytes: at.bytes, seed };
            Ok(self.device.verify(self.streams[0], &[region])?)
        });
        let Some(ticket) = self.note(outcome) else { return };
        submission.close_at(ticket.point);
        let waited = self.alloc.wait(ticket.point, TIME);
        if self.note(waited).is_none() {
            return;
        }
        let report = self.device.take_report(ticket).map_err(Error::from);
        self.spoilt += self.note(report).map_or(0, |words| words[0]);
    }

    /// Blocks come and go, are moved, paused, read and written.
    fn script(&mut self) {
        for round in 0..60_usize {
            let stream = self.streams[round % 2];
            let bytes = SIZES[round % SIZES.len()] * UNIT + (round as u64 % 5) * 64;
            let kind = if round % 9 == 8 { MemoryKind::Upload } else { MemoryKind::Device };
            let got = self.alloc.alloc(&Request::new(bytes, stream).kind(kind));
            if let Some(got) = self.note(got) {
                let seed = round as u64 + 1;
                let painted = self.paint(stream, got.handle, seed);
                self.live.push(Item { handle: got.handle, seed: painted.then_some(seed) });
            }
            self.now_and_then(round);
            if self.live.len() > 7 {
                let at = (round * 5) % self.live.len();
                self.verify(at);
                let item = self.live.swap_remove(at);
                self.alloc.free(item.handle).unwrap();
            }
            self.alloc.check().unwrap_or_else(|broken| panic!("round {round}: {broken}"));
        }
    }

    fn now_and_then(&mut self, round: usize) {
        let Some(last) = self.live.last() else { return };
        let (handle, own) = (last.handle, self.streams[round % 2]);
        match round % 6 {
            1 => {
                let goal = Goal::Contiguous { bytes: 400 * UNIT, align: 1 };
                let outcome = self.alloc.compact(goal, Limits::NONE.moves(6));
                self.note(outcome);
            }
            2 => {
                let written = self.alloc.write(own, handle, 0, &[7; 64]);
                self.note(written);
                let read = self.alloc.read(own, Slice::read(handle).part(0, 64));
                if let Some(ticket) = self.note(read) {
                    let taken = self.alloc.wait(ticket.point, TIME);
                    let taken = taken.and_then(|()| self.alloc.take_read(ticket));
                    self.note(taken);
                }
                let seed = round as u64 + 100;
                let painted = self.paint(own, handle, seed);
                self.live.last_mut().unwrap().seed = painted.then_some(seed);
            }
            3 if round % 4 == 3 => {
                let what = Selection::Kind(MemoryKind::Device);
                let paused = self.alloc.pause(what, Contents::Keep, TIME);
                self.note(paused);
                let resumed = self.alloc.resume(what);
                self.note(resumed);
            }
            4 => {
                let outcome = self.alloc.trim(512 * UNIT);
                self.note(outcome);
                let zeroed = self.alloc.buffer(&Request::new(4 * UNIT, own).zeroed(true));
                self.note(zeroed);
            }
            5 => {
                let more = self.alloc.info(handle).unwrap().requested + 16 * UNIT;
                if self.alloc.grow(handle, more).is_ok() {
                    self.live.last_mut().unwrap().seed = None;
                }
            }
            _ => {}
        }
    }

    /// With the faults gone: everything is back, whole, and the same run succeeds.
    fn end(mut self, sim: &SimDevice, what: &str, may_leak: bool) -> Vec<Error> {
        self.device.set_faults(Faults::none());
        let errors = std::mem::take(&mut self.errors);
        let resumed = self.alloc.resume(Selection::Kind(MemoryKind::Device));
        self.note(resumed);
        (0..self.live.len()).for_each(|at| self.verify(at));
        assert_eq!(self.errors, [], "{what}: after the fault was gone");
        assert_eq!(self.spoilt, 0, "{what}: words of live blocks differ");
        for item in std::mem::take(&mut self.live) {
            self.alloc.free(item.handle).unwrap();
        }
        self.alloc.release_cached().unwrap();
        self.alloc.check().unwrap();
        let stats = self.alloc.stats();
        assert_eq!((stats.total.blocks.current, stats.reserved.current), (0, 0), "{what}");
        assert_eq!(self.alloc.close(), Ok(()), "{what}");
        if !may_leak {
            assert_eq!(sim.memory_objects(), 0, "{what}: memory objects in the end");
        }
        errors
    }
}

/// Runs the script with faults; gives the errors, how many were ours, and the calls.
fn run(paging: bool, faults: Faults, what: &str, may_leak: bool) -> (Vec<Error>, u64, u64) {
    let sim = model(paging).open();
    let mut run = Run::new(&sim, paging);
    let before = run.device.calls_seen();
    run.device.set_faults(faults);
    run.script();
    let (injected, calls) = (run.device.injected(), run.device.calls_seen() - before);
    let errors = run.end(&sim, what, may_leak);
    assert_eq!(sim.violations(), [], "{what}");
    (errors, injected, calls)
}

fn step() -> usize {
    let text = std::env::var("TERRANE_FAULT_STEP").ok();
    text.and_then(|text| text.parse().ok()).filter(|step| *step > 0).unwrap_or(1)
}

/// Gives how often calls failed.
fn fail_each(paging: bool) -> u64 {
    let (errors, _, calls) = run(paging, Faults::none(), "without a fault", false);
    assert_eq!(errors.iter().filter(|error| matches!(error, Error::Device(_))).count(), 0);
    assert!(calls >= 500, "only {calls} calls");
    let mut failed = 0;
    for &kind in CallKind::ALL {
        for nth in (1..).step_by(step()) {
            let what = format!("{} {nth}", kind.name());
            let (errors, injected, _) =
                run(paging, Faults::none().nth(kind, nth), &what, kind.gives_back());
            if injected == 0 {
                break;
            }
            failed += injected;
            for error in errors {
                assert!(!error.to_string().is_empty(), "{what}: {error:?}");
            }
        }
    }
    println!("{calls} calls in a run, {failed} made to fail, each in a run of its own");
    failed
}

#[test]
fn case_08_every_call_of_a_run_with_pages_fails_once() {
    assert!(fail_each(true) >= 500 / step() as u64);
}

#[test]
fn case_08_every_call_of_a_run_with_slabs_fails_once() {
    assert!(fail_each(false) >= 500 / step() as u64);
}

#[test]
fn case_08_the_device_is_lost_at_every_call_of_a_run() {
    for paging in [true, false] {
        let (_, _, calls) = run(paging, Faults::none(), "without a fault", false);
        for nth in (1..=calls).step_by(step()) {
            let sim = model(paging).open();
            let mut run = Run::new(&sim, paging);
            let at = run.device.calls_seen() + nth;
            run.device.set_faults(Faults::none().lose_at(at));
            run.script();
            let lost = |error: &Error| *error == Error::Device(DeviceError::Lost);
            assert!(run.errors.iter().any(lost) || nth + 40 > calls, "{nth}: no loss was told");
            assert_eq!(run.spoilt, 0, "{nth}");
            for item in std::mem::take(&mut run.live) {
                run.alloc.free(item.handle).unwrap();
            }
            run.alloc.check().unwrap();
            // Waits for nothing, and names no block as leaked.
            assert_eq!(run.alloc.close(), Ok(()), "lost at call {nth}");
        }
    }
}

/// Out of memory at every allocation: each request of the device for memory is refused, first once
/// and then for good.
#[test]
fn every_request_for_memory_is_refused_for_good() {
    for paging in [true, false] {
        for nth in 1.. {
            let mut seen = 0;
            let refuse = move |ask: &terrane_core::device::wrap::Ask| {
                seen += u64::from(ask.kind.gets());
                let bytes = ask.bytes;
                (ask.kind.gets() && seen >= nth).then_some(DeviceError::OutOfMemory { bytes })
            };
            let what = format!("no memory from call {nth} on");
            let (errors, injected, _) = run(paging, Faults::none().matching(refuse), &what, false);
            if injected == 0 {
                assert!(nth > 5, "the run asks the device for memory {nth} times");
                break;
            }
            // What could not be resumed stays paused for a while.
            let others = errors.into_iter().filter(|error| *error != Error::Paused);
            for error in others {
                let shortage = matches!(error, Error::OutOfMemory(_) | Error::OverUserLimit { .. });
                let told = shortage || matches!(error, Error::Device(error) if error.is_shortage());
                assert!(told, "{what}: {error}");
            }
        }
    }
}
