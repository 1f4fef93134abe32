//! What the allocator keeps about moves.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::compact::{Goal, Verdict, Verdicts, Verify, Why};
use crate::device::{MemoryKind, StreamId, Ticket};
use crate::event::{Event, EventKind};
use crate::id::Key;
use crate::point::{Points, SyncPoint};
use crate::pool::{Grabbed, Pool, Spot};
use crate::stats::MoveStats;
use crate::sync::{Thread, this_thread};

use super::super::free::drop_reached;
use super::super::state::{Block, State, flag};
use super::report::Corrupt;

/// Moves of all passes.
#[derive(Default)]
pub(crate) struct Moves {
    /// The streams that copies go to: of full passes and of those in the background.
    pub streams: [Option<StreamId>; 2],
    /// A checksum differed: nothing is moved any more.
    pub stopped: bool,
    /// Bytes reserved for moves or kept as their sources: active, but nobody's.
    pub bytes_held: u64,
    /// Submitted moves whose copies are not known to be done, of each stream in its order, a few
    /// together: what grows with the lock held has to stay short.
    pub flights: [VecDeque<Vec<Flight>>; 2],
    /// Passes that have not been ended, and those that have moves under way.
    pub passes: FxHashMap<u32, Books>,
    pub next_pass: u32,
    /// Passes that end with the call of the library that began them, and the threads that are in
    /// those calls.
    pub brief: Vec<(u32, Thread)>,
    /// How many of those have ended.
    pub brief_ended: u64,
    /// Moves begun, to choose those that are verified.
    pub begun: u64,
    pub stats: MoveStats,
}

/// What is counted for a pass.
#[derive(Debug, Default)]
pub(crate) struct Books {
    pub verdicts: Verdicts,
    pub corrupt: Vec<Corrupt>,
    /// Submitted moves that are not settled.
    pub under_way: u64,
    /// Those of them whose old places are kept until their checksums are compared.
    pub checks: u64,
    /// Whether nobody will ask for it any more.
    pub ended: bool,
}

/// A submitted move.
#[derive(Debug)]
pub(crate) struct Flight {
    pub pass: u32,
    pub key: Key,
    pub bytes: u64,
    pub point: SyncPoint,
    /// The old place, kept until its checksum is compared.
    pub check: Option<Check>,
}

/// A comparison of checksums that is to come.
#[derive(Debug)]
pub(crate) struct Check {
    pub pool: u16,
    pub source: Spot,
    pub points: Points,
    /// The tickets of the batch, and which of its numbers are this block's.
    pub tickets: (Ticket, Ticket),
    pub at: usize,
}

impl Moves {
    /// Points of copies under way: the last of each stream.
    pub fn awaited_points(&self) -> impl Iterator<Item = SyncPoint> + '_ {
        self.flights.iter().filter_map(|flights| Some(flights.back()?.last()?.point))
    }

    /// Notes moves that were submitted to one stream by one pass.
    pub fn take_off(&mut self, flights: Vec<Flight>) {
        let Some(last) = flights.last() else { return };
        if let Some(books) = self.passes.get_mut(&last.pass) {
            books.under_way += flights.len() as u64;
            books.checks += flights.iter().filter(|flight| flight.check.is_some()).count() as u64;
        }
        let at = usize::from(self.streams[1] == Some(last.point.stream));
        self.flights[at].push_back(flights);
    }

    /// Notes that a pass has ended.
    pub fn end_brief(&mut self, pass: u32) {
        let before = self.brief.len();
        self.brief.retain(|(id, _)| *id != pass);
        self.brief_ended += u64::from(self.brief.len() < before);
    }

    /// Submitted moves of a pass that are not settled.
    pub fn under_way(&self, pass: u32) -> u64 {
        self.passes.get(&pass).map_or(0, |books| books.under_way)
    }

    /// Whether old places are kept for a pass until their checksums are compared.
    pub fn has_checks(&self, pass: u32) -> bool {
        self.passes.get(&pass).is_some_and(|books| books.checks > 0)
    }

    /// Whether the next move is one that is verified.
    pub fn is_sampled(&mut self, verify: Verify) -> bool {
        let number = self.begun;
        self.begun += 1;
        match verify {
            Verify::Never | Verify::OneIn(0) => false,
            Verify::OneIn(n) => number.is_multiple_of(u64::from(n)),
            Verify::Always => true,
        }
    }
}

impl State {
    /// A new pass; a brief one ends with the call of the library that begins it.
    pub fn new_pass(&mut self, brief: bool) -> u32 {
        self.moves.next_pass = self.moves.next_pass.wrapping_add(1);
        if brief {
            self.moves.brief.push((self.moves.next_pass, this_thread()));
        }
        self.moves.stats.passes += 1;
        self.moves.passes.insert(self.moves.next_pass, Books::default());
        self.moves.next_pass
    }

    /// The pools whose blocks may move, by number.
    pub fn movable_pools(&self, of: impl Fn(&Pool) -> bool) -> Vec<u16> {
        let pools = (0_u16..).zip(&self.pools);
        pools.filter(|(_, pool)| pool.is_movable() && of(pool)).map(|(at, _)| at).collect()
    }

    /// Points after which the copies of a pass are done, if some are under way.
    pub fn awaited_copies(&self, pass: u32) -> Vec<SyncPoint> {
        let is_busy = self.moves.under_way(pass) > 0;
        self.moves.awaited_points().filter(|_| is_busy).collect()
    }

    /// Free bytes of the segments in use and of paged spaces, what of them lies together or can be
    /// mapped so, and what fragmentation that makes.
    pub fn free_in_use(&self, pools: &[u16]) -> (u64, u64, f64) {
        let of_pool = |at: &u16| {
            let pool = &self.pools[usize::from(*at)];
            let ((free, largest), paged) = (pool.free_in_use(), pool.usage());
            // Whole pages can be mapped side by side.
            (free + paged.free, largest.max(paged.free_pages))
        };
        let of_pools = pools.iter().map(of_pool);
        let (free, largest) = of_pools.fold((0, 0), |(f, l), (free, most)| (f + free, most.max(l)));
        (free, largest, if free == 0 { 0.0 } else { 1.0 - largest as f64 / free as f64 })
    }

    /// What a goal means for one of the pools of a pass: others may have empty segments too.
    pub fn goal_in(&self, goal: Goal, pool: u16, pools: &[u16]) -> Goal {
        let Goal::Release { bytes } = goal else { return goal };
        let others = pools.iter().filter(|at| **at != pool);
        let idle = |at: &u16| {
            let pool = &self.pools[usize::from(*at)];
            let segments = pool.idle().filter_map(|(id, _)| pool.segment(id));
            segments.map(|segment| segment.plain.bytes).sum::<u64>()
        };
        if bytes == u64::MAX {
            return goal;
        }
        Goal::Release { bytes: bytes.saturating_sub(others.map(idle).sum()) }
    }

    /// Why a block can not move now, if it can not.
    pub fn why_not(&self, block: &Block, offer_raw: bool) -> Option<Why> {
        let pool = self.pool(block);
        if block.has(flag::FREE_LATER) {
            Some(Why::Freed)
        } else if !pool.is_movable() || block.has(flag::CAPTURED) {
            Some(Why::Captured)
        } else if block.has(flag::MAPPED) {
            Some(Why::Mapped)
        } else if block.holds > 0 {
            Some(Why::Held)
        } else if block.has(flag::MOVING | flag::SLIDING) {
            Some(Why::Moving)
        } else if pool.key.exportable {
            Some(Why::Exported)
        } else if !block.has(flag::MOVABLE) {
            Some(Why::Asked)
        } else if block.has(flag::HAS_VIEW) && !offer_raw {
            Some(Why::Viewed)
        } else if block.has(flag::RAW) && !offer_raw {
            Some(Why::RawHandle)
        } else {
            None
        }
    }

    /// Counts a range that was reserved for a move: active, though no block's.
    pub fn note_held(&mut self, pool: u16, grabbed: &Grabbed) {
        let (kind, bytes) = self.kind_and_bytes(pool, grabbed.spot);
        self.moves.bytes_held += bytes;
        self.count_active(kind, bytes - grabbed.pending);
    }

    /// Gives a held range back: usable once `points` are reached.
    pub fn let_go(&mut self, pool: u16, spot: Spot, points: Points) {
        let (kind, bytes) = self.kind_and_bytes(pool, spot);
        self.moves.bytes_held -= bytes;
        let mut points = points;
        drop_reached(&mut points, &self.reached);
        let now = self.now();
        let pool = &mut self.pools[usize::from(pool)];
        let (is_done, before) = (points.is_empty(), pool.pending());
        pool.free(spot, points, now);
        // Of a range that pages are mapped at twice only a part is free.
        let pending = pool.pending().saturating_sub(before);
        match spot.is_paged() {
            true => self.count_done(kind, bytes - pending.min(bytes)),
            false if is_done => self.count_done(kind, bytes),
            false => {}
        }
        self.frees += 1;
    }

    fn kind_and_bytes(&self, pool: u16, spot: Spot) -> (MemoryKind, u64) {
        let pool = &self.pools[usize::from(pool)];
        (pool.kind, pool.bytes(spot))
    }

    /// Counts what became of a move, and writes the event.
    pub fn verdict(&mut self, pass: u32, key: Key, bytes: u64, verdict: Verdict) {
        let stats = &mut self.moves.stats;
        let (kind, count) = match verdict {
            Verdict::Committed => (EventKind::MoveCommitted, &mut stats.committed),
            Verdict::Cancelled => (EventKind::MoveCancelled, &mut stats.cancelled),
            Verdict::Dropped => (EventKind::MoveDropped, &mut stats.dropped),
            Verdict::Corrupt => (EventKind::MoveCorrupt, &mut stats.corrupt),
        };
        *count += 1;
        if let Some(books) = self.moves.passes.get_mut(&pass) {
            books.verdicts.add(verdict);
        }
        self.event(Event::new(kind).handle(key.to_bits()).a(u64::from(pass)).b(bytes));
    }
}
