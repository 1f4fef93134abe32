//! The program `soak` for some seconds, so that it is known to work when it runs for an hour.

#![cfg(feature = "program")]
#![allow(clippy::unwrap_used)]

use std::process::Command;

/// Six rounds: with and without paging, faults and checks.
#[test]
fn some_seconds_of_everything_at_once_find_nothing() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_soak"));
    command.args(["--device", "host", "--minutes", "0.1", "--round", "1", "--seed", "3"]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let number = |key: &str| {
        let line = text.lines().find(|line| line.contains(&format!("\"{key}\"")))?;
        line.rsplit(' ').next()?.trim_end_matches(',').parse::<u64>().ok()
    };
    assert_eq!(number("findings"), Some(0), "{text}");
    // How many blocks are moved in so short a time depends on how busy the machine is.
    for key in ["verified", "faults", "events", "checked"] {
        assert!(number(key).unwrap_or(0) > 0, "{key}: {text}");
    }
}
