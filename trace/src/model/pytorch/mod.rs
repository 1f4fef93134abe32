//! PyTorch's CUDA caching allocator: its native rules and its expandable segments.
//!
//! A request is rounded up to 512 bytes and served by the best fit among the free blocks of its
//! own stream and class, which is split where the rest is worth keeping. Otherwise a segment is
//! made; where the driver refuses, cached segments are given back and it is asked once more.

#[cfg(test)]
mod check;
mod config;
mod expandable;
mod heap;
mod release;
mod state;

pub use config::PytorchConfig;
pub use state::{FreeBlock, PlacedBlock, PytorchState};

use super::driver::Driver;
use super::pending::Pending;
use super::table::Table;
use super::{Model, Placed, Request};
use config::{BLOCK_BYTES_MIN, MIB};
use heap::{Block, Class, Heap, Index, State};

/// Largest request of the small class.
const SMALL_BYTES_MAX: u64 = MIB;
/// Requests from here on get a segment of their own size.
const OWN_SEGMENT_BYTES_MIN: u64 = 10 * MIB;
/// Unit to which such segments are rounded up.
const OWN_SEGMENT_UNIT: u64 = 2 * MIB;

/// What the model did to segments, in order: comparable with a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentEvent {
    /// What happened.
    pub op: SegmentOp,
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Stream of the segment.
    pub stream: u32,
    /// The memory object of a page, by number; `None` where pages are not told one by one.
    pub object: Option<u64>,
}

/// Kinds of [`SegmentEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentOp {
    /// A segment was allocated.
    Alloc,
    /// A segment was freed.
    Free,
    /// Memory was mapped into an expandable segment.
    Map,
    /// Memory was unmapped from an expandable segment.
    Unmap,
}

/// A replayed PyTorch allocator.
#[derive(Debug)]
pub struct Pytorch {
    config: PytorchConfig,
    driver: Driver,
    heap: Heap,
    places: Table<Index>,
    /// Freed while other streams use them.
    pending: Pending,
    retries: u64,
    log: Option<Vec<SegmentEvent>>,
}

impl Pytorch {
    /// An empty allocator on a device with `capacity` bytes for it (`None`: no limit).
    #[must_use]
    pub fn new(config: PytorchConfig, capacity: Option<u64>) -> Self {
        Self {
            config,
            driver: Driver::new(capacity),
            heap: Heap::default(),
            places: Table::default(),
            pending: Pending::default(),
            retries: 0,
            log: None,
        }
    }

    /// New segments get these addresses, in order, as long as their sizes agree. The rules
    /// break ties by address, so a recording that has them is followed exactly.
    #[must_use]
    pub fn with_addresses(mut self, placed: impl IntoIterator<Item = Placed>) -> Self {
        self.driver = self.driver.with_addresses(placed);
        self
    }

    /// Keeps every segment event from now on, for [`Pytorch::segment_events`].
    #[must_use]
    pub fn logging_segments(mut self) -> Self {
        self.log = Some(Vec::new());
        self
    }

    /// The segment events kept.
    #[must_use]
    pub fn segment_events(&self) -> &[SegmentEvent] {
        self.log.as_deref().unwrap_or_default()
    }

    /// The ladder, in PyTorch's order. Returns an uncached block of at least `size` bytes.
    fn obtain(&mut self, size: u64, stream: u32) -> Option<Index> {
        let class = if size <= SMALL_BYTES_MAX { Class::Small } else { Class::Large };
        if let Some(found) = self.find(size, stream, class) {
            return Some(found);
        }
        if self.collects_garbage() {
            self.collect_garbage();
        }
        if let Some(made) = self.make(size, stream, class) {
            return Some(made);
        }
        if self.release_available(size, stream, class)
            && let Some(made) = self.make(size, stream, class)
        {
            return Some(made);
        }
        self.release_cached();
        self.retries += 1;
        self.make(size, stream, class)
    }

    /// Best fit among the free blocks of the stream and class.
    fn find(&mut self, size: u64, stream: u32, class: Class) -> Option<Index> {
        if self.collects_garbage() {
            self.heap.pool_mut(class).searches += 1;
        }
        let candidates = self.heap.pool(class).free.range((stream, size, 0, 0)..);
        let mut candidates = candidates.take_while(|key| key.0 == stream);
        let &(_, mut found_size, _, mut found) = candidates.next()?;
        if self.config.expandable_segments {
            // A block counts with the unmapped range behind it: a larger one that can grow less
            // is preferred.
            for &(_, next_size, _, next) in candidates {
                if self.expandable_size(next) >= self.expandable_size(found) {
                    break;
                }
                (found_size, found) = (next_size, next);
            }
        }
        let limit = self.config.max_split_bytes.unwrap_or(u64::MAX);
        let waste = self.config.max_non_split_rounding_bytes;
        let refused = if size < limit {
            found_size >= limit
        } else {
            found_size >= size.saturating_add(waste)
        };
        if refused {
            return None;
        }
        self.heap.uncache(found);
        Some(found)
    }

    /// A new segment, or more of an expandable one.
    fn make(&mut self, size: u64, stream: u32, class: Class) -> Option<Index> {
        let segment_size = self.segment_size(size);
        let after = self.driver.reserved().saturating_add(segment_size);
        if self.limited().is_some_and(|allowed| after > allowed) {
            return None;
        }
        if self.config.expandable_segments {
            return self.expand(size, stream, class);
        }
        let address = self.driver.take_segment(segment_size)?;
        self.note(SegmentOp::Alloc, address, segment_size, stream);
        Some(self.heap.segment(address, segment_size, stream, class, State::Taken))
    }

    fn segment_size(&self, size: u64) -> u64 {
        if size <= SMALL_BYTES_MAX {
            self.config.small_segment_bytes
        } else if size < OWN_SEGMENT_BYTES_MIN {
            self.config.large_segment_bytes.max(size.next_multiple_of(OWN_SEGMENT_UNIT))
        } else {
            size.next_multiple_of(OWN_SEGMENT_UNIT)
        }
    }

    /// Bytes that the process may reserve, if a fraction was set.
    fn limited(&self) -> Option<u64> {
        let fraction = self.config.memory_fraction;
        (fraction < 1.0).then(|| (self.driver.capacity() as f64 * fraction) as u64)
    }

    /// Gives back what the request does not need, if that is worth a block.
    fn split(&mut self, index: Index, size: u64) {
        let Block { size: whole, class, .. } = *self.heap.get(index);
        let rest = whole - size;
        let limit = self.config.max_split_bytes.unwrap_or(u64::MAX);
        let worth = match class {
            _ if self.config.expandable_segments => rest >= BLOCK_BYTES_MIN,
            Class::Small => rest >= BLOCK_BYTES_MIN,
            Class::Large => size < limit && rest > SMALL_BYTES_MAX,
        };
        if worth {
            let rest = self.heap.cut(index, size);
            self.heap.cache(rest, State::Free);
        }
    }

    fn free(&mut self, block: u32) {
        if let Some(index) = self.places.take(block) {
            self.heap.merge_neighbours(index, State::Free);
            self.heap.cache(index, State::Free);
        }
    }

    fn note(&mut self, op: SegmentOp, address: u64, bytes: u64, stream: u32) {
        if let Some(log) = &mut self.log {
            log.push(SegmentEvent { op, address, bytes, stream, object: None });
        }
    }

    /// Completes every pending free, as a synchronization does.
    fn synchronize(&mut self) {
        for block in self.pending.complete_all() {
            self.free(block);
        }
    }
}

impl Model for Pytorch {
    fn alloc(&mut self, request: Request) -> bool {
        let Some(size) = self.config.rounded(request.bytes) else { return false };
        let Some(index) = self.obtain(size, request.stream) else { return false };
        self.split(index, size);
        self.places.set(request.block, index);
        true
    }

    fn free_requested(&mut self, block: u32) {
        self.pending.request(block);
    }

    fn free_completed(&mut self, block: u32) {
        if self.pending.complete(block) {
            self.free(block);
        }
    }

    fn reserved(&self) -> u64 {
        self.driver.reserved()
    }

    fn retries(&self) -> u64 {
        self.retries
    }
}
