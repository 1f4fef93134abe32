//! What is taken down in slices is the space, as far as its large zone goes.

use super::ranges::{NONE, Range};
use super::tests::{Rig, point, request};
use super::*;

const MIB: u64 = 1 << 20;
const OPEN: Room = Room { before_stealing: u64::MAX, at_most: u64::MAX };
const PRICES: Prices = Prices {
    copy: crate::device::Line { fixed_ns: 5_000.0, ns_per_mib: 540.0 },
    map: crate::device::Line { fixed_ns: 34_000.0, ns_per_mib: 41.0 },
    unmap: crate::device::Line { fixed_ns: 20_000.0, ns_per_mib: 40.0 },
};

/// Short and long blocks, each with its number as its owner, of which every second is freed, some
/// behind work.
fn worn() -> (Rig, Vec<BlockId>) {
    let mut rig = Rig::new(Policy::default());
    let (mut random, mut blocks) = (5_u64, Vec::new());
    let mut next = |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % most
    };
    for owner in 0..80 {
        let bytes = if owner % 3 == 0 { 33 * MIB + next(40 * MIB) } else { 1 + next(5 * MIB) };
        let (block, _) = rig.alloc(&request(bytes / 256 * 256 + 256, 1), OPEN).unwrap();
        rig.pages.set_owner(block.slot(), owner);
        blocks.push(block);
    }
    let mut live = Vec::new();
    for (at, block) in blocks.into_iter().enumerate() {
        match at % 8 {
            1 | 3 | 4 => rig.free(block, &Points::NONE),
            6 => rig.free(block, &Points::one(point(1, at as u64))),
            _ => live.push(block),
        }
    }
    (rig, live)
}

/// Takes a space down, a few slots at a time; `between` changes it meanwhile.
fn taken_down(pages: &mut Pages, mut between: impl FnMut(&mut Pages)) -> Pages {
    let mut sketch = pages.sketch().unwrap();
    let mut from = 0;
    while from < pages.slots().0 {
        let slots = from..(from + 7).min(pages.slots().0);
        from = slots.end;
        sketch.take_in(7);
        sketch.add_ranges(pages, slots, |_, _| {});
        between(pages);
    }
    from = 0;
    while from < pages.slots().1 {
        let slots = from..(from + 7).min(pages.slots().1);
        from = slots.end;
        sketch.take_in(7);
        sketch.add_pages(pages, slots);
        between(pages);
    }
    sketch.build()
}

fn long(pages: &Pages) -> Vec<(u64, u64, State, u32, Points)> {
    let owner = |it: &Range| if it.state == State::Live { it.owner } else { NONE };
    let told = |it: &Range| (it.start, it.len, it.state, owner(it), it.points.clone());
    let mut all: Vec<_> = pages.long_ranges().map(|(_, range)| told(range)).collect();
    all.reverse();
    all
}

#[test]
fn what_is_taken_down_is_the_large_zone_and_all_free_pages() {
    let (mut rig, _) = worn();
    let made = taken_down(&mut rig.pages, |_| {});
    made.check().unwrap();
    assert_eq!(long(&made), long(&rig.pages));
    assert_eq!(made.usage().free_pages, rig.pages.usage().free_pages);
    let plan = |pages: &Pages| {
        pages.place_anew(64 * MIB, StreamId(1), 0, &PRICES, true, |_, _| Some(Align::ONE))
    };
    assert!(!plan(&made).is_empty());
    assert_eq!(plan(&made), plan(&rig.pages));
}

#[test]
fn a_space_that_changes_meanwhile_is_taken_down_without_a_byte_twice() {
    for seed in 0..6_u64 {
        let (mut rig, mut live) = worn();
        let mut random = seed;
        let (mut objects, mut calls) = (1_000_000, 0);
        let made = taken_down(&mut rig.pages, |pages| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if let Some(block) = live.pop().filter(|_| random >> 60 & 1 == 1) {
                pages.free(block, &Points::NONE, 0).unwrap();
            }
            calls += 1;
            if calls > 40 {
                return;
            }
            let bytes = (random >> 33) % (60 * MIB) + 256;
            let plan = pages.find(&request(bytes, 1), 0, OPEN).unwrap();
            let made: Vec<Backing> = plan
                .steps
                .iter()
                .filter_map(|step| match *step {
                    Step::Create { bytes, .. } => {
                        objects += 1;
                        let object = ObjectId(objects);
                        Some(Backing { object, object_bytes: bytes, offset: 0, bytes })
                    }
                    _ => None,
                })
                .collect();
            let reservation = pages.reserve(plan).unwrap();
            let block = reservation.block();
            pages.commit(reservation, &made, 0, &Points::NONE).unwrap();
            pages.set_owner(block.slot(), 1_000);
        });
        let mut end = 0;
        for (start, len, state, ..) in long(&made) {
            assert!(start >= end, "seed {seed}");
            end = start + len;
            let backed = |at: u64| made.store.page_at(at).is_some();
            let whole = (start..end).step_by(2 << 20).all(backed) && backed(end - 1);
            assert!(whole || !matches!(state, State::Free | State::Live), "seed {seed}");
        }
        // A plan can be made on it, whatever it is worth.
        made.place_anew(64 * MIB, StreamId(1), 0, &PRICES, true, |_, _| Some(Align::ONE));
    }
}
