use super::PLACES;
use crate::device::sim::{Completion, Sim, SimDevice};
use crate::device::{Device, StreamSpec};
use crate::point::StreamId;
use crate::request::Tag;
use crate::stats::Stats;
use crate::{Allocator, Config, Error, Handle, Keep, Request};

const MIB: u64 = 1 << 20;

fn open(sim: Sim, keep: Keep) -> (SimDevice, Allocator, [StreamId; 2]) {
    let sim = sim.completion(Completion::ByHand).open();
    let streams = [(); 2].map(|()| sim.create_stream(StreamSpec::default()).unwrap());
    let mut config = Config::for_device(sim.caps());
    config.keep = keep;
    let alloc = Allocator::with_config(sim.shared(), config).unwrap();
    (sim, alloc, streams)
}

fn place(alloc: &Allocator, block: Handle) -> crate::device::Place {
    alloc.pin(block).unwrap().at().place
}

/// How many blocks are on the shelf.
fn shelved(alloc: &Allocator) -> u16 {
    alloc.inner.lock_shelved().shelf.len
}

#[test]
fn nested_sizes_get_their_places_back_and_nobody_sees_the_shelf() {
    for sim in [Sim::cuda(), Sim::slabs()] {
        let (_sim, alloc, [stream, other]) = open(sim, Keep::InOrder);
        let ask = |bytes| alloc.alloc(&Request::new(bytes, stream)).unwrap().handle;
        let warm = [ask(MIB), ask(MIB / 2)];
        for block in warm {
            alloc.free(block).unwrap();
        }
        let free = alloc.stats().free;
        let (a, b) = (ask(MIB), ask(MIB / 2));
        let places = [place(&alloc, a), place(&alloc, b)];
        alloc.free(b).unwrap();
        alloc.free(a).unwrap();
        assert_eq!(shelved(&alloc), 2);
        assert_eq!(alloc.free(a), Err(Error::DoubleFree));
        assert_eq!(alloc.pin(a).unwrap_err(), Error::UseAfterFree);
        let (a, b) = (ask(MIB), ask(MIB / 2));
        assert_eq!([place(&alloc, a), place(&alloc, b)], places);
        assert_eq!(shelved(&alloc), 0);
        alloc.free(b).unwrap();
        alloc.free(a).unwrap();
        assert_eq!(shelved(&alloc), 2);
        let stats = alloc.stats();
        assert_eq!((stats.free, stats.total.blocks.current, stats.pending), (free, 0, 0));
        assert_eq!(shelved(&alloc), 0, "whoever looks finds the index complete");
        alloc.check().unwrap();
        // What is done serves every stream, shelved or not.
        let c = ask(MIB);
        alloc.free(c).unwrap();
        let c = alloc.alloc(&Request::new(MIB, other)).unwrap();
        assert!(c.waits.is_empty());
        alloc.free(c.handle).unwrap();
    }
}

#[test]
fn a_shelved_block_behind_its_streams_work_waits_for_other_streams() {
    let (sim, alloc, [stream, other]) = open(Sim::cuda(), Keep::InOrder);
    let ask = |stream| alloc.alloc(&Request::new(MIB, stream)).unwrap();
    let warm = ask(stream).handle;
    alloc.free(warm).unwrap();
    let block = ask(stream).handle;
    let point = sim.fill(stream, place(&alloc, block), MIB, 7).unwrap();
    alloc.free_after(block, &crate::point::Points::one(point)).unwrap();
    assert_eq!(shelved(&alloc), 1);
    let active = alloc.stats().active.current;
    assert_eq!(active, MIB, "it is pending");
    let theirs = ask(other);
    assert!(theirs.waits.iter().all(|wait| wait == point));
    let block = ask(stream);
    assert!(block.waits.is_empty(), "later work of the same stream needs no wait");
    sim.complete_all();
    alloc.free(theirs.handle).unwrap();
    alloc.free(block.handle).unwrap();
    alloc.check().unwrap();
}

/// What came of a run of requests and frees.
#[derive(Debug, PartialEq)]
struct Outcome {
    places: Vec<crate::device::Place>,
    stats: Stats,
    most: u16,
}

/// Random requests and frees, mostly the last block first, on two streams, `works` with work on
/// some blocks. `looks` empties the shelf after each step.
fn run(seed: u64, keep: Keep, works: bool, looks: bool) -> Outcome {
    let (sim, alloc, streams) = open(Sim::cuda(), keep);
    let tags = [Tag::NONE, alloc.tag("layers").unwrap()];
    let mut seed = seed;
    let mut next = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % n
    };
    let (mut blocks, mut places, mut most) = (Vec::new(), Vec::new(), 0);
    for _ in 0..500 {
        if blocks.len() < 2 || next(2) == 0 {
            let stream = streams[usize::from(next(8) == 0)];
            let bytes = [MIB / 4, MIB / 2, MIB, 3 * MIB, 40 * MIB][next(5) as usize];
            let request = Request::new(bytes, stream).tag(tags[usize::from(next(4) == 0)]);
            let block = alloc.alloc(&request).unwrap();
            assert!(block.waits.iter().all(|point| point.stream != stream));
            places.push(place(&alloc, block.handle));
            blocks.push((block.handle, stream));
        } else {
            let last = blocks.len() - 1;
            let at = if next(6) == 0 { next(blocks.len() as u64) as usize } else { last };
            let (block, stream) = blocks.swap_remove(at);
            if works && next(3) == 0 {
                let point = sim.fill(stream, place(&alloc, block), MIB / 4, 7).unwrap();
                alloc.record_use_until(block, point).unwrap();
            }
            alloc.free(block).unwrap();
        }
        most = most.max(shelved(&alloc));
        if next(16) == 0 {
            sim.complete_all();
        }
        if looks {
            alloc.check().unwrap();
        }
    }
    sim.complete_all();
    alloc.check().unwrap();
    Outcome { places, stats: alloc.stats(), most }
}

#[test]
fn in_order_nothing_is_placed_or_counted_otherwise_than_without() {
    for seed in 0..4 {
        let with = run(seed, Keep::InOrder, false, false);
        assert!(with.most > 3, "the shelf was hardly used");
        for (keep, looks) in [(Keep::InOrder, true), (Keep::Nothing, false)] {
            let without = run(seed, keep, false, looks);
            let differs = (0..with.places.len()).find(|&at| with.places[at] != without.places[at]);
            assert_eq!(differs, None, "seed {seed}");
            assert_eq!(with.stats, without.stats, "seed {seed}");
        }
    }
}

#[test]
fn every_counter_of_blocks_is_as_without() {
    for (seed, keep) in [(0, Keep::BySize), (1, Keep::BySize), (2, Keep::InOrder)] {
        for works in [false, true] {
            let with = run(seed, keep, works, false);
            assert!(with.most > 3, "the shelf was hardly used");
            let (with, without) = (with.stats, run(seed, Keep::Nothing, works, false).stats);
            assert_eq!(with.total, without.total, "seed {seed}");
            assert_eq!(with.tags, without.tags, "seed {seed}");
            assert_eq!(with.size_classes, without.size_classes, "seed {seed}");
            assert_eq!(with.kinds.map(|kind| kind.usage), without.kinds.map(|kind| kind.usage));
        }
    }
}

#[test]
fn by_size_usual_sizes_come_back_in_any_order_and_serve_others_before_new_memory() {
    let (_sim, alloc, [stream, _]) = open(Sim::slabs(), Keep::BySize);
    let ask = |bytes| alloc.alloc(&Request::new(bytes, stream)).unwrap().handle;
    let sizes = [MIB / 8, MIB / 4, 3 * MIB, MIB / 2, 2 * MIB];
    for _ in 0..3 {
        for block in sizes.map(ask) {
            alloc.free(block).unwrap();
        }
    }
    let blocks = sizes.map(ask);
    let places = blocks.map(|block| place(&alloc, block));
    for at in [2, 0, 4, 1, 3] {
        alloc.free(blocks[at]).unwrap();
    }
    assert_eq!(usize::from(shelved(&alloc)), sizes.len());
    let mut again = [None; 5];
    for at in [1, 4, 3, 0, 2] {
        again[at] = Some(ask(sizes[at]));
        assert_eq!(place(&alloc, again[at].unwrap()), places[at]);
    }
    assert_eq!(shelved(&alloc), 0);
    for block in again.into_iter().flatten() {
        alloc.free(block).unwrap();
    }
    // What is kept makes room before the device is asked.
    let reserved = alloc.inner.lock_shelved().counters.reserved.current;
    let all: u64 = sizes.iter().sum();
    let free = reserved - all;
    let large = ask(free.max(all));
    alloc.free(large).unwrap();
    alloc.check().unwrap();
}

#[test]
fn a_tag_at_its_limit_is_refused_whatever_is_kept() {
    for keep in [Keep::InOrder, Keep::BySize] {
        let (_sim, alloc, [stream, _]) = open(Sim::slabs(), keep);
        let tag = alloc.tag("cache").unwrap();
        let request = Request::new(MIB, stream).tag(tag);
        for _ in 0..4 {
            let block = alloc.alloc(&request).unwrap().handle;
            alloc.free(block).unwrap();
        }
        alloc.set_tag_limit(tag, Some(MIB)).unwrap();
        let block = alloc.alloc(&request).unwrap().handle;
        let refused = Err(Error::OverUserLimit { asked: MIB, used: MIB, limit: MIB });
        assert_eq!(alloc.alloc(&request).map(|made| made.bytes), refused);
        alloc.free(block).unwrap();
        let block = alloc.alloc(&request).unwrap().handle;
        alloc.free(block).unwrap();
        alloc.set_tag_limit(tag, Some(MIB / 2)).unwrap();
        assert!(alloc.alloc(&request).is_err(), "over the limit by itself");
    }
}

#[test]
fn more_than_there_is_room_for_goes_back() {
    for keep in [Keep::InOrder, Keep::BySize] {
        let (_sim, alloc, [stream, _]) = open(Sim::slabs(), keep);
        let mut most = 0;
        for _ in 0..3 {
            let blocks: Vec<_> = (0..400)
                .map(|at| alloc.alloc(&Request::new(256 + at % 40 * 256, stream)).unwrap().handle)
                .collect();
            for block in blocks.into_iter().rev() {
                alloc.free(block).unwrap();
                most = most.max(shelved(&alloc));
            }
        }
        assert!((16..=PLACES).contains(&most), "{most}");
        let stats = alloc.stats();
        assert_eq!((stats.total.blocks.current, stats.total.blocks.allocated), (0, 1200));
        alloc.check().unwrap();
    }
}

#[test]
fn a_handle_whose_generations_are_used_up_is_not_kept() {
    for keep in [Keep::InOrder, Keep::BySize] {
        let sim = Sim::slabs().open();
        let stream = sim.create_stream(StreamSpec::default()).unwrap();
        let mut config = Config::for_device(sim.caps());
        (config.keep, config.first_generation) = (keep, u32::MAX - 3);
        let alloc = Allocator::with_config(sim.shared(), config).unwrap();
        let mut seen = Vec::new();
        for _ in 0..20 {
            let block = alloc.alloc(&Request::new(MIB, stream)).unwrap().handle;
            assert!(!seen.contains(&block), "{block:?} came twice");
            seen.push(block);
            alloc.free(block).unwrap();
        }
        alloc.check().unwrap();
    }
}
