//! Vulkan Memory Allocator: blocks of a preferred size that start small, dedicated memory for
//! what is large, one empty block kept.

use super::driver::Driver;
use super::extents::{Extent, Extents, Ranges};
use super::table::Table;
use super::{Model, Request, SpecError, Validation};
use std::collections::{BTreeMap, BTreeSet};

/// Alignment assumed for every request, bytes.
const ALIGNMENT: u64 = 256;
/// Halvings of the preferred size that a first block starts from.
const HALVINGS_MAX: u32 = 3;
/// On smaller heaps a block is an eighth of the heap.
const SMALL_HEAP_BYTES: u64 = 1 << 30;

/// Options of VMA.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VmaConfig {
    /// Preferred block size; `None`: 256 MiB, or an eighth of a heap of 1 GiB or less.
    pub block_bytes: Option<u64>,
}

impl VmaConfig {
    pub(super) const VALIDATION: Validation = Validation::NotValidated {
        assumes: "best fit in place of TLSF's bins, 256-byte alignment, and buffers only",
    };

    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<(), SpecError> {
        let parsed = value.parse::<u64>().ok().filter(|n| *n > 0);
        match key {
            "block_mb" => {
                let bytes = parsed.and_then(|n| n.checked_mul(1 << 20));
                let refuse = || SpecError::value(key, value, "a whole number of MiB above 0");
                self.block_bytes = Some(bytes.ok_or_else(refuse)?);
                Ok(())
            }
            _ => Err(SpecError::key(key)),
        }
    }
}

#[derive(Debug)]
struct MemoryBlock {
    bytes: u64,
    free: Extents,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Dedicated(u64),
    Within { block: u64, extent: Extent },
}

/// A replayed VMA with one memory type.
#[derive(Debug)]
pub(super) struct Vma {
    driver: Driver,
    preferred: u64,
    ranges: Ranges,
    /// By address.
    blocks: BTreeMap<u64, MemoryBlock>,
    /// (free bytes, address): the fullest block is tried first.
    by_free: BTreeSet<(u64, u64)>,
    places: Table<Place>,
}

impl Vma {
    pub(super) fn new(config: &VmaConfig, capacity: Option<u64>) -> Self {
        let heap = capacity.unwrap_or(u64::MAX);
        let usual = if heap <= SMALL_HEAP_BYTES { heap / 8 } else { 256 << 20 };
        Self {
            driver: Driver::new(capacity),
            preferred: config.block_bytes.unwrap_or(usual).next_multiple_of(32),
            ranges: Ranges::default(),
            blocks: BTreeMap::new(),
            by_free: BTreeSet::new(),
            places: Table::default(),
        }
    }

    fn obtain(&mut self, bytes: u64) -> Option<Place> {
        // VMA prefers memory of its own for what takes more than half a block.
        if bytes > self.preferred / 2 {
            return self.dedicated(bytes).or_else(|| self.within(bytes));
        }
        self.within(bytes).or_else(|| self.dedicated(bytes))
    }

    fn dedicated(&mut self, bytes: u64) -> Option<Place> {
        self.driver.take(bytes).then_some(Place::Dedicated(bytes))
    }

    fn within(&mut self, bytes: u64) -> Option<Place> {
        let fullest = self.by_free.range((bytes, 0)..).map(|key| key.1);
        let existing = fullest
            .into_iter()
            .find(|at| self.blocks.get(at).is_some_and(|block| block.free.fits(bytes)));
        let block = match existing {
            Some(address) => address,
            None => self.new_block(bytes)?,
        };
        let memory = self.blocks.get_mut(&block)?;
        let found = memory.free.best_fit(bytes)?;
        self.by_free.remove(&(memory.free.bytes(), block));
        let extent = memory.free.take(found, bytes);
        self.by_free.insert((memory.free.bytes(), block));
        Some(Place::Within { block, extent })
    }

    /// Starts below the preferred size while no block is larger, and halves on refusal.
    fn new_block(&mut self, bytes: u64) -> Option<u64> {
        if bytes > self.preferred {
            return None;
        }
        let largest = self.blocks.values().map(|block| block.bytes).max().unwrap_or(0);
        let mut size = self.preferred;
        let mut halvings = 0;
        while halvings < HALVINGS_MAX && size / 2 > largest && size / 2 >= bytes.saturating_mul(2) {
            size /= 2;
            halvings += 1;
        }
        while !self.driver.take(size) {
            if halvings == HALVINGS_MAX || size / 2 < bytes {
                return None;
            }
            size /= 2;
            halvings += 1;
        }
        let range = self.ranges.new_range(size)?;
        self.blocks.insert(range.address, MemoryBlock { bytes: size, free: Extents::with(range) });
        self.by_free.insert((size, range.address));
        Some(range.address)
    }

    fn free_within(&mut self, block: u64, extent: Extent) {
        let had_empty = self.an_empty_block();
        let Some(memory) = self.blocks.get_mut(&block) else { return };
        self.by_free.remove(&(memory.free.bytes(), block));
        memory.free.insert(extent);
        self.by_free.insert((memory.free.bytes(), block));
        let became_empty = memory.free.bytes() == memory.bytes;
        if let Some(empty) = had_empty {
            self.drop_block(if became_empty { block } else { empty });
        }
    }

    /// An empty block, if there is one; at most one is kept.
    fn an_empty_block(&self) -> Option<u64> {
        let empty = |at: &&u64| self.blocks[*at].free.bytes() == self.blocks[*at].bytes;
        self.blocks.keys().find(empty).copied()
    }

    fn drop_block(&mut self, address: u64) {
        if let Some(memory) = self.blocks.remove(&address) {
            self.by_free.remove(&(memory.free.bytes(), address));
            self.driver.give_back(memory.bytes);
        }
    }
}

impl Model for Vma {
    fn alloc(&mut self, request: Request) -> bool {
        let Some(bytes) = request.bytes.checked_next_multiple_of(ALIGNMENT) else { return false };
        let place = self.obtain(bytes);
        place.map(|place| self.places.set(request.block, place)).is_some()
    }

    fn free_requested(&mut self, _block: u32) {}

    fn free_completed(&mut self, block: u32) {
        match self.places.take(block) {
            Some(Place::Dedicated(bytes)) => self.driver.give_back(bytes),
            Some(Place::Within { block, extent }) => self.free_within(block, extent),
            None => {}
        }
    }

    fn reserved(&self) -> u64 {
        self.driver.reserved()
    }
}
