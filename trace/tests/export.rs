//! What is exported comes back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use terrane_core::event::MoveKind;
use terrane_trace::diagnose::{LeakOptions, SiteBy, leaks, peak_by};
use terrane_trace::export::{Encoding, csv, perfetto, pytorch, stacks};
use terrane_trace::recording::{Recording, open_recording, read_recording};
use terrane_trace::snapshot::{
    BlockState, Happened, Happening, Note, ReadOptions, SegmentKind, Snapshot, read_json_snapshot,
    read_snapshot,
};
use terrane_trace::{Limits, read_csv};

fn open(name: &str) -> Recording {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(name);
    open_recording(&path, &mut |_| ControlFlow::Continue(())).unwrap()
}

const SNAPSHOTS: [&str; 6] = [
    "snapshots/gpt2_varlen.frames.pickle.gz",
    "snapshots/leak_accumulating.frames.pickle.gz",
    "snapshots/leak_exponential.frames.pickle.gz",
    "snapshots/leak_fragmenting.frames.pickle.gz",
    "snapshots/multistream.frames.pickle.gz",
    "snapshots/unet_multires.oom.pickle.gz",
];

fn exported(recording: &Recording, encoding: Encoding) -> Vec<u8> {
    let mut bytes = Vec::new();
    pytorch(recording, encoding, &mut bytes).unwrap();
    bytes
}

fn read(bytes: &[u8], encoding: Encoding) -> Snapshot {
    let options = ReadOptions::default();
    let go = &mut |_| ControlFlow::Continue(());
    match encoding {
        Encoding::Pickle => read_snapshot(bytes, &options, go).unwrap(),
        Encoding::Json => read_json_snapshot(bytes, &options, go).unwrap(),
    }
}

/// Everything but the numbers of stacks and texts, which each reader gives anew.
fn assert_same(a: &Snapshot, b: &Snapshot) {
    let lines = |s: &Snapshot, stack| -> Vec<String> {
        Option::map_or_else(stack, Vec::new, |stack| s.stack_lines(stack))
    };
    assert_eq!(a.device_traces.len(), b.device_traces.len());
    for (a_trace, b_trace) in a.device_traces.iter().zip(&b.device_traces) {
        assert_eq!(a_trace.len(), b_trace.len());
        for (x, y) in a_trace.iter().zip(b_trace) {
            let same = (x.action, x.address, x.bytes, x.time_us)
                == (y.action, y.address, y.bytes, y.time_us);
            assert!(same && a.streams[x.stream as usize] == b.streams[y.stream as usize]);
            assert_eq!(lines(a, x.stack), lines(b, y.stack));
        }
    }
    assert_eq!(a.segments.len(), b.segments.len());
    for (x, y) in a.segments.iter().zip(&b.segments) {
        assert_eq!(
            (x.address, x.total_bytes, x.kind, x.pool),
            (y.address, y.total_bytes, y.kind, y.pool)
        );
        assert_eq!((x.allocated_bytes, x.active_bytes), (y.allocated_bytes, y.active_bytes));
        assert_eq!((x.requested_bytes, x.expandable), (y.requested_bytes, y.expandable));
        assert_eq!(x.blocks.len(), y.blocks.len());
        for (p, q) in x.blocks.iter().zip(&y.blocks) {
            assert_eq!((p.address, p.bytes, p.state), (q.address, q.bytes, q.state));
            assert_eq!(p.requested_bytes, q.requested_bytes);
            assert_eq!(lines(a, p.stack), lines(b, q.stack));
        }
    }
    assert_eq!(a.settings, b.settings);
    let notes = |s: &Snapshot| -> Vec<(String, u64)> {
        let annotations = s.annotations.iter();
        annotations.map(|a| (s.strings.get(a.name).to_owned(), a.time_us)).collect()
    };
    assert_eq!(notes(a), notes(b));
}

#[test]
fn a_snapshot_comes_back_from_a_pickle_and_from_json() {
    for name in SNAPSHOTS {
        let recording = open(name);
        for encoding in [Encoding::Pickle, Encoding::Json] {
            let bytes = exported(&recording, encoding);
            assert_same(&recording.snapshot, &read(&bytes, encoding));
        }
    }
}

#[test]
fn a_json_snapshot_is_read_packed_too_and_refused_with_its_place() {
    use std::io::Write as _;
    let recording = open(SNAPSHOTS[4]);
    let bytes = exported(&recording, Encoding::Json);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&bytes).unwrap();
    assert_same(&recording.snapshot, &read(&gzip.finish().unwrap(), Encoding::Json));
    let packed = zstd::bulk::compress(&bytes, 1).unwrap();
    assert_same(&recording.snapshot, &read(&packed, Encoding::Json));
    let go = &mut |_| ControlFlow::Continue(());
    for (text, reason) in [
        (&bytes[..bytes.len() / 2], "ends early"),
        (b"", "ends early"),
        (b"{\"segments\": [}", "column 15"),
        (b"{\"segments\": 7}", "no list"),
        (b"{\"device_traces\": [[{\"action\": 5}]]}", "trace entry"),
        (b"{} {}", "bytes follow"),
    ] {
        let error = read_json_snapshot(text, &ReadOptions::default(), go).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
    let deep = "[".repeat(100_000);
    assert!(read_json_snapshot(deep.as_bytes(), &ReadOptions::default(), go).is_err());
    let mut options = ReadOptions::default();
    options.limits.memory_bytes = 10_000;
    let error = read_json_snapshot(&bytes[..], &options, go).unwrap_err();
    assert!(error.to_string().contains("memory"), "{error}");
    let cancelled =
        read_json_snapshot(&bytes[..], &ReadOptions::default(), &mut |_| ControlFlow::Break(()));
    // A file with fewer values than are read between two questions is read to its end.
    assert!(cancelled.is_err() || bytes.len() < 1 << 20);
}

#[test]
fn a_workload_that_is_exported_as_a_snapshot_has_the_same_requests_and_peak() {
    let recording = open("traces/resnet50_amp.native.csv.gz");
    let bytes = exported(&recording, Encoding::Pickle);
    let snapshot = read(&bytes, Encoding::Pickle);
    let history = snapshot.history(0).unwrap().unwrap();
    let (found, expected) = (&history.trace, &recording.histories[0].trace);
    assert_eq!(found.figures().peak_requested, expected.figures().peak_requested);
    assert_eq!(found.events().len(), expected.events().len());
    // Segments are those of PyTorch's rules, which reserve what was recorded.
    let line = terrane_trace::diagnose::timeline(&snapshot, &history, 1);
    assert_eq!(line.peak_reserved, 7_295_991_808);
    assert_eq!(line.reserved_at_start, 0);
}

#[test]
fn a_workload_comes_back_from_csv() {
    for name in ["snapshots/multistream.frames.pickle.gz", "traces/resnet50_amp.native.csv.gz"] {
        let recording = open(name);
        let mut bytes = Vec::new();
        csv(&recording.histories[0].trace, &mut bytes).unwrap();
        let again = read_csv(&bytes[..], Limits::default()).unwrap();
        assert_eq!(again.events(), recording.histories[0].trace.events(), "{name}");
    }
}

#[test]
fn collapsed_stacks_add_up_to_what_is_live() {
    let recording = open(SNAPSHOTS[1]);
    let history = &recording.histories[0];
    let at_peak = peak_by(&recording.snapshot, history, SiteBy::Top);
    let mut bytes = Vec::new();
    stacks(&recording.snapshot, history, at_peak.event as usize, &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let sum: u64 =
        text.lines().map(|l| l.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
    assert_eq!(sum, at_peak.bytes);
    assert!(text.contains("<module>;"), "outermost first: {text}");
}

#[test]
fn the_perfetto_trace_is_json_with_every_block_and_the_right_peak() {
    let recording = open(SNAPSHOTS[4]);
    let history = &recording.histories[0];
    let mut bytes = Vec::new();
    perfetto(&recording.snapshot, &[history], &mut bytes).unwrap();
    let found: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let events = found["traceEvents"].as_array().unwrap();
    let count = |phase: &str| events.iter().filter(|e| e["ph"] == phase).count();
    assert_eq!(count("b"), history.trace.block_count() as usize);
    assert_eq!((count("b"), count("s")), (count("e"), count("f")));
    assert!(count("s") > 0, "other streams used blocks after their free");
    let peak = events.iter().filter_map(|e| e["args"]["in use"].as_u64()).max().unwrap();
    assert!(peak <= history.trace.figures().peak_requested);
    let oom = open(SNAPSHOTS[5]);
    let mut bytes = Vec::new();
    perfetto(&oom.snapshot, &[&oom.histories[0]], &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text.matches("\"out of memory\"").count(), 54);
}

/// Everything that a snapshot can hold: page-locked memory, every action, blocks that wait, numbers
/// of every length, long texts, and what no file needs to have left out.
fn everything() -> Recording {
    let actions = [
        "alloc",
        "free_requested",
        "free_completed",
        "segment_alloc",
        "segment_free",
        "segment_map",
        "segment_unmap",
        "snapshot",
        "oom",
        "annotate",
        "of tomorrow",
    ];
    let long = "x".repeat(300);
    let entry = |(at, action): (usize, &&str)| {
        let place = if *action == "oom" { "device_free" } else { "addr" };
        let frames: Vec<_> = (0..at)
            .map(|line| serde_json::json!({"filename": long, "name": "f", "line": line}))
            .collect();
        serde_json::json!({
            "action": action, place: u64::MAX >> (6 * at), "size": 1_u64 << (5 * at),
            "stream": 7 * (at % 3), "time_us": 1_700_000_000_000_000_u64 + at as u64,
            "frames": frames, "compile_context": "1/0", "user_metadata": format!("note {at}"),
        })
    };
    let trace: Vec<_> = actions.iter().enumerate().map(entry).collect();
    let block = |at: u64, state: &str| {
        serde_json::json!({
            "address": (1_u64 << 40) + 512 * at, "size": 512, "requested_size": 500 + at,
            "state": state, "frames": [],
        })
    };
    let states = ["active_allocated", "active_pending_free", "inactive"];
    let blocks: Vec<_> = (0..).zip(states).map(|(at, state)| block(at, state)).collect();
    let segment = |kind: serde_json::Value, expandable: bool| {
        serde_json::json!({
            "device": 3, "address": 1_u64 << 40, "total_size": 1536, "allocated_size": 512,
            "active_size": 1024, "stream": 14, "segment_type": kind, "segment_pool_id": [0, 9],
            "is_expandable": expandable, "frames": [], "blocks": blocks,
        })
    };
    let whole = serde_json::json!({
        "segments": [segment("small".into(), false), segment("large".into(), true)],
        "device_traces": [[], trace],
        "host_segments": [segment(serde_json::Value::Null, false)],
        "host_traces": [trace[..4]],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64", "expandable_segments": true,
            "max_split_size": 64_u64 << 20,
        },
        "external_annotations": [
            {"name": "step", "stage": "START", "device": 1, "time_us": 1_700_000_000_000_000_u64},
            {"name": long, "time_us": 5},
            {"name": "without a time"},
        ],
    });
    let text = serde_json::to_vec(&whole).unwrap();
    let go = &mut |_| ControlFlow::Continue(());
    read_recording(&text, &ReadOptions::default(), go).unwrap()
}

/// Page-locked memory stands where the device's does, so that it is compared.
fn host_only(snapshot: &Snapshot) -> Snapshot {
    let mut host = snapshot.clone();
    host.segments = std::mem::take(&mut host.host_segments);
    host.device_traces = std::mem::take(&mut host.host_traces);
    host
}

#[test]
fn all_that_a_snapshot_can_hold_comes_back() {
    let recording = everything();
    let snapshot = &recording.snapshot;
    assert_eq!(snapshot.notes, [Note::AnnotationsLeftOut(1), Note::UnknownActions(1)]);
    assert_eq!((snapshot.host_segments.len(), snapshot.host_traces[0].len()), (1, 4));
    assert_eq!(snapshot.settings.max_split_bytes, Some(64 << 20));
    let states: Vec<BlockState> =
        snapshot.segments[0].blocks.iter().map(|block| block.state).collect();
    let expected = [BlockState::Allocated, BlockState::PendingFree, BlockState::Inactive];
    assert_eq!(states, expected);
    for encoding in [Encoding::Pickle, Encoding::Json] {
        let again = read(&exported(&recording, encoding), encoding);
        assert_same(snapshot, &again);
        assert_same(&host_only(snapshot), &host_only(&again));
        assert_eq!(again.host_segments[0].kind, SegmentKind::Unknown);
        let texts = |snapshot: &Snapshot| -> Vec<[String; 2]> {
            let entries = snapshot.device_traces.iter().flatten();
            let text = |text: Option<_>| snapshot.strings.get(text.unwrap()).to_owned();
            entries.map(|entry| [text(entry.metadata), text(entry.compile_context)]).collect()
        };
        assert_eq!(texts(snapshot), texts(&again));
        // The annotation without a time was not read, so it is not written.
        assert_eq!(again.notes, [Note::UnknownActions(1)]);
    }
}

#[test]
fn what_happens_in_our_allocator_has_a_name_in_the_lane_of_its_stream() {
    let mut recording = open("traces/resnet50_amp.native.csv.gz");
    let happenings = [
        (Happened::MoveSubmitted(MoveKind::Untold), "moves"),
        (Happened::MoveSubmitted(MoveKind::Copy), "moves by copy"),
        (Happened::MoveSubmitted(MoveKind::Slide), "moves by sliding"),
        (Happened::MoveSubmitted(MoveKind::Remap), "moves by remapping"),
        (Happened::MoveSubmitted(MoveKind::Rebind), "stays, on other memory"),
        (Happened::MoveCommitted, "moved"),
        (Happened::MoveCancelled, "move cancelled"),
        (Happened::MoveDropped, "freed while it moved"),
        (Happened::MoveCorrupt, "move: the copy differs"),
        (Happened::MoveRefused { why: 1, blocks: 2 }, "not moved"),
        (Happened::PassEnd(3), "pass of moves ends"),
        (Happened::LimitSet, "limit set"),
        (Happened::Damage, "damage: written where nobody may"),
        (Happened::Lost(4), "events were lost"),
        (Happened::Submitted(5), "work submitted"),
        // No business of any lane, or shown by the flows of the blocks.
        (Happened::MappingStale, ""),
        (Happened::MappingGone, ""),
        (Happened::Reached(6), ""),
        (Happened::Hold(3), ""),
        (Happened::PassGoal { number: 1, kind: 1, background: false }, "pass of moves begins"),
        (Happened::PassLimits { moves: 1, ticks: 2 }, ""),
        (Happened::FreeWaits { behind: 1, value: 7 }, ""),
    ];
    let history = &mut recording.histories[0];
    let one = |(at, (what, _)): (u64, &(Happened, &str))| Happening {
        before_event: 0,
        time_us: at,
        what: *what,
        stream: 0,
        bytes: 100 + at,
        block: None,
        address: 0,
    };
    history.happenings = (0..).zip(&happenings).map(one).collect();
    let mut bytes = Vec::new();
    perfetto(&recording.snapshot, &[&recording.histories[0]], &mut bytes).unwrap();
    let found: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let events = found["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "i");
    let events = events.map(|e| (e["name"].as_str(), e["ts"].as_u64(), e["tid"].as_u64()));
    let named = (0..).zip(happenings).filter(|(_, (_, name))| !name.is_empty());
    let expected = named.map(|(at, (_, name))| (Some(name), Some(at), Some(1)));
    assert_eq!(events.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
}

/// A recording of our own: a block that moves, one that is freed while it moves, and a request
/// that waits for another stream.
fn with_moves() -> Recording {
    use terrane_core::event::{Event, EventKind};
    use terrane_trace::file::{HeapState, Meta, TraceWriter};
    let event = |kind| Event::new(kind).b(1 << 20);
    let block = |handle| event(EventKind::Alloc).handle(handle).a(1000).on(2, 0);
    let mut events = vec![
        event(EventKind::SegmentEnd),
        block(1),
        block(2),
        event(EventKind::MoveSubmitted).handle(1).c(4096),
        event(EventKind::MoveSubmitted).handle(2).c(8192),
        event(EventKind::MoveCommitted).handle(1),
        event(EventKind::FreeRequested).handle(2),
        event(EventKind::MoveDropped).handle(2),
        Event::new(EventKind::Wait).a(77).c(3).on(2, 0),
        event(EventKind::Alloc).handle(3).a(1000).on(3, 0),
        event(EventKind::OutOfMemory).a(1 << 30).on(3, 0),
    ];
    for (number, event) in (1..).zip(&mut events) {
        (event.sequence, event.time_ns) = (number, 1000 * number);
    }
    let mut writer = TraceWriter::new(Vec::new(), &Meta::default()).unwrap();
    writer.keyframe(&HeapState::default()).unwrap();
    writer.events(&events).unwrap();
    let folder = std::env::temp_dir().join(format!("terrane-moves-{}", std::process::id()));
    std::fs::write(&folder, writer.finish().unwrap()).unwrap();
    let recording = open_recording(&folder, &mut |_| ControlFlow::Continue(())).unwrap();
    std::fs::remove_file(&folder).unwrap();
    recording
}

#[test]
fn moves_are_instants_and_waits_are_flows_between_the_lanes_of_their_streams() {
    let recording = with_moves();
    let mut bytes = Vec::new();
    perfetto(&recording.snapshot, &[&recording.histories[0]], &mut bytes).unwrap();
    let found: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let events = found["traceEvents"].as_array().unwrap();
    let instants: Vec<(&str, u64, u64)> = events
        .iter()
        .filter(|event| event["ph"] == "i")
        .map(|event| {
            let number = |key: &str| event[key].as_u64().unwrap();
            (event["name"].as_str().unwrap(), number("tid"), number("ts"))
        })
        .collect();
    let expected = [
        ("out of memory", 4, 9),
        ("moves", 3, 3),
        ("moves", 3, 4),
        ("moved", 3, 5),
        ("freed while it moved", 3, 7),
    ];
    assert_eq!(instants, expected);
    let flows = events.iter().filter(|event| event["name"] == "waits for a stream");
    let lanes: Vec<_> = flows.map(|event| (event["ph"].as_str(), event["tid"].as_u64())).collect();
    assert_eq!(lanes, [(Some("s"), Some(3)), (Some("f"), Some(4))]);
}

#[test]
fn redaction_leaves_no_name_and_the_same_findings() {
    for name in SNAPSHOTS {
        let plain = open(name);
        let mut redacted = open(name);
        redacted.redact();
        let bytes = exported(&redacted, Encoding::Pickle);
        let text = String::from_utf8_lossy(&bytes);
        for word in ["workloads", "forward", "group_norm", "torch/nn", "_conv"] {
            assert!(!text.contains(word), "{name}: {word}");
        }
        let find = |recording: &Recording| {
            let history = &recording.histories[0];
            let found = leaks(&recording.snapshot, history, LeakOptions::default());
            let sites = peak_by(&recording.snapshot, history, SiteBy::User);
            let rows: Vec<(u64, u64)> = sites.rows.iter().map(|r| (r.bytes, r.blocks)).collect();
            (found.verdict, rows, sites.bytes_without_frames)
        };
        assert_eq!(find(&plain), find(&redacted), "{name}");
    }
}

/// Runs a Python program over a file given on its input stream; `None` without Python.
fn python(program: &str, args: &[&str]) -> Option<std::process::Output> {
    let mut command = Command::new("python3");
    let child = command.args(["-c", program]).args(args).stdin(Stdio::null());
    child.output().ok()
}

#[test]
fn cpython_reads_what_is_written_and_what_it_writes_is_read() {
    let folder = std::env::temp_dir().join(format!("terrane-python-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    let recording = open(SNAPSHOTS[4]);
    for (name, encoding) in [("a.pickle", Encoding::Pickle), ("a.json", Encoding::Json)] {
        std::fs::write(path(name), exported(&recording, encoding)).unwrap();
    }
    // Equal to the JSON, frames shared, and written again in every protocol.
    let program = "\
import json, pickle, sys
a = pickle.load(open(sys.argv[1], 'rb'))
assert json.loads(json.dumps(a)) == json.load(open(sys.argv[2])), 'they differ'
frames = [e['frames'] for e in a['device_traces'][0] if e['frames']]
assert len({id(f) for f in frames}) == len({json.dumps(f) for f in frames}), 'not shared'
for protocol in (2, 3, 4, 5):
    pickle.dump(a, open(f'{sys.argv[1]}.{protocol}', 'wb'), protocol)
";
    if let Some(output) = python(program, &[&path("a.pickle"), &path("a.json")]) {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for protocol in 2..=5 {
            let bytes = std::fs::read(path(&format!("a.pickle.{protocol}"))).unwrap();
            assert_same(&recording.snapshot, &read(&bytes, Encoding::Pickle));
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
