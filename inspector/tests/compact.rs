//! `terrane demo --compact` as people run it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use assert_cmd::Command;

#[test]
fn blocks_move_together_while_kernels_run_and_nothing_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::cargo_bin("terrane").unwrap();
    command.args(["demo", "--compact", "--device", "host", "--quiet", "--output"]).arg(dir.path());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let json = std::fs::read_to_string(dir.path().join("compact.json")).unwrap();
    let found: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(found["mismatches"], 0, "{json}");
    assert_eq!(found["corrupt"], 0, "{json}");
    assert!(found["blocks"].as_u64().unwrap() >= 200, "{json}");
    assert!(found["moves"].as_u64().unwrap() >= 100, "{json}");
    assert!(found["rounds"].as_u64().unwrap() >= 1, "{json}");
    assert!(found["fragmentation_before"].as_f64().unwrap() > 0.9, "{json}");
    assert!(found["fragmentation_after"].as_f64().unwrap() <= 0.05, "{json}");
    for name in ["compact-before.png", "compact-after.png"] {
        let png = std::fs::read(dir.path().join(name)).unwrap();
        assert!(png.starts_with(b"\x89PNG") && png.len() > 10_000, "{name}");
    }
    assert!(text.contains("slowest"), "{text}");
}
