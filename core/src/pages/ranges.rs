//! The ranges that tile the address space, and the indices over the free ones.

use std::collections::{BTreeMap, BTreeSet};

use super::Zone;
use super::index::{Hit, Index};
use crate::id::{Key, Table};
use crate::point::{Points, StreamId};

pub(super) const NONE: u32 = u32::MAX;

/// What a range is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing is mapped here.
    Hole,
    /// Mapped and free, perhaps behind sync points.
    Free,
    /// A block in use.
    Live,
    /// Reserved by a plan whose device calls are under way.
    Mapping,
    /// Mapped, but its page is on its way elsewhere or back to the device.
    Leaving,
    /// The page is mapped elsewhere by now and this mapping still stands.
    Stale,
    /// A block that keeps its addresses while its pages are given back.
    Paused,
}

#[derive(Clone, Debug)]
pub(super) struct Range {
    pub start: u64,
    pub len: u64,
    pub state: State,
    /// What has to be reached before the bytes may be used by others.
    pub points: Points,
    /// The caller's number of a live block; [`NONE`] where there is none.
    pub owner: u32,
    pub prev: u32,
    pub next: u32,
}

impl Range {
    #[inline]
    pub const fn end(&self) -> u64 {
        self.start + self.len
    }

    /// Whether it makes one range with a neighbour.
    pub fn joins(&self, other: &Self) -> bool {
        match (self.state, other.state) {
            (State::Hole, State::Hole) => true,
            (State::Free, State::Free) => {
                let owner = Owner::of(&self.points);
                owner == Owner::of(&other.points)
                    && (owner != Owner::Nobody || self.points == other.points)
            }
            _ => false,
        }
    }
}

/// A stretch as it was, for putting it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Saved {
    pub start: u64,
    pub len: u64,
    pub state: State,
    pub points: Points,
}

/// Whom a free range may serve without a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Owner {
    Anyone,
    Stream(StreamId),
    Nobody,
}

impl Owner {
    #[inline]
    pub fn of(points: &Points) -> Self {
        match points.single_stream() {
            _ if points.is_empty() => Self::Anyone,
            Some(stream) => Self::Stream(stream),
            None => Self::Nobody,
        }
    }
}

/// One zone: a stretch of the space that is tiled from `base` to `top`; beyond is untouched.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub base: u64,
    pub top: u64,
    pub limit: u64,
    pub last: u32,
    pub free: BTreeMap<Owner, Index>,
    pub holes: BTreeSet<(u64, u64, u32)>,
}

impl Span {
    const fn new(base: u64, limit: u64) -> Self {
        Self { base, top: base, limit, last: NONE, free: BTreeMap::new(), holes: BTreeSet::new() }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Ranges {
    pub table: Table<Range>,
    pub spans: [Span; 2],
    /// Every point of every free range, so that reaching one finds the ranges behind it.
    pub pending: BTreeSet<(StreamId, u64, u32)>,
    /// Bytes of free ranges that have points.
    pub pending_bytes: u64,
    /// Bytes of free ranges.
    pub free_bytes: u64,
}

impl Ranges {
    pub fn new(base: u64, middle: u64, limit: u64) -> Self {
        Self {
            table: Table::new(),
            spans: [Span::new(base, middle), Span::new(middle, limit)],
            pending: BTreeSet::new(),
            pending_bytes: 0,
            free_bytes: 0,
        }
    }

    pub const fn span(&self, zone: Zone) -> &Span {
        &self.spans[zone as usize]
    }

    pub const fn zone_at(&self, at: u64) -> Zone {
        if at < self.spans[1].base { Zone::Small } else { Zone::Large }
    }

    pub fn at(&self, index: u32) -> Option<&Range> {
        self.table.at(index).map(|(_, range)| range)
    }

    /// Enters a linked range into the indices that its state asks for.
    pub fn enlist(&mut self, index: u32) {
        let Some((_, range)) = self.table.at(index) else { return };
        let (start, len, state) = (range.start, range.len, range.state);
        let span = &mut self.spans[usize::from(start >= self.spans[1].base)];
        match state {
            State::Hole => {
                span.holes.insert((len, start, index));
            }
            State::Free => {
                let owner = Owner::of(&range.points);
                let by_len = start >= self.spans[1].base;
                let span = &mut self.spans[usize::from(by_len)];
                let list = span.free.entry(owner).or_insert_with(|| Index::new(by_len));
                list.insert(Hit { start, len, range: index });
                self.free_bytes += len;
                if owner != Owner::Anyone {
                    self.pending_bytes += len;
                }
                for point in range.points.iter() {
                    self.pending.insert((point.stream, point.value, index));
                }
            }
            _ => {}
        }
    }

    /// Takes a range out of the indices.
    pub fn delist(&mut self, index: u32) {
        let Some((_, range)) = self.table.at(index) else { return };
        let (start, len, state) = (range.start, range.len, range.state);
        let span = &mut self.spans[usize::from(start >= self.spans[1].base)];
        match state {
            State::Hole => {
                span.holes.remove(&(len, start, index));
            }
            State::Free => {
                let owner = Owner::of(&range.points);
                if let Some(list) = span.free.get_mut(&owner) {
                    list.remove(Hit { start, len, range: index });
                    if list.is_empty() && owner != Owner::Anyone {
                        span.free.remove(&owner);
                    }
                }
                self.free_bytes -= len;
                if owner != Owner::Anyone {
                    self.pending_bytes -= len;
                }
                for point in range.points.iter() {
                    self.pending.remove(&(point.stream, point.value, index));
                }
            }
            _ => {}
        }
    }

    fn link(&mut self, index: u32, prev: u32, next: u32, zone: Zone) {
        if let Some(range) = self.table.at_mut(prev) {
            range.next = index;
        }
        match self.table.at_mut(next) {
            Some(range) => range.prev = index,
            None => self.spans[zone as usize].last = index,
        }
    }

    /// Links a range between two neighbours, in no index yet. `None` when the table is full.
    pub(super) fn place(&mut self, saved: Saved, prev: u32, next: u32) -> Option<Key> {
        let Saved { start, len, state, points } = saved;
        let key =
            self.table.insert(Range { start, len, state, points, owner: NONE, prev, next })?;
        self.link(key.index(), prev, next, self.zone_at(start));
        Some(key)
    }

    /// Adds a range between two neighbours. `None` when the table is full.
    pub fn insert(&mut self, saved: Saved, prev: u32, next: u32) -> Option<Key> {
        let key = self.place(saved, prev, next)?;
        self.enlist(key.index());
        Some(key)
    }

    /// Adds a free range between two neighbours and joins it with those that are alike.
    pub fn add_free(&mut self, start: u64, len: u64, points: Points, prev: u32, next: u32) {
        let saved = Saved { start, len, state: State::Free, points };
        if let Some(key) = self.place(saved, prev, next) {
            self.coalesce(key.index());
        }
    }

    /// Takes a range out and closes the chain over it.
    pub fn remove(&mut self, index: u32) -> Option<Saved> {
        self.delist(index);
        self.unlink(index)
    }

    /// Takes a range that is in no index out of the chain.
    pub fn unlink(&mut self, index: u32) -> Option<Saved> {
        let (key, _) = self.table.at(index)?;
        let range = self.table.remove(key).ok()?;
        let zone = self.zone_at(range.start);
        if let Some(prev) = self.table.at_mut(range.prev) {
            prev.next = range.next;
        }
        match self.table.at_mut(range.next) {
            Some(next) => next.prev = range.prev,
            None => self.spans[zone as usize].last = range.prev,
        }
        let Range { start, len, state, points, .. } = range;
        Some(Saved { start, len, state, points })
    }

    /// Cuts a range in two at `at`, strictly inside it. The first part keeps the slot.
    pub fn cut(&mut self, index: u32, at: u64) -> Option<u32> {
        let range = self.at(index)?;
        let (start, end, next) = (range.start, range.end(), range.next);
        if at <= start || at >= end {
            return None;
        }
        let (state, points) = (range.state, range.points.clone());
        self.delist(index);
        self.table.at_mut(index)?.len = at - start;
        self.enlist(index);
        let rest = Saved { start: at, len: end - at, state, points };
        self.insert(rest, index, next).map(Key::index)
    }

    /// Changes state and points, then joins the range with equal neighbours.
    pub fn set(&mut self, index: u32, state: State, points: Points) -> u32 {
        self.delist(index);
        if let Some(range) = self.table.at_mut(index) {
            range.state = state;
            range.points = points;
        }
        self.coalesce(index)
    }

    /// Tiles a span up to `end` at least, with a hole.
    pub fn extend(&mut self, zone: Zone, end: u64) -> Option<()> {
        let span = &mut self.spans[zone as usize];
        let (top, last) = (span.top, span.last);
        if end <= top {
            return Some(());
        }
        span.top = end;
        let hole = Saved { start: top, len: end - top, state: State::Hole, points: Points::NONE };
        match self.at(last) {
            Some(range) if range.state == State::Hole => {
                self.delist(last);
                self.table.at_mut(last)?.len += hole.len;
                self.enlist(last);
                Some(())
            }
            _ => self.insert(hole, last, NONE).map(|_| ()),
        }
    }

    /// The slot of the free range that `at` lies in.
    pub fn find(&self, at: u64) -> Option<u32> {
        let span = self.span(self.zone_at(at));
        span.free.values().find_map(|list| list.containing(at)).map(|hit| hit.range)
    }

    /// Replaces `[start, end)`, which free ranges and holes tile, by ranges of the given lengths
    /// and states. `hint` is a range at or before `start`. Returns what was there, and the keys.
    pub fn carve(
        &mut self,
        hint: u32,
        start: u64,
        parts: &[(u64, State, Points)],
    ) -> Option<(Vec<Saved>, Vec<Key>)> {
        let end = start + parts.iter().map(|part| part.0).sum::<u64>();
        let mut index = hint;
        while self.at(index)?.end() <= start {
            index = self.at(index)?.next;
        }
        if self.at(index)?.end() >= end {
            return self.carve_within(index, start, end, parts);
        }
        if self.at(index)?.start < start {
            index = self.cut(index, start)?;
        }
        let prev = self.at(index)?.prev;
        let mut saved = Vec::new();
        loop {
            let range = self.at(index)?;
            if range.end() > end {
                self.cut(index, end)?;
            }
            let (next, done) = (self.at(index)?.next, self.at(index)?.end() >= end);
            saved.push(self.remove(index)?);
            index = next;
            if done {
                break;
            }
        }
        let keys = self.fill(start, parts, prev, index)?;
        Some((saved, keys))
    }

    /// [`carve`](Self::carve) where one range holds the whole stretch.
    fn carve_within(
        &mut self,
        index: u32,
        start: u64,
        end: u64,
        parts: &[(u64, State, Points)],
    ) -> Option<(Vec<Saved>, Vec<Key>)> {
        self.delist(index);
        let whole = self.at(index)?;
        let (prev, next, from, to) = (whole.prev, whole.next, whole.start, whole.end());
        let (state, points) = (whole.state, whole.points.clone());
        let part =
            |start: u64, end: u64| Saved { start, len: end - start, state, points: points.clone() };
        let prev = if from < start {
            self.table.at_mut(index)?.len = start - from;
            self.enlist(index);
            index
        } else {
            self.unlink(index)?;
            prev
        };
        let keys = self.fill(start, parts, prev, next)?;
        if end < to {
            self.insert(part(end, to), keys.last()?.index(), next)?;
        }
        Some((vec![part(start, end)], keys))
    }

    fn fill(
        &mut self,
        start: u64,
        parts: &[(u64, State, Points)],
        prev: u32,
        next: u32,
    ) -> Option<Vec<Key>> {
        let (mut prev, mut start, mut keys) = (prev, start, Vec::with_capacity(parts.len()));
        for (len, state, points) in parts.iter().filter(|part| part.0 > 0) {
            let saved = Saved { start, len: *len, state: *state, points: points.clone() };
            let key = self.insert(saved, prev, next)?;
            keys.push(key);
            prev = key.index();
            start += len;
        }
        Some(keys)
    }

    /// Puts back what [`carve`](Self::carve) took: `keys` are the ranges it made, in order.
    pub fn restore(&mut self, keys: &[Key], saved: Vec<Saved>) -> Option<()> {
        let first = self.table.get(*keys.first()?).ok()?.prev;
        let next = self.table.get(*keys.last()?).ok()?.next;
        for key in keys {
            self.remove(key.index())?;
        }
        let mut prev = first;
        let mut made = Vec::with_capacity(saved.len());
        for part in saved {
            let key = self.insert(part, prev, next)?;
            prev = key.index();
            made.push(prev);
        }
        // Ranges that were cut join with what was left of them; an inner one may be gone by then.
        for index in [made.first(), made.last()].into_iter().flatten() {
            if self.at(*index).is_some() {
                self.delist(*index);
                self.coalesce(*index);
            }
        }
        Some(())
    }
}
