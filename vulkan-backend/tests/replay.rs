//! Recorded workloads on the device, every block verified by a kernel.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a failed test panics

mod common;
mod replayed;

use common::bench;

fn holds(workload: &str, scale: u64) {
    let Some(device) = bench() else { return };
    let replayed = replayed::replay(&device, workload, scale).unwrap();
    let report = &replayed.report;
    println!("{} events, {} MiB verified", report.events, report.verified_bytes >> 20);
    assert_eq!(replayed.wrong(), [""; 0]);
}

#[test]
fn training_gpt2_at_a_512th_of_its_size_keeps_every_block() {
    holds("gpt2_varlen", 512);
}

#[test]
fn three_streams_at_a_64th_of_their_size_keep_every_block() {
    holds("multistream", 64);
}
