//! Requests and frees by way of the shelf.

use std::panic::Location;

use crate::event::{Event, EventKind, Why};
use crate::id::Key;
use crate::point::Points;
use crate::pool::Now;
use crate::request::Request;

use super::super::Inner;
use super::super::free::drop_reached;
use super::super::holding::code_of_new;
use super::super::lock::Locked;
use super::super::state::{State, flag};
use super::{BINS, Keep, Like, PLACES, Shelved};

/// Blocks put back at most before others get the lock.
const PUT_BACK_AT_ONCE: u16 = 32;
/// How often others get it.
const TURNS: u16 = 2 * PLACES / PUT_BACK_AT_ONCE;

impl Inner {
    /// The state, locked, with every free range in its pool's index.
    #[track_caller]
    pub fn lock(&self) -> Locked<'_> {
        for _ in 0..TURNS {
            let mut state = self.lock_shelved();
            if state.put_back(PUT_BACK_AT_ONCE) {
                state.shelf.order.forget();
                return state;
            }
        }
        // Others go on freeing faster than this.
        let mut state = self.lock_shelved();
        state.close_shelf();
        state
    }
}

impl State {
    /// Serves a request by a block that is kept for it: its new handle and its bytes.
    #[inline(always)]
    pub fn take_shelved(
        &mut self,
        like: &Like,
        request: &Request<'_>,
        site: &'static Location<'static>,
    ) -> Option<(Key, u64)> {
        if self.shelf.is_empty() {
            return None;
        }
        let at = self.shelf.next_of(like)?;
        // Whether a limit allows it is not decided here.
        if self.counters.tags.get(usize::from(request.tag.0))?.limit.is_some() {
            return None;
        }
        let (name, site) = (self.name(request.name), self.site(site));
        let born_ms = self.clock.ms();
        let bin = self.shelf.bins.get_mut(at)?;
        let (&Shelved { key, place, done, .. }, counted) = bin.newest()?;
        let (bytes, class) = (bin.bytes, bin.class);
        let (key, block) = self.blocks.renew_with(key)?;
        block.flags &= !flag::FREE_LATER;
        (block.born_ms, block.name, block.site) = (born_ms, name, site);
        bin.len -= 1;
        // Its bin is among those to be counted since the free.
        bin.rounds += u32::from(!counted);
        self.shelf.len -= 1;
        if self.shelf.keep == Keep::InOrder {
            self.shelf.order.take(key);
        }
        if counted {
            self.count_again(at, done);
        }
        let event = Event::new(EventKind::Alloc).handle(key.to_bits());
        let event = event.a(request.bytes).b(bytes).c(place.offset).within(place.space.0);
        let event = event.why(if done { Why::CompletedHole } else { Why::OwnHole });
        // What is for a graph is never served here.
        let event = event.holding(code_of_new(request, false));
        self.event(event.of(class, request.tag.0).on(request.stream.0, site));
        Some((key, bytes))
    }

    /// Counts a block as live again whose free was counted.
    #[cold]
    fn count_again(&mut self, bin: usize, done: bool) {
        self.shelf.bins[bin].counted -= 1;
        self.settle();
        let bin = self.shelf.bins[bin];
        if !done {
            // Active still: counted once more as the new block's.
            self.count_done(bin.kind, bin.bytes);
        }
        self.count_alloc(bin.kind, bin.tag(), bin.like.bytes, bin.bytes);
    }

    /// Puts a block that is freed on the shelf, with `more` recorded as uses of it; false, with
    /// nothing changed but those, when no request like its own is expected or others than its own
    /// stream may have to wait for it.
    #[inline(always)]
    pub fn shelve(&mut self, key: Key, more: &Points) -> bool {
        let Ok(block) = self.blocks.get_mut(key) else { return false };
        let pool = &mut self.pools[usize::from(block.pool)];
        let class = pool.key.class.0;
        let Some((place, bytes, uses)) = pool.extent(block.spot) else { return false };
        if block.holds > 0 {
            return false;
        }
        let Some(bin) = self.shelf.bin_for(key, block, bytes) else { return false };
        uses.merge(more);
        if !uses.is_empty() {
            drop_reached(uses, &self.reached);
            if !uses.is_empty() && uses.single_stream() != Some(block.stream) {
                return false;
            }
        }
        // Of its own stream, if there is one.
        let awaited = uses.as_slice().first().copied();
        let done = awaited.is_none();
        block.flags |= flag::FREE_LATER;
        let (requested, stream, tag) = (bytes - u64::from(block.pad), block.stream.0, block.tag.0);
        let site = block.site;
        let freed_ns = self.clock.ns();
        if self.shelf.keep == Keep::InOrder {
            self.shelf.order.keep();
        } else if self.shelf.len == PLACES || !self.shelf.has_room(bin) {
            self.make_room(bin);
        }
        self.shelf.push(bin, Shelved { key, place, freed_ns, done });
        if let Some(point) = awaited {
            self.tell_free_waits(key, &[point]);
        }
        let event = Event::new(EventKind::FreeRequested).handle(key.to_bits()).a(requested);
        self.event(event.b(bytes).of(class, tag).on(stream, site));
        if done {
            let event = Event::new(EventKind::FreeCompleted).handle(key.to_bits());
            self.event(event.b(bytes).of(class, tag).on(stream, 0));
        }
        self.frees += 1;
        true
    }

    /// Counts what was put off.
    #[inline(always)]
    pub fn settle(&mut self) {
        if !self.shelf.dirty.is_empty() {
            self.count_rest();
        }
    }

    #[inline(never)]
    fn count_rest(&mut self) {
        while let Some(at) = self.shelf.dirty.take_from(0) {
            let bin = &mut self.shelf.bins[at];
            let (sizes, tag, kind) = ((bin.like.bytes, bin.bytes), bin.tag(), bin.kind);
            let rounds = u64::from(std::mem::take(&mut bin.rounds));
            let (from, len) = (usize::from(bin.counted), usize::from(bin.len));
            bin.counted = bin.len;
            self.counters.count_rounds(kind, tag, sizes, rounds);
            for place in from..len {
                let done = self.shelf.bins[at].blocks[place].done;
                self.count_free(kind, tag, sizes, done);
            }
        }
    }

    /// Puts everything on the shelf back and forgets the order of live blocks: the indices are
    /// about to change.
    #[inline]
    pub fn close_shelf(&mut self) {
        self.put_back(PLACES);
        self.shelf.order.forget();
    }

    /// The same where blocks are kept in order only: a block is about to be freed otherwise.
    #[inline]
    pub fn close_order(&mut self) {
        if self.shelf.keep == Keep::InOrder {
            self.close_shelf();
        }
    }

    /// A request is about to be served by a hole: in order, that is a hole of the index as it is
    /// with everything on the shelf in it.
    pub fn open_index(&mut self) {
        if self.shelf.keep == Keep::InOrder {
            self.put_back(PLACES);
        }
    }

    /// Puts back at most so many blocks and counts all that was put off. Tells whether the shelf
    /// is empty.
    #[inline(always)]
    pub fn put_back(&mut self, most: u16) -> bool {
        self.settle();
        for _ in 0..most.min(self.shelf.len) {
            self.put_back_one();
        }
        self.shelf.is_empty()
    }

    /// Puts back all blocks of at least so many bytes; tells whether there were any.
    pub fn put_back_from(&mut self, least: u64) -> bool {
        if self.shelf.is_empty() {
            return false;
        }
        self.settle();
        let before = self.shelf.len;
        for bin in 0..BINS {
            if self.shelf.bins[bin].bytes >= least {
                while self.shelf.bins[bin].len > 0 {
                    self.put_back_of(bin);
                }
            }
        }
        self.shelf.len < before
    }

    /// Makes room for one more block in a bin.
    #[inline(never)]
    fn make_room(&mut self, bin: usize) {
        if self.shelf.has_room(bin) {
            self.put_back_one();
        } else {
            self.put_back_of(bin);
        }
    }

    /// Puts back a block of the bin that the hand points at.
    #[inline(never)]
    fn put_back_one(&mut self) {
        if let Some(bin) = self.shelf.order.put_back() {
            return self.put_back_of(bin);
        }
        while let Some(bin) = self.shelf.filled.take_from(self.shelf.hand) {
            self.shelf.hand = (bin + 1) % BINS;
            if self.shelf.bins[bin].len > 1 {
                self.shelf.filled.insert(bin);
            }
            if self.shelf.bins[bin].len > 0 {
                return self.put_back_of(bin);
            }
        }
    }

    /// Puts back the block of a bin that was freed first.
    fn put_back_of(&mut self, bin: usize) {
        let bin = &mut self.shelf.bins[bin];
        let (sizes, tag, kind) = ((bin.like.bytes, bin.bytes), bin.tag(), bin.kind);
        let Some((Shelved { key, freed_ns, done, .. }, counted)) = bin.take_oldest() else {
            return;
        };
        self.shelf.len -= 1;
        if !counted {
            self.count_free(kind, tag, sizes, done);
        }
        let Ok(block) = self.blocks.remove(key) else { return };
        let freed = Now { ms: self.clock.ms_at(freed_ns), ns: freed_ns };
        let pool = &mut self.pools[usize::from(block.pool)];
        // What is left of the uses recorded on it stays with the range.
        if let Some((_, _, uses)) = pool.extent(block.spot) {
            drop_reached(uses, &self.reached);
        }
        pool.free(block.spot, Points::NONE, freed);
    }
}
