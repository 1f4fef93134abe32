//! The six recorded workloads through the allocator, at full size, on the model of CUDA with the
//! costs of its calls: what is reserved against what is asked for, and what share of the run the
//! driver takes. `docs/fragmentation.md` explains the figures; `terrane replay --sweep` and
//! `--find-capacity` print them.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;

use terrane_core::device::sim::Sim;
use terrane_trace::replay::{Options, Policy, Replay, Report, Target, find_capacity};
use terrane_trace::{Limits, Trace, open_csv};

const TRACES: [&str; 6] = [
    "bert_large_ckpt",
    "gpt2_varlen",
    "llm_serving",
    "lora_recompute_offload",
    "multistream",
    "resnet50_amp",
];

fn trace(name: &str) -> Trace {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/traces");
    open_csv(&data.join(format!("{name}.native.csv.gz")), Limits::default()).unwrap()
}

fn device() -> Target {
    Target::Sim(Sim::cuda().open())
}

fn share(report: &Report) -> f64 {
    report.map_ms_after_tenth / report.recorded_ms
}

/// Microseconds of mapping per GiB allocated, over the whole run.
fn us_per_gib(report: &Report) -> f64 {
    report.map_ms_after_tenth * 1e3 / (report.allocated_bytes as f64 / (1_u64 << 30) as f64)
}

fn print(report: &Report) {
    println!(
        "{}: reserved {:.4} of requested, mapping {:.2} % after the first tenth of events, {:.0} \
         us/GiB, {} pages, {} stolen",
        report.trace,
        report.ratio,
        share(report) * 100.0,
        us_per_gib(report),
        report.pages_created,
        report.pages_stolen,
    );
}

#[test]
fn reserved_stays_near_requested_on_every_trace_and_mapping_within_its_share() {
    let replay = |name: &'static str| {
        let trace = trace(name);
        Replay::new(name, &trace, device(), &Options::default()).unwrap().run().unwrap()
    };
    let all: Vec<Report> = TRACES.map(replay).into();
    let mut shares = Vec::new();
    for report in &all {
        print(report);
        assert_eq!(report.failures, 0, "{}", report.trace);
        assert!(report.ratio <= 1.03, "{}: {}", report.trace, report.ratio);
        if report.trace == "llm_serving" {
            assert!(us_per_gib(report) <= 150.0, "{} us/GiB", us_per_gib(report));
        } else {
            assert!(share(report) <= 0.04, "{}: {}", report.trace, share(report));
            shares.push(share(report));
        }
    }
    let average = shares.iter().sum::<f64>() / shares.len() as f64;
    let logs: f64 = all.iter().map(|report| report.ratio.max(1.0).ln()).sum();
    let mean = (logs / all.len() as f64).exp();
    println!("geometric mean {mean:.4}, mapping {:.2} % on average", average * 100.0);
    assert!(mean <= 1.010, "geometric mean {mean}");
    assert!(average <= 0.02, "average share {average}");
}

#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "forty full replays: cargo test --release -p terrane-tests --test paging"
)]
fn little_more_than_what_is_asked_for_is_capacity_enough() {
    let mut all = Vec::new();
    for name in TRACES {
        let trace = trace(name);
        let found = find_capacity(name, &trace, &Options::default(), &mut || Ok(device())).unwrap();
        println!("{name}: {:.3}", found.factor);
        assert!(found.factor <= 1.03, "{name}: {}", found.factor);
        all.push(found.factor);
    }
    let average = all.iter().sum::<f64>() / all.len() as f64;
    println!("average {average:.4}");
    assert!(average <= 1.010, "average {average}");
}

#[test]
fn a_warmed_allocator_makes_no_call_for_memory() {
    for (name, sim) in [("sim:cuda", Sim::cuda()), ("sim:slabs", Sim::slabs())] {
        let trace = trace("multistream");
        let target = Target::Sim(sim.open());
        let mut options = Options::default();
        options.warm = true;
        let report = Replay::new(name, &trace, target, &options).unwrap().run().unwrap();
        println!("{name}: {} dry runs, reserved {:.4}", report.warm_rounds, report.ratio);
        assert_eq!((report.memory_calls, report.failures), (0, 0), "{name}");
        assert!(report.warm_rounds > 1, "{name}: the first dry run can not have been the last");
    }
    let trace = trace("multistream");
    let cold = Replay::new("cold", &trace, device(), &Options::default()).unwrap().run().unwrap();
    assert!(cold.memory_calls > 1_000, "{} calls without warming", cold.memory_calls);
}

#[test]
fn no_block_is_handed_out_before_the_uses_of_its_memory_end() {
    let trace = trace("multistream");
    for (name, sim) in [("sim:cuda", Sim::cuda()), ("sim:slabs", Sim::slabs())] {
        let mut options = Options::default();
        options.policy = Policy::Wait;
        let target = Target::Sim(sim.open());
        let report = Replay::new(name, &trace, target, &options).unwrap().run().unwrap();
        println!("{name}: {} checked, {} waits", report.hand_outs_checked, report.waits);
        assert_eq!(report.hand_outs_checked, u64::from(trace.block_count()), "{name}");
        assert!(report.waits > 0 && report.failures == 0, "{name}: {report:?}");
    }
}
