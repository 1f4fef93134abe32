//! Recorded workloads with hardly more memory than they need: what is free has to be brought
//! together by moving blocks, into one range on a device that can not page, into whole pages on one
//! that can.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::PathBuf;

use terrane_core::device::sim::{Sim, SimDevice};
use terrane_trace::replay::{Capacity, Options, Replay, Report, Target};
use terrane_trace::{Limits, Trace, open_csv};

const TRACES: [&str; 6] = [
    "bert_large_ckpt",
    "gpt2_varlen",
    "llm_serving",
    "lora_recompute_offload",
    "multistream",
    "resnet50_amp",
];

fn recorded(name: &str) -> Trace {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/traces");
    open_csv(&data.join(format!("{name}.native.csv.gz")), Limits::default()).unwrap()
}

/// The model as `--device sim:slabs` opens it.
fn slabs() -> SimDevice {
    Sim::slabs().capacity(140 << 30).max_plain(140 << 30).open()
}

/// The model as `--device sim` opens it.
fn paged() -> SimDevice {
    Sim::cuda().capacity(140 << 30).open()
}

fn replay(name: &str, times: f64, sim: &SimDevice) -> Report {
    let trace = recorded(name);
    let mut options = Options::default();
    options.capacity = Capacity::Times(times);
    let report = Replay::new(name, &trace, Target::Sim(sim.clone()), &options).unwrap();
    let report = report.run().unwrap();
    assert_eq!(sim.violations(), [], "{name}");
    report
}

fn moved_percent(report: &Report) -> f64 {
    report.moved_bytes as f64 * 100.0 / report.allocated_bytes as f64
}

#[test]
#[cfg_attr(debug_assertions, ignore = "six full replays: minutes without optimisation")]
fn two_percent_more_than_the_peak_is_enough_and_little_is_moved() {
    let mut all = Vec::new();
    for name in TRACES {
        let report = replay(name, 1.02, &slabs());
        let percent = moved_percent(&report);
        println!(
            "{name}: {} failures, {percent:.3} % moved in {} moves, {:.0} ns per event",
            report.failures, report.moves, report.ns_per_op
        );
        all.push((name, report.failures, percent));
    }
    let average = all.iter().map(|(.., percent)| percent).sum::<f64>() / all.len() as f64;
    println!("{average:.3} % on average");
    for (name, failures, percent) in all {
        assert_eq!(failures, 0, "{name}");
        assert!(percent <= 4.0, "{name}: {percent:.2} % moved");
    }
    assert!(average <= 1.0, "{average:.2} % moved on average");
}

#[test]
#[cfg_attr(debug_assertions, ignore = "six full replays: minutes without optimisation")]
fn half_a_percent_more_is_enough_where_pages_can_be_freed() {
    let mut all = Vec::new();
    for name in TRACES {
        let report = replay(name, 1.005, &paged());
        let percent = moved_percent(&report);
        println!(
            "{name}: {} failures, {percent:.3} % moved in {} moves, {:.0} ns per event",
            report.failures, report.moves, report.ns_per_op
        );
        all.push((name, report.failures, percent));
    }
    for (name, failures, percent) in all {
        assert_eq!(failures, 0, "{name}");
        assert!(percent <= 2.0, "{name}: {percent:.2} % moved");
    }
}
