//! Rows of the tables beside charts: moves, and bytes over time.

use super::table::{Head, Key, Rows, head};
use crate::units;
use crate::window::document::Selected;
use crate::window::model::{Column, Recording};

/// Moves of the whole run, in order.
pub struct Moves<'a> {
    /// Whose.
    pub recording: &'a Recording,
}

/// What the words of [`MoveKind`](terrane_core::event::MoveKind) say.
pub const MEANS: &str = "copied: its bytes went to a free range; slid: they went to a place that \
may overlap the old one; remapped: the memory itself is mapped elsewhere; rebound: it stays, on \
other memory";

const MOVE_HEADS: [Head; 7] = [
    head("event", "how many events came before", 76.0, true),
    head("from", "the first address of the old place", 122.0, false),
    head("to", "the first address of the new place", 122.0, false),
    head("bytes", "bytes after rounding", 84.0, true),
    head("how", MEANS, 84.0, false),
    head("stream", "the stream that owns the block", 96.0, false),
    head("site", "where the block was allocated", 160.0, false),
];

impl Rows for Moves<'_> {
    fn heads(&self) -> &'static [Head] {
        &MOVE_HEADS
    }

    fn count(&self) -> usize {
        self.recording.moves.len()
    }

    fn text(&self, row: usize, column: usize) -> String {
        let one = &self.recording.moves[row];
        let (from, to) =
            (&self.recording.blocks[one.from as usize], &self.recording.blocks[one.to as usize]);
        match column {
            0 => units::count(u64::from(one.at)),
            1 => format!("{:#x}", from.address),
            2 => format!("{:#x}", to.address),
            3 => units::bytes(to.bytes),
            4 => one.by.text().to_owned(),
            5 => self.recording.stream(to.stream).to_owned(),
            _ => crate::window::model::short_site(self.recording.site(to)).to_owned(),
        }
    }

    fn exact(&self, row: usize, column: usize) -> String {
        let one = &self.recording.moves[row];
        let to = &self.recording.blocks[one.to as usize];
        match column {
            0 => one.at.to_string(),
            3 => to.bytes.to_string(),
            6 => self.recording.site(to).to_owned(),
            _ => self.text(row, column),
        }
    }

    fn key(&self, row: usize, column: usize) -> Key {
        let one = &self.recording.moves[row];
        let block = |number: u32| &self.recording.blocks[number as usize];
        match column {
            0 => Key::Number(u64::from(one.at)),
            1 => Key::Number(block(one.from).address),
            2 => Key::Number(block(one.to).address),
            3 => Key::Number(block(one.to).bytes),
            5 => Key::Number(u64::from(block(one.to).stream)),
            _ => Key::Text(self.text(row, column)),
        }
    }

    fn range(&self, row: usize) -> Option<(u64, u64)> {
        let to = &self.recording.blocks[self.recording.moves[row].to as usize];
        Some((to.address, to.bytes))
    }

    fn pick(&self, row: usize) -> Option<Selected> {
        Some(Selected::Block(self.recording.moves[row].to))
    }
}

/// Bytes over the whole run, in equal parts of it.
pub struct Course<'a> {
    /// Whose.
    pub recording: &'a Recording,
    /// The largest bytes in each part.
    pub columns: &'a [Column],
}

/// Parts of a run.
const PARTS: u64 = 500;

/// The largest bytes in each of at most so many parts of a run.
pub fn course(recording: &Recording) -> Vec<Column> {
    let end = u64::from(recording.end());
    let parts = PARTS.min(end.max(1));
    let edges: Vec<u32> = (0..=parts).map(|part| (end * part / parts) as u32).collect();
    recording.series.columns(&edges, &recording.events, &recording.blocks)
}

const COURSE_HEADS: [Head; 6] = [
    head("most at event", "where the active bytes of this part of the run were most", 96.0, true),
    head("time", "since the start", 96.0, true),
    head("requested", "the most bytes asked for by live blocks", 92.0, true),
    head("active", "the most with freed blocks that are still in use", 92.0, true),
    head("reserved", "the most bytes of segments", 92.0, true),
    head("limit", "the most that may be reserved, where that is known", 92.0, true),
];

impl Course<'_> {
    fn limit(&self, row: usize) -> u64 {
        self.recording.limits_at(self.columns[row].at).map_or(0, |row| row.limit)
    }
}

impl Rows for Course<'_> {
    fn heads(&self) -> &'static [Head] {
        &COURSE_HEADS
    }

    fn count(&self) -> usize {
        self.columns.len()
    }

    fn text(&self, row: usize, column: usize) -> String {
        let part = &self.columns[row];
        match column {
            0 => units::count(u64::from(part.at)),
            1 => format!("{:.3} ms", self.recording.time_us(part.at) as f64 / 1e3),
            2..=4 => units::bytes(part.max[column - 2]),
            _ if self.limit(row) == 0 => "not known".to_owned(),
            _ => units::bytes(self.limit(row)),
        }
    }

    fn exact(&self, row: usize, column: usize) -> String {
        let part = &self.columns[row];
        match column {
            0 => part.at.to_string(),
            1 => format!("{} us", self.recording.time_us(part.at)),
            2..=4 => part.max[column - 2].to_string(),
            _ if self.limit(row) == 0 => String::new(),
            _ => self.limit(row).to_string(),
        }
    }

    fn key(&self, row: usize, column: usize) -> Key {
        let part = &self.columns[row];
        Key::Number(match column {
            0 | 1 => u64::from(part.at),
            2..=4 => part.max[column - 2],
            _ => self.limit(row),
        })
    }

    fn range(&self, row: usize) -> Option<(u64, u64)> {
        Some((0, self.columns[row].max[1]))
    }

    fn pick(&self, row: usize) -> Option<Selected> {
        // A row is a moment, which a click goes to.
        Some(Selected::Block(self.columns[row].at))
    }
}
