//! Blocks of PyTorch's allocator: cut from segments, linked to their neighbours, cached in
//! ordered sets while free.

use std::collections::{BTreeSet, HashSet};

/// Index of a block in [`Heap`].
pub(super) type Index = u32;
/// No neighbour.
pub(super) const NONE: Index = u32::MAX;

/// What a block is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Cached: in its pool's set of free blocks.
    Free,
    /// Handed out, or freed while other streams still use it. Not merged.
    Taken,
    /// Address space of an expandable segment without memory behind it.
    Unmapped,
}

/// Requests up to 1 MiB and larger ones never share a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Small,
    Large,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub address: u64,
    pub size: u64,
    pub stream: u32,
    pub class: Class,
    pub state: State,
    pub prev: Index,
    pub next: Index,
    /// Searches its pool had seen when it was cached: its age counts from there.
    pub cached_at: u64,
}

/// Free blocks of one class in the order in which they are searched.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// (stream, size, address, block)
    pub free: BTreeSet<(u32, u64, u64, Index)>,
    /// (stream, address, block)
    pub unmapped: BTreeSet<(u32, u64, Index)>,
    /// Searches made, the clock of garbage collection.
    pub searches: u64,
}

/// All blocks, by index, and the two pools.
#[derive(Debug, Default)]
pub(super) struct Heap {
    blocks: Vec<Block>,
    unused: Vec<Index>,
    pools: [Pool; 2],
}

impl Block {
    /// True when it shares its segment with another block.
    pub(super) fn is_split(&self) -> bool {
        self.prev != NONE || self.next != NONE
    }
}

impl Heap {
    pub(super) fn pool(&self, class: Class) -> &Pool {
        &self.pools[class as usize]
    }

    pub(super) fn pool_mut(&mut self, class: Class) -> &mut Pool {
        &mut self.pools[class as usize]
    }

    pub(super) fn get(&self, index: Index) -> &Block {
        &self.blocks[index as usize]
    }

    pub(super) fn get_mut(&mut self, index: Index) -> &mut Block {
        &mut self.blocks[index as usize]
    }

    /// The block before or after, if there is one.
    pub(super) fn neighbour(&self, index: Index) -> Option<&Block> {
        self.blocks.get(index as usize)
    }

    /// A block alone in a new segment, in no set.
    pub(super) fn segment(
        &mut self,
        address: u64,
        size: u64,
        stream: u32,
        class: Class,
        state: State,
    ) -> Index {
        let block =
            Block { address, size, stream, class, state, prev: NONE, next: NONE, cached_at: 0 };
        self.insert(block)
    }

    /// Forgets a block that is in no set and has no neighbour.
    pub(super) fn drop_segment(&mut self, index: Index) {
        debug_assert!(!self.get(index).is_split());
        self.unused.push(index);
    }

    /// Puts a block in the set of its state.
    pub(super) fn cache(&mut self, index: Index, state: State) {
        let searches = self.pool(self.get(index).class).searches;
        let block = self.get_mut(index);
        block.state = state;
        block.cached_at = searches;
        let Block { stream, size, address, class, .. } = *block;
        let pool = self.pool_mut(class);
        match state {
            State::Free => _ = pool.free.insert((stream, size, address, index)),
            State::Unmapped => _ = pool.unmapped.insert((stream, address, index)),
            State::Taken => {}
        }
    }

    /// Takes a block out of the set of its state.
    pub(super) fn uncache(&mut self, index: Index) {
        let Block { stream, size, address, class, state, .. } = *self.get(index);
        let pool = self.pool_mut(class);
        match state {
            State::Free => _ = pool.free.remove(&(stream, size, address, index)),
            State::Unmapped => _ = pool.unmapped.remove(&(stream, address, index)),
            State::Taken => {}
        }
        self.get_mut(index).state = State::Taken;
    }

    /// Cuts an uncached block at `size` bytes; the rest, in no set, follows it.
    pub(super) fn cut(&mut self, index: Index, size: u64) -> Index {
        let first = *self.get(index);
        debug_assert!(size > 0 && size < first.size);
        let rest = self.insert(Block {
            address: first.address.wrapping_add(size),
            size: first.size - size,
            prev: index,
            ..first
        });
        if first.next != NONE {
            self.get_mut(first.next).prev = rest;
        }
        let block = self.get_mut(index);
        (block.size, block.next) = (size, rest);
        rest
    }

    /// Grows an uncached block over each neighbour that is in `state`.
    pub(super) fn merge_neighbours(&mut self, index: Index, state: State) {
        let Block { prev, next, .. } = *self.get(index);
        if self.neighbour(prev).is_some_and(|b| b.state == state) {
            self.uncache(prev);
            let before = *self.get(prev);
            let block = self.get_mut(index);
            block.address = before.address;
            block.size += before.size;
            block.prev = before.prev;
            if before.prev != NONE {
                self.get_mut(before.prev).next = index;
            }
            self.unused.push(prev);
        }
        if self.neighbour(next).is_some_and(|b| b.state == state) {
            self.uncache(next);
            let after = *self.get(next);
            let block = self.get_mut(index);
            block.size += after.size;
            block.next = after.next;
            if after.next != NONE {
                self.get_mut(after.next).prev = index;
            }
            self.unused.push(next);
        }
    }

    /// Every block that exists.
    pub(super) fn indices_in_use(&self) -> impl Iterator<Item = Index> {
        let unused: HashSet<Index> = self.unused.iter().copied().collect();
        (0..self.blocks.len() as Index).filter(move |index| !unused.contains(index))
    }

    /// The first block of every segment.
    pub(super) fn segment_starts(&self) -> impl Iterator<Item = Index> {
        self.indices_in_use().filter(|index| self.get(*index).prev == NONE)
    }

    /// The block after one, in its segment.
    pub(super) fn following(&self, index: Index) -> Option<Index> {
        Some(self.get(index).next).filter(|next| *next != NONE)
    }

    fn insert(&mut self, block: Block) -> Index {
        if let Some(index) = self.unused.pop() {
            *self.get_mut(index) = block;
            return index;
        }
        self.blocks.push(block);
        // Four billion blocks do not fit in memory, so the cast cannot cut.
        (self.blocks.len() - 1) as Index
    }
}
