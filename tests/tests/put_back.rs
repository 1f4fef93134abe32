//! A block that slides in pieces is put back when the device fails between two of them. Until that
//! is done the memory holds a mixture, so whoever uses the block next has to wait for it.
//!
//! Every copy of a pass fails in turn, and after each of the copies that were submitted all blocks
//! are read by their own stream, as far as that may run by then.

#![allow(clippy::unwrap_used, clippy::panic)]

use terrane_core::compact::{Goal, Limits};
use terrane_core::device::calls::CallKind;
use terrane_core::device::sim::{Completion, Sim, SimDevice};
use terrane_core::device::wrap::{Faults, Faulty};
use terrane_core::device::{Compute, Device, Region, StreamId, StreamSpec, SyncPoint, Ticket};
use terrane_core::{Allocator, Config, Growth, Handle, Limit, Request};

const UNIT: u64 = 64 << 10;

/// Free and live units by turns, free first; the rest of the segment is live.
const LAYOUT: [u64; 8] = [1, 3, 1, 5, 1, 2, 1, 2];

struct Board {
    sim: SimDevice,
    device: std::sync::Arc<Faulty>,
    alloc: Allocator,
    stream: StreamId,
    live: Vec<(u64, Handle)>,
}

impl Board {
    fn new() -> Self {
        let sim = Sim::vulkan().bytes(true).completion(Completion::ByHand).open();
        let device = Faulty::new(sim.shared(), Faults::none());
        let mut config = Config::for_device(device.caps());
        config.paging = false;
        config.small_max = 0;
        config.growth = Growth::Proportional { min_bytes: 16 * UNIT, max_bytes: 16 * UNIT };
        config.limits = vec![Limit::Bytes(16 * UNIT)];
        let shared: std::sync::Arc<dyn Device> = device.clone();
        let alloc = Allocator::with_config(shared, config).unwrap();
        let stream = device.create_stream(StreamSpec::default()).unwrap();
        let mut board = Self { sim, device, alloc, stream, live: Vec::new() };
        let mut gaps = Vec::new();
        for (at, units) in LAYOUT.into_iter().enumerate() {
            let handle = board.alloc.alloc(&Request::new(units * UNIT, stream)).unwrap().handle;
            if at % 2 == 0 {
                gaps.push(handle);
            } else {
                board.paint(handle, units);
                board.live.push((units, handle));
            }
        }
        gaps.into_iter().for_each(|gap| board.alloc.free(gap).unwrap());
        board.sim.complete_all();
        board
    }

    fn paint(&self, handle: Handle, seed: u64) {
        let mut submission = self.alloc.submit(self.stream);
        let at = submission.resolve(handle).unwrap();
        let region = Region { place: at.place, bytes: at.bytes, seed };
        submission.close_at(self.device.fill_pattern(self.stream, &[region]).unwrap());
    }

    fn verify(&self, (seed, handle): (u64, Handle)) -> Ticket {
        let mut submission = self.alloc.submit(self.stream);
        let at = submission.resolve(handle).unwrap();
        let region = Region { place: at.place, bytes: at.bytes, seed };
        let ticket = self.device.verify(self.stream, &[region]).unwrap();
        submission.close_at(ticket.point);
        ticket
    }

    /// The stream that copies go to and the last value submitted to it, if there is one.
    fn copies(&self) -> Option<SyncPoint> {
        let uses = self.live.iter().flat_map(|(_, handle)| {
            let uses = self.alloc.info(*handle).unwrap().uses;
            uses.iter().collect::<Vec<_>>()
        });
        uses.filter(|point| point.stream != self.stream).max_by_key(|point| point.value)
    }

    fn end(self) {
        self.sim.complete_all();
        for (_, handle) in self.live {
            self.alloc.free(handle).unwrap();
        }
        self.alloc.check().unwrap();
        assert_eq!(self.sim.violations(), []);
    }
}

/// Fails the copy number `nth` of a pass. Gives how many were submitted before all blocks are read
/// in the middle of them, after `done`; false when no copy has that number.
fn fail_and_read(nth: u64, done: u64) -> (bool, u64) {
    let board = Board::new();
    let mut seen = 0;
    board.device.set_faults(Faults::none().matching(move |ask| {
        seen += u64::from(matches!(ask.kind, CallKind::Copy | CallKind::Gather));
        let fails = seen == nth && matches!(ask.kind, CallKind::Copy | CallKind::Gather);
        fails.then_some(terrane_core::device::DeviceError::Driver { call: "copy", code: -1 })
    }));
    let goal = Goal::Contiguous { bytes: 4 * UNIT, align: 1 };
    let mut pass = board.alloc.begin_pass(goal, Limits::NONE).unwrap();
    let failed = pass.submit().is_err();
    let last = board.copies();
    // Some of the copies are done, and the blocks' own stream comes as far as it may.
    if let Some(last) = last {
        board.sim.complete(SyncPoint { value: done, ..last });
    }
    let tickets: Vec<Ticket> = board.live.iter().map(|item| board.verify(*item)).collect();
    board.sim.complete(SyncPoint { stream: board.stream, value: u64::MAX });
    board.sim.complete_all();
    for ((units, _), ticket) in board.live.iter().zip(tickets) {
        let report = board.device.take_report(ticket).unwrap();
        assert_eq!(report, [0], "block of {units} units, copy {nth} failed, {done} were done");
    }
    drop(pass);
    board.end();
    (failed, last.map_or(0, |last| last.value))
}

#[test]
fn a_block_that_is_put_back_is_used_only_when_it_is_whole() {
    let mut runs = 0;
    for nth in 1.. {
        let (failed, submitted) = fail_and_read(nth, 0);
        if !failed {
            break;
        }
        for done in 1..=submitted {
            fail_and_read(nth, done);
            runs += 1;
        }
    }
    assert!(runs > 20, "only {runs} ways to fail: the blocks did not slide in pieces");
}
