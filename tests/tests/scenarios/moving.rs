//! Moves: a checkerboard, a free in the middle of a move, and a device that is lost.

use terrane_core::compact::{Goal, Limits, Verify};
use terrane_core::device::host::Host;
use terrane_core::device::wrap::{Faults, Faulty};
use terrane_core::device::{DeviceError, Region};
use terrane_core::{Growth, Resolved};

use super::*;

/// The unit of the checkerboard, below any page.
const SMALL: u64 = 16 << 10;
const BLOCKS: usize = 64;
const QUARTER: Goal = Goal::Contiguous { bytes: 16 * SMALL, align: 1 };

fn one_segment(config: &mut Config) {
    config.paging = false;
    config.small_max = 0;
    let bytes = BLOCKS as u64 * SMALL;
    config.growth = Growth::Proportional { min_bytes: bytes, max_bytes: bytes };
    config.limits = vec![Limit::Bytes(bytes)];
}

/// 64 blocks of one unit, every second one freed, in a limit that they fill. Every block holds a
/// pattern of its own.
struct Board {
    device: std::sync::Arc<dyn Device>,
    alloc: Allocator,
    stream: StreamId,
    live: Vec<(u64, Handle)>,
}

impl Board {
    fn new(device: std::sync::Arc<dyn Device>, turn: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::for_device(device.caps());
        one_segment(&mut config);
        turn(&mut config);
        let alloc = Allocator::with_config(device.clone(), config).unwrap();
        let stream = device.create_stream(StreamSpec::default()).unwrap();
        let request = Request::new(SMALL, stream);
        let blocks: Vec<Handle> =
            (0..BLOCKS).map(|_| alloc.alloc(&request).unwrap().handle).collect();
        let board = Self { device, alloc, stream, live: (1..).zip(blocks).collect() };
        for &(seed, block) in &board.live {
            board.with(block, |at| {
                board.device.compute().unwrap().fill_pattern(stream, &[region(at, seed)]).unwrap()
            });
        }
        let (live, freed): (Vec<_>, Vec<_>) =
            board.live.iter().copied().partition(|(seed, _)| seed % 2 == 1);
        freed.iter().for_each(|(_, block)| board.alloc.free(*block).unwrap());
        Self { live, ..board }
    }

    fn with<T>(&self, block: Handle, work: impl FnOnce(Resolved) -> T) -> T {
        let mut submission = self.alloc.submit(self.stream);
        let done = work(submission.resolve(block).unwrap());
        submission.close().unwrap();
        done
    }

    fn assert_whole(&self) {
        let compute = self.device.compute().unwrap();
        for &(seed, block) in &self.live {
            let ticket =
                self.with(block, |at| compute.verify(self.stream, &[region(at, seed)]).unwrap());
            self.alloc.wait(ticket.point, Duration::from_secs(30)).unwrap();
            assert_eq!(compute.take_report(ticket).unwrap(), [0], "block {seed}");
        }
        self.alloc.check().unwrap();
    }
}

const fn region(at: Resolved, seed: u64) -> Region {
    Region { place: at.place, bytes: at.bytes, seed }
}

#[test]
fn case_13b_a_checkerboard_below_a_page_is_solved_by_moves_within_their_limits() {
    let board = Board::new(Host::new().open().unwrap(), |_| {});
    let (mut bytes, mut passes) = (0, 0);
    loop {
        // One block at a time, so that contents are looked at after each move.
        let report = board.alloc.compact(QUARTER, Limits::NONE.moves(1)).unwrap();
        assert!(report.moves <= 1 && report.bytes <= SMALL, "{report:?}");
        board.assert_whole();
        bytes += report.bytes;
        passes += 1;
        if report.reached {
            break;
        }
        assert!(report.moves == 1 && passes <= 9, "{report:?}");
    }
    assert_eq!(bytes, 8 * SMALL, "the cheapest stretch of 16 units has 8 blocks");
    let moved = board.alloc.stats().moves.bytes;
    let got = board.alloc.alloc(&Request::new(16 * SMALL, board.stream)).unwrap();
    assert_eq!(board.alloc.stats().moves.bytes, moved, "the room was there");
    board.alloc.free(got.handle).unwrap();
}

#[test]
fn case_13b_a_request_has_the_moves_made_by_itself() {
    let board = Board::new(Host::new().open().unwrap(), |_| {});
    let got = board.alloc.alloc(&Request::new(16 * SMALL, board.stream)).unwrap();
    assert_eq!(board.alloc.stats().moves.bytes, 8 * SMALL);
    board.assert_whole();
    board.alloc.free(got.handle).unwrap();
}

/// Blocks on a board of the model, each in use by work that is not done.
fn busy_board() -> (Rig, StreamId, StreamId, Vec<Handle>, Vec<SyncPoint>) {
    let rig = Rig::with(Sim::slabs().capacity(64 * U), one_segment);
    let (s0, s1) = (rig.stream(), rig.stream());
    let blocks: Vec<Handle> = (0..BLOCKS).map(|_| rig.get(SMALL, s0)).collect();
    blocks.iter().skip(1).step_by(2).for_each(|&block| rig.alloc.free(block).unwrap());
    rig.sim.complete_all();
    let live: Vec<Handle> = blocks.into_iter().step_by(2).collect();
    let points = live.iter().map(|&block| rig.work(block, s0)).collect();
    (rig, s0, s1, live, points)
}

#[test]
fn case_17_a_block_freed_by_another_thread_while_it_moves_is_dropped() {
    for copy_first in [false, true] {
        let (rig, s0, s1, live, points) = busy_board();
        let mut pass = rig.alloc.begin_pass(QUARTER, Limits::NONE).unwrap();
        let copy = pass.submit().unwrap().unwrap();
        let moves = rig.alloc.stats().moves.moves;
        assert_eq!(moves, 8);
        // Work on another stream uses the blocks at their new places; another thread frees them.
        let used = live.iter().map(|&block| rig.work(block, s1)).max().unwrap();
        std::thread::scope(|scope| {
            let (alloc, live) = (&rig.alloc, &live);
            scope.spawn(move || live.iter().for_each(|&block| alloc.free_on(block, s1).unwrap()));
        });
        let all = BLOCKS as u64 * SMALL;
        let is_handed_out = |rig: &Rig| rig.ask(all, s0, Wait::Never).is_ok();
        assert!(!is_handed_out(&rig));
        points.iter().for_each(|&point| rig.sim.complete(point));
        assert!(!is_handed_out(&rig), "handed out before the copy and the last use are done");
        let (first, second) = if copy_first { (copy, used) } else { (used, copy) };
        rig.sim.complete(first);
        if copy_first {
            assert!(!is_handed_out(&rig), "handed out before the last use is done");
        }
        rig.sim.complete(second);
        assert!(pass.poll().unwrap().done);
        let report = pass.end_pass().unwrap();
        assert_eq!((report.verdicts.dropped, report.verdicts.committed), (8, 0), "{report:?}");
        assert!(is_handed_out(&rig));
        rig.assert_sound();
    }
}

#[test]
fn case_18_a_device_lost_at_any_call_of_a_pass_leaves_everything_sound() {
    let lost = Error::Device(DeviceError::Lost);
    // Where the pass begins is not known in calls: every call from the first on is tried.
    for nth in 1..400 {
        let sim = Sim::slabs().capacity(64 * U).bytes(true).open();
        let device = Faulty::new(sim.shared(), Faults::none());
        let board = Board::new(device.clone(), |config| config.verify_moves = Verify::OneIn(2));
        device.set_faults(Faults::none().lose_at(device.calls_seen() + nth));
        let outcome = board.alloc.compact(QUARTER, Limits::NONE);
        if let Ok(report) = outcome {
            assert!(report.reached && nth > 8, "not lost at call {nth}: {report:?}");
            return;
        }
        assert_eq!(outcome, Err(lost), "lost at call {nth}");
        board.alloc.check().unwrap();
        let answer = board.alloc.write(board.stream, board.live[0].1, 0, &[0; 4]);
        assert_eq!(answer.err(), Some(lost), "lost at call {nth}");
        // What needs no device has nothing to say of it.
        let again = board.alloc.compact(QUARTER, Limits::NONE);
        assert!(matches!(again, Ok(_) | Err(Error::Device(DeviceError::Lost))), "{again:?}");
        for (_, block) in &board.live {
            board.alloc.free(*block).unwrap();
        }
        board.alloc.check().unwrap();
        // Dropping everything is clean and waits for nothing.
    }
    panic!("no pass ever ended");
}

#[test]
fn a_copy_that_differs_is_told_keeps_its_source_and_stops_all_moving() {
    let sim = Sim::slabs().capacity(64 * U).bytes(true).open();
    let board = Board::new(sim.shared(), |config| config.verify_moves = Verify::Always);
    // A first move, after which the stream of copies is known.
    let mut pass = board.alloc.begin_pass(QUARTER, Limits::NONE.moves(1)).unwrap();
    let copies = pass.submit().unwrap().unwrap().stream;
    assert_eq!(pass.end_pass().unwrap().moves, 1);
    board.assert_whole();
    sim.set_completion(copies, Completion::ByHand).unwrap();
    let before: Vec<_> = board.live.iter().map(|(_, b)| board.alloc.info(*b).unwrap()).collect();
    let mut pass = board.alloc.begin_pass(QUARTER, Limits::NONE.moves(1)).unwrap();
    let last = pass.submit().unwrap().unwrap();
    let place = |block| board.alloc.info(block).unwrap().place;
    let moved = before.iter().find(|info| place(info.handle) != info.place).unwrap();
    let (block, at) = (moved.handle, place(moved.handle));
    // The checksum of the old place, then the copy; then something strikes the new place.
    sim.complete(SyncPoint { value: last.value - 1, ..last });
    let other = sim.create_stream(StreamSpec::default()).unwrap();
    sim.complete(sim.fill(other, at, 4, 0xDEAD_BEEF).unwrap());
    sim.complete_all();
    assert!(pass.poll().unwrap().done);
    let report = pass.end_pass().unwrap();
    assert_eq!((report.verdicts.corrupt, report.corrupt.len()), (1, 1), "{report:?}");
    assert_eq!((report.corrupt[0].handle, report.corrupt[0].new), (block, at));
    let kept = report.corrupt[0].old;
    let snapshot = board.alloc.snapshot();
    let mut parts = snapshot.segments.iter().flat_map(|segment| &segment.parts);
    let source = parts.find(|part| part.offset == kept.offset).unwrap();
    assert!(source.block.is_none() && source.state != terrane_core::PartState::Free, "{source:?}");
    let again = board.alloc.compact(QUARTER, Limits::NONE);
    assert_eq!(again.err(), Some(Error::MovesStopped));
    board.alloc.check().unwrap();
    sim.complete_all();
}
