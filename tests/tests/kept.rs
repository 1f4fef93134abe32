//! Inputs that are kept from fuzzing the range index and the allocator: where it begins, and what
//! once went wrong. `trace/tests/kept.rs` has those of the readers.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

#[path = "../../fuzz/src/driver.rs"]
mod driver;
#[path = "../../fuzz/src/ranges.rs"]
mod ranges;

use std::path::Path;

// What the tests of terrane-core name as at home.
use terrane_core::{point, range, units};

fn kept(target: &str, drive: fn(&[u8])) -> u32 {
    let mut count = 0;
    for folder in ["seeds", "regressions"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz").join(folder);
        // Nothing is kept of what never went wrong.
        let Ok(inputs) = std::fs::read_dir(folder.join(target)) else { continue };
        for input in inputs.map(Result::unwrap) {
            // A failure's own message does not say which.
            println!("{}", input.path().display());
            drive(&std::fs::read(input.path()).unwrap());
            count += 1;
        }
    }
    count
}

/// Some inputs more, the same on every run.
fn random(inputs: u64, drive: fn(&[u8])) {
    for seed in 0..inputs {
        let mut draw = ranges::Draw::Seed(seed);
        let bytes: Vec<u8> = (0..draw.below(1500)).map(|_| draw.next() as u8).collect();
        println!("random input of seed {seed}");
        drive(&bytes);
    }
}

#[test]
fn every_kept_input_leaves_the_range_index_equal_to_the_naive_model() {
    assert!(kept("range", ranges::range) > 0);
    random(40, ranges::range);
}

#[test]
fn every_kept_input_leaves_the_allocator_equal_to_the_naive_list() {
    assert!(kept("allocator", driver::allocator) > 0);
    random(40, driver::allocator);
}
