//! Cases 2, 5, 6, 12 and 10: who may reuse whose memory.

use terrane_core::device::calls::CallKind;
use terrane_core::device::sim::Sim;

use super::*;

#[test]
fn case_02_a_slow_stream_does_not_hold_up_what_a_fast_one_freed() {
    for wait in [Wait::Never, Wait::OnStream, on_host(1)] {
        let rig = Rig::new(20 * U);
        let (s0, s1, s2) = (rig.stream(), rig.stream(), rig.stream());
        let (x, y) = (rig.get(10 * U, s0), rig.get(10 * U, s0));
        rig.work(x, s1);
        let fast = rig.work(y, s2);
        let place = rig.offset(y);
        rig.alloc.free(x).unwrap();
        rig.alloc.free(y).unwrap();
        rig.sim.complete(fast);
        let got = rig.ask(10 * U, s0, wait).unwrap();
        assert!(got.waits.is_empty(), "{:?} waits for the slow stream", got.waits);
        assert_eq!(rig.offset(got.handle), place);
        rig.work(got.handle, s0);
        rig.assert_sound();
    }
}

#[test]
fn case_05_what_a_side_stream_freed_serves_the_main_stream() {
    let rig = Rig::new(2 << 30);
    let (s0, s1) = (rig.stream(), rig.stream());
    let side: Vec<_> = (0..4).map(|_| rig.get(256 * U, s1)).collect();
    let points: Vec<_> = side.iter().map(|&handle| rig.work(handle, s1)).collect();
    side.iter().for_each(|&handle| rig.alloc.free(handle).unwrap());
    points.into_iter().for_each(|point| rig.sim.complete(point));
    let _main: Vec<_> = (0..4).map(|_| rig.get(256 * U, s0)).collect();
    assert_eq!(rig.reserved(), 1 << 30);
    rig.assert_sound();
}

#[test]
fn case_06_many_short_lived_streams_leave_nothing_behind() {
    let rig = Rig::new(1 << 30);
    for _ in 0..512 {
        let stream = rig.stream();
        let got = rig.ask(64 * U, stream, Wait::OnStream).unwrap();
        let point = rig.work(got.handle, stream);
        rig.alloc.free(got.handle).unwrap();
        rig.sim.complete(point);
        rig.alloc.retire_stream(stream).unwrap();
        assert_eq!(rig.reserved(), 64 * U);
    }
    assert_eq!(rig.alloc.stats().pending, 0);
    assert_eq!(rig.alloc.tracked_streams(), 0, "state of streams that are gone is kept");
    rig.assert_sound();
}

#[test]
fn case_12_neighbours_of_two_streams_join_behind_one_wait() {
    let rig = Rig::with(Sim::slabs().capacity(1024 * U), |config| {
        config.preallocate = 1.0;
    });
    let (s0, s1) = (rig.stream(), rig.stream());
    let mut live = Vec::new();
    for round in 0..3 {
        for stream in [s0, s1] {
            let bytes = (100 + 50 * round) * U;
            if let Ok(got) = rig.ask(bytes, stream, Wait::OnStream) {
                rig.work(got.handle, stream);
                live.push(got.handle);
            }
        }
    }
    live.into_iter().for_each(|handle| rig.alloc.free(handle).unwrap());
    let got = rig.ask(1000 * U, s0, Wait::OnStream).unwrap();
    assert_eq!(got.waits.len(), 1, "one wait, for {s1:?}: {:?}", got.waits);
    assert_eq!(got.waits.single_stream(), Some(s1));
    rig.work(got.handle, s0);
    rig.assert_sound();
}

#[test]
fn case_10_nothing_is_freed_synced_or_asked_while_a_graph_is_captured() {
    for wait in [Wait::Never, Wait::OnStream, on_host(50)] {
        let rig = Rig::with(Sim::slabs().capacity(64 * U).caps(|caps| caps.capture = true), |_| {});
        let (s0, s1) = (rig.stream(), rig.stream());
        let kept = rig.get(40 * U, s0);
        let point = rig.work(kept, s1);
        let cached = rig.get(20 * U, s0);
        rig.alloc.free(cached).unwrap();
        let capture = rig.sim.begin_capture(s0).unwrap();
        rig.alloc.free(kept).unwrap();
        rig.sim.clear_calls();
        let error = rig.ask(30 * U, s0, wait).unwrap_err();
        assert!(matches!(error, Error::OutOfMemoryInCapture(_)), "{error:?}");
        for kind in [CallKind::ReleasePlain, CallKind::WaitAny, CallKind::Reached] {
            assert_eq!(rig.calls(kind), 0, "{} during a capture", kind.name());
        }
        rig.sim.end_capture(capture).unwrap();
        rig.sim.complete(point);
        assert!(rig.ask(30 * U, s0, on_host(50)).is_ok());
        rig.assert_sound();
    }
}

#[test]
fn case_10_a_graph_keeps_its_freed_memory_until_it_is_released() {
    let rig = Rig::with(Sim::slabs().capacity(256 * U).caps(|caps| caps.capture = true), |_| {});
    let (s0, s1) = (rig.stream(), rig.stream());
    let capture = rig.sim.begin_capture(s0).unwrap();
    let (inside, after) = (rig.get(32 * U, s0), rig.get(32 * U, s0));
    let graph = rig.alloc.graph(s0).unwrap().unwrap();
    rig.alloc.free(inside).unwrap();
    rig.sim.end_capture(capture).unwrap();
    rig.alloc.free(after).unwrap();
    let held = rig.reserved();
    assert_eq!(rig.alloc.trim(0).unwrap(), 0, "a replay would write to memory given back");
    assert_eq!(rig.alloc.release_cached().unwrap(), 0);
    let other = rig.ask(32 * U, s1, Wait::OnStream).unwrap();
    assert!(rig.reserved() > held, "the graph's memory was handed out");
    rig.alloc.free(other.handle).unwrap();
    rig.alloc.release_graph(graph).unwrap();
    rig.alloc.trim(0).unwrap();
    assert_eq!(rig.reserved(), 0, "the graph was released and its memory stayed");
    rig.assert_sound();
}
