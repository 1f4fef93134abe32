//! Blocks whose memory goes back to the device for a time, while handles and addresses stay.

use std::time::Duration;

use terrane_core::{Contents, Error, Handle, Limit, Request, Selection, Slice};

use super::allocator;
use crate::clause::{Clause, Need, Outcome, Stop, ensure, equal, fails};
use crate::rig::Rig;
use crate::subject::Subject;

use Need::{Compute, Paging};

pub(super) const CLAUSES: &[Clause] = &[
    allocator(
        "pause.gives-back",
        "A paused block's memory is with the device; resumed, it has the address it had.",
        &[Paging],
        "Allocator::pause, Allocator::resume",
        gives_back,
    ),
    allocator(
        "pause.keeps-contents",
        "What is to be kept of a paused block is there when it is resumed.",
        &[Paging, Compute],
        "Contents::Keep",
        keeps_contents,
    ),
    allocator(
        "pause.refuses-use",
        "A paused block can not be used, but freed.",
        &[Paging],
        "Error::Paused",
        refuses_use,
    ),
    allocator(
        "pause.held-stays",
        "A block that is held is not paused, and that is told.",
        &[Paging],
        "PauseReport::refused",
        held_stays,
    ),
    allocator(
        "pause.serves-others",
        "Paused memory serves others; without memory a block stays paused until there is some.",
        &[Paging],
        "Allocator::resume",
        serves_others,
    ),
    allocator(
        "pause.by-tag",
        "Pausing a tag leaves blocks with other tags alone.",
        &[Paging],
        "Selection::Tag",
        by_tag,
    ),
];

const PATIENCE: Duration = Duration::from_secs(30);

/// A size that covers whole pages wherever it lies.
fn size(rig: &Rig) -> u64 {
    let granule = rig.caps().paging.map_or(1, |paging| paging.granularity);
    (8 * granule).max(8 << 20)
}

fn paged(rig: &Rig, limit: Option<u64>) -> Result<Subject, Stop> {
    rig.alloc_with(|config| {
        config.paging = true;
        config.limits = limit.map(Limit::Bytes).into_iter().collect();
    })
}

fn reserved(alloc: &Subject) -> u64 {
    alloc.stats().reserved.current
}

fn pause(alloc: &Subject, block: Handle, contents: Contents) -> Result<u64, Stop> {
    let report = alloc.pause(Selection::Block(block), contents, PATIENCE)?;
    equal!((report.blocks, report.refused), (1, 0), "blocks paused and refused");
    Ok(report.bytes)
}

fn gives_back(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = paged(rig, None)?;
    let block = alloc.get(size(rig), stream)?;
    let before = (reserved(&alloc), alloc.info(block)?.place);
    let bytes = pause(&alloc, block, Contents::Discard)?;
    ensure!(bytes >= size(rig) / 2, "{bytes} bytes of {} went back", size(rig));
    equal!(reserved(&alloc), before.0 - bytes, "reserved bytes of a paused block");
    equal!(alloc.stats().total.allocated.current, 0, "allocated bytes while it is paused");
    ensure!(alloc.is_paused(block)? && alloc.info(block)?.paused, "it is not told as paused");
    alloc.sound()?;
    let report = alloc.resume(Selection::Block(block))?;
    equal!((report.blocks, report.bytes), (1, bytes), "blocks and bytes resumed");
    equal!((reserved(&alloc), alloc.info(block)?.place), before, "the block once resumed");
    ensure!(!alloc.is_paused(block)?, "it is still told as paused");
    alloc.free(block)?;
    alloc.sound()
}

fn keeps_contents(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = paged(rig, None)?;
    let block = alloc.get(size(rig), stream)?;
    let data: Vec<u8> = (0..size(rig)).map(|i| (i * 7 + (i >> 12)) as u8).collect();
    alloc.write(stream, block, 0, &data)?;
    pause(&alloc, block, Contents::Keep)?;
    // Somebody else writes where the memory may have gone.
    let other = alloc.get(size(rig), stream)?;
    alloc.write(stream, other, 0, &vec![0xff; data.len()])?;
    alloc.resume(Selection::Block(block))?;
    let ticket = alloc.read(stream, Slice::read(block))?;
    ensure!(rig.take(ticket)?[..data.len()] == data[..], "the contents differ");
    alloc.free(block)?;
    alloc.free(other)?;
    alloc.sound()
}

fn refuses_use(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = paged(rig, None)?;
    let block = alloc.get(size(rig), stream)?;
    pause(&alloc, block, Contents::Keep)?;
    let write = alloc.write(stream, block, 0, &[1]).map(drop);
    fails(&write, &Error::Paused, "work on a paused block")?;
    fails(&alloc.pin(block).map(drop), &Error::Paused, "a guard of a paused block")?;
    fails(&alloc.grow(block, 2 * size(rig)).map(drop), &Error::Paused, "growing it")?;
    fails(&alloc.record_use(block, stream), &Error::Paused, "a use of it")?;
    let again = alloc.pause(Selection::Block(block), Contents::Keep, PATIENCE)?;
    equal!((again.blocks, again.refused), (0, 0), "a second pause");
    alloc.free(block)?;
    fails(&alloc.free(block), &Error::DoubleFree, "a second free")?;
    equal!(alloc.resume(Selection::Tag(terrane_core::Tag::NONE))?.blocks, 0, "what is resumed");
    alloc.release_cached()?;
    equal!(reserved(&alloc), 0, "reserved bytes in the end");
    alloc.sound()
}

fn held_stays(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = paged(rig, None)?;
    let block = alloc.get(size(rig), stream)?;
    let pin = alloc.pin(block)?;
    let before = reserved(&alloc);
    let report = alloc.pause(Selection::Block(block), Contents::Discard, PATIENCE)?;
    equal!((report.blocks, report.bytes, report.refused), (0, 0, 1), "a held block's pause");
    equal!(reserved(&alloc), before, "reserved bytes");
    drop(pin);
    pause(&alloc, block, Contents::Discard)?;
    alloc.free(block)?;
    alloc.sound()
}

fn serves_others(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    // Room for one block, and the pages that its ends share.
    let alloc = paged(rig, Some(size(rig) + size(rig) / 2))?;
    let first = alloc.get(size(rig), stream)?;
    let request = Request::new(size(rig), stream);
    let refused = alloc.alloc(&request);
    ensure!(refused.is_err(), "two blocks fit into the limit of one");
    let bytes = pause(&alloc, first, Contents::Discard)?;
    let second = alloc.alloc(&request)?.handle;
    let refused = alloc.resume(Selection::Block(first));
    let short = matches!(refused, Err(Error::OverUserLimit { .. } | Error::OutOfMemory(_)));
    ensure!(short, "resuming without memory answers {refused:?}");
    ensure!(alloc.is_paused(first)?, "it is not paused any more");
    alloc.sound()?;
    alloc.free(second)?;
    rig.wait(rig.device().mark(stream)?)?;
    equal!(alloc.resume(Selection::Block(first))?.bytes, bytes, "bytes resumed");
    alloc.free(first)?;
    alloc.sound()
}

fn by_tag(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = paged(rig, None)?;
    let tags = (alloc.tag("weights")?, alloc.tag("cache")?);
    let get = |tag| alloc.alloc(&Request::new(size(rig), stream).tag(tag)).map(|got| got.handle);
    let (weights, cache) = (get(tags.0)?, get(tags.1)?);
    let report = alloc.pause(Selection::Tag(tags.1), Contents::Discard, PATIENCE)?;
    equal!((report.blocks, report.refused), (1, 0), "blocks paused and refused");
    ensure!(alloc.is_paused(cache)? && !alloc.is_paused(weights)?, "the wrong block is paused");
    equal!(alloc.resume(Selection::Tag(tags.0))?.blocks, 0, "blocks of the other tag resumed");
    equal!(alloc.resume(Selection::Tag(tags.1))?.blocks, 1, "blocks of the tag resumed");
    alloc.write(stream, cache, 0, &[1])?;
    alloc.free(weights)?;
    alloc.free(cache)?;
    alloc.sound()
}
