//! Placements are the allocator's alone: shown the same capabilities and told of completed work in
//! the same order, it places every block of a trace alike on every device.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;

use terrane::Choice;
use terrane_core::device::Device;
use terrane_core::device::sim::Sim;
use terrane_core::device::wrap::{Common, Paced};
use terrane_trace::replay::{Options, Policy, Replay, ReplayError, Report, Target};
use terrane_trace::{Limits, Trace, open_csv};

/// Peaks are scaled to this, which leaves room for both policies on the smallest device.
const PEAK_BYTES: u64 = 512 << 20;
/// Events between two comparisons: what a failure is narrowed down to.
const STEP: usize = 256;
/// Events of each trace that are compared.
const MOST_EVENTS: usize = 10_000;

fn trace(name: &str) -> Trace {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/traces");
    open_csv(&data.join(format!("{name}.native.csv.gz")), Limits::default()).unwrap()
}

/// The devices of this machine and the models, each as different from the next as they come.
fn devices() -> Vec<(&'static str, Arc<dyn Device>)> {
    let host = terrane::open(&Choice::Host).unwrap().device;
    let mut all = vec![
        ("sim:cuda", Sim::cuda().open().shared()),
        ("sim:vulkan", Sim::vulkan().open().shared()),
        ("host", host),
    ];
    match terrane::open(&Choice::Vulkan(String::new())) {
        Ok(opened) => all.push(("vulkan", opened.device)),
        Err(error) if std::env::var_os("TERRANE_REQUIRE_VULKAN").is_some() => panic!("{error}"),
        Err(error) => println!("skipped: vulkan: {error}"),
    }
    all
}

fn options(trace: &Trace, common: Common, policy: Policy) -> Options {
    let mut options = Options::default();
    let scale = trace.figures().peak_requested.div_ceil(PEAK_BYTES);
    options.scale = NonZeroU64::new(scale).unwrap();
    (options.policy, options.paging) = (policy, Some(common == Common::Pages));
    (options.contents, options.placements) = (false, true);
    options
}

/// Replays on all targets side by side and compares as it goes.
fn compare(trace: &Trace, targets: Vec<(&str, Target)>, options: &Options) -> Vec<Report> {
    let new = |target| Replay::new("test", trace, target, options).unwrap();
    let (names, targets): (Vec<&str>, Vec<Target>) = targets.into_iter().unzip();
    let mut replays: Vec<Replay<'_>> = targets.into_iter().map(new).collect();
    loop {
        let from = replays[0].position();
        let steps: Vec<usize> =
            replays.iter_mut().map(|replay| replay.step(STEP).unwrap()).collect();
        let hashes: Vec<Option<u64>> = replays.iter().map(Replay::placements).collect();
        for (at, name) in names.iter().enumerate() {
            let told = format!("events {from} to {}: {name}, {}", from + STEP, names[0]);
            assert_eq!((steps[at], hashes[at]), (steps[0], hashes[0]), "{told}");
            assert!(hashes[at].is_some());
        }
        if steps[0] == 0 || from >= MOST_EVENTS {
            break;
        }
    }
    replays.into_iter().map(|replay| replay.finish().unwrap()).collect()
}

/// All devices, shown alike.
fn alike(name: &str, common: Common, policy: Policy) {
    let trace = trace(name);
    let options = options(&trace, common, policy);
    let mut targets = Vec::new();
    for (device_name, device) in devices() {
        match Paced::new(device, common) {
            Ok(paced) => targets.push((device_name, Target::Paced(paced))),
            // A Vulkan driver without sparse binding, such as the older of the two.
            Err(error) if device_name == "vulkan" => println!("skipped: vulkan: {error}"),
            Err(error) => panic!("{device_name}: {error}"),
        }
    }
    let count = targets.len();
    let reports = compare(&trace, targets, &options);
    let first = &reports[0];
    println!("{name}, {common:?}, {policy:?}: {:?} on {count} devices", first.placements);
    assert_eq!(first.failures, 0, "{first:?}");
    let made = |report: &Report| {
        let Report { peak_active, peak_reserved, memory_objects, .. } = *report;
        let Report { pages_created, pages_stolen, waits, failures, .. } = *report;
        let held = (peak_active, peak_reserved, memory_objects);
        (report.placements.clone(), held, pages_created, pages_stolen, waits, failures)
    };
    for report in &reports {
        assert_eq!(made(report), made(first), "{} and {}", report.device, first.device);
    }
    assert_eq!(first.waits > 0, policy == Policy::Wait, "{first:?}");
    assert_eq!(first.pages_created > 0, common == Common::Pages, "{first:?}");
}

#[test]
fn plain_segments_are_placed_alike_on_every_device() {
    for name in ["multistream", "resnet50_amp", "bert_large_ckpt", "gpt2_varlen"] {
        alike(name, Common::Slabs, Policy::Completed);
    }
}

#[test]
fn pages_are_placed_alike_on_every_device() {
    for name in ["multistream", "resnet50_amp", "bert_large_ckpt", "gpt2_varlen"] {
        alike(name, Common::Pages, Policy::Completed);
    }
}

#[test]
fn what_waits_for_work_is_placed_alike_on_every_device_that_completes_it_in_the_recorded_order() {
    alike("multistream", Common::Slabs, Policy::Wait);
    alike("multistream", Common::Pages, Policy::Wait);
}

#[test]
fn the_model_that_completes_by_hand_places_as_one_that_is_paced() {
    // The same capabilities, given by the model's builder instead of the wrapper.
    let trace = trace("multistream");
    for common in [Common::Slabs, Common::Pages] {
        let options = options(&trace, common, Policy::Wait);
        let paced = Paced::new(Sim::vulkan().open().shared(), common).unwrap();
        let caps = paced.caps().clone();
        let model = Sim::cuda().caps(|own| *own = caps).open();
        let targets = vec![("model", Target::Sim(model)), ("paced", Target::Paced(paced))];
        let reports = compare(&trace, targets, &options);
        assert!(reports[0].hand_outs_checked > 0 && reports[0].waits > 0, "{reports:?}");
    }
}

#[test]
fn other_capabilities_and_another_order_of_completion_place_otherwise() {
    // So that the comparisons above could fail.
    let trace = trace("multistream");
    let run = |common, policy| {
        let paced = Paced::new(Sim::cuda().open().shared(), common).unwrap();
        let options = options(&trace, common, policy);
        let report = Replay::new("test", &trace, Target::Paced(paced), &options)?.run()?;
        Ok::<_, ReplayError>(report.placements.unwrap())
    };
    let slabs = run(Common::Slabs, Policy::Completed).unwrap();
    assert_ne!(run(Common::Pages, Policy::Completed).unwrap(), slabs);
    assert_ne!(run(Common::Slabs, Policy::Wait).unwrap(), slabs);
    assert_eq!(run(Common::Slabs, Policy::Completed).unwrap(), slabs);
}
