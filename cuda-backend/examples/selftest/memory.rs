//! Segments, host access, copies, and what the device says of itself.

use serde_json::json;
use terrane_core::Allocator;
use terrane_core::device::{
    CopyOp, Device, DeviceError, Feature, HeapId, HostAccess, MemoryKind, PlainSpec,
};
use terrane_cuda::{Advice, CudaDevice, Options, Selector, Source};

use crate::support::{
    DEVICE, MIB, Outcome, READBACK, Random, SHARED, Setup, UPLOAD, at, plain_on, wait_on,
};
use crate::{Check, ensure};

pub const CHECKS: [Check; 9] = [
    ("memory: the device is found by index, UUID and name", selectors),
    ("memory: heaps and capabilities agree with each other", heaps),
    ("memory: every kind is written, copied and read back", round_trips),
    ("memory: fills and copies touch only their ranges", ranges),
    ("memory: host views and device see the same bytes", views),
    ("memory: managed memory takes prefetch and advice", managed),
    ("memory: the driver's own pool serves as a source", pool),
    ("memory: too much is a typed error and leaves the device usable", too_much),
    ("memory: many sizes of staging, up to large ones", staging),
];

fn selectors(setup: &Setup) -> Outcome {
    let info = setup.device.info();
    let uuid = info.uuid.ok_or("no UUID")?;
    for selector in [Selector::Uuid(uuid), Selector::Name(info.name.clone())] {
        let again = CudaDevice::open(&selector, Options::default())?;
        ensure!(again.info().name == info.name, "{selector:?} gave {:?}", again.info());
    }
    let listed = terrane_cuda::devices()?;
    let missing = Selector::Index(u32::try_from(listed.len())?);
    ensure!(CudaDevice::open(&missing, Options::default()).is_err(), "a device too many");
    Ok(json!(listed.iter().map(|info| info.name.clone()).collect::<Vec<_>>()))
}

fn heaps(setup: &Setup) -> Outcome {
    let caps = setup.device.caps();
    for kind in MemoryKind::ALL {
        ensure!(caps.classes_of(kind).next().is_some(), "no class for {kind}");
    }
    ensure!(caps.paging.is_some() == setup.device.paging().is_some(), "paging");
    let before = setup.device.heap_use(HeapId(0))?;
    let segment = setup.plain(DEVICE, 256 * MIB)?;
    let after = setup.device.heap_use(HeapId(0))?;
    setup.device.release_plain(segment.space)?;
    ensure!(before.free >= after.free + 256 * MIB, "free {} then {}", before.free, after.free);
    let host = setup.device.heap_use(HeapId(1))?;
    let untracked = untracked(setup)?;
    Ok(json!({
        "total": before.total, "free": before.free, "process": before.process,
        "host_total": host.total, "host_free": host.free, "untracked": untracked,
    }))
}

/// What the allocator does not know of: memory taken beside it, where NVML tells.
fn untracked(setup: &Setup) -> Result<Option<u64>, crate::support::Failure> {
    let alloc = Allocator::new(crate::allocator::shared(setup)?)?;
    let segment = setup.plain(DEVICE, 256 * MIB)?;
    // The process's share is asked of NVML at most twice a second.
    std::thread::sleep(std::time::Duration::from_millis(600));
    let untracked = alloc.heap(HeapId(0))?.untracked;
    setup.device.release_plain(segment.space)?;
    ensure!(untracked.is_none_or(|bytes| bytes >= 256 * MIB), "untracked: {untracked:?}");
    Ok(untracked)
}

fn round_trips(setup: &Setup) -> Outcome {
    let stream = setup.stream()?;
    let mut random = Random(1);
    for class in [DEVICE, UPLOAD, READBACK, SHARED] {
        let segment = setup.plain(class, 4 * MIB)?;
        let data: Vec<u8> = (0..MIB + 12).map(|_| random.next() as u8).collect();
        setup.device.write(stream, at(segment.space, 4), &data)?;
        let half =
            CopyOp { from: at(segment.space, 4), to: at(segment.space, 2 * MIB), bytes: MIB + 12 };
        setup.device.copy(stream, &[half])?;
        let back = setup.contents(stream, at(segment.space, 2 * MIB), MIB + 12)?;
        ensure!(back == data, "class {class:?} gave other bytes");
        setup.device.release_plain(segment.space)?;
        ensure!(setup.device.release_plain(segment.space).is_err(), "released twice");
    }
    setup.finish(stream)?;
    Ok(json!(null))
}

fn ranges(setup: &Setup) -> Outcome {
    let stream = setup.stream()?;
    let segment = setup.plain(DEVICE, 4 * MIB)?;
    let mut model = vec![0_u8; 4 * MIB as usize];
    setup.device.fill(stream, at(segment.space, 0), 4 * MIB, 0)?;
    let mut random = Random(2);
    for _ in 0..200 {
        let bytes = (random.below(64) + 1) * 4;
        let from = random.below(MIB / 4) * 4;
        let to = 2 * MIB + random.below(MIB / 4) * 4;
        let word = random.next() as u32;
        setup.device.fill(stream, at(segment.space, from), bytes, word)?;
        let op = CopyOp { from: at(segment.space, from), to: at(segment.space, to), bytes };
        setup.device.copy(stream, &[op])?;
        let (from, to, bytes) = (from as usize, to as usize, bytes as usize);
        model[from..from + bytes].copy_from_slice(&word.to_le_bytes().repeat(bytes / 4));
        model.copy_within(from..from + bytes, to);
    }
    let got = setup.contents(stream, at(segment.space, 0), 4 * MIB)?;
    ensure!(got == model, "the segment differs from the model");
    let outside = setup.device.fill(stream, at(segment.space, 4 * MIB - 4), 8, 0);
    ensure!(matches!(outside, Err(DeviceError::InvalidCall(_))), "{outside:?}");
    setup.finish(stream)?;
    setup.device.release_plain(segment.space)?;
    Ok(json!(null))
}

fn views(setup: &Setup) -> Outcome {
    let stream = setup.stream()?;
    let target = setup.plain(DEVICE, 2 * MIB)?;
    for class in [UPLOAD, READBACK, SHARED] {
        let segment = setup.plain(class, 2 * MIB)?;
        {
            let mut view = setup.device.view(at(segment.space, 128), 4096)?;
            view.bytes_mut().fill(0x5A);
        }
        let there = CopyOp { from: at(segment.space, 128), to: at(target.space, 0), bytes: 4096 };
        let back = CopyOp { from: at(target.space, 0), to: at(segment.space, MIB), bytes: 4096 };
        setup.device.copy(stream, &[there])?;
        setup.device.fill(stream, at(target.space, 2048), 2048, 0x0101_0101)?;
        let done = setup.device.copy(stream, &[back])?;
        setup.wait(done)?;
        let view = setup.device.view(at(segment.space, MIB), 4096)?;
        ensure!(view.bytes()[..2048].iter().all(|&b| b == 0x5A), "class {class:?}: host bytes");
        ensure!(view.bytes()[2048..].iter().all(|&b| b == 1), "class {class:?}: device bytes");
        let refused = setup.device.release_plain(segment.space);
        ensure!(refused.is_err(), "released under an open view");
        drop(view);
        setup.device.release_plain(segment.space)?;
    }
    let refused = setup.device.view(at(target.space, 0), 4).err();
    let expected = Some(DeviceError::Unsupported(Feature::HostMapping));
    ensure!(refused == expected, "device memory: {refused:?}");
    setup.finish(stream)?;
    setup.device.release_plain(target.space)?;
    Ok(json!(null))
}

fn managed(setup: &Setup) -> Outcome {
    let stream = setup.stream()?;
    let segment = setup.plain(SHARED, 8 * MIB)?;
    let place = at(segment.space, 0);
    for advice in [
        Advice::ReadMostly,
        Advice::NotReadMostly,
        Advice::PreferHost,
        Advice::NoPreference,
        Advice::PreferDevice,
        Advice::AccessedByDevice,
    ] {
        setup
            .device
            .advise(place, 8 * MIB, advice)
            .map_err(|error| format!("{advice:?}: {error}"))?;
    }
    setup.device.prefetch(stream, place, 8 * MIB, false)?;
    setup.device.fill(stream, place, 8 * MIB, 3)?;
    let point = setup.device.prefetch(stream, place, 8 * MIB, true)?;
    setup.wait(point)?;
    let view = setup.device.view(place, 8 * MIB)?;
    ensure!(view.bytes().chunks(4).all(|word| word == [3, 0, 0, 0]), "other bytes");
    drop(view);
    setup.finish(stream)?;
    setup.device.release_plain(segment.space)?;
    Ok(json!(null))
}

fn pool(setup: &Setup) -> Outcome {
    let options = Options { source: Source::DriverPool, ..Options::default() };
    let device = CudaDevice::open(&setup.selector, options)?;
    let stream = device.create_stream(terrane_core::device::StreamSpec::default())?;
    for round in 0..20_u32 {
        let segment = plain_on(&device, DEVICE, 8 * MIB)?;
        device.fill(stream, at(segment.space, 0), 8 * MIB, round)?;
        let ticket = device.read(stream, at(segment.space, 8 * MIB - 4), 4)?;
        wait_on(&device, ticket.point)?;
        ensure!(device.take_read(ticket)? == round.to_le_bytes(), "round {round}");
        device.release_plain(segment.space)?;
    }
    Ok(json!(null))
}

fn too_much(setup: &Setup) -> Outcome {
    let caps = setup.device.caps();
    let largest = caps.max_plain_bytes / caps.plain_granularity * caps.plain_granularity;
    let ask = |bytes| {
        let spec =
            PlainSpec { class: DEVICE, bytes, exportable: false, priority: 0.5, name: "too much" };
        setup.device.create_plain(&spec).err()
    };
    let all = ask(largest);
    ensure!(all == Some(DeviceError::OutOfMemory { bytes: largest }), "all of it: {all:?}");
    let more = ask(largest + caps.plain_granularity * 2);
    ensure!(matches!(more, Some(DeviceError::TooLarge { .. })), "more than all: {more:?}");
    let segment = setup.plain(DEVICE, 64 * MIB)?;
    setup.device.release_plain(segment.space)?;
    Ok(json!(null))
}

fn staging(setup: &Setup) -> Outcome {
    let stream = setup.stream()?;
    let largest = setup.size(96 * MIB, 4 * MIB);
    let segment = setup.plain(DEVICE, largest)?;
    let mut random = Random(3);
    for bytes in [1, 4095, 65_537, MIB + 1, largest / 2 + 3, largest] {
        let seed = random.next();
        let data: Vec<u8> = (0..bytes).map(|i| (i.wrapping_mul(seed | 1) >> 24) as u8).collect();
        setup.device.write(stream, at(segment.space, 0), &data)?;
        let back = setup.contents(stream, at(segment.space, 0), bytes)?;
        ensure!(back == data, "{bytes} bytes came back changed");
    }
    setup.finish(stream)?;
    setup.device.release_plain(segment.space)?;
    Ok(json!(null))
}
