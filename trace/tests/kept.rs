//! Inputs that are kept from fuzzing: where it begins, and what once went wrong.

#![cfg(feature = "live")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

#[path = "../../fuzz/src/readers.rs"]
mod readers;

use std::path::PathBuf;

#[test]
fn every_kept_input_is_read_or_refused() {
    let fuzz = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let mut count = 0;
    for folder in ["seeds", "regressions"] {
        // Nothing is kept of what never went wrong.
        let Ok(targets) = std::fs::read_dir(fuzz.join(folder)) else { continue };
        for target in targets.map(Result::unwrap) {
            let read = match target.file_name().to_str().unwrap() {
                "pickle" => readers::pickle,
                "json" => readers::json,
                "lines" => readers::lines,
                "own" => readers::own,
                "wire" => readers::wire,
                "texts" => readers::texts,
                // Not readers: `tests/tests/kept.rs` has them.
                "range" | "allocator" => continue,
                other => panic!("{folder}/{other}: no such target"),
            };
            for input in std::fs::read_dir(target.path()).unwrap().map(Result::unwrap) {
                // A failure's own message does not say which.
                println!("{}", input.path().display());
                read(&std::fs::read(input.path()).unwrap());
                count += 1;
            }
        }
    }
    assert!(count > 30, "{count} inputs");
}
