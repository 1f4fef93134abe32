use std::time::Duration;

use terrane_core::device::{CaptureId, Compute, CopyOp, Device, DeviceError, Paging, Region};

use super::{DEVICE, MIB, Options, at, is_reached, open, open_with, plain, stream};
use crate::driver::RawStream;
use crate::driver::fake::PAGE;

#[test]
fn a_capture_is_seen_and_respected() {
    let (fake, device) = open();
    let (own, other) = (stream(&device), stream(&device));
    let segment = plain(&device, DEVICE, 2 * MIB);
    let before = device.fill(own, at(segment.space, 0), 64, 1).unwrap();
    assert!(!device.is_capturing() && device.capture_of(own).is_none());
    // A program that captures has the handle.
    fake.state().captures.insert(RawStream(device.raw_stream(own).unwrap()), 17);
    assert!(device.is_capturing());
    assert_eq!(device.capture_of(own), Some(CaptureId(17)));
    assert_eq!(device.capture_of(other), None);
    // Plain submissions join the graph; those that need a buffer of ours would reuse it.
    let op = CopyOp { from: at(segment.space, 0), to: at(segment.space, 64), bytes: 64 };
    let captured = device.copy(own, &[op]).unwrap();
    assert_eq!(device.write(own, at(segment.space, 0), &[1]), Err(DeviceError::Capturing));
    assert!(matches!(device.read(own, at(segment.space, 0), 4), Err(DeviceError::Capturing)));
    let region = Region { place: at(segment.space, 0), bytes: 64, seed: 1 };
    assert_eq!(device.fill_pattern(own, &[region]), Err(DeviceError::Capturing));
    assert_eq!(device.gather(own, &[]), Err(DeviceError::Capturing));
    // No event may be recorded in it, so nothing new is known, and nobody joins by accident.
    assert_eq!(device.reached(own), Ok(0));
    assert_eq!(device.wait_any(&[before], Duration::ZERO), Err(DeviceError::Capturing));
    assert_eq!(device.wait_on_stream(other, &[captured]), Err(DeviceError::Capturing));
    assert_eq!(device.retire_stream(own), Err(DeviceError::Capturing));
    fake.state().captures.clear();
    assert!(is_reached(&device, captured) && is_reached(&device, before));
}

#[test]
fn memory_calls_are_made_in_relaxed_mode_during_a_capture() {
    let (fake, device) = open();
    let own = stream(&device);
    let thread = std::thread::current().id();
    // A program that captures has the handle.
    fake.state().captures.insert(RawStream(device.raw_stream(own).unwrap()), 17);
    fake.state().strict_calls.clear();
    let space = device.reserve(DEVICE, PAGE).unwrap().space;
    let memory = Paging::create(&device, DEVICE, PAGE, false).unwrap();
    let op =
        terrane_core::device::MapOp { at: at(space, 0), memory, memory_offset: 0, bytes: PAGE };
    device.map(&[op], &[]).unwrap();
    let segment = plain(&device, DEVICE, 2 * MIB);
    device.release_plain(segment.space).unwrap();
    assert!(fake.state().strict_calls.is_empty());
    assert_eq!(fake.state().modes.get(&thread), Some(&0), "the thread's own mode came back");
}

#[test]
fn codes_of_a_forbidden_call_mean_capturing() {
    let (fake, device) = open();
    let (own, segment) = (stream(&device), plain(&device, DEVICE, 2 * MIB));
    let point = device.fill(own, at(segment.space, 0), 64, 1).unwrap();
    fake.fail("cuEventQuery", 0, crate::driver::code::STREAM_CAPTURE_UNSUPPORTED);
    assert_eq!(device.wait_any(&[point], Duration::ZERO), Err(DeviceError::Capturing));
    assert!(is_reached(&device, point));
}

#[test]
fn streams_that_nobody_else_has_are_not_asked_about_captures() {
    let (fake, device) = open();
    let (own, segment) = (stream(&device), plain(&device, DEVICE, 2 * MIB));
    let asked = || fake.calls("cuStreamGetCaptureInfo");
    let point = device.fill(own, at(segment.space, 0), 64, 1).unwrap();
    assert!(is_reached(&device, point));
    assert!(!device.is_capturing() && device.capture_of(own).is_none());
    assert_eq!(asked(), 0);
    let raw = RawStream(device.raw_stream(own).unwrap());
    assert!(!device.is_capturing());
    assert_eq!(asked(), 1);
    fake.state().captures.insert(raw, 17);
    assert!(device.is_capturing());
    fake.state().captures.clear();
    device.retire_stream(own).unwrap();
    let before = asked();
    assert!(!device.is_capturing() && device.capture_of(own).is_none());
    assert_eq!(asked(), before, "a retired stream is asked nothing");
}

#[test]
fn a_thread_asks_about_its_own_default_stream() {
    let (fake, device) = open();
    // SAFETY: the software driver knows the per-thread stream for as long as it lives.
    let mine = unsafe { device.wrap_stream(2) }.unwrap();
    fake.state().captures.insert(RawStream::PER_THREAD, 3);
    assert!(device.is_capturing());
    assert_eq!(device.capture_of(mine), Some(CaptureId(3)));
    let elsewhere = std::thread::scope(|scope| scope.spawn(|| device.is_capturing()).join());
    assert!(!elsewhere.unwrap(), "there the handle means another stream");
}

#[test]
fn a_program_that_captures_nothing_pays_no_question() {
    let (fake, device) = open_with(Options { capture: false, ..Options::default() });
    let own = stream(&device);
    device.raw_stream(own).unwrap();
    assert!(!device.caps().capture);
    assert!(!device.is_capturing() && device.capture_of(own).is_none());
    assert_eq!(fake.calls("cuStreamGetCaptureInfo"), 0);
}
