//! The course of a pass: plans that build on each other, all made before the first copy.
//!
//! A plan moves blocks only to places that are free. What it vacates is where the next plan moves
//! to. Planning takes about as long as copying, so a pass that planned between its batches would
//! leave the device idle; it plans on the view as it will be instead.

use rustc_hash::FxHashMap;

use super::goal::{Goal, Limits};
use super::plan::{Plan, plan};
use super::view::{Part, PoolView, SegmentView};

/// Plans made at once, and parts in all their views; what is left to do after them is planned anew.
const LEGS_MAX: usize = 64;
const PARTS_MAX: usize = 1 << 21;

/// A plan, and the view that it was made from.
#[derive(Clone, Debug)]
pub struct Leg {
    /// What lies where before it.
    pub view: PoolView,
    /// What to do.
    pub plan: Plan,
}

/// The plans that lead to the goal within the limits, in order. There is at least one; the last
/// moves nothing where the goal is met, or can not be, after those before it. Pure.
pub fn course(view: &PoolView, goal: Goal, limits: &Limits) -> Vec<Leg> {
    let mut legs = Vec::new();
    let (mut view, mut left, mut parts) = (view.clone(), *limits, 0_usize);
    loop {
        let plan = plan(&view, goal, &left);
        let next = view.after(&plan);
        left.bytes = left.bytes.saturating_sub(plan.bytes());
        left.moves = left.moves.saturating_sub(plan.blocks() as u64);
        parts += view.segments.iter().map(|segment| segment.parts.len()).sum::<usize>();
        let is_last = plan.blocks() == 0 || legs.len() + 1 == LEGS_MAX || parts > PARTS_MAX;
        legs.push(Leg { view, plan });
        if is_last || left.bytes == 0 || left.moves == 0 {
            return legs;
        }
        view = next;
    }
}

impl PoolView {
    /// What lies where once a plan is carried out.
    #[must_use]
    pub fn after(&self, plan: &Plan) -> Self {
        let mut targets: FxHashMap<(usize, u64), (usize, u64)> = FxHashMap::default();
        for it in &plan.moves {
            targets.insert((it.segment, it.from), (it.to.segment, it.to.offset));
        }
        for (at, slide) in
            plan.chain.iter().flat_map(|it| it.slides.iter().map(|s| (it.segment, s)))
        {
            targets.insert((at, slide.from), (at, slide.to));
        }
        let mut taken: Vec<Vec<Part>> = vec![Vec::new(); self.segments.len()];
        for (at, segment) in self.segments.iter().enumerate() {
            for part in segment.parts.iter().filter(|part| !part.is_free()) {
                let (segment, offset) =
                    targets.get(&(at, part.offset)).copied().unwrap_or((at, part.offset));
                taken[segment].push(Part { offset, ..*part });
            }
        }
        let segments = self.segments.iter().zip(taken);
        let segments =
            segments.map(|(segment, taken)| SegmentView::new(segment.id, segment.bytes, taken));
        Self { segments: segments.collect() }
    }
}
