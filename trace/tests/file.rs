//! Our own trace file: recorded, cut, damaged, killed, read.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::time::Duration;

use terrane_core::Allocator;
use terrane_core::Request;
use terrane_core::device::StreamSpec;
use terrane_core::device::sim::Sim;
use terrane_core::event::{Event, EventKind};
use terrane_trace::file::{
    ChunkKind, Ending, FileError, ForeignRecorder, HeapState, Meta, Recorder, Text, TextKind,
    TraceFile, TraceWriter,
};
use terrane_trace::recording::{Format, Recording, open_recording};
use terrane_trace::replay::{Options, Replay, Target};
use terrane_trace::{Limits, open_csv};

fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data")
}

fn read(path: &Path) -> Recording {
    open_recording(path, &mut |_| std::ops::ControlFlow::Continue(())).unwrap()
}

/// A name that no other test uses, in a folder that is given back.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("terrane-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_recorded_workload_takes_at_most_16_bytes_an_event_and_comes_back() {
    let folder = Folder::new("recorded");
    for name in [
        "bert_large_ckpt",
        "gpt2_varlen",
        "llm_serving",
        "lora_recompute_offload",
        "multistream",
        "resnet50_amp",
    ] {
        let path = data().join(format!("traces/{name}.native.csv.gz"));
        let trace = open_csv(&path, Limits::default()).unwrap();
        let target = Target::Sim(Sim::cuda().open());
        let mut replay = Replay::new(name, &trace, target, &Options::default()).unwrap();
        let path = folder.file(name);
        let recorder = Recorder::attach(replay.allocator(), &path, Meta::default()).unwrap();
        // On a loaded machine the recorder's thread may need a moment.
        while replay.step(50_000).unwrap() > 0 {
            std::thread::sleep(Duration::from_millis(30));
        }
        let summary = recorder.finish().unwrap();
        replay.finish().unwrap();
        assert_eq!(summary.dropped, 0, "{name}");
        let per_event = summary.bytes as f64 / summary.events as f64;
        println!("{name}: {} events, {per_event:.2} bytes each", summary.events);
        assert!(per_event <= 16.0, "{name}: {per_event}");
        assert_eq!(summary.bytes, std::fs::metadata(&path).unwrap().len());

        let recording = read(&path);
        assert_eq!((recording.format, recording.lacks.len()), (Format::Terrane, 0), "{name}");
        let history = recording.history(None).unwrap();
        let (found, expected) = (history.trace.figures(), trace.figures());
        assert_eq!(found.blocks, expected.blocks, "{name}");
        assert_eq!(found.peak_requested, expected.peak_requested, "{name}");
        assert_eq!(found.allocated_bytes, expected.allocated_bytes, "{name}");
        // The replay frees at `f`: what was pending at the end is still live here.
        let live = expected.live_bytes_at_end + expected.pending_bytes_at_end;
        assert_eq!(found.live_bytes_at_end, live, "{name}");
    }
}

/// Allocates and frees on a simulated device; the count of live blocks stays bounded.
struct Busy {
    alloc: Allocator,
    stream: terrane_core::point::StreamId,
    live: std::collections::VecDeque<terrane_core::Handle>,
    count: u64,
}

impl Busy {
    fn new() -> Self {
        let device = Sim::cuda().open().shared();
        let alloc = Allocator::new(device.clone()).unwrap();
        let stream = device.create_stream(StreamSpec::default()).unwrap();
        Self { alloc, stream, live: std::collections::VecDeque::new(), count: 0 }
    }

    fn work(&mut self, rounds: u64) {
        for _ in 0..rounds {
            self.count += 1;
            let bytes = 256 + (self.count * 7919) % (1 << 20);
            let allocation = self.alloc.alloc(&Request::new(bytes, self.stream)).unwrap();
            self.live.push_back(allocation.handle);
            if self.live.len() > 40 {
                let oldest = self.live.pop_front().unwrap();
                self.alloc.free(oldest).unwrap();
            }
        }
    }
}

#[test]
fn what_was_there_before_recording_began_is_in_the_file_with_its_lines() {
    let folder = Folder::new("before");
    let path = folder.file("a.terrane");
    let mut busy = Busy::new();
    busy.work(30);
    let recorder = Recorder::attach(&busy.alloc, &path, Meta::default()).unwrap();
    busy.work(100);
    let summary = recorder.finish().unwrap();
    assert!(summary.events > 0 && summary.dropped == 0);
    let recording = read(&path);
    let history = recording.history(None).unwrap();
    assert_eq!(history.gaps.earlier_blocks, 30);
    assert_eq!(history.trace.figures().live_at_end, busy.live.len() as u64);
    let stack = history.blocks[0].stack.unwrap();
    assert!(recording.snapshot.stack_lines(stack)[0].contains("file.rs:"));
    // The state at the end is the allocator's.
    let stats = busy.alloc.stats();
    assert_eq!(recording.snapshot.reserved_bytes(0), stats.reserved.current);
    let allocated: u64 = recording.snapshot.segments.iter().map(|s| s.allocated_bytes).sum();
    assert_eq!(allocated, stats.total.allocated.current);
}

#[test]
fn what_was_overwritten_before_recording_began_is_no_loss() {
    let folder = Folder::new("overwritten");
    let path = folder.file("a.terrane");
    let mut busy = Busy::new();
    // More than the flight recorder keeps, which every allocator has until then.
    busy.work(5_000);
    let recorder = Recorder::attach(&busy.alloc, &path, Meta::default()).unwrap();
    busy.work(100);
    let summary = recorder.finish().unwrap();
    assert_eq!(summary.dropped, 0);
    let recording = read(&path);
    assert!(!recording.lacks.iter().any(|lack| lack.contains("lost")), "{:?}", recording.lacks);
    let history = recording.history(None).unwrap();
    assert_eq!(history.trace.figures().blocks, 40 + 100);
    assert_eq!(history.gaps.earlier_blocks, 40);
}

fn events(count: u64) -> Vec<Event> {
    let mut events = Vec::new();
    for at in 0..count {
        let kind = [EventKind::Alloc, EventKind::FreeRequested, EventKind::FreeCompleted];
        let event = Event::new(kind[(at % 3) as usize]).handle(at / 3 + 1).a(1000 + at / 3);
        let mut event = event.b(1024 + at / 3).on(0, 1 + (at / 3 % 4) as u32);
        (event.sequence, event.time_ns) = (at + 1, 50 * at);
        events.push(event);
    }
    events
}

/// A file of several chunks with a keyframe between them.
fn sample() -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), &Meta::default()).unwrap();
    let text = |number: u32| Text {
        kind: TextKind::Site,
        number,
        text: format!("src/model.rs:{}", 10 * number),
    };
    writer.keyframe(&HeapState::default()).unwrap();
    writer.texts(&(1..=4).map(text).collect::<Vec<_>>()).unwrap();
    let mut state = HeapState::default();
    for part in events(305).chunks(61) {
        writer.events(part).unwrap();
        part.iter().for_each(|event| state.apply(event, &mut |_| {}));
        writer.keyframe(&state).unwrap();
    }
    writer.finish().unwrap()
}

fn all_events(file: &mut TraceFile<Cursor<&[u8]>>) -> Vec<Event> {
    let chunks = file.chunks().to_vec();
    let events = chunks.into_iter().filter(|chunk| chunk.kind() == ChunkKind::Events);
    events.flat_map(|chunk| file.events(chunk).unwrap()).collect()
}

#[test]
fn a_file_that_is_cut_at_any_byte_is_read_to_its_last_whole_chunk() {
    let bytes = sample();
    let whole = all_events(&mut TraceFile::new(Cursor::new(&bytes[..])).unwrap());
    assert_eq!(whole, events(305));
    let mut longest = 0;
    for length in 0..bytes.len() {
        let cut = &bytes[..length];
        match TraceFile::new(Cursor::new(cut)) {
            Err(FileError::NotOurs) => assert!(length < 16),
            Err(error) => panic!("{length}: {error}"),
            Ok(mut file) => {
                let Ending::Cut(at) = file.ending() else { panic!("{length}") };
                assert!(at <= length as u64);
                let found = all_events(&mut file);
                assert_eq!(found, whole[..found.len()], "{length}");
                assert!(found.len() >= longest, "{length}: a longer file has no fewer events");
                longest = found.len();
            }
        }
    }
    assert_eq!(longest, whole.len(), "only the index was cut");
}

#[test]
fn a_flipped_byte_is_found_and_what_comes_before_it_is_read() {
    let bytes = sample();
    let whole = events(305);
    for at in 16..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x41;
        let Ok(mut file) = TraceFile::new(Cursor::new(&damaged[..])) else {
            panic!("{at}: the header is sound");
        };
        let chunks = file.chunks().to_vec();
        let mut read = Vec::new();
        for chunk in chunks.into_iter().filter(|chunk| chunk.kind() == ChunkKind::Events) {
            match file.events(chunk) {
                Ok(events) => read.extend(events),
                Err(FileError::Chunk { offset }) => assert_eq!(offset, chunk.offset),
                Err(error) => panic!("{at}: {error}"),
            }
        }
        assert!(read.iter().all(|event| whole.contains(event)), "{at}: an event is made up");
    }
    let mut newer = bytes;
    newer[8] = 9;
    assert!(matches!(TraceFile::new(Cursor::new(&newer[..])), Err(FileError::NotOurs)));
}

#[test]
fn the_state_at_any_event_is_the_same_from_the_nearest_keyframe_and_from_the_start() {
    let bytes = sample();
    let mut file = TraceFile::new(Cursor::new(&bytes[..])).unwrap();
    let mut folded = HeapState::default();
    for event in events(305) {
        folded.apply(&event, &mut |_| {});
        let found = file.state_at(event.sequence).unwrap();
        assert_eq!(
            found.blocks.keys().collect::<Vec<_>>(),
            folded.blocks.keys().collect::<Vec<_>>()
        );
        assert_eq!(found.sequence, event.sequence);
    }
}

#[test]
fn the_golden_file_of_version_1_is_read_as_it_was_written() {
    let path = data().join("golden/trace.v1.terrane");
    if std::env::var_os("TERRANE_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, sample()).unwrap();
    }
    let mut file = TraceFile::open(&path).unwrap();
    assert_eq!((file.version(), file.ending()), (1, Ending::Finished));
    let texts = file.texts().unwrap();
    assert_eq!((texts.len(), texts[3].text.as_str()), (4, "src/model.rs:40"));
    let chunks = file.chunks().to_vec();
    let found: Vec<Event> = chunks
        .into_iter()
        .filter(|chunk| chunk.kind() == ChunkKind::Events)
        .flat_map(|chunk| file.events(chunk).unwrap())
        .collect();
    assert_eq!(found, events(305));
    let recording = read(&path);
    let history = recording.history(None).unwrap();
    assert_eq!(history.trace.figures().blocks, 102);
    assert_eq!(history.trace.figures().live_at_end, 0);
}

#[test]
fn an_allocator_that_is_not_ours_can_be_recorded() {
    let folder = Folder::new("foreign");
    let path = folder.file("foreign.terrane");
    let recorder = ForeignRecorder::create(&path, Meta::default()).unwrap();
    recorder.segment_made(0, 1 << 20);
    recorder.alloc(0x7f00_0000_1000, 1000, 1024, 0, "main.c:12");
    recorder.alloc(0x7f00_0000_2000, 5000, 5120, 3, "main.c:13");
    recorder.freed(0x7f00_0000_1000);
    recorder.out_of_memory(1 << 30, 900_000, 0, 3);
    assert_eq!(recorder.finish().unwrap().events, 6);
    let recording = read(&path);
    let history = recording.history(None).unwrap();
    let figures = history.trace.figures();
    assert_eq!((figures.blocks, figures.live_bytes_at_end), (2, 5000));
    assert_eq!((history.attempts.len(), history.attempts[0].bytes), (1, 1 << 30));
    let lines = recording.snapshot.stack_lines(history.blocks[1].stack.unwrap());
    assert_eq!(lines, ["main.c:13"]);
}

const CHILD: &str = "TERRANE_TEST_RECORD_UNTIL_KILLED";

/// Not a test of its own: what the child of the next one does.
#[test]
fn child_that_records_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let mut busy = Busy::new();
    let _recorder = Recorder::attach(&busy.alloc, Path::new(&path), Meta::default()).unwrap();
    let start = std::time::Instant::now();
    loop {
        busy.work(20);
        println!("at {} {}", start.elapsed().as_millis(), busy.count);
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_process_that_is_killed_loses_at_most_the_last_second() {
    use std::io::BufRead as _;
    let folder = Folder::new("killed");
    let path = folder.file("killed.terrane");
    let name = "child_that_records_until_it_is_killed";
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, &path)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = Vec::new();
    let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        let Some(numbers) = line.split("at ").nth(1) else { continue };
        let (ms, count) = numbers.split_once(' ').unwrap();
        told.push((ms.parse::<u64>().unwrap(), count.trim().parse::<u64>().unwrap()));
        if told.last().unwrap().0 > 2_500 {
            break;
        }
    }
    // SIGKILL: nothing of the child runs any more.
    child.kill().unwrap();
    child.wait().unwrap();
    let recording = read(&path);
    assert!(recording.lacks[0].contains("not finished"), "{:?}", recording.lacks);
    let found = recording.history(None).unwrap().trace.figures().blocks;
    let end = told.last().unwrap().0;
    let second_before = told.iter().rev().find(|(ms, _)| *ms + 1_000 <= end).unwrap();
    assert!(
        found >= second_before.1,
        "{found} blocks are there, {second_before:?} were a second ago"
    );
}

#[cfg(feature = "live")]
#[test]
fn a_state_of_several_chunks_after_a_gap_is_taken_whole_from_files_and_connections() {
    use terrane_trace::live::{Client, Message};
    use terrane_trace::recording::Follow;
    // More than go into one chunk; all of the same space, in a segment that counts once.
    let blocks = 70_000;
    let block = |handle: u64| {
        let event = Event::new(EventKind::Alloc).handle(handle).a(400).b(512).c(handle * 512);
        event.within(1)
    };
    let segment = Event::new(EventKind::SegmentEnd).a(1).b(1 << 30);
    let mut before = HeapState::default();
    before.apply(&segment, &mut |_| {});
    (0..blocks).for_each(|handle| before.apply(&block(handle), &mut |_| {}));
    before.sequence = 100_000;
    let mut after = before.clone();
    let freed = |kind| Event::new(kind).handle(3).a(400).b(512).within(1);
    for kind in [EventKind::FreeRequested, EventKind::FreeCompleted] {
        after.apply(&freed(kind), &mut |_| {});
    }
    after.sequence = 100_050;
    let mut last = block(blocks);
    (last.sequence, last.time_ns) = (100_051, 9);
    let mut writer = TraceWriter::new(Vec::new(), &Meta::default()).unwrap();
    writer.keyframe(&before).unwrap();
    writer.keyframe(&after).unwrap();
    writer.events(&[last]).unwrap();
    let bytes = writer.finish().unwrap();
    let folder = Folder::new("several");
    let path = folder.file("several.terrane");
    std::fs::write(&path, &bytes).unwrap();
    let (own, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let sent = std::thread::spawn(move || std::io::Write::write_all(&mut theirs, &bytes));
    let mut client = Client::over(own, Duration::from_secs(20)).unwrap();
    let (mut follow, mut states) = (Follow::new(), 0);
    while let Some(message) = client.receive().unwrap() {
        match message {
            Message::State(state) => {
                states += 1;
                follow.state(&state).unwrap();
            }
            Message::Events(events) => follow.events(&events).unwrap(),
            _ => {}
        }
    }
    sent.join().unwrap().unwrap();
    assert_eq!(states, 2, "each state is given whole");
    for recording in [read(&path), follow.into_recording()] {
        let figures = recording.history(None).unwrap().trace.figures();
        assert_eq!(figures.blocks, blocks + 1);
        assert_eq!(figures.live_bytes_at_end, blocks * 400);
        assert!(recording.lacks.iter().any(|it| it.contains("50 events were lost")));
        let made = recording.history(None).unwrap().segments.len();
        assert_eq!(made, 1, "the segment is made once");
    }
}
