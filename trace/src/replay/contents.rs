//! Filling and verifying blocks by kernels, in batches.
//!
//! A block is filled at the latest when something else is about to be done with it, and verified
//! at the moment of its free: the verification is submitted first, then the block is freed in
//! stream order behind it. Results are taken when they are there, so many batches are in flight.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use terrane_core::device::{Device, DeviceError, Region, Ticket, pattern};
use terrane_core::point::StreamId;
use terrane_core::{Allocator, Error, Handle};

use super::ReplayError;

/// Blocks of one kernel run.
const BATCH_BLOCKS: usize = 64;
/// Bytes after which a batch is submitted though more blocks would fit.
const BATCH_BYTES: u64 = 256 << 20;
/// Verifications whose results may be outstanding.
const TICKETS_MAX: usize = 64;
/// The longest wait for one batch.
const HUNG: Duration = Duration::from_secs(120);

/// A live block with contents.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filled {
    pub block: u32,
    pub handle: Handle,
    /// Bytes with a pattern, a multiple of 4.
    pub bytes: u64,
}

/// Blocks that wait for one kernel run on one stream.
#[derive(Default)]
struct Batch {
    blocks: Vec<Filled>,
    bytes: u64,
}

impl Batch {
    fn push(&mut self, filled: Filled) -> bool {
        self.blocks.push(filled);
        self.bytes += filled.bytes;
        self.blocks.len() >= BATCH_BLOCKS || self.bytes >= BATCH_BYTES
    }

    fn take(&mut self) -> Vec<Filled> {
        self.bytes = 0;
        std::mem::take(&mut self.blocks)
    }
}

/// The contents of all live blocks and what is known about them.
pub(super) struct Contents {
    device: Arc<dyn Device>,
    streams: Vec<StreamId>,
    to_fill: Vec<Batch>,
    to_verify: Vec<Batch>,
    /// Whether the block waits in `to_fill`, by block.
    unfilled: Vec<bool>,
    tickets: VecDeque<Ticket>,
    damage: Damage,
    pub verified_bytes: u64,
    pub mismatches: u64,
    /// Time spent in freeing blocks.
    pub freeing: Duration,
}

impl Contents {
    pub fn new(device: Arc<dyn Device>, streams: &[StreamId], blocks: u32, corrupt: u64) -> Self {
        let batches = || streams.iter().map(|_| Batch::default()).collect();
        Self {
            device,
            to_fill: batches(),
            to_verify: batches(),
            streams: streams.to_vec(),
            unfilled: vec![false; blocks as usize],
            tickets: VecDeque::new(),
            damage: Damage { wanted: corrupt, done: 0, blocks: blocks.into(), seen: 0 },
            verified_bytes: 0,
            mismatches: 0,
            freeing: Duration::ZERO,
        }
    }

    /// Takes in a new block, to be filled on its own stream.
    pub fn fill(
        &mut self,
        alloc: &Allocator,
        lane: usize,
        filled: Filled,
    ) -> Result<(), ReplayError> {
        self.unfilled[filled.block as usize] = true;
        if self.to_fill[lane].push(filled) {
            self.flush_fills(alloc, lane)?;
        }
        Ok(())
    }

    /// Takes a block to be verified on stream `on` (it was filled on `lane`) and then freed.
    pub fn verify_and_free(
        &mut self,
        alloc: &Allocator,
        lane: usize,
        on: usize,
        filled: Filled,
    ) -> Result<(), ReplayError> {
        if self.unfilled[filled.block as usize] {
            self.flush_fills(alloc, lane)?;
        }
        if self.to_verify[on].push(filled) {
            self.flush_verifies(alloc, on, true)?;
        }
        Ok(())
    }

    /// Submits all verifications that wait and frees their blocks: due before the next request,
    /// which may need their memory.
    pub fn flush_frees(&mut self, alloc: &Allocator) -> Result<(), ReplayError> {
        for on in 0..self.streams.len() {
            self.flush_verifies(alloc, on, true)?;
        }
        Ok(())
    }

    /// Verifies blocks that live to the end, and waits for all results.
    pub fn finish(
        &mut self,
        alloc: &Allocator,
        live: impl Iterator<Item = (usize, Filled)>,
    ) -> Result<(), ReplayError> {
        self.flush_frees(alloc)?;
        for (lane, filled) in live {
            if self.unfilled[filled.block as usize] {
                self.flush_fills(alloc, lane)?;
            }
            if self.to_verify[lane].push(filled) {
                self.flush_verifies(alloc, lane, false)?;
            }
        }
        for on in 0..self.streams.len() {
            self.flush_verifies(alloc, on, false)?;
        }
        while !self.tickets.is_empty() {
            self.take_oldest()?;
        }
        let Damage { wanted: asked, done: damaged, .. } = self.damage;
        if damaged < asked {
            return Err(ReplayError::CorruptedTooFew { asked, damaged });
        }
        Ok(())
    }

    fn flush_fills(&mut self, alloc: &Allocator, lane: usize) -> Result<(), ReplayError> {
        let batch = self.to_fill[lane].take();
        if batch.is_empty() {
            return Ok(());
        }
        let stream = self.streams[lane];
        let mut submission = alloc.submit(stream);
        let regions = regions(&batch, |handle| submission.resolve(handle))?;
        let point = compute(&*self.device)?.fill_pattern(stream, &regions)?;
        submission.close_at(point);
        for filled in batch {
            self.unfilled[filled.block as usize] = false;
            if self.damage.is_next() {
                damage(alloc, stream, filled)?;
            }
        }
        Ok(())
    }

    fn flush_verifies(
        &mut self,
        alloc: &Allocator,
        on: usize,
        free: bool,
    ) -> Result<(), ReplayError> {
        let batch = self.to_verify[on].take();
        if batch.is_empty() {
            return Ok(());
        }
        let stream = self.streams[on];
        let mut submission = alloc.submit(stream);
        let regions = regions(&batch, |handle| submission.resolve(handle))?;
        let ticket = compute(&*self.device)?.verify(stream, &regions)?;
        submission.close_at(ticket.point);
        self.verified_bytes += regions.iter().map(|region| region.bytes).sum::<u64>();
        self.tickets.push_back(ticket);
        if free {
            let start = Instant::now();
            for filled in batch {
                alloc.free(filled.handle).map_err(ReplayError::Open)?;
            }
            self.freeing += start.elapsed();
        }
        self.take_finished()
    }

    /// Takes results that are there, and waits for the oldest when too many are not.
    fn take_finished(&mut self) -> Result<(), ReplayError> {
        while let Some(ticket) = self.tickets.front() {
            let done = self.device.reached(ticket.point.stream)? >= ticket.point.value;
            if !done && self.tickets.len() <= TICKETS_MAX {
                break;
            }
            self.take_oldest()?;
        }
        Ok(())
    }

    fn take_oldest(&mut self) -> Result<(), ReplayError> {
        let Some(ticket) = self.tickets.pop_front() else { return Ok(()) };
        if !self.device.wait_any(&[ticket.point], HUNG)? {
            return Err(ReplayError::Hung { seconds: HUNG.as_secs() });
        }
        let report = compute(&*self.device)?.take_report(ticket)?;
        self.mismatches += report.iter().filter(|wrong| **wrong > 0).count() as u64;
        Ok(())
    }
}

fn compute(device: &dyn Device) -> Result<&dyn terrane_core::device::Compute, ReplayError> {
    let missing = DeviceError::Unsupported(terrane_core::device::Feature::Compute);
    device.compute().ok_or(ReplayError::Device(missing))
}

fn regions(
    batch: &[Filled],
    mut resolve: impl FnMut(Handle) -> Result<terrane_core::Resolved, Error>,
) -> Result<Vec<Region>, ReplayError> {
    let region = |filled: &Filled| {
        let place = resolve(filled.handle)?.place;
        Ok(Region { place, bytes: filled.bytes, seed: seed(filled.block) })
    };
    batch.iter().map(region).collect::<Result<_, Error>>().map_err(ReplayError::Open)
}

/// The seed of a block's pattern: no two blocks have the same.
fn seed(block: u32) -> u64 {
    (u64::from(block) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Flips one bit in one byte of a filled block, by writing its word anew.
fn damage(alloc: &Allocator, stream: StreamId, filled: Filled) -> Result<(), ReplayError> {
    let words = filled.bytes / 4;
    let index = u64::from(filled.block).wrapping_mul(0x9E37_79B9) % words;
    let mut word = pattern::word(seed(filled.block), index).to_le_bytes();
    word[(filled.block % 4) as usize] ^= 0x10;
    alloc.write(stream, filled.handle, index * 4, &word).map_err(ReplayError::Open)?;
    Ok(())
}

/// Which blocks are damaged: as many as wanted, evenly over all that are filled.
struct Damage {
    wanted: u64,
    done: u64,
    blocks: u64,
    seen: u64,
}

impl Damage {
    fn is_next(&mut self) -> bool {
        let at = self.seen;
        self.seen += 1;
        let due = u128::from(self.done) * u128::from(self.blocks)
            <= u128::from(at) * u128::from(self.wanted);
        let next = due && self.done < self.wanted;
        self.done += u64::from(next);
        next
    }
}
