//! The program as its users run it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use assert_cmd::Command;

fn terrane() -> Command {
    let mut command = Command::cargo_bin("terrane").unwrap();
    for name in ["DEVICE", "CAPACITY", "SCALE", "POLICY", "QUIET"] {
        command.env_remove(format!("TERRANE_{name}"));
    }
    // With a display `terrane FILE` opens a window.
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
    command
}

fn run(args: &[&str]) -> Output {
    terrane().args(args).output().unwrap()
}

fn recorded(name: &str) -> String {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/traces");
    data.join(format!("{name}.native.csv.gz")).display().to_string()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

const HEADER: &str = "t_us,op,block,size,stream\n";
const SMALL: &str =
    "t_us,op,block,size,stream\n1,a,0,1000,0\n2,a,1,3000000,1\n3,r,0,1000,0\n4,f,0,1000,0\n";

fn file(dir: &Path, name: &str, contents: &[u8]) -> String {
    let path = dir.join(name);
    std::fs::write(&path, contents).unwrap();
    path.display().to_string()
}

#[test]
fn a_replay_with_common_capabilities_places_alike_on_the_model_and_on_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let small = file(dir.path(), "small.csv", SMALL.as_bytes());
    let placements = |device: &str, common: &str| {
        let args = ["replay", &small, "--device", device, "--common", common, "--json"];
        json(&run(&args))["placements"].as_str().unwrap().to_owned()
    };
    let pages = placements("sim", "pages");
    assert_eq!(placements("host", "pages"), pages);
    assert_eq!(placements("host", "slabs"), placements("sim:slabs", "slabs"));
    let usual = json(&run(&["replay", &small, "--device", "sim", "--json"]));
    assert!(usual["placements"].is_null(), "costs time, so only where it is asked for");
    let args = ["replay", &small, "--device", "sim:slabs", "--common", "pages"];
    let refused = run(&args);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("paging"), "{refused:?}");
}

#[test]
fn a_replay_prints_one_json_object_with_every_figure() {
    let output = run(&["replay", &recorded("resnet50_amp"), "--device", "sim", "--json"]);
    let report = json(&output);
    assert_eq!(text(&output.stdout).lines().count(), 1);
    assert!(output.stderr.is_empty(), "nobody looks, so no progress: {}", text(&output.stderr));
    let keys = [
        "peak_requested",
        "peak_active",
        "peak_reserved",
        "allocated_bytes",
        "moved_bytes",
        "memory_objects",
        "pages_created",
        "pages_stolen",
        "map_ms_total",
        "map_ms_after_tenth",
        "recorded_ms",
        "waits",
        "events",
        "failures",
        "dispatches",
        "verified_bytes",
        "mismatches",
        "ns_per_op",
        "device",
        "trace",
        "scale",
        "capacity",
        "policy",
        "ratio",
    ];
    for key in keys {
        assert!(report.get(key).is_some(), "{key} is missing");
    }
    assert_eq!(report["peak_requested"], 6_057_040_912_u64);
    assert_eq!(report["events"], 19_084);
    assert_eq!(report["failures"], 0);
    assert_eq!(report["trace"], "resnet50_amp");
    // PyTorch's native rules reach this.
    assert!(report["peak_reserved"].as_u64().unwrap() <= 7_295_991_808);
}

#[test]
fn on_the_cpu_every_block_is_verified_and_damage_is_reported_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let small = file(dir.path(), "small.csv", SMALL.as_bytes());
    let good = json(&run(&["replay", &small, "--device", "host"]));
    assert_eq!((&good["mismatches"], &good["verified_bytes"]), (&0.into(), &3_001_000.into()));
    assert!(good["dispatches"].as_u64().unwrap() >= 2);
    let damaged = json(&run(&["replay", &small, "--device", "host", "--corrupt", "2"]));
    assert_eq!(damaged["mismatches"], 2);
    let many = run(&["replay", &small, "--device", "host", "--corrupt", "3"]);
    assert_eq!(many.status.code(), Some(2));
    assert!(text(&many.stderr).contains("only 2 could be"), "{}", text(&many.stderr));
    let blind = run(&["replay", &small, "--device", "sim", "--corrupt", "1"]);
    assert_eq!(blind.status.code(), Some(2));
    assert!(text(&blind.stderr).contains("choose one that computes"), "{}", text(&blind.stderr));
}

#[test]
fn options_come_from_the_environment_too_and_the_command_line_wins() {
    let dir = tempfile::tempdir().unwrap();
    let small = file(dir.path(), "small.csv", SMALL.as_bytes());
    let mut command = terrane();
    command.env("TERRANE_DEVICE", "sim:slabs").env("TERRANE_SCALE", "2");
    let report = json(&command.args(["replay", &small]).output().unwrap());
    assert_eq!((&report["scale"], &report["peak_requested"]), (&2.into(), &1_500_500.into()));
    assert_eq!(report["device"], "sim: model: slabs");
    let report = json(&command.args(["--device", "sim", "--scale", "1"]).output().unwrap());
    assert_eq!((&report["scale"], &report["device"]), (&1.into(), &"sim: model: cuda".into()));
}

#[test]
fn a_switch_in_the_environment_may_be_1_or_true() {
    let dir = tempfile::tempdir().unwrap();
    let small = file(dir.path(), "small.csv", SMALL.as_bytes());
    for on in ["1", "true", "yes"] {
        let output = terrane().args(["replay", &small]).env("TERRANE_QUIET", on).output().unwrap();
        assert!(output.status.success(), "{on}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{on}");
    }
}

#[test]
fn refusals_under_a_limit_are_figures_and_no_failure_of_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let small = file(dir.path(), "small.csv", SMALL.as_bytes());
    let report = json(&run(&["replay", &small, "--capacity", "0.5x"]));
    assert_eq!((&report["failures"], &report["capacity"]), (&1.into(), &1_500_500.into()));
    let report = json(&run(&["replay", &small, "--capacity", "6MiB", "--policy", "wait"]));
    assert_eq!((&report["failures"], &report["policy"]), (&0.into(), &"wait".into()));
}

#[test]
fn a_bad_trace_gives_line_and_reason_and_exit_code_2() {
    let dir = tempfile::tempdir().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(HEADER.as_bytes()).unwrap();
    for block in 0..500 {
        writeln!(gzip, "{block},a,{block},{},0", block * 7919 % 100_003 + 1).unwrap();
    }
    let gzip = gzip.finish().unwrap();
    let long = format!("{HEADER}{}\n", "1".repeat(100_000));
    let cases: [(&str, &[u8], &str, &str); 9] = [
        ("empty", b"", "line 1", "the file is empty"),
        ("header-only", HEADER.as_bytes(), "line 2", "no event"),
        ("other", b"a,b\n1,2\n", "line 1", "not a recorded trace"),
        ("cut", &SMALL.as_bytes()[..SMALL.len() - 4], "line 5", "cut"),
        ("cut.gz", &gzip[..gzip.len() - 12], "line", "ends early"),
        ("endless-line", long.as_bytes(), "line 2", "256"),
        ("negative", b"t_us,op,block,size,stream\n1,a,0,-5,0\n", "line 2", "size"),
        ("huge", b"t_us,op,block,size,stream\n1,a,0,99999999999999999999,0\n", "line 2", "size"),
        ("twice", b"t_us,op,block,size,stream\n1,a,0,5,0\n2,a,0,5,0\n", "line 3", "live"),
    ];
    for (name, contents, place, reason) in cases {
        let path = file(dir.path(), name, contents);
        let output = run(&["replay", &path]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(output.stdout.is_empty(), "{name}");
        assert!(said.contains(place) && said.contains(reason) && said.contains(name), "{said}");
    }
}

#[test]
fn bad_arguments_say_what_would_be_right_and_exit_with_2() {
    let trace = recorded("resnet50_amp");
    let cases: [(&[&str], &str); 7] = [
        (&["replay", "/nonexistent.csv"], "check the path"),
        (&["replay", &trace, "--device", "gpu"], "vulkan[:NAME]"),
        (&["replay", &trace, "--capacity", "lots"], "1.05x"),
        (&["replay", &trace, "--scale", "0"], "--scale"),
        (&["replay", &trace, "--policy", "never"], "completed"),
        (&["demo", "--size", "wide"], "WIDTHxHEIGHT"),
        (&["frobnicate"], "neither a command nor a file"),
    ];
    for (args, hint) in cases {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(hint), "{args:?}: {}", text(&output.stderr));
    }
}

#[test]
fn a_workload_that_does_not_fit_says_so_and_what_helps() {
    let dir = tempfile::tempdir().unwrap();
    let giant = format!("{HEADER}1,a,0,999999999999999,0\n");
    let giant = file(dir.path(), "giant.csv", giant.as_bytes());
    let output = run(&["replay", &giant]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("try --scale"), "{}", text(&output.stderr));
    // The figures are printed all the same.
    assert!(text(&output.stdout).contains("\"failures\": 1"));
}

#[test]
fn devices_lists_the_cpu_and_says_why_a_device_is_chosen() {
    let listing = json(&run(&["devices", "--json"]));
    let devices = listing["devices"].as_array().unwrap();
    assert!(devices.iter().any(|device| device["name"] == "host"), "{listing}");
    assert_eq!(devices.iter().filter(|device| device["chosen"] == true).count(), 1, "{listing}");
    let output = run(&["devices"]);
    let shown = text(&output.stdout);
    assert!(output.status.success() && shown.contains("Chosen unless told otherwise"), "{shown}");
}

#[test]
fn the_checks_of_the_cpu_and_of_the_model_pass() {
    for (device, nothing_to_check) in [("host", 0), ("sim", 4)] {
        let listing = json(&run(&["devices", "--check", "--json", "--device", device]));
        let checks = listing["devices"][0]["checks"].as_array().unwrap();
        assert_eq!(checks.len(), 6, "{listing}");
        assert!(checks.iter().all(|check| check["error"].is_null()), "{listing}");
        let skipped = checks.iter().filter(|check| check["skipped"] == true).count();
        assert_eq!(skipped, nothing_to_check, "{listing}");
    }
}

#[test]
fn the_demo_writes_a_picture_and_a_report_that_needs_nothing_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let trace = recorded("multistream");
    let args = ["demo", "--device", "host", "--trace", &trace, "--scale", "4096", "--quiet"];
    let output = terrane().args(args).arg("--output").arg(&out).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("0 blocks differ") && shown.contains("heap.png"), "{shown}");
    let picture = std::fs::read(out.join("heap.png")).unwrap();
    assert_eq!(&picture[..8], b"\x89PNG\r\n\x1a\n");
    let size = [&picture[16..20], &picture[20..24]]
        .map(|side| u32::from_be_bytes(side.try_into().unwrap()));
    assert_eq!(size, [1600, 1200]);
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("<title>block of "), "no picture in the report");
    for outside in ["src=", "href=", "@import", "url(http"] {
        assert!(!page.contains(outside), "the report asks for something: {outside}");
    }
}

#[test]
fn completions_name_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        let script = text(&output.stdout);
        for command in ["devices", "replay", "demo", "completions", "explain", "whatif", "fit"] {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
}

#[test]
fn the_help_of_every_command_is_as_it_was() {
    for command in ["", "devices", "replay", "demo", "explain", "whatif", "check"] {
        // Without the window there is one command less.
        if command.is_empty() && cfg!(not(feature = "gui")) {
            continue;
        }
        let args: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let output = run(&args);
        let name = format!("help_{command}");
        insta::assert_snapshot!(name, text(&output.stdout));
    }
}
