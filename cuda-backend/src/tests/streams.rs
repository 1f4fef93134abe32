use std::time::{Duration, Instant};

use terrane_core::device::{CopyOp, Device, DeviceError, StreamId, SyncPoint};

use super::{DEVICE, MIB, at, contents, is_reached, open, plain, raw, stream};

#[test]
fn points_of_one_stream_share_one_event() {
    let (fake, device) = open();
    let (own, segment) = (stream(&device), plain(&device, DEVICE, 2 * MIB));
    fake.hold(raw(&device, own));
    let points: Vec<_> =
        (0..100).map(|i| device.fill(own, at(segment.space, 0), 64, i).unwrap()).collect();
    assert!(points.windows(2).all(|pair| { pair[0].value } < pair[1].value));
    let before = fake.calls("cuEventRecord");
    assert!(points.iter().all(|&point| !is_reached(&device, point)));
    // The first question may come before the last submission, so it is one event, or two.
    assert_eq!(fake.calls("cuEventRecord") - before, 1);
    fake.release_all();
    assert!(points.iter().all(|&point| is_reached(&device, point)));
    assert_eq!(fake.calls("cuEventRecord") - before, 1);
    assert_eq!(device.reached(own), Ok(100));
}

#[test]
fn mark_makes_no_driver_call() {
    let (fake, device) = open();
    let own = stream(&device);
    // SAFETY: the software driver knows the legacy stream for as long as it lives.
    let legacy = unsafe { device.wrap_stream(0) }.unwrap();
    let before: u64 = fake.state().calls.values().sum();
    assert_eq!({ device.mark(own).unwrap().value }, 0);
    assert!({ device.mark(legacy).unwrap().value } > 0);
    assert_eq!(fake.state().calls.values().sum::<u64>(), before);
}

#[test]
fn a_mark_on_a_foreign_stream_covers_what_others_submitted() {
    let (fake, device) = open();
    let segment = plain(&device, DEVICE, 2 * MIB);
    // SAFETY: the software driver knows the legacy stream for as long as it lives.
    let legacy = unsafe { device.wrap_stream(1) }.unwrap();
    assert!(device.is_foreign(legacy));
    let first = device.mark(legacy).unwrap();
    assert!(is_reached(&device, first));
    // Somebody else submits: a point taken before says nothing of it, a new one does.
    fake.hold(1);
    let own = device.inner.streams.get(legacy).unwrap();
    {
        let _entered = device.inner.enter().unwrap();
        device.inner.driver.fill(segment.address.unwrap(), 1, 4, own.raw).unwrap();
    }
    let second = device.mark(legacy).unwrap();
    assert!({ second.value } > { first.value });
    assert_eq!(device.mark(legacy).unwrap(), second, "unrecorded values are shared");
    assert!(!is_reached(&device, second));
    assert!({ device.mark(legacy).unwrap().value } > { second.value });
    fake.release_all();
    assert!(is_reached(&device, second));
}

#[test]
fn a_wait_orders_work_of_two_streams_without_the_host() {
    let (fake, device) = open();
    let (one, two) = (stream(&device), stream(&device));
    let segment = plain(&device, DEVICE, 2 * MIB);
    device.fill(one, at(segment.space, 0), 64, 7).unwrap();
    fake.hold(raw(&device, one));
    let written = device.fill(one, at(segment.space, 0), 64, 9).unwrap();
    device.wait_on_stream(two, &[written]).unwrap();
    let op = CopyOp { from: at(segment.space, 0), to: at(segment.space, 1024), bytes: 64 };
    let copied = device.copy(two, &[op]).unwrap();
    assert!(!is_reached(&device, copied));
    fake.release_all();
    assert!(is_reached(&device, copied));
    assert_eq!(contents(&device, two, at(segment.space, 1024), 64), 9_u32.to_le_bytes().repeat(16));
}

#[test]
fn reached_points_and_own_points_cost_no_wait() {
    let (fake, device) = open();
    let (one, two) = (stream(&device), stream(&device));
    let segment = plain(&device, DEVICE, 2 * MIB);
    let done = device.fill(one, at(segment.space, 0), 64, 7).unwrap();
    assert!(is_reached(&device, done));
    device.wait_on_stream(two, &[done, SyncPoint { stream: one, value: 0 }]).unwrap();
    device.wait_on_stream(one, &[done]).unwrap();
    assert_eq!(fake.calls("cuStreamWaitEvent"), 0);
}

#[test]
fn a_retired_stream_takes_no_work_and_its_points_stay_good() {
    let (fake, device) = open();
    let (own, segment) = (stream(&device), plain(&device, DEVICE, 2 * MIB));
    fake.hold(raw(&device, own));
    let point = device.fill(own, at(segment.space, 0), 64, 7).unwrap();
    device.retire_stream(own).unwrap();
    assert!(!is_reached(&device, point));
    assert_eq!(device.fill(own, at(segment.space, 0), 64, 8), Err(DeviceError::UnknownStream));
    assert_eq!(device.mark(own), Err(DeviceError::UnknownStream));
    assert_eq!(device.retire_stream(own), Err(DeviceError::UnknownStream));
    fake.release_all();
    assert!(is_reached(&device, point));
    assert_eq!(device.reached(own), Ok(point.value));
    assert_eq!(device.reached(StreamId(77)), Err(DeviceError::UnknownStream));
}

#[test]
fn streams_of_other_contexts_are_refused() {
    let (_, device) = open();
    // SAFETY: the software driver checks the handle itself.
    let refused = unsafe { device.wrap_stream(0xDEAD) };
    assert_eq!(refused, Err(DeviceError::InvalidCall("a stream of another context")));
}

#[test]
fn a_threads_default_stream_takes_work_of_that_thread_only() {
    let (_, device) = open();
    let segment = plain(&device, DEVICE, 2 * MIB);
    // SAFETY: the software driver knows the per-thread stream for as long as it lives.
    let mine = unsafe { device.wrap_stream(2) }.unwrap();
    let point = device.fill(mine, at(segment.space, 0), 64, 7).unwrap();
    let device = &device;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let refused = device.fill(mine, at(segment.space, 0), 64, 8);
            assert!(matches!(refused, Err(DeviceError::InvalidCall(_))), "{refused:?}");
            // Another thread can ask and wait all the same.
            assert!(is_reached(device, point));
        });
    });
}

#[test]
fn wait_any_ends_at_its_time_and_at_the_first_point() {
    let (fake, device) = open();
    let (one, two) = (stream(&device), stream(&device));
    let segment = plain(&device, DEVICE, 2 * MIB);
    fake.hold(raw(&device, one));
    let held = device.fill(one, at(segment.space, 0), 64, 7).unwrap();
    let start = Instant::now();
    assert_eq!(device.wait_any(&[held], Duration::from_millis(20)), Ok(false));
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert_eq!(device.wait_any(&[], Duration::from_millis(5)), Ok(false));
    let done = device.fill(two, at(segment.space, 64), 64, 7).unwrap();
    assert_eq!(device.wait_any(&[held, done], Duration::from_secs(5)), Ok(true));
}

#[test]
fn points_that_were_never_given_out_are_refused() {
    let (_, device) = open();
    let own = stream(&device);
    let point = SyncPoint { stream: own, value: 5 };
    assert!(matches!(device.wait_any(&[point], Duration::ZERO), Err(DeviceError::InvalidCall(_))));
}

#[test]
fn a_stream_whose_handle_was_given_out_counts_as_foreign() {
    let (_, device) = open();
    let own = stream(&device);
    assert!(!device.is_foreign(own));
    let raw = device.raw_stream(own).unwrap();
    assert!(raw != 0 && device.is_foreign(own));
    assert!({ device.mark(own).unwrap().value } > 0);
    device.retire_stream(own).unwrap();
    assert_eq!(device.raw_stream(own), Err(DeviceError::UnknownStream), "its handle is gone");
}

#[test]
fn what_is_known_is_answered_without_the_driver() {
    let (fake, device) = open();
    let (own, segment) = (stream(&device), plain(&device, DEVICE, 2 * MIB));
    let point = device.fill(own, at(segment.space, 0), 64, 7).unwrap();
    assert!(is_reached(&device, point));
    let before: u64 = fake.state().calls.values().sum();
    assert_eq!(device.reached(own), Ok(point.value));
    assert!(is_reached(&device, point));
    assert_eq!(fake.state().calls.values().sum::<u64>(), before);
}

#[test]
fn the_callers_context_and_capture_mode_come_back() {
    let (fake, device) = open();
    let thread = std::thread::current().id();
    fake.state().contexts.insert(thread, vec![0x55]);
    fake.state().modes.insert(thread, 1);
    let (own, segment) = (stream(&device), plain(&device, DEVICE, 2 * MIB));
    let point = device.fill(own, at(segment.space, 0), 64, 7).unwrap();
    assert!(is_reached(&device, point));
    assert!(device.fill(own, at(segment.space, 0), 63, 7).is_err());
    device.release_plain(segment.space).unwrap();
    let state = fake.state();
    assert_eq!(state.contexts[&thread], [0x55]);
    assert_eq!(state.modes[&thread], 1);
    assert!(state.strict_calls.iter().all(|call| call.starts_with("cuEventCreate")));
}
