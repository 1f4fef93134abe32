//! Free parts as destinations: tightest fit first, without touching the view.

use std::collections::{BTreeMap, BTreeSet};

use super::view::PoolView;

/// A free part of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hole {
    pub segment: usize,
    pub part: usize,
    pub offset: u64,
    pub bytes: u64,
}

/// The free parts that may take blocks, ordered by address and by size.
pub(super) struct Holes {
    /// By address: the number of a hole is its index here.
    pub all: Vec<Hole>,
    by_size: BTreeSet<(u64, usize)>,
}

/// Where a block goes: the hole by number, and the offset in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub hole: usize,
    pub offset: u64,
}

impl Holes {
    /// All free parts of the segments for which `of` is true, but none at the pool's top or
    /// above it.
    pub fn new(view: &PoolView, of: impl Fn(usize) -> bool) -> Self {
        let top = view.top();
        let mut all = Vec::new();
        for (segment, parts) in view.segments.iter().enumerate() {
            if !of(segment) {
                continue;
            }
            for (part, it) in parts.parts.iter().enumerate() {
                let below_top = top.is_some_and(|top| (segment, it.offset) < top);
                if it.is_free() && below_top {
                    all.push(Hole { segment, part, offset: it.offset, bytes: it.bytes });
                }
            }
        }
        let by_size = all.iter().enumerate().map(|(at, hole)| (hole.bytes, at)).collect();
        Self { all, by_size }
    }

    /// The numbers of the holes in a stretch of a segment: from part `first` to part `last`.
    pub fn within(&self, segment: usize, first: usize, last: usize) -> std::ops::Range<usize> {
        let from = self.all.partition_point(|hole| (hole.segment, hole.part) < (segment, first));
        let to = self.all.partition_point(|hole| (hole.segment, hole.part) <= (segment, last));
        from..to
    }

    /// The numbers of a segment's holes.
    pub fn of_segment(&self, segment: usize) -> std::ops::Range<usize> {
        self.within(segment, 0, usize::MAX)
    }

    /// The largest holes, largest first.
    pub fn largest(&self) -> impl Iterator<Item = &Hole> {
        self.by_size.iter().rev().map(|&(_, at)| &self.all[at])
    }

    /// Starts to place blocks everywhere but in `closed`. O(holes).
    pub fn packing(&self, closed: std::ops::Range<usize>) -> Packing<'_> {
        let free = self.by_size.iter().filter(|(_, hole)| !closed.contains(hole));
        Packing { holes: self, free: free.copied().collect(), used: BTreeMap::new(), log: vec![] }
    }
}

/// Blocks placed on trial.
pub(super) struct Packing<'a> {
    holes: &'a Holes,
    /// What is free of each hole that takes blocks: bytes and number.
    free: BTreeSet<(u64, usize)>,
    /// Bytes taken from the front of a hole.
    used: BTreeMap<usize, u64>,
    /// Holes changed since the last [`keep`](Self::keep), with the bytes taken before.
    log: Vec<(usize, u64)>,
}

impl Packing<'_> {
    /// The tightest place for a block; it is taken. `None` when none fits.
    pub fn place(&mut self, bytes: u64, align: u64) -> Option<Spot> {
        let mut roomy = self.free.range((bytes, 0)..);
        let &(left, hole) = roomy.find(|&&(left, hole)| {
            let whole = &self.holes.all[hole];
            fits(whole.offset + (whole.bytes - left), left, bytes, align)
        })?;
        let whole = self.holes.all[hole];
        let used = whole.bytes - left;
        let offset = round_up(whole.offset + used, align);
        self.log.push((hole, used));
        self.set_used(hole, offset + bytes - whole.offset);
        Some(Spot { hole, offset })
    }

    fn set_used(&mut self, hole: usize, used: u64) {
        let whole = self.holes.all[hole].bytes;
        let before = self.used.insert(hole, used).unwrap_or(0);
        self.free.remove(&(whole - before, hole));
        if used == 0 {
            self.used.remove(&hole);
        }
        if whole > used {
            self.free.insert((whole - used, hole));
        }
    }

    /// Takes what was placed so far for given.
    pub fn keep(&mut self) {
        self.log.clear();
    }

    /// Takes back what was placed since the last [`keep`](Self::keep).
    pub fn undo(&mut self) {
        while let Some((hole, used)) = self.log.pop() {
            self.set_used(hole, used);
        }
    }

    /// Whether anything was placed in one of these holes.
    pub fn touches(&self, holes: std::ops::Range<usize>) -> bool {
        self.used.range(holes).next().is_some()
    }

    /// Places no blocks in these holes, in which none are yet.
    pub fn close(&mut self, holes: std::ops::Range<usize>) {
        for hole in holes {
            self.free.remove(&(self.holes.all[hole].bytes, hole));
        }
    }

    /// Places blocks in these holes again.
    pub fn open(&mut self, holes: std::ops::Range<usize>) {
        self.free.extend(holes.map(|hole| (self.holes.all[hole].bytes, hole)));
    }
}

const fn fits(offset: u64, room: u64, bytes: u64, align: u64) -> bool {
    let padding = offset.wrapping_neg() & (align - 1);
    room >= bytes && room - bytes >= padding
}

pub(super) const fn round_up(offset: u64, align: u64) -> u64 {
    offset + (offset.wrapping_neg() & (align - 1))
}
