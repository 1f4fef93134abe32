//! Frees that were requested and have not completed.

use super::table::Table;
use std::collections::BTreeMap;

/// Blocks whose free was requested, in that order.
#[derive(Debug, Default)]
pub(super) struct Pending {
    in_order: BTreeMap<u64, u32>,
    at: Table<u64>,
    sequence: u64,
}

impl Pending {
    pub(super) fn request(&mut self, block: u32) {
        self.sequence += 1;
        self.in_order.insert(self.sequence, block);
        self.at.set(block, self.sequence);
    }

    /// True when the block was pending still: a synchronization completes frees early.
    pub(super) fn complete(&mut self, block: u32) -> bool {
        self.at.take(block).and_then(|sequence| self.in_order.remove(&sequence)).is_some()
    }

    /// The pending blocks, in the order of their requests.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.in_order.values().copied()
    }

    /// Completes all, as waiting for every stream does.
    pub(super) fn complete_all(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.in_order).into_values().collect()
    }
}
