//! Remap moves: what is mapped where, before, after, and when they are given up.

use super::tests::{Rig, point, request};
use super::*;

const MIB: u64 = 1 << 20;
const OPEN: Room = Room { before_stealing: u64::MAX, at_most: u64::MAX };

/// A block with free bytes beside it at both ends, and free pages elsewhere.
fn rig() -> (Rig, BlockId) {
    let mut rig = Rig::new(Policy::default());
    let sizes = [37 * MIB + 512, 67 * MIB + 1024, 35 * MIB + 256, 40 * MIB];
    let blocks: Vec<BlockId> =
        sizes.iter().map(|&bytes| rig.alloc(&request(bytes, 1), OPEN).unwrap().0).collect();
    for at in [0, 2, 3] {
        rig.free(blocks[at], &Points::one(point(1, 5)));
    }
    (rig, blocks[1])
}

fn reserved(rig: &mut Rig, block: BlockId) -> (Remap, Reservation) {
    let remap = rig.pages.find_remap(block, false, 0).expect("a remap move");
    let reservation = rig.pages.reserve(remap.plan().clone()).unwrap();
    rig.pages.check().unwrap();
    (remap, reservation)
}

#[test]
fn a_block_changes_over_with_its_own_pages_and_leaves_what_it_shared_free() {
    let (mut rig, block) = rig();
    let (from, bytes) = rig.pages.block(block).unwrap();
    let before = rig.pages.usage();
    let (remap, reservation) = reserved(&mut rig, block);
    assert!(remap.head + remap.tail < 20 * MIB, "{remap:?}");
    let inner: u64 = remap.maps().map(|(backing, _)| backing.bytes).sum();
    assert_eq!(inner + remap.head + remap.tail, bytes);
    let new = rig.pages.commit_remap(reservation, remap, 0, &Points::NONE);
    rig.pages.check().unwrap();
    assert_eq!(rig.pages.usage().reserved, before.reserved, "no page is made");
    let landed = rig.pages.hand_over(new.slot(), &Points::one(point(2, 9)), 0).unwrap();
    rig.pages.check().unwrap();
    assert_eq!(landed.iter().map(|it| it.backing.bytes).sum::<u64>(), inner);
    assert!(rig.pages.block(block).is_err(), "the old name is stale");
    let (to, len) = rig.pages.block(new).unwrap();
    assert_eq!((to % (2 * MIB), len), (from % (2 * MIB), bytes));
    assert_eq!(rig.pages.usage().live, before.live);
    // The old mappings stand until the copies of the ends are done.
    assert!(rig.pages.usage().stale >= landed.len());
    for stale in rig.pages.drop_stale(usize::MAX) {
        rig.pages.settle(point(2, 9));
        rig.pages.settle(point(1, 5));
        rig.pages.unmapped(&stale).unwrap();
        rig.pages.check().unwrap();
    }
    assert_eq!(rig.pages.usage().stale, 0, "no mapping is left");
    rig.free(new, &Points::NONE);
    assert_eq!(rig.pages.usage().live, 0);
}

#[test]
fn a_move_that_is_given_up_leaves_the_block_where_it_was() {
    let (mut rig, block) = rig();
    let at = rig.pages.block(block).unwrap();
    let before = rig.pages.usage();
    let (remap, reservation) = reserved(&mut rig, block);
    let new = rig.pages.commit_remap(reservation, remap, 0, &Points::NONE);
    rig.free(new, &Points::one(point(2, 3)));
    assert_eq!(rig.pages.block(block).unwrap(), at);
    let after = rig.pages.usage();
    assert_eq!((after.live, after.reserved), (before.live, before.reserved));
    assert_eq!(rig.pages.hand_over(new.slot(), &Points::NONE, 0), None);
    // It can be tried again, and the block freed as ever.
    let (remap, reservation) = reserved(&mut rig, block);
    rig.pages.rollback(reservation);
    rig.pages.check().unwrap();
    assert_eq!(remap.head + remap.tail + remap.maps().map(|it| it.0.bytes).sum::<u64>(), at.1);
    rig.free(block, &Points::NONE);
}

#[test]
fn without_free_pages_or_pages_of_its_own_nothing_is_found() {
    let mut rig = Rig::new(Policy::default());
    let (small, _) = rig.alloc(&request(3 * MIB, 1), OPEN).unwrap();
    let (large, _) = rig.alloc(&request(65 * MIB, 1), OPEN).unwrap();
    assert!(rig.pages.find_remap(small, false, 0).is_none() || rig.pages.usage().free_pages > 0);
    let found = rig.pages.find_remap(large, true, 0);
    assert!(found.is_none() || rig.pages.usage().free_pages > 0, "{found:?}");
    rig.free(small, &Points::NONE);
    assert_eq!(rig.pages.find_remap(small, false, 0), None);
}
