//! Moves of live blocks as places in one heap.

use std::ops::Range;

use terrane_core::event::MoveKind;

use super::{Moment, PartState, Recording};

/// A block's move within the heap as it was before a pass; places count over all segments one
/// behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    /// The block, an index into [`Recording::blocks`].
    pub block: u32,
    /// Where it was.
    pub from: u64,
    /// Where it goes.
    pub to: u64,
    /// Its bytes.
    pub bytes: u64,
    /// By what means.
    pub by: MoveKind,
}

/// Blocks that did not move, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// In words.
    pub why: String,
    /// How many.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a pass of compaction told about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassNote {
    /// Events before its end.
    pub at: u32,
    /// What it was to reach and might spend, in words; empty where that is not told.
    pub asked: String,
    /// What did not move.
    pub refused: Vec<Refusal>,
    /// In a sentence.
    pub text: String,
}

/// Moves with at most so many events between them are one pass.
const EVENTS: u32 = 3;

impl Recording {
    /// Passes of moves, each as the moments before and after it.
    pub fn move_ranges(&self) -> Vec<Range<u32>> {
        let mut passes: Vec<Range<u32>> = Vec::new();
        for one in &self.moves {
            match passes.last_mut() {
                Some(pass) if one.at <= pass.end + EVENTS => pass.end = one.at,
                _ => passes.push(one.before..one.at),
            }
        }
        passes
    }

    /// The moves of a pass, in order, as places in the heap before it. What has no place there (a
    /// new segment) is left out.
    pub fn shifts(&self, before: &Moment, pass: &Range<u32>) -> Vec<Shift> {
        let place = |address: u64| {
            let space = before
                .spaces
                .iter()
                .find(|space| space.address <= address && address - space.address < space.bytes)?;
            Some(space.start + (address - space.address))
        };
        let within = self.moves.iter().filter(|one| pass.start < one.at && one.at <= pass.end);
        within
            .filter_map(|one| {
                let from = self.blocks.get(one.from as usize)?;
                let to = self.blocks.get(one.to as usize)?;
                let (from_at, to_at) = (place(from.address)?, place(to.address)?);
                let (block, bytes, by) = (one.from, from.bytes, one.by);
                Some(Shift { block, from: from_at, to: to_at, bytes, by })
            })
            .collect()
    }
}

/// How many of the moves there are by each means, in words; nothing where that was not told.
pub fn means(kinds: impl Iterator<Item = MoveKind>) -> String {
    let mut counts = MoveKind::ALL.map(|kind| (kind, 0_u64));
    kinds.for_each(|by| counts.iter_mut().filter(|(kind, _)| *kind == by).for_each(|it| it.1 += 1));
    let told = counts.iter().any(|(kind, count)| *kind != MoveKind::Untold && *count > 0);
    let counts = counts.iter().filter(|(_, count)| told && *count > 0);
    let words =
        counts.map(|(kind, count)| format!("{} {}", crate::units::count(*count), kind.text()));
    words.collect::<Vec<_>>().join(", ")
}

/// The largest hole of a segment once all moves are done.
pub fn largest_hole_after(before: &Moment, moves: &[Shift]) -> u64 {
    let moved: std::collections::HashSet<u64> = moves.iter().map(|shift| shift.from).collect();
    let stay = before
        .parts
        .iter()
        .filter(|part| part.state != PartState::Free && !moved.contains(&part.start))
        .map(|part| (part.start, part.bytes));
    let mut taken: Vec<(u64, u64)> =
        stay.chain(moves.iter().map(|shift| (shift.to, shift.bytes))).collect();
    taken.sort_unstable();
    let mut largest = 0;
    let mut taken = taken.into_iter().peekable();
    for space in &before.spaces {
        let (mut at, end) = (space.start, space.start + space.bytes);
        while let Some((start, bytes)) = taken.next_if(|(start, _)| *start < end) {
            largest = largest.max(start.saturating_sub(at));
            at = at.max(start + bytes);
        }
        largest = largest.max(end.saturating_sub(at));
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::model::{BlockRow, NEVER, PoolKind, SegmentRow};

    fn recording(blocks: &[(u64, u64)]) -> Recording {
        let block = |&(address, bytes): &(u64, u64)| BlockRow::kept(address, bytes);
        let segment = SegmentRow {
            address: 1000,
            bytes: 100,
            born: 0,
            gone: NEVER,
            stream: 0,
            pool: PoolKind::Unknown,
            object: None,
        };
        Recording::for_tests(blocks.iter().map(block).collect(), vec![segment])
    }

    #[test]
    fn moving_the_block_in_the_middle_joins_two_holes() {
        let recording = recording(&[(1000, 10), (1050, 10)]);
        let before = Moment::of(&recording, 0);
        assert_eq!(before.largest_free, 40);
        let shift = Shift { block: 1, from: 50, to: 10, bytes: 10, by: MoveKind::Copy };
        assert_eq!(largest_hole_after(&before, &[shift]), 80);
        assert_eq!(largest_hole_after(&before, &[]), 40);
    }
}
