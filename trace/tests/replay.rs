//! Recorded workloads through our allocator, on the model.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::num::NonZeroU64;
use std::path::PathBuf;

use terrane_core::device::sim::{Sim, SimDevice};
use terrane_trace::replay::{Capacity, Options, Policy, Replay, ReplayError, Report, Target};
use terrane_trace::{Limits, Op, Trace, TraceBuilder, open_csv};

fn recorded(name: &str) -> Trace {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/traces");
    open_csv(&data.join(format!("{name}.native.csv.gz")), Limits::default()).unwrap()
}

fn replay(trace: &Trace, sim: &SimDevice, options: &Options) -> Result<Report, ReplayError> {
    Replay::new("test", trace, Target::Sim(sim.clone()), options)?.run()
}

/// Options with the given changes; the struct can not be built outside its crate.
fn options(change: impl FnOnce(&mut Options)) -> Options {
    let mut options = Options::default();
    change(&mut options);
    options
}

fn checked() -> Options {
    options(|o| o.check_every = NonZeroU64::new(5_000))
}

#[test]
fn two_recorded_workloads_replay_at_full_size_without_a_failure_and_break_no_rule() {
    for name in ["multistream", "resnet50_amp"] {
        let (trace, sim) = (recorded(name), Sim::cuda().open());
        let report = replay(&trace, &sim, &checked()).unwrap();
        assert_eq!(report.failures, 0, "{name}");
        assert_eq!(report.events, trace.events().len() as u64, "{name}");
        assert_eq!(report.peak_requested, trace.figures().peak_requested, "{name}");
        assert_eq!(report.allocated_bytes, trace.figures().allocated_bytes, "{name}");
        assert!(report.peak_requested <= report.peak_active, "{name}");
        assert!(report.peak_active <= report.peak_reserved, "{name}");
        assert_eq!((report.waits, report.stall_ms), (0, 0.0), "{name}");
        assert!(report.map_ms_total > report.map_ms_after_tenth, "{name}");
        assert_eq!(sim.violations(), [], "{name}");
    }
}

#[test]
fn the_models_clock_follows_the_recorded_times() {
    let (trace, sim) = (recorded("resnet50_amp"), Sim::slabs().capacity(140 << 30).open());
    replay(&trace, &sim, &Options::default()).unwrap();
    // The slabs preset models no costs, so nothing else has moved the clock.
    let now = terrane_core::device::Device::now_ns(&sim);
    assert_eq!(now / 1000, trace.figures().recorded_us);
}

#[test]
fn reuse_behind_waits_needs_less_than_the_peak_requested_and_says_how_long_it_waited() {
    let trace = recorded("multistream");
    let wait = options(|o| o.policy = Policy::Wait);
    let report = replay(&trace, &Sim::cuda().open(), &wait).unwrap();
    assert_eq!(report.failures, 0);
    assert!(report.waits > 0 && report.stall_ms > 0.0, "{report:?}");
    assert!(report.stall_ms <= 4.0 * report.recorded_ms, "four streams: {report:?}");
    let usual = replay(&trace, &Sim::cuda().open(), &Options::default()).unwrap();
    assert!(report.peak_reserved < usual.peak_reserved, "{report:?}");
}

#[test]
fn under_a_limit_that_is_too_small_refusals_are_counted_and_the_replay_goes_on() {
    let trace = recorded("resnet50_amp");
    let small = options(|o| o.capacity = Capacity::Times(0.5));
    let report = replay(&trace, &Sim::cuda().open(), &small).unwrap();
    assert!(report.failures > 0);
    assert_eq!(report.events, trace.events().len() as u64);
    assert_eq!(report.capacity, Some(report.peak_requested.div_ceil(2)));
    assert!(report.peak_reserved <= report.capacity.unwrap());
}

fn scaled(corrupt: u64) -> Report {
    let sim = Sim::cuda().bytes(true).open();
    let options = options(|o| {
        o.scale = NonZeroU64::new(1 << 18).unwrap();
        o.corrupt = corrupt;
        o.check_every = NonZeroU64::new(20_000);
    });
    let report = replay(&recorded("multistream"), &sim, &options).unwrap();
    assert_eq!(sim.violations(), []);
    report
}

#[test]
fn every_block_of_a_scaled_workload_keeps_its_contents() {
    let report = scaled(0);
    assert_eq!((report.failures, report.mismatches), (0, 0));
    assert!(report.verified_bytes >= report.allocated_bytes, "{report:?}");
    assert!(report.dispatches > 0);
}

#[test]
fn a_device_that_is_not_known_as_the_model_serves_the_same_and_its_calls_are_timed() {
    let sim = Sim::cuda().bytes(true).open();
    let target = Target::Real(sim.shared());
    let options = options(|o| o.scale = NonZeroU64::new(1 << 18).unwrap());
    let trace = recorded("multistream");
    let report = Replay::new("test", &trace, target, &options).unwrap().run().unwrap();
    assert_eq!((report.failures, report.mismatches), (0, 0));
    assert!(report.map_ms_total > 0.0 && report.dispatches > 0, "{report:?}");
    assert_eq!(sim.violations(), []);
}

#[test]
fn exactly_the_damaged_blocks_are_reported() {
    assert_eq!(scaled(1).mismatches, 1);
    assert_eq!(scaled(777).mismatches, 777);
}

#[test]
fn damage_is_refused_where_it_could_not_be_seen() {
    let mut builder = TraceBuilder::new();
    builder.push(Op::Alloc, 0, 7, 100, 3).unwrap();
    let trace = builder.finish();
    let one = options(|o| o.corrupt = 1);
    let error = replay(&trace, &Sim::cuda().open(), &one).unwrap_err();
    assert_eq!(error, ReplayError::NothingToCorrupt);
    let two = options(|o| o.corrupt = 2);
    let error = replay(&trace, &Sim::cuda().bytes(true).open(), &two).unwrap_err();
    assert_eq!(error, ReplayError::CorruptedTooFew { asked: 2, damaged: 1 });
}

#[test]
fn a_capacity_is_bytes_with_or_without_a_unit_or_times_the_peak() {
    let parse = |text: &str| text.parse::<Capacity>();
    assert_eq!(parse("1.05x"), Ok(Capacity::Times(1.05)));
    assert_eq!(parse("8GiB"), Ok(Capacity::Bytes(8 << 30)));
    assert_eq!(parse("900MB"), Ok(Capacity::Bytes(900_000_000)));
    assert_eq!(parse("123"), Ok(Capacity::Bytes(123)));
    assert_eq!(parse("1.5GiB"), Ok(Capacity::Bytes(3 << 29)));
    for bad in ["", "x", "-1x", "0x", "nanx", "infx", "12Gib", "99999999999GiB", "0", "1.5"] {
        assert!(parse(bad).is_err(), "{bad}");
    }
}
