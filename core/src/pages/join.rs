//! Joining free neighbours, and cutting a block out of a free range, with as little change of the
//! indices as each needs.

use super::index::Hit;
use super::ranges::{NONE, Owner, Range, Ranges, Saved, State};
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

    /// Joins a range that is in no index with its neighbours and enters the result; a hole at the
    /// end of a span becomes untouched again. Returns the slot that holds the bytes now, [`NONE`]
    /// if they are untouched.
    pub(super) fn coalesce(&mut self, index: u32) -> u32 {
        let Some(range) = self.at(index) else { return index };
        let (state, prev, next) = (range.state, range.prev, range.next);
        if !matches!(state, State::Free | State::Hole) {
            return index;
        }
        let before = self.at(prev).filter(|before| before.joins(range));
        let after = self.at(next).filter(|after| after.joins(range));
        let (to_prev, to_next) = (before.is_some(), after.is_some());
        // Without new points nothing but one neighbour's extent changes in the indices.
        let alike = |neighbour: Option<&Range>| neighbour.is_none_or(|n| n.points == range.points);
        if state == State::Free && (to_prev || to_next) && alike(before) && alike(after) {
            return self.grow_neighbour(index, to_prev, to_next);
        }
        let mut index = index;
        if to_prev {
            self.delist(prev);
            self.absorb(prev, index);
            index = prev;
        }
        if to_next {
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

    /// Adds a free range that is in no index to neighbours with the same points: the one before
    /// it, if `to_prev`, else the one after it stays.
    fn grow_neighbour(&mut self, index: u32, to_prev: bool, to_next: bool) -> u32 {
        let extent = |ranges: &Self, index| ranges.at(index).map_or((0, 0), |r| (r.start, r.len));
        let (start, len) = extent(self, index);
        let (prev, next) = self.at(index).map_or((NONE, NONE), |range| (range.prev, range.next));
        self.unlink(index);
        if !to_prev {
            self.resize(next, start, len + extent(self, next).1);
            return next;
        }
        let (from, mut total) = extent(self, prev);
        total += len;
        if to_next {
            self.delist(next);
            total += self.unlink(next).map_or(0, |next| next.len);
        }
        self.resize(prev, from, total);
        prev
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
        debug_assert!(state != State::Free && state != State::Hole, "taken for nobody");
        let points = range.points.clone();
        if from == start && to == end {
            self.delist(index);
            self.table.at_mut(index)?.state = state;
            return Some(key);
        }
        let piece = Saved { start, len, state, points };
        if from == start {
            // The rest keeps the slot: it moves up.
            self.resize(index, end, to - end);
            return self.place(piece, prev, index);
        }
        let rest = (end < to).then(|| Saved {
            start: end,
            len: to - end,
            state: State::Free,
            points: piece.points.clone(),
        });
        self.resize(index, from, start - from);
        let key = self.place(piece, index, next)?;
        if let Some(rest) = rest {
            self.insert(rest, key.index(), next)?;
        }
        Some(key)
    }
}
