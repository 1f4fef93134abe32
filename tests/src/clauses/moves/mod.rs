//! Live blocks that move.

mod asked;
mod course;
mod remap;

use terrane_core::compact::{Goal, Why};
use terrane_core::device::StreamId;
use terrane_core::{Config, Error, Growth, Handle, Limit, PassReport, Request};

use super::allocator;
use super::blocks::{paint, spoilt};
use crate::clause::{Clause, Need, Outcome, Stop, equal};
use crate::rig::Rig;
use crate::subject::Subject;

use Need::{Busy, Capture, Compute, HostVisible, Paging, Views};

pub(super) const CLAUSES: &[Clause] = &[
    allocator(
        "moves.contents",
        "Compaction brings free memory together, and every block keeps its contents and handle.",
        &[Compute],
        "Allocator::compact",
        course::contents,
    ),
    allocator(
        "moves.slides",
        "A block that slides over its own old place keeps its contents.",
        &[Compute],
        "compact::Chain",
        course::slides,
    ),
    allocator(
        "moves.flip",
        "A block is at its new place from the submission of its copy on, before the copy is done.",
        &[Busy],
        "DESIGN 4.3",
        course::flip,
    ),
    allocator(
        "moves.write-after",
        "What is written to a block between its copy and the end of its pass is not lost.",
        &[Busy, Compute],
        "DESIGN 4.3",
        course::write_after,
    ),
    allocator(
        "moves.held",
        "Blocks that are held, mapped or made not to move stay, and the report says why.",
        &[HostVisible],
        "PassReport::refused",
        asked::held,
    ),
    allocator(
        "moves.open-submission",
        "A block that is resolved in an open submission does not move before that is closed.",
        &[],
        "Submission::resolve",
        course::open_submission,
    ),
    allocator(
        "moves.resolved-meanwhile",
        "A move whose block is held between its reservation and its submission is cancelled.",
        &[],
        "Verdict::Cancelled",
        course::resolved_meanwhile,
    ),
    allocator(
        "moves.cancel",
        "A pass that ends before it submits leaves everything as it was.",
        &[],
        "Compactor::end_pass",
        course::cancel,
    ),
    allocator(
        "moves.dropped",
        "A block freed while it moves is dropped, and its bytes wait for the copy.",
        &[Busy],
        "Verdict::Dropped",
        course::dropped,
    ),
    allocator(
        "moves.freed-before",
        "A block freed between its reservation and its submission is dropped.",
        &[],
        "Verdict::Dropped",
        course::freed_before,
    ),
    allocator(
        "moves.limits",
        "A pass moves no more bytes and blocks than its limits say.",
        &[],
        "compact::Limits",
        course::limits,
    ),
    allocator(
        "moves.background",
        "A pass in the background reaches the goal too, a few copies at a time.",
        &[Compute],
        "Mode::Background",
        course::background,
    ),
    allocator(
        "moves.shortage",
        "A request that finds no room has blocks moved for it, and gets it.",
        &[Compute],
        "DESIGN 4.2",
        course::shortage,
    ),
    allocator(
        "moves.release",
        "Segments are emptied, so that they can be given back.",
        &[Compute],
        "Goal::Release",
        course::release,
    ),
    allocator(
        "moves.raw",
        "A block whose raw handle is kept moves only when the program agrees.",
        &[Compute],
        "Compactor::offers",
        asked::raw,
    ),
    allocator(
        "moves.views",
        "A block with a view object gets a new one at its new place, if the program agrees.",
        &[Views],
        "Compactor::offers",
        asked::views,
    ),
    allocator(
        "moves.verified",
        "Verified moves keep their old place until the checksums are compared, and pass.",
        &[Compute],
        "Config::verify_moves",
        asked::verified,
    ),
    allocator(
        "moves.off",
        "Moves can be switched off.",
        &[],
        "Config::moves, Error::MovesOff",
        asked::off,
    ),
    allocator(
        "moves.captured",
        "A block that a captured graph uses does not move.",
        &[Capture],
        "DESIGN 4.2",
        asked::captured,
    ),
    allocator(
        "moves.events",
        "Every move is told by events: reserved, submitted, and what became of it.",
        &[],
        "EventKind::MoveSubmitted",
        asked::events,
    ),
    allocator(
        "moves.remap",
        "A block that is remapped keeps its contents; its pages go along, its ends alone are copied.",
        &[Paging, Compute],
        "PassReport::remaps",
        remap::remap,
    ),
    allocator(
        "moves.remap-in-use",
        "What work writes through the old place of a remapped block is seen at the new one.",
        &[Paging, Busy, Compute],
        "Paging, PassReport::remaps",
        remap::remap_in_use,
    ),
    allocator(
        "moves.remap-faults",
        "A block that is remapped stays whole whichever call fails, and moves once it works again.",
        &[Paging, Compute],
        "PassReport::remaps",
        remap::remap_faults,
    ),
];

/// Bytes of a block on the board.
const UNIT: u64 = 256 << 10;
const BLOCKS: usize = 16;
/// Free bytes in one piece.
const HALF: Goal = Goal::Contiguous { bytes: 8 * UNIT, align: 1 };

/// A segment of 16 blocks, of which every second was freed.
struct Board {
    alloc: Subject,
    stream: StreamId,
    blocks: Vec<Handle>,
}

fn configure(config: &mut Config) {
    // Blocks move in plain segments; in a paged space pages do.
    config.paging = false;
    config.small_max = 0;
    let bytes = BLOCKS as u64 * UNIT;
    config.growth = Growth::Proportional { min_bytes: bytes, max_bytes: bytes };
    config.limits = vec![Limit::Bytes(bytes)];
}

impl Board {
    fn new(rig: &Rig) -> Result<Self, Stop> {
        Self::with(rig, |_| {}, |request| request)
    }

    fn with(
        rig: &Rig,
        turn: impl FnOnce(&mut Config),
        ask: impl Fn(Request<'static>) -> Request<'static>,
    ) -> Result<Self, Stop> {
        let stream = rig.stream()?;
        let alloc = rig.alloc_with(|config| {
            configure(config);
            turn(config);
        })?;
        let mut blocks = Vec::new();
        for _ in 0..BLOCKS {
            blocks.push(alloc.alloc(&ask(Request::new(UNIT, stream)))?.handle);
        }
        let board = Self { alloc, stream, blocks };
        if rig.caps().compute {
            for (seed, &block) in (1..).zip(&board.blocks) {
                paint(rig, &board.alloc, stream, block, seed)?;
            }
        }
        for &block in board.blocks.iter().skip(1).step_by(2) {
            board.alloc.free(block)?;
        }
        rig.wait(rig.device().mark(stream)?)?;
        Ok(board)
    }

    /// The blocks that are live, with their seeds.
    fn live(&self) -> impl Iterator<Item = (u64, Handle)> + '_ {
        (1..).zip(&self.blocks).step_by(2).map(|(seed, &block)| (seed, block))
    }

    fn offsets(&self) -> Result<Vec<u64>, Stop> {
        let offset = |(_, block)| Ok(self.alloc.info(block)?.place.offset);
        self.live().map(offset).collect()
    }

    /// The painted contents of all live blocks, and the books.
    fn assert_whole(&self, rig: &Rig) -> Outcome {
        if rig.caps().compute {
            for (seed, block) in self.live() {
                let words = spoilt(rig, &self.alloc, self.stream, block, seed)?;
                equal!(words, 0, "spoilt words of block {seed}");
            }
        }
        self.check()
    }

    fn check(&self) -> Outcome {
        self.alloc.check().map_err(Stop::failed)
    }

    fn end(self) -> Outcome {
        for (_, block) in self.live() {
            match self.alloc.free(block) {
                Ok(()) | Err(Error::DoubleFree | Error::StaleHandle) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.check()
    }

    fn moved(&self, before: &[u64]) -> Result<usize, Stop> {
        Ok(self.offsets()?.iter().zip(before).filter(|(now, then)| now != then).count())
    }
}

fn refused(report: &PassReport, why: Why) -> u64 {
    report.refused.iter().find(|(it, _)| *it == why).map_or(0, |(_, refused)| refused.blocks)
}
