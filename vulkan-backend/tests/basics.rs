//! Memory, streams and copies on whatever Vulkan device there is.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a failed test panics

mod common;

use std::time::{Duration, Instant};

use common::{at, bench};
use terrane_core::device::{
    CopyOp, Device, DeviceError, HeapId, HostAccess, MemoryKind, PlainSpec, Region, SpaceId,
    StreamId, SyncPoint, Ticket,
};
use terrane_vulkan::{Selector, Timed};

const MIB: u64 = 1 << 20;

#[test]
fn bytes_written_are_read_back_after_copies_and_fills() {
    let Some(device) = bench() else { return };
    let (a, b) = (device.plain(MemoryKind::Device, 2 * MIB), device.plain(MemoryKind::Device, MIB));
    let stream = device.stream();
    // Longer than one staging chunk is covered by another test; odd sizes here.
    let data: Vec<u8> = (0..100_003_u32).map(|i| (i * 7) as u8).collect();
    device.write(stream, at(a.space, 5), &data).unwrap();
    device.fill(stream, at(a.space, MIB), 64, 0xDEAD_BEEF).unwrap();
    let ops = [
        CopyOp { from: at(a.space, 0), to: at(b.space, 4096), bytes: 200_000 },
        CopyOp { from: at(a.space, MIB), to: at(b.space, 0), bytes: 64 },
        CopyOp { from: at(a.space, MIB), to: at(a.space, MIB + 4096), bytes: 64 },
    ];
    device.copy(stream, &ops).unwrap();
    assert_eq!(device.fetch(stream, at(b.space, 4096 + 5), data.len() as u64), data);
    assert_eq!(device.fetch_words(stream, at(b.space, 0), 16), [0xDEAD_BEEF; 16]);
    assert_eq!(device.fetch_words(stream, at(a.space, MIB + 4096), 16), [0xDEAD_BEEF; 16]);
    device.release_plain(a.space).unwrap();
    device.release_plain(b.space).unwrap();
    assert_eq!(device.memory_objects(), 0);
}

#[test]
fn transfers_longer_than_a_staging_chunk_arrive_whole() {
    let Some(device) = bench() else { return };
    let bytes = 9 * MIB + 12;
    let plain = device.plain(MemoryKind::Device, bytes);
    let stream = device.stream();
    let data: Vec<u8> = (0..bytes).map(|i| (i ^ (i >> 9) ^ (i >> 17)) as u8).collect();
    device.write(stream, at(plain.space, 0), &data).unwrap();
    assert!(device.fetch(stream, at(plain.space, 0), bytes) == data);
}

#[test]
fn a_copy_and_a_fill_of_two_gibibytes_are_exact() {
    let Some(device) = bench() else { return };
    let bytes = 2 << 30;
    if device.caps().max_plain_bytes < bytes || device.heap_use(HeapId(0)).unwrap().free < 4 * bytes
    {
        eprintln!("skipped: the device has no room for two objects of 2 GiB");
        return;
    }
    // What was never written takes no memory of the host where the host is the device.
    let (from, to) =
        (device.plain(MemoryKind::Device, bytes), device.plain(MemoryKind::Device, bytes));
    let stream = device.stream();
    let marks = [0, (1 << 30) - 64, 1 << 30, bytes - 64];
    for (word, offset) in (1_u32..).zip(marks) {
        device.fill(stream, at(from.space, offset), 64, word).unwrap();
    }
    let op = CopyOp { from: at(from.space, 0), to: at(to.space, 0), bytes };
    device.copy(stream, &[op]).unwrap();
    for (word, offset) in (1_u32..).zip(marks) {
        assert_eq!(device.fetch_words(stream, at(to.space, offset), 16), [word; 16]);
    }
    device.fill(stream, at(to.space, 0), bytes, 0x5A5A_5A5A).unwrap();
    for offset in marks {
        assert_eq!(device.fetch_words(stream, at(to.space, offset), 16), [0x5A5A_5A5A; 16]);
    }
    device.release_plain(from.space).unwrap();
    device.release_plain(to.space).unwrap();
}

#[test]
fn work_on_one_stream_waits_for_points_of_others() {
    let Some(device) = bench() else { return };
    let plain = device.plain(MemoryKind::Device, 16 * MIB);
    let streams: Vec<StreamId> = (0..5).map(|_| device.stream()).collect();
    let half = 8 * MIB;
    let mut last: Option<SyncPoint> = None;
    for round in 0..40_u32 {
        let stream = streams[round as usize % streams.len()];
        device.wait_on_stream(stream, last.as_slice()).unwrap();
        device.fill(stream, at(plain.space, 0), half, round).unwrap();
        let op = CopyOp { from: at(plain.space, 0), to: at(plain.space, half), bytes: half };
        last = Some(device.copy(stream, &[op]).unwrap());
    }
    device.wait_on_stream(streams[0], last.as_slice()).unwrap();
    let words = device.fetch_words(streams[0], at(plain.space, half), half / 4);
    assert!(words.iter().all(|word| *word == 39));
}

#[test]
fn points_are_reached_in_order_and_marks_cover_what_was_submitted() {
    let Some(device) = bench() else { return };
    let plain = device.plain(MemoryKind::Device, MIB);
    let stream = device.stream();
    assert_eq!(device.mark(stream).unwrap(), SyncPoint { stream, value: 0 });
    assert!(device.wait_any(&[device.mark(stream).unwrap()], Duration::ZERO).unwrap());
    let first = device.fill(stream, at(plain.space, 0), MIB, 1).unwrap();
    let second = device.fill(stream, at(plain.space, 0), MIB, 2).unwrap();
    let (value, later) = (first.value, second.value);
    assert!(later > value);
    assert_eq!(device.mark(stream).unwrap(), second);
    device.wait(second);
    assert_eq!(device.reached(stream).unwrap(), later);
    let start = Instant::now();
    assert!(!device.wait_any(&[], Duration::from_millis(20)).unwrap());
    assert!(start.elapsed() >= Duration::from_millis(20));
}

#[test]
fn a_retired_stream_takes_no_work_and_its_points_stay_valid() {
    let Some(device) = bench() else { return };
    let plain = device.plain(MemoryKind::Device, 64 * MIB);
    let stream = device.stream();
    let point = device.fill(stream, at(plain.space, 0), 64 * MIB, 7).unwrap();
    device.retire_stream(stream).unwrap();
    let unknown = Err(DeviceError::UnknownStream);
    assert_eq!(device.fill(stream, at(plain.space, 0), 4, 8), unknown);
    assert_eq!(device.mark(stream), unknown);
    assert_eq!(device.retire_stream(stream), Err(DeviceError::UnknownStream));
    let other = device.stream();
    device.wait_on_stream(other, &[point]).unwrap();
    let words = device.fetch_words(other, at(plain.space, 64 * MIB - 16), 4);
    assert_eq!(words, [7; 4]);
    device.wait(point);
    let value = point.value;
    assert_eq!(device.reached(stream).unwrap(), value);
    assert_eq!(device.reached(StreamId(9999)), Err(DeviceError::UnknownStream));
}

#[test]
fn many_threads_may_submit_to_one_stream() {
    let Some(device) = bench() else { return };
    let plain = device.plain(MemoryKind::Device, MIB);
    let stream = device.stream();
    let mut points: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4_u64)
            .map(|t| {
                let (device, space) = (&device.0, plain.space);
                scope.spawn(move || {
                    let fill = |i| device.fill(stream, at(space, (t * 50 + i) * 4), 4, i as u32);
                    (0..50).map(|i| fill(i).unwrap().value).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    points.sort_unstable();
    points.dedup();
    assert_eq!(points.len(), 200);
    let words = device.fetch_words(stream, at(plain.space, 0), 200);
    assert!(words.iter().zip(0..).all(|(word, i)| *word == i % 50));
}

#[test]
fn the_host_sees_upload_and_readback_memory() {
    let Some(device) = bench() else { return };
    let (up, down) =
        (device.plain(MemoryKind::Upload, MIB), device.plain(MemoryKind::Readback, MIB));
    let stream = device.stream();
    let host = device.host_access().expect("some class is host-visible");
    {
        let mut view = HostAccess::view(host, at(up.space, 4096), 8).unwrap();
        view.bytes_mut().copy_from_slice(b"by hand!");
    }
    let op = CopyOp { from: at(up.space, 4096), to: at(down.space, 512), bytes: 8 };
    let point = device.copy(stream, &[op]).unwrap();
    device.wait(point);
    assert_eq!(host.view(at(down.space, 512), 8).unwrap().bytes(), b"by hand!");
    host.flush(at(up.space, 4096), 8).unwrap();
    host.invalidate(at(down.space, 512), 8).unwrap();
    assert_eq!(host.pointer(at(up.space, 0)).unwrap(), host.pointer(at(up.space, 0)).unwrap());
    let hidden = device.plain(MemoryKind::Device, MIB);
    assert!(matches!(host.view(at(hidden.space, 0), 8), Err(DeviceError::Unsupported(_))));
}

#[test]
fn calls_that_break_the_contract_are_answered_and_change_nothing() {
    let Some(device) = bench() else { return };
    let plain = device.plain(MemoryKind::Device, MIB);
    let stream = device.stream();
    let (inside, outside) = (at(plain.space, 0), at(plain.space, plain.bytes - 4));
    let invalid = |result: Result<SyncPoint, DeviceError>| {
        assert!(matches!(result, Err(DeviceError::InvalidCall(_))), "{result:?}");
    };
    invalid(device.fill(stream, inside, 6, 0));
    invalid(device.fill(stream, outside, 8, 0));
    invalid(device.fill(stream, at(plain.space, u64::MAX - 3), 8, 0));
    invalid(device.fill(stream, at(SpaceId(77), 0), 8, 0));
    invalid(device.copy(stream, &[CopyOp { from: inside, to: outside, bytes: 8 }]));
    invalid(device.write(stream, outside, &[0; 5]));
    assert_eq!(device.mark(stream).unwrap(), SyncPoint { stream, value: 0 });
    assert!(device.take_read(Ticket { id: 99, point: SyncPoint { stream, value: 0 } }).is_err());
    assert!(device.heap_use(HeapId(200)).is_err());
    let class = device.class(MemoryKind::Device);
    let spec = PlainSpec { class, bytes: 1, exportable: false, priority: 0.5, name: "odd" };
    assert!(matches!(device.create_plain(&spec), Err(DeviceError::InvalidCall(_))));
    let limit = device.caps().max_plain_bytes;
    let large = PlainSpec { bytes: limit + device.caps().plain_granularity, ..spec };
    assert!(matches!(device.create_plain(&large), Err(DeviceError::TooLarge { .. })));
    device.release_plain(plain.space).unwrap();
    assert!(device.release_plain(plain.space).is_err());
    invalid(device.fill(stream, inside, 8, 0));
}

#[test]
fn a_heap_says_its_size_and_calls_are_counted() {
    let Some(device) = bench() else { return };
    let heap = device.caps().classes[0].heap;
    let now = device.heap_use(heap).unwrap();
    assert!(now.total > 0 && now.free <= now.total);
    let plain = device.plain(MemoryKind::Device, MIB);
    assert!(plain.address.is_none_or(|address| address.is_multiple_of(4096)));
    let calls = device.calls();
    let count = |name: &str| calls.iter().find(|c| c.call.name() == name).map_or(0, |c| c.count);
    assert!(count("vkAllocateMemory") >= 1 && count("vkCreateBuffer") >= 1);
    assert!(calls.iter().all(|c| c.longest_ns <= c.total_ns));
}

#[test]
fn a_device_opens_by_name_by_number_and_by_uuid() {
    let Some(device) = bench() else { return };
    let info = device.info().clone();
    let part = info.name.split_whitespace().next().unwrap().to_lowercase();
    let uuid = info.uuid.unwrap();
    for selector in [Selector::Name(part), Selector::Index(info.index), Selector::Uuid(uuid)] {
        let opened = terrane_vulkan::open(&selector, &common::quick()).unwrap();
        assert_eq!(opened.info().uuid, info.uuid, "{selector:?}");
    }
    assert!(terrane_vulkan::list().unwrap().iter().any(|listed| listed.uuid == info.uuid));
}

#[test]
fn every_object_has_a_name_for_debuggers() {
    let Some(device) = bench() else { return };
    if !device.has_validation() {
        return println!("skipped: no layer, so nobody takes names");
    }
    let plain = device.plain(MemoryKind::Device, 4 << 20);
    let stream = device.stream();
    device.write(stream, at(plain.space, 0), &[1; 4096]).unwrap();
    let place = at(plain.space, 0);
    let region = Region { place, bytes: 1 << 20, seed: 3 };
    let ticket = device.compute().unwrap().verify(stream, &[region]).unwrap();
    device.wait(ticket.point);
    let view = device.create_view(place, 65_536).unwrap();
    if let Ok(timing) = device.timed(stream, Timed::FillPattern(&[region])) {
        device.wait(timing.point);
    }
    device.destroy_view(view).unwrap();
    let calls = device.calls();
    let is_new = |name: &str| {
        let made = name.starts_with("vkCreate") || name == "vkAllocateMemory";
        made || name == "vkAllocateCommandBuffers"
    };
    let made: u64 = calls.iter().filter(|s| is_new(s.call.name())).map(|s| s.count).sum();
    let named = calls.iter().find(|s| s.call.name() == "vkSetDebugUtilsObjectNameEXT");
    let named = named.map_or(0, |stat| stat.count);
    println!("{made} objects made, {named} names given");
    assert!(made > 15 && named >= made);
}
