//! The order in which blocks were cut out of holes.

use crate::id::Key;

/// Blocks that are noted at most.
const NOTED: usize = 64;

/// The blocks that were cut out of holes since the indices last changed otherwise, in order. The
/// first ones are live, the others are on the shelf, that which was freed first at the end.
#[derive(Debug)]
pub(super) struct Order {
    live: usize,
    len: usize,
    noted: [(Key, u16); NOTED],
}

impl Order {
    pub const fn new() -> Self {
        Self { live: 0, len: 0, noted: [(Key::from_bits(0), 0); NOTED] }
    }

    /// Notes a block that was cut out of a hole, and its bin. Pre: nothing is on the shelf.
    pub fn note(&mut self, block: Key, bin: usize) {
        if self.live == NOTED {
            self.noted.copy_within(NOTED / 2.., 0);
            self.live = NOTED / 2;
        }
        self.noted[self.live] = (block, bin as u16);
        self.live += 1;
        self.len = self.live;
    }

    /// The bin in which a block is kept, if it is its turn.
    #[inline(always)]
    pub fn turn_of(&self, block: Key) -> Option<usize> {
        let &(key, bin) = self.noted.get(self.live.wrapping_sub(1))?;
        (key == block).then_some(usize::from(bin))
    }

    /// The block whose turn it was is kept.
    #[inline(always)]
    pub const fn keep(&mut self) {
        self.live -= 1;
    }

    /// The bin of the block kept last.
    #[inline(always)]
    pub fn next(&self) -> Option<usize> {
        let &(_, bin) = self.noted.get(self.live)?;
        (self.live < self.len).then_some(usize::from(bin))
    }

    /// The block kept last is taken, under a new name.
    #[inline(always)]
    pub fn take(&mut self, name: Key) {
        if let Some(noted) = self.noted.get_mut(self.live) {
            noted.0 = name;
            self.live += 1;
        }
    }

    /// The bin of the block that was freed first, which is put back.
    pub fn put_back(&mut self) -> Option<usize> {
        if self.live == self.len {
            return None;
        }
        self.len -= 1;
        Some(usize::from(self.noted[self.len].1))
    }

    /// Forgets the live blocks: the indices are about to change. Pre: nothing is on the shelf.
    #[inline(always)]
    pub const fn forget(&mut self) {
        (self.live, self.len) = (0, 0);
    }
}
