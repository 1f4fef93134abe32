//! What can be asked of an allocator: statistics, blocks, segments, events, leaks.

use std::sync::{Arc, Weak};

use crate::device::{ClassId, HeapId, MemoryKind, SpaceId};
use crate::error::Error;
use crate::event::{Drained, Event, EventKind, RecorderMode};
use crate::id::Key;
use crate::pages::{MappedPage, Zone};
use crate::point::Points;
use crate::pool::{Part, PartState, Pool};
use crate::request::Tag;
use crate::stats::{KindStats, Stats, TagStats, Tally};

use super::handle::{BlockInfo, Handle, Leak};
use super::state::{Block, Kind, SectionPeaks, State, TagCounters, flag};
use super::{Allocator, Inner};

/// The peaks of a part of the program, from its making until it is asked or dropped. Sections
/// may overlap and nest.
#[derive(Debug)]
pub struct Section {
    alloc: Allocator,
    key: Key,
}

impl Section {
    /// The peaks so far.
    pub fn peaks(&self) -> SectionPeaks {
        self.alloc.inner.lock().sections.get(self.key).copied().unwrap_or_default()
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        let _ = self.alloc.inner.lock().sections.remove(self.key);
    }
}

/// Memory of others that counts against the budget while this lives.
#[derive(Debug)]
#[must_use = "the charge ends when the guard is dropped"]
pub struct Charge {
    alloc: Allocator,
    heap: HeapId,
    bytes: u64,
}

impl Charge {
    /// Bytes charged.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut state = self.alloc.inner.lock();
        state.budget.refund(self.heap, self.bytes);
        self.alloc.inner.unlock_and_tell(state);
    }
}

/// The budget of an allocator, for those who take memory beside it: it does not keep the
/// allocator alive, so a device may hold it. When the allocator is gone everything is allowed.
#[derive(Clone, Debug)]
pub struct Budget {
    inner: Weak<Inner>,
}

impl Budget {
    /// Counts `bytes` against a heap's limit, until [`refund`](Self::refund).
    ///
    /// # Errors
    /// [`Error::OverUserLimit`].
    pub fn charge(&self, heap: HeapId, bytes: u64) -> Result<(), Error> {
        let Some(inner) = self.inner.upgrade() else { return Ok(()) };
        inner.lock().budget.charge(heap, bytes)
    }

    /// Takes a charge back.
    pub fn refund(&self, heap: HeapId, bytes: u64) {
        if let Some(inner) = self.inner.upgrade() {
            let mut state = inner.lock();
            state.budget.refund(heap, bytes);
            inner.unlock_and_tell(state);
        }
    }
}

/// One part of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockView {
    /// First byte in the segment.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// What it is.
    pub state: PartState,
    /// The live block there, or `None` for a free range.
    pub block: Option<BlockInfo>,
    /// What a free range still waits for.
    pub pending: Points,
}

/// One segment and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The device's number of its space.
    pub space: SpaceId,
    /// Its first byte in the space: offsets of its parts count from here.
    pub base: u64,
    /// Its memory class.
    pub class: ClassId,
    /// Its memory kind.
    pub kind: MemoryKind,
    /// Bytes of addresses.
    pub bytes: u64,
    /// Whether it is backed page by page; parts of it may have no memory.
    pub paged: bool,
    /// Its parts in order of address.
    pub parts: Vec<BlockView>,
    /// The pages that back it, in order of address; none where it is one memory object.
    pub pages: Vec<MappedPage>,
}

impl SegmentInfo {
    /// Bytes of it that have memory behind them.
    pub fn backed(&self) -> u64 {
        let backed = |part: &&BlockView| matches!(part.state, PartState::Live | PartState::Free);
        self.parts.iter().filter(backed).map(|part| part.bytes).sum()
    }
}

/// All segments at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Number of the last event before it.
    pub sequence: u64,
    /// Segments by pool and number.
    pub segments: Vec<SegmentInfo>,
}

impl Allocator {
    /// The numbers now.
    pub fn stats(&self) -> Stats {
        self.inner.lock().stats()
    }

    /// The numbers now, as a table to read.
    pub fn summary(&self) -> String {
        self.stats().to_string()
    }

    /// Makes every peak the current value.
    pub fn reset_peaks(&self) {
        let mut state = self.inner.lock();
        state.reset_peaks();
        state.event(Event::new(EventKind::PeaksReset));
    }

    /// Starts a section whose peaks are reported apart.
    ///
    /// # Errors
    /// [`Error::TableFull`] with 2^32 sections open.
    pub fn section(&self) -> Result<Section, Error> {
        let mut state = self.inner.lock();
        let now = state.section_now();
        let key = state.sections.insert(now).ok_or(Error::TableFull)?;
        Ok(Section { alloc: self.clone(), key })
    }

    /// The tag of a name, made if it is new.
    ///
    /// # Errors
    /// [`Error::TableFull`] with 65,535 tags.
    pub fn tag(&self, name: &str) -> Result<Tag, Error> {
        let mut state = self.inner.lock();
        if let Some(&tag) = state.tag_numbers.get(name) {
            return Ok(tag);
        }
        let number = u16::try_from(state.counters.tags.len()).map_err(|_| Error::TableFull)?;
        state.counters.tags.push(TagCounters { name: name.to_owned(), ..TagCounters::default() });
        state.tag_numbers.insert(name.into(), Tag(number));
        Ok(Tag(number))
    }

    /// Limits the bytes that blocks of a tag may have together, after rounding. `None` for no
    /// limit. Blocks above it stay.
    ///
    /// # Errors
    /// [`Error::ForeignHandle`] for a tag of another allocator.
    pub fn set_tag_limit(&self, tag: Tag, bytes: Option<u64>) -> Result<(), Error> {
        let mut state = self.inner.lock();
        let stats = state.counters.tags.get_mut(usize::from(tag.0)).ok_or(Error::ForeignHandle)?;
        stats.limit = bytes;
        Ok(())
    }

    /// Counts `bytes` of somebody else's memory against a heap's limit while the guard lives.
    ///
    /// # Errors
    /// [`Error::OverUserLimit`].
    pub fn charge(&self, heap: HeapId, bytes: u64) -> Result<Charge, Error> {
        self.inner.lock().budget.charge(heap, bytes)?;
        Ok(Charge { alloc: self.clone(), heap, bytes })
    }

    /// The budget, for those who take memory beside the allocator and must not keep it alive.
    pub fn budget(&self) -> Budget {
        Budget { inner: Arc::downgrade(&self.inner) }
    }

    /// What is known about a block.
    ///
    /// # Errors
    /// [`Error::UseAfterFree`], [`Error::StaleHandle`], [`Error::ForeignHandle`].
    pub fn info(&self, handle: Handle) -> Result<BlockInfo, Error> {
        let key = handle.key_for(self.inner.id)?;
        let state = self.inner.lock();
        let block = state.block(key)?;
        Ok(state.describe(self.inner.id, key, block))
    }

    /// All segments with their blocks and free ranges. Takes time in proportion to their number,
    /// pool by pool, with the lock held for one segment at a time: blocks that come and go
    /// meanwhile may be missing or appear.
    pub fn snapshot(&self) -> Snapshot {
        let inner = &self.inner;
        let mut segments = Vec::new();
        let (sequence, pools) = {
            let state = inner.lock();
            (state.ring.sequence(), state.pools.len())
        };
        for pool in 0..pools {
            let ids: Vec<_> = inner.lock().pools[pool].segments().map(|(id, _)| id).collect();
            for id in ids {
                segments.extend(inner.lock().describe_segment(inner.id, pool, id));
            }
            for zone in [Zone::Small, Zone::Large] {
                segments.extend(inner.lock().describe_zone(inner.id, pool, zone));
            }
        }
        Snapshot { sequence, segments }
    }

    /// Moves the oldest recorded events to `into`, at most `most`.
    pub fn drain_events(&self, into: &mut Vec<Event>, most: usize) -> Drained {
        let mut drained = Drained::default();
        let mut left = most;
        loop {
            // A bounded slice, so that requests do not wait behind a long copy.
            // What is on the shelf has told all its events, and stays there for the next request.
            let slice = self.inner.lock_shelved().ring.drain(into, left.min(1024));
            left -= slice.events;
            drained = Drained { events: drained.events + slice.events, ..slice };
            if left == 0 || !slice.more {
                return drained;
            }
        }
    }

    /// Switches what is kept of the events.
    pub fn set_recorder(&self, mode: RecorderMode) {
        self.inner.lock().ring.set_mode(mode);
    }

    /// File and line of a call site's number, and the text of a name's, as events carry them.
    pub fn site_text(&self, number: u32) -> String {
        self.inner.lock_shelved().sites.text(number)
    }

    /// The text of a name's number.
    pub fn name_text(&self, number: u32) -> String {
        self.inner.lock_shelved().names.text(number).to_owned()
    }

    /// The name of a tag's number, as events carry it; empty for one that is none.
    pub fn tag_text(&self, number: u16) -> String {
        let state = self.inner.lock_shelved();
        let tag = state.counters.tags.get(usize::from(number));
        tag.map_or_else(String::new, |tag| tag.name.clone())
    }

    /// Live blocks, oldest first.
    pub fn leaks(&self) -> Vec<Leak> {
        self.inner.lock().leaks()
    }

    /// Ends the use of the allocator: waits for work, gives back what is free, and returns the
    /// blocks that are still live as an error. Other clones and buffers stay valid.
    ///
    /// # Errors
    /// The list of live blocks.
    pub fn close(self) -> Result<(), Vec<Leak>> {
        // A device that is lost can not be asked; what is live is known all the same.
        let _ = self.release_cached();
        let leaks = self.leaks();
        if leaks.is_empty() { Ok(()) } else { Err(leaks) }
    }

    /// Streams that something is kept about.
    pub fn tracked_streams(&self) -> usize {
        self.inner.lock().reached.len()
    }

    /// Walks everything and tells the first fact that does not hold.
    ///
    /// # Errors
    /// A sentence with the id of the invariant.
    pub fn check(&self) -> Result<(), String> {
        self.inner.lock().check()
    }
}

impl State {
    pub(super) fn stats(&self) -> Stats {
        let counters = &self.counters;
        let pending: u64 = self.pools.iter().map(Pool::pending).sum();
        let free: u64 = self.pools.iter().map(Pool::free_bytes).sum();
        let total = counters.total.usage();
        let average = total.allocated.current.checked_div(total.blocks.current).unwrap_or(0);
        let kind = |kind: &Kind| KindStats {
            usage: kind.tally.usage(),
            active: kind.tally.active(),
            reserved: kind.reserved,
        };
        let tag = |tag: &TagCounters| TagStats {
            name: tag.name.clone(),
            usage: tag.tally.usage(),
            limit: tag.limit,
        };
        Stats {
            total,
            active: counters.total.active(),
            reserved: counters.reserved,
            memory_objects: self.budget.objects(),
            kinds: counters.kinds.each_ref().map(kind),
            tags: counters.tags.iter().map(tag).collect(),
            size_classes: counters.classes.iter().map(Tally::usage).collect(),
            pending,
            free,
            largest_free: self.pools.iter().map(Pool::largest_free).max().unwrap_or(0),
            stranded: self.pools.iter().map(|pool| pool.stranded(average)).sum(),
            charged: self.budget.charged(),
            out_of_memory: counters.out_of_memory,
            retries: counters.retries,
            waits: counters.waits,
            pages_created: counters.pages_created,
            pages_stolen: counters.pages_stolen,
            moves: self.moves.stats,
        }
    }

    fn reset_peaks(&mut self) {
        let counters = &mut self.counters;
        counters.total.reset_peaks();
        counters.reserved.reset_peak();
        for kind in &mut counters.kinds {
            kind.tally.reset_peaks();
            kind.reserved.reset_peak();
        }
        counters.classes.iter_mut().for_each(Tally::reset_peaks);
        counters.tags.iter_mut().for_each(|tag| tag.tally.reset_peaks());
        self.budget.reset_peaks();
    }

    fn describe(&self, allocator: u32, key: Key, block: &Block) -> BlockInfo {
        let pool = self.pool(block);
        let paused = self.refuse_asleep(key, block).is_err();
        // A pause holds a block as the host would.
        let asleep = if paused { flag::MAPPED } else { 0 };
        let awake = Block { flags: block.flags & !asleep, ..*block };
        BlockInfo {
            handle: Handle { key, allocator },
            requested: self.requested(block),
            allocated: pool.bytes(block.spot),
            kind: pool.kind,
            stream: block.stream,
            tag: block.tag,
            name: self.names.text(block.name).to_owned(),
            site: self.sites.text(block.site),
            age_ms: u64::from(self.clock.ms().saturating_sub(block.born_ms)),
            place: pool.place(block.spot),
            holds: u32::from(block.holds),
            movable: block.has(flag::MOVABLE),
            held_by: self.held_by(&awake),
            paused,
            uses: pool.uses(block.spot).clone(),
        }
    }

    fn describe_segment(
        &self,
        allocator: u32,
        pool: usize,
        id: crate::range::SegmentId,
    ) -> Option<SegmentInfo> {
        let pool = &self.pools[pool];
        let segment = pool.segment(id)?;
        Some(SegmentInfo {
            space: segment.plain.space,
            base: 0,
            class: pool.key.class,
            kind: pool.kind,
            bytes: segment.plain.bytes,
            paged: false,
            parts: self.describe_parts(allocator, pool.parts(id)),
            pages: Vec::new(),
        })
    }

    fn describe_parts(&self, allocator: u32, parts: Vec<Part>) -> Vec<BlockView> {
        let part = |part: Part| BlockView {
            offset: part.offset,
            bytes: part.bytes,
            state: part.state,
            block: part
                .owner
                .and_then(|slot| self.blocks.at(slot))
                .map(|(key, block)| self.describe(allocator, key, block)),
            pending: part.pending,
        };
        parts.into_iter().map(part).collect()
    }

    fn describe_zone(&self, allocator: u32, pool: usize, zone: Zone) -> Option<SegmentInfo> {
        let pool = &self.pools[pool];
        let paged = pool.paged.as_ref()?;
        let (base, top) = paged.pages.bounds(zone);
        (top > base).then(|| SegmentInfo {
            space: paged.space,
            base,
            class: pool.key.class,
            kind: pool.kind,
            bytes: top - base,
            paged: true,
            parts: self.describe_parts(allocator, paged.parts(zone)),
            pages: paged.pages.pages_in(zone),
        })
    }

    fn leaks(&self) -> Vec<Leak> {
        let mut live: Vec<&Block> = self
            .blocks
            .iter()
            .map(|(_, block)| block)
            .filter(|block| !block.has(flag::FREE_LATER))
            .collect();
        live.sort_by_key(|block| block.born_ms);
        live.into_iter()
            .map(|block| Leak {
                name: self.names.text(block.name).to_owned(),
                site: self.sites.text(block.site),
                bytes: self.requested(block),
                age_ms: u64::from(self.clock.ms().saturating_sub(block.born_ms)),
            })
            .collect()
    }

    /// The walk over INV-ALLOC-1 to INV-ALLOC-4 (docs/invariants.md). O(n).
    fn check(&self) -> Result<(), String> {
        for pool in &self.pools {
            pool.check()?;
        }
        let (mut requested, mut allocated) = (0, 0);
        for (key, block) in self.blocks.iter() {
            let pool = self.pool(block);
            if !pool.is_owned_by(block.spot, key.index()) {
                return Err(format!("INV-ALLOC-1: block {key:?} and its range disagree"));
            }
            if self.refuse_asleep(key, block).is_err() {
                continue;
            }
            requested += self.requested(block);
            allocated += pool.bytes(block.spot);
        }
        let live: usize = self.pools.iter().map(Pool::live_ranges).sum();
        if live != self.blocks.len() {
            return Err(format!("INV-ALLOC-2: {live} live ranges, {} blocks", self.blocks.len()));
        }
        let pending = self.pools.iter().map(Pool::pending).sum::<u64>();
        let active = allocated + pending + self.moves.bytes_held;
        let reserved = self.pools.iter().map(|pool| pool.reserved.current).sum();
        let counters = &self.counters;
        let counted = counters.total.usage();
        equal("INV-ALLOC-3", "requested", requested, counted.requested.current)?;
        equal("INV-ALLOC-3", "allocated", allocated, counted.allocated.current)?;
        equal("INV-ALLOC-3", "active", active, counters.total.active().current)?;
        equal("INV-ALLOC-4", "reserved", reserved, counters.reserved.current)
    }
}

fn equal(rule: &str, what: &str, walked: u64, counted: u64) -> Result<(), String> {
    if walked == counted {
        return Ok(());
    }
    Err(format!("{rule}: the walk finds {walked} {what} bytes, the counter says {counted}"))
}
