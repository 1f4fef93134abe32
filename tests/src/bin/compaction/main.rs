//! Measures compaction on a device and prints one JSON object: how near copies come to the
//! fastest single copy, what a pass in the background costs other work, and how long the
//! allocator's lock is held.
//!
//! `cargo run --release -p terrane-tests --bin compaction -- --device cuda`

mod background;
mod board;
mod full;
mod kernel;
mod lock;
mod steady;

use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use serde_json::{Map, Value, json};
use terrane_core::PassReport;
use terrane_core::device::{Device, SyncPoint};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// What to measure on.
#[derive(Parser)]
struct Args {
    /// `best`, `host`, `vulkan[:NAME]` or `cuda[:N]`.
    #[arg(long, default_value = "best")]
    device: terrane::Choice,
    /// Parts to measure: `full`, `background`, `lock`, separated by commas.
    #[arg(long, default_value = "full,background,lock", value_delimiter = ',')]
    only: Vec<String>,
    /// Blocks of the checkerboard.
    #[arg(long, default_value_t = 10_000)]
    blocks: u64,
    /// The most bytes of the heap that it takes; sizes are scaled down to fit.
    #[arg(long, default_value_t = 64 << 30)]
    heap: u64,
    /// Segments of the checkerboard, at least; more where the device has no larger ones.
    #[arg(long, default_value_t = 1)]
    segments: u64,
    /// How often the checkerboard is compacted in full mode; the first is not counted.
    #[arg(long, default_value_t = 4)]
    rounds: u32,
    /// Workgroups that copy in the background, several to compare; 0 for the copy engine.
    #[arg(long, default_value = "1", value_delimiter = ',')]
    groups: Vec<u32>,
    /// Bytes that a pass in the background copies in a second; 0 for as many as it can.
    #[arg(long, default_value_t = 4_000_000_000)]
    rate: u64,
    /// Milliseconds of copying that the loops of kernels are watched for.
    #[arg(long, default_value_t = 600)]
    window: u64,
    /// Live blocks while the lock is watched.
    #[arg(long, default_value_t = 100_000)]
    many: u64,
}

fn main() -> Outcome<()> {
    let args = Args::parse();
    let opened = terrane::open(&args.device)?;
    opened.prepare()?;
    let device = opened.device.clone();
    let mut report = Map::new();
    let caps = device.caps();
    report.insert("device".into(), format!("{}: {}", opened.choice, device.info().name).into());
    report.insert("driver".into(), device.info().driver.clone().into());
    report.insert("prefer_gather".into(), caps.prefer_gather.into());
    report.insert("gather_within".into(), caps.gather_within.into());
    for part in &args.only {
        let value = match part.as_str() {
            "full" => full::measure(&device, &args)?,
            "background" => background::measure(&device, &args)?,
            "lock" => lock::measure(&device, &args)?,
            other => return Err(format!("no part is called {other}").into()),
        };
        report.insert(part.clone(), value);
    }
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}

fn wait(device: &dyn Device, point: SyncPoint) -> Outcome<()> {
    while device.reached(point.stream)? < point.value {
        device.wait_any(&[point], Duration::from_millis(100))?;
    }
    Ok(())
}

fn of_pass(report: &PassReport) -> Value {
    json!({
        "reached": report.reached,
        "moves": report.moves,
        "bytes": report.bytes,
        "copied_bytes": report.copied_bytes,
        "submissions": report.submissions,
        "by_kernel": report.by_kernel,
        "committed": report.verdicts.committed,
        "cancelled": report.verdicts.cancelled,
        "plan_us": report.plan_ns / 1000,
        "submit_us": report.submit_ns / 1000,
        "commit_us": report.commit_ns / 1000,
        "total_us": report.total_ns / 1000,
        "device_us": report.device_ns.map(|ns| ns / 1000),
        "batches_us": report.batches.iter().map(|it| it.map(|ns| ns / 1000)).collect::<Vec<_>>(),
        "fragmentation": [report.fragmentation.0, report.fragmentation.1],
        "largest_free": [report.largest_free.0, report.largest_free.1],
        "free": [report.free.0, report.free.1],
    })
}

/// The value below which so much of the sorted values lies.
fn quantile(sorted: &[u64], part: f64) -> Option<u64> {
    sorted.get((sorted.len() as f64 * part) as usize).copied()
}

/// A device that anybody may keep.
type Shared = Arc<dyn Device>;
