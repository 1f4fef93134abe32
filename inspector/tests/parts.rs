//! Ranges and filters: every command looks at the part of a recording that it is asked about.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod program;

use program::{OOM, json, run, snapshot, text};

#[test]
fn info_says_how_many_blocks_were_moved_and_by_what_means() {
    use terrane_core::event::{Event, EventKind, MoveKind};
    use terrane_trace::file::{HeapState, Meta, TraceWriter};
    let block = |kind, handle, at| Event::new(kind).handle(handle).a(1024).b(1024).c(at);
    let moved = |handle, at| block(EventKind::MoveSubmitted, handle, at).a(0);
    let mut events = vec![
        Event::new(EventKind::SegmentEnd).b(1 << 20),
        block(EventKind::Alloc, 1, 2048),
        block(EventKind::Alloc, 2, 8192),
        moved(1, 0).by(MoveKind::Slide),
        moved(2, 4096).by(MoveKind::Remap),
        moved(1, 1024).by(MoveKind::Remap),
    ];
    (1..).zip(&mut events).for_each(|(number, event)| event.sequence = number);
    let mut writer = TraceWriter::new(Vec::new(), &Meta::default()).unwrap();
    writer.keyframe(&HeapState::default()).unwrap();
    writer.events(&events).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("moved.terrane");
    std::fs::write(&path, writer.finish().unwrap()).unwrap();
    let path = path.display().to_string();
    let told = json(&["info", &path])["files"][0]["devices"][0]["moves"].clone();
    let expected = serde_json::json!([
        { "how": "slid", "blocks": 1, "bytes": 1024 },
        { "how": "remapped", "blocks": 2, "bytes": 2048 },
    ]);
    assert_eq!(told, expected);
    let shown = text(&run(&["info", &path]).stdout);
    assert!(shown.contains("1 block slid (1 KiB), 2 blocks remapped (2 KiB)"), "{shown}");
}

#[test]
fn every_command_on_a_file_takes_ranges_and_filters_or_says_why_not() {
    let file = snapshot("multistream");
    let dir = tempfile::tempdir().unwrap();
    let out = |name: &str| dir.path().join(name).display().to_string();
    let (html, csv, perfetto) = (out("a.html"), out("a.csv"), out("a.perfetto"));
    let commands: [&[&str]; 13] = [
        &["info", &file],
        &["peak", &file],
        &["sites", &file],
        &["timeline", &file],
        &["diff", &file, &file],
        &["leaks", &file],
        &["why", &file, "0"],
        &["whatif", &file, "--model", "pytorch"],
        &["tune", &file],
        &["fit", &file],
        &["check", &file, "--max-failures", "0"],
        &["export", &file, "--format", "csv", "-o", &csv],
        &["report", &file, "-o", &html],
    ];
    let part = ["--from", "10ms", "--to", "2000", "--device", "0", "--min-size", "1KiB"];
    for command in commands {
        let found = json(&[command, &part].concat());
        assert!(found.is_object(), "{command:?}");
        let output = run(&[command, &["--device", "7"]].concat());
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        assert!(text(&output.stderr).contains("device 7"), "{command:?}");
        let output = run(&[command, &["--from", "@no such"]].concat());
        assert_eq!(output.status.code(), Some(2), "{command:?}");
        assert!(text(&output.stderr).contains("annotation"), "{command:?}");
    }
    assert!(std::fs::metadata(&csv).unwrap().len() > 1000);
    json(&[&["export", &file, "--format", "perfetto", "-o", &perfetto][..], &part].concat());
    let whole = json(&["info", &file]);
    let some = json(&["info", &file, "--stream", "0", "--min-size", "1MiB", "--to", "1000"]);
    let events = |info: &serde_json::Value| info["files"][0]["devices"][0]["events"].as_u64();
    assert!(events(&some) < Some(1001) && events(&some) < events(&whole), "{some}");
    assert!(some["files"][0]["moment"].is_null());
    for (args, hint) in [
        (&["export", &file, "--format", "pytorch", "-o", &csv, "--to", "9"][..], "exported whole"),
        (&["export", &file, "--format", "csv", "-o", "-", "--json"], "--output"),
        (&["explain", "-", "--to", "9"], "one request"),
        (&["explain", "-", "--device", "0"], "one request"),
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(hint), "{args:?}: {}", text(&output.stderr));
    }
}

#[test]
fn of_blocks_that_shared_an_address_the_one_in_the_range_is_meant() {
    let file = snapshot("multistream");
    // The address of a block that others had too.
    let blocks = (0..400).map(|block| json(&["why", &file, &block.to_string()]));
    let shared = blocks.into_iter().find(|block| block["others_at_address"].as_u64() > Some(0));
    let shared = shared.unwrap();
    let address = format!("{:#x}", shared["address"].as_u64().unwrap());
    let born = shared["allocated"]["event"].as_u64().unwrap();
    let last = json(&["why", &file, &address]);
    assert_ne!(last["block"], shared["block"]);
    let then = json(&["why", &file, &address, "--to", &(born + 1).to_string()]);
    assert_eq!(then, shared);
    let output = run(&["why", &file, &shared["block"].to_string(), "--min-size", "64GiB"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("not one in the range"), "{}", text(&output.stderr));
}

#[test]
fn a_part_has_the_failures_in_it_and_ends_where_the_run_did_not() {
    let device = |args: &[&str]| {
        let found = json(&[&["info", OOM], args].concat());
        found["files"][0]["devices"][0].clone()
    };
    let whole = device(&[]);
    assert_eq!(whole["failures"], 54);
    let early = device(&["--to", "9000"]);
    assert!(early["failures"].as_u64() < Some(54) && early["failed_bytes"].is_null(), "{early}");
    let late = device(&["--from", "9000"]);
    let sum = early["failures"].as_u64().unwrap() + late["failures"].as_u64().unwrap();
    assert_eq!(sum, 54, "{early} {late}");
    assert_eq!(late["failed_bytes"], whole["failed_bytes"]);
    assert_eq!(device(&["--max-size", "1MiB"])["failures"], 0);
}

#[test]
fn parts_are_ranges_and_filters() {
    let file = snapshot("multistream");
    let whole = json(&["peak", &file]);
    let early = json(&["peak", &file, "--to", "900"]);
    assert!(early["bytes"].as_u64() < whole["bytes"].as_u64());
    let by_time = json(&["peak", &file, "--to", "200ms"]);
    assert_eq!(by_time["bytes"], json(&["peak", &file, "--to", "944"])["bytes"]);
    // Live bytes at a moment do not depend on where the part begins.
    let args = ["sites", &file, "--at", "end", "--to", "1500"];
    let from = json(&[&args[..], &["--from", "1000"]].concat());
    assert_eq!(from["bytes"], json(&args)["bytes"]);
    let streams: u64 = ["0", "1", "2", "3"]
        .iter()
        .filter_map(|stream| {
            let output = run(&[&args[..], &["--stream", stream, "--json"]].concat());
            let found: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
            found["bytes"].as_u64()
        })
        .sum();
    assert_eq!(json(&args)["bytes"], streams);
    let site = json(&["sites", &file, "--site", "workloads.py:131"]);
    assert!(site["rows"].as_array().unwrap().len() == 1, "{site}");
    for (bad, hint) in [
        (&["--from", "yesterday"][..], "@name"),
        (&["--from", "900", "--to", "100"], "empty"),
        (&["--from", "@no such"], "annotation"),
        (&["--site", "no such file"], "filters"),
        (&["--device", "7"], "device 7"),
    ] {
        let output = run(&[&["peak", &file][..], bad].concat());
        assert_eq!(output.status.code(), Some(2), "{bad:?}");
        assert!(text(&output.stderr).contains(hint), "{bad:?}: {}", text(&output.stderr));
    }
}
