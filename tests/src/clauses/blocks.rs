//! Blocks: what a request gets.

use terrane_core::device::{Region, StreamId, SyncPoint};
use terrane_core::{Error, Handle, MemoryKind, Request, Scrub, Slice};

use super::allocator;
use crate::clause::{Clause, Need, Outcome, Stop, ensure, equal, fails};
use crate::rig::Rig;
use crate::subject::Subject;

use Need::Compute;

pub(super) const CLAUSES: &[Clause] = &[
    allocator(
        "blocks.size",
        "A block has at least the bytes asked for and at most a thousandth, or 255 bytes, more.",
        &[],
        "size_class::allocated",
        size,
    ),
    allocator(
        "blocks.align",
        "A block is aligned as asked, and well enough for kernels in any case.",
        &[],
        "Request::align",
        align,
    ),
    allocator(
        "blocks.apart",
        "No two live blocks share a byte, whatever comes and goes.",
        &[],
        "Allocator::alloc",
        apart,
    ),
    allocator(
        "blocks.contents",
        "A block keeps its contents while others come and go.",
        &[Compute],
        "Allocator::alloc",
        contents,
    ),
    allocator(
        "blocks.kinds",
        "A block of a kind lies in a class of that kind.",
        &[],
        "Request::kind",
        kinds,
    ),
    allocator(
        "blocks.classes",
        "A request that allows certain classes gets memory of one of them.",
        &[],
        "Request::classes",
        classes,
    ),
    allocator(
        "blocks.dedicated",
        "A dedicated block has a memory object of its own.",
        &[],
        "Request::dedicated",
        dedicated,
    ),
    allocator(
        "blocks.zeroed",
        "A zeroed block is zero to its last byte, though its memory was used before.",
        &[Compute],
        "Request::zeroed",
        zeroed,
    ),
    allocator(
        "blocks.scrub",
        "By policy no tag sees what another left.",
        &[Compute],
        "Scrub::AcrossTags",
        scrub,
    ),
    allocator(
        "blocks.known",
        "A block is known by its name, size, stream and the line that asked for it.",
        &[],
        "Allocator::info",
        known,
    ),
    allocator(
        "blocks.again",
        "What a stream freed serves its next request of that size, without a wait or new memory.",
        &[],
        "Allocator::free",
        again,
    ),
    allocator(
        "blocks.buffer",
        "A buffer is freed when it is dropped, and only then.",
        &[],
        "Buffer",
        buffer,
    ),
    allocator(
        "blocks.grow",
        "A block grows in place into free memory and keeps its contents.",
        &[Compute],
        "Allocator::grow",
        grow,
    ),
    allocator(
        "blocks.no-room",
        "A block with a neighbour does not grow and stays as it was.",
        &[],
        "Error::NoRoomToGrow",
        no_room,
    ),
    allocator(
        "blocks.whole",
        "Neighbours that were freed are one hole again.",
        &[],
        "Allocator::free",
        whole,
    ),
];

/// Fills a block with the pattern of a seed, on a stream.
pub(super) fn paint(
    rig: &Rig,
    alloc: &Subject,
    stream: StreamId,
    handle: Handle,
    seed: u64,
) -> Result<SyncPoint, Stop> {
    let mut submission = alloc.submit(stream);
    let at = submission.resolve(handle)?;
    let region = Region { place: at.place, bytes: at.bytes, seed };
    let point = rig.compute()?.fill_pattern(stream, &[region])?;
    submission.close_at(point);
    Ok(point)
}

/// Words of a block that are not the pattern of a seed.
pub(super) fn spoilt(
    rig: &Rig,
    alloc: &Subject,
    stream: StreamId,
    handle: Handle,
    seed: u64,
) -> Result<u64, Stop> {
    let mut submission = alloc.submit(stream);
    let at = submission.resolve(handle)?;
    let region = Region { place: at.place, bytes: at.bytes, seed };
    let ticket = rig.compute()?.verify(stream, &[region])?;
    submission.close_at(ticket.point);
    rig.wait(ticket.point)?;
    Ok(rig.compute()?.take_report(ticket)?[0])
}

fn size(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    let mut random = rig.random();
    for round in 0..60 {
        let bytes = if round == 0 { 1 } else { random.size(1, 24 << 20) };
        let got = alloc.alloc(&Request::new(bytes, stream))?;
        let most = bytes + (bytes / 1000).max(255);
        ensure!((bytes..=most).contains(&got.bytes), "{} bytes for {bytes}", got.bytes);
        let info = alloc.info(got.handle)?;
        equal!((info.requested, info.allocated), (bytes, got.bytes), "what is known");
        alloc.free(got.handle)?;
    }
    alloc.sound()
}

fn align(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    let base = rig.caps().plain_base_align.get();
    let binding = rig.caps().binding_align.get();
    for shift in 0..=base.trailing_zeros().min(20) {
        let align = 1_u64 << shift;
        for bytes in [1, 300, 70_000] {
            let got = alloc.alloc(&Request::new(bytes, stream).align(align))?;
            let pin = alloc.pin(got.handle)?;
            let offset = pin.at().place.offset;
            ensure!(offset % align.max(binding) == 0, "offset {offset}, alignment {align}");
            if let Some(address) = pin.at().address {
                ensure!(address % align == 0, "address {address:#x}, alignment {align}");
            }
        }
    }
    alloc.sound()
}

/// Live blocks by place, one after the other.
fn overlap(alloc: &Subject, live: &[Handle]) -> Result<Option<String>, Stop> {
    let mut spans = Vec::new();
    for &handle in live {
        let info = alloc.info(handle)?;
        spans.push((info.place.space, info.place.offset, info.allocated));
    }
    spans.sort_unstable();
    let clash =
        spans.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].1 + pair[0].2 > pair[1].1);
    Ok(clash.map(|pair| format!("{pair:?}")))
}

fn apart(rig: &Rig) -> Outcome {
    let [s0, s1] = rig.streams()?;
    let alloc = rig.alloc()?;
    let mut random = rig.random();
    let mut live: Vec<Handle> = Vec::new();
    for round in 0..600 {
        if live.len() > 60 || (!live.is_empty() && random.one_in(3)) {
            let at = random.below(live.len() as u64) as usize;
            alloc.free(live.swap_remove(at))?;
        } else {
            let bytes = random.size(1, 4 << 20);
            let stream = if random.one_in(2) { s0 } else { s1 };
            live.push(
                alloc.alloc(&Request::new(bytes, stream).align(1 << random.below(8)))?.handle,
            );
        }
        if round % 50 == 0 {
            let clash = overlap(&alloc, &live)?;
            ensure!(clash.is_none(), "two live blocks overlap: {clash:?}");
            let known = alloc.snapshot();
            let seen = known.segments.iter().flat_map(|segment| &segment.parts);
            let seen = seen.filter(|part| part.block.is_some()).count();
            equal!(seen, live.len(), "blocks in the snapshot");
            alloc.sound()?;
        }
    }
    Ok(())
}

fn contents(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    let mut random = rig.random();
    let mut live: Vec<(Handle, u64)> = Vec::new();
    for seed in 0..150 {
        let handle = alloc.get(random.size(1, 600_000), stream)?;
        paint(rig, &alloc, stream, handle, seed)?;
        live.push((handle, seed));
        if live.len() > 24 {
            let (handle, seed) = live.swap_remove(random.below(24) as usize);
            equal!(spoilt(rig, &alloc, stream, handle, seed)?, 0, "spoilt words of block {seed}");
            alloc.free(handle)?;
        }
    }
    for (handle, seed) in live {
        equal!(spoilt(rig, &alloc, stream, handle, seed)?, 0, "spoilt words of block {seed}");
    }
    alloc.sound()
}

/// The class that a block lies in.
fn class_of(alloc: &Subject, handle: Handle) -> Result<u8, Stop> {
    let space = alloc.info(handle)?.place.space;
    let snapshot = alloc.snapshot();
    let segment = snapshot.segments.iter().find(|segment| segment.space == space);
    Ok(segment.ok_or_else(|| Stop::failed("a block of no segment"))?.class.0)
}

fn kinds(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    for kind in MemoryKind::ALL {
        let request = Request::new(100_000, stream).kind(kind);
        if rig.caps().classes_of(kind).next().is_none() {
            fails(&alloc.alloc(&request).map(drop), &Error::NoSuchKind(kind), kind.name())?;
            continue;
        }
        let handle = alloc.alloc(&request)?.handle;
        let class = usize::from(class_of(&alloc, handle)?);
        equal!(rig.caps().classes[class].kind, kind, "the kind of class {class}");
        equal!(alloc.info(handle)?.kind, kind, "the kind of the block");
        alloc.write(stream, handle, 0, b"usable")?;
    }
    alloc.sound()
}

fn classes(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    for kind in MemoryKind::ALL {
        for class in rig.caps().classes_of(kind) {
            let request = Request::new(50_000, stream).kind(kind).classes(1 << class.0);
            let handle = alloc.alloc(&request)?.handle;
            equal!(class_of(&alloc, handle)?, class.0, "the class of a block");
        }
    }
    let request = Request::new(50_000, stream).classes(0);
    ensure!(alloc.alloc(&request).is_err(), "a request that allows no class was served");
    alloc.sound()
}

fn dedicated(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    alloc.get(1000, stream)?;
    let own = alloc.alloc(&Request::new(1000, stream).dedicated(true))?.handle;
    alloc.get(1000, stream)?;
    let space = alloc.info(own)?.place.space;
    let snapshot = alloc.snapshot();
    let segment = snapshot.segments.iter().find(|segment| segment.space == space);
    let blocks = segment.map_or(0, |s| s.parts.iter().filter(|p| p.block.is_some()).count());
    equal!(blocks, 1, "blocks in the dedicated block's memory object");
    alloc.sound()
}

fn is_zero(alloc: &Subject, rig: &Rig, stream: StreamId, handle: Handle) -> Result<bool, Stop> {
    let ticket = alloc.read(stream, Slice::read(handle))?;
    rig.wait(ticket.point)?;
    Ok(alloc.take_read(ticket)?.iter().all(|&byte| byte == 0))
}

fn zeroed(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    for bytes in [100, 5000, 300_001] {
        let dirty = alloc.get(bytes, stream)?;
        paint(rig, &alloc, stream, dirty, 77)?;
        alloc.free(dirty)?;
        let clean = alloc.alloc(&Request::new(bytes, stream).zeroed(true))?.handle;
        ensure!(
            is_zero(&alloc, rig, stream, clean)?,
            "a zeroed block of {bytes} bytes is not zero"
        );
    }
    alloc.sound()
}

fn scrub(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc_with(|config| config.scrub = Scrub::AcrossTags)?;
    let (secret, public) = (alloc.tag("secret")?, alloc.tag("public")?);
    for bytes in [4096, 100_000] {
        let dirty = alloc.alloc(&Request::new(bytes, stream).tag(secret))?.handle;
        paint(rig, &alloc, stream, dirty, 5)?;
        alloc.free(dirty)?;
        let next = alloc.alloc(&Request::new(bytes, stream).tag(public))?.handle;
        ensure!(is_zero(&alloc, rig, stream, next)?, "a tag sees what another left");
    }
    alloc.sound()
}

fn known(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    let tag = alloc.tag("weights")?;
    let line = line!() + 1;
    let got = alloc.alloc(&Request::new(4321, stream).name("layer 3").tag(tag))?;
    let info = alloc.info(got.handle)?;
    equal!(info.name, "layer 3", "the name");
    equal!((info.requested, info.stream, info.tag), (4321, stream, tag), "what is known");
    ensure!(
        info.site.contains("blocks.rs") && info.site.contains(&line.to_string()),
        "{}",
        info.site
    );
    equal!((info.holds, info.movable), (0, true), "holds and whether it may move");
    alloc.sound()
}

fn again(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    for bytes in [256, 70_000, 5 << 20] {
        let first = alloc.get(bytes, stream)?;
        let place = alloc.info(first)?.place;
        alloc.write(stream, first, 0, b"in use")?;
        alloc.free(first)?;
        let reserved = alloc.stats().reserved.current;
        let second = alloc.alloc(&Request::new(bytes, stream))?;
        equal!(alloc.info(second.handle)?.place, place, "the place of {bytes} bytes");
        ensure!(second.waits.is_empty(), "a stream waits for itself: {:?}", second.waits);
        equal!(alloc.stats().reserved.current, reserved, "bytes reserved");
    }
    alloc.sound()
}

fn buffer(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    let live = || alloc.stats().total.blocks.current;
    let buffer = alloc.buffer(&Request::new(1000, stream))?;
    ensure!(buffer.bytes() >= 1000, "a buffer of {} bytes", buffer.bytes());
    equal!(live(), 1, "blocks with a buffer");
    let handle = alloc.buffer(&Request::new(1000, stream))?.into_handle();
    equal!(live(), 2, "blocks with a buffer and a handle");
    drop(buffer);
    equal!(live(), 1, "blocks after the buffer was dropped");
    alloc.free(handle)?;
    let freed = alloc.buffer(&Request::new(1000, stream))?;
    alloc.free(freed.handle())?;
    drop(freed);
    equal!(live(), 0, "blocks at the end");
    alloc.sound()
}

fn grow(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc_with(|config| config.preallocate = 0.0)?;
    let block = alloc.get(600_000, stream)?;
    let next = alloc.get(600_000, stream)?;
    paint(rig, &alloc, stream, block, 3)?;
    let before = alloc.info(block)?;
    let second = alloc.info(next)?;
    alloc.free(next)?;
    if second.place.space != before.place.space || second.place.offset < before.place.offset {
        return Err(Stop::Skipped("the next block is no neighbour".to_owned()));
    }
    let waits = alloc.grow(block, 900_000)?;
    ensure!(waits.is_empty(), "memory never used waits for {waits:?}");
    let after = alloc.info(block)?;
    equal!((after.requested, after.place), (900_000, before.place), "the grown block");
    ensure!(after.allocated >= 900_000, "{} bytes after growing", after.allocated);
    let mut submission = alloc.submit(stream);
    let at = submission.resolve(block)?;
    equal!(at.bytes, after.allocated, "bytes of the block in a submission");
    let region = Region { place: at.place, bytes: before.allocated, seed: 3 };
    let ticket = rig.compute()?.verify(stream, &[region])?;
    submission.close_at(ticket.point);
    rig.wait(ticket.point)?;
    equal!(rig.compute()?.take_report(ticket)?, [0], "spoilt words after growing");
    alloc.grow(block, 100)?;
    equal!(alloc.info(block)?.requested, 100, "requested bytes after cutting");
    alloc.sound()
}

fn no_room(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    let block = alloc.alloc(&Request::new(5000, stream).dedicated(true))?.handle;
    let room = alloc.snapshot().segments.iter().map(|segment| segment.bytes).max().unwrap_or(0);
    let before = alloc.info(block)?;
    let answer = alloc.grow(block, room + 4096).map(drop);
    fails(&answer, &Error::NoRoomToGrow, "growing beyond the segment")?;
    equal!(alloc.info(block)?.requested, before.requested, "the block after a refusal");
    alloc.sound()
}

fn whole(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    let mut random = rig.random();
    let mut live: Vec<Handle> = Vec::new();
    for _ in 0..100 {
        live.push(alloc.get(random.size(256, 300_000), stream)?);
    }
    while !live.is_empty() {
        let at = random.below(live.len() as u64) as usize;
        alloc.free(live.swap_remove(at))?;
    }
    rig.wait(rig.device().mark(stream)?)?;
    alloc.sound()?;
    for segment in alloc.snapshot().segments {
        equal!(segment.parts.len(), 1, "parts of a segment that is all free");
    }
    Ok(())
}
