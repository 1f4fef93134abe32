//! What a replayed allocator holds at the moment.

use super::Pytorch;
use super::heap::{Class, State};

/// A free block: cached, and usable by requests of its stream and class only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeBlock {
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Stream that may use it.
    pub stream: u32,
    /// True when it serves requests above 1 MiB, false for those up to it.
    pub large: bool,
    /// True when it is a whole segment, which could be given back.
    pub whole_segment: bool,
}

/// Sums over everything held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PytorchState {
    /// Bytes of live blocks, after rounding: "allocated by PyTorch".
    pub allocated_bytes: u64,
    /// Bytes freed by the program and still in use by other streams.
    pub pending_bytes: u64,
    /// Bytes of free blocks: "reserved by PyTorch but unallocated", less the pending ones.
    pub free_bytes: u64,
    /// Bytes obtained from the driver.
    pub reserved_bytes: u64,
}

/// A live or pending block, or what separates two of them, for a walk by address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedBlock {
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Stream of its segment.
    pub stream: u32,
    /// True when it serves requests above 1 MiB.
    pub large: bool,
    /// True when it is cached.
    pub free: bool,
    /// Number of its segment in this walk.
    pub segment: u32,
}

impl Pytorch {
    /// All free blocks, by class, stream and size.
    pub fn free_blocks(&self) -> impl Iterator<Item = FreeBlock> {
        let keys = [Class::Small, Class::Large].into_iter().flat_map(|c| &self.heap.pool(c).free);
        keys.map(|key| {
            let block = self.heap.get(key.3);
            FreeBlock {
                address: block.address,
                bytes: block.size,
                stream: block.stream,
                large: block.class == Class::Large,
                whole_segment: !block.is_split(),
            }
        })
    }

    /// Sums over everything held.
    #[must_use]
    pub fn state(&self) -> PytorchState {
        let free_bytes = self.free_blocks().map(|block| block.bytes).sum();
        let pending = self.pending.iter().filter_map(|block| self.places.get(block));
        let pending_bytes = pending.map(|index| self.heap.get(*index).size).sum();
        let reserved_bytes = self.driver.reserved();
        let allocated_bytes = reserved_bytes - free_bytes - pending_bytes;
        PytorchState { allocated_bytes, pending_bytes, free_bytes, reserved_bytes }
    }

    /// Every mapped block of every segment, in order of address within each segment.
    #[must_use]
    pub fn placed_blocks(&self) -> Vec<PlacedBlock> {
        let mut blocks = Vec::new();
        for (segment, first) in (0..).zip(self.heap.segment_starts()) {
            let mut at = Some(first);
            while let Some(index) = at {
                let block = self.heap.get(index);
                if block.state != State::Unmapped {
                    blocks.push(PlacedBlock {
                        address: block.address,
                        bytes: block.size,
                        stream: block.stream,
                        large: block.class == Class::Large,
                        free: block.state == State::Free,
                        segment,
                    });
                }
                at = self.heap.following(index);
            }
        }
        blocks
    }

    /// Where a block of the trace lies now: its address and its bytes after rounding.
    #[must_use]
    pub fn place_of(&self, block: u32) -> Option<(u64, u64)> {
        let index = self.places.get(block)?;
        let block = self.heap.get(*index);
        Some((block.address, block.size))
    }

    /// What a request is rounded up to, and the segment that would be made for it; `None` above
    /// the largest request there is.
    #[must_use]
    pub fn sizes_for(&self, bytes: u64) -> Option<(u64, u64)> {
        let rounded = self.config.rounded(bytes)?;
        Some((rounded, self.segment_size(rounded)))
    }
}
