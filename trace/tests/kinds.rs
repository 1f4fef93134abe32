//! Every kind of file, opened from the disk, read from memory, plain and packed.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use terrane_core::device::sim::Sim;
use terrane_core::device::{Device, StreamSpec};
use terrane_core::{Allocator, Request};
use terrane_trace::export::{Encoding, pytorch};
use terrane_trace::file::{Meta, Recorder};
use terrane_trace::import::DumpSource;
use terrane_trace::recording::{Format, OpenError, Recording};
use terrane_trace::recording::{open_end, open_recording, read_recording};
use terrane_trace::snapshot::ReadOptions;

fn go(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn read(bytes: &[u8]) -> Result<Recording, OpenError> {
    read_recording(bytes, &ReadOptions::default(), &mut go)
}

/// A file that is gone when the test ends.
struct File(PathBuf);

impl File {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("terrane-{name}-{}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn unpacked(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut file = flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap());
    std::io::copy(&mut file, &mut bytes).unwrap();
    bytes
}

/// One of each kind: what it is, its text for people, the file.
fn samples() -> Vec<(Format, &'static str, Vec<u8>)> {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data");
    let snapshot = data.join("snapshots/multistream.frames.pickle.gz");
    let mut json = Vec::new();
    let recording = open_recording(&snapshot, &mut go).unwrap();
    pytorch(&recording, Encoding::Json, &mut json).unwrap();
    let rmm = "Thread,Time,Action,Pointer,Size,Stream\n1,10:00:00.000001,allocate,0x10,256,0x0\n\
               1,10:00:00.000002,free,0x10,256,0x0\n";
    let dump = |api: &str| {
        format!(
            r#"{{"General": {{"API": "{api}"}}, "DefaultPools": {{"Type 0": {{"Blocks": {{"0":
            {{"TotalBytes": 4096, "Suballocations": [
            {{"Offset": 0, "Type": "BUFFER", "Size": 512, "Name": "secret"}},
            {{"Offset": 512, "Type": "FREE", "Size": 3584}}]}}}}}}}}}}"#
        )
    };
    let report = |of: &str| {
        format!(
            r#"{{"format": "{of} report", "version": 1, "total_allocated_bytes": 512,
            "total_reserved_bytes": 4096, "blocks": [{{"size": 4096,
            "allocations": [{{"name": "secret", "offset": 0, "size": 512}}]}}]}}"#
        )
    };
    let csv = unpacked(&data.join("traces/multistream.native.csv.gz"));
    let own = std::fs::read(data.join("golden/trace.v1.terrane")).unwrap();
    vec![
        (Format::Terrane, "Terrane trace", own),
        (Format::PytorchSnapshot, "PyTorch memory snapshot", unpacked(&snapshot)),
        (Format::PytorchJson, "PyTorch memory snapshot (JSON)", json),
        (Format::Csv, "recorded workload (CSV)", csv),
        (Format::RmmLog, "RMM log", rmm.as_bytes().to_vec()),
        (Format::VmaDump, "VMA dump", dump("Vulkan").into_bytes()),
        (Format::D3d12maDump, "D3D12MA dump", dump("Direct3D 12").into_bytes()),
        (Format::GpuAllocatorReport, "report of gpu-allocator", report("gpu-allocator").into()),
        (Format::WgpuReport, "report of wgpu's allocator", report("wgpu").into()),
    ]
}

/// What must not depend on how a file was read.
fn shown(recording: &Recording) -> impl PartialEq + use<> {
    let history = |it: &terrane_trace::snapshot::History| {
        (it.trace.events().to_vec(), it.blocks.clone(), it.segments.clone(), it.attempts.clone())
    };
    let histories: Vec<_> = recording.histories.iter().map(history).collect();
    let snapshot = (recording.snapshot.segments.clone(), recording.snapshot.streams.clone());
    (recording.format, histories, snapshot, recording.dump.clone(), recording.lacks.clone())
}

#[test]
fn a_file_is_the_same_from_the_disk_and_from_memory_plain_and_packed() {
    for (format, text, plain) in samples() {
        let file = File::new("kind", &plain);
        let recording = open_recording(&file.0, &mut go).unwrap();
        assert_eq!((recording.format, recording.format.describe()), (format, text));
        let is_pytorch = matches!(format, Format::PytorchSnapshot | Format::PytorchJson);
        assert_eq!(format.is_pytorch(), is_pytorch);
        let expected = shown(&recording);
        assert!(shown(&read(&plain).unwrap()) == expected, "{text} from memory");
        if format == Format::Terrane {
            // Its chunks are packed one by one, so that they can be sought.
            continue;
        }
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&plain).unwrap();
        for packed in [gzip.finish().unwrap(), zstd::bulk::compress(&plain, 1).unwrap()] {
            assert!(shown(&read(&packed).unwrap()) == expected, "{text} from memory, packed");
            let file = File::new("packed", &packed);
            assert!(shown(&open_recording(&file.0, &mut go).unwrap()) == expected, "{text} packed");
        }
    }
}

#[test]
fn what_is_no_recording_is_refused_alike_from_the_disk_and_from_memory() {
    let mut cases = vec![
        (Vec::new(), "empty"),
        (b"\x7fELF and so on".to_vec(), "no file that is read"),
        (b"{\"some\": \"json\"}".to_vec(), "neither a PyTorch snapshot nor a dump"),
        (b"{\"segments\": [".to_vec(), "ends early"),
        (
            b"{\"DefaultPools\": {\"Type 0\": {\"Blocks\": {\"0\": {}}}}}".to_vec(),
            "cannot be right",
        ),
        (b"t_us,op,block,size,stream\n1,x,0,1,0\n".to_vec(), "line 2"),
        (b"Thread,Time,Action,Pointer,Size,Stream\n1,2,3\n".to_vec(), "line 2"),
    ];
    for (format, _, plain) in samples().into_iter().take(3) {
        // Of a trace of ours what is whole is read, so it is cut within its first words.
        let is_own = format == Format::Terrane;
        let keep = if is_own { 10 } else { plain.len() / 2 };
        cases.push((plain[..keep].to_vec(), if is_own { "trace" } else { "ends early" }));
    }
    for (bytes, reason) in cases {
        let file = File::new("bad", &bytes);
        let opened = open_recording(&file.0, &mut go).unwrap_err().to_string();
        assert!(opened.contains(reason), "{opened}: {reason}");
        assert_eq!(read(&bytes).unwrap_err().to_string(), opened);
    }
    let folder = open_recording(&std::env::temp_dir(), &mut go).unwrap_err();
    assert!(matches!(folder, OpenError::Io(std::io::ErrorKind::IsADirectory)), "{folder}");
}

#[test]
fn reading_stops_where_that_is_asked() {
    let mut stop = |_| ControlFlow::Break(());
    let (_, _, own) = samples().swap_remove(0);
    let stopped = read_recording(&own, &ReadOptions::default(), &mut stop).unwrap_err();
    assert!(matches!(stopped, OpenError::Cancelled), "{stopped}");
}

#[test]
fn names_in_dumps_are_redacted_and_nothing_else_changes() {
    for (format, _, plain) in samples() {
        let recording = read(&plain).unwrap();
        let Some(dump) = &recording.dump else { continue };
        let mut redacted = read(&plain).unwrap();
        redacted.redact();
        let mut found = redacted.dump.unwrap();
        let text = serde_json::to_string(&found).unwrap();
        assert!(!text.contains("secret"), "{format:?}: {text}");
        let names = |dump: &terrane_trace::import::Dump| -> Vec<bool> {
            dump.blocks[0].ranges.iter().map(|range| range.name.is_some()).collect()
        };
        assert_eq!(names(&found), names(dump), "a name stays a name");
        for (new, old) in found.blocks[0].ranges.iter_mut().zip(&dump.blocks[0].ranges) {
            new.name.clone_from(&old.name);
        }
        assert_eq!((&found, dump.source.describe()), (dump, format.describe()));
        assert_ne!(dump.source == DumpSource::Wgpu, format != Format::WgpuReport);
    }
}

#[test]
fn the_end_of_a_trace_of_ours_is_what_all_of_it_leads_to() {
    let file = File::new("end", b"");
    let device = Sim::cuda().open();
    let alloc = Allocator::new(device.shared()).unwrap();
    let stream = device.create_stream(StreamSpec::default()).unwrap();
    let meta = Meta { program: "test".to_owned(), ..Meta::default() };
    let recorder = Recorder::attach(&alloc, &file.0, meta).unwrap();
    let tag = alloc.tag("activations").unwrap();
    let mut live = Vec::new();
    for round in 0..200_u64 {
        let bytes = 1 + (round * 7919) % (3 << 20);
        let request = Request::new(bytes, stream).tag(tag);
        live.push(alloc.alloc(&request).unwrap().handle);
        if round % 3 > 0 {
            alloc.free(live.swap_remove((round as usize * 31) % live.len())).unwrap();
        }
    }
    recorder.finish().unwrap();
    let whole = open_recording(&file.0, &mut go).unwrap();
    let end = open_end(&file.0).unwrap().unwrap();
    assert_eq!(end.snapshot.segments.len(), whole.snapshot.segments.len());
    for (end, whole) in end.snapshot.segments.iter().zip(&whole.snapshot.segments) {
        assert_eq!((end.address, end.total_bytes), (whole.address, whole.total_bytes));
        let blocks = |segment: &terrane_trace::snapshot::Segment| -> Vec<(u64, u64)> {
            segment.blocks.iter().map(|block| (block.address, block.bytes)).collect()
        };
        assert_eq!(blocks(end), blocks(whole));
    }
    assert_eq!(end.snapshot.reserved_bytes(0), alloc.stats().reserved.current);
    assert_eq!(end.histories[0].trace.figures().live_at_end, live.len() as u64);
    assert_eq!((&end.tags, end.tags.len()), (&whole.tags, 1));
    assert_eq!(end.meta.unwrap().program, "test");
    // Of other files nothing is at the end.
    let other = File::new("other", &samples().swap_remove(3).2);
    assert!(open_end(&other.0).unwrap().is_none());
}
