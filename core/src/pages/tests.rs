//! Each rule of stealing, staleness, waits, rollback and giving back, by itself.

use super::*;

const MIB: u64 = 1 << 20;
const OPEN: Room = Room { before_stealing: u64::MAX, at_most: u64::MAX };
const SHUT: Room = Room { before_stealing: 0, at_most: 0 };

/// A space with the memory objects that a device would have made.
pub(super) struct Rig {
    pub pages: Pages,
    pub next_object: u64,
}

pub(super) fn point(stream: u32, value: u64) -> SyncPoint {
    SyncPoint { stream: StreamId(stream), value }
}

pub(super) fn request(bytes: u64, stream: u32) -> Request {
    Request { bytes, align: Align::ONE, stream: StreamId(stream), may_wait: true }
}

impl Rig {
    pub fn new(policy: Policy) -> Self {
        let granule = Align::new(2 * MIB).unwrap();
        Self { pages: Pages::new(granule, 1 << 40, policy).unwrap(), next_object: 0 }
    }

    pub fn backings(&mut self, plan: &Plan) -> Vec<Backing> {
        let mut made = Vec::new();
        for step in &plan.steps {
            if let Step::Create { bytes, .. } = *step {
                let object = ObjectId(self.next_object);
                self.next_object += 1;
                made.push(Backing { object, object_bytes: bytes, offset: 0, bytes });
            }
        }
        made
    }

    pub fn alloc(&mut self, request: &Request, room: Room) -> Result<(BlockId, Plan), PagesError> {
        let plan = self.pages.find(request, 0, room)?;
        let made = self.backings(&plan);
        let reservation = self.pages.reserve(plan.clone())?;
        self.pages.check().unwrap();
        let block = reservation.block();
        self.pages.commit(reservation, &made, 0, &Points::NONE).map_err(|(error, _)| error)?;
        self.pages.check().unwrap();
        Ok((block, plan))
    }

    pub fn free(&mut self, block: BlockId, points: &Points) {
        self.pages.free(block, points, 0).unwrap();
        self.pages.check().unwrap();
    }

    /// Everything that can be seen, in order of address.
    pub fn picture(&self) -> Vec<String> {
        let ranges = self.pages.ranges().map(|range| format!("{range:?}"));
        let mut pages: Vec<_> = self.pages.pages().map(|page| format!("{page:?}")).collect();
        pages.sort();
        let Usage { live, pending, reserved, free_pages, span, stale, .. } = self.pages.usage();
        let sums = format!("{live} {pending} {reserved} {free_pages} {span} {stale}");
        ranges.chain(pages).chain([sums]).collect()
    }
}

fn stole(plan: &Plan) -> bool {
    plan.steps.iter().any(|step| matches!(step, Step::Steal { .. }))
}

#[test]
fn a_rolled_back_plan_leaves_no_trace() {
    let mut rig = Rig::new(Policy::default());
    let (a, _) = rig.alloc(&request(40 * MIB + 5, 0), OPEN).unwrap();
    let (_b, _) = rig.alloc(&request(3 * MIB, 0), OPEN).unwrap();
    let (_c, _) = rig.alloc(&request(70 * MIB, 0), OPEN).unwrap();
    rig.free(a, &Points::one(point(0, 3)));
    let before = rig.picture();
    let mut seen_steal = false;
    for (bytes, room) in [(20 * MIB, OPEN), (90 * MIB, OPEN), (90 * MIB, SHUT), (45 * MIB, SHUT)] {
        let rest = Room { at_most: 90 * MIB, ..room };
        let plan = rig.pages.find(&request(bytes, 0), 0, rest).unwrap();
        seen_steal |= stole(&plan);
        let reservation = rig.pages.reserve(plan).unwrap();
        rig.pages.check().unwrap();
        rig.pages.rollback(reservation);
        rig.pages.check().unwrap();
        assert_eq!(rig.picture(), before);
    }
    assert!(seen_steal, "no plan stole: the test shows less than it says");
}

#[test]
fn the_old_range_of_a_stolen_page_is_neither_hole_nor_destination() {
    let mut rig = Rig::new(Policy { large: 16 * MIB, ..Policy::default() });
    let (a, first) = rig.alloc(&request(32 * MIB, 0), OPEN).unwrap();
    let (_wall, _) = rig.alloc(&request(16 * MIB, 0), OPEN).unwrap();
    rig.free(a, &Points::one(point(0, 7)));
    let (_b, plan) = rig.alloc(&request(48 * MIB, 0), Room { at_most: 16 * MIB, ..SHUT }).unwrap();
    assert!(stole(&plan));
    let stale = rig.pages.drop_stale(usize::MAX);
    assert!(!stale.is_empty());
    for mapping in &stale {
        assert_eq!(mapping.after, Points::one(point(0, 7)), "unmapping waits for the old use");
        assert_eq!(rig.pages.unmapped(mapping), Err(PagesError::WrongState));
    }
    let (_c, plan) = rig.alloc(&request(32 * MIB, 0), OPEN).unwrap();
    assert_ne!(plan.at, first.at, "a stale range was a destination");
    rig.pages.settle(point(0, 7));
    for mapping in &stale {
        rig.pages.unmapped(mapping).unwrap();
        assert!(rig.pages.unmapped(mapping).is_err(), "it is gone already");
    }
    rig.pages.check().unwrap();
    let (_d, plan) = rig.alloc(&request(32 * MIB, 0), OPEN).unwrap();
    assert_eq!(plan.at, first.at, "addresses are used again");
}

#[test]
fn nothing_is_stolen_past_the_cap_of_stale_mappings() {
    let mut rig = Rig::new(Policy { stale_max: 0, ..Policy::default() });
    let (a, _) = rig.alloc(&request(32 * MIB, 0), OPEN).unwrap();
    let (_wall, _) = rig.alloc(&request(16 * MIB, 0), OPEN).unwrap();
    rig.free(a, &Points::NONE);
    let refused = rig.pages.find(&request(48 * MIB, 0), 0, SHUT);
    assert!(matches!(refused, Err(PagesError::NoRoom { .. })), "{refused:?}");
    let made = rig.pages.find(&request(48 * MIB, 0), 0, OPEN).unwrap();
    assert!(!stole(&made));
}

#[test]
fn a_stolen_page_carries_the_points_of_every_range_that_covered_it() {
    let mut rig = Rig::new(Policy::default());
    let small: Vec<_> = (0..4).map(|_| rig.alloc(&request(MIB / 2, 0), OPEN).unwrap().0).collect();
    let (_wall, _) = rig.alloc(&request(MIB / 2, 0), OPEN).unwrap();
    for (stream, block) in small.into_iter().enumerate() {
        rig.free(block, &Points::one(point(stream as u32 + 1, 9)));
    }
    let (block, plan) = rig.alloc(&request(3 * MIB, 1), SHUT).unwrap();
    let waited: Vec<u32> = plan.waits.iter().map(|point| point.stream.0).collect();
    assert_eq!(waited, [2, 3, 4], "all but its own stream, {plan:?}");
    rig.free(block, &Points::NONE);
    let plan = rig.pages.find(&request(3 * MIB, 9), 0, SHUT).unwrap();
    assert_eq!(plan.waits.len(), 4, "a block that was never used passes its waits on");
}

#[test]
fn a_hole_behind_another_stream_serves_only_when_nothing_better_does() {
    let mut rig = Rig::new(Policy { stale_max: 0, ..Policy::default() });
    let (a, _) = rig.alloc(&request(20 * MIB, 1), OPEN).unwrap();
    rig.free(a, &Points::one(point(1, 4)));
    let made = rig.pages.find(&request(20 * MIB, 2), 0, OPEN).unwrap();
    assert_eq!((made.why, made.waits.is_empty()), (Why::Backed, true));
    let waiting = rig.pages.find(&request(20 * MIB, 2), 0, SHUT).unwrap();
    assert_eq!((waiting.why, waiting.waits), (Why::Wait, Points::one(point(1, 4))));
    let own = rig.pages.find(&request(20 * MIB, 1), 0, SHUT).unwrap();
    assert_eq!((own.why, own.waits), (Why::Hole, Points::NONE));
    let never = Request { may_wait: false, ..request(20 * MIB, 2) };
    assert!(rig.pages.find(&never, 0, SHUT).is_err());
    rig.pages.settle(point(1, 4));
    assert_eq!(rig.pages.find(&never, 0, SHUT).unwrap().why, Why::Hole);
}

#[test]
fn trimming_gives_back_what_is_idle_and_a_failure_keeps_it() {
    let mut rig = Rig::new(Policy::default());
    let (a, _) = rig.alloc(&request(20 * MIB, 0), OPEN).unwrap();
    let (b, _) = rig.alloc(&request(20 * MIB, 0), OPEN).unwrap();
    rig.pages.free(a, &Points::NONE, 50).unwrap();
    rig.pages.free(b, &Points::one(point(0, 1)), 60).unwrap();
    let before = rig.picture();
    assert!(rig.pages.trim(u64::MAX, 49).is_empty(), "nothing is idle for so long");
    for going in rig.pages.trim(u64::MAX, 55) {
        rig.pages.check().unwrap();
        rig.pages.depart_failed(going);
    }
    assert_eq!(rig.picture(), before);
    rig.pages.settle(point(0, 1));
    let objects: Vec<_> =
        rig.pages.trim(u64::MAX, 60).into_iter().map(|g| rig.pages.depart_done(g)).collect();
    assert!(objects.iter().all(Option::is_some));
    rig.pages.check().unwrap();
    assert_eq!((rig.pages.usage().reserved, rig.pages.usage().span), (0, 0));
}

#[test]
fn a_part_of_an_object_is_not_given_back_alone() {
    let mut rig = Rig::new(Policy::default());
    let plan = rig.pages.find(&request(4 * MIB, 0), 0, OPEN).unwrap();
    let object = ObjectId(1);
    let part = |offset| Backing { object, object_bytes: 4 * MIB, offset, bytes: 2 * MIB };
    let reservation = rig.pages.reserve(plan).unwrap();
    let both = reservation.block();
    rig.pages.commit(reservation, &[part(0), part(2 * MIB)], 0, &Points::NONE).unwrap();
    rig.free(both, &Points::NONE);
    let (first, _) = rig.alloc(&request(2 * MIB, 0), SHUT).unwrap();
    assert_eq!(rig.pages.usage().free_pages, 2 * MIB);
    assert!(rig.pages.trim(u64::MAX, u64::MAX).is_empty(), "the object stays, and a page is lost");
    rig.free(first, &Points::NONE);
    let going = rig.pages.trim(1, u64::MAX);
    assert_eq!(going.len(), 2, "an object goes as a whole");
    let gone: Vec<_> = going.into_iter().filter_map(|g| rig.pages.depart_done(g)).collect();
    assert_eq!((gone, rig.pages.usage().reserved), (vec![object], 0));
}

#[test]
fn a_page_much_longer_than_the_gap_is_stolen_before_a_request_fails() {
    let mut rig = Rig::new(Policy { small_page: 8 * MIB, ..Policy::default() });
    let (long, _) = rig.alloc(&request(8 * MIB, 0), OPEN).unwrap();
    let (_, _) = rig.alloc(&request(2 * MIB, 0), OPEN).unwrap();
    // Behind other work: it can not be given back for a shorter one.
    rig.free(long, &Points::one(point(1, 4)));
    let after = rig.pages.find(&request(12 * MIB, 2), 0, SHUT);
    assert!(matches!(after, Err(PagesError::NoRoom { .. })), "{after:?}");
    let room = Room { before_stealing: 8 * MIB, at_most: 8 * MIB };
    let plan = rig.pages.find(&request(10 * MIB, 2), 0, room).unwrap();
    assert!(matches!(plan.steps.last(), Some(Step::Steal { .. })), "{plan:?}");
    assert_eq!(plan.waits, Points::one(point(1, 4)));
}

#[test]
fn an_object_that_several_pages_lie_in_is_counted_once_and_released_last() {
    let mut rig = Rig::new(Policy::default());
    let mut offset = 0;
    let mut blocks = Vec::new();
    for _ in 0..2 {
        let plan = rig.pages.find(&request(2 * MIB, 0), 0, OPEN).unwrap();
        let backing =
            Backing { object: ObjectId(1), object_bytes: 8 * MIB, offset, bytes: 2 * MIB };
        offset += 2 * MIB;
        let reservation = rig.pages.reserve(plan).unwrap();
        blocks.push(reservation.block());
        rig.pages.commit(reservation, &[backing], 0, &Points::NONE).unwrap();
        rig.pages.check().unwrap();
    }
    assert_eq!(rig.pages.usage().reserved, 8 * MIB);
    for block in blocks {
        rig.free(block, &Points::NONE);
    }
    let gone: Vec<_> =
        rig.pages.trim(u64::MAX, 0).into_iter().map(|g| rig.pages.depart_done(g)).collect();
    assert_eq!(gone, [None, Some(ObjectId(1))]);
}

#[test]
fn small_blocks_that_die_together_leave_a_hole_that_their_size_fills_first() {
    let mut rig = Rig::new(Policy::default());
    let (_wall, _) = rig.alloc(&request(MIB / 4, 0), OPEN).unwrap();
    let (odd, _) = rig.alloc(&request(MIB, 0), OPEN).unwrap();
    let (_rest_of_the_page, _) = rig.alloc(&request(3 * MIB / 4, 0), OPEN).unwrap();
    let batch: Vec<_> = (0..4).map(|_| rig.alloc(&request(700_000, 0), OPEN).unwrap()).collect();
    let (_end, _) = rig.alloc(&request(600 << 10, 0), OPEN).unwrap();
    rig.free(odd, &Points::NONE);
    let at = batch[0].1.at;
    for (block, _) in batch {
        rig.free(block, &Points::NONE);
    }
    let again = rig.pages.find(&request(700_000, 0), 0, OPEN).unwrap();
    assert_eq!(again.at, at, "the first hole that fits strands more");
}

#[test]
fn misuse_is_refused_by_a_typed_error() {
    let mut rig = Rig::new(Policy::default());
    let huge = rig.pages.find(&request(u64::MAX, 0), 0, OPEN);
    assert_eq!(huge, Err(PagesError::BadSize));
    assert_eq!(rig.pages.find(&request(0, 0), 0, OPEN), Err(PagesError::BadSize));
    let plan = rig.pages.find(&request(MIB, 0), 0, OPEN).unwrap();
    let twice = plan.clone();
    let reservation = rig.pages.reserve(plan).unwrap();
    let block = reservation.block();
    assert_eq!(rig.pages.reserve(twice).err(), Some(PagesError::Outdated));
    assert_eq!(rig.pages.free(block, &Points::NONE, 0), Err(PagesError::WrongState));
    let (error, reservation) = rig.pages.commit(reservation, &[], 0, &Points::NONE).unwrap_err();
    assert_eq!(error, PagesError::BadBacking);
    rig.pages.rollback(*reservation);
    let gone = rig.pages.free(block, &Points::NONE, 0);
    assert!(matches!(gone, Err(PagesError::Unknown(_))), "{gone:?}");
    assert!(Pages::new(Align::new(2 * MIB).unwrap(), MIB, Policy::default()).is_err());
}

/// With nothing live, whatever the free pages and the room come to can be had, however the gaps
/// between them lie: no page has to be as long as one of them.
#[test]
fn with_nothing_live_no_request_for_what_is_there_is_refused() {
    const LIMIT: u64 = 18 * MIB;
    let policy = Policy { small_page: 8 * MIB, large: 1 << 39, ..Policy::default() };
    let mut shortages = 0;
    for seed in 1..=60_u64 {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut below = |n: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % n
        };
        let mut rig = Rig::new(policy);
        let mut live: Vec<BlockId> = Vec::new();
        for step in 1..200_u64 {
            let bytes = MIB + below(15 * MIB);
            let stream = below(3) as u32;
            let left = LIMIT - rig.pages.usage().reserved;
            let room = rig.pages.room(bytes, left);
            match rig.alloc(&request(bytes, stream), room) {
                Ok((block, _)) => live.push(block),
                Err(error) if live.is_empty() => {
                    panic!("seed {seed}, step {step}: {bytes} bytes: {error:?}")
                }
                Err(_) => {
                    shortages += 1;
                    let block = live.swap_remove(below(live.len() as u64) as usize);
                    rig.free(block, &Points::one(point(stream, step)));
                    rig.pages.settle(point(stream, step / 2));
                    for stale in rig.pages.drop_settled(usize::MAX) {
                        rig.pages.unmapped(&stale).unwrap();
                    }
                }
            }
        }
    }
    assert!(shortages > 1000, "memory was short {shortages} times only");
}

#[test]
fn what_is_reached_can_be_taken_in_a_few_ranges_at_a_time() {
    let mut rig = Rig::new(Policy::default());
    let blocks: Vec<_> =
        (0..40).map(|_| rig.alloc(&request(300 << 10, 0), OPEN).unwrap().0).collect();
    for (at, block) in (0..).zip(blocks) {
        // Every third stays; others are behind one of two streams, many behind the same point.
        let stream = if at % 3 == 1 { 0 } else { 1 };
        if at % 3 != 0 {
            rig.free(block, &Points::one(point(stream, 1 + at / 20)));
        }
    }
    let pending = rig.pages.pending();
    let (mut done, mut calls) = (0, 0);
    loop {
        let (bytes, is_all) = rig.pages.reap_some(&|_| 2, 4);
        rig.pages.check().unwrap();
        (done, calls) = (done + bytes, calls + 1);
        if is_all {
            break;
        }
    }
    assert_eq!((done, rig.pages.pending()), (pending, 0));
    assert!(calls > 5, "{calls} calls");
}
