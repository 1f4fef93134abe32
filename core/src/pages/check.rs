//! All invariants, verified in full.

use super::ranges::{NONE, Owner, Range, State};
use super::{Pages, Zone};
use crate::point::Points;

/// Which invariant does not hold, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule} is broken at {at:#x}")]
pub struct Broken {
    /// The invariant: `INV-PAGES-n`, see [`Pages::check`].
    pub rule: &'static str,
    /// First byte of the range or page, or 0.
    pub at: u64,
}

const fn ensure(rule: &'static str, at: u64, holds: bool) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken { rule, at }) }
}

impl Pages {
    /// Verifies every invariant (O(n log n)):
    ///
    /// - INV-PAGES-1: the ranges of a zone tile it from its base to its top, none empty; each
    ///   names its neighbours and they name it.
    /// - INV-PAGES-2: no two neighbours are both holes, or both free for the same owner; the last
    ///   range of a zone is no hole.
    /// - INV-PAGES-3: the indices hold exactly the free ranges and holes, under their owner; every
    ///   point of a free range is listed, no other; pending bytes are their sum.
    /// - INV-PAGES-4: free and live ranges are backed by pages in every byte; holes and stale
    ///   ranges by none; stale and leaving ranges are whole granules.
    /// - INV-PAGES-5: pages do not overlap, in addresses or in their object; each granule names
    ///   its page.
    /// - INV-PAGES-6: a page's live bytes are those of the live and mapping ranges over it.
    /// - INV-PAGES-7: exactly the pages without live bytes that are not in flight are listed free;
    ///   the free bytes are their sum.
    /// - INV-PAGES-8: reserved is the sum of objects, each once; an object's pages are counted.
    /// - INV-PAGES-9: live bytes are those of live blocks and of blocks being mapped; the peaks
    ///   are not below what they are peaks of.
    /// - INV-PAGES-10: the stale ranges are those in the queue of stale mappings and those being
    ///   unmapped; no stale range's points are fewer than the queue says.
    /// - INV-PAGES-11: a page in flight is covered by leaving ranges alone.
    /// - INV-PAGES-12: no free range has a point that is known to be reached.
    ///
    /// # Errors
    /// The first that does not hold.
    pub fn check(&self) -> Result<(), Broken> {
        let mut seen = 0;
        for zone in [Zone::Small, Zone::Large] {
            seen += self.check_chain(zone)?;
        }
        ensure("INV-PAGES-1", 0, seen == self.ranges.table.len())?;
        self.check_indices()?;
        self.check_backing()?;
        self.check_pages()?;
        self.check_counts()
    }

    fn check_chain(&self, zone: Zone) -> Result<usize, Broken> {
        let span = self.ranges.span(zone);
        let (mut index, mut end, mut next, mut count) = (span.last, span.top, NONE, 0);
        while let Some(range) = self.ranges.at(index) {
            let tiles = range.len > 0 && range.end() == end && range.next == next;
            ensure("INV-PAGES-1", range.start, tiles && range.start >= span.base)?;
            match self.ranges.at(next) {
                Some(after) => ensure("INV-PAGES-2", range.start, !range.joins(after))?,
                None => ensure("INV-PAGES-2", range.start, range.state != State::Hole)?,
            }
            (next, index, end) = (index, range.prev, range.start);
            count += 1;
        }
        ensure("INV-PAGES-1", end, end == span.base && span.top <= span.limit)?;
        Ok(count)
    }

    fn check_indices(&self) -> Result<(), Broken> {
        let (mut free, mut holes, mut points, mut pending) = (0, 0, 0, 0);
        for (key, range) in self.ranges.table.iter() {
            let span = self.ranges.span(self.ranges.zone_at(range.start));
            let listed = match range.state {
                State::Free => {
                    free += 1;
                    points += range.points.len();
                    pending += if range.points.is_empty() { 0 } else { range.len };
                    let list = span.free.get(&Owner::of(&range.points));
                    let hit = list.and_then(|list| list.containing(range.start));
                    hit.is_some_and(|hit| (hit.range, hit.len) == (key.index(), range.len))
                        && range.points.iter().all(|point| {
                            let entry = (point.stream, point.value, key.index());
                            self.ranges.pending.contains(&entry)
                        })
                }
                State::Hole => {
                    holes += 1;
                    span.holes.contains(&(range.len, range.start, key.index()))
                }
                _ => true,
            };
            ensure("INV-PAGES-3", range.start, listed)?;
            let mut left = range.points.clone();
            self.prune(&mut left);
            let fresh = range.state != State::Free || left == range.points;
            ensure("INV-PAGES-12", range.start, fresh)?;
        }
        let lists = || self.ranges.spans.iter().flat_map(|span| span.free.values());
        let held: usize = lists().map(super::Index::len).sum();
        let hole_count: usize = self.ranges.spans.iter().map(|span| span.holes.len()).sum();
        ensure("INV-PAGES-3", 0, lists().all(super::Index::is_sound))?;
        ensure("INV-PAGES-3", 0, (held, hole_count) == (free, holes))?;
        ensure("INV-PAGES-3", 0, self.ranges.pending.len() == points)?;
        ensure("INV-PAGES-3", 0, self.ranges.pending_bytes == pending)
    }

    fn check_backing(&self) -> Result<(), Broken> {
        for (_, range) in self.ranges.table.iter() {
            let whole = self.granule.divides(range.start) && self.granule.divides(range.len);
            let mut at = range.start;
            while at < range.end() {
                let page = self.store.page_at(at);
                let rule = match (range.state, page) {
                    (State::Free | State::Live, None) => Some("INV-PAGES-4"),
                    (State::Hole | State::Stale, Some(_)) => Some("INV-PAGES-4"),
                    (State::Leaving, None) => Some("INV-PAGES-4"),
                    (State::Leaving, Some((_, page))) if !page.in_flight => Some("INV-PAGES-11"),
                    (State::Free | State::Live, Some((_, page))) if page.in_flight => {
                        Some("INV-PAGES-11")
                    }
                    _ => None,
                };
                if let Some(rule) = rule {
                    return Err(Broken { rule, at });
                }
                at = self.granule.round_down(at) + self.granule.get();
            }
            let partial =
                matches!(range.state, State::Free | State::Live | State::Mapping | State::Paused);
            ensure("INV-PAGES-4", range.start, whole || partial)?;
        }
        Ok(())
    }

    fn check_pages(&self) -> Result<(), Broken> {
        let mut pieces = Vec::new();
        let (mut free, mut free_bytes) = (0, 0);
        let mut covered: std::collections::BTreeMap<u32, u64> = std::collections::BTreeMap::new();
        for (_, range) in self.ranges.table.iter() {
            if matches!(range.state, State::Live | State::Mapping | State::Paused) {
                self.add_cover(range, &mut covered);
            }
        }
        for (key, page) in self.store.pages.iter() {
            let backing = page.backing;
            let granules = backing.bytes / self.granule.get();
            let named = (0..granules).all(|step| {
                let at = page.at + step * self.granule.get();
                self.store.page_at(at).is_some_and(|(named, _)| named == key)
            });
            ensure("INV-PAGES-5", page.at, named)?;
            pieces.push((backing.object, backing.offset, backing.bytes));
            let live = covered.get(&key.index()).copied().unwrap_or(0);
            ensure("INV-PAGES-6", page.at, live == page.live)?;
            let listed = self.store.free.contains(backing.bytes, key.index());
            ensure("INV-PAGES-7", page.at, listed == page.is_free())?;
            free += usize::from(listed);
            free_bytes += if listed { backing.bytes } else { 0 };
        }
        ensure("INV-PAGES-7", 0, free == self.store.free.len())?;
        ensure("INV-PAGES-7", 0, free_bytes == self.store.free_bytes)?;
        pieces.sort_unstable();
        let apart =
            |pair: &[(_, u64, u64)]| pair[0].0 != pair[1].0 || pair[0].1 + pair[0].2 <= pair[1].1;
        ensure("INV-PAGES-5", 0, pieces.windows(2).all(apart))?;
        for (id, object) in &self.store.objects {
            let count = pieces.iter().filter(|piece| piece.0 == *id).count();
            ensure("INV-PAGES-8", 0, count == object.pages as usize)?;
        }
        let reserved: u64 = self.store.objects.values().map(|object| object.bytes).sum();
        ensure("INV-PAGES-8", 0, reserved == self.store.reserved)
    }

    fn add_cover(&self, range: &Range, covered: &mut std::collections::BTreeMap<u32, u64>) {
        let mut at = range.start;
        while at < range.end() {
            let granule_end = self.granule.round_down(at) + self.granule.get();
            let stop = granule_end.min(range.end());
            if let Some((key, _)) = self.store.page_at(at) {
                *covered.entry(key.index()).or_insert(0) += stop - at;
            }
            at = stop;
        }
    }

    fn check_counts(&self) -> Result<(), Broken> {
        let of = |state: State| {
            let ranges = self.ranges.table.iter().filter(move |(_, range)| range.state == state);
            ranges.map(|(_, range)| range.len).sum::<u64>()
        };
        let (live, mapping) = (of(State::Live), of(State::Mapping));
        let paused = of(State::Paused);
        let counted = self.live + self.paused;
        let most = live + paused + mapping;
        ensure("INV-PAGES-9", 0, counted >= live + paused && counted <= most)?;
        let active = self.live + self.ranges.pending_bytes;
        ensure("INV-PAGES-9", 0, self.active_peak >= active)?;
        ensure("INV-PAGES-9", 0, self.store.reserved_peak >= self.store.reserved)?;
        let mut queued = 0;
        for super::Stale { range, after: points, .. } in &self.stale {
            let range = self.ranges.table.get(*range).ok();
            let holds =
                |range: &&Range| range.state == State::Stale && covers(&range.points, points);
            ensure("INV-PAGES-10", 0, range.filter(holds).is_some())?;
            queued += 1;
        }
        let stale = self.ranges.table.iter().filter(|(_, range)| range.state == State::Stale);
        ensure("INV-PAGES-10", 0, stale.count() == queued + self.unmapping)
    }
}

/// Whether `more` holds every point of `less`.
fn covers(more: &Points, less: &Points) -> bool {
    let mut both = more.clone();
    both.merge(less);
    both == *more
}
