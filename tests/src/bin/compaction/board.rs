//! A heap in which every second block was freed.

use std::cell::Cell;

use terrane_core::device::{Compute, HeapId, Region, StreamId, StreamSpec, SyncPoint};
use terrane_core::{Allocator, Config, Growth, Handle, Limit, Request};

use crate::{Outcome, Shared, wait};

/// Sizes spread evenly over their logarithms, from the smallest to so many times it.
const SPREAD: f64 = 256.0;
/// The smallest block, where there is room for all.
const SMALLEST: f64 = 65_536.0;
const MIB: u64 = 1 << 20;

/// What a checkerboard is to be.
#[derive(Clone, Copy)]
pub struct Plan {
    pub blocks: u64,
    /// The most bytes of all segments.
    pub heap: u64,
    /// Segments at least.
    pub segments: u64,
    /// Workgroups that copy in the background.
    pub groups: u32,
    /// Bytes that they copy in a second; 0 for as many as they can.
    pub rate: u64,
}

/// The live half of the blocks, on an allocator of their own.
pub struct Board {
    pub alloc: Allocator,
    pub stream: StreamId,
    pub live: Vec<(Handle, u64)>,
    pub heap: u64,
    pub segments: u64,
    pub largest_block: u64,
}

/// The sizes of all blocks: the same for the same number of blocks and the same room.
fn sizes(blocks: u64, smallest: f64) -> Vec<u64> {
    let mut random = 1_u64;
    let size = |_| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let part = (random >> 11) as f64 / (1_u64 << 53) as f64;
        ((smallest * SPREAD.powf(part)) as u64).next_multiple_of(256)
    };
    (0..blocks).map(size).collect()
}

impl Board {
    pub fn new(device: &Shared, plan: Plan) -> Outcome<Self> {
        let room = plan.heap.min(device.heap_use(HeapId(0))?.free / 2);
        // The mean of such sizes is 46 times the smallest.
        let smallest = (room as f64 / plan.blocks as f64 / 47.0).clamp(256.0, SMALLEST);
        let sizes = sizes(plan.blocks, smallest);
        let all: u64 = sizes.iter().sum();
        let largest_block = sizes.iter().copied().max().unwrap_or(0);
        let most = device.caps().max_plain_bytes / MIB * MIB;
        let segments = plan.segments.max(all.div_ceil(most.saturating_sub(largest_block).max(1)));
        let slack = if segments > 1 { largest_block } else { 0 };
        let segment = (all / segments + slack).next_multiple_of(2 * MIB).min(most);
        let mut config = Config::for_device(device.caps());
        config.paging = false;
        config.small_max = 0;
        config.growth = Growth::Proportional { min_bytes: segment, max_bytes: segment };
        config.limits = vec![Limit::Bytes(segment * segments)];
        config.background_groups = plan.groups;
        config.background_rate = plan.rate;
        let alloc = Allocator::with_config(device.clone(), config)?;
        let stream = device.create_stream(StreamSpec::default())?;
        let heap = segment * segments;
        let mut board = Self { alloc, stream, live: Vec::new(), heap, segments, largest_block };
        board.fill(&sizes)?;
        Ok(board)
    }

    fn fill(&mut self, sizes: &[u64]) -> Outcome<()> {
        let mut all = Vec::with_capacity(sizes.len());
        for &bytes in sizes {
            let request = Request::new(bytes, self.stream).wait(terrane_core::Wait::Never);
            match self.alloc.alloc(&request) {
                Ok(block) => all.push((block.handle, block.bytes)),
                Err(error) if error.is_transient() => break,
                Err(error) => return Err(error.into()),
            }
        }
        // All of them are written, the freed ones too: in a heap in use, a page was touched before.
        self.live = all;
        self.each(|compute, stream, regions| Ok(compute.fill_pattern(stream, regions)?))?;
        for (at, block) in std::mem::take(&mut self.live).into_iter().enumerate() {
            if at % 2 == 0 {
                self.live.push(block);
            } else {
                self.alloc.free(block.0)?;
            }
        }
        self.each(|compute, stream, regions| Ok(compute.fill_pattern(stream, regions)?))
    }

    /// Kernels over all blocks, some hundred at a time.
    fn each(
        &self,
        work: impl Fn(&dyn Compute, StreamId, &[Region]) -> Outcome<SyncPoint>,
    ) -> Outcome<()> {
        let compute = self.alloc.device().compute().ok_or("the device runs no kernels")?;
        let mut seed = 0;
        for blocks in self.live.chunks(256) {
            let mut submission = self.alloc.submit(self.stream);
            let mut regions = Vec::new();
            for (handle, bytes) in blocks {
                seed += 1;
                let place = submission.resolve(*handle)?.place;
                regions.push(Region { place, bytes: *bytes, seed });
            }
            let point = work(compute, self.stream, &regions)?;
            submission.close_at(point);
            wait(&**self.alloc.device(), point)?;
        }
        Ok(())
    }

    /// Words of all blocks that are not what was written.
    pub fn mismatches(&self) -> Outcome<u64> {
        let words = Cell::new(0);
        self.each(|compute, stream, regions| {
            let ticket = compute.verify(stream, regions)?;
            wait(&**self.alloc.device(), ticket.point)?;
            words.set(words.get() + compute.take_report(ticket)?.iter().sum::<u64>());
            Ok(ticket.point)
        })?;
        Ok(words.get())
    }

    pub fn end(self) -> Outcome<()> {
        for (handle, _) in &self.live {
            self.alloc.free(*handle)?;
        }
        self.alloc.release_cached()?;
        Ok(self.alloc.retire_stream(self.stream)?)
    }
}
