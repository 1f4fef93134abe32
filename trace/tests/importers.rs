//! Logs and dumps of other allocators.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{Cursor, Write};
use std::ops::ControlFlow;
use terrane_trace::import::{DumpError, DumpSource, read_dump, read_rmm};
use terrane_trace::pickle::{PickleError, PickleReason};
use terrane_trace::recording::read_recording;
use terrane_trace::snapshot::{Action, ReadOptions, Snapshot, read_snapshot};
use terrane_trace::{Limits, Reason};

const RMM: &str = "\
Thread,Time,Action,Pointer,Size,Stream
1,23:59:59.999000,allocate,0x7f00,1024,0x0
1,23:59:59.999500,allocate,0x9000,64,0x5581
2,00:00:00.000100,free,0x7f00,1024,0x5581
2,00:00:00.000200,free,0xdead,8,0x0
2,00:00:00.000300,allocate failure,(nil),999999,0x5581
2,00:00:00.000400,allocate,0x7f00,2048,0
";

#[test]
fn an_rmm_log_becomes_a_trace_over_midnight() {
    let log = read_rmm(RMM.as_bytes(), Limits::default()).unwrap();
    let figures = log.trace.figures();
    assert_eq!((figures.events, figures.blocks, figures.peak_requested), (5, 3, 2112));
    assert_eq!(log.streams, [0, 0x5581]);
    assert_eq!(log.failures, [(4, 999_999, 1)]);
    assert_eq!(log.frees_of_earlier_blocks, 1);
    assert_eq!(figures.recorded_us, 1400);
}

#[test]
fn bad_rmm_logs_name_line_and_reason() {
    let reason = |text: &str| {
        let error = read_rmm(text.as_bytes(), Limits::default()).unwrap_err();
        (error.line, error.reason)
    };
    let row = |row: &str| reason(&format!("Thread,Time,Action,Pointer,Size,Stream\n{row}\n"));
    assert_eq!(reason(""), (1, Reason::Empty));
    assert_eq!(reason("a,b\n"), (1, Reason::RmmHeader));
    assert_eq!(row("1,2,3"), (2, Reason::RmmColumns { found: 3 }));
    assert!(matches!(row("1,1:2:3.4,reallocate,0x1,1,0"), (2, Reason::UnknownOp)));
    assert!(matches!(row("1,25:00:00.0,free,0x1,1,0"), (2, Reason::NotANumber(_))));
    assert!(matches!(row("1,01:00:00.0,free,0xzz,1,0"), (2, Reason::NotANumber(_))));
    assert!(matches!(row("1,01:00:00.0,allocate,0x1,0,0"), (2, Reason::ZeroSize { .. })));
    assert_eq!(row("1,01:00:00.0,free,0x1,1,0"), (3, Reason::NoEvents));
}

const VMA: &str = r#"{
  "General": {"API": "Vulkan", "apiVersion": "1.3"},
  "Total": {"BlockCount": 1},
  "DefaultPools": {"Type 0": {
    "PreferredBlockSize": 268435456,
    "Blocks": {"0": {
      "MapRefCount": 0, "TotalBytes": 33554432, "UnusedBytes": 33553408,
      "Allocations": 2, "UnusedRanges": 1,
      "Suballocations": [
        {"Offset": 0, "Type": "BUFFER", "Size": 512, "Usage": 130, "Name": "vertices"},
        {"Offset": 512, "Type": "IMAGE_OPTIMAL", "Size": 512},
        {"Offset": 1024, "Type": "FREE", "Size": 33553408}]}},
    "DedicatedAllocations": [{"Type": "BUFFER", "Size": 1000000, "Name": "huge"}]}},
  "CustomPools": {"Type 1": [{"Name": "mine", "Flags": [], "Blocks": {
      "7": {"TotalBytes": 4096, "Suballocations": [{"Offset": 0, "Type": "FREE", "Size": 4096}]}}}]}
}"#;

#[test]
fn a_vma_dump_lists_its_blocks_and_ranges() {
    let dump = read_dump(VMA.as_bytes()).unwrap();
    assert_eq!(dump.source, DumpSource::Vma);
    assert_eq!(dump.allocated_bytes, 1_001_024);
    assert_eq!(dump.reserved_bytes, 33_554_432 + 1_000_000 + 4096);
    let block = &dump.blocks[0];
    assert_eq!((block.pool.as_str(), block.ranges.len()), ("DefaultPools/Type 0", 3));
    assert_eq!(block.ranges[0].name.as_deref(), Some("vertices"));
    assert!(block.ranges[2].is_free());
    assert!(dump.blocks[1].dedicated);
    assert_eq!(dump.blocks[2].pool, "CustomPools/Type 1/mine");
}

#[test]
fn a_d3d12ma_dump_is_told_apart_and_read() {
    let text = r#"{"General": {"API": "Direct3D 12", "GPU": "x"},
        "DefaultPools": {"DEFAULT": {"BUFFER": {"PreferredBlockSize": 67108864, "Blocks": {
          "0": {"TotalBytes": 8388608, "Suballocations": [
            {"Offset": 0, "Type": "BUFFER", "Size": 65536},
            {"Offset": 65536, "Type": "FREE", "Size": 8323072}]}}}}}}"#;
    let dump = read_dump(text.as_bytes()).unwrap();
    assert_eq!((dump.source, dump.allocated_bytes), (DumpSource::D3d12ma, 65536));
    assert_eq!(dump.blocks[0].pool, "DefaultPools/DEFAULT/BUFFER");
}

#[test]
fn a_report_of_gpu_allocator_has_its_allocations_and_what_lies_between_them() {
    let text = r#"{"format": "gpu-allocator report", "version": 1,
        "total_allocated_bytes": 5120, "total_reserved_bytes": 12288,
        "blocks": [
            {"size": 8192, "allocations": [
                {"name": "b", "offset": 4096, "size": 512}, {"name": "", "offset": 256, "size": 512}]},
            {"size": 4096, "allocations": [{"name": "own", "offset": 0, "size": 4096}]}]}"#;
    let dump = read_dump(text.as_bytes()).unwrap();
    assert_eq!((dump.source, dump.allocated_bytes), (DumpSource::GpuAllocator, 5120));
    let ranges: Vec<_> = dump.blocks[0].ranges.iter().map(|r| (r.offset, r.bytes)).collect();
    assert_eq!(ranges, [(0, 256), (256, 512), (768, 3328), (4096, 512), (4608, 3584)]);
    let free = dump.blocks[0].ranges.iter().filter(|range| range.is_free());
    assert_eq!(free.map(|range| range.bytes).sum::<u64>(), 8192 - 1024);
    assert_eq!((dump.blocks[0].dedicated, dump.blocks[1].dedicated), (false, true));
    let wgpu = text.replace("gpu-allocator report", "wgpu report");
    assert_eq!(read_dump(wgpu.as_bytes()).unwrap().source, DumpSource::Wgpu);
    for (from, to) in [
        ("\"offset\": 256", "\"offset\": 4000"),
        ("\"size\": 8192", "\"size\": 4000"),
        ("\"offset\": 256", "\"offset\": 18446744073709551615"),
        ("\"version\": 1", "\"version\": 2"),
    ] {
        let error = read_dump(text.replace(from, to).as_bytes()).unwrap_err();
        assert!(matches!(error, DumpError::Shape(_)), "{to}: {error}");
    }
    assert!(matches!(read_dump(text.replace("8192", "\"x\"").as_bytes()), Err(DumpError::Json(_))));
}

#[test]
fn bad_dumps_are_refused_with_a_reason() {
    for text in ["", "{", "[]", "{}", "3", r#"{"General":{"API":"Metal"}}"#] {
        assert!(read_dump(text.as_bytes()).is_err(), "{text}");
    }
    let no_size = r#"{"DefaultPools":{"Type 0":{"Blocks":{"0":{}}}}}"#;
    assert!(matches!(read_dump(no_size.as_bytes()), Err(DumpError::Shape(_))));
    let deep =
        format!(r#"{{"DefaultPools":{}1{}}}"#, r#"{"a":"#.repeat(10_000), "}".repeat(10_000));
    assert!(matches!(read_dump(deep.as_bytes()), Err(DumpError::Json(_))));
    for cut in 0..VMA.len() {
        assert!(read_dump(&VMA.as_bytes()[..cut]).is_err(), "cut at {cut}");
    }
}

/// A small snapshot: one segment, one block, one entry with one frame, a stream beyond 2^63.
fn pickle() -> Vec<u8> {
    let text = |s: &str| [&[0x8c, s.len() as u8], s.as_bytes()].concat();
    let int = |n: u8| vec![b'K', n];
    let far = b"\x8a\x09\x00\x10\x00\x00\x00\x00\x00\xf0\x00".to_vec();
    let dict = |pairs: &[(&str, Vec<u8>)]| {
        let items: Vec<u8> =
            pairs.iter().flat_map(|(k, v)| [text(k), v.clone()].concat()).collect();
        [&b"}("[..], &items, b"u"].concat()
    };
    let list = |items: &[Vec<u8>]| [&b"]("[..], &items.concat(), b"e"].concat();
    let frame = dict(&[("filename", text("a.py")), ("name", text("f")), ("line", int(3))]);
    let block = dict(&[("size", int(200)), ("state", text("active_awaiting_free"))]);
    let segment = dict(&[
        ("address", far.clone()),
        ("total_size", int(200)),
        ("stream", far.clone()),
        ("blocks", list(&[block])),
    ]);
    let entry = dict(&[
        ("action", text("alloc")),
        ("addr", far.clone()),
        ("size", int(100)),
        ("stream", far),
        ("frames", list(&[frame])),
    ]);
    let root = dict(&[("segments", list(&[segment])), ("device_traces", list(&[list(&[entry])]))]);
    [&b"\x80\x04"[..], &root, b"."].concat()
}

fn read(bytes: &[u8]) -> Result<Snapshot, PickleError> {
    let options = ReadOptions::default();
    read_snapshot(Cursor::new(bytes), &options, &mut |_| ControlFlow::Continue(()))
}

fn check(snapshot: &Snapshot) {
    let entry = snapshot.device_traces[0][0];
    assert_eq!(
        (entry.action, entry.address, entry.bytes),
        (Action::Alloc, 0xf000_0000_0000_1000, 100)
    );
    assert_eq!(snapshot.streams, [0, 0xf000_0000_0000_1000]);
    assert_eq!(snapshot.segments[0].blocks[0].address, 0xf000_0000_0000_1000);
    let stack = snapshot.stacks.get(entry.stack.unwrap());
    let frame = snapshot.stacks.frame(stack[0]).unwrap();
    assert_eq!((snapshot.strings.get(frame.name), frame.line), ("f", 3));
    assert!(!snapshot.notes.is_empty(), "no times and no block addresses");
}

fn zip(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, data) in members {
        bytes.extend(b"PK\x03\x04\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00");
        bytes.extend((data.len() as u32).to_le_bytes());
        bytes.extend((data.len() as u32).to_le_bytes());
        bytes.extend((name.len() as u16).to_le_bytes());
        bytes.extend(4u16.to_le_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend(b"FB\x00\x00");
        bytes.extend(*data);
    }
    bytes.extend(b"PK\x01\x02 and so on, a central directory follows");
    bytes
}

#[test]
fn a_snapshot_is_read_plain_packed_and_from_an_archive() {
    let plain = pickle();
    check(&read(&plain).unwrap());
    check(&read(&zstd::encode_all(&plain[..], 3).unwrap()).unwrap());
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&plain).unwrap();
    check(&read(&gz.finish().unwrap()).unwrap());
    check(&read(&zip(&[("archive/data.pkl", &plain)])).unwrap());
    check(&read(&zip(&[("archive/version", b"3"), ("archive/data.pkl", &plain)])).unwrap());
    let none = read(&zip(&[("archive/version", b"3")])).unwrap_err();
    assert!(matches!(none.reason, PickleReason::Shape(_)), "{none}");
}

#[test]
fn a_snapshot_cut_anywhere_or_damaged_never_panics_and_says_where() {
    let plain = pickle();
    for packed in
        [plain.clone(), zstd::encode_all(&plain[..], 3).unwrap(), zip(&[("data.pkl", &plain)])]
    {
        for cut in 0..packed.len() {
            // An archive may end anywhere after the member that is read.
            if let Err(error) = read(&packed[..cut]) {
                assert!(error.offset <= plain.len() as u64, "cut at {cut}: {error}");
            }
        }
    }
    for cut in 0..plain.len() {
        assert!(read(&plain[..cut]).is_err(), "cut at {cut}");
    }
    for at in 0..plain.len() {
        for bit in 0..8 {
            let mut damaged = plain.clone();
            damaged[at] ^= 1 << bit;
            _ = read(&damaged);
        }
    }
}

#[test]
fn data_of_another_shape_is_refused_with_its_offset() {
    for (body, what) in [
        (&b"N"[..], "a dictionary is missing"),
        (b"}", "it has neither `segments` nor `device_traces`"),
        (b"}\x8c\x08segmentsK\x01s", "`segments` is no list"),
        (b"}\x8c\x08segments]K\x01as", "a dictionary is missing"),
        (b"}\x8c\x0ddevice_traces]]K\x01aas", "a trace entry has a wrong type or no `action`"),
    ] {
        let error = read(&[b"\x80\x04", body, b"."].concat()).unwrap_err();
        assert_eq!(error.reason, PickleReason::Shape(what), "{body:?}");
        assert!(error.offset as usize <= body.len() + 2);
    }
}

#[test]
fn a_history_whose_oldest_entries_were_overwritten_is_flagged() {
    let history = |entries: usize| {
        let one = |at: usize| {
            // The first frees a block that the history does not allocate.
            let (action, block) =
                if at.is_multiple_of(2) { ("free", at) } else { ("alloc", at + 1) };
            let of = |action: &str| {
                let address = 0x7000_0000 + 512 * block;
                format!(r#"{{"action": "{action}", "addr": {address}, "size": 512, "stream": 0}}"#)
            };
            if action == "free" { of("free_completed") } else { of("alloc") }
        };
        let list: Vec<String> = (0..entries).map(one).collect();
        let text = format!(r#"{{"segments": [], "device_traces": [[{}]]}}"#, list.join(", "));
        let go = &mut |_| ControlFlow::Continue(());
        read_recording(text.as_bytes(), &ReadOptions::default(), go).unwrap().lacks
    };
    let flagged = |lacks: &[String]| lacks.iter().any(|lack| lack.contains("overwritten"));
    let full = history(3000);
    assert!(flagged(&full), "{full:?}");
    assert!(full.iter().any(|lack| lack.contains("from before")), "{full:?}");
    let late = history(2999);
    assert!(!flagged(&late), "{late:?}");
}
