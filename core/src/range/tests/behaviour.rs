//! What the index promises, one case each.

use super::{point, points};
use crate::point::{Points, StreamId, SyncPoint};
use crate::range::{Fit, Home, NO_OWNER, NodeId, NotFree, Ranges, SegmentId, State};
use crate::units::{Align, MIB};

fn take(ranges: &mut Ranges, bytes: u64) -> NodeId {
    let fit = ranges.find(bytes, Align::ONE, Home::Done).unwrap();
    ranges.take(fit, State::Live).0
}

/// A segment of `live, hole, live, hole, ...`, with the holes' sizes and points given.
fn with_holes(holes: &[(u64, Points)]) -> (Ranges, Vec<NodeId>) {
    let mut ranges = Ranges::new();
    ranges.add_segment(holes.iter().map(|hole| hole.0 + 8).sum());
    let taken: Vec<_> =
        holes.iter().map(|hole| (take(&mut ranges, 8), take(&mut ranges, hole.0))).collect();
    let freed = taken.iter().zip(holes).map(|((_, node), hole)| ranges.free(*node, hole.1.clone()));
    let freed = freed.collect();
    ranges.check().unwrap();
    (ranges, freed)
}

#[test]
fn a_hole_behind_work_is_for_its_own_stream_until_the_work_is_done() {
    let (mut ranges, holes) = with_holes(&[(64, points([(1, 7)]))]);
    assert_eq!(ranges.find(64, Align::ONE, Home::Done), None);
    assert_eq!(ranges.find(64, Align::ONE, Home::Stream(StreamId(2))), None);
    let fit = Fit { node: holes[0], offset: 8, bytes: 64 };
    assert_eq!(ranges.find(64, Align::ONE, Home::Stream(StreamId(1))), Some(fit));
    assert_eq!(ranges.find_waiting(64, Align::ONE, Some(StreamId(1))), None);
    assert_eq!(ranges.find_waiting(64, Align::ONE, Some(StreamId(2))), Some(fit));
    assert_eq!(ranges.reap_stream(StreamId(1), 6), 0);
    assert_eq!(ranges.reap_stream(StreamId(1), 7), 64);
    assert_eq!(ranges.find(64, Align::ONE, Home::Done), Some(fit));
}

#[test]
fn holes_of_different_streams_are_joined_where_the_fewest_have_to_be_waited_for() {
    let mut ranges = Ranges::new();
    ranges.add_segment(800);
    let nodes: Vec<_> = (0..8).map(|_| take(&mut ranges, 100)).collect();
    for (at, set) in [
        (0, points([(1, 1)])),
        (1, points([(2, 1)])),
        (2, points([(3, 1)])),
        (4, points([(1, 3)])),
        (5, points([])),
    ] {
        ranges.free(nodes[at], set);
    }
    let join = ranges.find_join(150, Align::ONE).unwrap();
    assert_eq!((join.offset, join.waits, join.points.clone()), (400, 1, points([(1, 3)])));
    assert_eq!(ranges.largest_run(), 300);
    assert_eq!(ranges.largest_free(), 100);
    let own = ranges.find_join_for(150, Align::ONE, Some(StreamId(1))).unwrap();
    assert_eq!((own.offset, own.waits), (400, 0));
    let (node, waits) = ranges.take_join(join, State::Mapping);
    assert_eq!((waits, ranges.bytes(node)), (points([(1, 3)]), 150));
    ranges.check().unwrap();
    let join = ranges.find_join(300, Align::ONE).unwrap();
    assert_eq!((join.offset, join.waits), (0, 3));
    assert_eq!(ranges.find_join(301, Align::ONE), None);
}

#[test]
fn a_fit_behind_many_entries_that_are_too_small_is_found() {
    // All of one bin: 1,024 to 1,055 bytes.
    let mut holes = vec![(1_025, Points::NONE); 100];
    holes[0].0 = 1_050;
    let (ranges, nodes) = with_holes(&holes);
    let fit = ranges.find(1_040, Align::ONE, Home::Done).unwrap();
    assert_eq!((fit.node, fit.bytes), (nodes[0], 1_040));
    assert_eq!(ranges.find(1_051, Align::ONE, Home::Done), None);
}

#[test]
fn a_coarse_alignment_is_found_in_whatever_bin_it_fits() {
    // Holes of many bins that have room but for the padding, and one that begins just right.
    let mut holes: Vec<_> = (0..40).map(|at| (5_000 + 300 * at, Points::NONE)).collect();
    let before: u64 = holes.iter().map(|hole| hole.0 + 8).sum();
    let align = Align::new(1 << 20).unwrap();
    holes.push((align.padding(before + 16), points([(1, 1)])));
    // Bins away from the request's, so that a search that goes up a few bins does not see it.
    holes.push((16_000, Points::NONE));
    let (ranges, nodes) = with_holes(&holes);
    let fit = ranges.find(4_999, align, Home::Done).unwrap();
    assert_eq!((fit.node, fit.offset % (1 << 20)), (nodes[41], 0));
}

#[test]
fn the_smallest_then_lowest_hole_is_taken() {
    let sizes = [700, 512, 640, 512, 600];
    let (ranges, nodes) = with_holes(&sizes.map(|bytes| (bytes, Points::NONE)));
    for (bytes, best) in [(512, 1), (513, 4), (601, 2), (641, 0)] {
        assert_eq!(ranges.find(bytes, Align::ONE, Home::Done).unwrap().node, nodes[best]);
    }
}

#[test]
fn of_a_few_holes_of_the_size_asked_for_the_lowest_is_taken_in_whatever_order_they_came() {
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1], [1, 3, 0, 2]] {
        let mut ranges = Ranges::new();
        ranges.add_segment(8 * 512);
        let nodes: Vec<_> = (0..8).map(|_| take(&mut ranges, 512)).collect();
        for at in order {
            ranges.free(nodes[2 * at], Points::NONE);
        }
        for lowest in 0..4 {
            let fit = ranges.find(512, Align::ONE, Home::Done).unwrap();
            assert_eq!(fit.offset, lowest * 1_024, "{order:?}");
            ranges.take(fit, State::Live);
        }
    }
}

#[test]
fn short_lived_streams_leave_no_state() {
    let mut ranges = Ranges::new();
    ranges.add_segment(512 * 8);
    let nodes: Vec<_> = (0..512).map(|_| take(&mut ranges, 8)).collect();
    for (stream, node) in nodes.into_iter().enumerate() {
        ranges.free(node, points([(stream as u32, 1)]));
    }
    assert_eq!(ranges.homes.streams.len(), 512);
    assert_eq!(ranges.largest_run(), 512 * 8);
    assert_eq!(ranges.reap(&mut |_| true), 512 * 8);
    assert_eq!((ranges.homes.streams.len(), ranges.nodes()), (0, 1));
    assert_eq!(ranges.homes.rows.in_use(), 1);
    ranges.check().unwrap();
}

#[test]
fn reaping_asks_once_per_stream_that_is_not_done_and_in_order() {
    let holes: Vec<_> =
        (0..60).map(|at| (8 + at, points([(9 - at as u32 % 3, 100 - at)]))).collect();
    let (mut ranges, _) = with_holes(&holes);
    let mut asked = Vec::new();
    let mut ask = |p: SyncPoint| {
        asked.push(p.stream.0);
        false
    };
    assert_eq!(ranges.reap(&mut ask), 0);
    assert_eq!(asked, [7, 8, 9]);
}

#[test]
fn a_home_that_comes_again_does_not_ask_about_points_of_its_past() {
    let (mut ranges, holes) = with_holes(&[(8, points([(1, 3)]))]);
    let fit = Fit { node: holes[0], offset: 8, bytes: 8 };
    let (node, _) = ranges.take(fit, State::Live);
    ranges.free(node, points([(2, 9)]));
    let mut asked = Vec::new();
    ranges.reap(&mut |p| {
        asked.push(p);
        false
    });
    assert_eq!(asked, [point(2, 9)]);
}

#[test]
fn a_use_recorded_on_a_live_node_is_waited_for_after_it_is_freed() {
    let mut ranges = Ranges::new();
    ranges.add_segment(64);
    let node = take(&mut ranges, 64);
    ranges.points_mut(node).insert(point(4, 2));
    let free = ranges.free(node, points([(5, 1)]));
    assert_eq!(ranges.points(free), &points([(4, 2), (5, 1)]));
}

#[test]
fn a_segment_is_removed_only_when_it_is_one_hole() {
    let mut ranges = Ranges::new();
    let (segment, node) = ranges.add_segment_full(4 * MIB, MIB);
    assert_eq!(ranges.remove_segment(segment), Err(NotFree));
    ranges.set_state(node, State::Live);
    ranges.free(node, points([(1, 1)]));
    assert!(ranges.is_wholly_free(segment));
    assert_eq!(ranges.remove_segment(segment), Err(NotFree));
    ranges.reap_stream(StreamId(1), 1);
    assert_eq!(ranges.remove_segment(segment), Ok(Points::NONE));
    assert_eq!(ranges.segments().count(), 0);
    assert_eq!(ranges.add_segment(MIB), segment);
    let whole = take(&mut ranges, MIB);
    ranges.free(whole, points([(2, 3)]));
    assert_eq!(ranges.remove_segment(segment), Ok(points([(2, 3)])));
}

#[test]
fn growing_takes_over_only_what_it_needs_and_tells_what_to_wait_for() {
    let mut ranges = Ranges::new();
    let segment = ranges.add_segment(400);
    let nodes: Vec<_> = (0..4).map(|_| take(&mut ranges, 100)).collect();
    ranges.free(nodes[1], points([(1, 1)]));
    ranges.free(nodes[2], points([(2, 2)]));
    assert_eq!(ranges.grow_in_place(nodes[0], 301), None);
    assert_eq!(ranges.grow_in_place(nodes[0], 150), Some(points([(1, 1)])));
    assert_eq!(ranges.grow_in_place(nodes[0], 250), Some(points([(1, 1), (2, 2)])));
    assert_eq!(ranges.segment_free(segment), 50);
    ranges.shrink(nodes[0], 100, points([(2, 1)]));
    assert_eq!(ranges.largest_free(), 200);
    ranges.check().unwrap();
}

#[test]
fn a_segment_can_grow_up_to_the_end_of_the_numbers() {
    let mut ranges = Ranges::new();
    let segment = ranges.add_segment(u64::MAX - 10);
    assert!(!ranges.extend_segment(segment, 11));
    assert!(ranges.extend_segment(segment, 10));
    let fit = ranges.find(u64::MAX, Align::ONE, Home::Done).unwrap();
    assert_eq!(ranges.find(u64::MAX, Align::new(1 << 63).unwrap(), Home::Done), Some(fit));
    let node = ranges.take(fit, State::Live).0;
    assert_eq!(ranges.external_fragmentation(), 0.0);
    ranges.free(node, Points::NONE);
    ranges.check().unwrap();
}

#[test]
fn fragmentation_is_what_the_largest_hole_leaves() {
    let (mut ranges, nodes) = with_holes(&[(300, Points::NONE), (100, points([(1, 1)]))]);
    assert_eq!(ranges.external_fragmentation(), 0.25);
    assert_eq!(ranges.home_free(Home::Done), 300);
    assert_eq!(ranges.iter_free(Home::Stream(StreamId(1))).map(|n| n.id).next(), Some(nodes[1]));
    let view = ranges.view(nodes[0]);
    assert_eq!((view.owner, view.state, ranges.next(nodes[1])), (NO_OWNER, State::Free, None));
    assert_eq!(ranges.last(SegmentId(0)), Some(nodes[1]));
    assert_eq!(ranges.prev(ranges.first(SegmentId(0)).unwrap()), None);
    ranges.reap(&mut |_| true);
    assert_eq!(ranges.external_fragmentation(), 0.25);
}

/// What is reached is found in parts, whatever is taken and freed between two of them.
#[test]
fn a_reap_in_parts_finds_what_one_in_a_whole_finds() {
    let mut ranges = Ranges::new();
    let segment = ranges.add_segment(4096 * 64);
    let mut random = 7_u64;
    let mut below = |n: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % n
    };
    let (mut live, mut value, mut known) = (Vec::new(), 0_u64, 0);
    for round in 0..200 {
        while live.len() < 1_500 {
            let Some(fit) = ranges.find(64, Align::ONE, Home::Done) else { break };
            live.push(ranges.take(fit, State::Live).0);
        }
        for _ in 0..live.len() / 2 {
            value += 1;
            let node = live.swap_remove(below(live.len() as u64) as usize);
            let other =
                if below(4) == 0 { points([(1, value), (2, value)]) } else { points([(1, value)]) };
            ranges.free(node, other);
        }
        // What is reached by now has to be found by a walk that began after it was.
        known = known.max(value.saturating_sub(below(300)));
        let mut reached = |point: SyncPoint| point.value <= known;
        let (ended, is_under_way) = ranges.walks();
        let wanted = ended + 1 + u32::from(is_under_way);
        while ranges.walks().0 < wanted {
            ranges.reap_some(&mut reached, 1 + below(40) as u32);
            if below(3) == 0 && !live.is_empty() {
                let node = live.swap_remove(below(live.len() as u64) as usize);
                ranges.free(node, points([(1, value + 1)]));
            }
            if round % 2 == 0
                && below(3) == 0
                && let Some(fit) = ranges.find(64, Align::ONE, Home::Stream(StreamId(1)))
            {
                live.push(ranges.take(fit, State::Live).0);
            }
        }
        value += 1;
        ranges.check().unwrap();
        // The rest of a hole that was taken in part may come behind the walk.
        for node in ranges.iter(segment).filter(|it| it.state == State::Free && round % 2 == 1) {
            assert!(node.points.iter().all(|point| point.value > known), "round {round}: {node:?}");
        }
        // Some rounds end in the middle of a walk.
        if round % 3 == 0 {
            ranges.reap_some(&mut |point| point.value <= known, 20);
        }
    }
}
