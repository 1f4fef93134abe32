//! Rows of the tables of pending blocks, and of work and waits.

use super::table::{Head, Key, Rows, head};
use crate::units;
use crate::window::document::Selected;
use crate::window::model::{NEVER, Recording, WaitRow, WorkRow};

/// Freed blocks of a moment that work still uses.
pub struct Pending<'a> {
    /// Whose.
    pub recording: &'a Recording,
    /// The blocks.
    pub blocks: &'a [u32],
}

const PENDING_HEADS: [Head; 6] = [
    head("address", "first address", 122.0, false),
    head("bytes", "bytes after rounding", 84.0, true),
    head("stream", "the stream that owns it", 96.0, false),
    head("freed", "the event that asked for its free", 70.0, true),
    head("waits for", "the work that still uses it, where that was recorded", 200.0, false),
    head("site", "where in the program it was allocated", 160.0, false),
];

impl Rows for Pending<'_> {
    fn heads(&self) -> &'static [Head] {
        &PENDING_HEADS
    }

    fn count(&self) -> usize {
        self.blocks.len()
    }

    fn text(&self, row: usize, column: usize) -> String {
        let block = &self.recording.blocks[self.blocks[row] as usize];
        match column {
            0 => format!("{:#x}", block.address),
            1 => units::bytes(block.bytes),
            2 => self.recording.stream(block.stream).to_owned(),
            3 => units::count(u64::from(block.freed)),
            4 => match self.recording.awaited_text(self.blocks[row]) {
                text if text.is_empty() => "not recorded".to_owned(),
                text => text,
            },
            _ => crate::window::model::short_site(self.recording.site(block)).to_owned(),
        }
    }

    fn exact(&self, row: usize, column: usize) -> String {
        let block = &self.recording.blocks[self.blocks[row] as usize];
        match column {
            1 => block.bytes.to_string(),
            3 => block.freed.to_string(),
            5 => self.recording.site(block).to_owned(),
            _ => self.text(row, column),
        }
    }

    fn key(&self, row: usize, column: usize) -> Key {
        let block = &self.recording.blocks[self.blocks[row] as usize];
        match column {
            0 => Key::Number(block.address),
            1 => Key::Number(block.bytes),
            2 => Key::Number(u64::from(block.stream)),
            3 => Key::Number(u64::from(block.freed)),
            _ => Key::Text(self.text(row, column)),
        }
    }

    fn range(&self, row: usize) -> Option<(u64, u64)> {
        let block = &self.recording.blocks[self.blocks[row] as usize];
        Some((block.address, block.bytes))
    }

    fn pick(&self, row: usize) -> Option<Selected> {
        Some(Selected::Block(self.blocks[row]))
    }
}

/// Work and waits of the whole run, in order.
pub struct Work<'a> {
    /// Whose.
    pub recording: &'a Recording,
    /// Numbers of work, and behind them those of waits.
    pub order: &'a [u32],
}

/// A row of it.
enum Row<'a> {
    Work(&'a WorkRow),
    Wait(&'a WaitRow),
}

const WORK_HEADS: [Head; 7] = [
    head("event", "how many events came before", 76.0, true),
    head("time", "since the start, of the event before", 96.0, true),
    head("what", "what happened", 110.0, false),
    head("stream", "the stream that works or waits", 110.0, false),
    head("which", "the work's number on its stream, or who is waited for", 130.0, false),
    head("uses", "bytes of the blocks that the work uses", 84.0, true),
    head("known done", "the event at which the allocator knew it done", 84.0, true),
];

/// Work and waits in one order.
pub fn in_order(recording: &Recording) -> Vec<u32> {
    let works = recording.work.len() as u32;
    let mut order: Vec<u32> = (0..works + recording.waits.len() as u32).collect();
    let at = |number: u32| match number.checked_sub(works) {
        None => recording.work[number as usize].at,
        Some(wait) => recording.waits[wait as usize].at,
    };
    order.sort_by_key(|number| at(*number));
    order
}

impl Work<'_> {
    fn row(&self, row: usize) -> Row<'_> {
        let number = self.order[row] as usize;
        match number.checked_sub(self.recording.work.len()) {
            None => Row::Work(&self.recording.work[number]),
            Some(wait) => Row::Wait(&self.recording.waits[wait]),
        }
    }

    fn at(&self, row: usize) -> u32 {
        match self.row(row) {
            Row::Work(work) => work.at,
            Row::Wait(wait) => wait.at,
        }
    }

    fn stream(&self, row: usize) -> u32 {
        match self.row(row) {
            Row::Work(work) => work.stream,
            Row::Wait(wait) => wait.stream,
        }
    }
}

impl Rows for Work<'_> {
    fn heads(&self) -> &'static [Head] {
        &WORK_HEADS
    }

    fn count(&self) -> usize {
        self.order.len()
    }

    fn text(&self, row: usize, column: usize) -> String {
        match (column, self.row(row)) {
            (0, _) => units::count(u64::from(self.at(row))),
            (1, _) => format!("{:.3} ms", self.recording.time_us(self.at(row)) as f64 / 1e3),
            (2, Row::Work(_)) => "work submitted".to_owned(),
            (2, Row::Wait(wait)) if wait.by_work => "work waits".to_owned(),
            (2, Row::Wait(_)) => "request waits".to_owned(),
            (3, _) => self.recording.stream(self.stream(row)).to_owned(),
            (4, Row::Work(work)) => format!("work {}", work.value),
            (4, Row::Wait(wait)) => format!("for {}", self.recording.stream(wait.behind)),
            (5, Row::Work(work)) => units::bytes(work.bytes),
            (6, Row::Work(work)) if work.done == NEVER => "never".to_owned(),
            (6, Row::Work(work)) => units::count(u64::from(work.done)),
            _ => String::new(),
        }
    }

    fn exact(&self, row: usize, column: usize) -> String {
        match (column, self.row(row)) {
            (0, _) => self.at(row).to_string(),
            (1, _) => format!("{} us", self.recording.time_us(self.at(row))),
            (5, Row::Work(work)) => work.bytes.to_string(),
            (6, Row::Work(work)) if work.done != NEVER => work.done.to_string(),
            _ => self.text(row, column),
        }
    }

    fn key(&self, row: usize, column: usize) -> Key {
        match (column, self.row(row)) {
            (0 | 1, _) => Key::Number(u64::from(self.at(row))),
            (3, _) => Key::Number(u64::from(self.stream(row))),
            (5, Row::Work(work)) => Key::Number(work.bytes),
            (6, Row::Work(work)) => Key::Number(u64::from(work.done)),
            (5 | 6, Row::Wait(_)) => Key::Number(0),
            _ => Key::Text(self.text(row, column)),
        }
    }

    fn range(&self, row: usize) -> Option<(u64, u64)> {
        match self.row(row) {
            Row::Work(work) => Some((0, work.bytes)),
            Row::Wait(_) => None,
        }
    }

    fn pick(&self, row: usize) -> Option<Selected> {
        Some(Selected::Stream(self.stream(row)))
    }
}
