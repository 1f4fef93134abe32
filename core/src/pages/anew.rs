//! Blocks that free whole pages when they are placed anew: where the finder would place them now,
//! over parts of pages in use and free pages from anywhere; or with the pages that are theirs, and
//! free ones for their ends. What costs less for each byte of pages that it frees comes first.

use super::append::Append;
use super::ranges::{NONE, Range};
use super::{BlockId, Pages, Plan, Points, Remap, Request, Room, State, Step, StreamId, Zone};
use crate::device::Line;
use crate::id::Key;
use crate::units::Align;

/// Blocks tried for each that is chosen: those beside the most free bytes.
const TRIALS: usize = 64;
/// Blocks chosen at most.
const MOST: usize = 64;

/// What the device's calls cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// A block copied.
    pub copy: Line,
    /// A page mapped.
    pub map: Line,
    /// A page unmapped.
    pub unmap: Line,
}

/// How a block is placed anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// Copied to where the finder would place it.
    Copy,
    /// Copied to the end of the zone.
    Append,
    /// Its own pages go with it, and its ends are copied.
    Remap {
        /// To the end of the zone, where others find room behind it.
        at_end: bool,
    },
}

/// A block to be placed anew.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Anew {
    /// The block's owner.
    pub owner: u32,
    /// Its first byte.
    pub at: u64,
    /// Bytes.
    pub bytes: u64,
    /// More bytes of wholly free pages afterwards.
    pub gain: u64,
    /// How it gets there.
    pub by: Means,
    /// What copying all of it costs, in nanoseconds, with the pages mapped for it; `None` where
    /// that frees nothing.
    pub copy_ns: Option<u64>,
    /// What remapping it costs, its ends' copies included; `None` where that frees nothing.
    pub remap_ns: Option<u64>,
}

/// A candidate: the block, its alignment, and the bytes of the pages that it alone keeps in use.
pub(super) struct Candidate {
    pub block: BlockId,
    pub owner: u32,
    pub at: u64,
    pub bytes: u64,
    pub align: Align,
    pub freed: u64,
}

/// A way to place a block anew: what it costs and gains.
pub(super) struct Way {
    pub ns: f64,
    pub gain: u64,
    pub how: How,
}

pub(super) enum How {
    Copy(Plan),
    Append(Plan),
    Remap(Box<Remap>, bool),
}

impl Way {
    /// Whether a byte of pages comes cheaper than by the other.
    fn is_better(&self, than: &Self) -> bool {
        self.ns * (than.gain as f64) < than.ns * self.gain as f64
    }
}

impl Prices {
    /// Bytes copied, and pages mapped at a place whose old mappings are dropped later.
    pub(super) fn ns(&self, copied: u64, pages: impl Iterator<Item = u64>) -> f64 {
        let copy = if copied > 0 { self.copy.ns(copied) } else { 0.0 };
        copy + pages.map(|bytes| self.map.ns(bytes) + self.unmap.ns(bytes)).sum::<f64>()
    }
}

/// Bytes of each page that a plan takes from elsewhere.
pub(super) fn stolen(plan: &Plan) -> impl Iterator<Item = u64> {
    plan.steps.iter().filter_map(|step| match step {
        Step::Steal { backing, .. } => Some(backing.bytes),
        Step::Create { .. } | Step::Release { .. } => None,
    })
}

impl Pages {
    /// The blocks of the large zone to be placed anew, one after the other, so that `wanted` more
    /// bytes lie in wholly free pages, or as many as can be. `movable` tells the alignment of a
    /// block that may move, by owner and first byte. Makes no new page. Changes nothing.
    ///
    /// O(n) for each block that is chosen.
    pub fn place_anew(
        &self,
        wanted: u64,
        stream: StreamId,
        now: u64,
        prices: &Prices,
        may_remap: bool,
        movable: impl Fn(u32, u64) -> Option<Align>,
    ) -> Vec<Anew> {
        let mut trial = self.clone();
        let (mut chosen, mut gained) = (Vec::<Anew>::new(), 0);
        while gained < wanted && chosen.len() < MOST {
            let is_new = |owner: u32| chosen.iter().all(|it| it.owner != owner);
            let candidates = trial
                .beside_free(|owner, at| if is_new(owner) { movable(owner, at) } else { None });
            let mut best: Option<(&Candidate, Way, Option<Way>)> = None;
            for it in &candidates {
                let copy = trial.by_copy(it, stream, now, prices);
                let append = trial.by_append(it, now, prices);
                let copy = match (copy, append) {
                    (Some(copy), Some(append)) if append.is_better(&copy) => Some(append),
                    (copy, append) => copy.or(append),
                };
                let remap = |at_end: bool| trial.by_remap(it, at_end, now, prices);
                let remap = match (may_remap.then(|| remap(false)), may_remap.then(|| remap(true)))
                {
                    (Some(Some(any)), Some(Some(end))) if end.is_better(&any) => Some(end),
                    (any, end) => any.flatten().or(end.flatten()),
                };
                let (way, other) = match (copy, remap) {
                    (Some(copy), Some(remap)) if remap.is_better(&copy) => (remap, Some(copy)),
                    (Some(copy), other) => (copy, other),
                    (None, Some(remap)) => (remap, None),
                    (None, None) => continue,
                };
                if best.as_ref().is_none_or(|(_, least, _)| way.is_better(least)) {
                    best = Some((it, way, other));
                }
            }
            let Some((it, way, other)) = best else {
                let may = |owner: u32, at: u64| {
                    if is_new(owner) { movable(owner, at) } else { None }
                };
                let Some(it) = trial.best_together(now, prices, may_remap, may) else { break };
                gained += it.gain;
                chosen.extend(it.moves);
                trial = it.after;
                continue;
            };
            let told = told(it, &way, other.as_ref());
            if trial.try_anew(it.block, it.owner, way.how, now).is_none() {
                break;
            }
            gained += told.gain;
            chosen.push(told);
        }
        chosen
    }

    /// Blocks that alone keep pages in use, those beside the most free bytes first.
    fn beside_free(&self, movable: impl Fn(u32, u64) -> Option<Align>) -> Vec<Candidate> {
        let live = self.long_ranges().filter(|(_, range)| range.state == State::Live);
        let mut found: Vec<Candidate> = live
            .filter(|(_, range)| range.owner != NONE)
            .filter_map(|(key, range)| {
                let (owner, at, bytes) = (range.owner, range.start, range.len);
                let freed = self.kept_by(at, bytes, None);
                let align = if freed > 0 { movable(owner, at) } else { None }?;
                Some(Candidate { block: BlockId(key), owner, at, bytes, align, freed })
            })
            .collect();
        found.sort_by_key(|it| (std::cmp::Reverse(it.freed.saturating_sub(it.bytes)), it.at));
        found.truncate(TRIALS);
        found
    }

    /// The ranges of the large zone, from its end on: few, since its blocks are long.
    pub(super) fn long_ranges(&self) -> impl Iterator<Item = (Key, &Range)> {
        let last = self.ranges.span(Zone::Large).last;
        let first = self.ranges.table.at(last);
        std::iter::successors(first, |(_, range)| self.ranges.table.at(range.prev))
            .take_while(|(_, range)| self.ranges.zone_at(range.start) == Zone::Large)
    }

    /// Bytes of the pages in which nothing but these bytes is live, those apart that `but`
    /// reaches into.
    fn kept_by(&self, at: u64, bytes: u64, but: Option<(u64, u64)>) -> u64 {
        let (mut next, end, mut kept) = (at, at + bytes, 0);
        while next < end {
            let Some((_, page)) = self.store.page_at(next) else { break };
            let page_end = page.at + page.backing.bytes;
            let own = page_end.min(end) - page.at.max(at);
            let stays = but.is_some_and(|(from, to)| from < page_end && to > page.at);
            if page.live == own && !page.in_flight && page.unmapping == 0 && !stays {
                kept += page.backing.bytes;
            }
            next = page_end;
        }
        kept
    }

    fn by_copy(&self, it: &Candidate, stream: StreamId, now: u64, prices: &Prices) -> Option<Way> {
        let request = Request { bytes: it.bytes, align: it.align, stream, may_wait: true };
        let nothing = Room { before_stealing: 0, at_most: 0 };
        let plan = self.find(&request, now, nothing).ok()?;
        // What is at the end is for those that are placed there.
        if plan.at + plan.bytes > self.start_of_end() {
            return None;
        }
        let freed = self.kept_by(it.at, it.bytes, Some((plan.at, plan.at + plan.bytes)));
        let gain = freed.saturating_sub(self.used_by(&plan));
        let ns = prices.ns(it.bytes, stolen(&plan));
        (gain > 0).then_some(Way { ns, gain, how: How::Copy(plan) })
    }

    fn by_append(&self, it: &Candidate, now: u64, prices: &Prices) -> Option<Way> {
        // The last block would only change places with itself.
        let Append { plan, rest, under } = self.append(it.bytes, it.align, now)?;
        let freed = self.kept_by(it.at, it.bytes, Some((plan.at, plan.at + plan.bytes)));
        let used = stolen(&plan).sum::<u64>() + under + rest.0;
        let gain = (freed + rest.1).saturating_sub(used);
        let ns = prices.ns(it.bytes, stolen(&plan));
        (gain > 0).then_some(Way { ns, gain, how: How::Append(plan) })
    }

    fn by_remap(&self, it: &Candidate, at_end: bool, now: u64, prices: &Prices) -> Option<Way> {
        if it.align > self.granule {
            return None;
        }
        let remap = self.find_remap(it.block, at_end, now)?;
        let own = || remap.maps().map(|(backing, _)| backing.bytes);
        // What goes along is not freed.
        let freed = it.freed.saturating_sub(own().sum());
        // What is free behind the end is worth as much as a part of a free page, for those that are
        // placed there next.
        let (rest, before) = if at_end { (remap.rest(), self.rest_at_end()) } else { (0, 0) };
        let gain = (freed + rest).saturating_sub(stolen(remap.plan()).sum::<u64>() + before);
        let ns = prices.ns(remap.head + remap.tail, own().chain(stolen(remap.plan())));
        (gain > 0).then(|| Way { ns, gain, how: How::Remap(Box::new(remap), at_end) })
    }

    /// Bytes of wholly free pages that a plan uses: those it takes from elsewhere, and those
    /// that lie where the block is to be.
    fn used_by(&self, plan: &Plan) -> u64 {
        let mut used = stolen(plan).sum();
        let (mut next, end) = (plan.at, plan.at + plan.bytes);
        while next < end {
            let Some((_, page)) = self.store.page_at(next) else {
                next = self.granule.round_down(next) + self.granule.get();
                continue;
            };
            used += if page.is_free() { page.backing.bytes } else { 0 };
            next = page.at + page.backing.bytes;
        }
        used
    }

    /// Makes the move, as if its copy were done at once.
    pub(super) fn try_anew(
        &mut self,
        block: BlockId,
        owner: u32,
        how: How,
        now: u64,
    ) -> Option<()> {
        match how {
            How::Copy(plan) | How::Append(plan) => {
                let reservation = self.reserve(plan).ok()?;
                let new = reservation.block();
                self.commit(reservation, &[], 0, &Points::NONE).ok()?;
                self.set_owner(new.slot(), owner);
                self.free(block, &Points::NONE, now).ok()
            }
            How::Remap(remap, _) => {
                let reservation = self.reserve(remap.plan().clone()).ok()?;
                let new = self.commit_remap(reservation, *remap, 0, &Points::NONE);
                self.hand_over(new.slot(), &Points::NONE, now)?;
                self.set_owner(new.slot(), owner);
                Some(())
            }
        }
    }
}

pub(super) fn told(it: &Candidate, way: &Way, other: Option<&Way>) -> Anew {
    let by = match way.how {
        How::Copy(_) => Means::Copy,
        How::Append(_) => Means::Append,
        How::Remap(_, at_end) => Means::Remap { at_end },
    };
    let (chosen, rejected) = (Some(way.ns as u64), other.map(|way| way.ns as u64));
    let (copy_ns, remap_ns) =
        if matches!(by, Means::Remap { .. }) { (rejected, chosen) } else { (chosen, rejected) };
    let Candidate { owner, at, bytes, .. } = *it;
    Anew { owner, at, bytes, gain: way.gain, by, copy_ns, remap_ns }
}

#[cfg(test)]
mod tests {
    use super::super::Policy;
    use super::super::tests::{Rig, request};
    use super::*;

    const MIB: u64 = 1 << 20;
    const OPEN: Room = Room { before_stealing: u64::MAX, at_most: u64::MAX };
    const PRICES: Prices = Prices {
        copy: Line { fixed_ns: 5_000.0, ns_per_mib: 540.0 },
        map: Line { fixed_ns: 34_000.0, ns_per_mib: 41.0 },
        unmap: Line { fixed_ns: 20_000.0, ns_per_mib: 40.0 },
    };

    /// Blocks of which every second was freed, each with its number as its owner.
    fn worn(seed: u64) -> Rig {
        let mut rig = Rig::new(Policy::default());
        let mut random = seed;
        let mut next = |most: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % most
        };
        let mut blocks = Vec::new();
        for owner in 0..60 {
            let bytes = 33 * MIB + next(64 * MIB) / 256 * 256;
            let (block, _) = rig.alloc(&request(bytes, 1), OPEN).unwrap();
            rig.pages.set_owner(block.slot(), owner);
            blocks.push(block);
        }
        for block in blocks.into_iter().skip(1).step_by(2) {
            rig.free(block, &Points::NONE);
        }
        // Some of what is free serves others: their ends lie in pages that others use too.
        for owner in 60..75 {
            let bytes = 33 * MIB + next(20 * MIB) / 256 * 256;
            let (block, _) = rig.alloc(&request(bytes, 1), OPEN).unwrap();
            rig.pages.set_owner(block.slot(), owner);
        }
        rig
    }

    fn plan(pages: &Pages, wanted: u64, prices: &Prices) -> Vec<Anew> {
        pages.place_anew(wanted, StreamId(1), 0, prices, true, |_, _| Some(Align::ONE))
    }

    /// Makes a move as it was planned; bytes of free pages and free bytes behind the last block.
    fn make(pages: &mut Pages, it: &Anew) -> (u64, u64) {
        let owned = |range: &Range| range.state == State::Live && range.owner == it.owner;
        let found = pages.ranges.table.iter().find(|(_, range)| owned(range));
        let block = found.map(|(key, _)| BlockId(key)).unwrap();
        let request = Request { may_wait: true, ..request(it.bytes, 1) };
        let shut = Room { before_stealing: 0, at_most: 0 };
        let how = match it.by {
            Means::Copy => How::Copy(pages.find(&request, 0, shut).unwrap()),
            Means::Append => How::Append(pages.find_append(it.bytes, Align::ONE, 0).unwrap()),
            Means::Remap { at_end } => {
                How::Remap(Box::new(pages.find_remap(block, at_end, 0).unwrap()), at_end)
            }
        };
        pages.try_anew(block, it.owner, how, 0).unwrap();
        pages.check().unwrap();
        (pages.usage().free_pages, pages.rest_at_end())
    }

    #[test]
    fn what_is_planned_can_be_made_and_gains_what_it_says() {
        let (mut made, mut means) = (0, [0; 3]);
        for seed in 1..5 {
            let mut rig = worn(seed);
            let mut before = (rig.pages.usage().free_pages, rig.pages.rest_at_end());
            let slow = Line { fixed_ns: 0.0, ns_per_mib: 1e6 };
            let prices = if seed % 2 == 0 { PRICES } else { Prices { copy: slow, ..PRICES } };
            for it in plan(&rig.pages, u64::MAX, &prices) {
                let after = make(&mut rig.pages, &it);
                let (own, all) =
                    (after.0 as i64 - before.0 as i64, after.1 as i64 - before.1 as i64);
                match it.by {
                    Means::Copy => assert_eq!(own, it.gain as i64, "{it:?}"),
                    Means::Remap { at_end: false } => assert_eq!(own, it.gain as i64, "{it:?}"),
                    // Of a page's blocks the last one tells what all of them gain.
                    _ if it.gain > 0 => assert!(own + all > 0 || it.gain as i64 > own + all),
                    _ => {}
                }
                means[match it.by {
                    Means::Copy => 0,
                    Means::Append => 1,
                    Means::Remap { .. } => 2,
                }] += 1;
                made += 1;
                before = after;
            }
            assert_eq!(rig.pages.usage().reserved, rig.pages.usage().reserved_peak);
        }
        assert!(made > 20 && means.iter().all(|&count| count > 0), "{made} moves, {means:?}");
    }

    #[test]
    fn what_costs_less_is_taken() {
        let pages = worn(3).pages;
        let dear = Line { fixed_ns: 0.0, ns_per_mib: 1e9 };
        let by_remap = |it: &Anew| matches!(it.by, Means::Remap { .. });
        let both = |it: &&Anew| it.copy_ns.is_some() && it.remap_ns.is_some();
        let copies = plan(&pages, u64::MAX, &Prices { map: dear, unmap: dear, ..PRICES });
        assert!(copies.iter().filter(both).all(|it| !by_remap(it)), "{copies:?}");
        let remaps = plan(&pages, u64::MAX, &Prices { copy: dear, ..PRICES });
        let chosen: Vec<&Anew> = remaps.iter().filter(both).collect();
        assert!(!chosen.is_empty() && chosen.iter().all(|it| by_remap(it)), "{remaps:?}");
    }

    #[test]
    fn the_same_space_gives_the_same_plan_and_nothing_is_wanted_of_a_packed_one() {
        let rig = worn(5);
        assert_eq!(plan(&rig.pages, 64 * MIB, &PRICES), plan(&rig.pages, 64 * MIB, &PRICES));
        let mut packed = Rig::new(Policy::default());
        for owner in 0..8 {
            let (block, _) = packed.alloc(&request(64 * MIB, 1), OPEN).unwrap();
            packed.pages.set_owner(block.slot(), owner);
        }
        assert!(packed.pages.bounds(Zone::Large).1 > 0);
        assert_eq!(plan(&packed.pages, u64::MAX, &PRICES), []);
    }
}
