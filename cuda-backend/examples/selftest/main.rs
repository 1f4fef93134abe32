//! Runs every method of the CUDA device on a real device, against what must come out, and prints
//! one JSON object: each check with passed or failed, and measured figures.
//!
//! ```text
//! cuda_selftest [--quick] [--no-faults] [--no-bench] [--only PART] [--device N]
//! ```
//!
//! `--quick` uses small sizes (for compute-sanitizer), `--no-faults` leaves out what makes the
//! device fault on purpose (in child processes), `--only` runs the checks whose names contain
//! PART. The exit code is 1 when a check failed and 2 where there is no CUDA.

mod allocator;
mod bench;
mod capture;
mod children;
mod compute;
mod memory;
mod paging;
mod pairs;
mod peers;
mod streams;
mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use serde_json::{Map, Value, json};
use support::{Outcome, Setup};
use terrane_core::device::Device;
use terrane_cuda::{CudaDevice, Options, Selector};

/// A named check.
type Check = (&'static str, fn(&Setup) -> Outcome);

struct Arguments {
    quick: bool,
    faults: bool,
    bench: bool,
    only: String,
    device: u32,
}

impl Arguments {
    fn read() -> Self {
        let all: Vec<String> = std::env::args().collect();
        let has = |name: &str| all.iter().any(|argument| argument == name);
        let value = |name: &str| {
            let at = all.iter().position(|argument| argument == name)?;
            all.get(at + 1).cloned()
        };
        Self {
            quick: has("--quick"),
            faults: !has("--no-faults"),
            bench: !has("--no-bench"),
            only: value("--only").unwrap_or_default(),
            device: value("--device").and_then(|text| text.parse().ok()).unwrap_or(0),
        }
    }
}

fn run(checks: &[Check], setup: &Setup, only: &str) -> Vec<Value> {
    let chosen = checks.iter().filter(|(name, _)| name.contains(only));
    chosen
        .map(|(name, check)| {
            let start = Instant::now();
            let outcome = catch_unwind(AssertUnwindSafe(|| check(setup)));
            let ms = start.elapsed().as_secs_f64() * 1e3;
            let (passed, detail) = match outcome {
                Ok(Ok(detail)) => (true, detail),
                Ok(Err(error)) => (false, json!(error.to_string())),
                Err(_) => (false, json!("panicked")),
            };
            eprintln!("{} {name} ({ms:.1} ms) {detail}", if passed { "ok  " } else { "FAIL" });
            json!({ "check": name, "passed": passed, "ms": ms, "detail": detail })
        })
        .collect()
}

fn main() -> ExitCode {
    if let Some(code) = children::run_if_child() {
        return code;
    }
    let arguments = Arguments::read();
    let selector = Selector::Index(arguments.device);
    let start = Instant::now();
    let device = match CudaDevice::open(&selector, Options::default()) {
        Ok(device) => device,
        Err(error) => {
            println!("{}", json!({ "unavailable": error.to_string() }));
            return ExitCode::from(2);
        }
    };
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
    let setup = Setup { device, quick: arguments.quick, selector };
    let mut checks: Vec<Check> = Vec::new();
    checks.extend(memory::CHECKS);
    checks.extend(streams::CHECKS);
    checks.extend(paging::CHECKS);
    checks.extend(compute::CHECKS);
    checks.extend(capture::CHECKS);
    checks.extend(allocator::CHECKS);
    checks.extend(peers::CHECKS);
    checks.extend(children::SAFE_CHECKS);
    if arguments.faults {
        checks.extend(children::FAULT_CHECKS);
    }
    let results = run(&checks, &setup, &arguments.only);
    let mut figures = Map::new();
    if arguments.bench {
        let benches = [bench::BENCHES, pairs::BENCHES].concat();
        for entry in run(&benches, &setup, &arguments.only) {
            let name = entry["check"].as_str().unwrap_or("?").to_owned();
            figures.insert(name, entry);
        }
    }
    let failed = results.iter().filter(|result| result["passed"] == json!(false)).count()
        + figures.values().filter(|figure| figure["passed"] == json!(false)).count();
    let info = setup.device.info();
    let report = json!({
        "device": info.name,
        "driver": info.driver,
        "details": format!("{:?}", setup.device.details()),
        "caps": format!("{:?}", setup.device.caps()),
        "open_ms": open_ms,
        "quick": setup.quick,
        "passed": results.len() + figures.len() - failed,
        "failed": failed,
        "checks": results,
        "figures": figures,
    });
    println!("{report:#}");
    ExitCode::from(u8::from(failed > 0))
}
