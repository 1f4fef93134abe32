//! Pages: mapping, transactions, and the litmus of pages mapped twice.

use serde_json::json;
use terrane_core::device::{
    Compute, CopyOp, Device, DeviceError, MapOp, Paging, SyncPoint, UnmapOp,
};

use crate::support::{DEVICE, GIB, MIB, Outcome, Page, Random, Setup, at, region};
use crate::{Check, ensure};

pub const CHECKS: [Check; 6] = [
    ("paging: pages are mapped, used, unmapped and mapped elsewhere", basic),
    ("paging: wrong calls are refused and failed batches undone", refusals),
    ("paging: litmus, a page mapped twice agrees on one stream", same_stream),
    ("paging: litmus, a page mapped twice agrees across streams", across_streams),
    ("paging: a space larger than the device's memory can be reserved", large_space),
    ("paging: exported memory is the same memory when imported", exported),
];

fn page(setup: &Setup, bytes: u64) -> Result<Page, DeviceError> {
    Ok(Page(Paging::create(&setup.device, DEVICE, bytes, false)?, bytes))
}

fn basic(setup: &Setup) -> Outcome {
    let stream = setup.stream()?;
    let granularity = setup.device.caps().paging.ok_or("no paging")?.granularity;
    let bytes = granularity * 4;
    let space = setup.device.reserve(DEVICE, 64 * bytes)?.space;
    let pages = (0..16).map(|_| page(setup, bytes)).collect::<Result<Vec<_>, _>>()?;
    let ops: Vec<_> = (0..)
        .zip(&pages)
        .map(|(i, page)| MapOp {
            at: at(space, i * bytes),
            memory: page.0,
            memory_offset: 0,
            bytes,
        })
        .collect();
    setup.device.map(&ops, &[])?;
    // One region over all the pages: contiguous for kernels whatever the handles.
    let all = region(space, 0, 16 * bytes, 5);
    setup.fill_and_check(stream, &[all])?;
    // Every second page goes to another place and keeps its bytes.
    for (i, page) in pages.iter().enumerate().filter(|(i, _)| i % 2 == 1) {
        let (old, new) = (i as u64 * bytes, (32 + i as u64) * bytes);
        setup.unmap_one(space, old, bytes, &[setup.device.mark(stream)?])?;
        setup.map_one(space, new, *page)?;
        let words = bytes / 4;
        let moved = setup.contents(stream, at(space, new), 64)?;
        let first = terrane_core::device::pattern::word(5, i as u64 * words).to_le_bytes();
        ensure!(moved[..4] == first, "page {i} lost its bytes");
        setup.unmap_one(space, new, bytes, &[setup.device.mark(stream)?])?;
        setup.map_one(space, old, *page)?;
    }
    ensure!(setup.mismatches(stream, &[all])? == 0, "bytes changed on the way");
    setup.finish(stream)?;
    let offs: Vec<_> = ops.iter().map(|op| UnmapOp { at: op.at, bytes }).collect();
    setup.device.unmap(&offs, &[])?;
    for page in pages {
        setup.device.release(page.0)?;
    }
    setup.device.unreserve(space)?;
    Ok(json!({ "granularity": granularity }))
}

fn refusals(setup: &Setup) -> Outcome {
    let granularity = setup.device.caps().paging.ok_or("no paging")?.granularity;
    let space = setup.device.reserve(DEVICE, 8 * granularity)?.space;
    let (one, two) = (page(setup, granularity)?, page(setup, granularity)?);
    setup.map_one(space, 0, one)?;
    let op = |offset, page: Page| MapOp {
        at: at(space, offset),
        memory: page.0,
        memory_offset: 0,
        bytes: page.1,
    };
    // The second of each batch is wrong: the first must be undone.
    for wrong in [op(0, two), op(granularity, two), op(8 * granularity, two)] {
        let refused = setup.device.map(&[op(granularity, two), wrong], &[]);
        ensure!(matches!(refused, Err(DeviceError::InvalidCall(_))), "{refused:?}");
        setup.map_one(space, granularity, two).map_err(|error| format!("not undone: {error}"))?;
        setup.unmap_one(space, granularity, granularity, &[])?;
    }
    ensure!(setup.device.release(one.0).is_err(), "released while mapped");
    ensure!(setup.device.unreserve(space).is_err(), "unreserved while mapped");
    setup.unmap_one(space, 0, granularity, &[])?;
    setup.device.release(one.0)?;
    setup.device.release(two.0)?;
    setup.device.unreserve(space)?;
    let total = setup.device.caps().heaps[0].total / granularity * granularity;
    let refused = Paging::create(&setup.device, DEVICE, total, false).err();
    let expected = Some(DeviceError::OutOfMemory { bytes: total });
    ensure!(refused == expected, "all memory in one object: {refused:?}");
    Ok(json!(null))
}

/// Written through the first address, read through the second, on one stream.
fn same_stream(setup: &Setup) -> Outcome {
    let stream = setup.stream()?;
    let bytes = 8 * MIB;
    let space = setup.device.reserve(DEVICE, 2 * bytes)?.space;
    let page = page(setup, bytes)?;
    setup.map_one(space, 0, page)?;
    setup.map_one(space, bytes, page)?;
    let rounds = setup.size(1000, 20);
    let mut wrong = 0;
    for round in 0..rounds {
        let (old, new) = if round % 2 == 0 { (0, bytes) } else { (bytes, 0) };
        setup.device.fill_pattern(stream, &[region(space, old, bytes, round)])?;
        wrong += setup.mismatches(stream, &[region(space, new, bytes, round)])?;
    }
    setup.finish(stream)?;
    setup.unmap_one(space, 0, bytes, &[])?;
    setup.unmap_one(space, bytes, bytes, &[])?;
    setup.device.release(page.0)?;
    setup.device.unreserve(space)?;
    ensure!(wrong == 0, "{wrong} words differ in {rounds} rounds");
    Ok(json!({ "rounds": rounds, "mismatches": wrong }))
}

/// As a steal does it: written through the old address on one stream, mapped anew while that runs,
/// read through the new address on another stream behind a wait, the old mapping dropped while
/// kernels of other streams run.
fn across_streams(setup: &Setup) -> Outcome {
    const SLOTS: u64 = 64;
    let bytes = 8 * MIB;
    let streams = (0..4).map(|_| setup.stream()).collect::<Result<Vec<_>, _>>()?;
    let space = setup.device.reserve(DEVICE, SLOTS * bytes)?.space;
    let pages = (0..8).map(|_| page(setup, bytes)).collect::<Result<Vec<_>, _>>()?;
    let mut places: Vec<u64> = (0..8).map(|slot| slot * bytes).collect();
    for (page, place) in pages.iter().zip(&places) {
        setup.map_one(space, *place, *page)?;
    }
    let mut stale: Vec<(u64, Vec<SyncPoint>)> = Vec::new();
    let mut random = Random(7);
    let (mut wrong, mut dropped_beside_work) = (0_u64, 0_u64);
    let rounds = setup.size(3000, 60);
    let mut tickets = Vec::new();
    for round in 0..rounds {
        let who = random.below(8) as usize;
        let (one, two) = (streams[random.below(4) as usize], streams[random.below(4) as usize]);
        let old = places[who];
        let free = |slot: &u64| {
            let place = slot * bytes;
            !places.contains(&place) && !stale.iter().any(|(at, _)| *at == place)
        };
        let Some(new) = (0..SLOTS).find(free).map(|slot| slot * bytes) else {
            return Err("no free slot".into());
        };
        let write = region(space, old, bytes, round);
        let written = setup.device.fill_pattern(one, &[write])?;
        setup.map_one(space, new, pages[who])?;
        setup.device.wait_on_stream(two, &[written])?;
        let read = region(space, new, bytes, round);
        let ticket = setup.device.verify(two, &[read])?;
        for &stream in &streams {
            setup.device.wait_on_stream(stream, &[ticket.point])?;
        }
        stale.push((old, vec![written]));
        tickets.push(ticket);
        places[who] = new;
        if tickets.len() >= 64 {
            for ticket in tickets.drain(..) {
                wrong += setup.report(ticket)?.iter().sum::<u64>();
            }
        }
        if stale.len() > 16 {
            let (old, after) = stale.remove(0);
            setup.wait(after[0])?;
            let busy = !setup.device.wait_any(&[ticket.point], std::time::Duration::ZERO)?;
            dropped_beside_work += u64::from(busy);
            setup.unmap_one(space, old, bytes, &after)?;
        }
    }
    for ticket in tickets {
        wrong += setup.report(ticket)?.iter().sum::<u64>();
    }
    for stream in streams {
        setup.finish(stream)?;
    }
    for (old, _) in stale {
        setup.unmap_one(space, old, bytes, &[])?;
    }
    for (page, place) in pages.iter().zip(places) {
        setup.unmap_one(space, place, bytes, &[])?;
        setup.device.release(page.0)?;
    }
    setup.device.unreserve(space)?;
    ensure!(wrong == 0, "{wrong} words differ in {rounds} rounds");
    Ok(json!({
        "rounds": rounds, "mismatches": wrong, "dropped_beside_work": dropped_beside_work,
    }))
}

fn large_space(setup: &Setup) -> Outcome {
    let caps = setup.device.caps().paging.ok_or("no paging")?;
    let space = setup.device.reserve(DEVICE, caps.max_space_bytes)?;
    let bytes = caps.granularity;
    let page = page(setup, bytes)?;
    let far = caps.max_space_bytes - bytes;
    setup.map_one(space.space, far, page)?;
    let stream = setup.stream()?;
    setup.device.fill(stream, at(space.space, far), bytes, 77)?;
    let got = setup.contents(stream, at(space.space, far + bytes - 4), 4)?;
    ensure!(got == 77_u32.to_le_bytes(), "{got:?}");
    setup.finish(stream)?;
    setup.unmap_one(space.space, far, bytes, &[])?;
    setup.device.release(page.0)?;
    setup.device.unreserve(space.space)?;
    Ok(json!({ "GiB": caps.max_space_bytes / GIB }))
}

fn exported(setup: &Setup) -> Outcome {
    use std::os::fd::AsFd;
    let bytes = 4 * MIB;
    let memory = Paging::create(&setup.device, DEVICE, bytes, true)?;
    let descriptor = setup.device.export_memory(memory)?;
    let imported = setup.device.import_memory(descriptor.as_fd(), bytes)?;
    let space = setup.device.reserve(DEVICE, 2 * bytes)?.space;
    setup.map_one(space, 0, Page(memory, bytes))?;
    setup.map_one(space, bytes, Page(imported, bytes))?;
    let stream = setup.stream()?;
    setup.device.fill(stream, at(space, 0), bytes, 1234)?;
    let op = CopyOp { from: at(space, bytes), to: at(space, 64), bytes: 64 };
    setup.device.copy(stream, &[op])?;
    let got = setup.contents(stream, at(space, 2 * bytes - 4), 4)?;
    ensure!(got == 1234_u32.to_le_bytes(), "{got:?}");
    setup.finish(stream)?;
    setup.unmap_one(space, 0, bytes, &[])?;
    setup.unmap_one(space, bytes, bytes, &[])?;
    setup.device.release(memory)?;
    setup.device.release(imported)?;
    setup.device.unreserve(space)?;
    Ok(json!(null))
}
