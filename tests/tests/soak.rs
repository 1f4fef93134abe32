//! The program `soak` for some seconds, so that it is known to work when it runs for an hour.

#![cfg(feature = "program")]
#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Command;

/// What a short run does at least once.
const KINDS: [&str; 5] = ["verified", "moves", "faults", "events", "checked"];

/// Runs of six rounds, with and without paging, faults and checks, until everything was done. How
/// much one does depends on how busy the machine is.
#[test]
fn some_seconds_of_everything_at_once_find_nothing() {
    let mut done = [0; KINDS.len()];
    for seed in (3..).step_by(6).take(10) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_soak"));
        command.args(["--device", "host", "--minutes", "0.1", "--round", "1"]);
        let output = command.args(["--seed", &seed.to_string()]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        let number = |key: &str| {
            let line = text.lines().find(|line| line.contains(&format!("\"{key}\"")))?;
            line.rsplit(' ').next()?.trim_end_matches(',').parse::<u64>().ok()
        };
        assert_eq!(number("findings"), Some(0), "{text}");
        for (sum, key) in done.iter_mut().zip(KINDS) {
            *sum += number(key).unwrap_or(0);
        }
        if !done.contains(&0) {
            return;
        }
    }
    panic!("never done, of {KINDS:?}: {done:?}");
}
