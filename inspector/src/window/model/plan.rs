//! What Terrane's compaction would move in a heap, by its own planner.

use terrane_core::compact::{Goal, Limits, Part, PoolView, SegmentView, What, Why, plan};
use terrane_core::event::MoveKind;

use super::{Moment, PartState, Refusal, Shift};

/// What a plan is to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Aim {
    /// A hole of so many bytes.
    Room(u64),
    /// Segments that can be given back.
    Release,
    /// At most a tenth of the free bytes outside the largest hole.
    Tidy,
}

impl Aim {
    fn goal(self) -> Goal {
        match self {
            Self::Room(bytes) => Goal::Contiguous { bytes, align: ALIGN },
            Self::Release => Goal::Release { bytes: u64::MAX },
            Self::Tidy => Goal::Fragmentation { below: 0.1 },
        }
    }

    /// In words.
    pub fn text(self) -> String {
        match self {
            Self::Room(bytes) => format!("room for {}", crate::units::bytes(bytes)),
            Self::Release => "give segments back".to_owned(),
            Self::Tidy => "fragmentation below 10 %".to_owned(),
        }
    }
}

/// Blocks keep this alignment.
const ALIGN: u64 = 512;

/// A plan as places in the heap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Planned {
    /// Moves in order.
    pub moves: Vec<Shift>,
    /// Blocks that may not move, by reason.
    pub refused: Vec<Refusal>,
    /// Whether the goal is met already.
    pub met: bool,
    /// Whether the goal can be met.
    pub reachable: bool,
}

/// Plans at most so many moves for a heap: all its segments are taken for one pool, and every block
/// for one that may move unless it is pending.
pub fn plan_for(moment: &Moment, aim: Aim, most: u64) -> Planned {
    let part = |part: &super::Part, start: u64| Part {
        offset: part.start - start,
        bytes: part.bytes,
        what: match part.state {
            PartState::Live => What::Movable { owner: part.block, align: ALIGN },
            _ => What::Fixed { owner: part.block, why: Why::Freed },
        },
    };
    let segment = |(number, space): (u32, &super::moment::Space)| {
        let taken = moment.parts[space.parts.clone()].iter();
        let taken =
            taken.filter(|part| part.state != PartState::Free).map(|p| part(p, space.start));
        SegmentView::new(number, space.bytes, taken.collect())
    };
    let view = PoolView { segments: (0..).zip(&moment.spaces).map(segment).collect() };
    let mut limits = Limits::NONE;
    limits.moves = most;
    let made = plan(&view, aim.goal(), &limits);
    let start = |segment: usize| moment.spaces.get(segment).map_or(0, |space| space.start);
    let mut moves: Vec<Shift> = made
        .moves
        .iter()
        .map(|one| Shift {
            block: one.owner,
            from: start(one.segment) + one.from,
            to: start(one.to.segment) + one.to.offset,
            bytes: one.bytes,
            by: MoveKind::Copy,
        })
        .collect();
    if let Some(chain) = &made.chain {
        moves.extend(chain.slides.iter().map(|slide| Shift {
            block: slide.owner,
            from: start(chain.segment) + slide.from,
            to: start(chain.segment) + slide.to,
            bytes: slide.bytes,
            by: MoveKind::Slide,
        }));
    }
    Planned { moves, refused: refused(moment), met: made.met, reachable: made.reachable }
}

fn refused(moment: &Moment) -> Vec<Refusal> {
    let pending = moment.parts.iter().filter(|part| part.state == PartState::Pending);
    let (blocks, bytes) = pending.fold((0, 0), |(n, sum), part| (n + 1, sum + part.bytes));
    let why = "freed, and other streams still use it".to_owned();
    if blocks > 0 { vec![Refusal { why, blocks, bytes }] } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::model::{
        BlockRow, NEVER, PoolKind, Recording, SegmentRow, largest_hole_after,
    };

    #[test]
    fn a_plan_makes_the_room_that_was_asked_for() {
        let block = |address| BlockRow::kept(address, 4096);
        // Every second page of 16 is taken: 32 KiB are free, no two neighbours.
        let blocks = (0..8).map(|n| block(n * 8192)).collect();
        let segment = SegmentRow {
            address: 0,
            bytes: 65_536,
            born: 0,
            gone: NEVER,
            stream: 0,
            pool: PoolKind::Unknown,
            object: None,
        };
        let recording = Recording::for_tests(blocks, vec![segment]);
        let moment = Moment::of(&recording, 0);
        assert_eq!(moment.largest_free, 4096);
        let planned = plan_for(&moment, Aim::Room(16_384), u64::MAX);
        assert!(planned.reachable && !planned.met && !planned.moves.is_empty());
        assert!(largest_hole_after(&moment, &planned.moves) >= 16_384);
        assert!(!plan_for(&moment, Aim::Room(1 << 20), u64::MAX).reachable);
        let tidy = |most| plan_for(&moment, Aim::Tidy, most).moves.len();
        assert!(tidy(u64::MAX) > 2, "{}", tidy(u64::MAX));
        assert_eq!(tidy(2), 2, "a pass has a limit");
    }
}
