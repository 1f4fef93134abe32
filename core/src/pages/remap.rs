//! Remap moves: a block gets other addresses and keeps its memory. The pages that are wholly its
//! own are mapped at the new place too; what it has of pages that it shares with free bytes is
//! copied into free pages beside them. Both mappings stand until the block has changed over, so
//! that nothing is lost whatever becomes of the move.

use super::give_back::Stale;
use super::page::Backing;
use super::ranges::State;
use super::{BlockId, PageId, Pages, Plan, Points, Reservation, Step, Why, Zone};
use crate::id::Key;

/// A page that is mapped at two places until its block has changed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shared {
    page: Key,
    backing: Backing,
    from: u64,
    at: u64,
}

/// A remap move: found, not yet made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remap {
    old: BlockId,
    plan: Plan,
    pages: Vec<Shared>,
    /// Bytes at the block's start that are copied.
    pub head: u64,
    /// Bytes at the block's end that are copied.
    pub tail: u64,
}

/// A remap move under way: its new place is taken and backed.
#[derive(Clone, Debug)]
pub(super) struct Moving {
    old: BlockId,
    new: BlockId,
    pages: Vec<Shared>,
}

/// A page that has changed over with its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landed {
    /// What it is made of.
    pub backing: Backing,
    /// Where it was mapped.
    pub from: u64,
    /// Where it is mapped.
    pub at: u64,
}

impl Remap {
    /// The place, and how the ends are backed.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Bytes that stay free behind the block, of the page that its end is copied to.
    pub(super) fn rest(&self) -> u64 {
        let end = self.plan.at + self.plan.bytes;
        let ends = self.plan.steps.iter().map(|step| match *step {
            Step::Steal { backing, at, .. } => (at + backing.bytes).saturating_sub(end),
            Step::Create { .. } | Step::Release { .. } => 0,
        });
        ends.max().unwrap_or(0)
    }

    /// The block's own pages and where they are to be mapped as well.
    pub fn maps(&self) -> impl ExactSizeIterator<Item = (Backing, u64)> {
        self.pages.iter().map(|it| (it.backing, it.at))
    }
}

impl Pages {
    /// How a live block can move without its bytes: `None` where it has no page to itself, or where
    /// there are no free pages or addresses. `at_end` asks for a place at the end of the zone,
    /// where others can be placed right behind it. Changes nothing; makes no page.
    pub fn find_remap(&self, block: BlockId, at_end: bool, now: u64) -> Option<Remap> {
        let (start, bytes) = self.block(block).ok()?;
        let own = self.own_pages(start, start + bytes)?;
        let (first, last) = (own.first()?, own.last()?);
        let (low, high) = (first.from, last.from + last.backing.bytes);
        let (head, tail) = (low - start, start + bytes - high);
        let mut taken = Vec::new();
        let before = self.edge_pages(head, &mut taken)?;
        let after = self.edge_pages(tail, &mut taken)?;
        if self.stale.len() + self.unmapping + taken.len() + own.len() > self.policy.stale_max {
            return None;
        }
        let sum = |pages: &[u32]| pages.iter().map(|&page| self.page_bytes(page)).sum::<u64>();
        let (front, inner) = (sum(&before), high - low);
        let (hint, base) = self.addresses(front + inner + sum(&after), at_end)?;
        let (mut steps, mut waits) = (Vec::new(), Points::NONE);
        let (mut at, behind) = (base, base + front + inner);
        for slot in before.into_iter().chain(after) {
            if at == base + front {
                // Those before the block's own pages are through.
                at = behind;
            }
            let (key, page) = self.store.pages.at(slot)?;
            let (backing, from) = (page.backing, page.at);
            waits.merge(&self.points_under(from, from + backing.bytes));
            steps.push(Step::Steal { page: PageId(key), backing, from, at });
            at += backing.bytes;
        }
        let at = base + front - head;
        let shift = |it: &Shared| Shared { at: base + front + (it.from - low), ..*it };
        let pages = own.iter().map(shift).collect();
        let (why, version) = (Why::Backed, self.version);
        let plan = Plan { at, bytes, steps, waits, why, hint, now, version };
        Some(Remap { old: block, plan, pages, head, tail })
    }

    /// The pages that lie wholly within a block.
    fn own_pages(&self, start: u64, end: u64) -> Option<Vec<Shared>> {
        let (mut next, mut own) = (start, Vec::new());
        while next < end {
            let (key, page) = self.store.page_at(next)?;
            let (from, backing) = (page.at, page.backing);
            if from >= start && from + backing.bytes <= end {
                let is_settled = !page.in_flight && page.unmapping == 0;
                own.push(is_settled.then_some(Shared { page: key, backing, from, at: from })?);
            }
            next = from + backing.bytes;
        }
        Some(own)
    }

    /// Free pages, not taken yet, for so many bytes: as few bytes of them as can be.
    pub(super) fn edge_pages(&self, bytes: u64, taken: &mut Vec<u32>) -> Option<Vec<u32>> {
        let (mut left, mut pages) = (bytes + self.granule.padding(bytes), Vec::new());
        while left > 0 {
            let is_open = |it: &(u64, u32)| !taken.contains(&it.1) && self.is_settled(it.1);
            let below = self.store.free.between(0, left).rev().find(is_open);
            let (bytes, page) =
                below.or_else(|| self.store.free.between(left, u64::MAX).find(is_open))?;
            taken.push(page);
            pages.push(page);
            left = left.saturating_sub(bytes);
        }
        Some(pages)
    }

    fn is_settled(&self, page: u32) -> bool {
        self.store.pages.at(page).is_some_and(|(_, page)| page.unmapping == 0)
    }

    fn page_bytes(&self, page: u32) -> u64 {
        self.store.pages.at(page).map_or(0, |(_, page)| page.backing.bytes)
    }

    /// Addresses of the large zone that nothing is mapped at: a range before them, the first byte.
    fn addresses(&self, bytes: u64, at_end: bool) -> Option<(u32, u64)> {
        let span = self.ranges.span(Zone::Large);
        if !at_end && let Some(&(_, start, range)) = span.holes.range((bytes, 0, 0)..).next() {
            return Some((range, start));
        }
        let start = self.granule.round_up(span.top)?;
        (start.checked_add(bytes)? <= span.limit).then_some((span.last, start))
    }

    /// Says that the device has mapped all of a remap move, whose plan was reserved. The new place
    /// is the block's from [`hand_over`](Self::hand_over) on, or given back by
    /// [`free`](Self::free).
    pub fn commit_remap(
        &mut self,
        reservation: Reservation,
        remap: Remap,
        spent: u64,
        mapped: &Points,
    ) -> BlockId {
        let new = self.commit_steals(reservation, spent, mapped);
        self.remaps.push(Moving { old: remap.old, new, pages: remap.pages });
        new
    }

    /// Lets a block change over to the place in a slot: its own pages are there from now on, their
    /// old mappings stale, what it had of others free behind `points`. Gives its own pages; `None`
    /// where no remap move leads there.
    pub fn hand_over(&mut self, new: u32, points: &Points, now: u64) -> Option<Vec<Landed>> {
        let at = self.remaps.iter().position(|it| it.new.slot() == new)?;
        let Moving { old, new, pages } = self.remaps.swap_remove(at);
        let (start, bytes) = self.block(old).ok()?;
        let mut landed = Vec::with_capacity(pages.len());
        for it in &pages {
            self.store.paint(it.from, it.backing.bytes, None);
            self.store.paint(it.at, it.backing.bytes, Some(it.page.index()));
            self.store.change(it.page.index(), |page| page.at = it.at);
            landed.push(Landed { backing: it.backing, from: it.from, at: it.at });
        }
        self.live -= bytes;
        self.store.uncover(start, bytes, now);
        let mut left = points.clone();
        self.prune(&mut left);
        let pages = pages.iter().map(|it| (it.page, it.from, it.backing.bytes));
        self.part_with(old.0.index(), &pages.collect::<Vec<_>>(), &left)?;
        if let Ok(range) = self.ranges.table.get_mut(new.0) {
            (range.state, range.points) = (State::Live, Points::NONE);
        }
        Some(landed)
    }

    /// Gives the new place of a remap move back that was not made.
    pub(super) fn abandon(&mut self, new: BlockId, points: &Points, now: u64) -> Option<()> {
        let at = self.remaps.iter().position(|it| it.new == new)?;
        let Moving { pages, .. } = self.remaps.swap_remove(at);
        let range = self.ranges.table.get(new.0).ok()?;
        let (start, bytes, mut left) = (range.start, range.len, range.points.clone());
        left.merge(points);
        self.prune(&mut left);
        self.live -= bytes;
        self.store.uncover(start, bytes, now);
        let pages = pages.iter().map(|it| (it.page, it.at, it.backing.bytes));
        self.part_with(new.0.index(), &pages.collect::<Vec<_>>(), &left)
    }

    /// Takes a range apart: where these pages were mapped it is stale, elsewhere free.
    fn part_with(&mut self, range: u32, pages: &[(Key, u64, u64)], left: &Points) -> Option<()> {
        let (start, bytes) = self.extent_of(range);
        let (mut parts, mut next) = (Vec::with_capacity(pages.len() + 2), start);
        let part = |bytes: u64| (bytes, State::Mapping, Points::NONE);
        for &(_, at, bytes) in pages {
            parts.extend((at > next).then(|| part(at - next)));
            parts.push(part(bytes));
            next = at + bytes;
        }
        parts.extend((start + bytes > next).then(|| part(start + bytes - next)));
        self.version += 1;
        let (_, keys) = self.ranges.carve(range, start, &parts)?;
        for key in keys {
            let Ok(at) = self.ranges.table.get(key).map(|range| range.start) else { continue };
            let page = pages.iter().find(|it| it.1 == at);
            let state = if page.is_some() { State::Stale } else { State::Free };
            self.ranges.set(key.index(), state, left.clone());
            if let Some(&(page, ..)) = page {
                self.stale.push_back(Stale { range: key, page, after: left.clone() });
            }
        }
        self.active_peak = self.active_peak.max(self.live + self.ranges.pending_bytes);
        Some(())
    }
}
