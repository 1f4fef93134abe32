//! Spaces that are mapped page by page.

use terrane_core::device::ClassId;
use terrane_core::device::{
    DeviceError, MapOp, MemoryId, PagingCaps, Place, Region, SpaceId, SyncPoint, UnmapOp,
};

use super::compute::reports;
use super::device;
use crate::clause::{Blame, Clause, Need, Outcome, Stop, ensure, equal, refused};
use crate::rig::{Rig, at};

use Blame::Backend;
use Need::{Busy, Compute, Paging, PagingInOrder};

pub(super) const CLAUSES: &[Clause] = &[
    device(
        "paging.caps",
        "The limits of paging make sense.",
        &[Paging],
        "PagingCaps",
        Backend,
        caps,
    ),
    device(
        "paging.reserve",
        "Reserved spaces do not overlap.",
        &[Paging],
        "Paging::reserve",
        Backend,
        reserve,
    ),
    device(
        "paging.too-large",
        "A space over the limit is refused.",
        &[Paging],
        "DeviceError::TooLarge",
        Backend,
        too_large,
    ),
    device(
        "paging.map",
        "Mapped pages keep what work writes to them.",
        &[Paging],
        "Paging::map",
        Backend,
        map,
    ),
    device(
        "paging.remap",
        "A page keeps its contents when it is mapped elsewhere.",
        &[Paging],
        "Paging::map, Paging::unmap",
        Backend,
        remap,
    ),
    device(
        "paging.offset",
        "A mapping shows the part of its memory object that was asked for.",
        &[Paging],
        "MapOp::memory_offset",
        Backend,
        offset,
    ),
    device(
        "paging.alias",
        "A page mapped at two places shows at one what ordered work wrote at the other.",
        &[Paging, Compute],
        "Paging",
        Blame::Driver,
        alias,
    ),
    device(
        "paging.all-or-none",
        "A list of mappings with a bad one maps nothing.",
        &[Paging],
        "Paging::map",
        Backend,
        all_or_none,
    ),
    device(
        "paging.unmap-exact",
        "Only whole mappings are unmapped.",
        &[Paging],
        "UnmapOp",
        Backend,
        unmap_exact,
    ),
    device(
        "paging.unmapped-again",
        "An unmapped place can be mapped again, with another page.",
        &[Paging],
        "Paging::unmap",
        Backend,
        unmapped_again,
    ),
    device(
        "paging.in-use",
        "A space with mappings and a mapped memory object can not be given back.",
        &[Paging],
        "Paging::unreserve, Paging::release",
        Backend,
        in_use,
    ),
    device(
        "paging.order",
        "A mapping takes its turn behind the points given with it.",
        &[PagingInOrder, Busy],
        "PagingCaps::stream_ordered",
        Backend,
        order,
    ),
];

/// A space and pages for it, all given back when dropped.
struct Pages<'a> {
    rig: &'a Rig,
    caps: PagingCaps,
    class: ClassId,
    space: SpaceId,
    page: u64,
    objects: Vec<MemoryId>,
    mapped: std::cell::RefCell<Vec<UnmapOp>>,
}

impl<'a> Pages<'a> {
    fn new(rig: &'a Rig, objects: usize) -> Result<Self, Stop> {
        let paging = rig.paging()?;
        let caps = rig.caps().paging.ok_or_else(|| Stop::failed("no capabilities of paging"))?;
        let class = ClassId(u8::try_from(caps.classes.trailing_zeros()).unwrap_or(u8::MAX));
        let page = caps.granularity.max(64 << 10);
        let space = paging.reserve(class, page * 16)?.space;
        let mut pages =
            Self { rig, caps, class, space, page, objects: Vec::new(), mapped: Vec::new().into() };
        for _ in 0..objects {
            pages.objects.push(paging.create(class, page, false)?);
        }
        Ok(pages)
    }

    fn place(&self, slot: u64) -> Place {
        at(self.space, slot * self.page)
    }

    fn op(&self, slot: u64, object: usize) -> MapOp {
        let memory = self.objects[object];
        MapOp { at: self.place(slot), memory, memory_offset: 0, bytes: self.page }
    }

    /// Maps, and has `stream` wait for it.
    fn map(&self, stream: terrane_core::device::StreamId, ops: &[MapOp]) -> Outcome {
        let point = self.rig.paging()?.map(ops, &[])?;
        let dropped = ops.iter().map(|op| UnmapOp { at: op.at, bytes: op.bytes });
        self.mapped.borrow_mut().extend(dropped);
        if let Some(point) = point {
            self.rig.device().wait_on_stream(stream, &[point])?;
        }
        Ok(())
    }

    fn unmap(&self, slot: u64, after: SyncPoint) -> Outcome {
        self.rig.wait(after)?;
        let op = UnmapOp { at: self.place(slot), bytes: self.page };
        if let Some(point) = self.rig.paging()?.unmap(&[op], &[after])? {
            self.rig.wait(point)?;
        }
        self.mapped.borrow_mut().retain(|mapped| *mapped != op);
        Ok(())
    }

    /// Waits for the stream and gives all back.
    fn done(self, stream: terrane_core::device::StreamId) -> Outcome {
        let paging = self.rig.paging()?;
        let last = self.rig.device().mark(stream)?;
        self.rig.wait(last)?;
        let mapped = self.mapped.borrow();
        if !mapped.is_empty()
            && let Some(point) = paging.unmap(&mapped, &[last])?
        {
            self.rig.wait(point)?;
        }
        for &memory in &self.objects {
            paging.release(memory)?;
        }
        Ok(paging.unreserve(self.space)?)
    }
}

fn caps(rig: &Rig) -> Outcome {
    let Some(paging) = rig.caps().paging else { return Ok(()) };
    ensure!(paging.granularity.is_power_of_two(), "a granularity of {}", paging.granularity);
    ensure!(paging.max_space_bytes >= paging.granularity, "a space of {}", paging.max_space_bytes);
    ensure!(paging.space_bytes >= paging.max_space_bytes, "{} bytes of space", paging.space_bytes);
    let known = (1_u64 << rig.caps().classes.len()) - 1;
    ensure!(paging.classes != 0, "no class can be paged");
    ensure!(u64::from(paging.classes) & !known == 0, "classes {:#b}", paging.classes);
    Ok(())
}

fn reserve(rig: &Rig) -> Outcome {
    let pages = Pages::new(rig, 0)?;
    let stream = rig.stream()?;
    let paging = rig.paging()?;
    let mut made = Vec::new();
    for _ in 0..4 {
        made.push(paging.reserve(pages.class, pages.page * 16)?);
    }
    let mut ids: Vec<SpaceId> = made.iter().map(|made| made.space).collect();
    ids.push(pages.space);
    let mut spans: Vec<u64> = made.iter().filter_map(|made| made.address).collect();
    spans.sort_unstable();
    let apart = spans.windows(2).all(|pair| pair[1] - pair[0] >= pages.page * 16);
    ids.sort_unstable();
    let distinct = ids.windows(2).all(|pair| pair[0] != pair[1]);
    for made in made {
        paging.unreserve(made.space)?;
    }
    pages.done(stream)?;
    ensure!(apart, "addresses overlap: {spans:x?}");
    ensure!(distinct, "a space was given twice: {ids:?}");
    Ok(())
}

fn too_large(rig: &Rig) -> Outcome {
    let Some(caps) = rig.caps().paging else { return Ok(()) };
    let class = ClassId(u8::try_from(caps.classes.trailing_zeros()).unwrap_or(u8::MAX));
    let Some(bytes) = caps.max_space_bytes.checked_add(caps.granularity) else { return Ok(()) };
    match rig.paging()?.reserve(class, bytes) {
        Err(DeviceError::TooLarge { .. } | DeviceError::OutOfAddressSpace { .. }) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(made) => {
            rig.paging()?.unreserve(made.space)?;
            Err(Stop::failed(format!("a space of {bytes} bytes was reserved")))
        }
    }
}

fn map(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let pages = Pages::new(rig, 4)?;
    pages.map(stream, &[pages.op(0, 0), pages.op(1, 1), pages.op(5, 2), pages.op(9, 3)])?;
    // Over the border of two pages, and alone.
    let last = pages.page - 16;
    rig.device().fill(stream, at(pages.space, last), 32, 0x1212_1212)?;
    rig.device().write(stream, pages.place(5), b"a page of its own")?;
    rig.device().fill(stream, pages.place(9), pages.page, 0x99)?;
    let words = rig.words(stream, at(pages.space, last), 8)?;
    let alone = rig.fetch(stream, pages.place(5), 17)?;
    let end = rig.words(stream, at(pages.space, 10 * pages.page - 4), 1)?;
    pages.done(stream)?;
    equal!(words, [0x1212_1212; 8], "words over a border");
    ensure!(alone == b"a page of its own", "a page alone: {alone:?}");
    equal!(end, [0x99], "the last word of a page");
    Ok(())
}

fn remap(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let pages = Pages::new(rig, 1)?;
    pages.map(stream, &[pages.op(0, 0)])?;
    let mut found = Vec::new();
    rig.device().fill(stream, pages.place(0), pages.page, 0xFEED)?;
    for slot in 1..4 {
        pages.unmap(slot - 1, rig.device().mark(stream)?)?;
        pages.map(stream, &[pages.op(slot, 0)])?;
        found.extend(rig.words(stream, at(pages.space, (slot + 1) * pages.page - 4), 1)?);
    }
    pages.done(stream)?;
    equal!(found, [0xFEED; 3], "the last word at three places");
    Ok(())
}

fn offset(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let pages = Pages::new(rig, 0)?;
    if pages.caps.whole_objects {
        pages.done(stream)?;
        return Err(Stop::Skipped("mappings cover whole memory objects".to_owned()));
    }
    let memory = rig.paging()?.create(pages.class, pages.page * 4, false)?;
    let op = |slot, part: u64| MapOp {
        at: pages.place(slot),
        memory,
        memory_offset: part * pages.page,
        bytes: pages.page,
    };
    pages.map(stream, &[op(0, 0), op(1, 1), op(2, 2), op(3, 3)])?;
    for slot in 0..4 {
        rig.device().fill(stream, pages.place(slot), pages.page, 100 + slot as u32)?;
    }
    for slot in 0..4 {
        pages.unmap(slot, rig.device().mark(stream)?)?;
    }
    pages.map(stream, &[op(8, 3), op(9, 1)])?;
    let found = [rig.words(stream, pages.place(8), 1)?, rig.words(stream, pages.place(9), 1)?];
    for slot in [8, 9] {
        pages.unmap(slot, rig.device().mark(stream)?)?;
    }
    rig.paging()?.release(memory)?;
    pages.done(stream)?;
    equal!(found, [vec![103], vec![101]], "parts of one memory object");
    Ok(())
}

fn alias(rig: &Rig) -> Outcome {
    let [writer, reader] = rig.streams()?;
    let pages = Pages::new(rig, 1)?;
    pages.map(writer, &[pages.op(0, 0), pages.op(7, 0)])?;
    let mut wrong = 0;
    for round in 0..40 {
        let (from, to) = if round % 2 == 0 { (0, 7) } else { (7, 0) };
        let written = Region { place: pages.place(from), bytes: pages.page, seed: round };
        let point = rig.compute()?.fill_pattern(writer, &[written])?;
        rig.device().wait_on_stream(reader, &[point])?;
        let read = Region { place: pages.place(to), ..written };
        wrong += reports(rig, reader, &[read])?[0];
    }
    pages.done(reader)?;
    equal!(wrong, 0, "words that differ between two places of one page");
    Ok(())
}

fn all_or_none(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let pages = Pages::new(rig, 3)?;
    pages.map(stream, &[pages.op(2, 0)])?;
    // The second place is taken.
    let answer = rig.paging()?.map(&[pages.op(1, 1), pages.op(2, 2)], &[]);
    let refused = refused(&answer, "a mapping over another");
    // The first must not be there: it can be mapped now.
    let again = pages.map(stream, &[pages.op(1, 1)]);
    pages.done(stream)?;
    refused.and(again)
}

fn unmap_exact(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let pages = Pages::new(rig, 2)?;
    pages.map(stream, &[pages.op(0, 0), pages.op(1, 1)])?;
    let paging = rig.paging()?;
    let unmap = |slot, bytes| paging.unmap(&[UnmapOp { at: pages.place(slot), bytes }], &[]);
    let outcome = refused(&unmap(4, pages.page), "an unmapping of nothing")
        .and(refused(&unmap(0, pages.page * 2), "an unmapping of two mappings as one"));
    pages.done(stream)?;
    outcome
}

fn unmapped_again(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let pages = Pages::new(rig, 2)?;
    pages.map(stream, &[pages.op(0, 0), pages.op(1, 1)])?;
    rig.device().fill(stream, pages.place(0), pages.page, 10)?;
    rig.device().fill(stream, pages.place(1), pages.page, 11)?;
    for slot in 0..2 {
        pages.unmap(slot, rig.device().mark(stream)?)?;
    }
    pages.map(stream, &[pages.op(0, 1), pages.op(1, 0)])?;
    let found = [rig.words(stream, pages.place(0), 1)?, rig.words(stream, pages.place(1), 1)?];
    pages.done(stream)?;
    equal!(found, [vec![11], vec![10]], "pages exchanged");
    Ok(())
}

fn in_use(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let pages = Pages::new(rig, 1)?;
    pages.map(stream, &[pages.op(0, 0)])?;
    let space = refused(&rig.paging()?.unreserve(pages.space), "giving back a space with mappings");
    let object = refused(&rig.paging()?.release(pages.objects[0]), "releasing a mapped object");
    pages.done(stream)?;
    space.and(object)
}

fn order(rig: &Rig) -> Outcome {
    let stream = rig.stream()?;
    let other = rig.stream()?;
    let pages = Pages::new(rig, 1)?;
    let busy = rig.busy(other, &[])?;
    let point = rig.paging()?.map(&[pages.op(0, 0)], &[busy.point])?;
    let point = point.ok_or_else(|| Stop::failed("a mapping in stream order has no point"))?;
    let early = rig.is_reached(point)?;
    busy.finish();
    rig.wait(point)?;
    pages.mapped.borrow_mut().push(UnmapOp { at: pages.place(0), bytes: pages.page });
    pages.done(stream)?;
    ensure!(!early, "{point:?} was reached before the point it comes after");
    Ok(())
}
