//! Work on streams, and what freed blocks wait for: only traces of our own tell of it.

use std::collections::{HashMap, VecDeque};

use terrane_trace::snapshot::{Happened, Happening};

use super::{NEVER, Recording, WaitRow};

/// Work that was submitted to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkRow {
    /// Events before it.
    pub at: u32,
    /// First moment at which the allocator knew it to be done, or [`NEVER`].
    pub done: u32,
    /// Index into [`Recording::streams`].
    pub stream: u32,
    /// Its number on the stream.
    pub value: u64,
    /// Bytes of the blocks that it uses.
    pub bytes: u64,
}

/// What a freed block is in use until.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PendingRow {
    /// The block, an index into [`Recording::blocks`].
    pub block: u32,
    /// The stream that still uses it.
    pub behind: u32,
    /// The number of the last work on that stream that does.
    pub value: u64,
}

/// The number of what a captured graph may do again until it is released.
const BY_A_GRAPH: u64 = u64::MAX - 1;

impl PendingRow {
    /// In words.
    pub fn text(&self, recording: &Recording) -> String {
        let stream = recording.stream(self.behind);
        match self.value {
            BY_A_GRAPH => format!("{stream}: a graph that is not released"),
            value => format!("{stream}, work {value}"),
        }
    }
}

impl Recording {
    /// What a freed block waits for.
    pub fn awaited_by(&self, block: u32) -> &[PendingRow] {
        let first = self.pending.partition_point(|row| row.block < block);
        let after = self.pending.partition_point(|row| row.block <= block);
        &self.pending[first..after]
    }

    /// The same in words; empty where nothing is known.
    pub fn awaited_text(&self, block: u32) -> String {
        let texts: Vec<String> = self.awaited_by(block).iter().map(|row| row.text(self)).collect();
        texts.join("; ")
    }
}

/// Takes in work as it is submitted and found to be done, and what waits.
#[derive(Debug, Default)]
pub(super) struct WorkBook {
    pub rows: Vec<WorkRow>,
    pub waits: Vec<WaitRow>,
    pub pending: Vec<PendingRow>,
    /// By stream, the rows of work that is not known to be done.
    open: HashMap<u32, VecDeque<usize>>,
}

impl WorkBook {
    /// Takes in what happened after so many events, to a block's row if to one.
    pub fn take(&mut self, at: u32, happening: &Happening, row: Option<u32>) {
        let stream = happening.stream;
        match (happening.what, row) {
            (Happened::WaitFor(behind), _) => {
                self.waits.push(WaitRow { at, behind, stream, by_work: false });
            }
            (Happened::WorkWaitsFor(behind), _) => {
                self.waits.push(WaitRow { at, behind, stream, by_work: true });
            }
            (Happened::Submitted(value), _) => {
                self.submitted(at, stream, value, happening.bytes);
            }
            (Happened::Reached(value), _) => self.reached(at, stream, value),
            (Happened::FreeWaits { behind, value }, Some(block)) => {
                self.pending.push(PendingRow { block, behind, value });
            }
            _ => {}
        }
    }

    fn submitted(&mut self, at: u32, stream: u32, value: u64, bytes: u64) {
        self.open.entry(stream).or_default().push_back(self.rows.len());
        self.rows.push(WorkRow { at, done: NEVER, stream, value, bytes });
    }

    fn reached(&mut self, at: u32, stream: u32, value: u64) {
        let Some(open) = self.open.get_mut(&stream) else { return };
        let rows = &mut self.rows;
        // Streams do their work in order, but two threads may tell of it in another.
        open.retain(|row| {
            let is_done = rows[*row].value <= value;
            if is_done {
                rows[*row].done = at;
            }
            !is_done
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_when_its_stream_has_reached_it_and_others_are_not() {
        let mut book = WorkBook::default();
        book.submitted(1, 0, 5, 100);
        book.submitted(2, 0, 6, 100);
        book.submitted(2, 1, 5, 100);
        book.reached(4, 0, 5);
        book.reached(7, 2, 99);
        let done: Vec<u32> = book.rows.iter().map(|row| row.done).collect();
        assert_eq!(done, [4, NEVER, NEVER]);
    }
}
