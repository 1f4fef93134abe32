//! What a trace of our own tells beside blocks and segments: moves, waits, mappings, limits.

use std::collections::{BTreeMap, HashMap};

use terrane_trace::snapshot::{Happened as What, Happening};

use super::hold::HoldBook;
use super::work::WorkBook;
use super::{
    BlockRow, EventRow, GapRow, Hold, HoldRow, LimitRow, Move, NEVER, PassNote, PendingRow,
    Refusal, StaleRow, WaitRow, WorkRow,
};

/// What happened, in order.
#[derive(Debug, Default)]
pub struct Happened {
    /// Blocks that changed their place.
    pub moves: Vec<Move>,
    /// Streams that waited.
    pub waits: Vec<WaitRow>,
    /// Where events were lost.
    pub gaps: Vec<GapRow>,
    /// Work.
    pub work: Vec<WorkRow>,
    /// What passes of moves told.
    pub passes: Vec<PassNote>,
    /// Changes of what holds blocks, by block.
    pub holds: Vec<HoldRow>,
    /// What freed blocks waited for.
    pub pending: Vec<PendingRow>,
    /// Old mappings.
    pub stale: Vec<StaleRow>,
    /// Limits.
    pub limits: Vec<LimitRow>,
}

/// Takes in what happened. A block that moves is a row for each place: the old one ends where the
/// new one begins, and events that follow are about the new one.
pub fn take_happenings(
    happenings: &[Happening],
    events: &mut [EventRow],
    blocks: &mut Vec<BlockRow>,
) -> Happened {
    let mut found = Happened::default();
    // Rows of the blocks that moved, by their number.
    let mut now: HashMap<u32, u32> = HashMap::new();
    let mut holds = HoldBook::of(blocks);
    // Stale mappings that stand, by address.
    let mut standing: HashMap<u64, usize> = HashMap::new();
    let mut work = WorkBook::default();
    // Blocks and bytes that the pass under way did not move, by the number of the reason.
    let mut refusals = BTreeMap::new();
    let mut asked = String::new();
    let mut next = 0;
    for happening in happenings {
        let at = u32::try_from(happening.before_event).unwrap_or(NEVER - 1);
        redirect(&mut events[next..], &now, at as usize - next.min(at as usize));
        next = next.max(at as usize).min(events.len());
        let row = happening.block.map(|block| now.get(&block).copied().unwrap_or(block));
        let row = row.filter(|row| (*row as usize) < blocks.len());
        match (happening.what, row) {
            (What::MoveSubmitted(by), Some(from)) => {
                let to = move_row(blocks, from, happening.address, at);
                holds.moved(blocks, from, to);
                now.extend(happening.block.map(|block| (block, to)));
                found.moves.push(Move { at, before: at.saturating_sub(1), from, to, by });
            }
            (What::MoveRefused { why, blocks: refused }, row) => {
                holds.refused(blocks, row, why);
                let sum: &mut (u64, u64) = refusals.entry(why).or_default();
                sum.0 += u64::from(refused);
                sum.1 = sum.1.saturating_add(happening.bytes);
            }
            (What::Hold(code), Some(block)) => holds.changes(block, at, Hold::of_told(code)),
            (what @ (What::PassGoal { .. } | What::PassLimits { .. }), _) => {
                note_asked(&mut asked, what, happening.bytes);
            }
            (What::PassEnd(moved), _) => {
                let note = pass_note(at, moved, happening.bytes, &mut refusals);
                found.passes.push(PassNote { asked: std::mem::take(&mut asked), ..note });
            }
            (What::MappingStale, _) => {
                standing.insert(happening.address, found.stale.len());
                let (address, bytes) = (happening.address, happening.bytes);
                found.stale.push(StaleRow { address, bytes, born: at, gone: NEVER });
            }
            (What::MappingGone, _) => {
                if let Some(index) = standing.remove(&happening.address) {
                    found.stale[index].gone = at;
                }
            }
            (What::Lost(lost), _) => {
                found.gaps.push(GapRow { at, lost });
                // Nobody tells any more which of them stand.
                standing.drain().for_each(|(_, index)| found.stale[index].gone = at);
            }
            (What::LimitSet, _) => {
                found.limits.push(LimitRow { at, limit: happening.bytes, ..LimitRow::default() });
            }
            _ => work.take(at, happening, row),
        }
    }
    redirect(&mut events[next..], &now, usize::MAX);
    work.pending.sort_unstable();
    found.holds = holds.finish();
    (found.work, found.waits, found.pending) = (work.rows, work.waits, work.pending);
    found
}

/// What a pass told, with what it did not move.
fn pass_note(at: u32, moved: u32, bytes: u64, refusals: &mut BTreeMap<u8, (u64, u64)>) -> PassNote {
    let refused = std::mem::take(refusals).into_iter().map(|(why, (blocks, bytes))| Refusal {
        why: Hold::Refused(why).text().to_owned(),
        blocks,
        bytes,
    });
    let moved = crate::text::counted(u64::from(moved), "block", "blocks");
    let text = format!("{moved}, {} moved", crate::units::bytes(bytes));
    PassNote { at, asked: String::new(), refused: refused.collect(), text }
}

/// Takes in what a pass is to reach, or what it may spend.
fn note_asked(asked: &mut String, what: What, bytes: u64) {
    use crate::units;
    match what {
        What::PassGoal { number, kind, background } => {
            let goal = match kind {
                1 => format!("room for {}", units::bytes(number)),
                2 if number == u64::MAX => "give segments back".to_owned(),
                2 => format!("give {} back", units::bytes(number)),
                3 => format!("fragmentation of at most {:.1} %", number as f64 / 1e4),
                _ => "a goal of another version".to_owned(),
            };
            let mode = if background { "in the background" } else { "full speed" };
            *asked = format!("goal: {goal}; {mode}");
        }
        What::PassLimits { moves, ticks } => {
            let told = |limit: u64, text: String| (limit < u64::MAX / 2).then_some(text);
            let limits = [
                told(bytes, units::bytes(bytes)),
                told(moves, crate::text::counted(moves, "block", "blocks")),
                told(ticks, format!("{:.0} ms", ticks as f64 / 1e6)),
            ];
            let limits: Vec<String> = limits.into_iter().flatten().collect();
            *asked += &match limits.is_empty() {
                true => "; no limits".to_owned(),
                false => format!("; at most {}", limits.join(", ")),
            };
        }
        _ => {}
    }
}

/// Makes events be about the rows that blocks have by now.
fn redirect(events: &mut [EventRow], now: &HashMap<u32, u32>, count: usize) {
    if now.is_empty() {
        return;
    }
    for event in events.iter_mut().take(count) {
        if let Some(row) = now.get(&event.block) {
            event.block = *row;
        }
    }
}

/// Ends a block's row at its old place and begins one at its new place.
fn move_row(blocks: &mut Vec<BlockRow>, from: u32, address: u64, at: u32) -> u32 {
    let to = blocks.len() as u32;
    let old = &mut blocks[from as usize];
    let new = BlockRow { address, born: at.max(old.born), ..*old };
    // The free, if there is one, is of the block at its new place.
    (old.freed, old.gone) = (NEVER, new.born);
    blocks.push(new);
    to
}

/// Names of tags by number.
pub fn tags(named: &BTreeMap<u16, String>) -> Vec<String> {
    let most = named.keys().next_back().map_or(0, |last| usize::from(*last) + 1);
    let name = |tag: usize| u16::try_from(tag).ok().and_then(|tag| named.get(&tag));
    (0..most).map(|tag| name(tag).cloned().unwrap_or_default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::model::EventOp;
    use terrane_core::event::MoveKind;

    fn happening(before_event: usize, what: What, block: Option<u32>, address: u64) -> Happening {
        Happening { before_event, time_us: 0, what, stream: 1, bytes: 64, block, address }
    }

    #[test]
    fn a_block_that_moves_is_a_row_for_each_place_and_its_free_is_of_the_last() {
        let row = |address, gone| BlockRow {
            address,
            bytes: 64,
            requested: 64,
            born: 1,
            freed: gone - 1,
            gone,
            stream: 0,
            site: 0,
            stack: NEVER,
            tag: 3,
            hold: Hold::Unknown,
            kind: 0,
        };
        let event = |op| EventRow { time_us: 0, block: 0, op };
        let mut events = [EventOp::Alloc, EventOp::Freed, EventOp::Done].map(event).to_vec();
        let mut blocks = vec![row(1000, 3)];
        let happenings = [
            happening(1, What::MoveRefused { why: 2, blocks: 1 }, Some(0), 0),
            happening(1, What::MoveSubmitted(MoveKind::Copy), Some(0), 2000),
            happening(1, What::MoveSubmitted(MoveKind::Remap), Some(0), 3000),
            happening(2, What::WaitFor(4), None, 0),
            happening(2, What::MappingStale, None, 500),
            happening(3, What::MappingGone, None, 500),
            happening(9, What::MoveSubmitted(MoveKind::Copy), Some(77), 3000),
        ];
        let found = take_happenings(&happenings, &mut events, &mut blocks);
        assert_eq!(blocks.iter().map(|b| b.address).collect::<Vec<_>>(), [1000, 2000, 3000]);
        assert_eq!((blocks[0].gone, blocks[0].freed, blocks[0].hold), (1, NEVER, Hold::Movable));
        assert_eq!((blocks[2].born, blocks[2].freed, blocks[2].gone, blocks[2].tag), (1, 2, 3, 3));
        assert_eq!(events.iter().map(|event| event.block).collect::<Vec<_>>(), [0, 2, 2]);
        assert_eq!(found.moves[1], Move { at: 1, before: 0, from: 1, to: 2, by: MoveKind::Remap });
        assert_eq!(found.waits, [WaitRow { at: 2, behind: 4, stream: 1, by_work: false }]);
        assert_eq!((found.stale[0].born, found.stale[0].gone), (2, 3));
    }
}
