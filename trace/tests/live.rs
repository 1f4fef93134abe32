//! Looking on while an allocator works.

#![cfg(feature = "live")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::time::{Duration, Instant};

use terrane_core::device::StreamSpec;
use terrane_core::device::sim::Sim;
use terrane_core::{Allocator, Handle, Request};
use terrane_trace::file::{HeapState, Meta, Tap, TraceFile};
use terrane_trace::live::{Client, Message, sockets};

const PATIENCE: Duration = Duration::from_secs(10);

struct Program {
    alloc: Allocator,
    stream: terrane_core::point::StreamId,
    live: Vec<Handle>,
}

impl Program {
    fn new() -> Self {
        let device = Sim::cuda().open().shared();
        let alloc = Allocator::new(device.clone()).unwrap();
        let stream = device.create_stream(StreamSpec::default()).unwrap();
        Self { alloc, stream, live: Vec::new() }
    }

    fn grow(&mut self, blocks: u64) {
        for bytes in 1..=blocks {
            let request = Request::new(bytes * 1000, self.stream);
            self.live.push(self.alloc.alloc(&request).unwrap().handle);
        }
    }

    fn shrink(&mut self, blocks: usize) {
        for handle in self.live.drain(..blocks) {
            self.alloc.free(handle).unwrap();
        }
    }
}

/// Folds messages until `done` says so.
fn fold(client: &mut Client, state: &mut HeapState, done: impl Fn(&HeapState) -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done(state) {
        assert!(Instant::now() < end, "it does not come: {} blocks", state.blocks.len());
        match client.receive().unwrap().expect("the allocator is there") {
            Message::State(whole) => *state = whole,
            Message::Events(events) => {
                events.iter().for_each(|event| state.apply(event, &mut |_| {}));
            }
            _ => {}
        }
    }
}

#[test]
fn who_comes_late_gets_the_full_state_first_and_then_what_happens() {
    let mut program = Program::new();
    program.grow(50);
    let recorder = Tap::new(&program.alloc, Meta::default()).socket().start().unwrap();
    let socket = recorder.socket().unwrap().to_owned();
    assert!(sockets().contains(&socket));
    program.shrink(10);
    let mut first = Client::connect(&socket, PATIENCE).unwrap();
    assert!(matches!(first.receive().unwrap(), Some(Message::Meta(_))));
    let mut state = HeapState::default();
    fold(&mut first, &mut state, |state| state.blocks.len() == 40);
    program.grow(7);
    fold(&mut first, &mut state, |state| state.blocks.len() == 47);
    let mut second = Client::connect(&socket, PATIENCE).unwrap();
    let mut other = HeapState::default();
    fold(&mut second, &mut other, |state| state.blocks.len() == 47);
    // The same picture as the allocator's own.
    let stats = program.alloc.stats();
    assert_eq!(state.reserved_bytes(), stats.reserved.current);
    let requested: u64 = other.blocks.values().map(|block| block.made.a).sum();
    assert_eq!(requested, stats.total.requested.current);
    // Figures come by themselves.
    let status = loop {
        if let Message::Status(status) = first.receive().unwrap().unwrap() {
            break status;
        }
    };
    assert_eq!((status.blocks, status.reserved), (47, stats.reserved.current));
    drop(recorder);
    assert!(!sockets().contains(&socket));
    while let Ok(Some(_)) = first.receive() {}
    assert!(Client::connect(&socket, PATIENCE).is_err());
}

#[test]
fn a_file_and_a_socket_share_the_events_and_a_client_that_leaves_harms_nobody() {
    let mut program = Program::new();
    let path = std::env::temp_dir().join(format!("terrane-tap-{}", std::process::id()));
    let tap = Tap::new(&program.alloc, Meta::default()).file(&path).socket();
    let recorder = tap.start().unwrap();
    let client = Client::connect(recorder.socket().unwrap(), PATIENCE).unwrap();
    program.grow(500);
    drop(client);
    program.shrink(400);
    program.grow(3);
    let summary = recorder.finish().unwrap();
    assert_eq!(summary.dropped, 0);
    let mut file = TraceFile::open(&path).unwrap();
    let state = file.state_at(u64::MAX).unwrap();
    assert_eq!(state.blocks.len(), 103);
    std::fs::remove_file(&path).unwrap();
}
