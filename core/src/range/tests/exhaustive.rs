//! Every sequence of a few operations on a tiny segment.

use super::pair::Pair;
use super::points;
use crate::point::StreamId;
use crate::range::{Home, State};
use crate::units::Align;

const LEN: u64 = 8;
const DEPTH: usize = 5;

/// Does operation `op` if it can be done; gives `false` if it would change nothing.
fn step(pair: &mut Pair, op: usize) -> Option<bool> {
    let align = Align::new(2).unwrap();
    let homes = [Home::Done, Home::Stream(StreamId(0)), Home::Stream(StreamId(1)), Home::Shared];
    let waits = [points([]), points([(0, 1)]), points([(1, 2)]), points([(0, 2), (1, 1)])];
    let last = pair.taken.len().checked_sub(1);
    let done = match op {
        0..4 => pair.find_and_take(2, Align::ONE, homes[op], State::Live),
        4..6 => pair.find_and_take(3, align, homes[op - 4], State::Live),
        6..10 => last.map(|at| pair.free(at, &waits[op - 6])).is_some(),
        10..12 => last.map(|_| pair.free(0, &waits[op - 9])).is_some(),
        12 => pair.find_join(3, Align::ONE, None, State::Live),
        13 => pair.find_join(6, align, Some(StreamId(1)), State::Mapping),
        14 => pair.take_inside(0, 3, 2, State::Stale),
        15 => last.is_some_and(|at| pair.grow(at, 2)),
        16 => last.map(|at| pair.shrink(at, 1, &waits[1])).is_some(),
        17 => pair.model.homes().count() > 0 && reap(pair, Some(StreamId(0))),
        18 => pair.model.homes().count() > 0 && reap(pair, Some(StreamId(1))),
        19 => pair.model.homes().count() > 0 && reap(pair, None),
        _ => return None,
    };
    Some(done)
}

fn reap(pair: &mut Pair, only: Option<StreamId>) -> bool {
    let before: Vec<_> = pair.model.parts().map(|(_, part)| part.clone()).collect();
    pair.reap(&[2, 1], only);
    !pair.model.parts().map(|(_, part)| part).eq(before.iter())
}

fn explore(sequence: &mut Vec<usize>, count: &mut u64) {
    for op in 0.. {
        let mut pair = Pair::default();
        pair.add(LEN);
        for before in sequence.iter() {
            step(&mut pair, *before);
        }
        let Some(changed) = step(&mut pair, op) else { return };
        pair.assert_sound();
        *count += 1;
        // What changed nothing leads where its prefix leads.
        if changed && sequence.len() + 1 < DEPTH {
            sequence.push(op);
            explore(sequence, count);
            sequence.pop();
        } else if changed {
            pair.finish();
        }
    }
}

#[test]
fn every_short_sequence_on_a_tiny_segment_leaves_the_index_equal_to_the_naive_model() {
    let mut count = 0;
    explore(&mut Vec::new(), &mut count);
    assert!(count > 10_000, "only {count} sequences");
    println!("{count} sequences");
}
