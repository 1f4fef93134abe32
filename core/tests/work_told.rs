//! What the events tell of work on streams.

#![allow(clippy::unwrap_used, reason = "tests")]

use terrane_core::device::StreamSpec;
use terrane_core::device::sim::{Completion, Sim};
use terrane_core::event::{Event, EventKind};
use terrane_core::{Allocator, Request};

#[test]
fn events_tell_of_work_of_what_waits_for_it_and_of_how_far_it_was_found_to_be() {
    let sim = Sim::slabs().completion(Completion::ByHand).open();
    let alloc = Allocator::new(sim.shared()).unwrap();
    let stream = || alloc.device().create_stream(StreamSpec::default()).unwrap();
    let (own, other) = (stream(), stream());
    let block = alloc.alloc(&Request::new(5000, own)).unwrap().handle;
    let mut taken = Vec::new();
    alloc.drain_events(&mut taken, usize::MAX);
    let work = |on| {
        let mut submission = alloc.submit(on);
        submission.resolve(block).unwrap();
        let point = sim.submit(on, 0).unwrap();
        submission.close_at(point);
        point
    };
    let (made, used) = (work(own), work(other));
    // Work that uses nothing of ours is none of ours.
    alloc.submit(own).close().unwrap();
    alloc.free(block).unwrap();
    sim.complete_all();
    alloc.maintain().unwrap();
    let mut events = Vec::new();
    alloc.drain_events(&mut events, usize::MAX);
    let kinds = [
        EventKind::Submitted,
        EventKind::WorkWaits,
        EventKind::FreeWaits,
        EventKind::FreeRequested,
        EventKind::Reached,
    ];
    let told: Vec<(EventKind, &Event)> = events
        .iter()
        .filter_map(|event| Some((*kinds.iter().find(|kind| event.is(**kind))?, event)))
        .collect();
    let names: Vec<EventKind> = told.iter().map(|(kind, _)| *kind).collect();
    let expected = [
        EventKind::Submitted,
        EventKind::WorkWaits,
        EventKind::Submitted,
        EventKind::FreeWaits,
        EventKind::FreeWaits,
        EventKind::FreeRequested,
        EventKind::Reached,
        EventKind::Reached,
    ];
    assert_eq!(names, expected);
    let fields = |at: usize| (told[at].1.stream(), told[at].1.a);
    assert_eq!(fields(0), (own.0, made.value));
    assert_eq!((told[0].1.b, told[0].1.c), (5120, 1));
    // The other stream waits for what the block's own has done.
    assert_eq!((fields(1), told[1].1.c), ((own.0, made.value), u64::from(other.0)));
    assert_eq!(fields(2), (other.0, used.value));
    assert_eq!([fields(3), fields(4)], [(own.0, made.value), (other.0, used.value)]);
    assert!(told[3..6].iter().all(|(_, event)| event.handle == told[5].1.handle));
    let mut reached = [fields(6), fields(7)];
    reached.sort_unstable();
    assert!(reached[0] >= (own.0, made.value) && reached[1] == (other.0, used.value));
}

#[test]
fn a_recording_is_told_what_an_open_submission_holds_and_a_flight_recorder_is_not() {
    use terrane_core::compact::Why;
    use terrane_core::event::RecorderMode;
    let sim = Sim::slabs().open();
    let alloc = Allocator::new(sim.shared()).unwrap();
    let stream = alloc.device().create_stream(StreamSpec::default()).unwrap();
    let [free, fixed] = [true, false].map(|movable| {
        let request = Request::new(4096, stream).movable(movable);
        alloc.alloc(&request).unwrap().handle
    });
    let holds = || {
        let mut events = Vec::new();
        alloc.drain_events(&mut events, usize::MAX);
        let told = events.into_iter().filter(|event| event.is(EventKind::Hold));
        told.map(|event| event.a).collect::<Vec<_>>()
    };
    let work = |pinned: bool| {
        let mut submission = alloc.submit(stream);
        submission.resolve(free).unwrap();
        submission.resolve(fixed).unwrap();
        // A second use of the same block holds it no more than the first.
        submission.resolve(free).unwrap();
        let pin = pinned.then(|| alloc.pin(free).unwrap());
        let while_open = holds();
        submission.close().unwrap();
        let after = holds();
        drop(pin);
        (while_open, after, holds())
    };
    let (held, nothing) = (Why::Held as u64, 0);
    assert_eq!(work(false), (vec![], vec![], vec![]), "the flight recorder");
    alloc.set_recorder(RecorderMode::Stream { capacity: 1 << 10 });
    assert_eq!(work(false), (vec![held], vec![nothing], vec![]));
    // A guard that outlives the submission holds it on.
    assert_eq!(work(true), (vec![held, held], vec![], vec![nothing]));
    // What ends before the call does is told nowhere.
    alloc.write(stream, free, 0, &[1; 64]).unwrap();
    assert_eq!(holds(), Vec::<u64>::new());
    // One that was open when recording began is told of when it ends.
    alloc.set_recorder(RecorderMode::Off);
    let mut submission = alloc.submit(stream);
    submission.resolve(free).unwrap();
    alloc.set_recorder(RecorderMode::Stream { capacity: 1 << 10 });
    submission.close().unwrap();
    assert_eq!(holds(), [nothing]);
}

#[test]
fn a_submission_that_ends_within_a_call_that_uses_its_block_is_told_to_hold_it_no_more() {
    use std::sync::{Arc, Mutex};
    use terrane_core::Submission;
    use terrane_core::compact::Why;
    use terrane_core::device::calls::CallKind;
    use terrane_core::device::wrap::{Ask, Watched};
    use terrane_core::event::RecorderMode;
    let open: Arc<Mutex<Option<Submission>>> = Arc::default();
    let ends = Arc::clone(&open);
    let device = Watched::new(Sim::slabs().open().shared(), move |ask: &Ask| {
        if ask.kind == CallKind::Write {
            let submission = ends.lock().unwrap().take();
            submission.unwrap().close().unwrap();
        }
    });
    let alloc = Allocator::new(device).unwrap();
    let stream = alloc.device().create_stream(StreamSpec::default()).unwrap();
    let block = alloc.alloc(&Request::new(4096, stream)).unwrap().handle;
    alloc.set_recorder(RecorderMode::Stream { capacity: 1 << 10 });
    let mut submission = alloc.submit(stream);
    submission.resolve(block).unwrap();
    *open.lock().unwrap() = Some(submission);
    alloc.write(stream, block, 0, &[1; 64]).unwrap();
    let mut events = Vec::new();
    alloc.drain_events(&mut events, usize::MAX);
    let told = events.into_iter().filter(|event| event.is(EventKind::Hold));
    assert_eq!(told.map(|event| event.a).collect::<Vec<_>>(), [Why::Held as u64, 0]);
}
