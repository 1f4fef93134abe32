use std::time::Duration;

use terrane_core::device::{
    CopyOp, Device, DeviceError, Feature, HostAccess, PlainSpec, SyncPoint, Ticket,
};

use super::{
    DEVICE, KIB, MIB, SHARED, UPLOAD, at, contents, is_reached, open, open_with, plain, raw, spec,
    stream,
};
use crate::driver::fake::PAGE;
use crate::{Advice, Options, Source};

#[test]
fn bytes_written_are_the_bytes_read() {
    let (_, device) = open();
    let (own, segment) = (stream(&device), plain(&device, DEVICE, 2 * MIB));
    let data: Vec<u8> = (0..300_000_u32).map(|i| i as u8).collect();
    device.write(own, at(segment.space, 12), &data).unwrap();
    assert_eq!(contents(&device, own, at(segment.space, 12), data.len() as u64), data);
    assert!(contents(&device, own, at(segment.space, 0), 0).is_empty());
}

#[test]
fn copies_and_fills_reach_exactly_their_ranges() {
    let (_, device) = open();
    let (own, segment) = (stream(&device), plain(&device, DEVICE, 2 * MIB));
    device.fill(own, at(segment.space, 0), 1024, 0x0102_0304).unwrap();
    device.fill(own, at(segment.space, 256), 256, 0).unwrap();
    let op = CopyOp { from: at(segment.space, 0), to: at(segment.space, 256), bytes: 64 };
    device.copy(own, &[op]).unwrap();
    let word = 0x0102_0304_u32.to_le_bytes();
    let mut expected = word.repeat(256);
    expected[320..512].fill(0);
    assert_eq!(contents(&device, own, at(segment.space, 0), 1024), expected);
}

#[test]
fn ranges_outside_their_space_are_refused() {
    let (_, device) = open();
    let (own, segment) = (stream(&device), plain(&device, DEVICE, 2 * MIB));
    let end = segment.bytes;
    let far = at(segment.space, u64::MAX - 3);
    assert!(device.fill(own, at(segment.space, end - 4), 8, 0).is_err());
    assert!(device.fill(own, far, 8, 0).is_err());
    assert!(device.write(own, at(segment.space, end), &[1]).is_err());
    assert!(device.read(own, far, 8).is_err());
    let op = CopyOp { from: at(segment.space, 0), to: at(segment.space, end - 4), bytes: 8 };
    assert!(device.copy(own, &[op]).is_err());
    assert!(device.fill(own, at(segment.space, 2), 4, 0).is_err(), "unaligned");
}

#[test]
fn a_ticket_is_taken_once_and_only_when_its_work_is_done() {
    let (fake, device) = open();
    let (own, segment) = (stream(&device), plain(&device, DEVICE, 2 * MIB));
    fake.hold(raw(&device, own));
    let ticket = device.read(own, at(segment.space, 0), 16).unwrap();
    assert!(device.take_read(ticket).is_err());
    fake.release_all();
    assert_eq!(device.take_read(ticket).unwrap(), vec![0xA5; 16]);
    assert!(device.take_read(ticket).is_err());
    let none = Ticket { id: u64::MAX, point: SyncPoint { stream: own, value: 0 } };
    assert!(device.take_read(none).is_err());
}

#[test]
fn staging_memory_is_reused_once_its_work_is_done() {
    let (fake, device) = open();
    let (own, segment) = (stream(&device), plain(&device, DEVICE, 2 * MIB));
    for i in 0..50 {
        let point = device.write(own, at(segment.space, 0), &[i; 100]).unwrap();
        assert!(is_reached(&device, point));
    }
    assert_eq!(fake.calls("cuMemHostAlloc"), 1);
    fake.hold(raw(&device, own));
    for i in 0..3 {
        device.write(own, at(segment.space, 0), &[i; 100]).unwrap();
    }
    assert_eq!(fake.calls("cuMemHostAlloc"), 3);
    fake.release_all();
    assert_eq!(contents(&device, own, at(segment.space, 0), 1), [2]);
}

#[test]
fn host_memory_is_seen_by_host_and_device() {
    let (_, device) = open();
    let own = stream(&device);
    for class in [UPLOAD, SHARED] {
        let segment = plain(&device, class, 2 * MIB);
        let mut view = device.view(at(segment.space, 64), 128).unwrap();
        view.bytes_mut().fill(7);
        assert_eq!(contents(&device, own, at(segment.space, 60), 8), [0, 0, 0, 0, 7, 7, 7, 7]);
        assert!(device.release_plain(segment.space).is_err(), "a view is open");
        drop(view);
        let pointer = device.pointer(at(segment.space, 64)).unwrap();
        // SAFETY: inside the segment, which is alive, and no work runs.
        assert_eq!(unsafe { pointer.read() }, 7);
        device.flush(at(segment.space, 0), 64).unwrap();
        device.invalidate(at(segment.space, 0), 64).unwrap();
        assert!(device.view(at(segment.space, 0), segment.bytes + 1).is_err());
        device.release_plain(segment.space).unwrap();
    }
    let hidden = plain(&device, DEVICE, 2 * MIB);
    let refused = device.view(at(hidden.space, 0), 64).err();
    assert_eq!(refused, Some(DeviceError::Unsupported(Feature::HostMapping)));
}

#[test]
fn a_view_keeps_the_device_open() {
    let (fake, device) = open();
    let segment = plain(&device, UPLOAD, 2 * MIB);
    let mut view = device.view(at(segment.space, 0), 64).unwrap();
    drop(device);
    view.bytes_mut().fill(3);
    assert_eq!(view.bytes(), [3; 64]);
    drop(view);
    assert_eq!(fake.state().memory.leftovers(), 0);
}

#[test]
fn wrong_segments_are_refused() {
    let (_, device) = open();
    for bytes in [0, 100, 2 * MIB + 4] {
        let refused = device.create_plain(&spec(DEVICE, bytes));
        assert!(matches!(refused, Err(DeviceError::InvalidCall(_))), "{bytes}");
    }
    let refused = device.create_plain(&spec(DEVICE, 1 << 40));
    assert!(matches!(refused, Err(DeviceError::TooLarge { .. })));
    let refused = device.create_plain(&spec(DEVICE, 64 * MIB)).map(|_| ());
    assert_eq!(refused, Ok(()));
    let refused = device.create_plain(&spec(DEVICE, 2 * MIB)).err();
    assert_eq!(refused, Some(DeviceError::OutOfMemory { bytes: 2 * MIB }));
    let segment = terrane_core::device::SpaceId(999);
    assert!(matches!(device.release_plain(segment), Err(DeviceError::InvalidCall(_))));
}

#[test]
fn the_drivers_own_pool_can_be_the_source() {
    let options = Options { source: Source::DriverPool, ..Options::default() };
    let (fake, device) = open_with(options);
    let (own, segment) = (stream(&device), plain(&device, DEVICE, 2 * MIB));
    device.fill(own, at(segment.space, 0), 64, 1).unwrap();
    device.release_plain(segment.space).unwrap();
    assert_eq!((fake.calls("cuMemAllocAsync"), fake.calls("cuMemFreeAsync")), (1, 1));
    assert_eq!(fake.calls("cuMemAlloc"), 0);
    assert_eq!(fake.calls("cuStreamSynchronize"), 1, "usable on every stream at once");
    drop(device);
    assert_eq!(fake.state().memory.leftovers(), 0);
}

#[test]
fn in_guard_mode_the_first_byte_past_a_segment_faults() {
    let (fake, device) = open_with(Options { guard: true, ..Options::default() });
    assert!(device.caps().paging.is_none());
    let own = stream(&device);
    let segment = plain(&device, DEVICE, 3 * 256);
    assert_eq!(segment.bytes, 3 * 256);
    let end = segment.address.unwrap() + segment.bytes;
    assert!(end.is_multiple_of(PAGE));
    device.fill(own, at(segment.space, 0), segment.bytes, 5).unwrap();
    assert_eq!(fake.state().memory.load(end - 4, 4), Ok(vec![5, 0, 0, 0]));
    assert_eq!(fake.state().memory.load(end, 1), Err(700));
    device.release_plain(segment.space).unwrap();
    assert_eq!(fake.state().memory.mapped(), 0);
}

#[test]
fn managed_memory_takes_prefetch_and_advice_and_nothing_else_does() {
    let (fake, device) = open();
    let own = stream(&device);
    let managed = plain(&device, SHARED, 2 * MIB);
    let point = device.prefetch(own, at(managed.space, 0), 64 * KIB, false).unwrap();
    assert!(device.wait_any(&[point], Duration::from_secs(1)).unwrap());
    for advice in [Advice::ReadMostly, Advice::PreferDevice, Advice::PreferHost] {
        device.advise(at(managed.space, 0), 64 * KIB, advice).unwrap();
    }
    assert_eq!((fake.calls("cuMemPrefetchAsync"), fake.calls("cuMemAdvise")), (1, 3));
    let other = plain(&device, DEVICE, 2 * MIB);
    let refused = device.prefetch(own, at(other.space, 0), 64, false);
    assert_eq!(refused, Err(DeviceError::Unsupported(Feature::Advice)));
}

#[test]
fn a_device_gives_everything_back_when_it_is_dropped() {
    let (fake, device) = open();
    let own = stream(&device);
    for class in [DEVICE, UPLOAD, SHARED] {
        plain(&device, class, 2 * MIB);
    }
    let exported = PlainSpec { exportable: true, ..spec(DEVICE, 2 * MIB) };
    let segment = device.create_plain(&exported).unwrap();
    device.write(own, at(segment.space, 0), &[1; 100]).unwrap();
    device.read(own, at(segment.space, 0), 100).unwrap();
    drop(device);
    let state = fake.state();
    assert_eq!((state.memory.leftovers(), state.retained), (0, 0));
}
