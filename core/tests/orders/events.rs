//! The ring of events: what one thread does, another reads.

use terrane_core::device::Device;
use terrane_core::device::StreamSpec;
use terrane_core::device::sim::Sim;
use terrane_core::event::{Event, EventKind, RecorderMode};
use terrane_core::{Allocator, Config, Request};

use super::{UNIT, explore, large};

fn allocator(recorder: RecorderMode) -> (Allocator, Request<'static>) {
    let sim = Sim::slabs().open();
    let mut config = Config::for_device(sim.caps());
    config.recorder = recorder;
    let alloc = Allocator::with_config(sim.shared(), config).unwrap();
    let request = Request::new(UNIT, sim.create_stream(StreamSpec::default()).unwrap());
    // The segment is made, and its events are out of the way.
    let first = alloc.alloc(&request).unwrap().handle;
    alloc.free(first).unwrap();
    (alloc, request)
}

/// Events come out once, in order, with no number left out; a block's in the order of its life.
#[test]
fn a_reader_against_a_writer() {
    explore(|| {
        let (alloc, request) = allocator(RecorderMode::Stream { capacity: 64 });
        let writer = alloc.clone();
        let other = large(move || {
            let handle = writer.alloc(&request).unwrap().handle;
            writer.free(handle).unwrap();
            handle.number()
        });
        let mut events: Vec<Event> = Vec::new();
        let first = alloc.drain_events(&mut events, 64);
        let early = events.len();
        let handle = other.join().unwrap();
        let rest = alloc.drain_events(&mut events, 64);
        assert_eq!((first.dropped, rest.dropped, rest.more), (0, 0, false));
        assert!(
            events.windows(2).all(|pair| pair[1].sequence == pair[0].sequence + 1),
            "{events:?}"
        );
        let at = |kind| events.iter().position(|e| e.is(kind) && e.handle == handle).unwrap();
        let life = [EventKind::Alloc, EventKind::FreeRequested].map(at);
        assert!(life[0] < life[1], "{events:?}");
        // Whether the reader saw a part of the writer's while it wrote.
        early > life[0]
    });
}

/// A ring that is switched while events come counts what it gives up and goes on in order.
#[test]
fn a_switch_of_the_recorder_against_a_writer() {
    explore(|| {
        let (alloc, request) = allocator(RecorderMode::Stream { capacity: 64 });
        let writer = alloc.clone();
        let other = large(move || {
            let handle = writer.alloc(&request).unwrap().handle;
            writer.free(handle).unwrap();
            handle.number()
        });
        alloc.set_recorder(RecorderMode::Flight { capacity: 64 });
        let handle = other.join().unwrap();
        let mut events: Vec<Event> = Vec::new();
        alloc.drain_events(&mut events, 64);
        assert!(
            events.windows(2).all(|pair| pair[1].sequence == pair[0].sequence + 1),
            "{events:?}"
        );
        let seen = |kind| events.iter().any(|e: &Event| e.is(kind) && e.handle == handle);
        // The end of its life is never there without being the last to come.
        assert!(!seen(EventKind::Alloc) || seen(EventKind::FreeRequested), "{events:?}");
        seen(EventKind::Alloc)
    });
}
