//! Everything the allocator's lock guards, and the bookkeeping that keeps it consistent.

// Keys are small numbers of our own making: no need for a hash that withstands attacks.
use rustc_hash::{FxHashMap, FxHashSet};

use crate::budget::Accounts;
use crate::device::{ClassId, Device, MemoryKind, View};
use crate::error::Error;
use crate::event::{Event, EventKind, Ring};
use crate::id::{Key, KeyError, Table};
use crate::point::{Points, StreamId};
use crate::pool::{Now, Pool, PoolKey, Spot};
use crate::request::Tag;
use crate::size_class::{SizeClass, class_of};
use crate::stats::{Counter, Tally};

use super::checks::Checking;
use super::clock::Clock;
use super::intern::{Names, Sites};
use super::moving::Moves;
use super::shelf::Shelf;
use super::sparse::Sparse;

/// Bits of [`Block::flags`].
pub(crate) mod flag {
    /// Compaction may move it.
    pub const MOVABLE: u16 = 1;
    /// Freed while held, or kept on the shelf: the free completes later.
    pub const FREE_LATER: u16 = 2;
    /// There are points to wait for before its first use.
    pub const HAS_WAITS: u16 = 4;
    /// An API object is made over it.
    pub const HAS_VIEW: u16 = 8;
    /// The host sees it through a guard.
    pub const MAPPED: u16 = 16;
    /// It was used on other streams than its own.
    pub const HAS_GUESTS: u16 = 32;
    /// Others submit work to its stream too.
    pub const FOREIGN: u16 = 64;
    /// A captured graph uses its address.
    pub const CAPTURED: u16 = 128;
    /// Its copy is being submitted: a free completes when that is over.
    pub const MOVING: u16 = 256;
    /// It was resolved while its copy was being submitted: the move is given up.
    pub const TOUCHED: u16 = 512;
    /// It is being slid over its own old place: whoever resolves it waits until that is submitted.
    pub const SLIDING: u16 = 1024;
    /// The program keeps its raw handle: it moves only when the program says so.
    pub const RAW: u16 = 2048;
    /// The alignment of its offset, as a power of two from 0 to 14, in the highest four bits; 15
    /// for more, when its present offset says how much.
    pub const ALIGN_SHIFT: u32 = 12;
}

/// One live block. Its range, uses and size are in the pool's index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub spot: Spot,
    /// allocated - requested. Saturates: a block of 2 TiB and more may report a smaller request.
    pub pad: u32,
    pub born_ms: u32,
    pub name: u32,
    pub site: u32,
    pub stream: StreamId,
    pub pool: u16,
    pub tag: Tag,
    /// Guards and open submissions that hold it in place.
    pub holds: u16,
    pub flags: u16,
}

impl Block {
    pub const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// What its offset, at present `offset`, has to stay a multiple of.
    pub const fn align(&self, offset: u64) -> u64 {
        let power = self.flags >> flag::ALIGN_SHIFT;
        if power < 15 {
            1 << power
        } else if offset == 0 {
            1 << 40
        } else {
            1 << offset.trailing_zeros()
        }
    }
}

/// A free that has to wait until no capture is open and no graph uses the block.
#[derive(Debug)]
pub(crate) struct Deferred {
    pub key: Key,
    pub points: Points,
}

/// A retired API object, destroyed once its uses are over.
#[derive(Debug)]
pub(crate) struct RetiredView {
    pub view: View,
    /// The graph that may replay with it.
    pub graph: Option<u32>,
    pub uses: Points,
}

/// Bytes of one section's peaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SectionPeaks {
    /// Most bytes asked for.
    pub requested: u64,
    /// Most bytes allocated.
    pub allocated: u64,
    /// Most bytes active.
    pub active: u64,
    /// Most bytes reserved.
    pub reserved: u64,
}

/// One memory kind's part.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kind {
    pub tally: Tally,
    pub reserved: Counter,
}

/// One tag's part.
#[derive(Clone, Debug, Default)]
pub(crate) struct TagCounters {
    pub name: String,
    pub tally: Tally,
    pub limit: Option<u64>,
}

/// Counters beside the pools' own.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub total: Tally,
    pub reserved: Counter,
    pub kinds: [Kind; 4],
    pub classes: [Tally; SizeClass::COUNT],
    pub tags: Vec<TagCounters>,
    pub out_of_memory: u64,
    pub retries: u64,
    pub waits: u64,
    pub pages_created: u64,
    pub pages_stolen: u64,
}

/// What the lock guards.
pub(crate) struct State {
    pub blocks: Table<Block>,
    pub pools: Vec<Pool>,
    pub foreign: ForeignCache,
    pub by_key: FxHashMap<PoolKey, u16>,
    pub budget: Accounts,
    pub counters: Counters,
    pub moves: Moves,
    pub ring: Ring,
    pub sites: Sites,
    pub names: Names,
    pub tag_numbers: FxHashMap<Box<str>, Tag>,
    /// Points to wait for before a block's first use, by the block's slot.
    pub waits: Sparse<Points>,
    /// What is checked about blocks.
    pub checking: Checking,
    /// Other streams that a block was used on, by the block's slot.
    pub guests: FxHashMap<u32, Vec<StreamId>>,
    pub views: FxHashMap<u32, View>,
    pub retired_views: Vec<RetiredView>,
    pub deferred: Vec<Deferred>,
    /// Dry runs under way, in which nothing is stolen.
    pub warming: u32,
    /// Paused blocks, by slot.
    pub asleep: FxHashMap<u32, super::paging::pause::Asleep>,
    /// Freed blocks that are still taken in the indices of their pools and here.
    pub shelf: Shelf,
    /// The last value of each stream that is known to be reached.
    pub reached: FxHashMap<StreamId, u64>,
    pub sections: Table<SectionPeaks>,
    /// Numbers of the graphs that may be captured or replayed, by the device's name of the capture.
    pub graphs: FxHashMap<u64, u32>,
    /// Blocks of other pools that graphs use, with those graphs.
    pub captured: FxHashMap<Key, Vec<u32>>,
    /// Blocks of which it was told that a guard holds them, or that what has ended since did.
    pub guarded: FxHashSet<Key>,
    pub next_graph: u32,
    /// Device calls under way that may end a shortage.
    pub in_flight: u32,
    /// Threads that wait to be told of a change: while there are none, telling costs nothing.
    pub waiting: u32,
    /// How often they were told.
    pub told: u64,
    /// Since when the lock is held, where somebody wants to know.
    pub span: Option<Box<super::lock::Span>>,
    /// Blocks ever freed: lets a waiting request see that something changed.
    pub frees: u64,
    pub clock: Clock,
}

/// Whether streams are foreign, remembered for the last few asked about: a stream never changes.
#[derive(Debug, Default)]
pub(crate) struct ForeignCache([Option<(StreamId, bool)>; 16]);

impl ForeignCache {
    pub fn is_foreign(&mut self, stream: StreamId, device: &dyn Device) -> bool {
        let slot = &mut self.0[stream.0 as usize % 16];
        match *slot {
            Some((known, foreign)) if known == stream => foreign,
            _ => {
                let foreign = device.is_foreign(stream);
                *slot = Some((stream, foreign));
                foreign
            }
        }
    }
}

/// The index of a kind in [`MemoryKind::ALL`].
pub(crate) const fn kind_index(kind: MemoryKind) -> usize {
    match kind {
        MemoryKind::Device => 0,
        MemoryKind::Upload => 1,
        MemoryKind::Readback => 2,
        MemoryKind::Shared => 3,
    }
}

impl Counters {
    /// Counts blocks of one size that were freed and taken again so and so often.
    pub fn count_rounds(&mut self, kind: MemoryKind, tag: Tag, sizes: (u64, u64), rounds: u64) {
        let (requested, bytes) = sizes;
        let [requested, bytes] = [requested, bytes].map(|bytes| bytes.wrapping_mul(rounds));
        let class = class_of(sizes.1).index();
        self.total.pass([rounds, requested, bytes, bytes]);
        self.kinds[kind_index(kind)].tally.pass([rounds, requested, bytes, bytes]);
        self.classes[class].pass([rounds, requested, bytes, 0]);
        if let Some(tag) = self.tags.get_mut(usize::from(tag.0)) {
            tag.tally.pass([rounds, requested, bytes, 0]);
        }
    }
}

impl State {
    /// The time as of the last reading of the clock.
    pub const fn now(&self) -> Now {
        Now { ms: self.clock.ms(), ns: self.clock.ns() }
    }

    /// Writes an event.
    #[inline(always)]
    pub fn event(&mut self, mut event: Event) {
        event.time_ns = self.clock.ns();
        self.ring.push(event);
    }

    /// The block of a handle's key, or the error that tells what became of it.
    pub fn block(&self, key: Key) -> Result<&Block, Error> {
        let block = self.blocks.get(key).map_err(key_error)?;
        if block.has(flag::FREE_LATER) { Err(Error::UseAfterFree) } else { Ok(block) }
    }

    pub fn block_mut(&mut self, key: Key) -> Result<&mut Block, Error> {
        self.block(key)?;
        self.blocks.get_mut(key).map_err(key_error)
    }

    /// Whether a captured graph has not been released: it may run again at any time.
    pub fn is_replayable(&self, graph: u32) -> bool {
        self.graphs.values().any(|&number| number == graph)
    }

    pub fn pool(&self, block: &Block) -> &Pool {
        &self.pools[usize::from(block.pool)]
    }

    pub fn pool_mut(&mut self, block: &Block) -> &mut Pool {
        &mut self.pools[usize::from(block.pool)]
    }

    /// The number of the pool under `key`, made if it is new.
    ///
    /// # Errors
    /// [`Error::TableFull`] with 65,535 pools.
    pub fn pool_number(&mut self, key: PoolKey, device: &dyn Device) -> Result<u16, Error> {
        if let Some(&number) = self.by_key.get(&key) {
            return Ok(number);
        }
        let class = device.caps().class(key.class).ok_or(Error::TableFull)?;
        let number = u16::try_from(self.pools.len()).map_err(|_| Error::TableFull)?;
        self.pools.push(Pool::new(key, class.heap, class.kind));
        self.by_key.insert(key, number);
        Ok(number)
    }

    /// Bytes asked for by a block.
    pub fn requested(&self, block: &Block) -> u64 {
        self.pool(block).bytes(block.spot).saturating_sub(u64::from(block.pad))
    }

    /// Counts a block that has become live.
    #[inline(always)]
    pub fn count_alloc(&mut self, kind: MemoryKind, tag: Tag, requested: u64, bytes: u64) {
        self.settle();
        let counters = &mut self.counters;
        counters.total.add([1, requested, bytes, bytes]);
        counters.kinds[kind_index(kind)].tally.add([1, requested, bytes, bytes]);
        counters.classes[class_of(bytes).index()].add([1, requested, bytes, 0]);
        if let Some(tag) = counters.tags.get_mut(usize::from(tag.0)) {
            tag.tally.add([1, requested, bytes, 0]);
        }
        self.raise_sections();
    }

    /// Counts a block that was freed; unless it is `done` its bytes stay active until
    /// [`count_done`](Self::count_done).
    #[inline(always)]
    pub fn count_free(&mut self, kind: MemoryKind, tag: Tag, sizes: (u64, u64), done: bool) {
        let (requested, bytes) = sizes;
        let counters = &mut self.counters;
        let over = if done { bytes } else { 0 };
        counters.total.sub([1, requested, bytes, over]);
        counters.kinds[kind_index(kind)].tally.sub([1, requested, bytes, over]);
        counters.classes[class_of(bytes).index()].sub([1, requested, bytes, 0]);
        if let Some(tag) = counters.tags.get_mut(usize::from(tag.0)) {
            tag.tally.sub([1, requested, bytes, 0]);
        }
    }

    /// Counts bytes that are in use though no block's: reserved for a move, or pending.
    pub fn count_active(&mut self, kind: MemoryKind, bytes: u64) {
        self.counters.total.add([0, 0, 0, bytes]);
        self.counters.kinds[kind_index(kind)].tally.add([0, 0, 0, bytes]);
        self.raise_sections();
    }

    /// Counts bytes that no work is ordered before any more, or that a new block has taken over.
    pub fn count_done(&mut self, kind: MemoryKind, bytes: u64) {
        self.counters.total.sub([0, 0, 0, bytes]);
        self.counters.kinds[kind_index(kind)].tally.sub([0, 0, 0, bytes]);
    }

    /// Counts a memory object of a pool.
    pub fn count_reserved(&mut self, kind: MemoryKind, bytes: u64) {
        self.counters.reserved.add(bytes);
        self.counters.kinds[kind_index(kind)].reserved.add(bytes);
        self.raise_sections();
    }

    pub fn count_released(&mut self, kind: MemoryKind, bytes: u64) {
        self.counters.reserved.sub(bytes);
        self.counters.kinds[kind_index(kind)].reserved.sub(bytes);
    }

    #[inline]
    fn raise_sections(&mut self) {
        if !self.sections.is_empty() {
            self.raise_open_sections();
        }
    }

    #[cold]
    fn raise_open_sections(&mut self) {
        let now = self.section_now();
        let keys: Vec<Key> = self.sections.iter().map(|(key, _)| key).collect();
        for key in keys {
            if let Ok(peaks) = self.sections.get_mut(key) {
                peaks.requested = peaks.requested.max(now.requested);
                peaks.allocated = peaks.allocated.max(now.allocated);
                peaks.active = peaks.active.max(now.active);
                peaks.reserved = peaks.reserved.max(now.reserved);
            }
        }
    }

    /// What a section that starts now begins with.
    pub fn section_now(&self) -> SectionPeaks {
        SectionPeaks {
            requested: self.counters.total.usage().requested.current,
            allocated: self.counters.total.usage().allocated.current,
            active: self.counters.total.active().current,
            reserved: self.counters.reserved.current,
        }
    }

    /// Takes in a part of what is known to be reached in a pool: holes become done, bytes stop
    /// being active. Tells how many walks over its free ranges have ended, and whether one is
    /// under way.
    pub fn reap_some(&mut self, pool: usize) -> (u32, bool) {
        let reached = &self.reached;
        let pool = &mut self.pools[pool];
        let kind = pool.kind;
        let done = pool.reap_some(&|stream| reached.get(&stream).copied().unwrap_or(0));
        let (class, walks) = (pool.key.class, pool.walks());
        if done > 0 {
            self.count_done(kind, done);
            let event = Event::new(EventKind::FreeCompleted).b(done);
            self.event(event.of(class.0, 0));
        }
        walks
    }

    /// Takes in how far a stream is.
    pub fn note_reached(&mut self, stream: StreamId, value: u64) {
        let known = self.reached.entry(stream).or_default();
        if value > *known {
            *known = value;
            self.event(Event::new(EventKind::Reached).a(value).on(stream.0, 0));
        }
    }

    /// Streams that free memory, retired views or deferred frees still wait for.
    pub fn awaited_streams(&self) -> Vec<StreamId> {
        let mut streams: Vec<StreamId> =
            self.pools.iter().flat_map(|pool| pool.awaited_points()).map(|p| p.stream).collect();
        streams.extend(self.moves.awaited_points().map(|p| p.stream));
        streams.extend(self.retired_views.iter().flat_map(|v| v.uses.iter().map(|p| p.stream)));
        streams.sort_unstable();
        streams.dedup();
        streams
    }

    /// The classes' pools that may hold room for a kind, by number.
    pub fn pools_of(&self, class: ClassId) -> impl Iterator<Item = &Pool> {
        self.pools.iter().filter(move |pool| pool.key.class == class)
    }
}

/// What a key that names nothing means to the user of a handle.
pub(crate) const fn key_error(error: KeyError) -> Error {
    match error {
        KeyError::Foreign => Error::ForeignHandle,
        KeyError::Gone => Error::UseAfterFree,
        KeyError::Stale => Error::StaleHandle,
    }
}
