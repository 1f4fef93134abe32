//! Blocks by the slot of their range, as an allocator keeps them: who owns one, what its uses
//! are, what has been reached.

use super::index::Index;
use super::ranges::{NONE, Range};
use super::{Backing, BlockId, Pages, Points, State, StreamId, SyncPoint, Zone};

/// A stretch of the space, as it is now.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// First byte.
    pub at: u64,
    /// Bytes.
    pub bytes: u64,
    /// What it is.
    pub state: State,
    /// Of a live block: its owner's number, if one was set.
    pub owner: Option<u32>,
    /// What has to be reached before the bytes may be used by others.
    pub points: &'a Points,
}

/// A page where it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedPage {
    /// Its first byte in the space.
    pub at: u64,
    /// The memory object, where in it the page lies, and bytes.
    pub backing: Backing,
}

impl Pages {
    /// The block whose range is in a slot.
    pub fn block_in(&self, slot: u32) -> Option<BlockId> {
        self.ranges.table.at(slot).map(|(key, _)| BlockId(key))
    }

    /// First byte and bytes of the range in a slot; nothing where there is none.
    pub fn extent_of(&self, slot: u32) -> (u64, u64) {
        self.ranges.at(slot).map_or((0, 0), |range| (range.start, range.len))
    }

    /// Names the owner of a block, and gives the block's first byte.
    #[inline]
    pub fn set_owner(&mut self, slot: u32, owner: u32) -> u64 {
        let Some(range) = self.ranges.table.at_mut(slot) else { return 0 };
        range.owner = owner;
        range.start
    }

    /// Says that a block has moved away, while its range is still taken.
    pub fn disown(&mut self, slot: u32) {
        self.set_owner(slot, NONE);
    }

    /// Whether the range in a slot is a live block of this owner.
    pub fn is_owned_by(&self, slot: u32, owner: u32) -> bool {
        self.ranges.at(slot).is_some_and(|range| {
            matches!(range.state, State::Live | State::Paused | State::Mapping)
                && range.owner == owner
        })
    }

    /// What a block was given, and the uses recorded since.
    pub fn uses(&self, slot: u32) -> &Points {
        static NO_POINTS: Points = Points::NONE;
        self.ranges.at(slot).map_or(&NO_POINTS, |range| &range.points)
    }

    /// The recorded uses of a live block, to be changed. `None` for anything else: the indices
    /// know the points of free ranges.
    pub fn uses_mut(&mut self, slot: u32) -> Option<&mut Points> {
        let range = self.ranges.table.at_mut(slot)?;
        (range.state == State::Live).then_some(&mut range.points)
    }

    /// First byte, bytes and recorded uses of a live block.
    #[inline(always)]
    pub fn live_extent(&mut self, slot: u32) -> Option<(u64, u64, &mut Points)> {
        let range = self.ranges.table.at_mut(slot).filter(|range| range.state == State::Live)?;
        Some((range.start, range.len, &mut range.points))
    }

    /// The owners of the nearest live blocks before and after a range, at most `far` ranges away.
    pub fn owners_beside(&self, slot: u32, far: usize) -> [Option<u32>; 2] {
        let at = |index: u32| self.ranges.at(index);
        let owner = |range: &Range| {
            (range.state == State::Live && range.owner != NONE).then_some(range.owner)
        };
        let own = at(slot);
        let below = std::iter::successors(own.and_then(|own| at(own.prev)), |it| at(it.prev));
        let above = std::iter::successors(own.and_then(|own| at(own.next)), |it| at(it.next));
        [below.take(far).find_map(owner), above.take(far).find_map(owner)]
    }

    /// The parts of a zone in order of address.
    pub fn parts(&self, zone: Zone) -> Vec<Part<'_>> {
        let mut parts = Vec::new();
        let mut index = self.ranges.span(zone).last;
        while let Some(range) = self.ranges.at(index) {
            parts.push(Part {
                at: range.start,
                bytes: range.len,
                state: range.state,
                owner: (matches!(range.state, State::Live | State::Paused) && range.owner != NONE)
                    .then_some(range.owner),
                points: &range.points,
            });
            index = range.prev;
        }
        parts.reverse();
        parts
    }

    /// Slots of ranges and of pages that were ever used: what is in them can be looked at in parts,
    /// between which the space changes. What was there all the time is seen.
    pub fn slots(&self) -> (u32, u32) {
        (self.ranges.table.slots(), self.store.pages.slots())
    }

    /// The parts in some slots of ranges that are neither free nor holes, in no order: first byte,
    /// bytes, and the owner of a live block.
    pub fn taken_in(
        &self,
        slots: std::ops::Range<u32>,
    ) -> impl Iterator<Item = (u64, u64, Option<u32>)> + '_ {
        let ranges = slots.filter_map(|slot| self.ranges.at(slot));
        let taken = ranges.filter(|range| !matches!(range.state, State::Free | State::Hole));
        taken.map(|range| {
            let is_block = range.state == State::Live && range.owner != NONE;
            (range.start, range.len, is_block.then_some(range.owner))
        })
    }

    /// First byte, bytes and whether it could be mapped elsewhere if it were free, of the pages in
    /// some slots, in no order.
    pub fn pages_at(
        &self,
        slots: std::ops::Range<u32>,
    ) -> impl Iterator<Item = (u64, u64, bool)> + '_ {
        slots.filter_map(|slot| self.store.pages.at(slot)).map(|(_, page)| {
            let may_leave = !page.in_flight && page.unmapping == 0;
            (page.at, page.backing.bytes, may_leave)
        })
    }

    /// The pages of a zone in order of address.
    pub fn pages_in(&self, zone: Zone) -> Vec<MappedPage> {
        let (base, top) = self.bounds(zone);
        let all = self.store.pages.iter();
        let all = all.map(|(_, page)| MappedPage { at: page.at, backing: page.backing });
        let mut pages: Vec<MappedPage> =
            all.filter(|page| (base..top).contains(&page.at)).collect();
        pages.sort_unstable_by_key(|page| page.at);
        pages
    }

    /// Takes exactly these bytes for a block, if all of them are free and backed. The block's uses
    /// are what they have to wait for.
    pub fn take_at(&mut self, at: u64, bytes: u64) -> Option<BlockId> {
        let hint = self.ranges.find(at)?;
        let end = at.checked_add(bytes)?;
        let mut index = hint;
        loop {
            let range = self.ranges.at(index).filter(|range| range.state == State::Free)?;
            if range.end() >= end {
                break;
            }
            index = range.next;
        }
        let points = self.points_over(hint, at, end);
        let (_, keys) = self.ranges.carve(hint, at, &[(bytes, State::Live, points)])?;
        self.version += 1;
        self.store.cover(at, bytes);
        self.live += bytes;
        self.active_peak = self.active_peak.max(self.live + self.ranges.pending_bytes);
        keys.first().copied().map(BlockId)
    }

    /// First byte of a zone and where its ranges end.
    pub const fn bounds(&self, zone: Zone) -> (u64, u64) {
        let span = self.ranges.span(zone);
        (span.base, span.top)
    }

    /// Number of owned blocks in use, paused ones too. O(n).
    pub fn live_blocks(&self) -> usize {
        let is_block = |range: &Range| match range.state {
            // Those without an owner are where blocks move to, or have moved from. What is mapping
            // is being paused or resumed; a new one has no owner yet.
            State::Live | State::Paused | State::Mapping => range.owner != NONE,
            _ => false,
        };
        self.ranges.table.iter().filter(|(_, range)| is_block(range)).count()
    }

    /// The longest free range, whatever it waits for.
    pub fn longest_free(&self) -> u64 {
        let lists = self.ranges.spans.iter().flat_map(|span| span.free.values());
        lists.map(Index::longest_len).max().unwrap_or(0)
    }

    /// Free bytes in ranges below `bytes`, wholly free pages apart. O(n).
    pub fn stranded_below(&self, bytes: u64) -> u64 {
        let free = self.ranges.table.iter().filter(|(_, range)| range.state == State::Free);
        let short = free.map(|(_, range)| range.len).filter(|&len| len < bytes);
        short.sum::<u64>().min(self.ranges.free_bytes.saturating_sub(self.store.free_bytes))
    }

    /// Takes in what is reached: `reached` tells the last value of a stream known to be. Gives
    /// the free bytes that nothing is ordered before any more.
    pub fn reap(&mut self, reached: &dyn Fn(StreamId) -> u64) -> u64 {
        self.reap_some(reached, u32::MAX).0
    }

    /// A part of [`reap`](Self::reap): looks at `most` ranges at most. Tells whether that was all,
    /// too.
    pub fn reap_some(&mut self, reached: &dyn Fn(StreamId) -> u64, most: u32) -> (u64, bool) {
        let (before, mut left) = (self.ranges.pending_bytes, most);
        let mut next = self.ranges.pending.first().map(|entry| entry.0);
        while let Some(stream) = next.filter(|_| left > 0) {
            self.settle_some(SyncPoint { stream, value: reached(stream) }, &mut left);
            let after = (StreamId(stream.0.saturating_add(1)), 0, 0);
            next = self.ranges.pending.range(after..).next().map(|entry| entry.0);
        }
        (before - self.ranges.pending_bytes, left > 0)
    }

    /// Points that free ranges and stale mappings wait for: the first of each stream at least.
    pub fn awaited_points(&self) -> Vec<SyncPoint> {
        let mut points = Vec::new();
        let mut next = self.ranges.pending.first();
        while let Some(&(stream, value, _)) = next {
            points.push(SyncPoint { stream, value });
            next = self.ranges.pending.range((StreamId(stream.0.saturating_add(1)), 0, 0)..).next();
        }
        points
    }

    /// Forgets what has been reached of a stream that ends, unless something still waits for it.
    pub fn forget_stream(&mut self, stream: StreamId) {
        let waits = |points: &Points| points.iter().any(|point| point.stream == stream);
        let free = self.ranges.pending.range((stream, 0, 0)..=(stream, u64::MAX, NONE)).next();
        if free.is_none() && !self.stale.iter().any(|stale| waits(&stale.after)) {
            self.reached.remove(&stream);
        }
    }
}
