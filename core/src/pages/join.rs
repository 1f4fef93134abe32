//! Joining free neighbours, and cutting a block out of a free range, with as little change of the
//! indices as each needs.

use super::index::Hit;
use super::ranges::{NONE, Owner, Ranges, Saved, State};
use crate::id::Key;

/// Ranges there may be before a block is cut out: far beyond any real use, and short of the end of
/// the table by what one cut may add.
const MOST: usize = NONE as usize - 8;

impl Ranges {
    /// Gives a free range another start and length between its neighbours; its points stay.
    pub(super) fn resize(&mut self, index: u32, start: u64, len: u64) {
        let Some(range) = self.table.at_mut(index) else { return };
        let old = Hit { start: range.start, len: range.len, range: index };
        let owner = Owner::of(&range.points);
        (range.start, range.len) = (start, len);
        let span = &mut self.spans[usize::from(start >= self.spans[1].base)];
        if let Some(list) = span.free.get_mut(&owner) {
            list.update(old, Hit { start, len, range: index });
        }
        self.free_bytes = self.free_bytes - old.len + len;
        if owner != Owner::Anyone {
            self.pending_bytes = self.pending_bytes - old.len + len;
        }
    }

    pub(super) fn joins(&self, left: u32, right: u32) -> bool {
        match (self.at(left), self.at(right)) {
            (Some(a), Some(b)) => match (a.state, b.state) {
                (State::Hole, State::Hole) => true,
                (State::Free, State::Free) => {
                    let owner = Owner::of(&a.points);
                    owner == Owner::of(&b.points)
                        && (owner != Owner::Nobody || a.points == b.points)
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// Joins a range that is in no index with its neighbours and enters the result; a hole at the
    /// end of a span becomes untouched again. Returns the slot that holds the bytes now, [`NONE`]
    /// if they are untouched.
    pub(super) fn coalesce(&mut self, index: u32) -> u32 {
        if let Some(grown) = self.grow_neighbour(index) {
            return grown;
        }
        let mut index = index;
        if let Some(prev) = self.at(index).map(|range| range.prev)
            && self.joins(prev, index)
        {
            self.delist(prev);
            self.absorb(prev, index);
            index = prev;
        }
        if let Some(next) = self.at(index).map(|range| range.next)
            && self.joins(index, next)
        {
            self.delist(next);
            self.absorb(index, next);
        }
        match self.at(index) {
            Some(range) if range.state == State::Hole && range.next == NONE => {
                let (start, zone) = (range.start, self.zone_at(range.start));
                self.unlink(index);
                self.spans[zone as usize].top = start;
                NONE
            }
            _ => {
                self.enlist(index);
                index
            }
        }
    }

    /// Adds a free range that is in no index to a free neighbour whose points it does not add to:
    /// nothing but that neighbour's length changes in the indices. `None` when there is none.
    fn grow_neighbour(&mut self, index: u32) -> Option<u32> {
        let range = self.at(index).filter(|range| range.state == State::Free)?;
        let (start, len, prev, next) = (range.start, range.len, range.prev, range.next);
        let takes = |ranges: &Self, left: u32, right: u32, neighbour: u32| {
            ranges.joins(left, right)
                && ranges.at(index).zip(ranges.at(neighbour)).is_some_and(|(range, taker)| {
                    range.points == taker.points || range.points.is_empty()
                })
        };
        if takes(self, prev, index, prev) {
            let takes_next = self.joins(prev, next);
            let alike = self.at(prev).zip(self.at(next)).is_some_and(|(a, b)| a.points == b.points);
            if takes_next && !alike {
                return None;
            }
            let (from, before) = self.at(prev).map(|range| (range.start, range.len))?;
            self.unlink(index)?;
            let mut total = before + len;
            if takes_next {
                self.delist(next);
                total += self.unlink(next)?.len;
            }
            self.resize(prev, from, total);
            return Some(prev);
        }
        if takes(self, index, next, next) && !self.joins(prev, index) {
            let after = self.at(next)?.len;
            self.unlink(index)?;
            self.resize(next, start, len + after);
            return Some(next);
        }
        None
    }

    /// Adds the range after `index` to it, both in no index.
    pub fn absorb(&mut self, index: u32, next: u32) {
        if let Some(gone) = self.unlink(next)
            && let Some(range) = self.table.at_mut(index)
        {
            range.len += gone.len;
            range.points.merge(&gone.points);
        }
    }

    /// Cuts `[start, start + len)` out of one free range and gives it another state. `None`, with
    /// nothing changed, unless the range holds it all or when the table is full.
    pub fn take(&mut self, index: u32, start: u64, len: u64, state: State) -> Option<Key> {
        let (key, range) = self.table.at(index)?;
        let (from, to, prev, next) = (range.start, range.end(), range.prev, range.next);
        let end = start.checked_add(len)?;
        if range.state != State::Free || start < from || end > to || self.table.len() > MOST {
            return None;
        }
        let points = self.at(index)?.points.clone();
        if from == start && to == end {
            self.delist(index);
            self.table.at_mut(index)?.state = state;
            return Some(key);
        }
        let piece = Saved { start, len, state, points };
        if from == start {
            // The rest keeps the slot: it moves up.
            self.resize(index, end, to - end);
            return self.insert(piece, prev, index);
        }
        let rest = (end < to).then(|| Saved {
            start: end,
            len: to - end,
            state: State::Free,
            points: piece.points.clone(),
        });
        self.resize(index, from, start - from);
        let key = self.insert(piece, index, next)?;
        if let Some(rest) = rest {
            self.insert(rest, key.index(), next)?;
        }
        Some(key)
    }
}
