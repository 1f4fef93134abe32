//! What of a snapshot is told before all of it is read: the segments, then the peak.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use terrane_trace::Op;
use terrane_trace::model::SegmentOp;
use terrane_trace::recording::open_recording_early;
use terrane_trace::snapshot::{
    BlockState, Early, History, Note, ReadOptions, Snapshot, open_snapshot_early,
};

/// Files of more than one glance of the reader.
const LARGE: [&str; 4] =
    ["gpt2_varlen.frames", "unet_multires.oom", "unet_random.frames", "leak_fragmenting.frames"];

fn path(name: &str) -> PathBuf {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/snapshots");
    data.join(format!("{name}.pickle.gz"))
}

fn read(name: &str) -> (Snapshot, Vec<Early>) {
    open(&path(name))
}

fn open(path: &Path) -> (Snapshot, Vec<Early>) {
    let mut early = Vec::new();
    let mut go_on = |_| ControlFlow::Continue(());
    let options = ReadOptions::default();
    let snapshot =
        open_snapshot_early(path, &options, &mut go_on, &mut |it| early.push(it)).unwrap();
    (snapshot, early)
}

/// A file with a key of its own before all others: stacks, more of them than the reader reads
/// between two glances.
fn with_key_of_its_own(name: &str) -> PathBuf {
    let mut plain = Vec::new();
    let packed = std::fs::File::open(path(name)).unwrap();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut plain).unwrap();
    let frame = |number: usize| {
        let line = (number as u16).to_le_bytes();
        [&b"}(\x8c\x08filename\x8c\x04a.py\x8c\x04name\x8c\x01f\x8c\x04lineM"[..], &line, b"u"]
            .concat()
    };
    let stack = |first: usize| {
        let frames: Vec<u8> = (first..first + 30).flat_map(frame).collect();
        [&b"]("[..], &frames, b"e"].concat()
    };
    let stacks: Vec<u8> = (0..500).flat_map(stack).collect();
    let open = b"}\x94(";
    let at = plain.windows(open.len()).position(|bytes| bytes == open).unwrap() + open.len();
    let before = [&b"\x8c\x05extra]("[..], &stacks, b"e"].concat();
    plain.splice(at..at, before);
    let written = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.extra.pickle"));
    std::fs::write(&written, plain).unwrap();
    written
}

/// Events up to the first moment with most bytes in use, and those bytes.
fn peak(history: &History) -> (usize, u64) {
    let (mut active, mut most, mut at) = (0_u64, 0, 0);
    for (number, event) in history.trace.events().iter().enumerate() {
        match event.op {
            Op::Alloc => active += event.bytes,
            Op::FreeCompleted => active -= event.bytes,
            Op::FreeRequested => {}
        }
        if active > most {
            (most, at) = (active, number + 1);
        }
    }
    (at, most)
}

/// The blocks in use after so many events: address and bytes asked for.
fn live_after(history: &History, events: usize) -> BTreeMap<u64, u64> {
    let mut live = BTreeMap::new();
    for event in &history.trace.events()[..events] {
        let address = history.blocks[event.block as usize].address;
        match event.op {
            Op::Alloc => _ = live.insert(address, event.bytes),
            Op::FreeCompleted => _ = live.remove(&address),
            Op::FreeRequested => {}
        }
    }
    live
}

/// Bytes reserved after so many events: what is there at the dump less what came later.
fn reserved_after(snapshot: &Snapshot, history: &History, events: usize) -> i128 {
    let later = history.segments.iter().filter(|change| change.before_event >= events);
    let later: i128 = later
        .map(|change| match change.event.op {
            SegmentOp::Alloc | SegmentOp::Map => i128::from(change.event.bytes),
            SegmentOp::Free | SegmentOp::Unmap => -i128::from(change.event.bytes),
        })
        .sum();
    i128::from(snapshot.reserved_bytes(history.device as i64)) - later
}

#[test]
fn the_segments_come_first_and_are_those_of_the_whole_file() {
    for name in LARGE {
        let (snapshot, early) = read(name);
        let [Early::Segments(first), Early::Peak(_)] = early.as_slice() else {
            panic!("{name}: {} told early", early.len());
        };
        assert_eq!(first.segments, snapshot.segments, "{name}");
        assert_eq!(first.device_traces, [] as [Vec<_>; 0], "{name}");
        assert_eq!(first.notes, [Note::HistoryFollows], "{name}");
        for segment in &first.segments {
            let stacks = segment.blocks.iter().filter_map(|block| block.stack);
            for stack in stacks.chain(segment.stack) {
                assert_eq!(first.stacks.get(stack), snapshot.stacks.get(stack), "{name}");
            }
        }
    }
}

#[test]
fn a_key_that_no_reader_knows_may_stand_before_the_segments() {
    for name in LARGE {
        let file = with_key_of_its_own(name);
        let (snapshot, early) = open(&file);
        std::fs::remove_file(&file).unwrap();
        let [Early::Segments(first), Early::Peak(moment)] = early.as_slice() else {
            panic!("{name}: {} told early", early.len());
        };
        assert_eq!(first.segments, snapshot.segments, "{name}");
        let (device, _) = snapshot.main_trace().unwrap();
        assert_eq!(moment.segments, snapshot.at_peak(device).unwrap().segments, "{name}");
        assert_eq!(snapshot.segments.len(), read(name).0.segments.len(), "{name}");
    }
}

#[test]
fn the_peak_comes_next_with_the_blocks_and_segments_of_that_moment() {
    for name in LARGE {
        let (snapshot, early) = read(name);
        let Some(Early::Peak(moment)) = early.last() else { panic!("{name}: no peak") };
        let (device, _) = snapshot.main_trace().unwrap();
        let history = snapshot.history(device).unwrap().unwrap();
        let (events, most) = peak(&history);
        let blocks = moment.segments.iter().flat_map(|segment| &segment.blocks);
        let live: BTreeMap<u64, u64> = blocks
            .filter(|block| block.state != BlockState::Inactive)
            .map(|block| (block.address, block.requested_bytes.unwrap()))
            .collect();
        assert_eq!(live.values().sum::<u64>(), most, "{name}");
        assert_eq!(live, live_after(&history, events), "{name}");
        let reserved: u64 = moment.segments.iter().map(|segment| segment.total_bytes).sum();
        assert_eq!(i128::from(reserved), reserved_after(&snapshot, &history, events), "{name}");
        let entries = u64::from(history.entries[events - 1]) + 1;
        assert_eq!(moment.notes, [Note::PeakOnly { entries }], "{name}");
        for segment in &moment.segments {
            let bytes: u64 = segment.blocks.iter().map(|block| block.bytes).sum();
            assert_eq!(bytes, segment.total_bytes, "{name}: {:#x} has a gap", segment.address);
        }
    }
}

#[test]
fn small_files_are_there_at_once() {
    let (_, early) = read("leak_exponential.frames");
    assert!(early.is_empty(), "{} told early", early.len());
}

#[test]
fn each_is_a_recording_that_says_what_it_is() {
    let mut told = Vec::new();
    let mut go_on = |_| ControlFlow::Continue(());
    let tell = &mut |recording| told.push(recording);
    let whole = open_recording_early(&path("unet_random.frames"), &mut go_on, tell).unwrap();
    let [segments, peak] = told.as_slice() else { panic!("{} told early", told.len()) };
    assert!(segments.lacks.iter().any(|lack| lack.contains("history is being read")));
    assert!(peak.lacks.iter().any(|lack| lack.contains("moment of the peak alone")));
    assert!(segments.histories.is_empty() && peak.histories.is_empty());
    assert_eq!(whole.histories.len(), 1);
    assert!(whole.lacks.is_empty(), "{:?}", whole.lacks);
}
