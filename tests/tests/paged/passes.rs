//! Passes over paged spaces: what was spread over pages lies in fewer of them, contents and all,
//! by copies and by remaps.

use std::sync::Arc;

use terrane_core::compact::{Goal, Limits, Verify};
use terrane_core::device::calls::CallKind;
use terrane_core::device::wrap::{Faults, Faulty, Priced};
use terrane_core::device::{Compute, Costs, Device, Line, Region, StreamId, SyncPoint};
use terrane_core::event::MoveKind;
use terrane_core::{Config, Error, Handle, PassReport};

use super::{MIB, Rig, devices, limited};

/// A device whose copies cost far more than its mappings, or the other way round.
fn priced(device: Arc<dyn Device>, copies_are_dear: bool) -> Arc<dyn Device> {
    let dear = Line { fixed_ns: 0.0, ns_per_mib: 1e7 };
    let cheap = Line { fixed_ns: 1_000.0, ns_per_mib: 0.0 };
    let (copy, map) = if copies_are_dear { (dear, cheap) } else { (cheap, dear) };
    let costs = device.caps().costs;
    let costs = Costs { copy, gather: copy, page_map: map, page_unmap: map, ..costs };
    Priced::new(device, costs)
}

/// Blocks from 4 MiB on lie where remaps are tried.
fn graded(config: &mut Config) {
    limited(400 * MIB)(config);
    config.pages.large = 4 * MIB;
}

/// Blocks of odd sizes of which every second is freed, each with its bytes and its pattern.
struct Worn {
    rig: Rig,
    stream: StreamId,
    live: Vec<(Handle, u64)>,
}

impl Worn {
    fn new(device: Arc<dyn Device>, configure: impl FnOnce(&mut Config), least: u64) -> Self {
        Self::of(20, device, configure, least)
    }

    fn of(
        blocks: u64,
        device: Arc<dyn Device>,
        configure: impl FnOnce(&mut Config),
        least: u64,
    ) -> Self {
        Self::in_rig(Rig::new(device, configure), blocks, least)
    }

    /// The same on pages of 2 MiB wherever blocks end: where pages can be as long as blocks, they
    /// would be, and nothing free would share a page with a block.
    fn on_whole_pages(device: Arc<dyn Device>, configure: impl FnOnce(&mut Config)) -> Self {
        let rig = Rig::new(device, configure);
        let stream = rig.stream();
        let pages: Vec<Handle> = (0..64).map(|_| rig.get(2 * MIB, stream)).collect();
        pages.into_iter().for_each(|handle| rig.alloc.free(handle).unwrap());
        Self::in_rig(rig, 20, 3 * MIB)
    }

    fn in_rig(rig: Rig, blocks: u64, least: u64) -> Self {
        let stream = rig.stream();
        let mut random = 11_u64;
        let mut next = |most: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % most
        };
        let sizes: Vec<u64> =
            (0..blocks).map(|_| least + next(least / 2) / 256 * 256 + 512).collect();
        let all: Vec<_> = sizes.iter().map(|&bytes| (rig.get(bytes, stream), bytes)).collect();
        let mut live = Vec::new();
        for (at, block) in all.into_iter().enumerate() {
            if at % 2 == 0 {
                live.push(block);
            } else {
                rig.alloc.free(block.0).unwrap();
            }
        }
        let worn = Self { rig, stream, live };
        worn.each(|compute, regions| compute.fill_pattern(worn.stream, regions).unwrap());
        worn
    }

    /// Runs kernels over all blocks, where the device runs any.
    fn each(&self, run: impl Fn(&dyn Compute, &[Region]) -> SyncPoint) {
        let device = self.rig.alloc.device();
        let Some(compute) = device.compute() else { return };
        let mut submission = self.rig.alloc.submit(self.stream);
        let mut regions = Vec::new();
        for (seed, (handle, bytes)) in (1..).zip(&self.live) {
            let place = submission.resolve(*handle).unwrap().place;
            regions.push(Region { place, bytes: bytes / 4 * 4, seed });
        }
        let point = run(compute, &regions);
        submission.close_at(point);
        while device.reached(point.stream).unwrap() < point.value {
            device.wait_any(&[point], std::time::Duration::from_millis(50)).unwrap();
        }
    }

    fn verify(&self, name: &str) {
        self.each(|compute, regions| {
            let ticket = compute.verify(self.stream, regions).unwrap();
            let device = self.rig.alloc.device();
            while device.reached(self.stream).unwrap() < ticket.point.value {
                device.wait_any(&[ticket.point], std::time::Duration::from_millis(50)).unwrap();
            }
            let wrong = compute.take_report(ticket).unwrap();
            assert_eq!(wrong.iter().sum::<u64>(), 0, "{name}: words differ");
            ticket.point
        });
        self.rig.alloc.check().unwrap_or_else(|broken| panic!("{name}: {broken}"));
    }

    fn compact(&self, goal: Goal) -> Result<PassReport, Error> {
        self.rig.alloc.compact(goal, Limits::NONE)
    }

    /// Frees everything; nothing may be left.
    fn end(self, name: &str) {
        for (handle, _) in &self.live {
            self.rig.alloc.free(*handle).unwrap();
        }
        self.rig.alloc.release_cached().unwrap();
        assert_eq!(self.rig.alloc.stats().reserved.current, 0, "{name}");
        self.rig.alloc.check().unwrap();
    }
}

#[test]
fn a_pass_empties_pages_which_are_then_given_back() {
    for (name, device) in devices() {
        let worn = Worn::on_whole_pages(device, limited(512 * MIB));
        let before = worn.rig.alloc.stats().reserved.current;
        let report = worn.compact(Goal::Release { bytes: u64::MAX }).unwrap();
        let after = worn.rig.alloc.stats().reserved.current;
        assert!(report.moves > 0 && report.reached, "{name}: {report:?}");
        assert!(after < before, "{name}: {before} bytes before, {after} after");
        worn.verify(name);
        // It comes to an end: where everything lies together nothing moves any more.
        let most = Goal::Release { bytes: u64::MAX };
        let again = (0..8).map(|_| worn.compact(most).unwrap().moves);
        assert_eq!(again.into_iter().min(), Some(0), "{name}");
        worn.verify(name);
        worn.end(name);
    }
}

#[test]
fn limits_of_a_pass_hold_in_paged_spaces() {
    for (name, device) in devices() {
        let worn = Worn::new(device, limited(512 * MIB), 3 * MIB);
        let limits = Limits::NONE.moves(2);
        let goal = Goal::Release { bytes: u64::MAX };
        let report = worn.rig.alloc.compact(goal, limits).unwrap();
        assert!(report.moves <= 2, "{name}: {report:?}");
        worn.verify(name);
        worn.end(name);
    }
}

#[test]
fn large_blocks_are_copied_or_remapped_by_what_costs_less() {
    for (name, device) in devices() {
        for copies_are_dear in [true, false] {
            let device = priced(device.clone(), copies_are_dear);
            let worn = Worn::new(device, graded, 5 * MIB);
            let report = worn.compact(Goal::Release { bytes: u64::MAX }).unwrap();
            let remaps = report.choices.iter().filter(|it| it.by == MoveKind::Remap).count();
            for it in &report.choices {
                let (Some(copy), Some(remap)) = (it.copy_ns, it.remap_ns) else { continue };
                assert!(it.bytes > 0 && copy > 0 && remap > 0, "{name}: {it:?}");
                assert_eq!(it.by == MoveKind::Remap, copies_are_dear, "{name}: {it:?}");
            }
            assert_eq!(report.remaps, remaps as u64, "{name}");
            println!(
                "{name}: {} moves, {} by remap, {} bytes of {} copied",
                report.moves, report.remaps, report.copied_bytes, report.bytes
            );
            if copies_are_dear && name != "vulkan" {
                assert!(remaps > 0, "{name}: {report:?}");
                assert!(report.copied_bytes < report.bytes, "{name}: {report:?}");
            }
            worn.verify(name);
            worn.end(name);
        }
    }
}

#[test]
fn where_moves_are_verified_blocks_are_copied_whole() {
    let host = terrane::open(&terrane::Choice::Host).unwrap().device;
    let configure = |config: &mut Config| {
        graded(config);
        config.verify_moves = Verify::Always;
    };
    let worn = Worn::new(priced(host, true), configure, 5 * MIB);
    let report = worn.compact(Goal::Release { bytes: u64::MAX }).unwrap();
    assert_eq!(report.remaps, 0, "{report:?}");
    worn.verify("host");
    worn.end("host");
}

#[test]
fn a_fault_at_any_call_of_a_pass_leaves_every_block_whole() {
    let kinds = [
        CallKind::Map,
        CallKind::Unmap,
        CallKind::Copy,
        CallKind::Gather,
        CallKind::WaitOnStream,
        CallKind::CreateStream,
        CallKind::WaitAny,
    ];
    let mut injected = 0;
    for kind in kinds {
        for nth in [1, 2, 3, 6] {
            let host = terrane::open(&terrane::Choice::Host).unwrap().device;
            let faulty = Faulty::new(priced(host, nth % 2 == 0), Faults::none());
            let device: Arc<dyn Device> = faulty.clone();
            let worn = Worn::of(10, device, graded, 5 * MIB);
            faulty.set_faults(Faults::none().nth(kind, nth));
            let _ = worn.compact(Goal::Release { bytes: u64::MAX });
            let hit = faulty.injected();
            faulty.set_faults(Faults::none());
            worn.verify(kind.name());
            worn.end(kind.name());
            injected += hit;
            if hit == 0 {
                break;
            }
        }
    }
    assert!(injected > 3, "{injected} faults");
}
