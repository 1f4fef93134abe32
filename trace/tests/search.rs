//! Many replays of one workload, dry runs before a replay, and devices paced by the recording.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;

use terrane_core::device::sim::{Sim, SimDevice};
use terrane_core::device::wrap::{Common, Paced};
use terrane_core::device::{Device, DeviceError, Feature, StreamSpec};
use terrane_core::pages::Policy as Pages;
use terrane_core::{Allocator, Config, Error, Limit};
use terrane_trace::replay::{
    Capacity, Options, Policy, Replay, ReplayError, Report, Target, find_capacity, sweep, warm,
};
use terrane_trace::{Op, Trace, TraceBuilder};

const MIB: u64 = 1 << 20;

/// Blocks of 1 to 24 MiB that come and go on two streams, at most 24 at once, all freed at the end.
/// What is freed is used until some requests later.
fn workload() -> Trace {
    let mut builder = TraceBuilder::new();
    let (mut state, mut live, mut pending) = (7_u64, Vec::new(), Vec::new());
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    let mut push = |op, now, (block, bytes, stream)| {
        builder.push(op, now, block, bytes, stream).unwrap();
    };
    for block in 0..400 {
        let now = 10 * block;
        let ended = pending.len().saturating_sub(8);
        while live.len() >= 24 || (!live.is_empty() && random(3) == 0) {
            let freed = live.swap_remove(random(live.len() as u64) as usize);
            push(Op::FreeRequested, now, freed);
            pending.push(freed);
        }
        let new = (block, (1 + random(24)) * MIB - random(1000), (block % 2) as u32);
        push(Op::Alloc, now, new);
        live.push(new);
        pending.drain(..ended).for_each(|block| push(Op::FreeCompleted, now + 5, block));
    }
    live.iter().for_each(|block| push(Op::FreeRequested, 4_000, *block));
    pending.iter().chain(&live).for_each(|block| push(Op::FreeCompleted, 4_000, *block));
    builder.finish()
}

fn options(change: impl FnOnce(&mut Options)) -> Options {
    let mut options = Options::default();
    change(&mut options);
    options
}

fn sim() -> Target {
    Target::Sim(Sim::cuda().open())
}

fn replay(trace: &Trace, target: Target, options: &Options) -> Report {
    Replay::new("test", trace, target, options).unwrap().run().unwrap()
}

#[test]
fn with_the_smallest_capacity_no_request_fails_and_with_a_thousandth_less_one_does() {
    let trace = workload();
    let mut opened = 0;
    let found = find_capacity("test", &trace, &Options::default(), &mut || {
        opened += 1;
        Ok(sim())
    });
    let found = found.unwrap();
    assert_eq!(found.replays, opened);
    let failures = |times| {
        let options = options(|o| o.capacity = Capacity::Times(times));
        replay(&trace, sim(), &options).failures
    };
    assert_eq!(failures(found.factor), 0, "{found:?}");
    assert!(failures(found.factor - 0.001) > 0, "{found:?}");
    let peak = trace.figures().peak_requested as f64;
    assert_eq!(found.capacity, (peak * found.factor).ceil() as u64);
    assert_eq!(found.report.capacity, Some(found.capacity));
    assert!(found.report.peak_reserved <= found.capacity, "{found:?}");
}

#[test]
fn no_capacity_is_found_where_the_device_is_too_small_and_a_device_that_is_missing_is_told() {
    let trace = workload();
    let small = trace.figures().peak_requested / 2;
    let mut open = || Ok(Target::Sim(Sim::cuda().capacity(small).open()));
    let found = find_capacity("test", &trace, &Options::default(), &mut open);
    assert_eq!(found, Err(ReplayError::NoCapacity));
    let none = || ReplayError::NoDevice { why: "unplugged".to_owned() };
    let found = find_capacity("test", &trace, &Options::default(), &mut || Err(none()));
    assert_eq!(found, Err(none()));
}

#[test]
fn every_knob_is_turned_by_itself_and_the_best_settings_are_marked() {
    let trace = workload();
    let mut told = Vec::new();
    let mut tell = |at, of| told.push((at, of));
    let rows = sweep("test", &trace, &Options::default(), &mut || Ok(sim()), &mut tell).unwrap();
    let all: Vec<(usize, usize)> = (0..rows.len()).map(|at| (at, rows.len())).collect();
    assert_eq!(told, all);
    let mut names: Vec<&str> = rows.iter().map(|row| row.setting.as_str()).collect();
    assert_eq!(names[0], "default");
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), rows.len(), "each setting once");
    for (name, pages) in [
        ("default", Pages::default()),
        ("grading 16", Pages { grading: 16, ..Pages::default() }),
        ("large_page 32 MiB", Pages { large_page: 32 * MIB, ..Pages::default() }),
        ("stale_max 0 (no stealing)", Pages { stale_max: 0, ..Pages::default() }),
    ] {
        let alone = options(|o| (o.pages, o.paging) = (Some(pages), Some(true)));
        let report = replay(&trace, sim(), &alone);
        let row = rows.iter().find(|row| row.setting == name).unwrap();
        let figures = (row.ratio, row.pages_created, row.pages_stolen, row.map_ms_total);
        let alone = (report.ratio, report.pages_created, report.pages_stolen, report.map_ms_total);
        assert_eq!(figures, alone, "{name}");
    }
    let is_better = |a: (f64, f64), b: (f64, f64)| a.0 <= b.0 && a.1 <= b.1 && a != b;
    for row in &rows {
        let mine = (row.ratio, row.mapping_share);
        let beaten = rows.iter().any(|other| is_better((other.ratio, other.mapping_share), mine));
        assert_eq!((row.on_frontier, row.failures), (!beaten, 0), "{row:?}");
    }
}

fn allocator(sim: &SimDevice, config: Config) -> (Allocator, Vec<terrane_core::point::StreamId>) {
    let streams = [(); 2].map(|()| sim.create_stream(StreamSpec::default()).unwrap());
    (Allocator::with_config(sim.shared(), config).unwrap(), streams.to_vec())
}

#[test]
fn a_warmed_replay_asks_the_device_for_nothing_more() {
    let trace = workload();
    let cold = replay(&trace, sim(), &Options::default());
    let warm = replay(&trace, sim(), &options(|o| o.warm = true));
    assert!(cold.memory_calls > 0 && cold.warm_rounds == 0, "{cold:?}");
    assert!(warm.memory_calls == 0 && warm.warm_rounds >= 2, "{warm:?}");
    assert_eq!((warm.failures, warm.map_ms_total), (0, 0.0));
}

#[test]
fn a_dry_run_that_is_refused_says_where_and_frees_what_it_had() {
    let (trace, sim) = (workload(), Sim::cuda().open());
    let limit = trace.figures().peak_requested / 2;
    let config = Config::for_device(sim.caps()).limit(Limit::Bytes(limit));
    let (alloc, streams) = allocator(&sim, config);
    let Err(ReplayError::Event { event, error }) = warm(&alloc, &trace, &streams) else {
        unreachable!("half of the peak is not enough");
    };
    assert!(matches!(error, Error::OverUserLimit { .. } | Error::OutOfMemory(_)), "{error:?}");
    let events = trace.events();
    assert_eq!(events[event].op, Op::Alloc);
    let held: u64 = events[..event]
        .iter()
        .map(|event| match event.op {
            Op::Alloc => event.bytes as i64,
            Op::FreeCompleted => -(event.bytes as i64),
            Op::FreeRequested => 0,
        })
        .sum::<i64>() as u64;
    assert!(held + events[event].bytes > limit * 9 / 10, "{held} bytes are no reason to refuse");
    // The request had blocks moved before it was refused: once their copies are done, what they
    // left is free.
    alloc.device().wait_any(&[], std::time::Duration::from_secs(1)).unwrap();
    let nothing = terrane_core::compact::Limits::NONE.moves(0);
    let goal = terrane_core::compact::Goal::Release { bytes: 0 };
    alloc.begin_pass(goal, nothing).unwrap().poll().unwrap();
    let stats = alloc.stats();
    assert_eq!((stats.total.requested.current, stats.active.current), (0, 0), "{stats:?}");
    assert!(stats.reserved.current > 0, "what was made stays");
    alloc.check().unwrap();
}

/// A device that shows what all have in common.
fn paced(sim: Sim, common: Common) -> Target {
    Target::Paced(Paced::new(sim.bytes(true).open().shared(), common).unwrap())
}

#[test]
fn two_devices_place_alike_with_refusals_and_waits_and_a_refusal_changes_the_hash() {
    let trace = workload();
    let run = |common, policy, capacity| {
        let [cuda, vulkan] = [Sim::cuda(), Sim::vulkan()].map(|sim| {
            let options = options(|o| {
                (o.policy, o.capacity) = (policy, capacity);
                (o.contents, o.placements) = (false, true);
                o.paging = Some(common == Common::Pages);
            });
            replay(&trace, paced(sim, common), &options)
        });
        assert_eq!(cuda.placements, vulkan.placements, "{common:?} {policy:?} {capacity:?}");
        assert_eq!((cuda.failures, cuda.waits), (vulkan.failures, vulkan.waits));
        cuda
    };
    for common in [Common::Slabs, Common::Pages] {
        let all = run(common, Policy::Completed, Capacity::Device);
        assert_eq!((all.failures, all.waits), (0, 0));
        let waiting = run(common, Policy::Wait, Capacity::Device);
        assert!(waiting.waits > 0, "{waiting:?}");
        let refused = run(common, Policy::Completed, Capacity::Times(0.6));
        assert!(refused.failures > 0, "{refused:?}");
        let hashes = [&all, &waiting, &refused].map(|report| report.placements.clone().unwrap());
        assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[1] != hashes[2]);
    }
}

#[test]
fn a_target_is_named_by_its_device_and_one_without_work_by_hand_is_not_told_when_work_ends() {
    let sim = Sim::cuda().open();
    let real: Arc<dyn Device> = sim.shared();
    let name = Target::Sim(sim).name();
    assert!(name.starts_with("sim: "), "{name}");
    assert_eq!(format!("{:?}", Target::Real(real)), name);
    let refused = Paced::new(Sim::slabs().open().shared(), Common::Pages).err();
    assert_eq!(refused, Some(DeviceError::Unsupported(Feature::Paging)));
}
