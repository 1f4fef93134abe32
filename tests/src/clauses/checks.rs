//! Checks for the program's own mistakes: margins, poison, quarantine, pass-through.

use std::time::{Duration, Instant};

use terrane_core::compact::{Goal, Limits};
use terrane_core::device::{Place, StreamId};
use terrane_core::event::{Event, EventKind};
use terrane_core::{Checks, Config, Damage, DamageKind, Error, Growth, Handle, Limit, Request};

use super::allocator;
use super::blocks::{paint, spoilt};
use super::books::settled;
use crate::clause::{Clause, Need, Outcome, Stop, ensure, equal, fails};
use crate::rig::Rig;
use crate::subject::Subject;

use Need::Compute;

pub(super) const CLAUSES: &[Clause] = &[
    allocator(
        "checks.past-end",
        "A word written past a block's end is found at its free, with both blocks and their lines.",
        &[Compute],
        "Checks::margin",
        past_end,
    ),
    allocator(
        "checks.before-start",
        "A word written before a block's start is found at its free.",
        &[Compute],
        "Checks::margin",
        before_start,
    ),
    allocator(
        "checks.after-free",
        "A word written to a freed block is found when it leaves the quarantine, with both lines.",
        &[Compute],
        "Checks::quarantine",
        after_free,
    ),
    allocator(
        "checks.live",
        "Asked for, a word written past the end of a live block is found, and told once.",
        &[Compute],
        "Allocator::check_blocks",
        live,
    ),
    allocator(
        "checks.clean",
        "A program without mistakes gets no finding, keeps its contents, and leaves nothing behind.",
        &[Compute],
        "Checks",
        clean,
    ),
    allocator(
        "checks.poison",
        "By policy new and freed blocks are filled with words that are not numbers.",
        &[Compute],
        "Checks::poison",
        poison,
    ),
    allocator(
        "checks.zeroed",
        "A block that is to be zero is zero under checks too.",
        &[Compute],
        "Checks::poison, Request::zeroed",
        zeroed,
    ),
    allocator(
        "checks.quarantine",
        "Freed memory is kept back while the quarantine has room, and reused when it has not.",
        &[Compute],
        "Checks::quarantine",
        quarantine,
    ),
    allocator(
        "checks.shortage",
        "A request that would run short gets what the quarantine keeps.",
        &[Compute],
        "Checks::quarantine",
        shortage,
    ),
    allocator(
        "checks.moves",
        "Margins go with a block that is moved.",
        &[Compute],
        "Checks::margin, Allocator::compact",
        moves,
    ),
    allocator(
        "checks.held",
        "A block freed while it is held is compared when the last guard is gone.",
        &[Compute],
        "Checks::margin, Pin",
        held,
    ),
    allocator(
        "checks.told",
        "A finding is told to the hook and recorded as an event.",
        &[Compute],
        "Allocator::on_damage, EventKind::Damage",
        told,
    ),
    allocator(
        "checks.handles",
        "Handles of blocks that are being compared are gone, and blocks do not grow over margins.",
        &[Compute],
        "Checks",
        handles,
    ),
    allocator(
        "checks.pass-through",
        "In guard mode every block has a memory object of its own, which goes with it.",
        &[],
        "Config::guard",
        pass_through,
    ),
];

const MIB: u64 = 1 << 20;
const MARK: u32 = 0x0BAD_0BAD;

fn open(rig: &Rig, checks: Checks) -> Result<Subject, Stop> {
    rig.alloc_with(|config| config.checks = checks)
}

fn place(alloc: &Subject, block: Handle) -> Result<(Place, u64), Stop> {
    let pin = alloc.pin(block)?;
    Ok((pin.at().place, pin.at().bytes))
}

/// Writes words where the allocator's user may not, and waits for that.
fn scribble(rig: &Rig, stream: StreamId, at: Place, words: u64) -> Outcome {
    rig.wait(rig.device().fill(stream, at, words * 4, MARK)?)
}

/// Everything that is found once all that was freed is compared.
fn all_found(alloc: &Subject) -> Result<Vec<Damage>, Stop> {
    alloc.release_cached()?;
    Ok(alloc.damage())
}

fn only(mut found: Vec<Damage>) -> Result<Damage, Stop> {
    equal!(found.len(), 1, "findings");
    found.pop().ok_or_else(|| Stop::failed("no finding"))
}

fn named(alloc: &Subject, name: &str, stream: StreamId) -> Result<Handle, Stop> {
    Ok(alloc.alloc(&Request::new(5000, stream).name(name))?.handle)
}

fn past_end(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = open(rig, Checks::NONE.margin(256))?;
    let names = ["left", "middle", "right"];
    let [left, block, right] = names.map(|name| named(&alloc, name, stream));
    let (left, block, right) = (left?, block?, right?);
    let (at, bytes) = place(&alloc, block)?;
    equal!(bytes, 5000, "bytes that the user sees");
    scribble(rig, stream, Place { offset: at.offset + bytes, ..at }, 3)?;
    let line = line!() + 1;
    alloc.free(block)?;
    let damage = only(all_found(&alloc)?)?;
    equal!((damage.kind, damage.words), (DamageKind::PastEnd, 3), "what was found");
    equal!((damage.block.handle, damage.block.name.as_str()), (block, "middle"), "the block");
    let freed = damage.freed.unwrap_or_default();
    ensure!(freed.ends_with(&format!("checks.rs:{line}")), "freed at {freed}, not line {line}");
    ensure!(damage.block.site.contains("checks.rs:"), "made at {}", damage.block.site);
    let neighbour = damage.neighbour.ok_or_else(|| Stop::failed("no neighbour is named"))?;
    ensure!([left, right].contains(&neighbour.handle), "the neighbour is {neighbour}");
    ensure!(neighbour.site.contains("checks.rs:"), "the neighbour was made at {}", neighbour.site);
    for block in [left, right] {
        alloc.free(block)?;
    }
    equal!(all_found(&alloc)?.len(), 0, "findings about blocks that nobody wrote past");
    alloc.sound()
}

fn before_start(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = open(rig, Checks::NONE.margin(64))?;
    let align = rig.caps().plain_base_align.get().min(4096);
    let block = alloc.alloc(&Request::new(1 << 16, stream).align(align))?.handle;
    let (at, _) = place(&alloc, block)?;
    ensure!(at.offset.is_multiple_of(align), "a block of alignment {align} is at {}", at.offset);
    scribble(rig, stream, Place { offset: at.offset - 4, ..at }, 1)?;
    alloc.free(block)?;
    let damage = only(all_found(&alloc)?)?;
    equal!((damage.kind, damage.words), (DamageKind::BeforeStart, 1), "what was found");
    equal!(damage.block.handle, block, "the block");
    alloc.sound()
}

/// Waits until the first word of a freed block is no longer the mark.
fn wait_for_fill(rig: &Rig, stream: StreamId, at: Place) -> Outcome {
    let end = Instant::now() + rig.patience();
    while rig.words(stream, at, 1)? == [MARK] {
        if Instant::now() > end {
            return Err(Stop::failed("a freed block is not filled"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn after_free(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = open(rig, Checks::NONE.quarantine(16 * MIB))?;
    let other = named(&alloc, "other", stream)?;
    let block = named(&alloc, "victim", stream)?;
    let (at, _) = place(&alloc, block)?;
    scribble(rig, stream, at, 1)?;
    let line = line!() + 1;
    alloc.free(block)?;
    wait_for_fill(rig, stream, at)?;
    scribble(rig, stream, Place { offset: at.offset + 400, ..at }, 2)?;
    let damage = only(all_found(&alloc)?)?;
    equal!((damage.kind, damage.words), (DamageKind::AfterFree, 2), "what was found");
    equal!((damage.block.handle, damage.block.name.as_str()), (block, "victim"), "the block");
    let freed = damage.freed.unwrap_or_default();
    ensure!(freed.ends_with(&format!("checks.rs:{line}")), "freed at {freed}, not line {line}");
    equal!(damage.neighbour.map(|it| it.handle), Some(other), "the neighbour");
    alloc.sound()
}

fn live(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = open(rig, Checks::NONE.margin(256))?;
    let block = named(&alloc, "live", stream)?;
    let patience = rig.patience();
    equal!(alloc.check_blocks(patience)?, [], "findings before anything was written");
    let (at, bytes) = place(&alloc, block)?;
    scribble(rig, stream, Place { offset: at.offset + bytes + 8, ..at }, 1)?;
    let damage = only(alloc.check_blocks(patience)?)?;
    equal!((damage.kind, damage.block.handle), (DamageKind::PastEnd, block), "what was found");
    equal!(damage.freed, None, "where a live block was freed");
    alloc.free(block)?;
    equal!(all_found(&alloc)?, [], "findings told before");
    alloc.sound()
}

fn clean(rig: &Rig) -> Outcome {
    let alloc = open(rig, Checks::ALL.quarantine(4 * MIB))?;
    let [s0, s1] = rig.streams()?;
    let mut random = rig.random();
    let mut live: Vec<(Handle, u64)> = Vec::new();
    for round in 1..120 {
        if live.len() > 12 {
            let (block, seed) = live.swap_remove(random.below(12) as usize);
            equal!(spoilt(rig, &alloc, s0, block, seed)?, 0, "spoilt words under checks");
            alloc.free(block)?;
        }
        let stream = if round % 3 == 0 { s1 } else { s0 };
        let block = alloc.get(random.size(1, MIB).next_multiple_of(4), stream)?;
        paint(rig, &alloc, stream, block, round)?;
        live.push((block, round));
    }
    equal!(alloc.check_blocks(rig.patience())?, [], "findings while blocks are live");
    for (block, seed) in live {
        equal!(spoilt(rig, &alloc, s0, block, seed)?, 0, "spoilt words in the end");
        alloc.free(block)?;
    }
    alloc.sound()?;
    equal!(all_found(&alloc)?, [], "findings in the end");
    equal!(alloc.stats().total.blocks.current, 0, "blocks in the end");
    equal!(rig.probe().alive().memory_objects(), 0, "memory objects in the end");
    alloc.sound()
}

fn poison(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = open(rig, Checks::NONE.poison(true))?;
    let keeps = named(&alloc, "keeps the segment", stream)?;
    let block = named(&alloc, "poisoned", stream)?;
    let (at, bytes) = place(&alloc, block)?;
    let words = rig.words(stream, at, bytes / 4)?;
    ensure!(words.iter().all(|&word| word == 0xFFF7_C0DE), "a new block begins {:x?}", &words[..4]);
    ensure!(f32::from_bits(words[0]).is_nan(), "what a new block is filled with is a number");
    scribble(rig, stream, at, 1)?;
    alloc.free(block)?;
    wait_for_fill(rig, stream, at)?;
    let words = rig.words(stream, at, bytes / 4)?;
    ensure!(
        words.iter().all(|&word| word == 0xFFFD_DEAD),
        "a freed block begins {:x?}",
        &words[..4]
    );
    alloc.free(keeps)?;
    equal!(all_found(&alloc)?, [], "findings");
    alloc.sound()
}

fn zeroed(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = open(rig, Checks::ALL)?;
    let block = alloc.alloc(&Request::new(5000, stream).zeroed(true))?.handle;
    let (at, bytes) = place(&alloc, block)?;
    let words = rig.words(stream, at, bytes / 4)?;
    ensure!(words.iter().all(|&word| word == 0), "a zeroed block begins {:x?}", &words[..4]);
    alloc.free(block)?;
    equal!(all_found(&alloc)?, [], "findings");
    alloc.sound()
}

/// Takes in what is done, as a program does that asks for memory again and again.
fn idle(rig: &Rig, alloc: &Subject, stream: StreamId) -> Outcome {
    rig.wait(rig.device().mark(stream)?)?;
    std::thread::sleep(Duration::from_millis(5));
    alloc.maintain()?;
    settled(rig, alloc)
}

fn quarantine(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = open(rig, Checks::NONE.quarantine(MIB))?;
    let block = alloc.get(MIB / 2, stream)?;
    let (first, _) = place(&alloc, block)?;
    alloc.free(block)?;
    idle(rig, &alloc, stream)?;
    let second = alloc.get(MIB / 2, stream)?;
    ensure!(place(&alloc, second)?.0 != first, "freed memory was handed out from the quarantine");
    equal!(alloc.stats().total.blocks.current, 2, "blocks with the one kept back");
    alloc.free(second)?;
    let more = alloc.get(MIB, stream)?;
    alloc.free(more)?;
    let end = Instant::now() + rig.patience();
    while alloc.stats().total.blocks.current > 1 && Instant::now() < end {
        idle(rig, &alloc, stream)?;
    }
    equal!(alloc.stats().total.blocks.current, 1, "blocks that the quarantine has room for");
    alloc.sound()
}

fn shortage(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc_with(|config| {
        config.checks = Checks::ALL;
        config.limits = vec![Limit::Bytes(8 * MIB)];
    })?;
    for _ in 0..3 {
        let block = alloc.get(5 * MIB, stream)?;
        alloc.free(block)?;
    }
    let reserved = alloc.stats().reserved.peak;
    ensure!(reserved <= 8 * MIB, "{reserved} bytes are reserved above the limit");
    equal!(all_found(&alloc)?, [], "findings");
    alloc.sound()
}

/// A segment whose first half is free and whose second half is one block.
fn above_a_hole(rig: &Rig, stream: StreamId) -> Result<(Subject, Handle), Stop> {
    let alloc = rig.alloc_with(|config: &mut Config| {
        config.checks = Checks::NONE.margin(256);
        config.paging = false;
        config.small_max = 0;
        config.growth = Growth::Proportional { min_bytes: 8 * MIB, max_bytes: 8 * MIB };
        config.limits = vec![Limit::Bytes(8 * MIB)];
    })?;
    let [gap, block] = [alloc.get(3 * MIB, stream)?, alloc.get(MIB, stream)?];
    paint(rig, &alloc, stream, block, 7)?;
    alloc.free(gap)?;
    rig.wait(rig.device().mark(stream)?)?;
    alloc.check_blocks(rig.patience())?;
    Ok((alloc, block))
}

fn moves(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let (alloc, block) = above_a_hole(rig, stream)?;
    let (before, _) = place(&alloc, block)?;
    alloc.compact(Goal::Contiguous { bytes: 6 * MIB, align: 1 }, Limits::NONE)?;
    let (after, bytes) = place(&alloc, block)?;
    ensure!(after != before, "the block was not moved");
    equal!(spoilt(rig, &alloc, stream, block, 7)?, 0, "spoilt words after the move");
    equal!(alloc.check_blocks(rig.patience())?, [], "findings after the move");
    scribble(rig, stream, Place { offset: after.offset + bytes, ..after }, 1)?;
    alloc.free(block)?;
    equal!(only(all_found(&alloc)?)?.block.handle, block, "the block that was written past");
    alloc.sound()
}

fn held(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = open(rig, Checks::NONE.margin(256))?;
    let block = alloc.get(5000, stream)?;
    let pin = alloc.pin(block)?;
    alloc.free(block)?;
    let at = pin.at();
    scribble(rig, stream, Place { offset: at.place.offset + at.bytes, ..at.place }, 1)?;
    equal!(alloc.damage(), [], "findings while the block is held");
    drop(pin);
    equal!(only(all_found(&alloc)?)?.block.handle, block, "the block that was written past");
    equal!(alloc.stats().total.blocks.current, 0, "blocks after the last guard");
    alloc.sound()
}

fn told(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = open(rig, Checks::NONE.margin(256))?;
    let (tell, heard) = std::sync::mpsc::channel();
    alloc.on_damage(move |damage| drop(tell.send(damage.to_string())));
    let block = named(&alloc, "scratch", stream)?;
    let (at, bytes) = place(&alloc, block)?;
    scribble(rig, stream, Place { offset: at.offset + bytes, ..at }, 1)?;
    alloc.free(block)?;
    alloc.release_cached()?;
    let text = heard.try_recv().unwrap_or_default();
    ensure!(
        text.contains("past the end of") && text.contains("scratch"),
        "the hook heard `{text}`"
    );
    let mut events: Vec<Event> = Vec::new();
    while alloc.drain_events(&mut events, 4096).more {}
    let found: Vec<_> = events.iter().filter(|event| event.is(EventKind::Damage)).collect();
    equal!(found.len(), 1, "events of damage");
    equal!((found[0].handle, found[0].a), (block.number(), 1), "the event's block and words");
    ensure!(alloc.site_text(found[0].site()).contains("checks.rs:"), "the event's site");
    alloc.sound()
}

fn handles(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = open(rig, Checks::ALL)?;
    let block = alloc.get(5000, stream)?;
    fails(&alloc.grow(block, 5004).map(drop), &Error::NoRoomToGrow, "growing over a margin")?;
    alloc.grow(block, 4000)?;
    alloc.free(block)?;
    fails(&alloc.free(block), &Error::DoubleFree, "a second free")?;
    fails(&alloc.pin(block).map(drop), &Error::UseAfterFree, "a guard of a freed block")?;
    let nothing = alloc.alloc(&Request::new(0, stream)).map(drop);
    fails(&nothing, &Error::ZeroSize, "a request for nothing")?;
    equal!(all_found(&alloc)?, [], "findings");
    fails(&alloc.free(block), &Error::DoubleFree, "a free after the check")?;
    alloc.sound()
}

fn pass_through(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc_with(|config| config.guard = true)?;
    let blocks: Vec<Handle> =
        (1..=5).map(|n| alloc.get(n * 1000, stream)).collect::<Result<_, _>>()?;
    equal!(rig.probe().alive().memory_objects(), 5, "memory objects of five blocks");
    for block in blocks {
        alloc.free(block)?;
    }
    rig.wait(rig.device().mark(stream)?)?;
    let last = alloc.get(1000, stream)?;
    equal!(rig.probe().alive().memory_objects(), 1, "memory objects of one block");
    alloc.free(last)?;
    alloc.sound()
}
