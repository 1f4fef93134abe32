//! The planner against a naive model: blocks in a list, moved one by one.

use proptest::prelude::*;

use super::{Goal, Limits, Part, Plan, PoolView, SegmentView, What, Why, course, plan};

const ALIGN: u64 = 4;

/// Blocks by owner: segment, offset, bytes, whether movable.
#[derive(Clone, Debug)]
struct Model {
    segments: Vec<u64>,
    blocks: Vec<(usize, u64, u64, bool)>,
}

impl Model {
    fn view(&self) -> PoolView {
        let segment = |(at, &bytes): (usize, &u64)| {
            let mine = self.blocks.iter().zip(0..).filter(|(block, _)| block.0 == at);
            let parts = mine.map(|(&(_, offset, bytes, movable), owner)| Part {
                offset,
                bytes,
                what: if movable {
                    What::Movable { owner, align: ALIGN }
                } else {
                    What::Fixed { owner, why: Why::Held }
                },
            });
            SegmentView::new(at as u32, bytes, parts.collect())
        };
        PoolView { segments: self.segments.iter().enumerate().map(segment).collect() }
    }

    /// Whether a range of a segment is free but for `except`.
    fn is_free(&self, segment: usize, from: u64, bytes: u64, except: u32) -> bool {
        from + bytes <= self.segments[segment]
            && self.blocks.iter().zip(0_u32..).all(|(block, owner)| {
                owner == except
                    || block.0 != segment
                    || block.1 >= from + bytes
                    || block.1 + block.2 <= from
            })
    }

    fn top(&self) -> Option<(usize, u64)> {
        self.blocks.iter().map(|block| (block.0, block.1 + block.2)).max()
    }

    /// Carries a plan out, checking each step.
    fn apply(&mut self, plan: &Plan) {
        let before = self.top();
        for it in &plan.moves {
            let block = self.blocks[it.owner as usize];
            assert!(block.3, "a block that is held was moved");
            assert_eq!((block.0, block.1, block.2), (it.segment, it.from, it.bytes));
            assert_eq!(it.to.offset % ALIGN, 0);
            // Old places stay taken until the plan is carried out.
            assert!(self.is_free(it.to.segment, it.to.offset, it.bytes, u32::MAX), "{it:?}");
            self.blocks.push((it.to.segment, it.to.offset, it.bytes, false));
        }
        self.blocks.truncate(self.blocks.len() - plan.moves.len());
        for it in &plan.moves {
            let block = &mut self.blocks[it.owner as usize];
            (block.0, block.1) = (it.to.segment, it.to.offset);
        }
        for (chain, slide) in plan.chain.iter().flat_map(|c| c.slides.iter().map(move |s| (c, s))) {
            let block = self.blocks[slide.owner as usize];
            assert!(block.3, "a block that is held was slid");
            assert_eq!((block.0, block.1, block.2), (chain.segment, slide.from, slide.bytes));
            assert_eq!(slide.to % ALIGN, 0);
            assert_eq!(chain.up, slide.to > slide.from);
            assert!(self.is_free(chain.segment, slide.to, slide.bytes, slide.owner), "{slide:?}");
            self.blocks[slide.owner as usize].1 = slide.to;
        }
        assert!(self.top() <= before, "the top was raised: {before:?} to {:?}", self.top());
    }

    fn meets(&self, goal: Goal) -> bool {
        let view = self.view();
        match goal {
            Goal::Contiguous { bytes, align } => {
                view.segments.iter().flat_map(|s| &s.parts).any(|part| part.room(align) >= bytes)
            }
            Goal::Release { bytes } => {
                let idle = view.segments.iter().filter(|s| s.is_wholly_free());
                bytes == u64::MAX || idle.map(|s| s.bytes).sum::<u64>() >= bytes
            }
            Goal::Fragmentation { below } => view.fragmentation() <= below + 1e-9,
        }
    }

    /// The least live bytes of a stretch whose free bytes suffice: what sliding costs at best.
    fn naive_cost(&self, bytes: u64) -> Option<u64> {
        let mut best: Option<u64> = None;
        for segment in &self.view().segments {
            for first in 0..segment.parts.len() {
                let (mut free, mut live) = (0, 0);
                for part in &segment.parts[first..] {
                    if !part.is_free() && !part.is_movable() {
                        break;
                    }
                    (free, live) = (free + part.free(), live + part.movable());
                    if free >= bytes {
                        best = Some(best.map_or(live, |best| best.min(live)));
                        break;
                    }
                }
            }
        }
        best
    }
}

fn model() -> impl Strategy<Value = Model> {
    let block = (1_u64..40, 0_u64..30, prop::bool::weighted(0.9));
    let segment = (prop::collection::vec(block, 0..24), 0_u64..80);
    prop::collection::vec(segment, 1..4).prop_map(|segments| {
        let mut model = Model { segments: Vec::new(), blocks: Vec::new() };
        for (at, (blocks, rest)) in segments.into_iter().enumerate() {
            let mut end = 0;
            for (bytes, gap, movable) in blocks {
                let offset = (end + gap / 8 * ALIGN).next_multiple_of(ALIGN);
                end = offset + bytes * ALIGN;
                model.blocks.push((at, offset, bytes * ALIGN, movable));
            }
            model.segments.push(end + rest + ALIGN);
        }
        model
    })
}

fn goal() -> impl Strategy<Value = Goal> {
    prop_oneof![
        (1_u64..400).prop_map(|bytes| Goal::Contiguous { bytes, align: 1 }),
        (1_u64..100).prop_map(|bytes| Goal::Contiguous { bytes: bytes * ALIGN, align: ALIGN }),
        (1_u64..3000).prop_map(|bytes| Goal::Release { bytes }),
        Just(Goal::Release { bytes: u64::MAX }),
        (0.0..1.0).prop_map(|below| Goal::Fragmentation { below }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_is_sound_and_reaches_what_it_says(model in model(), goal in goal()) {
        let mut model = model;
        let (mut met, mut is_over) = (false, false);
        for _ in 0..60 {
            let plan = plan(&model.view(), goal, &Limits::NONE);
            model.apply(&plan);
            if plan.reachable && !plan.more {
                prop_assert!(model.meets(goal), "{goal:?} {plan:?}");
            }
            met = plan.met;
            if plan.blocks() == 0 {
                prop_assert!(plan.met || !plan.reachable, "reachable by nothing: {plan:?}");
                is_over = true;
                break;
            }
        }
        prop_assert!(is_over, "no end: {goal:?}");
        if met {
            // Idempotent: nothing is left to do.
            let again = plan(&model.view(), goal, &Limits::NONE);
            prop_assert_eq!(again.blocks(), 0);
        }
    }

    #[test]
    fn a_course_is_what_plans_made_one_by_one_would_be(
        model in model(), goal in goal(), moves in 1_u64..40,
    ) {
        let mut model = model;
        let limits = Limits::NONE.moves(moves);
        let (legs, mut left) = (course(&model.view(), goal, &limits), moves);
        for leg in &legs {
            prop_assert_eq!(&leg.view, &model.view());
            prop_assert_eq!(&leg.plan, &plan(&leg.view, goal, &limits.moves(left)));
            prop_assert!(leg.plan.blocks() as u64 <= left);
            model.apply(&leg.plan);
            left -= leg.plan.blocks() as u64;
        }
        let is_over = legs.last().is_some_and(|leg| leg.plan.blocks() == 0 || left == 0);
        prop_assert!(is_over, "given up after {} plans", legs.len());
    }

    #[test]
    fn a_plan_keeps_within_its_limits_and_small_passes_converge(
        model in model(), goal in goal(), moves in 1_u64..5, bytes in 100_u64..400,
    ) {
        let mut model = model;
        let limits = Limits::NONE.moves(moves).bytes(bytes);
        let first = plan(&model.view(), goal, &limits);
        prop_assert_eq!(&first, &plan(&model.view(), goal, &limits), "not the same plan");
        for round in 0.. {
            let plan = plan(&model.view(), goal, &limits);
            prop_assert!(plan.blocks() as u64 <= moves && plan.bytes() <= bytes, "{plan:?}");
            model.apply(&plan);
            if plan.blocks() == 0 {
                break;
            }
            prop_assert!(round < 400, "no end: {goal:?} {plan:?}");
        }
    }

    #[test]
    fn contiguous_bytes_never_cost_more_than_naive_sliding(model in model(), bytes in 8_u64..300) {
        let goal = Goal::Contiguous { bytes, align: 1 };
        let naive = model.naive_cost(bytes);
        let plan = plan(&model.view(), goal, &Limits::NONE);
        if let (Some(naive), false) = (naive, plan.more) {
            prop_assert!(plan.bytes() <= naive || plan.chain.is_some(), "{} > {naive}", plan.bytes());
        }
    }
}

#[test]
fn a_checkerboard_of_small_blocks_becomes_one_range() {
    let blocks = (0..64).step_by(2).map(|at| (0, at * 64, 64, true)).collect();
    let mut model = Model { segments: vec![64 * 64], blocks };
    let goal = Goal::Contiguous { bytes: 16 * 64, align: 1 };
    let plan = plan(&model.view(), goal, &Limits::NONE);
    assert_eq!(plan.bytes(), 8 * 64, "{plan:?}");
    model.apply(&plan);
    assert!(model.meets(goal));
}

#[test]
fn a_held_block_in_the_middle_is_gone_around() {
    let mut blocks: Vec<_> = (0..64).step_by(2).map(|at| (0, at * 64, 64, true)).collect();
    blocks[16].3 = false;
    let mut model = Model { segments: vec![64 * 64], blocks };
    let goal = Goal::Fragmentation { below: 0.6 };
    while !model.meets(goal) {
        let plan = plan(&model.view(), goal, &Limits::NONE);
        assert!(plan.blocks() > 0 && plan.reachable);
        model.apply(&plan);
    }
}

/// Blocks of sizes that spread over their logarithms, every second one freed.
fn checkerboard(blocks: u64, segments: u64) -> PoolView {
    let mut random = 1_u64;
    let sizes = (0..blocks).map(|_| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let part = (random >> 11) as f64 / (1_u64 << 53) as f64;
        ((65_536.0 * 256_f64.powf(part)) as u64).next_multiple_of(256)
    });
    let sizes: Vec<u64> = sizes.collect();
    let room = sizes.iter().sum::<u64>() / segments + if segments > 1 { 16 << 20 } else { 0 };
    let (mut taken, mut end) = (vec![Vec::new()], 0);
    for (bytes, owner) in sizes.into_iter().zip(0_u32..) {
        if end + bytes > room {
            taken.push(Vec::new());
            end = 0;
        }
        let what = What::Movable { owner, align: 256 };
        let part = Part { offset: end, bytes, what };
        taken.last_mut().into_iter().filter(|_| owner % 2 == 0).for_each(|it| it.push(part));
        end += bytes;
    }
    let segment = |(id, taken)| SegmentView::new(id, room, taken);
    PoolView { segments: (0..).zip(taken).map(segment).collect() }
}

#[test]
fn a_large_checkerboard_comes_together_in_few_plans_of_few_bytes() {
    for (segments, most) in [(1, 3), (8, 7)] {
        let view = checkerboard(10_000, segments);
        let live: u64 = view.segments.iter().map(|it| it.bytes - it.free()).sum();
        let legs = course(&view, Goal::Fragmentation { below: 0.05 }, &Limits::NONE);
        let moved: u64 = legs.iter().map(|leg| leg.plan.bytes()).sum();
        assert!(legs.last().is_some_and(|leg| leg.plan.met), "{segments} segments");
        assert!(legs.len() <= most, "{segments} segments: {} plans", legs.len());
        // In one segment half of it stays; of several, those that stay are slid together first.
        assert!(moved <= if segments == 1 { live / 2 } else { live }, "{moved} of {live}");
    }
}

#[test]
fn ten_thousand_blocks_are_planned_in_a_moment() {
    let blocks = (0..20_000).step_by(2).map(|at| (0, at * 256, 256, true)).collect();
    let mut model = Model { segments: vec![20_000 * 256], blocks };
    let goal = Goal::Fragmentation { below: 0.05 };
    let (view, mut plans) = (model.view(), 0);
    assert!(view.fragmentation() > 0.99);
    while !model.meets(goal) {
        let plan = plan(&model.view(), goal, &Limits::NONE);
        assert!(plan.blocks() > 0, "{plan:?}");
        for it in &plan.moves {
            let block = &mut model.blocks[it.owner as usize];
            (block.0, block.1) = (it.to.segment, it.to.offset);
        }
        for slide in plan.chain.iter().flat_map(|chain| &chain.slides) {
            model.blocks[slide.owner as usize].1 = slide.to;
        }
        plans += 1;
    }
    assert!(plans <= 4, "{plans} plans");
}
