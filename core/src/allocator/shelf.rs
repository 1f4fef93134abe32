//! Blocks freed in the reverse order of their requests, kept beside the index for the next
//! request of the same size.
//!
//! A program that allocates and frees one size over and over, or whose short-lived blocks nest,
//! would cut blocks out of holes and join them again each time. Instead the last blocks that were
//! cut out of holes are noted. When the latest of them is freed first, and so on, each stays on
//! the *shelf*: to its pool it is still taken, while all counters and events say that it is free.
//! If the next request is of the size of the block that was shelved last, that is its place: with
//! all of the shelf in the index again, the index would be as it was when that block was placed,
//! and would place the request there once more. So nothing is placed otherwise than without a
//! shelf. (Freed behind new work of its stream, the block would be a hole by itself, of just the
//! size, which the index takes first, though not always.)
//!
//! Any other request and any other free empties the shelf first, and so does everyone who takes
//! the lock for anything but a request that hits, a free, or a hold: see
//! [`Inner::lock`](super::Inner::lock). Nobody else ever sees a shelved block.

use crate::device::ClassId;
use crate::id::Key;
use crate::point::{Points, StreamId, SyncPoint};
use crate::pool::{Now, PoolKey, Spot};
use crate::units::Align;

use super::state::State;

/// Blocks that are noted at most.
const PLACES: usize = 64;

/// A block that was cut out of a hole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    /// While it is live: its name.
    pub block: Key,
    pub pool: u16,
    pub key: PoolKey,
    pub spot: Spot,
    pub stream: StreamId,
    pub bytes: u64,
    pub align: Align,
    /// On the shelf: the last use on `stream`; 0 when all uses are over.
    pub value: u64,
    /// On the shelf: since when.
    pub freed: Now,
}

/// The blocks that were cut out of holes since the indices last changed otherwise, in order.
#[derive(Debug)]
pub(crate) struct Shelf {
    /// Whether whoever has the lock may put blocks here.
    pub open: bool,
    /// Those before are live, those from here on are on the shelf.
    live: usize,
    len: usize,
    noted: [Noted; PLACES],
}

impl Shelf {
    pub const fn new() -> Self {
        Self { open: false, live: 0, len: 0, noted: [Noted::NOTHING; PLACES] }
    }

    /// Notes a block that was cut out of a hole. Pre: the shelf is empty.
    pub fn note(&mut self, block: Noted) {
        if !self.open {
            return;
        }
        if self.live == PLACES {
            self.noted.copy_within(PLACES / 2.., 0);
            self.live = PLACES / 2;
        }
        self.noted[self.live] = block;
        self.live += 1;
        self.len = self.live;
    }

    /// The shelved block whose place a request is to have.
    #[inline(always)]
    pub fn find(&self, key: PoolKey, bytes: u64, align: Align, stream: StreamId) -> Option<&Noted> {
        if self.live == self.len {
            return None;
        }
        let block = self.noted.get(self.live)?;
        let same = block.bytes == bytes && block.stream == stream && block.align == align;
        (same && block.key == key).then_some(block)
    }

    /// If a range lies on the shelf it is that of the block that [`find`](Self::find) gave: takes
    /// it off, under a new name.
    #[inline(always)]
    pub fn take(&mut self, spot: Spot, name: Key) {
        if self.live == self.len {
            return;
        }
        if let Some(block) = self.noted.get_mut(self.live).filter(|block| block.spot == spot) {
            block.block = name;
            self.live += 1;
        }
    }

    /// Puts a block that is freed on the shelf; false when it is not its turn.
    #[inline(always)]
    pub fn put(&mut self, name: Key, value: u64, freed: Now) -> bool {
        let Some(last) = self.live.checked_sub(1) else { return false };
        match self.noted.get_mut(last) {
            Some(block) if self.open && block.block == name => {
                (block.value, block.freed) = (value, freed);
                self.live = last;
                true
            }
            _ => false,
        }
    }
}

impl Noted {
    const NOTHING: Self = Self {
        block: Key::from_bits(0),
        pool: 0,
        key: PoolKey { class: ClassId(0), small: false, exportable: false, graph: None },
        spot: Spot::page(0),
        stream: StreamId(0),
        bytes: 0,
        align: Align::ONE,
        value: 0,
        freed: Now { ms: 0, ns: 0 },
    };
}

impl State {
    /// Gives the ranges on the shelf to their pools, in the order in which they were freed.
    #[inline]
    pub fn clear_shelf(&mut self) {
        if self.shelf.live < self.shelf.len {
            self.give_shelf();
        }
    }

    fn give_shelf(&mut self) {
        for at in (self.shelf.live..self.shelf.len).rev() {
            let Noted { pool, spot, stream, value, freed, .. } = self.shelf.noted[at];
            let points = Points::one(SyncPoint { stream, value });
            self.pools[usize::from(pool)].free(spot, points, freed);
        }
        self.shelf.len = self.shelf.live;
    }

    /// Empties the shelf and forgets the order of live blocks: the indices are about to change.
    #[inline]
    pub fn close_shelf(&mut self) {
        self.clear_shelf();
        (self.shelf.live, self.shelf.len) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use crate::device::sim::{Completion, Sim, SimDevice};
    use crate::device::{Device, StreamSpec};
    use crate::point::StreamId;
    use crate::{Allocator, Config, Handle, Request};

    const MIB: u64 = 1 << 20;

    fn open(sim: Sim) -> (SimDevice, Allocator, [StreamId; 2]) {
        let sim = sim.completion(Completion::ByHand).open();
        let streams = [(); 2].map(|()| sim.create_stream(StreamSpec::default()).unwrap());
        let config = Config::for_device(sim.caps());
        let alloc = Allocator::with_config(sim.shared(), config).unwrap();
        (sim, alloc, streams)
    }

    fn place(alloc: &Allocator, block: Handle) -> crate::device::Place {
        alloc.pin(block).unwrap().at().place
    }

    /// How many blocks are on the shelf.
    fn shelved(alloc: &Allocator) -> usize {
        let state = alloc.inner.lock_shelved();
        state.shelf.len - state.shelf.live
    }

    #[test]
    fn nested_sizes_get_their_places_back_and_nobody_sees_the_shelf() {
        for sim in [Sim::cuda(), Sim::slabs()] {
            let (_sim, alloc, [stream, other]) = open(sim);
            let ask = |bytes| alloc.alloc(&Request::new(bytes, stream)).unwrap().handle;
            let warm = [ask(MIB), ask(MIB / 2)];
            for block in warm {
                alloc.free(block).unwrap();
            }
            let free = alloc.stats().free;
            let (a, b) = (ask(MIB), ask(MIB / 2));
            let places = [place(&alloc, a), place(&alloc, b)];
            alloc.free(b).unwrap();
            alloc.free(a).unwrap();
            assert_eq!(shelved(&alloc), 2);
            assert!(alloc.free(a).is_err(), "freed twice");
            let (a, b) = (ask(MIB), ask(MIB / 2));
            assert_eq!([place(&alloc, a), place(&alloc, b)], places);
            assert_eq!(shelved(&alloc), 0);
            alloc.free(b).unwrap();
            alloc.free(a).unwrap();
            assert_eq!(shelved(&alloc), 2);
            let stats = alloc.stats();
            assert_eq!((stats.free, stats.total.blocks.current, stats.pending), (free, 0, 0));
            assert_eq!(shelved(&alloc), 0, "whoever looks finds the index complete");
            alloc.check().unwrap();
            // What is done serves every stream, shelved or not.
            let c = ask(MIB);
            alloc.free(c).unwrap();
            let c = alloc.alloc(&Request::new(MIB, other)).unwrap();
            assert!(c.waits.is_empty());
            alloc.free(c.handle).unwrap();
        }
    }

    #[test]
    fn a_shelved_block_behind_its_streams_work_waits_for_other_streams() {
        let (sim, alloc, [stream, other]) = open(Sim::cuda());
        let ask = |stream| alloc.alloc(&Request::new(MIB, stream)).unwrap();
        let warm = ask(stream).handle;
        alloc.free(warm).unwrap();
        let block = ask(stream).handle;
        let point = sim.fill(stream, place(&alloc, block), MIB, 7).unwrap();
        alloc.free_after(block, &crate::point::Points::one(point)).unwrap();
        assert_eq!(shelved(&alloc), 1);
        let active = alloc.stats().active.current;
        assert_eq!(active, MIB, "it is pending");
        let theirs = ask(other);
        assert!(theirs.waits.iter().all(|wait| wait == point));
        let block = ask(stream);
        assert!(block.waits.is_empty(), "later work of the same stream needs no wait");
        alloc.free(theirs.handle).unwrap();
        alloc.free(block.handle).unwrap();
        alloc.check().unwrap();
    }

    /// Random requests and frees, mostly the last block first: where everything lay. `looks`
    /// empties the shelf after each step.
    fn placements(seed: u64, looks: bool) -> (Vec<crate::device::Place>, usize) {
        let (_sim, alloc, streams) = open(Sim::cuda());
        let mut seed = seed;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        let (mut blocks, mut places, mut most) = (Vec::new(), Vec::new(), 0);
        for _ in 0..800 {
            if blocks.len() < 2 || next(2) == 0 {
                let stream = streams[usize::from(next(8) == 0)];
                let bytes = [MIB / 4, MIB / 2, MIB, 3 * MIB, 40 * MIB][next(5) as usize];
                let block = alloc.alloc(&Request::new(bytes, stream)).unwrap().handle;
                places.push(place(&alloc, block));
                blocks.push(block);
            } else {
                let last = blocks.len() - 1;
                let at = if next(6) == 0 { next(blocks.len() as u64) as usize } else { last };
                alloc.free(blocks.swap_remove(at)).unwrap();
            }
            most = most.max(shelved(&alloc));
            if looks {
                alloc.check().unwrap();
            }
        }
        alloc.check().unwrap();
        (places, most)
    }

    #[test]
    fn the_shelf_places_nothing_otherwise() {
        for seed in 0..6 {
            let (with, most) = placements(seed, false);
            assert!(most > 3, "the shelf was hardly used");
            let without = placements(seed, true).0;
            let differs = (0..with.len()).find(|&at| with[at] != without[at]);
            assert_eq!(differs, None, "seed {seed}");
        }
    }
}
