//! Whether a block can be moved, and what holds it in place where it can not.

use std::collections::HashMap;

use super::{BlockRow, Recording};

/// What holds a block in place has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HoldRow {
    /// The block, an index into [`Recording::blocks`].
    pub block: u32,
    /// Events before it.
    pub at: u32,
    /// What holds it from here on.
    pub hold: Hold,
}

/// What is known about whether a block can be moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hold {
    /// The recording does not tell, and no pass of moves said so.
    #[default]
    Unknown,
    /// It was moved, or nothing holds it.
    Movable,
    /// Why it is not moved, by the number of [`terrane_core::compact::Why`].
    Refused(u8),
}

impl Hold {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Unknown => "not told, and no pass tried it",
            Self::Movable => "movable",
            Self::Refused(why) => terrane_core::compact::Why::of_code(why)
                .map_or("held, for a reason of another version", |why| why.text()),
        }
    }

    /// As traces tell it of a block.
    pub const fn of_told(code: u8) -> Self {
        match code {
            0 => Self::Unknown,
            1 => Self::Movable,
            more => Self::Refused(more - 1),
        }
    }

    /// A number for each.
    pub fn code(self) -> u32 {
        match self {
            Self::Unknown => 0,
            Self::Movable => 1,
            Self::Refused(why) => 2 + u32::from(why),
        }
    }

    /// What [`code`](Self::code) gave the number of.
    pub fn of_code(code: u32) -> Self {
        match code {
            0 => Self::Unknown,
            1 => Self::Movable,
            code => Self::Refused(u8::try_from(code - 2).unwrap_or(u8::MAX)),
        }
    }
}

impl Recording {
    /// What holds a block in place at a moment.
    pub fn hold(&self, block: u32, at: u32) -> Hold {
        let after = self.holds.partition_point(|row| (row.block, row.at) <= (block, at));
        let last = after.checked_sub(1).map(|last| self.holds[last]);
        let made = || self.blocks.get(block as usize).map_or(Hold::Unknown, |block| block.hold);
        last.filter(|row| row.block == block).map_or_else(made, |row| row.hold)
    }
}

/// What holds the rows of blocks, while a recording is walked.
pub struct HoldBook {
    /// Whether the recording tells it of each block; else passes of moves do.
    is_told: bool,
    /// What holds rows by now, of those of which it has changed.
    now: HashMap<u32, Hold>,
    rows: Vec<HoldRow>,
}

impl HoldBook {
    /// Before anything has changed.
    pub fn of(blocks: &[BlockRow]) -> Self {
        let is_told = blocks.iter().any(|block| block.hold != Hold::Unknown);
        Self { is_told, now: HashMap::new(), rows: Vec::new() }
    }

    /// A row takes another one's block over at its new place.
    pub fn moved(&mut self, blocks: &mut [BlockRow], from: u32, to: u32) {
        if !self.is_told {
            // It was moved.
            blocks[from as usize].hold = Hold::Movable;
            blocks[to as usize].hold = Hold::Movable;
        } else if let Some(hold) = self.now.remove(&from) {
            blocks[to as usize].hold = hold;
        }
    }

    /// A pass did not move a block.
    pub fn refused(&self, blocks: &mut [BlockRow], row: Option<u32>, why: u8) {
        if let Some(row) = row.filter(|_| !self.is_told) {
            blocks[row as usize].hold = Hold::Refused(why);
        }
    }

    /// It is told what holds a block from now on.
    pub fn changes(&mut self, block: u32, at: u32, hold: Hold) {
        self.now.insert(block, hold);
        self.rows.push(HoldRow { block, at, hold });
    }

    /// All changes, by block; of several at one moment the last one holds.
    pub fn finish(mut self) -> Vec<HoldRow> {
        self.rows.sort_by_key(|row| (row.block, row.at));
        self.rows
    }
}
