//! Looking on while an allocator works.

#![cfg(feature = "live")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::time::{Duration, Instant};

use terrane_core::device::StreamSpec;
use terrane_core::device::sim::Sim;
use terrane_core::{Allocator, Handle, Request};
use terrane_trace::file::{HeapState, Meta, Tap, TraceFile};
use terrane_trace::live::{Aim, Client, Command, Compact, Message, sockets};

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

const TOKEN: &str = "a-token-for-this-test";
const CONTROL: &str = "another-for-commands";

#[test]
fn over_tcp_only_those_look_on_who_know_the_token() {
    let mut program = Program::new();
    program.grow(30);
    let at = "127.0.0.1:0".parse().unwrap();
    let tap = Tap::new(&program.alloc, Meta::default()).tcp(at, TOKEN).unwrap();
    let recorder = tap.start().unwrap();
    assert!(recorder.socket().is_none(), "only what was asked for is offered");
    let at = recorder.address().unwrap();
    for wrong in ["a-token-for-this-tesT", "a-token-for-this-test-too", "a-token-for-this"] {
        let error = Client::connect_tcp(at, wrong, PATIENCE).unwrap_err();
        assert!(!error.to_string().is_empty(), "{wrong}");
    }
    // A peer that says nothing, and one that says too much, are let go.
    let mut silent = std::net::TcpStream::connect(at).unwrap();
    let mut loud = std::net::TcpStream::connect(at).unwrap();
    std::io::Write::write_all(&mut loud, &[b'x'; 4096]).unwrap();
    let mut client = Client::connect_tcp(at, TOKEN, PATIENCE).unwrap();
    let mut state = HeapState::default();
    fold(&mut client, &mut state, |state| state.blocks.len() == 30);
    program.shrink(10);
    fold(&mut client, &mut state, |state| state.blocks.len() == 20);
    for stream in [&mut silent, &mut loud] {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut told = Vec::new();
        // Reset, where bytes of it were still unread.
        let _ = std::io::Read::read_to_end(stream, &mut told);
        assert!(told.is_empty(), "a stranger is told {} bytes", told.len());
    }
}

#[test]
fn nothing_is_offered_to_other_machines_and_no_token_is_a_word() {
    let program = Program::new();
    let tap = || Tap::new(&program.alloc, Meta::default());
    let everywhere = "0.0.0.0:0".parse().unwrap();
    let error = tap().tcp(everywhere, TOKEN).unwrap().start().unwrap_err();
    assert!(error.to_string().contains("other machines"), "{error}");
    let own = "127.0.0.1:0".parse().unwrap();
    for token in ["", "secret", "sixteen letters\n and more"] {
        assert!(tap().tcp(own, token).is_err(), "{token:?}");
    }
    let far = "192.0.2.1:7".parse().unwrap();
    assert!(Client::connect_tcp(far, TOKEN, PATIENCE).unwrap_err().to_string().contains("tunnel"));
}

#[test]
fn a_command_is_obeyed_only_with_the_control_token() {
    let mut program = Program::new();
    program.grow(5);
    let (send, asked) = std::sync::mpsc::channel();
    let own = "127.0.0.1:0".parse().unwrap();
    let tap = Tap::new(&program.alloc, Meta::default()).socket().tcp(own, TOKEN).unwrap();
    let tap = tap.control(CONTROL, move |command| send.send(command).unwrap()).unwrap();
    let recorder = tap.start().unwrap();
    let mut local = Client::connect(recorder.socket().unwrap(), PATIENCE).unwrap();
    let mut tcp = Client::connect_tcp(recorder.address().unwrap(), TOKEN, PATIENCE).unwrap();
    // The token to look on is not the token to command.
    let usual = Command::Compact(Compact::default());
    local.ask(usual, TOKEN).unwrap();
    tcp.ask(usual, TOKEN).unwrap();
    assert!(asked.recv_timeout(Duration::from_millis(200)).is_err());
    for client in [&mut local, &mut tcp] {
        let aim = Aim::Release(u64::MAX);
        let most = Compact { bytes_max: u64::MAX, moves_max: 3, ..Compact::default() };
        for command in [Compact::default(), Compact { aim, background: true, ..most }] {
            let command = Command::Compact(command);
            client.ask(command, CONTROL).unwrap();
            assert_eq!(asked.recv_timeout(PATIENCE), Ok(command));
        }
    }
    // They still look on.
    let mut state = HeapState::default();
    fold(&mut local, &mut state, |state| state.blocks.len() == 5);
}

#[test]
fn a_socket_of_another_user_is_refused() {
    let program = Program::new();
    let recorder = Tap::new(&program.alloc, Meta::default()).socket().start().unwrap();
    let socket = recorder.socket().unwrap();
    assert!(Client::connect(socket, PATIENCE).is_ok());
    if std::os::unix::fs::lchown(socket, Some(12_345), None).is_err() {
        println!("skipped: only root can give a socket away");
        return;
    }
    let error = Client::connect(socket, PATIENCE).unwrap_err();
    assert!(error.to_string().contains("another user"), "{error}");
}

#[test]
fn what_came_over_a_socket_is_the_recording_that_the_file_has() {
    use terrane_core::compact::{Goal, Limits};
    use terrane_trace::recording::{Follow, open_recording};
    use terrane_trace::snapshot::Happened;
    let device = Sim::slabs().open().shared();
    let alloc = Allocator::new(device.clone()).unwrap();
    let stream = device.create_stream(StreamSpec::default()).unwrap();
    let mut program = Program { alloc, stream, live: Vec::new() };
    program.grow(40);
    program.alloc.set_limit(terrane_core::device::HeapId(0), 1 << 30);
    let file = std::env::temp_dir().join(format!("terrane-follow-{}", std::process::id()));
    let tap = Tap::new(&program.alloc, Meta::default()).socket().file(&file);
    let recorder = tap.start().unwrap();
    let mut client = Client::connect(recorder.socket().unwrap(), PATIENCE).unwrap();
    let mut follow = Follow::new();
    let mut take = |until: &dyn Fn(&Follow) -> bool| {
        let end = Instant::now() + PATIENCE;
        while !until(&follow) {
            assert!(Instant::now() < end, "{} events", follow.len());
            match client.receive().unwrap().expect("the allocator is there") {
                Message::Meta(meta) => follow.meta(meta),
                Message::Texts(texts) => follow.texts(&texts),
                Message::State(state) => follow.state(&state).unwrap(),
                Message::Events(events) => follow.events(&events).unwrap(),
                _ => {}
            }
        }
    };
    take(&|follow| follow.len() == 40);
    let doomed: Vec<Handle> = program.live.iter().copied().step_by(2).collect();
    program.live.retain(|handle| !doomed.contains(handle));
    doomed.into_iter().for_each(|handle| program.alloc.free(handle).unwrap());
    let report = program.alloc.compact(Goal::Fragmentation { below: 0.0 }, Limits::NONE).unwrap();
    assert!(report.moves > 0);
    program.grow(1);
    take(&|follow| follow.len() >= 81);
    let live = follow.recording();
    recorder.finish().unwrap();
    let read = open_recording(&file, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    std::fs::remove_file(&file).unwrap();
    let (live, read) = (&live.histories[0], &read.histories[0]);
    assert_eq!(live.trace.events().len(), read.trace.events().len());
    let ops = |history: &terrane_trace::snapshot::History| -> Vec<_> {
        history.trace.iter().map(|event| (event.op, event.block, event.bytes)).collect()
    };
    assert_eq!(ops(live), ops(read));
    assert_eq!(live.happenings, read.happenings);
    // The wire and the file both say by what means a block moved.
    use terrane_core::event::MoveKind;
    let by = |history: &terrane_trace::snapshot::History, kind| {
        history.happenings.iter().filter(|it| it.what == Happened::MoveSubmitted(kind)).count()
    };
    assert_eq!(by(read, MoveKind::Untold), 0);
    let told = by(read, MoveKind::Copy) + by(read, MoveKind::Slide);
    assert_eq!(told as u64, report.moves);
    // The limit that was set before recording began is told too.
    assert_eq!((live.happenings[0].what, live.happenings[0].bytes), (Happened::LimitSet, 1 << 30));
    assert_eq!(live.blocks, read.blocks);
    let there = offsets(&program.alloc);
    assert_eq!(folded_offsets(live), there);
    // Older events can be left out: what is there stays.
    follow.begin_anew().unwrap();
    let anew = follow.recording();
    assert_eq!(anew.histories[0].trace.events().len(), there.len());
    assert!(anew.lacks.iter().any(|lack| lack.contains("left out")), "{:?}", anew.lacks);
}

/// Where a history says that blocks are at its end; a move tells where to.
fn folded_offsets(history: &terrane_trace::snapshot::History) -> Vec<u64> {
    let mut places: Vec<u64> = history.blocks.iter().map(|block| block.address).collect();
    for moved in history.happenings.iter().filter(|it| it.what.is_move()) {
        places[moved.block.unwrap() as usize] = moved.address;
    }
    let lives = history.trace.lifetimes();
    let live = places.iter().zip(&lives).filter(|(_, life)| life.requested.is_none());
    let mut offsets: Vec<u64> = live.map(|(place, _)| place & ((1 << 40) - 1)).collect();
    offsets.sort_unstable();
    offsets
}

/// Where the allocator has its blocks.
fn offsets(alloc: &Allocator) -> Vec<u64> {
    let segments = alloc.snapshot().segments;
    let parts = segments.iter().flat_map(|segment| segment.parts.iter());
    let mut offsets: Vec<u64> =
        parts.filter(|part| part.block.is_some()).map(|part| part.offset).collect();
    offsets.sort_unstable();
    offsets
}

#[test]
fn after_events_were_lost_files_clients_and_the_last_events_go_on_from_the_state() {
    use std::ops::ControlFlow;
    use terrane_core::event::RecorderMode;
    use terrane_trace::recording::{Recording, open_recording};
    let mut program = Program::new();
    program.grow(20);
    let name =
        |what: &str| std::env::temp_dir().join(format!("terrane-{what}-{}", std::process::id()));
    let (file, flight) = (name("lost"), name("lost-flight"));
    let tap = Tap::new(&program.alloc, Meta::default()).socket().file(&file).flight(&flight, 50);
    let recorder = tap.start().unwrap();
    let mut client = Client::connect(recorder.socket().unwrap(), PATIENCE).unwrap();
    let mut state = HeapState::default();
    fold(&mut client, &mut state, |state| state.blocks.len() == 20);
    // A queue so short that no thread empties it in time.
    program.alloc.set_recorder(RecorderMode::Stream { capacity: 16 });
    for _ in 0..50 {
        program.grow(40);
        program.shrink(40);
    }
    program.alloc.set_recorder(RecorderMode::Stream { capacity: 1 << 12 });
    program.grow(1);
    let there = offsets(&program.alloc);
    let reserved = program.alloc.stats().reserved.current;
    fold(&mut client, &mut state, |state| {
        let mut live: Vec<u64> = state.blocks.values().map(|block| block.made.c).collect();
        live.sort_unstable();
        live == there && state.reserved_bytes() == reserved
    });
    recorder.write_last("asked for").unwrap();
    let summary = recorder.finish().unwrap();
    assert!(summary.dropped > 1000, "{summary:?}");
    let open = |path| {
        let read = open_recording(path, &mut |_| ControlFlow::Continue(())).unwrap();
        std::fs::remove_file(path).unwrap();
        read
    };
    let check = |recording: &Recording| {
        assert_eq!(recording.snapshot.reserved_bytes(0), reserved);
        assert_eq!(folded_offsets(&recording.histories[0]), there);
    };
    let whole = open(&file);
    check(&whole);
    let told = whole.lacks.iter().filter_map(|lack| lack.split_once(" events were lost"));
    let lost: Vec<u64> = told.map(|(count, _)| count.parse().unwrap()).collect();
    assert!(lost.len() == 1 && lost[0] >= summary.dropped, "{lost:?} of {}", summary.dropped);
    check(&open(&flight));
}

#[test]
fn a_freed_block_whose_bytes_are_taken_behind_a_wait_is_gone_from_then_on() {
    use terrane_core::event::{Event, EventKind};
    use terrane_trace::Op;
    use terrane_trace::recording::Follow;
    let block = |kind, handle, at| Event::new(kind).handle(handle).a(1000).b(1024).c(at).on(1, 0);
    let mut events = [
        Event::new(EventKind::SegmentEnd).b(1 << 20),
        block(EventKind::Alloc, 1, 0),
        block(EventKind::Alloc, 2, 1024),
        block(EventKind::Alloc, 3, 2048),
        block(EventKind::FreeRequested, 1, 0),
        block(EventKind::FreeRequested, 2, 1024),
        Event::new(EventKind::Wait).a(7).c(1).on(5, 0),
        // Half of the first and all of the second; nobody tells their completion any more.
        Event::new(EventKind::Alloc).handle(4).a(1536).b(1536).c(512).on(1, 0),
        block(EventKind::FreeRequested, 3, 2048),
        Event::new(EventKind::FreeCompleted).b(1024),
    ];
    for (number, event) in (1..).zip(&mut events) {
        (event.sequence, event.time_ns) = (number, number * 1000);
    }
    let mut state = HeapState::default();
    let mut completed = Vec::new();
    events.iter().for_each(|event| state.apply(event, &mut |handle| completed.push(handle)));
    completed[..2].sort_unstable();
    assert_eq!(completed, [1, 2, 3]);
    assert_eq!(state.blocks.keys().copied().collect::<Vec<_>>(), [4]);
    let mut follow = Follow::new();
    follow.state(&HeapState::default()).unwrap();
    follow.events(&events).unwrap();
    let recording = follow.recording();
    let ops: Vec<Op> = recording.histories[0].trace.iter().map(|event| event.op).collect();
    let (made, freed, done) = (Op::Alloc, Op::FreeRequested, Op::FreeCompleted);
    assert_eq!(ops, [made, made, made, freed, freed, done, done, made, freed, done]);
    // A stream that owns nothing is named where it is awaited.
    assert_eq!(recording.snapshot.streams.len(), 6);
}
