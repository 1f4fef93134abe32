//! Properties, with cases that shrink.

use proptest::collection::vec;
use proptest::prelude::*;

use super::pair::Pair;
use super::point;
use crate::point::{Points, StreamId};
use crate::range::{Home, State};
use crate::units::Align;

#[derive(Clone, Debug)]
enum Op {
    Take { bytes: u64, align: u32, home: Home },
    TakeWaiting { bytes: u64, own: StreamId },
    TakeJoin { bytes: u64, align: u32, own: Option<StreamId> },
    TakeInside { nth: usize, from: u64, bytes: u64 },
    Free { nth: usize, points: Points },
    Use { nth: usize, points: Points },
    Grow { nth: usize, more: u64 },
    Shrink { nth: usize, bytes: u64, points: Points },
    Reap { reached: [u64; 3], only: Option<StreamId> },
}

fn stream() -> impl Strategy<Value = StreamId> + Clone {
    (0..3_u32).prop_map(StreamId)
}

fn points() -> impl Strategy<Value = Points> {
    vec((0..3_u32, 1..9_u64), 0..3)
        .prop_map(|list| list.into_iter().map(|(stream, value)| point(stream, value)).collect())
}

fn op() -> impl Strategy<Value = Op> {
    let home = prop_oneof![Just(Home::Done), stream().prop_map(Home::Stream), Just(Home::Shared)];
    let (bytes, align, nth) = (1..500_u64, 0..8_u32, any::<usize>());
    let own = proptest::option::of(stream());
    prop_oneof![
        4 => (bytes.clone(), align.clone(), home)
            .prop_map(|(bytes, align, home)| Op::Take { bytes, align, home }),
        1 => (bytes.clone(), stream()).prop_map(|(bytes, own)| Op::TakeWaiting { bytes, own }),
        2 => (bytes.clone(), align, own.clone())
            .prop_map(|(bytes, align, own)| Op::TakeJoin { bytes, align, own }),
        1 => (nth, any::<u64>(), bytes.clone())
            .prop_map(|(nth, from, bytes)| Op::TakeInside { nth, from, bytes }),
        4 => (nth, points()).prop_map(|(nth, points)| Op::Free { nth, points }),
        1 => (nth, points()).prop_map(|(nth, points)| Op::Use { nth, points }),
        1 => (nth, bytes.clone()).prop_map(|(nth, more)| Op::Grow { nth, more }),
        1 => (nth, bytes, points())
            .prop_map(|(nth, bytes, points)| Op::Shrink { nth, bytes, points }),
        1 => (any::<[u8; 3]>(), own).prop_map(|(reached, only)| {
            Op::Reap { reached: reached.map(|value| u64::from(value % 10)), only }
        }),
    ]
}

fn apply(pair: &mut Pair, op: Op) {
    let align = |power: u32| Align::new(1 << power).unwrap();
    let len = pair.taken.len().max(1);
    let any = !pair.taken.is_empty();
    match op {
        Op::Take { bytes, align: power, home } => {
            pair.find_and_take(bytes, align(power), home, State::Live);
        }
        Op::TakeWaiting { bytes, own } => {
            pair.find_waiting(bytes, Align::ONE, own, State::Live);
        }
        Op::TakeJoin { bytes, align: power, own } => {
            pair.find_join(bytes, align(power), own, State::Live);
        }
        Op::TakeInside { nth, from, bytes } => {
            pair.take_inside(nth, from, bytes, State::Stale);
        }
        Op::Free { nth, points } if any => pair.free(nth % len, &points),
        Op::Use { nth, points } if any => pair.record_use(nth % len, &points),
        Op::Grow { nth, more } if any => {
            pair.grow(nth % len, more);
        }
        Op::Shrink { nth, bytes, points } if any => pair.shrink(nth % len, bytes, &points),
        Op::Reap { reached, only } => pair.reap(&reached, only),
        _ => {}
    }
}

proptest! {
    #[test]
    fn any_operations_leave_the_index_equal_to_the_naive_model(
        lens in vec(1..2_000_u64, 1..4),
        ops in vec(op(), 0..60),
    ) {
        let mut pair = Pair::default();
        for len in lens {
            pair.add(len);
        }
        for op in ops {
            apply(&mut pair, op);
            pair.assert_sound();
        }
        pair.finish();
    }

    #[test]
    fn whatever_is_taken_and_freed_again_leaves_one_hole(
        len in 1..1_u64 << 40,
        takes in vec((1..1_u64 << 36, 0..30_u32), 0..40),
    ) {
        let mut pair = Pair::default();
        pair.add(len);
        for (bytes, power) in takes {
            pair.find_and_take(bytes, Align::new(1 << power).unwrap(), Home::Done, State::Live);
        }
        pair.assert_sound();
        pair.finish();
    }
}
