//! Failures told by files that are no snapshot of PyTorch: logs, and traces of our own.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

use std::fmt::Write as _;
use std::path::Path;

use assert_cmd::Command;

fn shown(dir: &Path, args: &[&str]) -> String {
    let mut command = Command::cargo_bin("terrane").unwrap();
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY").env("TERRANE_QUIET", "1");
    let output = command.current_dir(dir).args(args).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && error.is_empty(), "{args:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(dir: &Path, args: &[&str]) -> serde_json::Value {
    let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
    serde_json::from_str(&shown(dir, &args)).unwrap()
}

/// A log of RMM: 12 blocks of 64 MiB, every other one freed, and a request for `asked_mib` that
/// failed. `before_mib` were live for a while at the beginning.
fn log(dir: &Path, before_mib: u64, asked_mib: u64) {
    let mut text = String::from("Thread,Time,Action,Pointer,Size,Stream\n");
    let mut second = 0;
    let mut row = |action: &str, pointer: &str, mib: u64| {
        second += 1;
        let (minute, second) = (second / 60, second % 60);
        let bytes = mib << 20;
        writeln!(text, "1,01:{minute:02}:{second:02}.5,{action},{pointer},{bytes},0").unwrap();
    };
    row("allocate", "0x1", before_mib);
    row("free", "0x1", before_mib);
    for block in 0..12 {
        row("allocate", &format!("0x{:x}000", block + 1), 64);
    }
    for block in (0..12).step_by(2) {
        row("free", &format!("0x{:x}000", block + 1), 64);
    }
    row("allocate failure", "(nil)", asked_mib);
    std::fs::write(dir.join("rmm.csv"), text).unwrap();
}

#[test]
fn a_log_of_rmm_is_explained_as_far_as_it_says_what_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // 6 * 64 live and 256 asked for; 768 were live before.
    log(dir, 700, 256);
    let found = json(dir, &["explain", "rmm.csv"]);
    assert_eq!((&found["class"], &found["live"]), (&"fragmentation".into(), &(384 << 20).into()));
    assert_eq!(found["limit_at_least"], 768 << 20);
    // The remedy is a command, and its replay serves every request.
    let served = found["served_by"].as_array().unwrap();
    assert!(served.iter().any(|served| served["model"] == "cuda-async"), "{found}");
    for served in served {
        let command = served["command"].as_str().unwrap().replace("FILE", "rmm.csv");
        let args: Vec<&str> = command.split(' ').skip(1).collect();
        let again = json(dir, &args);
        assert_eq!(again["failures"], 0, "{command}");
        assert_eq!(again["peak_reserved"], served["peak_reserved"], "{command}");
    }
    let text = shown(dir, &["explain", "rmm.csv"]);
    assert!(
        text.starts_with("Fragmentation, or a pool's limit") && text.contains("terrane whatif")
    );
    assert!(shown(dir, &["rmm.csv"]).contains("Fragmentation, or a pool's limit"));
    assert!(shown(dir, &["report", "rmm.csv", "--json"]).contains("Fragmentation"));
}

#[test]
fn a_log_that_does_not_decide_says_so_until_the_limit_is_given() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    log(dir, 64, 1024);
    let found = json(dir, &["explain", "rmm.csv"]);
    assert!(found["class"].is_null() && found["served_by"].as_array().unwrap().is_empty());
    assert!(shown(dir, &["explain", "rmm.csv"]).contains("`--limit BYTES` sets it"));
    let found = json(dir, &["explain", "rmm.csv", "--limit", "1GiB"]);
    assert_eq!((&found["class"], &found["short_bytes"]), (&"capacity".into(), &(384 << 20).into()));
    let found = json(dir, &["explain", "rmm.csv", "--limit", "2GiB"]);
    assert_eq!(found["class"], "fragmentation");
}

#[test]
fn the_verdict_on_a_trace_of_our_own_is_the_same_from_every_command() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/traces");
    let trace = traces.join("resnet50_amp.native.csv.gz").display().to_string();
    let args = ["replay", &trace, "--capacity", "0.8x", "--record", "short.terrane"];
    shown(dir, &args);
    let found = json(dir, &["explain", "short.terrane"]);
    let (name, beginning) = match found["class"].as_str().unwrap() {
        "capacity" => ("capacity", "Capacity: what is live"),
        _ => ("fragmentation", "Fragmentation: there is room"),
    };
    assert_eq!(found["class"], name);
    assert_eq!(found["to_cut"].is_null(), name != "capacity", "{found}");
    for args in [&["explain", "short.terrane"][..], &["short.terrane"]] {
        assert!(shown(dir, args).contains(beginning), "{args:?}");
    }
    let report = json(dir, &["report", "short.terrane"]);
    assert!(report["verdict"].as_str().unwrap().starts_with(beginning), "{report}");
    let info = json(dir, &["info", "short.terrane"]);
    let recorded = info["files"][0]["recorded"].as_str().unwrap();
    assert!(recorded.starts_with("terrane, process "), "{recorded}");
}

#[test]
fn stacks_that_were_taken_are_shown_with_their_cost() {
    use terrane_core::event::{Event, EventKind};
    use terrane_trace::file::{HeapState, Meta, Text, TextKind, TraceWriter};
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut writer = TraceWriter::new(Vec::new(), &Meta::default()).unwrap();
    writer.keyframe(&HeapState::default()).unwrap();
    let text = |number, text: &str| Text { kind: TextKind::Site, number, text: text.to_owned() };
    let deep = "src/layer.rs:7\tmodel::layer\nsrc/main.rs:3\tmain";
    writer.texts(&[text(1, "src/layer.rs:7"), text(9, deep)]).unwrap();
    let block = |handle| Event::new(EventKind::Alloc).handle(handle).a(1000).b(1024).on(0, 1);
    let stack = |handle, ns| Event::new(EventKind::Stack).handle(handle).a(9).b(ns);
    let mut events = [block(1), stack(1, 2000), block(2), block(3), stack(3, 4000)];
    (1..).zip(&mut events).for_each(|(number, event)| event.sequence = number);
    writer.events(&events).unwrap();
    std::fs::write(dir.join("stacks.terrane"), writer.finish().unwrap()).unwrap();
    let info = shown(dir, &["info", "stacks.terrane"]);
    assert!(info.contains("of 2 requests, 3.0 us each on the thread that allocates"), "{info}");
    let found = json(dir, &["sites", "stacks.terrane", "--at", "end", "--by", "stack"]);
    let rows = found["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["site"].as_str().unwrap().contains("model::layer"));
    assert_eq!(row.unwrap()["blocks"], 2, "{found}");
}

#[test]
fn options_for_all_commands_stand_before_the_command_or_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    log(dir, 700, 256);
    let after = shown(dir, &["explain", "rmm.csv", "--quiet"]);
    assert_eq!(shown(dir, &["--quiet", "explain", "rmm.csv"]), after);
    assert_eq!(shown(dir, &["-q", "rmm.csv"]), shown(dir, &["rmm.csv"]));
    let mut command = Command::cargo_bin("terrane").unwrap();
    let output = command.current_dir(dir).args(["rmm.csv", "explain"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("terrane explain <FILE>"));
}

#[test]
fn commands_look_at_a_part_of_a_recording_where_they_are_asked_to() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    let snapshot = "snapshots/unet_multires.oom.pickle.gz";
    let whole = json(&data, &["explain", snapshot]);
    // Failures before the last moment: the program survived all of them.
    let event = whole["fault"]["event"].as_u64().unwrap() - 1;
    let earlier = json(&data, &["explain", snapshot, "--to", &event.to_string()]);
    assert_eq!(earlier["failures"], earlier["survived"]["count"]);
    assert!((1..53).contains(&earlier["failures"].as_u64().unwrap()), "{earlier}");
    assert_eq!(earlier["fault"]["fatal"], false, "{earlier}");
    let large = json(&data, &["explain", snapshot, "--min-size", "3GiB"]);
    assert!(large["chain"]["asked"].as_u64().unwrap() > 3 << 30, "{large}");
    for args in [&["whatif", "--model", "pytorch"][..], &["tune"]] {
        let args = [&args[..1], &[snapshot, "--to", "1000"], &args[1..]].concat();
        let part = json(&data, &args)["peak_reserved"].as_u64().unwrap();
        assert!(part < 10 << 30, "{args:?}: {part}");
    }
    let fit = json(&data, &["fit", snapshot, "--to", "1000"]);
    assert_eq!(fit["rows"][0]["advice"], "runs as it is", "{fit}");
    let same = json(&data, &["diff", snapshot, snapshot, "--from", "@step", "--to", "1000"]);
    assert_eq!(same["sites"].as_array().unwrap().len(), 0, "{same}");
    let mut command = Command::cargo_bin("terrane").unwrap();
    let args = ["explain", snapshot, "--min-size", "1000GiB", "--quiet"];
    let output = command.current_dir(&data).args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("none of 54 failed requests"));
}

#[test]
fn a_flight_recorder_writes_the_last_events_and_why() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/traces");
    let trace = traces.join("multistream.native.csv.gz").display().to_string();
    shown(dir, &["replay", &trace, "--record", "flight:last.terrane"]);
    assert!(!dir.join("last.terrane").exists(), "nothing went wrong");
    let failing = ["replay", &trace, "--capacity", "0.7x", "--record", "flight:last.terrane"];
    shown(dir, &failing);
    let info = json(dir, &["info", "last.terrane"]);
    let reason = info["files"][0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("out of memory: "), "{reason}");
    assert!(shown(dir, &["info", "last.terrane"]).contains("written because   out of memory"));
    let found = json(dir, &["explain", "last.terrane"]);
    assert!(found["failures"].as_u64().unwrap() > 0, "{found}");
    assert!(reason.contains(found["class"].as_str().unwrap()), "{reason}: {found}");
}

#[test]
fn what_is_advised_on_a_failure_of_our_own_is_replayed_and_serves_every_request() {
    use terrane_core::device::StreamSpec;
    use terrane_core::{Allocator, Config, Growth, Request};
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // Plain segments and no moves: every other block freed leaves holes that are too small.
    let device = terrane_core::device::sim::Sim::slabs().capacity(64 << 20).open().shared();
    let mut config = Config::for_device(device.caps());
    config.moves = false;
    config.growth = Growth::Proportional { min_bytes: 64 << 20, max_bytes: 64 << 20 };
    let alloc = Allocator::with_config(device.clone(), config).unwrap();
    let stream = device.create_stream(StreamSpec::default()).unwrap();
    let path = dir.join("own.terrane");
    let meta = terrane_trace::file::Meta::default();
    let recorder = terrane_trace::file::Recorder::attach(&alloc, &path, meta).unwrap();
    let ask = |mib: u64| alloc.alloc(&Request::new(mib << 20, stream));
    let blocks: Vec<_> = (0..16).map(|_| ask(4).unwrap()).collect();
    blocks.iter().step_by(2).for_each(|block| alloc.free(block.handle).unwrap());
    ask(8).unwrap_err();
    recorder.finish().unwrap();
    let found = json(dir, &["explain", "own.terrane"]);
    assert_eq!((&found["class"], &found["asked"]), (&"fragmentation".into(), &(8 << 20).into()));
    let served = found["served_by"].as_array().unwrap();
    assert!(!served.is_empty(), "{found}");
    for served in served {
        let command = served["command"].as_str().unwrap().replace("FILE", "own.terrane");
        let again = json(dir, &command.split(' ').skip(1).collect::<Vec<_>>());
        assert_eq!(again["failures"], 0, "{command}");
    }
    let text = shown(dir, &["explain", "own.terrane"]);
    assert!(text.contains("terrane serves every request"), "{text}");
}
