//! Runs everything at once for as long as it is told: threads, streams, passes of moves, pauses,
//! faults of the device, checks and recording, with every block's contents verified by kernels.
//!
//! `cargo xtask soak --minutes 60 --device host` builds it optimised and runs it. The exit code is
//! 1 when anything was found. What a run does depends on the order of its threads; the seed printed
//! gives the same mixture of calls and faults again, not the same order.

mod epoch;
mod worker;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use serde_json::json;

use epoch::{Epoch, Tally};

/// What to run on, and for how long.
#[derive(Parser)]
struct Args {
    /// `host`, `vulkan[:NAME]` or `cuda[:N]`; models have no contents.
    #[arg(long, default_value = "host")]
    device: terrane::Choice,
    /// Minutes.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Seconds of one round, after which everything is given back and begins anew.
    #[arg(long, default_value_t = 5.0)]
    round: f64,
    /// Threads that allocate.
    #[arg(long, default_value_t = 4)]
    threads: u64,
    /// Bytes that one round's allocator may reserve.
    #[arg(long, default_value_t = 96 << 20)]
    limit: u64,
    /// In two rounds of three one of so many device calls fails; 0 for none.
    #[arg(long, default_value_t = 150)]
    faults: u64,
    /// The seed of the first round; each later one has the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match soak(&args) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

/// Gives the number of findings.
fn soak(args: &Args) -> Result<u64, String> {
    let opened = terrane::open(&args.device).map_err(|error| error.to_string())?;
    opened.prepare().map_err(|error| error.to_string())?;
    let info = opened.device.info().clone();
    println!("soak on {} ({}), seed {}", info.name, info.driver, args.seed);
    let (start, mut sum, mut told) = (Instant::now(), Tally::default(), Instant::now());
    let end = start + Duration::from_secs_f64(args.minutes * 60.0);
    let mut early_rss = 0;
    let (mut seed, mut rounds) = (args.seed, 0_u64);
    while Instant::now() < end {
        let left = end.saturating_duration_since(Instant::now());
        let time = left.min(Duration::from_secs_f64(args.round));
        let Args { threads, limit, faults, .. } = *args;
        let epoch = Epoch { seed, time, threads, limit, faults };
        let tally = epoch.run(&opened.device)?;
        for finding in &tally.findings {
            println!("FINDING in the round of seed {seed}: {finding}");
        }
        sum.add(tally);
        (seed, rounds) = (seed + 1, rounds + 1);
        if rounds == 6 {
            early_rss = resident();
        }
        if told.elapsed() > Duration::from_secs(60) {
            told = Instant::now();
            let minutes = start.elapsed().as_secs_f64() / 60.0;
            println!("{minutes:.0} min: {rounds} rounds, {sum}, {} MiB resident", resident() >> 20);
        }
    }
    let report = json!({
        "device": info.name, "driver": info.driver, "seed": args.seed,
        "minutes": start.elapsed().as_secs_f64() / 60.0, "rounds": rounds,
        "requests": sum.requests, "verified": sum.verified, "moves": sum.moves,
        "paused": sum.paused, "faults": sum.faults,
        "events": sum.events, "dropped_events": sum.dropped,
        "checked": sum.checked, "refused": sum.refused, "findings": sum.findings.len(),
        "resident_early": early_rss, "resident_end": resident(),
    });
    println!("{report:#}");
    Ok(sum.findings.len() as u64)
}

/// Bytes of this process in memory; 0 where the system does not say.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    pages * 4096
}
