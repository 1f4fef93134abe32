//! Requests that can not be served, and handles that lie.

use std::time::Duration;

use terrane_core::device::{DeviceError, Feature, HeapId, StreamId};
use terrane_core::{Error, Limit, MemoryKind, Request, Slice};

use super::allocator;
use crate::clause::{Clause, Need, Outcome, Stop, ensure, equal, fails};
use crate::rig::Rig;

use Need::HostVisible;

pub(super) const CLAUSES: &[Clause] = &[
    allocator(
        "errors.requests",
        "No bytes, a crooked alignment and too many bytes are each told apart.",
        &[],
        "Error::ZeroSize, BadAlign, OverDeviceLimit",
        requests,
    ),
    allocator(
        "errors.double-free",
        "A block is freed once; the second time is an error and changes nothing.",
        &[],
        "Error::DoubleFree",
        double_free,
    ),
    allocator(
        "errors.use-after-free",
        "A freed block's handle resolves to nothing.",
        &[],
        "Error::UseAfterFree",
        use_after_free,
    ),
    allocator(
        "errors.stale",
        "A handle never names the block that took its slot.",
        &[],
        "Error::StaleHandle",
        stale,
    ),
    allocator(
        "errors.foreign",
        "A handle of another allocator is told, and touches nothing.",
        &[],
        "Error::ForeignHandle",
        foreign,
    ),
    allocator(
        "errors.range",
        "A range outside its block is refused.",
        &[],
        "Error::OutOfRange",
        range,
    ),
    allocator(
        "errors.stream",
        "A stream that never was is told.",
        &[],
        "DeviceError::UnknownStream",
        stream,
    ),
    allocator(
        "errors.held",
        "A block seen by the host can not be used by work, nor the other way round.",
        &[HostVisible],
        "Error::Held",
        held,
    ),
    allocator(
        "errors.views",
        "A view object is there exactly where the device has them, and lives with its block.",
        &[],
        "Allocator::view",
        views,
    ),
    allocator(
        "limits.user",
        "A limit of the user's holds, and the error says what is used.",
        &[],
        "Error::OverUserLimit",
        user,
    ),
    allocator(
        "limits.change",
        "A limit can be raised and lowered at any time.",
        &[],
        "Allocator::set_limit",
        change,
    ),
    allocator(
        "limits.tag",
        "A tag's limit holds for its blocks and no others.",
        &[],
        "Allocator::set_tag_limit",
        tag,
    ),
    allocator(
        "limits.charge",
        "Memory of others counts while it is charged.",
        &[],
        "Allocator::charge",
        charge,
    ),
    allocator(
        "limits.preallocate",
        "Memory taken beforehand serves requests without new memory.",
        &[],
        "Config::preallocate",
        preallocate,
    ),
];

const MIB: u64 = 1 << 20;

fn requests(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    let ask = |request: &Request<'_>| alloc.alloc(request).map(drop);
    fails(&ask(&Request::new(0, stream)), &Error::ZeroSize, "no bytes")?;
    for align in [0, 3, 48, u64::MAX] {
        let request = Request::new(1, stream).align(align);
        fails(&ask(&request), &Error::BadAlign { align }, "a crooked alignment")?;
    }
    let limit = longest(rig, alloc.config().paging)?;
    for asked in [limit + 1, u64::MAX] {
        let expected = Error::OverDeviceLimit { asked, limit };
        fails(&ask(&Request::new(asked, stream)), &expected, "too many bytes")?;
    }
    ensure!(!Error::ZeroSize.is_transient(), "asking for nothing again can not help");
    equal!(alloc.stats().total.blocks.allocated, 0, "blocks ever made");
    alloc.sound()
}

/// The longest block: a plain segment's length, or what pages of the heap can make of a space.
fn longest(rig: &Rig, paging: bool) -> Result<u64, Stop> {
    let caps = rig.caps();
    let id = rig.class(MemoryKind::Device)?;
    let heap = caps.class(id).and_then(|class| caps.heaps.get(usize::from(class.heap.0)));
    let pages = caps.paging.filter(|p| paging && p.classes >> id.0 & 1 == 1);
    let paged = pages.zip(heap).map_or(0, |(p, heap)| p.max_space_bytes.min(heap.total));
    Ok(paged.max(caps.max_plain_bytes))
}

fn double_free(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    let (block, other) = (alloc.get(5000, stream)?, alloc.get(5000, stream)?);
    alloc.free(block)?;
    let before = alloc.stats();
    fails(&alloc.free(block), &Error::DoubleFree, "a second free")?;
    equal!(alloc.stats(), before, "the numbers after a refused free");
    alloc.free(other)?;
    alloc.sound()
}

fn use_after_free(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    let block = alloc.get(5000, stream)?;
    alloc.free(block)?;
    let gone = Error::UseAfterFree;
    fails(&alloc.pin(block).map(drop), &gone, "a pin")?;
    fails(&alloc.info(block).map(drop), &gone, "a question")?;
    fails(&alloc.write(stream, block, 0, &[1]).map(drop), &gone, "a write")?;
    fails(&alloc.read(stream, Slice::read(block)).map(drop), &gone, "a read")?;
    fails(&alloc.grow(block, 6000).map(drop), &gone, "growing")?;
    fails(&alloc.record_use(block, stream), &gone, "a recorded use")?;
    alloc.sound()
}

fn stale(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    let old = alloc.get(5000, stream)?;
    alloc.free(old)?;
    let mut fresh = Vec::new();
    for _ in 0..3 {
        fresh.push(alloc.get(5000, stream)?);
    }
    ensure!(!fresh.contains(&old), "a handle was given out twice");
    let answer = alloc.free(old);
    let told = matches!(answer, Err(Error::StaleHandle | Error::DoubleFree));
    ensure!(told, "the free of a stale handle: {answer:?}");
    for handle in fresh {
        equal!(alloc.info(handle)?.requested, 5000, "a block beside a stale handle");
    }
    alloc.sound()
}

fn foreign(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let (alloc, other) = (rig.alloc()?, rig.alloc()?);
    let block = alloc.get(5000, stream)?;
    other.get(5000, stream)?;
    fails(&other.free(block), &Error::ForeignHandle, "a free on another allocator")?;
    fails(&other.pin(block).map(drop), &Error::ForeignHandle, "a pin on another allocator")?;
    equal!(other.stats().total.blocks.current, 1, "blocks of the other allocator");
    alloc.free(block)?;
    alloc.sound()
}

fn range(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    let block = alloc.get(4096, stream)?;
    let target = alloc.get(8192, stream)?;
    for (offset, bytes) in [(4096, 4), (0, 4100), (u64::MAX, 4), (4, u64::MAX - 1)] {
        let slice = Slice::read(block).part(offset, bytes);
        let answer = alloc.copy(stream, slice, Slice::write(target)).map(drop);
        let told = matches!(answer, Err(Error::OutOfRange { block: 4096, .. }));
        ensure!(told, "{bytes} bytes at {offset} of 4096: {answer:?}");
        equal!(alloc.info(block)?.holds, 0, "holds after a refusal");
    }
    alloc.sound()
}

fn stream(rig: &Rig) -> Outcome {
    let own = rig.stream()?;
    let alloc = rig.alloc()?;
    let block = alloc.get(4096, own)?;
    let nobody = StreamId(4_000_000);
    let unknown = Error::Device(DeviceError::UnknownStream);
    fails(&alloc.record_use(block, nobody), &unknown, "a use on no stream")?;
    fails(&alloc.free_on(block, nobody), &unknown, "a free on no stream")?;
    equal!(alloc.info(block)?.requested, 4096, "the block after a refused free");
    alloc.sound()
}

fn held(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    let class = rig.class_visible(true)?;
    let kind = rig.caps().classes[usize::from(class.0)].kind;
    let request = Request::new(4096, stream).kind(kind).classes(1 << class.0);
    let block = alloc.alloc(&request)?.handle;
    let mut mapped = alloc.map(block, Duration::from_secs(20))?;
    fails(&alloc.write(stream, block, 0, &[1]).map(drop), &Error::Held, "work on a mapped block")?;
    fails(&alloc.map(block, Duration::ZERO).map(drop), &Error::Held, "a second mapping")?;
    mapped[..5].copy_from_slice(b"hello");
    drop(mapped);
    let point = alloc.write(stream, block, 5, b" world")?;
    let seen = alloc.map(block, Duration::from_secs(20))?;
    ensure!(rig.is_reached(point)?, "the mapping did not wait for the last use");
    ensure!(&seen[..11] == b"hello world", "the host sees {:?}", &seen[..11]);
    drop(seen);
    let mut submission = alloc.submit(stream);
    submission.resolve(block)?;
    let answer = alloc.map(block, Duration::ZERO).map(drop);
    fails(&answer, &Error::Held, "a mapping of a block in an open submission")?;
    submission.close()?;
    alloc.sound()
}

fn views(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    let block = alloc.get(64 << 10, stream)?;
    if !rig.caps().views {
        let none = Error::Device(DeviceError::Unsupported(Feature::Views));
        return fails(&alloc.view(block).map(drop), &none, "a view object");
    }
    let view = alloc.view(block)?;
    equal!(alloc.view(block)?, view, "the view object, asked again");
    equal!(alloc.pin(block)?.at().view, Some(view), "the view object of a held block");
    equal!(rig.probe().alive().views, 1, "view objects alive");
    alloc.free(block)?;
    rig.wait(rig.device().mark(stream)?)?;
    alloc.trim(0)?;
    equal!(rig.probe().alive().views, 0, "view objects alive after the free");
    alloc.sound()
}

fn user(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let limit = 16 * MIB;
    let alloc = rig.alloc_with(|config| config.limits = vec![Limit::Bytes(limit)])?;
    let block = alloc.get(10 * MIB, stream)?;
    let answer = alloc.alloc(&Request::new(10 * MIB, stream)).map(drop);
    let told = matches!(answer, Err(Error::OverUserLimit { asked, limit: told, .. })
        if asked == 10 * MIB && told == limit);
    ensure!(told, "a request over the limit: {answer:?}");
    ensure!(alloc.stats().reserved.current <= limit, "more is reserved than the limit allows");
    equal!(alloc.stats().out_of_memory, 1, "requests that failed");
    alloc.free(block)?;
    alloc.get(10 * MIB, stream)?;
    alloc.sound()
}

fn change(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc_with(|config| config.limits = vec![Limit::Bytes(4 * MIB)])?;
    ensure!(alloc.alloc(&Request::new(8 * MIB, stream)).is_err(), "the first limit is passed");
    alloc.set_limit(HeapId(0), 40 * MIB);
    equal!(alloc.limit(HeapId(0)), 40 * MIB, "the limit");
    let block = alloc.get(8 * MIB, stream)?;
    alloc.set_limit(HeapId(0), MIB);
    // More than what is held already can serve.
    ensure!(alloc.alloc(&Request::new(30 * MIB, stream)).is_err(), "the lowered limit is passed");
    equal!(alloc.budget_left(HeapId(0)), 0, "what is left of a lowered limit");
    alloc.free(block)?;
    alloc.sound()
}

fn tag(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc()?;
    let tag = alloc.tag("limited")?;
    alloc.set_tag_limit(tag, Some(MIB))?;
    let request = Request::new(700_000, stream).tag(tag);
    let first = alloc.alloc(&request)?;
    let answer = alloc.alloc(&request).map(drop);
    let used = first.bytes;
    let expected = Error::OverUserLimit { asked: used, used, limit: MIB };
    fails(&answer, &expected, "a request over the tag's limit")?;
    alloc.get(700_000, stream)?;
    alloc.set_tag_limit(tag, None)?;
    let _ = alloc.alloc(&request)?;
    alloc.sound()
}

fn charge(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc_with(|config| config.limits = vec![Limit::Bytes(16 * MIB)])?;
    let charge = alloc.charge(HeapId(0), 10 * MIB)?;
    equal!(alloc.stats().charged, 10 * MIB, "bytes charged");
    ensure!(alloc.alloc(&Request::new(8 * MIB, stream)).is_err(), "a charge does not count");
    ensure!(alloc.charge(HeapId(0), 10 * MIB).is_err(), "a charge over the limit is accepted");
    drop(charge);
    alloc.get(8 * MIB, stream)?;
    alloc.sound()
}

fn preallocate(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let alloc = rig.alloc_with(|config| {
        config.limits = vec![Limit::Bytes(64 * MIB)];
        config.preallocate = 0.5;
    })?;
    let taken = alloc.stats().reserved.current;
    ensure!((30 * MIB..=32 * MIB).contains(&taken), "{taken} bytes are taken beforehand");
    let request = Request::new(8 * MIB, stream).kind(MemoryKind::Device);
    for _ in 0..3 {
        let _ = alloc.alloc(&request)?;
    }
    equal!(alloc.stats().reserved.current, taken, "bytes reserved after some requests");
    let objects = alloc.stats().memory_objects.current;
    ensure!(objects >= 1, "{objects} memory objects hold it");
    alloc.sound()
}
