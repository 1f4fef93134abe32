//! Paged segments, stolen pages and views, where the device can page.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a failed test panics

mod common;

use common::{Bench, at, bench};
use terrane_core::device::{
    CopyOp, Device, DeviceError, MapOp, MemoryId, MemoryKind, Paging, Place, Reserved, StreamId,
    UnmapOp,
};

struct Pager<'a> {
    paging: &'a dyn Paging,
    page: u64,
    space: Reserved,
    memory: MemoryId,
}

/// A space of 64 pages and a memory object of 32; `None` where the device can not page.
fn pager(device: &Bench) -> Option<Pager<'_>> {
    let Some(paging) = device.paging() else {
        println!("skipped: the device can not page");
        assert!(device.caps().paging.is_none());
        return None;
    };
    let caps = device.caps().paging.expect("caps say what paging can do");
    let class = device.class(MemoryKind::Device);
    let page = caps.granularity.max(64 << 10);
    let space = paging.reserve(class, 64 * page).expect("a space");
    let memory = paging.create(class, 32 * page, false).expect("a memory object");
    Some(Pager { paging, page, space, memory })
}

impl Pager<'_> {
    fn place(&self, page: u64) -> Place {
        at(self.space.space, page * self.page)
    }

    fn op(&self, at: u64, from: u64, pages: u64) -> MapOp {
        let memory_offset = from * self.page;
        MapOp { at: self.place(at), memory: self.memory, memory_offset, bytes: pages * self.page }
    }

    fn un(&self, at: u64, pages: u64) -> UnmapOp {
        UnmapOp { at: self.place(at), bytes: pages * self.page }
    }

    /// Each page's first word, as seen at places from `at` on.
    fn firsts(&self, device: &Bench, stream: StreamId, at: u64, pages: u64) -> Vec<u32> {
        (at..at + pages).map(|p| device.fetch_words(stream, self.place(p), 1)[0]).collect()
    }
}

#[test]
fn pages_mapped_in_any_order_hold_what_is_written_through_the_space() {
    let Some(device) = bench() else { return };
    let Some(pager) = pager(&device) else { return };
    let stream = device.stream();
    let ops: Vec<_> = (0..16).map(|i| pager.op(i, 15 - i, 1)).collect();
    let point = pager.paging.map(&ops, &[]).unwrap().expect("binds are ordered by points");
    device.wait_on_stream(stream, &[point]).unwrap();
    for i in 0..16_u32 {
        device.fill(stream, pager.place(i.into()), pager.page, i).unwrap();
    }
    assert_eq!(pager.firsts(&device, stream, 0, 16), (0..16).collect::<Vec<_>>());
    let address = pager.space.address;
    assert!(address.is_some() == device.caps().addresses);
}

#[test]
fn a_page_mapped_at_two_places_shows_the_same_bytes_and_outlives_its_old_place() {
    let Some(device) = bench() else { return };
    let Some(pager) = pager(&device) else { return };
    let (writer, reader) = (device.stream(), device.stream());
    let mut point = pager.paging.map(&[pager.op(0, 0, 8)], &[]).unwrap().unwrap();
    for round in 0..50_u32 {
        device.wait_on_stream(writer, &[point]).unwrap();
        let written = device.fill(writer, pager.place(0), 8 * pager.page, round).unwrap();
        let mapped = pager.paging.map(&[pager.op(32, 0, 8)], &[]).unwrap().unwrap();
        device.wait_on_stream(reader, &[written, mapped]).unwrap();
        let unmapped = pager.paging.unmap(&[pager.un(0, 8)], &[written]).unwrap().unwrap();
        device.wait_on_stream(reader, &[unmapped]).unwrap();
        assert_eq!(pager.firsts(&device, reader, 32, 8), [round; 8]);
        point = pager.paging.unmap(&[pager.un(32, 8)], &[]).unwrap().unwrap();
        point = pager.paging.map(&[pager.op(0, 0, 8)], &[point]).unwrap().unwrap();
    }
}

#[test]
fn a_batch_of_mappings_is_made_whole_or_not_at_all() {
    let Some(device) = bench() else { return };
    let Some(pager) = pager(&device) else { return };
    pager.paging.map(&[pager.op(0, 0, 1)], &[]).unwrap();
    let bad = [
        vec![pager.op(4, 4, 1), pager.op(0, 5, 1)],
        vec![pager.op(4, 4, 1), pager.op(5, 31, 2)],
        vec![pager.op(4, 4, 1), pager.op(63, 5, 2)],
        vec![pager.op(4, 4, 2), pager.op(5, 9, 1)],
        vec![pager.op(4, 4, 1), MapOp { memory: MemoryId(99), ..pager.op(5, 5, 1) }],
        vec![MapOp { bytes: pager.page - 1, ..pager.op(5, 5, 1) }],
    ];
    for ops in bad {
        let result = pager.paging.map(&ops, &[]);
        assert!(matches!(result, Err(DeviceError::InvalidCall(_))), "{result:?}");
    }
    pager.paging.map(&[pager.op(4, 4, 4)], &[]).expect("nothing was left mapped there");
    assert!(pager.paging.unmap(&[pager.un(4, 2)], &[]).is_err());
    assert!(pager.paging.release(pager.memory).is_err());
    assert!(pager.paging.unreserve(pager.space.space).is_err());
    let ops = [pager.un(0, 1), pager.un(4, 4)];
    pager.paging.unmap(&ops, &[]).unwrap();
    pager.paging.release(pager.memory).unwrap();
    pager.paging.unreserve(pager.space.space).unwrap();
    assert!(pager.paging.release(pager.memory).is_err());
}

#[test]
fn a_page_copied_and_bound_anew_keeps_its_bytes_and_the_address() {
    let Some(device) = bench() else { return };
    let Some(pager) = pager(&device) else { return };
    let stream = device.stream();
    let mapped = pager.paging.map(&[pager.op(0, 0, 1), pager.op(9, 9, 1)], &[]).unwrap().unwrap();
    device.wait_on_stream(stream, &[mapped]).unwrap();
    device.fill(stream, pager.place(0), pager.page, 0xABCD).unwrap();
    let op = CopyOp { from: pager.place(0), to: pager.place(9), bytes: pager.page };
    let copied = device.copy(stream, &[op]).unwrap();
    let ops = [pager.un(0, 1), pager.un(9, 1)];
    let unmapped = pager.paging.unmap(&ops, &[copied]).unwrap().unwrap();
    let moved = pager.paging.map(&[pager.op(0, 9, 1)], &[unmapped]).unwrap().unwrap();
    device.wait_on_stream(stream, &[moved]).unwrap();
    let words = device.fetch_words(stream, pager.place(0), pager.page / 4);
    assert!(words.iter().all(|word| *word == 0xABCD));
}

#[test]
fn address_space_is_bounded_by_the_device_and_comes_back() {
    let Some(device) = bench() else { return };
    let Some(pager) = pager(&device) else { return };
    let caps = device.caps().paging.unwrap();
    let class = device.class(MemoryKind::Device);
    let too_large = pager.paging.reserve(class, caps.max_space_bytes + caps.granularity);
    assert!(matches!(too_large, Err(DeviceError::TooLarge { .. })));
    if caps.max_space_bytes == caps.space_bytes {
        let refused = pager.paging.reserve(class, caps.max_space_bytes);
        assert!(matches!(refused, Err(DeviceError::OutOfAddressSpace { .. })), "{refused:?}");
        pager.paging.unreserve(pager.space.space).unwrap();
        pager.paging.reserve(class, caps.max_space_bytes).expect("all of it is free again");
    }
}

#[test]
fn a_view_shows_the_block_below_it_in_plain_and_paged_segments() {
    let Some(device) = bench() else { return };
    let plain = device.plain(MemoryKind::Device, 1 << 20);
    let align = device.caps().binding_align.get();
    let view = device.create_view(at(plain.space, align * 3), 4096).unwrap();
    assert_eq!(device.view_ready(view).unwrap(), None);
    assert!(device.create_view(at(plain.space, plain.bytes), 4).is_err());
    device.destroy_view(view).unwrap();
    assert!(device.destroy_view(view).is_err());

    let Some(pager) = pager(&device) else { return };
    let ops: Vec<_> = (0..8).map(|i| pager.op(i, 7 - i, 1)).collect();
    pager.paging.map(&ops, &[]).unwrap();
    let view = device.create_view(pager.place(2), 3 * pager.page).unwrap();
    let ready = device.view_ready(view).unwrap().expect("pages are bound");
    device.wait(ready);
    device.destroy_view(view).unwrap();
    assert!(device.create_view(pager.place(6), 3 * pager.page).is_err());
    assert!(device.create_view(at(pager.space.space, 256), pager.page).is_err());
}
