//! Pages that serve elsewhere while their old mapping stands: the rules of DESIGN 4.1, each with
//! a clause or two. What the allocator says is held against what the device was told.

mod counts;

use std::time::Duration;

use terrane_core::device::{ClassId, HeapId, Place, Region, StreamId, SyncPoint};
use terrane_core::{
    Allocation, Config, Error, Handle, Limit, MemoryKind, PartState, Request, Resolved, Wait,
};

use super::allocator;
use super::blocks::{paint, spoilt};
use crate::busy::Busy as Work;
use crate::clause::{Clause, Need, Outcome, Stop, ensure, equal};
use crate::rig::Rig;
use crate::subject::Subject;

use Need::{Busy, Capture, Compute, Paging, PagingAtOnce};

pub(super) const CLAUSES: &[Clause] = &[
    allocator(
        "steal.waits",
        "Stolen pages come with the points of every range that covered them, joined ones too.",
        &[Paging, Busy, Compute],
        "DESIGN 4.1 (a)",
        waits,
    ),
    allocator(
        "steal.contents",
        "Streams whose pages are stolen from each other never see or spoil each other's work.",
        &[Paging, Compute],
        "DESIGN 4.1 (a)",
        contents,
    ),
    allocator(
        "steal.stale",
        "Where a stolen page was is nobody's until it is unmapped, and nothing backs it then.",
        &[Paging],
        "DESIGN 4.1 (b)",
        stale,
    ),
    allocator(
        "steal.stale-in-use",
        "The old mapping of a stolen page stands until the work that uses it is over.",
        &[Paging, Busy, Compute],
        "DESIGN 4.1 (b)",
        stale_in_use,
    ),
    allocator(
        "steal.captured",
        "Pages that a captured graph touches serve nobody else until the graph is released.",
        &[Paging, Capture],
        "DESIGN 4.1 (c), Allocator::release_graph",
        captured,
    ),
    allocator(
        "steal.held",
        "Pages that a guard or an open submission holds are not stolen, the block freed or not.",
        &[Paging],
        "DESIGN 4.1 (c)",
        held,
    ),
    allocator(
        "steal.class",
        "Pages serve only memory of their own class, and none that others are to see.",
        &[Paging],
        "DESIGN 4.1 (d)",
        class,
    ),
    allocator(
        "steal.reserved",
        "Reserved bytes count a memory object once, however often its pages are mapped.",
        &[Paging],
        "DESIGN 4.1 (e)",
        counts::reserved,
    ),
    allocator(
        "steal.cap",
        "No more pages are mapped twice than the cap allows; with a cap of 0 none is stolen.",
        &[Paging],
        "DESIGN 4.1 (f), Policy::stale_max",
        counts::cap,
    ),
    allocator(
        "steal.cap-in-use",
        "At the cap nothing is stolen until work is over and old mappings can be dropped.",
        &[PagingAtOnce, Busy, Compute],
        "DESIGN 4.1 (f), Policy::stale_max",
        counts::cap_in_use,
    ),
];

/// Bytes of the pages that are made: whole granules, small, and no shorter than a plain memory
/// object, so that limits in pages have room for either.
fn page(rig: &Rig) -> u64 {
    let granule = rig.caps().paging.map_or(1, |paging| paging.granularity);
    granule.max(rig.caps().plain_granularity).max(256 << 10)
}

/// An allocator that makes pages of one size, and moves nothing.
fn paged(rig: &Rig, turn: impl FnOnce(&mut Config)) -> Result<Subject, Stop> {
    let page = page(rig);
    rig.alloc_with(|config| {
        config.paging = true;
        config.moves = false;
        config.pages.small_page = page;
        config.pages.large = 1 << 40;
        turn(config);
    })
}

/// As [`paged`], with at most some pages of memory in the heap of device memory.
fn limited(rig: &Rig, pages: u64) -> Result<Subject, Stop> {
    let bytes = pages * page(rig);
    paged(rig, |config| config.limits = vec![Limit::Bytes(bytes)])
}

fn set_limit(rig: &Rig, alloc: &Subject, pages: u64) -> Outcome {
    alloc.set_limit(heap(rig, rig.class(MemoryKind::Device)?), pages * page(rig));
    Ok(())
}

fn heap(rig: &Rig, class: ClassId) -> HeapId {
    rig.caps().class(class).map_or(HeapId(u8::MAX), |class| class.heap)
}

fn ask(
    rig: &Rig,
    alloc: &Subject,
    pages: u64,
    stream: StreamId,
    wait: Wait,
) -> Result<Allocation, Error> {
    alloc.alloc(&Request::new(pages * page(rig), stream).wait(wait))
}

/// Two blocks side by side on pages of their own, one of several pages and one of one page.
fn pair(rig: &Rig, alloc: &Subject, pages: u64, stream: StreamId) -> Result<[Handle; 2], Stop> {
    let first = alloc.get(pages * page(rig), stream)?;
    let second = alloc.get(page(rig), stream)?;
    let (a, b) = (alloc.info(first)?.place, alloc.info(second)?.place);
    equal!(b.offset, a.offset + pages * page(rig), "where the second block is");
    Ok([first, second])
}

/// Work on a stream that waits until the test says so, and then writes to a block: the point of
/// the writing, and what holds it up.
fn late_write(
    rig: &Rig,
    alloc: &Subject,
    block: Handle,
    stream: StreamId,
) -> Result<(SyncPoint, Work), Stop> {
    let busy = rig.busy(stream, &[])?;
    Ok((paint(rig, alloc, stream, block, 0xBAD)?, busy))
}

/// Bytes of a place that are in a state.
fn bytes_that_are(alloc: &Subject, state: PartState, place: Place, bytes: u64) -> u64 {
    let snapshot = alloc.snapshot();
    let segments = snapshot.segments.iter().filter(|segment| segment.space == place.space);
    let parts = segments.flat_map(|segment| segment.parts.iter().map(|part| (segment.base, part)));
    let chosen = parts.filter(|(_, part)| part.state == state);
    let end = place.offset + bytes;
    let overlap = |base: u64, at: u64, len: u64| {
        (base + at + len).min(end).saturating_sub((base + at).max(place.offset))
    };
    chosen.map(|(base, part)| overlap(base, part.offset, part.bytes)).sum()
}

fn waits(rig: &Rig) -> Outcome {
    let alloc = limited(rig, 6)?;
    let ([s0, s1, s2], page) = (rig.streams()?, page(rig));
    let [hole, between] = pair(rig, &alloc, 4, s0)?;
    alloc.free(hole)?;
    // In it three blocks side by side, whose borders are inside pages.
    let a = alloc.get(page * 3 / 2, s0)?;
    let b = alloc.get(page, s0)?;
    let c = alloc.get(page * 3 / 2, s0)?;
    let (first, busy0) = late_write(rig, &alloc, a, s0)?;
    let (_, busy1) = late_write(rig, &alloc, b, s1)?;
    let last = paint(rig, &alloc, s1, c, 0xBAD)?;
    // The holes of the second stream join, the one with the earlier point last.
    for block in [c, a, b] {
        alloc.free(block)?;
    }
    let got = ask(rig, &alloc, 5, s2, Wait::OnStream)?;
    equal!(alloc.stats().pages_stolen, 4, "pages stolen");
    let mut found: Vec<_> = got.waits.iter().collect();
    found.sort_unstable();
    let mut expected = vec![first, last];
    expected.sort_unstable();
    equal!(found, expected, "what the first use of stolen pages waits for");
    let written = paint(rig, &alloc, s2, got.handle, 7)?;
    busy0.finish();
    rig.wait(first)?;
    std::thread::sleep(Duration::from_millis(5));
    ensure!(!rig.is_reached(written)?, "the new use did not wait for the second stream");
    busy1.finish();
    rig.wait(written)?;
    equal!(spoilt(rig, &alloc, s2, got.handle, 7)?, 0, "words that an old use spoilt");
    alloc.free(got.handle)?;
    alloc.free(between)?;
    alloc.sound()
}

/// The ends of a block and of what it has of each page, each with a pattern of its own.
fn ends(rig: &Rig, at: &Resolved, seed: u64) -> Vec<Region> {
    let (page, end) = (page(rig), at.place.offset + at.bytes);
    let mut regions = Vec::new();
    let mut from = at.place.offset;
    while from < end {
        let to = ((from / page + 1) * page).min(end);
        let some = (to - from).min(4096);
        for offset in [from, to - some] {
            let seed = (seed << 32) + regions.len() as u64 / 2;
            // Where both overlap they are one.
            let offset = if to - from < 2 * some { from } else { offset };
            let place = Place { space: at.place.space, offset };
            regions.push(Region { place, bytes: some, seed });
        }
        from = to;
    }
    regions
}

/// Writes patterns to the ends in a block of its pages, on a stream.
fn mark(rig: &Rig, alloc: &Subject, stream: StreamId, handle: Handle, seed: u64) -> Outcome {
    let mut submission = alloc.submit(stream);
    let regions = ends(rig, &submission.resolve(handle)?, seed);
    submission.close_at(rig.compute()?.fill_pattern(stream, &regions)?);
    Ok(())
}

/// Fails unless the patterns are there.
fn assert_marked(
    rig: &Rig,
    alloc: &Subject,
    stream: StreamId,
    handle: Handle,
    seed: u64,
) -> Outcome {
    let mut submission = alloc.submit(stream);
    let regions = ends(rig, &submission.resolve(handle)?, seed);
    let ticket = rig.compute()?.verify(stream, &regions)?;
    submission.close_at(ticket.point);
    rig.wait(ticket.point)?;
    let spoilt: u64 = rig.compute()?.take_report(ticket)?.iter().sum();
    equal!(spoilt, 0, "spoilt words of block {seed}");
    Ok(())
}

fn contents(rig: &Rig) -> Outcome {
    let alloc = limited(rig, 9)?;
    let streams = rig.streams::<4>()?;
    let mut random = rig.random();
    let mut live: Vec<(Handle, u64, StreamId)> = Vec::new();
    for seed in 0..240 {
        let stream = streams[random.below(4) as usize];
        let bytes = random.size(page(rig) / 2, page(rig) * 4);
        let handle = loop {
            match alloc.alloc(&Request::new(bytes, stream)) {
                Ok(got) => break got.handle,
                Err(error) if live.is_empty() => return Err(error.into()),
                Err(_) => {}
            }
            let (handle, seed, owner) = live.swap_remove(random.below(live.len() as u64) as usize);
            let reader = if random.one_in(2) { owner } else { streams[random.below(4) as usize] };
            assert_marked(rig, &alloc, reader, handle, seed)?;
            // Written once more, so that its next owner has something to wait for.
            mark(rig, &alloc, reader, handle, !seed)?;
            alloc.free(handle)?;
        };
        mark(rig, &alloc, stream, handle, seed)?;
        live.push((handle, seed, stream));
    }
    for (handle, seed, owner) in live {
        assert_marked(rig, &alloc, owner, handle, seed)?;
        alloc.free(handle)?;
    }
    ensure!(alloc.stats().pages_stolen >= 10, "{} pages stolen", alloc.stats().pages_stolen);
    alloc.sound()
}

fn stale(rig: &Rig) -> Outcome {
    let (alloc, page, stream) = (limited(rig, 6)?, page(rig), rig.stream()?);
    let [old, between] = pair(rig, &alloc, 4, stream)?;
    let was = alloc.info(old)?.place;
    alloc.free(old)?;
    let stolen = ask(rig, &alloc, 5, stream, Wait::OnStream)?.handle;
    equal!(alloc.stats().pages_stolen, 4, "pages stolen");
    equal!(bytes_that_are(&alloc, PartState::Stale, was, 4 * page), 4 * page, "stale bytes");
    equal!(alloc.stats().free, 0, "free bytes");
    let mapping = rig.probe().mapping();
    equal!(mapping.bytes_in(was.space, was.offset, 4 * page), 4 * page, "bytes still mapped");
    // No hole: nothing is served there, though it would fit.
    ensure!(ask(rig, &alloc, 1, stream, Wait::OnStream).is_err(), "a stale range served");
    // No destination: new pages go elsewhere.
    set_limit(rig, &alloc, 11)?;
    let other = ask(rig, &alloc, 4, stream, Wait::OnStream)?.handle;
    let at = alloc.info(other)?.place.offset;
    ensure!(at + 4 * page <= was.offset || at >= was.offset + 4 * page, "a stale destination");
    // More steals than are kept standing: the old mappings are dropped, and nothing is there.
    alloc.free(stolen)?;
    let more = ask(rig, &alloc, 6, stream, Wait::OnStream)?.handle;
    equal!(alloc.stats().pages_stolen, 9, "pages stolen in all");
    equal!(bytes_that_are(&alloc, PartState::Unbacked, was, 4 * page), 4 * page, "unbacked bytes");
    let mapping = rig.probe().mapping();
    equal!(mapping.bytes_in(was.space, was.offset, 4 * page), 0, "bytes mapped in the end");
    equal!(mapping.twice, 0, "pages mapped twice in the end");
    for block in [other, more, between] {
        alloc.free(block)?;
    }
    alloc.sound()
}

fn stale_in_use(rig: &Rig) -> Outcome {
    let alloc = paged(rig, |config| {
        config.limits = vec![Limit::Bytes(8 * page(rig))];
        // Half of them stand at most once they can be dropped.
        config.pages.stale_max = 8;
    })?;
    let (page, stream) = (page(rig), rig.stream()?);
    let [old, between] = pair(rig, &alloc, 6, stream)?;
    let was = alloc.info(old)?.place;
    let (point, busy) = late_write(rig, &alloc, old, stream)?;
    alloc.free(old)?;
    // In stream order its pages serve at once.
    let got = ask(rig, &alloc, 7, stream, Wait::Never)?;
    ensure!(got.waits.is_empty(), "it waits for {:?}", got.waits);
    equal!(alloc.stats().pages_stolen, 6, "pages stolen");
    let written = paint(rig, &alloc, stream, got.handle, 7)?;
    if rig.caps().paging.is_some_and(|paging| !paging.stream_ordered) {
        let mapping = rig.probe().mapping();
        let left = mapping.bytes_in(was.space, was.offset, 6 * page);
        equal!(left, 6 * page, "bytes that the work is still to write to");
    }
    ensure!(!rig.is_reached(point)?, "the work was not held up");
    busy.finish();
    rig.wait(written)?;
    equal!(spoilt(rig, &alloc, stream, got.handle, 7)?, 0, "words that an old use spoilt");
    alloc.free(got.handle)?;
    alloc.free(between)?;
    // Memory that goes back is mapped nowhere any more.
    alloc.release_cached()?;
    let mapping = rig.probe().mapping();
    equal!((mapping.places.len(), mapping.object_bytes), (0, 0), "mappings and bytes in the end");
    alloc.sound()
}

fn captured(rig: &Rig) -> Outcome {
    for by_hand in [false, true] {
        for inside in [false, true] {
            let (alloc, page) = (limited(rig, 6)?, page(rig));
            let [own, other] = rig.streams()?;
            let [block, between] = pair(rig, &alloc, 4, own)?;
            let at = alloc.info(block)?.place;
            let capture = rig.capture(other)?;
            if by_hand {
                alloc.record_use(block, other)?;
            } else {
                let mut submission = alloc.submit(other);
                submission.resolve(block)?;
                submission.close()?;
            }
            let graph = alloc.graph(other)?.ok_or_else(|| Stop::failed("no graph"))?;
            if inside {
                alloc.free(block)?;
            }
            capture.end()?;
            if !inside {
                alloc.free(block)?;
            }
            let answer = ask(rig, &alloc, 5, own, Wait::OnStream).map(drop);
            ensure!(answer.is_err(), "pages that a replay may touch were handed out");
            equal!(alloc.release_cached()?, 0, "bytes given back under a graph");
            let mapped = rig.probe().mapping().bytes_in(at.space, at.offset, 4 * page);
            equal!(mapped, 4 * page, "bytes that are mapped for the graph");
            alloc.sound()?;
            alloc.release_graph(graph)?;
            let got = ask(rig, &alloc, 5, own, Wait::OnStream)?;
            equal!(alloc.stats().pages_stolen, 4, "pages stolen once the graph is released");
            alloc.free(got.handle)?;
            alloc.free(between)?;
            alloc.sound()?;
        }
    }
    Ok(())
}

fn held(rig: &Rig) -> Outcome {
    for submitted in [false, true] {
        let (alloc, page, stream) = (limited(rig, 6)?, page(rig), rig.stream()?);
        let [block, between] = pair(rig, &alloc, 4, stream)?;
        let at = alloc.info(block)?.place;
        let pin = if submitted { None } else { Some(alloc.pin(block)?) };
        let mut submission = alloc.submit(stream);
        if submitted {
            submission.resolve(block)?;
        }
        alloc.free(block)?;
        let answer = ask(rig, &alloc, 5, stream, Wait::OnStream).map(drop);
        ensure!(answer.is_err(), "pages that are held were handed out");
        alloc.release_cached()?;
        let mapped = rig.probe().mapping().bytes_in(at.space, at.offset, 4 * page);
        equal!(mapped, 4 * page, "bytes that are mapped under a hold");
        equal!(alloc.stats().pages_stolen, 0, "pages stolen under a hold");
        drop(pin);
        submission.close()?;
        let got = ask(rig, &alloc, 5, stream, Wait::OnStream)?;
        equal!(alloc.stats().pages_stolen, 4, "pages stolen once nothing holds them");
        alloc.free(got.handle)?;
        alloc.free(between)?;
        alloc.sound()?;
    }
    Ok(())
}

fn class(rig: &Rig) -> Outcome {
    let (stream, page) = (rig.stream()?, page(rig));
    let there = |kind: &MemoryKind| rig.caps().classes_of(*kind).next().is_some();
    let other = |kind: &MemoryKind| *kind != MemoryKind::Device && there(kind);
    let mut sorts: Vec<_> =
        MemoryKind::ALL.into_iter().filter(other).map(|kind| (kind, false)).collect();
    if rig.caps().export {
        sorts.push((MemoryKind::Device, true));
    }
    ensure!(!sorts.is_empty(), "the device has one sort of memory alone");
    for (kind, exportable) in sorts {
        let class = rig.class(kind)?;
        let same_heap = heap(rig, class) == heap(rig, rig.class(MemoryKind::Device)?);
        let alloc = limited(rig, 6)?;
        let [old, between] = pair(rig, &alloc, 4, stream)?;
        alloc.free(old)?;
        // From the same heap there is no more without what the free pages hold.
        let pages = if same_heap { 5 } else { 1 };
        let request = Request::new(pages * page, stream).kind(kind).exportable(exportable);
        let got = alloc.alloc(&request)?;
        equal!(alloc.stats().pages_stolen, 0, "pages that went over to {kind} memory");
        let mapping = rig.probe().mapping();
        ensure!(mapping.wrong.is_none(), "mapped with memory of another class: {mapping:?}");
        let space = alloc.info(got.handle)?.place.space;
        let snapshot = alloc.snapshot();
        let segment = snapshot.segments.iter().find(|segment| segment.space == space);
        // A further class of the kind may have served it, from another heap.
        let of_kind = segment
            .is_some_and(|segment| rig.caps().classes_of(kind).any(|class| class == segment.class));
        ensure!(of_kind, "{kind} memory is of class {:?}", segment.map(|segment| segment.class));
        ensure!(!exportable || !mapping.spaces.contains(&space), "exported memory is paged");
        alloc.free(got.handle)?;
        alloc.free(between)?;
        alloc.sound()?;
    }
    Ok(())
}
