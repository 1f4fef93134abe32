//! The flight recorder: the last events, written when something goes wrong.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use terrane_core::device::StreamSpec;
use terrane_core::device::sim::{Sim, SimDevice};
use terrane_core::{Allocator, Request};
use terrane_trace::diagnose::{Class, shortage};
use terrane_trace::file::{Meta, Recorder, Tap};
use terrane_trace::recording::{Recording, open_recording};

const PATIENCE: Duration = Duration::from_secs(20);
const KEPT: usize = 1000;

/// A panic is told to every flight recorder of the process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

struct Program {
    device: SimDevice,
    alloc: Allocator,
    stream: terrane_core::point::StreamId,
    path: PathBuf,
    recorder: Option<Recorder>,
    _alone: MutexGuard<'static, ()>,
}

impl Program {
    fn new(name: &str) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let device = Sim::slabs().capacity(64 << 20).open();
        let alloc = Allocator::new(device.shared()).unwrap();
        let stream = device.shared().create_stream(StreamSpec::default()).unwrap();
        let path = std::env::temp_dir().join(format!("terrane-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let recorder = Tap::new(&alloc, Meta::default()).flight(&path, KEPT).start().unwrap();
        Self { device, alloc, stream, path, recorder: Some(recorder), _alone: alone }
    }

    fn recorder(&self) -> &Recorder {
        self.recorder.as_ref().unwrap()
    }

    fn work(&self, pairs: u64) {
        for at in 0..pairs {
            let request = Request::new(1000 + at, self.stream);
            let allocation = self.alloc.alloc(&request).unwrap();
            self.alloc.free(allocation.handle).unwrap();
        }
    }

    /// What was written for a reason that begins so.
    fn written(&self, reason: &str) -> Recording {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.path.exists().then(|| read(&self.path));
            if let Some(found) = found
                && found.meta.as_ref().unwrap().reason.starts_with(reason)
            {
                return found;
            }
            assert!(Instant::now() < end, "nothing is written because of `{reason}`");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn read(path: &Path) -> Recording {
    open_recording(path, &mut |_| std::ops::ControlFlow::Continue(())).unwrap()
}

#[test]
fn a_request_that_fails_has_the_last_events_written_with_the_reason() {
    let program = Program::new("flight-memory");
    let held = program.alloc.alloc(&Request::new(40 << 20, program.stream)).unwrap();
    program.work(3000);
    assert!(!program.path.exists(), "nothing went wrong so far");
    program.alloc.alloc(&Request::new(50 << 20, program.stream)).unwrap_err();
    let found = program.written("out of memory");
    let reason = &found.meta.as_ref().unwrap().reason;
    assert!(reason.contains("52428800 bytes asked for") && reason.contains("capacity"), "{reason}");
    let history = found.history(None).unwrap();
    let why = shortage(&found.snapshot, history).unwrap();
    assert_eq!((why.class, why.asked), (Class::Capacity, 50 << 20));
    // The block from before the kept events is there, with its line.
    assert!((1..=2).contains(&history.gaps.earlier_blocks), "{:?}", history.gaps);
    let stack = found.snapshot.stack_lines(history.blocks[0].stack.unwrap());
    assert!(stack[0].contains("flight.rs:"), "{stack:?}");
    // With what was there before them.
    let events = history.trace.events().len();
    assert!((KEPT / 2..=KEPT + 40).contains(&events), "{events} events");
    assert_eq!(found.lacks.len(), 1, "{:?}", found.lacks);
    program.alloc.free(held.handle).unwrap();
}

#[test]
fn a_failure_right_before_the_end_is_written_too() {
    let mut program = Program::new("flight-end");
    let held = program.alloc.alloc(&Request::new(40 << 20, program.stream)).unwrap();
    program.alloc.alloc(&Request::new(50 << 20, program.stream)).unwrap_err();
    program.recorder.take().unwrap().finish().unwrap();
    let found = read(&program.path);
    assert!(found.meta.unwrap().reason.starts_with("out of memory"));
    program.alloc.free(held.handle).unwrap();
}

#[test]
fn a_device_that_is_lost_has_the_last_events_written() {
    let program = Program::new("flight-lost");
    program.work(20);
    program.device.lose();
    let found = program.written("the device is lost");
    assert_eq!(found.history(None).unwrap().trace.figures().blocks, 20);
}

#[test]
fn a_panic_has_the_last_events_written_before_it_unwinds() {
    let program = Program::new("flight-panic");
    program.work(20);
    let held = program.alloc.alloc(&Request::new(5000, program.stream)).unwrap();
    let panicked = std::thread::scope(|scope| scope.spawn(|| panic!("a mistake")).join().is_err());
    assert!(panicked);
    let found = read(&program.path);
    let reason = found.meta.as_ref().unwrap().reason.clone();
    assert!(reason.starts_with("a thread panicked at") && reason.contains("flight.rs"), "{reason}");
    let figures = found.history(None).unwrap().trace.figures();
    assert_eq!((figures.blocks, figures.live_at_end), (21, 1));
    program.alloc.free(held.handle).unwrap();
}

#[test]
fn what_is_asked_for_is_written_and_each_time_anew() {
    let program = Program::new("flight-asked");
    program.work(20);
    program.recorder().write_last("because I want to see it").unwrap();
    assert_eq!(read(&program.path).meta.unwrap().reason, "because I want to see it");
    program.work(5000);
    program.recorder().write_last("again").unwrap();
    let found = read(&program.path);
    assert_eq!(found.meta.as_ref().unwrap().reason, "again");
    let events = found.history(None).unwrap().trace.events().len();
    assert!((KEPT / 2..=KEPT + 40).contains(&events), "{events} events");
}
