//! Backing the gaps of a place: which pages are made, which are stolen, which go back.

use rustc_hash::{FxHashMap, FxHashSet};

use super::page::Page;
use super::place::{Gap, Site};
use super::{PageId, Pages, PagesError, Plan, Points, Request, Room, Step, Why, Zone};

/// Free pages looked at for one piece.
const LOOKED_AT: usize = 256;

/// The state of one filling: what has been decided so far.
struct Filling<'a> {
    pages: &'a Pages,
    zone: Zone,
    request: &'a Request,
    now: u64,
    room: Room,
    behind_waits: bool,
    /// Addresses that the placement covers: pages there serve it where they are.
    keep: (u64, u64),
    steps: Vec<Step>,
    /// Slots of the pages taken so far.
    taken: FxHashSet<u32>,
    /// What is known of free pages, by slot, since each is asked for many times: the length of the
    /// free range that one lies in, `None` where it is not ready.
    known: FxHashMap<u32, Option<u64>>,
    /// How many of the longest free pages in a row can not be taken any more.
    gone: usize,
    steals: usize,
    /// Points of the ranges that stolen pages come from.
    points: Points,
    /// Bytes created less bytes released.
    created: u64,
    released: u64,
}

impl Pages {
    pub(super) fn fill(
        &self,
        zone: Zone,
        request: &Request,
        site: &Site,
        now: u64,
        room: Room,
        behind_waits: bool,
    ) -> Result<Plan, PagesError> {
        let end = site.at + request.bytes;
        let mut filling = Filling {
            pages: self,
            zone,
            request,
            now,
            room,
            behind_waits,
            keep: (self.granule.round_down(site.at), end + self.granule.padding(end)),
            steps: Vec::new(),
            taken: FxHashSet::default(),
            known: FxHashMap::default(),
            gone: 0,
            steals: 0,
            points: self.points_over(site.hint, site.at, end),
            created: 0,
            released: 0,
        };
        for gap in &site.gaps {
            filling.fill(*gap)?;
        }
        let Filling { steps, points, .. } = filling;
        let waits = points.without(request.stream);
        let why = match (steps.is_empty(), waits.is_empty()) {
            (_, false) => Why::Wait,
            (true, true) => Why::Hole,
            (false, true) => Why::Backed,
        };
        let (at, bytes, hint, version) = (site.at, request.bytes, site.hint, self.version);
        Ok(Plan { at, bytes, steps, waits, why, hint, now, version })
    }
}

impl Filling<'_> {
    fn fill(&mut self, gap: Gap) -> Result<(), PagesError> {
        let granule = self.pages.granule.get();
        let mut at = gap.start;
        while at < gap.end {
            let left = gap.end - at;
            let policy = &self.pages.policy;
            let piece = policy.piece(self.zone, left, granule, self.pages.heat, self.now);
            let net = self.created.saturating_sub(self.released);
            at += if net + piece <= self.room.before_stealing {
                self.create(piece, at)
            } else if let Some(stolen) = self.steal(left, gap.space_end - at, at) {
                stolen
            } else if let Some(made) = self.exchange(left, piece, at) {
                made
            } else {
                match self.create_past_room(piece, at) {
                    Ok(made) => made,
                    Err(error) => self.steal_longer(left, gap.space_end - at, at).ok_or(error)?,
                }
            };
        }
        Ok(())
    }

    fn create(&mut self, bytes: u64, at: u64) -> u64 {
        self.steps.push(Step::Create { bytes, at });
        self.created += bytes;
        bytes
    }

    fn create_past_room(&mut self, piece: u64, at: u64) -> Result<u64, PagesError> {
        let net = self.created.saturating_sub(self.released);
        let left = self.pages.granule.round_down(self.room.at_most.saturating_sub(net));
        if left == 0 {
            return Err(PagesError::NoRoom { missing: piece });
        }
        Ok(self.create(piece.min(left), at))
    }

    /// A free page, unless it lies under the placement or is taken already.
    #[inline]
    fn apart(&self, index: u32) -> Option<&Page> {
        let (_, page) = self.pages.store.pages.at(index)?;
        let end = page.at + page.backing.bytes;
        let apart = page.at >= self.keep.1 || end <= self.keep.0;
        (apart && !self.taken.contains(&index)).then_some(page)
    }

    /// Whether a free page can be used by others without a wait that the request may not make.
    fn is_ready(&self, page: &Page) -> bool {
        // Mostly nothing is behind anything.
        self.pages.ranges.pending_bytes == 0 || self.ready(&self.points(page))
    }

    /// What has to be reached before a free page is used by others.
    fn points(&self, page: &Page) -> Points {
        self.pages.points_under(page.at, page.at + page.backing.bytes)
    }

    fn ready(&self, points: &Points) -> bool {
        self.behind_waits || points.iter().all(|point| point.stream == self.request.stream)
    }

    /// A page a little longer than what is left, else the one no longer than that which is
    /// largest, with a tenth of the hole it lies in counted against it.
    fn steal(&mut self, left: u64, space: u64, at: u64) -> Option<u64> {
        if self.is_at_cap() {
            return None;
        }
        let granule = self.pages.granule.get();
        let longest = (left + granule.max(left / 16)).min(space);
        let fits = self.shortest_ready(left, longest);
        let index = fits.or_else(|| self.least_useful((left + granule).min(space)))?;
        self.take(index, at)
    }

    /// The last resort: a page much longer than what is left, where there is space for it.
    fn steal_longer(&mut self, left: u64, space: u64, at: u64) -> Option<u64> {
        if self.is_at_cap() {
            return None;
        }
        let index = self.shortest_ready(left, space)?;
        self.take(index, at)
    }

    /// Whether no more pages may be mapped at a second place.
    fn is_at_cap(&self) -> bool {
        let pages = self.pages;
        pages.stale.len() + pages.unmapping + self.steals >= pages.policy.stale_max
    }

    /// The shortest free page of at least `least` and at most `most` bytes that can be stolen.
    fn shortest_ready(&self, least: u64, most: u64) -> Option<u32> {
        let pages = self.pages.store.free.between(least, most).map(|(_, index)| index);
        let apart = pages.filter_map(|index| Some((index, self.apart(index)?)));
        let ready = apart.take(LOOKED_AT).find(|(_, page)| self.is_ready(page));
        ready.map(|(index, _)| index)
    }

    /// Steals a page for a place.
    fn take(&mut self, index: u32, at: u64) -> Option<u64> {
        let (key, page) = self.pages.store.pages.at(index)?;
        let points = self.points(page);
        let backing = page.backing;
        self.steps.push(Step::Steal { page: PageId(key), backing, from: page.at, at });
        self.taken.insert(index);
        self.steals += 1;
        self.points.merge(&points);
        Some(backing.bytes)
    }

    fn least_useful(&mut self, most: u64) -> Option<u32> {
        let mut best: Option<(i64, u32)> = None;
        let mut known = std::mem::take(&mut self.known);
        // Neighbours in the list mostly lie in the same hole.
        let mut hole = (0, 0);
        let are_all = self.pages.store.free.longest() <= most;
        let mut gone = if are_all { self.gone } else { 0 };
        let free = self.pages.store.free.between(0, most).rev().skip(gone);
        let mut looked_at = 0;
        for (bytes, index) in free {
            let Some(page) = self.apart(index) else {
                gone += usize::from(looked_at == 0);
                continue;
            };
            // The least that a page of this size, or a smaller one, can come to.
            let least = (bytes / 10) as i64 - bytes as i64;
            if looked_at == LOOKED_AT || best.is_some_and(|(found, _)| found <= least) {
                break;
            }
            looked_at += 1;
            let known = known.entry(index).or_insert_with(|| {
                self.is_ready(page).then(|| {
                    if page.at < hole.0 || page.at - hole.0 >= hole.1 {
                        hole = self.hole_at(page.at);
                    }
                    hole.1
                })
            });
            let Some(length) = *known else { continue };
            let value = (length / 10) as i64 - bytes as i64;
            if best.is_none_or(|(least, _)| value < least) {
                best = Some((value, index));
            }
        }
        self.known = known;
        if are_all {
            self.gone = gone;
        }
        best.map(|(_, index)| index)
    }

    /// First byte and length of the free range that an address lies in.
    fn hole_at(&self, at: u64) -> (u64, u64) {
        let ranges = &self.pages.ranges;
        let range = ranges.find(at).and_then(|range| ranges.at(range));
        range.map_or((0, 0), |range| (range.start, range.len))
    }

    /// Gives the smallest free page longer than what is left back and makes one that fits.
    fn exchange(&mut self, left: u64, piece: u64, at: u64) -> Option<u64> {
        let store = &self.pages.store;
        let alone = |object| store.objects.get(&object).is_some_and(|object| object.pages == 1);
        let longer = store.free.between(left, u64::MAX).map(|(_, index)| index);
        let longer = longer.filter_map(|index| Some((index, self.apart(index)?)));
        let (index, _) = longer.take(LOOKED_AT).find(|(_, page)| {
            page.unmapping == 0 && self.points(page).is_empty() && alone(page.backing.object)
        })?;
        let (key, page) = store.pages.at(index)?;
        let backing = page.backing;
        self.steps.push(Step::Release { page: PageId(key), backing, at: page.at });
        self.taken.insert(index);
        self.released += backing.object_bytes;
        Some(self.create(piece.min(backing.bytes), at))
    }
}
