//! A record for docs/conformance: recorded workloads on a device, every block verified by a
//! kernel, with validation where the layer is there. JSON on standard output; fails when
//! anything is wrong.
//!
//! `cargo run --release -p terrane-vulkan --example replays -- DEVICE SCALE [COMMIT]`, in the root
//! of the repository.

#[path = "../tests/replayed/mod.rs"]
mod replayed;

use serde_json::json;
use terrane_core::device::Device;
use terrane_vulkan::{OpenError, OpenOptions, Selector, open};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let selector = Selector::parse(args.first().map_or("", String::as_str));
    let scale: u64 = args.get(1).map_or(Ok(64), |text| text.parse())?;
    let commit = match args.get(2) {
        Some(commit) => commit.clone(),
        None => head()?,
    };
    let mut options = OpenOptions { validation: true, ..Default::default() };
    let device = match open(&selector, &options) {
        Err(OpenError::NoValidation) => {
            options.validation = false;
            open(&selector, &options)?
        }
        other => other?,
    };
    let (mut runs, mut wrong) = (Vec::new(), 0);
    for workload in ["gpt2_varlen", "multistream"] {
        let replayed = replayed::replay(&device, workload, scale)?;
        wrong += replayed.wrong().len();
        runs.push(json!({
            "report": replayed.report, "host_mappings_of_blocks": replayed.host_looks,
            "validation_messages": replayed.messages, "wrong": replayed.wrong(),
        }));
    }
    let calls: serde_json::Map<_, _> = device
        .calls()
        .iter()
        .map(|stat| (stat.call.name().to_owned(), stat.count.into()))
        .collect();
    let record = json!({
        "commit": commit,
        "command": format!("cargo run --release -p terrane-vulkan --example replays -- {}",
            args.join(" ")),
        "device": device.info().name, "driver": device.info().driver,
        "can_page": device.paging().is_some(), "validation_layer": options.validation, "runs": runs, "driver_calls": calls,
    });
    println!("{}", serde_json::to_string_pretty(&record)?);
    if wrong > 0 { Err("something is wrong: see the runs".into()) } else { Ok(()) }
}

fn head() -> Result<String, Box<dyn std::error::Error>> {
    let output = std::process::Command::new("git").args(["rev-parse", "HEAD"]).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
