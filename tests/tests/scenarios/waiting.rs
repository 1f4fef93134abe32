//! Cases 1, 3 and 4: how a request waits.

use terrane_core::device::calls::CallKind;

use super::*;

/// A block of 60 u used by a busy stream and freed, on a device of 100 u.
fn freed_in_flight() -> (Rig, StreamId, SyncPoint, u64) {
    let rig = Rig::new(100 * U);
    let (s0, s1) = (rig.stream(), rig.stream());
    let a = rig.get(60 * U, s0);
    let place = rig.offset(a);
    let busy = rig.work(a, s1);
    rig.alloc.free(a).unwrap();
    (rig, s0, busy, place)
}

#[test]
fn case_01_freed_in_flight_is_handed_out_behind_its_one_sync_point() {
    let (rig, s0, busy, place) = freed_in_flight();
    let got = rig.ask(60 * U, s0, Wait::OnStream).unwrap();
    assert_eq!(got.waits.as_slice(), [busy]);
    assert_eq!(rig.offset(got.handle), place);
    rig.work(got.handle, s0);
    assert_eq!(rig.calls(CallKind::ReleasePlain), 0);
    rig.assert_sound();
}

#[test]
fn case_01_a_host_wait_returns_when_the_work_is_done() {
    let (rig, s0, busy, place) = freed_in_flight();
    let helper = completing(&rig.sim, vec![busy]);
    let got = rig.ask(60 * U, s0, on_host(10_000)).unwrap();
    helper.join().unwrap();
    assert!(got.waits.is_empty());
    assert_eq!(rig.offset(got.handle), place);
    assert_eq!(rig.calls(CallKind::ReleasePlain), 0);
    rig.assert_sound();
}

#[test]
fn case_01_a_request_that_never_waits_says_so_at_once() {
    let (rig, s0, _, _) = freed_in_flight();
    let error = rig.ask(60 * U, s0, Wait::Never).unwrap_err();
    assert_eq!(error, Error::WouldWait { asked: 60 * U });
    assert!(error.is_transient());
    assert_eq!(rig.calls(CallKind::WaitAny), 0);
    assert_eq!(rig.calls(CallKind::ReleasePlain), 0);
    rig.assert_sound();
}

#[test]
fn case_01_a_host_wait_ends_when_its_time_is_over() {
    let (rig, s0, _, _) = freed_in_flight();
    let error = rig.ask(60 * U, s0, on_host(20)).unwrap_err();
    assert_eq!(error, Error::TimedOut { asked: 60 * U });
    rig.assert_sound();
}

/// Eight neighbours of 10 u on eight streams that finish one after the other, the device full.
fn eight_pending() -> (Rig, StreamId, Vec<SyncPoint>) {
    let rig = Rig::with(Sim::slabs().capacity(80 * U), |config| config.preallocate = 1.0);
    let s0 = rig.stream();
    let streams: Vec<_> = (0..8).map(|_| rig.stream()).collect();
    let blocks: Vec<_> = streams.iter().map(|_| rig.get(10 * U, s0)).collect();
    let points = blocks.iter().zip(&streams).map(|(&b, &s)| rig.work(b, s)).collect();
    blocks.iter().for_each(|&block| rig.alloc.free(block).unwrap());
    (rig, s0, points)
}

#[test]
fn case_03_a_host_wait_is_for_just_enough() {
    for (bytes, needed) in [(10 * U, 1), (20 * U, 2)] {
        let (rig, s0, points) = eight_pending();
        let helper = completing(&rig.sim, points[..needed].to_vec());
        let got = rig.ask(bytes, s0, on_host(10_000)).unwrap();
        helper.join().unwrap();
        assert!(got.waits.is_empty());
        // The others are still busy: the request did not wait for them.
        assert_eq!(rig.sim.reached(points[needed].stream), Ok(0));
        rig.assert_sound();
    }
}

#[test]
fn case_04_a_lagging_consumer_is_waited_for_and_the_limit_holds() {
    let rig = Rig::with(Sim::slabs().capacity(4 << 30), limited(256 * U));
    let (s0, s1) = (rig.stream(), rig.stream());
    let mut late = std::collections::VecDeque::new();
    for _ in 0..100 {
        let got = rig.ask(64 * U, s0, Wait::OnStream).unwrap();
        rig.work(got.handle, s0);
        late.push_back(rig.work(got.handle, s1));
        rig.alloc.free(got.handle).unwrap();
        if late.len() > 8 {
            rig.sim.complete(late.pop_front().unwrap());
        }
        assert!(rig.reserved() <= 256 * U, "{} reserved", rig.reserved());
    }
    rig.assert_sound();
}
