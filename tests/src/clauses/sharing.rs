//! Memory that others are to see, and several devices in one process.

use std::sync::Arc;

use terrane_core::compact::{Goal, Limits, Why};
use terrane_core::device::{Device, DeviceError, Feature, HeapId, PlainSpec, StreamSpec};
use terrane_core::{Allocator, Config, Error, Growth, MemoryKind, Request};

use super::memory::start;
use super::{allocator, device};
use crate::clause::{Blame, Clause, Need, Outcome, Stop, ensure, equal, fails};
use crate::rig::Rig;

use Need::{CountedHeap, Export, Import, Several};

pub(super) const CLAUSES: &[Clause] = &[
    device(
        "export.claim",
        "A device gives memory that can be exported exactly when it says so.",
        &[],
        "Caps::export, PlainSpec::exportable",
        Blame::Backend,
        claim,
    ),
    device(
        "export.opened",
        "Exported memory that somebody opens is the same memory, and outlives its segment.",
        &[Import],
        "Caps::export, PlainSpec::exportable",
        Blame::Backend,
        opened,
    ),
    allocator(
        "export.apart",
        "A block that can be exported lies in a memory object with no block that can not.",
        &[Export],
        "Request::exportable",
        apart,
    ),
    allocator(
        "export.stays",
        "A block that can be exported is never moved.",
        &[Export],
        "compact::Why::Exported",
        stays,
    ),
    device(
        "devices.apart",
        "What is made, written and given back on one device leaves another one alone.",
        &[Several, CountedHeap],
        "Device, rules for every method: ids",
        Blame::Backend,
        devices,
    ),
    allocator(
        "devices.handles",
        "A handle of one device's allocator is foreign to another's, and each ends by itself.",
        &[Several],
        "Error::ForeignHandle",
        handles,
    ),
];

const MIB: u64 = 1 << 20;

fn claim(rig: &Rig) -> Outcome {
    let class = rig.class(MemoryKind::Device)?;
    let spec = PlainSpec { exportable: true, ..rig.spec(class, 4096) };
    let answer = rig.device().create_plain(&spec);
    if !rig.caps().export {
        let told = DeviceError::Unsupported(Feature::Export);
        return fails(&answer.map(drop), &told, "memory to be exported");
    }
    rig.device().release_plain(answer?.space).map_err(Stop::from)
}

fn opened(rig: &Rig) -> Outcome {
    // A whole page, where memory is opened by mapping it.
    let bytes = rig.caps().paging.map_or(1, |paging| paging.granularity).max(MIB);
    let (ours, stream) = (rig.exportable(bytes)?, rig.stream()?);
    let (copy, words) = (start(rig.plain(ours.bytes)?), ours.bytes / 4);
    rig.wait(rig.device().fill(stream, start(ours), ours.bytes, 7)?)?;
    let theirs = rig.import(ours)?;
    theirs.copy_to(stream, copy, ours.bytes)?;
    equal!(differing(&rig.words(stream, copy, words)?, 7), 0, "words that they see otherwise");
    rig.device().fill(stream, copy, ours.bytes, 9)?;
    theirs.copy_from(stream, copy, ours.bytes)?;
    let found = rig.words(stream, start(ours), words)?;
    equal!(differing(&found, 9), 0, "words of theirs that we see otherwise");
    rig.release(ours.space)?;
    rig.wait(rig.device().fill(stream, copy, ours.bytes, 0)?)?;
    theirs.copy_to(stream, copy, ours.bytes)?;
    let found = rig.words(stream, copy, words)?;
    equal!(differing(&found, 9), 0, "words that differ once our segment is gone");
    Ok(())
}

fn differing(words: &[u32], word: u32) -> usize {
    words.iter().filter(|found| **found != word).count()
}

/// Blocks that can be exported and others, one after the other, in segments with room for many.
fn mixed(rig: &Rig, alloc: &crate::Subject) -> Result<[Vec<terrane_core::Handle>; 2], Stop> {
    let stream = rig.stream()?;
    let mut blocks = [Vec::new(), Vec::new()];
    for number in 0..8 {
        let request = Request::new(MIB, stream).exportable(number % 2 == 0);
        blocks[number % 2].push(alloc.alloc(&request)?.handle);
    }
    Ok(blocks)
}

fn roomy(config: &mut Config) {
    config.paging = false;
    config.small_max = 0;
    config.growth = Growth::Proportional { min_bytes: 16 * MIB, max_bytes: 16 * MIB };
}

fn apart(rig: &Rig) -> Outcome {
    let alloc = rig.alloc_with(roomy)?;
    let [exported, others] = mixed(rig, &alloc)?;
    for &one in &exported {
        let space = alloc.info(one)?.place.space;
        for &other in &others {
            ensure!(alloc.info(other)?.place.space != space, "both sorts lie in one memory object");
        }
    }
    [exported, others].into_iter().flatten().try_for_each(|block| alloc.free(block))?;
    alloc.sound()
}

fn stays(rig: &Rig) -> Outcome {
    let alloc = rig.alloc_with(roomy)?;
    let [exported, others] = mixed(rig, &alloc)?;
    // Holes in front of the two that stay.
    for block in [exported[0], exported[2]] {
        alloc.free(block)?;
    }
    let places = || -> Result<_, Stop> {
        Ok([alloc.info(exported[1])?.place, alloc.info(exported[3])?.place])
    };
    let before = places()?;
    alloc.settle()?;
    let report = alloc.compact(Goal::Fragmentation { below: 0.0 }, Limits::NONE)?;
    equal!(places()?, before, "places of blocks that can be exported");
    let refused = report.refused.iter().find(|(why, _)| *why == Why::Exported);
    equal!(refused.map_or(0, |(_, refused)| refused.blocks), 2, "blocks refused as exported");
    for block in [exported[1], exported[3]].into_iter().chain(others) {
        alloc.free(block)?;
    }
    alloc.sound()
}

fn devices(rig: &Rig) -> Outcome {
    let other = rig.another()?;
    let free = |device: &dyn Device| device.heap_use(HeapId(0)).map(|heap| heap.free);
    let (own, stream) = (rig.plain(4096)?, rig.stream()?);
    rig.wait(rig.device().fill(stream, start(own), 4096, 7)?)?;
    let before = free(rig.device())?;
    let spec = rig.spec(rig.class(MemoryKind::Device)?, 4096);
    let lane = other.create_stream(StreamSpec::default())?;
    let theirs = other.create_plain(&spec)?;
    let filled = other.fill(lane, start(theirs), 4096, 9)?;
    ensure!(other.wait_any(&[filled], rig.patience())?, "the other device is stuck");
    equal!(free(rig.device())?, before, "free bytes while another device gives memory");
    equal!(rig.words(stream, start(own), 1024)?, vec![7; 1024], "words that the other one filled");
    other.release_plain(theirs.space)?;
    other.retire_stream(lane)?;
    drop(other);
    equal!(rig.words(stream, start(own), 1024)?, vec![7; 1024], "words once the other one is gone");
    Ok(())
}

fn handles(rig: &Rig) -> Outcome {
    let device = rig.another()?;
    let (stream, lane) = (rig.stream()?, device.create_stream(StreamSpec::default())?);
    let (alloc, other) = (rig.alloc()?, Allocator::new(Arc::clone(&device))?);
    let block = alloc.get(5000, stream)?;
    let theirs = other.alloc(&Request::new(5000, lane))?.handle;
    fails(&alloc.free(theirs), &Error::ForeignHandle, "a free of another device's block")?;
    fails(&other.free(block), &Error::ForeignHandle, "a free on another device")?;
    let written = alloc.write(stream, block, 0, &[5; 64])?;
    rig.wait(written)?;
    other.free(theirs)?;
    ensure!(other.close().is_ok(), "the other device's allocator has leaks");
    device.retire_stream(lane)?;
    drop(device);
    let ticket = alloc.read(stream, terrane_core::Slice::read(block).part(0, 64))?;
    rig.wait(ticket.point)?;
    equal!(alloc.take_read(ticket)?, [5; 64], "bytes once the other device is gone");
    alloc.free(block)?;
    alloc.sound()
}
