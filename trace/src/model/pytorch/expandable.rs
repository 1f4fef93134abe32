//! Expandable segments: one address range per stream and class, backed handle by handle.

use super::heap::{Block, Class, Index, State};
use super::{Pytorch, SegmentOp};

/// Address space of a segment on a device without limit, bytes.
const ADDRESS_SPACE: u64 = 1 << 50;

impl Pytorch {
    /// A block's size together with the unmapped range right behind it.
    pub(super) fn expandable_size(&self, index: Index) -> u64 {
        let block = self.heap.get(index);
        let behind = self.heap.neighbour(block.next).filter(|b| b.state == State::Unmapped);
        block.size + behind.map_or(0, |b| b.size)
    }

    /// Maps until `size` bytes are free in a row, at the lowest hole that can hold them. What
    /// was mapped before a refusal stays.
    pub(super) fn expand(&mut self, size: u64, stream: u32, class: Class) -> Option<Index> {
        let mut block = self.expandable_hole(size, stream, class);
        if self.heap.get(block).state == State::Unmapped {
            let bytes = self.heap.get(block).size.min(size);
            block = self.map(block, bytes)?;
        }
        while self.heap.get(block).size < size {
            let Block { size: have, next, .. } = *self.heap.get(block);
            let bytes = self.heap.neighbour(next)?.size.min(size - have);
            block = self.map(next, bytes)?;
        }
        self.heap.uncache(block);
        Some(block)
    }

    /// The lowest unmapped range that, with free and unmapped neighbours, can hold `size`
    /// bytes; starts at a free block before it. A new segment where there is none.
    fn expandable_hole(&mut self, size: u64, stream: u32, class: Class) -> Index {
        let unmapped = self.heap.pool(class).unmapped.range((stream, 0, 0)..);
        for &(_, _, index) in unmapped.take_while(|key| key.0 == stream) {
            let prev = self.heap.get(index).prev;
            let before = self.heap.neighbour(prev).filter(|b| b.state == State::Free);
            let start = if before.is_some() { prev } else { index };
            if self.room_from(start, size) {
                return start;
            }
        }
        let handle = self.handle_size(class);
        let total = self.driver.capacity().min(ADDRESS_SPACE);
        let bytes = (total + total / 8).max(size).next_multiple_of(handle);
        let address = self.driver.reserve_range(bytes, handle);
        let index = self.heap.segment(address, bytes, stream, class, State::Unmapped);
        self.heap.cache(index, State::Unmapped);
        index
    }

    fn room_from(&self, start: Index, size: u64) -> bool {
        let mut bytes = 0;
        let mut at = start;
        while let Some(block) = self.heap.neighbour(at).filter(|b| b.state != State::Taken) {
            bytes += block.size;
            if bytes >= size {
                return true;
            }
            at = block.next;
        }
        false
    }

    /// Maps the handles that cover the first `bytes` of an unmapped block, merges them with
    /// free neighbours and returns that free block, cached.
    fn map(&mut self, index: Index, bytes: u64) -> Option<Index> {
        let Block { address, size, stream, class, .. } = *self.heap.get(index);
        let mapped = bytes.next_multiple_of(self.handle_size(class)).min(size);
        if !self.driver.take(mapped) {
            return None;
        }
        self.heap.uncache(index);
        if mapped < size {
            let rest = self.heap.cut(index, mapped);
            self.heap.cache(rest, State::Unmapped);
        }
        self.note(SegmentOp::Map, address, mapped, stream);
        self.heap.merge_neighbours(index, State::Free);
        self.heap.cache(index, State::Free);
        Some(index)
    }

    /// Unmaps every handle that lies wholly in a free block.
    pub(super) fn unmap_free(&mut self, class: Class) {
        let handle = self.handle_size(class);
        let free: Vec<Index> = self.heap.pool(class).free.iter().map(|key| key.3).collect();
        for index in free {
            self.unmap(index, handle);
        }
    }

    fn unmap(&mut self, index: Index, handle: u64) {
        let Block { address, size, stream, .. } = *self.heap.get(index);
        let begin = address.next_multiple_of(handle);
        let end = (address + size) / handle * handle;
        if begin >= end {
            return;
        }
        self.heap.uncache(index);
        let mut middle = index;
        if begin > address {
            middle = self.heap.cut(index, begin - address);
            self.heap.cache(index, State::Free);
        }
        if end < address + size {
            let after = self.heap.cut(middle, end - begin);
            self.heap.cache(after, State::Free);
        }
        self.driver.give_back(end - begin);
        self.note(SegmentOp::Unmap, begin, end - begin, stream);
        self.heap.merge_neighbours(middle, State::Unmapped);
        if self.heap.get(middle).is_split() {
            self.heap.cache(middle, State::Unmapped);
        } else {
            self.heap.drop_segment(middle);
        }
    }

    fn handle_size(&self, class: Class) -> u64 {
        match class {
            Class::Small => self.config.small_segment_bytes,
            Class::Large => self.config.large_segment_bytes,
        }
    }
}
