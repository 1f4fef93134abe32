//! Pausing and resuming, with the rules checked after every step.

use super::tests::{Rig, point, request};
use super::*;

const MIB: u64 = 1 << 20;
const OPEN: Room = Room { before_stealing: u64::MAX, at_most: u64::MAX };

/// Two blocks whose ends share a page with each other.
fn two() -> (Rig, BlockId, BlockId) {
    let mut rig = Rig::new(Policy::default());
    let (first, _) = rig.alloc(&request(9 * MIB, 0), OPEN).unwrap();
    let (second, _) = rig.alloc(&request(9 * MIB, 0), OPEN).unwrap();
    (rig, first, second)
}

fn paused(rig: &mut Rig, block: BlockId) -> Vec<Backing> {
    let pausing = rig.pages.pause(block.slot()).unwrap();
    rig.pages.check().unwrap();
    let gone = rig.pages.pause_done(pausing);
    rig.pages.check().unwrap();
    gone
}

#[test]
fn pages_of_its_own_go_and_shared_ones_stay() {
    let (mut rig, first, second) = two();
    let before = rig.pages.usage();
    let gone = paused(&mut rig, first);
    assert_eq!(gone.iter().map(|backing| backing.bytes).sum::<u64>(), 8 * MIB);
    assert_eq!(rig.pages.usage().reserved, before.reserved - 8 * MIB);
    assert_eq!((rig.pages.usage().live, rig.pages.usage().paused), (10 * MIB, 8 * MIB));
    rig.free(second, &Points::NONE);
    assert_eq!(rig.pages.pause(first.slot()).unwrap_err(), PagesError::WrongState);
}

#[test]
fn resumed_it_is_as_before_and_failures_leave_no_trace() {
    let (mut rig, first, _) = two();
    let live = rig.picture();
    let pausing = rig.pages.pause(first.slot()).unwrap();
    rig.pages.pause_failed(pausing);
    rig.pages.check().unwrap();
    assert_eq!(rig.picture(), live);
    paused(&mut rig, first);
    let asleep = rig.picture();
    let resuming = rig.pages.resume(first.slot()).unwrap();
    rig.pages.check().unwrap();
    rig.pages.resume_failed(resuming);
    rig.pages.check().unwrap();
    assert_eq!(rig.picture(), asleep);
    let resuming = rig.pages.resume(first.slot()).unwrap();
    assert_eq!(resuming.gaps.iter().map(|gap| gap.1).sum::<u64>(), 8 * MIB);
    let backings: Vec<_> = resuming
        .gaps
        .iter()
        .map(|&(at, bytes)| {
            let object = ObjectId(900 + at);
            (at, Backing { object, object_bytes: bytes, offset: 0, bytes })
        })
        .collect();
    rig.pages.resume_done(&resuming, &backings, &Points::one(point(7, 1)), 0);
    rig.pages.check().unwrap();
    assert_eq!(rig.pages.uses(first.slot()), &Points::one(point(7, 1)));
    assert_eq!((rig.pages.usage().live, rig.pages.usage().paused), (18 * MIB, 0));
}

#[test]
fn freed_while_paused_its_addresses_serve_others() {
    let (mut rig, first, second) = two();
    paused(&mut rig, first);
    rig.free(first, &Points::NONE);
    assert_eq!(rig.pages.usage().paused, 0);
    let (third, plan) = rig.alloc(&request(9 * MIB, 0), OPEN).unwrap();
    assert_eq!(plan.at, 0, "the hole that it left is filled");
    rig.free(second, &Points::NONE);
    rig.free(third, &Points::NONE);
    assert_eq!(rig.pages.usage().live, 0);
}
