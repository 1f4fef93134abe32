//! Every violation that `check` knows is found when it is planted.

use super::points;
use crate::point::StreamId;
use crate::range::{Home, NodeId, Problem, Ranges, State};
use crate::units::Align;

/// One segment: live, hole of stream 1, hole of stream 2, live, done hole, live, shared hole.
fn sound() -> (Ranges, [NodeId; 7]) {
    let mut ranges = Ranges::new();
    ranges.add_segment(700);
    let mut take = || {
        let fit = ranges.find(100, Align::ONE, Home::Done).unwrap();
        ranges.take(fit, State::Live).0
    };
    let nodes = std::array::from_fn(|_| take());
    ranges.free(nodes[1], points([(1, 5)]));
    ranges.free(nodes[2], points([(2, 6)]));
    ranges.free(nodes[4], points([]));
    ranges.free(nodes[6], points([(1, 1), (2, 2)]));
    assert_eq!(ranges.check(), Ok(()));
    (ranges, nodes)
}

#[track_caller]
fn planted(problem: Problem, fault: impl FnOnce(&mut Ranges, [NodeId; 7])) {
    let (mut ranges, nodes) = sound();
    fault(&mut ranges, nodes);
    let violation = ranges.check().expect_err("the fault is not seen");
    assert_eq!(violation.problem, problem, "{violation}");
    let id = format!("INV-RANGE-{}: ", problem as u8 + 1);
    assert!(violation.to_string().starts_with(&id), "{violation} is not numbered {id}");
}

#[test]
fn check_sees_broken_links() {
    planted(Problem::Links, |r, n| r.nodes[n[3]].prev = n[1]);
    planted(Problem::Links, |r, n| r.nodes[n[3]].segment.0 = 7);
    planted(Problem::Links, |r, n| r.segments[0].last = n[5]);
    planted(Problem::Links, |r, n| r.nodes[n[6]].next = NodeId(4_000));
    planted(Problem::Links, |r, n| r.nodes[n[6]].next = n[0]);
}

#[test]
fn check_sees_gaps_and_overlaps() {
    planted(Problem::Tiling, |r, n| r.nodes[n[3]].bytes -= 1);
    planted(Problem::Tiling, |r, n| r.nodes[n[3]].offset += 1);
    planted(Problem::Tiling, |r, n| r.nodes[n[0]].bytes = 0);
    planted(Problem::Tiling, |r, n| r.nodes[n[6]].bytes = u64::MAX);
    planted(Problem::Tiling, |r, _| r.segments[0].len += 1);
}

#[test]
fn check_sees_neighbours_that_should_be_one() {
    planted(Problem::Coalescing, |r, n| {
        r.nodes[n[3]].points = points([(2, 9)]);
        r.count_free(r.nodes[n[3]].segment, 100);
        r.link(n[3]);
    });
}

#[test]
fn check_sees_wrong_sums() {
    planted(Problem::SegmentFree, |r, _| r.segments[0].free += 1);
    planted(Problem::TotalFree, |r, _| r.free -= 1);
    planted(Problem::Boundaries, |r, _| r.boundaries += 1);
}

#[test]
fn check_sees_entries_in_the_wrong_bin() {
    planted(Problem::BinEntry, |r, n| r.nodes[n[1]].points = points([(3, 5)]));
    planted(Problem::BinEntry, |r, n| r.nodes[n[4]].points = points([(9, 1)]));
    planted(Problem::BinEntry, |r, n| r.nodes[n[4]].back = n[1].0);
    planted(Problem::BinEntry, |r, n| r.nodes[n[4]].forward = n[0]);
    planted(Problem::BinEntry, |r, n| r.nodes[n[4]].forward = n[4]);
}

#[test]
fn check_sees_free_nodes_in_no_bin_and_wrong_counts() {
    planted(Problem::BinCount, |r, n| {
        r.homes.remove(n[4], Home::Done, &mut r.nodes);
    });
    planted(Problem::BinCount, |r, _| r.homes.done.nodes += 1);
    planted(Problem::BinCount, |r, _| r.homes.shared.bytes -= 1);
}

#[test]
fn check_sees_wrong_bitmaps() {
    planted(Problem::Bitmap, |r, _| {
        let row = r.homes.rows.rows.iter_mut().find(|row| row.bits != 0).unwrap();
        let empty = row.bits.trailing_ones();
        row.bits |= 1 << empty;
        row.heads[empty as usize] = NodeId::NONE;
    });
    planted(Problem::Bitmap, |r, _| r.homes.rows.rows[0].bits = 0);
    planted(Problem::Bitmap, |r, _| r.homes.done.first |= 1 << 40);
    planted(Problem::Bitmap, |r, _| {
        r.homes.rows.open();
    });
}

#[test]
fn check_sees_homes_that_are_empty_or_out_of_order() {
    planted(Problem::Homes, |r, _| r.homes.streams.swap(0, 1));
    planted(Problem::Homes, |r, _| r.homes.streams.push((StreamId(9), Box::default())));
}

#[test]
fn check_sees_a_point_below_the_bound_of_its_home() {
    planted(Problem::Lowest, |r, _| r.homes.set_lowest(StreamId(1), 6));
}

#[test]
fn check_sees_slots_that_are_lost_or_used_twice() {
    planted(Problem::Slots, |r, _| r.nodes.vacant = Some(NodeId(0)));
    planted(Problem::Slots, |r, n| {
        let node = r.append(r.nodes[n[0]].segment, 50);
        r.nodes[n[6]].next = NodeId::NONE;
        r.segments[0].last = n[6];
        assert_eq!(r.bytes(node), 50);
    });
}
