//! Statistics, events and trimming.

use std::collections::HashMap;

use terrane_core::event::{Event, EventKind, RecorderMode};
use terrane_core::{BlockView, Error, Growth, Handle, PartState, Request, SegmentInfo};

use super::allocator;
use crate::clause::{Clause, Need, Outcome, Stop, ensure, equal};
use crate::rig::Rig;
use crate::subject::Subject;

pub(super) const CLAUSES: &[Clause] = &[
    allocator(
        "stats.walk",
        "The counters say what a walk over the snapshot finds.",
        &[],
        "Stats",
        walk,
    ),
    allocator(
        "stats.order",
        "Requested, allocated, active and reserved bytes never fall in that order.",
        &[],
        "Usage",
        order,
    ),
    allocator(
        "stats.peaks",
        "Peaks are what they were and are reset.",
        &[],
        "Counter::peak",
        peaks,
    ),
    allocator(
        "stats.parts",
        "Kinds, tags and size classes add up to the whole.",
        &[],
        "Stats",
        parts,
    ),
    allocator("stats.section", "A section tells its own peak.", &[], "Allocator::section", section),
    allocator(
        "events.fold",
        "Folded events give the snapshot: the same blocks with the same bytes.",
        &[],
        "EventKind",
        fold,
    ),
    allocator(
        "events.sequence",
        "Events are numbered without a gap, and lost ones are counted.",
        &[],
        "RecorderMode::Stream",
        sequence,
    ),
    allocator(
        "events.flight",
        "The flight recorder keeps the last events.",
        &[],
        "RecorderMode::Flight",
        flight,
    ),
    allocator(
        "trim.all",
        "After the last free, trimming gives everything back.",
        &[],
        "Allocator::trim",
        trim,
    ),
    allocator(
        "trim.keep",
        "Trimming keeps what it is told to keep, and the configured minimum.",
        &[],
        "Allocator::trim, Config::min_reserved",
        keep,
    ),
    allocator(
        "trim.busy",
        "Trimming neither waits for work nor gives back what it uses; releasing the cache waits.",
        &[Need::Busy],
        "Allocator::release_cached",
        busy,
    ),
    allocator(
        "trim.maintain",
        "Maintenance keeps to the release threshold.",
        &[],
        "Allocator::maintain",
        maintain,
    ),
    allocator(
        "growth.proportional",
        "Proportional growth makes few large memory objects.",
        &[],
        "Growth::Proportional",
        proportional,
    ),
];

const MIB: u64 = 1 << 20;

/// Blocks that come and go; those that stay.
pub(super) fn mixture(rig: &Rig, alloc: &Subject) -> Result<Vec<Handle>, Stop> {
    let [s0, s1] = rig.streams()?;
    let tag = alloc.tag("mixture")?;
    let mut random = rig.random();
    let mut live: Vec<Handle> = Vec::new();
    for round in 0..200 {
        if live.len() > 20 {
            let at = random.below(20) as usize;
            alloc.free(live.swap_remove(at))?;
        }
        let stream = if round % 3 == 0 { s1 } else { s0 };
        let mut request = Request::new(random.size(1, 2 * MIB), stream);
        if random.one_in(2) {
            request = request.tag(tag);
        }
        live.push(alloc.alloc(&request)?.handle);
    }
    Ok(live)
}

fn walk(rig: &Rig) -> Outcome {
    let alloc = rig.alloc()?;
    let live = mixture(rig, &alloc)?;
    let (stats, snapshot) = (alloc.stats(), alloc.snapshot());
    let parts = || snapshot.segments.iter().flat_map(|segment| &segment.parts);
    let blocks = || parts().filter_map(|part| part.block.as_ref());
    equal!(stats.total.blocks.current, live.len() as u64, "live blocks");
    equal!(blocks().count(), live.len(), "live blocks of the snapshot");
    let sum: u64 = blocks().map(|block| block.requested).sum();
    equal!(stats.total.requested.current, sum, "requested bytes");
    let sum: u64 = blocks().map(|block| block.allocated).sum();
    equal!(stats.total.allocated.current, sum, "allocated bytes");
    let sum: u64 = snapshot.segments.iter().map(SegmentInfo::backed).sum();
    equal!(stats.reserved.current, sum, "reserved bytes");
    let free = |part: &&BlockView| part.state == PartState::Free;
    let sum: u64 = parts().filter(free).map(|part| part.bytes).sum();
    equal!(stats.free, sum, "free bytes");
    equal!(
        rig.probe().alive().memory_objects() as u64,
        stats.memory_objects.current,
        "objects alive"
    );
    for segment in &snapshot.segments {
        let mut next = 0;
        for part in &segment.parts {
            equal!(part.offset, next, "the parts of a segment leave no gap");
            next += part.bytes;
        }
        equal!(next, segment.bytes, "the parts of a segment");
    }
    alloc.sound()
}

fn order(rig: &Rig) -> Outcome {
    let alloc = rig.alloc()?;
    let check = |alloc: &Subject| {
        let stats = alloc.stats();
        let (total, active) = (stats.total, stats.active.current);
        let [requested, allocated] = [total.requested.current, total.allocated.current];
        let sums = [requested, allocated, active, stats.reserved.current];
        ensure!(sums.is_sorted(), "requested, allocated, active, reserved: {sums:?}");
        ensure!(stats.reserved.current <= stats.reserved.peak, "more than the peak");
        Ok(())
    };
    for handle in mixture(rig, &alloc)? {
        check(&alloc)?;
        alloc.free(handle)?;
    }
    check(&alloc)?;
    equal!(alloc.stats().total.requested.current, 0, "requested bytes after the last free");
    // Told by the device itself, not by the allocator.
    let held = rig.probe().alive().memory_objects();
    equal!(alloc.stats().memory_objects.current, held as u64, "memory objects");
    let snapshot = alloc.snapshot();
    let sum: u64 = snapshot.segments.iter().map(SegmentInfo::backed).sum();
    equal!(alloc.stats().reserved.current, sum, "reserved bytes");
    alloc.sound()
}

fn peaks(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    let (a, b) = (alloc.get(3 * MIB, stream)?, alloc.get(2 * MIB, stream)?);
    alloc.free(a)?;
    equal!(alloc.stats().total.allocated.peak, 5 * MIB, "the peak");
    equal!(alloc.stats().total.allocated.current, 2 * MIB, "what is left");
    alloc.reset_peaks();
    equal!(alloc.stats().total.allocated.peak, 2 * MIB, "the peak after its reset");
    alloc.free(b)?;
    equal!(alloc.stats().total.allocated.freed, 5 * MIB, "bytes ever freed");
    alloc.sound()
}

fn parts(rig: &Rig) -> Outcome {
    let alloc = rig.alloc()?;
    mixture(rig, &alloc)?;
    let stats = alloc.stats();
    let whole = (stats.total.blocks.current, stats.total.allocated.current);
    let sum = |usages: Vec<terrane_core::stats::Usage>| {
        usages.iter().fold((0, 0), |(blocks, bytes), usage| {
            (blocks + usage.blocks.current, bytes + usage.allocated.current)
        })
    };
    equal!(sum(stats.kinds.iter().map(|kind| kind.usage).collect()), whole, "kinds");
    equal!(sum(stats.tags.iter().map(|tag| tag.usage).collect()), whole, "tags");
    equal!(sum(stats.size_classes.clone()), whole, "size classes");
    let tagged = stats.tags.iter().find(|tag| tag.name == "mixture");
    let tagged = tagged.map_or(0, |tag| tag.usage.blocks.current);
    ensure!(tagged > 0 && tagged < whole.0, "{tagged} of {} blocks have the tag", whole.0);
    Ok(())
}

fn section(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    let before = alloc.get(8 * MIB, stream)?;
    alloc.free(before)?;
    let section = alloc.section()?;
    let inside = alloc.get(3 * MIB, stream)?;
    alloc.free(inside)?;
    let peak = section.peaks().allocated;
    equal!(peak, 3 * MIB, "the section's peak");
    Ok(())
}

/// The live blocks as events tell them: handle to requested and allocated bytes.
fn folded(events: &[Event]) -> HashMap<u64, (u64, u64)> {
    let mut live = HashMap::new();
    for event in events {
        if event.is(EventKind::Alloc) || event.is(EventKind::Resized) {
            live.insert(event.handle, (event.a, event.b));
        } else if event.is(EventKind::FreeRequested) {
            live.remove(&event.handle);
        }
    }
    live
}

fn fold(rig: &Rig) -> Outcome {
    let alloc =
        rig.alloc_with(|config| config.recorder = RecorderMode::Stream { capacity: 1 << 16 })?;
    let live = mixture(rig, &alloc)?;
    alloc.grow(live[0], 1)?;
    let mut events = Vec::new();
    let drained = alloc.drain_events(&mut events, usize::MAX);
    equal!(drained.dropped, 0, "events lost");
    let snapshot = alloc.snapshot();
    let parts = snapshot.segments.iter().flat_map(|segment| &segment.parts);
    let blocks: HashMap<u64, (u64, u64)> = parts
        .filter_map(|part| part.block.as_ref())
        .map(|block| (block.handle.number(), (block.requested, block.allocated)))
        .collect();
    let folded = folded(&events);
    equal!(folded.len(), blocks.len(), "live blocks");
    ensure!(folded == blocks, "events and snapshot disagree about a block's bytes");
    let sum = |kind| events.iter().filter(|e| e.is(kind)).map(|e| e.b).sum::<u64>();
    let reserved = sum(EventKind::SegmentEnd) - sum(EventKind::SegmentReleased)
        + sum(EventKind::PageCreated)
        - sum(EventKind::PageReleased);
    equal!(reserved, alloc.stats().reserved.current, "reserved bytes");
    equal!(events.last().map(|event| event.sequence), Some(snapshot.sequence), "the last number");
    // Over the end of 2^64 they begin anew.
    let follows = |pair: &[Event]| pair[0].sequence.wrapping_add(1) == pair[1].sequence;
    let gaps = events.windows(2).filter(|pair| !follows(pair)).count();
    equal!(gaps, 0, "gaps in the numbers");
    Ok(())
}

fn sequence(rig: &Rig) -> Outcome {
    let alloc = rig.alloc_with(|config| config.recorder = RecorderMode::Stream { capacity: 64 })?;
    let stream = rig.stream()?;
    for _ in 0..100 {
        let handle = alloc.get(256, stream)?;
        alloc.free(handle)?;
    }
    let mut events = Vec::new();
    let drained = alloc.drain_events(&mut events, usize::MAX);
    equal!(events.len(), 64, "events kept of a full stream");
    ensure!(drained.dropped > 0, "no event was counted as lost");
    let first = alloc.config().first_sequence;
    let number = |event: &Event| event.sequence.wrapping_sub(first);
    let numbered = (1_u64..).zip(&events).all(|(at, event)| number(event) == at);
    ensure!(numbered, "the first events of a full stream have other numbers");
    let all = alloc.snapshot().sequence.wrapping_sub(first);
    equal!(events.len() as u64 + drained.dropped, all, "events kept and lost");
    Ok(())
}

fn flight(rig: &Rig) -> Outcome {
    let alloc = rig.alloc_with(|config| config.recorder = RecorderMode::Flight { capacity: 32 })?;
    let stream = rig.stream()?;
    for _ in 0..100 {
        let handle = alloc.get(256, stream)?;
        alloc.free(handle)?;
    }
    let mut events = Vec::new();
    alloc.drain_events(&mut events, usize::MAX);
    equal!(events.len(), 32, "events kept");
    let last = events.last().map_or(0, |event| event.sequence);
    equal!(last, alloc.snapshot().sequence, "the number of the last event kept");
    Ok(())
}

fn trim(rig: &Rig) -> Outcome {
    let alloc = rig.alloc()?;
    let live = mixture(rig, &alloc)?;
    for &handle in &live {
        alloc.free(handle)?;
    }
    settled(rig, &alloc)?;
    let held = alloc.stats().reserved.current;
    equal!(alloc.trim(0)?, held, "bytes given back");
    equal!(alloc.stats().reserved.current, 0, "bytes reserved");
    equal!(rig.probe().alive().memory_objects(), 0, "memory objects alive");
    alloc.sound()
}

/// Waits until everything that was freed is ready.
pub(super) fn settled(rig: &Rig, alloc: &Subject) -> Outcome {
    for segment in alloc.snapshot().segments {
        for point in segment.parts.iter().flat_map(|part| part.pending.iter()) {
            rig.wait(point)?;
        }
    }
    Ok(())
}

fn keep(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc_with(|config| config.min_reserved = 4 * MIB)?;
    let make = || -> Result<(), Stop> {
        for _ in 0..8 {
            let request = Request::new(4 * MIB, stream).dedicated(true);
            let handle = alloc.alloc(&request)?.handle;
            alloc.free(handle)?;
        }
        Ok(())
    };
    make()?;
    alloc.trim(12 * MIB)?;
    let kept = alloc.stats().reserved.current;
    ensure!((8 * MIB..=12 * MIB).contains(&kept), "{kept} bytes kept of 12 MiB allowed");
    alloc.trim(0)?;
    equal!(alloc.stats().reserved.current, 4 * MIB, "the configured minimum");
    alloc.sound()
}

fn busy(rig: &Rig) -> Outcome {
    let [s0, s1] = rig.streams()?;
    let alloc = rig.alloc()?;
    let block = alloc.get(3 * MIB, s0)?;
    let busy = rig.busy(s1, &[])?;
    alloc.record_use(block, s1)?;
    alloc.free(block)?;
    alloc.trim(0)?;
    ensure!(alloc.stats().reserved.current > 0, "memory in use was given back");
    ensure!(!rig.is_reached(busy.point)?, "the trim waited for the work");
    let late = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(20));
        busy.finish();
    });
    let released = alloc.release_cached();
    late.join().map_err(|_| Stop::failed("the helper panicked"))?;
    ensure!(released? >= 3 * MIB, "the release did not wait for the work");
    equal!(alloc.stats().reserved.current, 0, "bytes reserved after a release of the cache");
    alloc.sound()
}

fn maintain(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc_with(|config| config.release_threshold = 8 * MIB)?;
    for _ in 0..2 {
        let held: Result<Vec<Handle>, Error> = (0..6)
            .map(|_| alloc.alloc(&Request::new(4 * MIB, stream).dedicated(true)))
            .map(|got| Ok(got?.handle))
            .collect();
        for handle in held? {
            alloc.free(handle)?;
        }
        alloc.maintain()?;
        let kept = alloc.stats().reserved.current;
        ensure!(kept <= 8 * MIB, "{kept} bytes kept above a threshold of 8 MiB");
        ensure!(kept >= 4 * MIB, "{kept} bytes kept: more was given back than asked");
    }
    alloc.sound()
}

fn proportional(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let growth = Growth::Proportional { min_bytes: 16 * MIB, max_bytes: 64 * MIB };
    let alloc = rig.alloc_with(|config| {
        config.growth = growth;
        config.paging = false;
    })?;
    for _ in 0..96 {
        alloc.get(MIB, stream)?;
    }
    let objects = alloc.stats().memory_objects.current;
    ensure!(objects <= 7, "{objects} memory objects for 96 MiB in steps of 16 MiB and more");
    alloc.sound()
}
