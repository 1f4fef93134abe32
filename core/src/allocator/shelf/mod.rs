//! Freed blocks kept whole for the next request like the one that they were made for.
//!
//! Programs ask for the same sizes over and over. Cutting such a block out of a hole, joining it
//! with its neighbours when it is freed and cutting it out again is most of what a request costs.
//! So a freed block goes on the *shelf*: its handle is dead and all events are written, but its
//! range stays taken in its pool and its entry stays in the table of blocks, until a request like
//! its own takes both over under a new handle, or until it is *put back*, which completes the
//! free.
//!
//! What is on the shelf is never missed. A request that finds no hole puts everything back and
//! looks again before anything is asked of the device. So does everyone who takes the lock for
//! anything but a request that hits, a free or a hold, see [`Inner::lock`](super::Inner::lock):
//! nobody else ever sees a shelved block. Where there are too many, the one freed first is put
//! back.
//!
//! [`Like`] is what two requests have in common to be served alike. A *bin* remembers for one
//! `Like` what its blocks are like, so that a hit works nothing out again. By size
//! ([`Keep::BySize`]) bins learn: the first request of its kind leaves a note, and from the second
//! on freed blocks are kept. Sizes that never come again therefore pass by.
//!
//! In order ([`Keep::InOrder`]) the blocks last cut out of holes are noted, see [`Order`]. When the
//! latest of them is freed first, and so on, each is kept. If the next request is like that of the
//! block kept last, that is its place: with all of the shelf in the index again, the index would be
//! as it was when that block was placed, and would place the request there once more. So nothing is
//! placed otherwise than without a shelf. (Freed behind new work of its stream, the block would be
//! a hole by itself, of just the size, which the index takes first, though not always.) Any other
//! request and any other free put everything back first.
//!
//! Counting is put off too. A block freed and taken again by a request like its own leaves every
//! counter where it was but the sum of what was ever freed. So the free is not counted at first,
//! and a hit counts one round for its bin. Until [`State::settle`](super::State) counts them, the
//! counters read high by what is shelved, and no peak can be raised meanwhile, for whoever adds to
//! a counter settles first.

mod order;
mod serve;
#[cfg(test)]
mod tests;

use crate::device::{MemoryKind, Place, SpaceId};
use crate::id::Key;
use crate::request::{Request, Tag};

use super::config::Keep;
use super::state::{Block, kind_index};
use order::Order;

/// Blocks that are kept at most, in all and in each bin.
const PLACES: u16 = 256;
const DEPTH: usize = 16;

/// Bins that a `Like` may be in.
const WAYS: usize = 4;
const BINS: usize = 32 * WAYS;

/// What requests have in common that are served alike, but for the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Like {
    bytes: u64,
    align: u64,
    usage: u64,
    /// Stream, tag, kind and whether it is movable, exportable and keeps its raw handle.
    rest: u64,
    classes: u32,
}

impl Like {
    #[inline(always)]
    pub fn of(request: &Request<'_>) -> Self {
        let marks = u64::from(request.movable)
            | u64::from(request.exportable) << 1
            | u64::from(request.raw_handle) << 2
            | (kind_index(request.kind) as u64) << 3;
        let (stream, tag) = (u64::from(request.stream.0), u64::from(request.tag.0));
        let rest = stream | tag << 32 | marks << 48;
        let Request { bytes, align, usage, classes, .. } = *request;
        Self { bytes, align, usage, rest, classes }
    }

    #[inline(always)]
    const fn stream(&self) -> u32 {
        self.rest as u32
    }
}

/// What the blocks in a bin have in common: the pool, the tag and the flags.
#[inline(always)]
const fn shape(block: &Block) -> u64 {
    block.pool as u64 | (block.tag.0 as u64) << 16 | (block.flags as u64) << 32
}

/// The blocks kept for one kind of request.
#[derive(Clone, Copy, Debug)]
struct Bin {
    like: Like,
    shape: u64,
    /// Bytes of each block.
    bytes: u64,
    /// Hits whose free was not counted.
    rounds: u32,
    /// How often the request came, up to two times.
    asked: u8,
    class: u8,
    kind: MemoryKind,
    /// How many blocks there are, and how many of them, the first, are counted as freed.
    len: u8,
    counted: u8,
    /// The blocks, in the order in which they were freed.
    blocks: [Shelved; DEPTH],
}

/// A block on the shelf.
#[derive(Clone, Copy, Debug)]
struct Shelved {
    /// Its handle, dead already.
    key: Key,
    /// Where it lies: nobody moves it from there while it is here.
    place: Place,
    /// When it was freed, in nanoseconds of the device's clock.
    freed_ns: u64,
    /// Whether nothing was ordered before a new use of it when it was freed.
    done: bool,
}

impl Shelved {
    const NONE: Self = Self {
        key: Key::from_bits(0),
        place: Place { space: SpaceId(0), offset: 0 },
        freed_ns: 0,
        done: false,
    };
}

impl Bin {
    const EMPTY: Self = Self {
        like: Like { bytes: 0, align: 0, usage: 0, rest: 0, classes: 0 },
        shape: 0,
        bytes: 0,
        rounds: 0,
        asked: 0,
        class: 0,
        kind: MemoryKind::Device,
        len: 0,
        counted: 0,
        blocks: [Shelved::NONE; DEPTH],
    };

    /// Whether a block of so many bytes is as those here are.
    #[inline(always)]
    const fn is_for(&self, block: &Block, bytes: u64) -> bool {
        let is_as_long = self.bytes == bytes && bytes - self.like.bytes == block.pad as u64;
        let (stream, shape) = (block.stream.0, shape(block));
        is_as_long && self.shape == shape && self.like.stream() == stream && self.asked > 1
    }

    const fn tag(&self) -> Tag {
        Tag((self.shape >> 16) as u16)
    }

    /// Whether nothing is kept here or left to be counted.
    const fn is_idle(&self) -> bool {
        self.len == 0 && self.rounds == 0
    }

    /// The block that was freed last, and whether that is counted.
    #[inline(always)]
    fn newest(&self) -> Option<(&Shelved, bool)> {
        let at = self.len.checked_sub(1)?;
        Some((self.blocks.get(usize::from(at))?, at < self.counted))
    }

    /// Takes the block out that was freed first; tells whether that is counted.
    fn take_oldest(&mut self) -> Option<(Shelved, bool)> {
        self.len = self.len.checked_sub(1)?;
        let oldest = self.blocks[0];
        self.blocks.copy_within(1.., 0);
        let counted = self.counted > 0;
        self.counted = self.counted.saturating_sub(1);
        Some((oldest, counted))
    }
}

/// Bins, by bit.
#[derive(Debug, Default)]
struct Set([u64; BINS / 64]);

impl Set {
    #[inline(always)]
    const fn insert(&mut self, bin: usize) {
        self.0[bin / 64 % (BINS / 64)] |= 1 << (bin % 64);
    }

    fn is_empty(&self) -> bool {
        self.0 == [0; BINS / 64]
    }

    /// Takes one out, the first one at or after `from` in a circle.
    fn take_from(&mut self, from: usize) -> Option<usize> {
        let words = BINS / 64;
        // The word of `from` comes twice: its bits from there on first, the others last.
        for turn in 0..=words {
            let word = (from / 64 + turn) % words;
            let above = u64::MAX << (from % 64);
            let bits = match turn {
                0 => self.0[word] & above,
                _ => self.0[word],
            };
            if bits != 0 {
                let bin = word * 64 + bits.trailing_zeros() as usize;
                self.0[word] &= !(1 << (bin % 64));
                return Some(bin);
            }
        }
        None
    }
}

/// The shelf.
#[derive(Debug)]
pub(crate) struct Shelf {
    pub keep: Keep,
    order: Order,
    bins: Box<[Bin]>,
    /// Blocks in all bins.
    len: u16,
    /// Bins that have blocks or had some.
    filled: Set,
    /// Bins with frees or rounds that may not be counted.
    dirty: Set,
    /// Where the next block is put back from.
    hand: usize,
}

impl Shelf {
    pub fn new(keep: Keep) -> Self {
        Self {
            keep,
            order: Order::new(),
            bins: vec![Bin::EMPTY; BINS].into_boxed_slice(),
            len: 0,
            filled: Set::default(),
            dirty: Set::default(),
            hand: 0,
        }
    }

    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first of the bins that a request of so many bytes on a stream may be in.
    #[inline(always)]
    const fn first_way(bytes: u64, stream: u32) -> usize {
        // Fibonacci hashing: the high bits of the product depend on all bits.
        let mixed = (bytes ^ (stream as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> (64 - (BINS / WAYS).ilog2())) as usize * WAYS
    }

    #[inline(always)]
    fn find(&self, bytes: u64, stream: u32, fits: impl Fn(&Bin) -> bool) -> Option<usize> {
        let first = Self::first_way(bytes, stream);
        let ways = self.bins.get(first..first + WAYS)?;
        ways.iter().position(fits).map(|way| first + way)
    }

    /// The bin of a kind of request.
    #[inline(always)]
    fn bin_of(&self, like: &Like) -> Option<usize> {
        self.find(like.bytes, like.stream(), |bin| bin.like == *like)
    }

    /// The bin with the block that serves such a request.
    #[inline(always)]
    fn next_of(&self, like: &Like) -> Option<usize> {
        if self.keep != Keep::InOrder {
            return self.bin_of(like);
        }
        let at = self.order.next()?;
        if self.bins.get(at)?.like == *like { Some(at) } else { None }
    }

    /// The bin that keeps this block of so many bytes, if one does.
    #[inline(always)]
    fn bin_for(&self, key: Key, block: &Block, bytes: u64) -> Option<usize> {
        if self.keep == Keep::InOrder {
            let at = self.order.turn_of(key)?;
            let fits = self.bins.get(at)?.is_for(block, bytes) && self.has_room(at);
            return if fits { Some(at) } else { None };
        }
        let requested = bytes.wrapping_sub(u64::from(block.pad));
        self.find(requested, block.stream.0, |bin| bin.is_for(block, bytes))
    }

    #[inline(always)]
    fn has_room(&self, bin: usize) -> bool {
        self.bins.get(bin).is_some_and(|bin| usize::from(bin.len) < DEPTH)
    }

    /// Puts a block into a bin that has room.
    #[inline(always)]
    fn push(&mut self, at: usize, shelved: Shelved) {
        let Some(bin) = self.bins.get_mut(at) else { return };
        let Some(place) = bin.blocks.get_mut(usize::from(bin.len)) else { return };
        *place = shelved;
        bin.len += 1;
        self.len += 1;
        self.filled.insert(at);
        self.dirty.insert(at);
    }

    /// Notes a block that was cut out of a hole, and its bin.
    pub fn note(&mut self, block: Key, bin: usize) {
        if self.keep == Keep::InOrder {
            self.order.note(block, bin);
        }
    }

    /// Remembers what a request got that nothing was kept for; gives its bin.
    pub fn learn(
        &mut self,
        like: Like,
        block: &Block,
        bytes: u64,
        class: u8,
        kind: MemoryKind,
    ) -> Option<usize> {
        let shape = shape(block);
        // In order, what is kept is what comes next: there is nothing to wait for.
        let asked = if self.keep == Keep::InOrder { 2 } else { 1 };
        if let Some(at) = self.bin_of(&like) {
            let bin = &mut self.bins[at];
            if bin.is_idle() {
                (bin.shape, bin.bytes, bin.class, bin.kind) = (shape, bytes, class, kind);
            }
            bin.asked = 2;
            return (bin.shape == shape && bin.bytes == bytes).then_some(at);
        }
        let first = Self::first_way(like.bytes, like.stream());
        let ways = self.bins.get_mut(first..first + WAYS)?.iter_mut().enumerate();
        // The one that came least often, so that one-time sizes push out each other.
        let idle = ways.filter(|(_, bin)| bin.is_idle());
        let (way, bin) = idle.min_by_key(|(_, bin)| bin.asked)?;
        *bin = Bin { like, shape, bytes, asked, class, kind, ..Bin::EMPTY };
        Some(first + way)
    }
}
