//! Placing a miss: where the fewest new bytes, the least stranding and the fewest gaps meet.

use super::ranges::{NONE, Owner, Range, State};
use super::{Pages, PagesError, Plan, Request, Room, Zone};

/// Free ranges, longest first, whose surroundings are tried.
const LONGEST: usize = 64;
/// Neighbours followed to each side.
const REACH: usize = 16;

/// A stretch without live blocks: backed free ranges and holes, in order.
struct Extent {
    /// First byte, end, whether it is a hole.
    parts: Vec<(u64, u64, bool)>,
    /// A range at or before the first part; [`NONE`] when the zone is empty.
    hint: u32,
}

/// A hole's part that a placement has to back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub start: u64,
    pub end: u64,
    /// Where the hole ends: pages may be longer than the gap up to here.
    pub space_end: u64,
}

/// A place for a miss.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub at: u64,
    pub hint: u32,
    pub gaps: Vec<Gap>,
}

/// The search for a place, extent by extent.
struct Search<'a> {
    pages: &'a Pages,
    zone: Zone,
    request: &'a Request,
    /// Cost and address of the best place so far, and the place.
    best: Option<((u64, u64), Site)>,
    extent: Extent,
    starts: Vec<u64>,
    /// Addresses from which the surroundings come to an extent that was tried.
    tried: Vec<(u64, u64)>,
}

impl<'a> Search<'a> {
    fn new(pages: &'a Pages, zone: Zone, request: &'a Request) -> Self {
        let extent = Extent { parts: Vec::new(), hint: NONE };
        let (starts, tried) = (Vec::new(), Vec::new());
        Self { pages, zone, request, best: None, extent, starts, tried }
    }

    /// Tries the surroundings of the range that begins at an address.
    fn around(&mut self, index: u32, at: u64) {
        if self.tried.iter().any(|&(low, high)| low <= at && at < high) {
            return;
        }
        let complete = self.pages.extent(self.zone, index, self.request, &mut self.extent);
        let parts = &self.extent.parts;
        if complete
            && let Some(first) = parts.first()
            && let Some(last) = parts.get(REACH).or_else(|| parts.last())
        {
            self.tried.push((first.0, last.1));
        }
        self.try_extent();
    }

    /// Tries the untouched end of the zone.
    fn beyond(&mut self) {
        let span = self.pages.ranges.span(self.zone);
        self.extent.parts.clear();
        self.extent.parts.push((span.top, span.limit, true));
        self.extent.hint = span.last;
        self.try_extent();
    }

    fn try_extent(&mut self) {
        let Self { pages, request, extent, starts, .. } = self;
        let (Some(first), Some(last)) = (extent.parts.first(), extent.parts.last()) else {
            return;
        };
        let (low, high, bytes) = (first.0, last.1, request.bytes);
        if high - low < bytes {
            return;
        }
        let top = pages.ranges.spans[usize::from(low >= pages.ranges.spans[1].base)].top;
        let up = |at: u64| at + request.align.padding(at);
        starts.clear();
        starts.push(up(low));
        for &(start, end, hole) in &extent.parts {
            if !hole {
                starts.push(up(start));
                starts.push(request.align.round_down(end.saturating_sub(bytes)));
            }
            if start == top {
                starts.push(up(start));
            }
        }
        if high <= top {
            starts.push(request.align.round_down(high - bytes));
        }
        for &at in starts.iter() {
            if at < low || at > high - bytes {
                continue;
            }
            let cost = (pages.cost(extent, at, bytes), at);
            if self.best.as_ref().is_none_or(|(least, _)| cost < *least) {
                let gaps = pages.gaps(extent, at, bytes);
                self.best = Some((cost, Site { at, hint: extent.hint, gaps }));
            }
        }
    }
}

impl Pages {
    /// Finds a place whose gaps can be backed, and how.
    pub(super) fn back(
        &self,
        zone: Zone,
        request: &Request,
        now: u64,
        room: Room,
        behind_waits: bool,
    ) -> Result<Plan, PagesError> {
        let site =
            self.site(zone, request).ok_or(PagesError::NoAddresses { bytes: request.bytes })?;
        let refused = match self.fill(zone, request, &site, now, room, behind_waits) {
            Err(error @ PagesError::NoRoom { .. }) => error,
            outcome => return outcome,
        };
        // Between pages a gap may be shorter than every page that is left. In front of a long hole
        // the last page may be longer than what it is to fill.
        let served = self
            .roomy_sites(zone, request)
            .into_iter()
            .flatten()
            .find_map(|site| self.fill(zone, request, &site, now, room, behind_waits).ok());
        served.ok_or(refused)
    }

    /// Places with nothing mapped in them, and with space behind: at the start of the longest
    /// hole, and beyond all that was ever used.
    fn roomy_sites(&self, zone: Zone, request: &Request) -> [Option<Site>; 2] {
        let holes = &self.ranges.span(zone).holes;
        let longest = holes.iter().next_back().map(|&(bytes, start, hole)| {
            let mut search = Search::new(self, zone, request);
            search.extent.parts.push((start, start + bytes, true));
            search.extent.hint = hole;
            search.try_extent();
            search.best.map(|(_, site)| site)
        });
        let mut search = Search::new(self, zone, request);
        search.beyond();
        [longest.flatten(), search.best.map(|(_, site)| site)]
    }

    /// A place for `request` right after a live block, for growing it: free ranges, and holes to
    /// be backed.
    ///
    /// # Errors
    /// [`PagesError::WrongState`] when something else lies there; [`PagesError::NoRoom`].
    pub fn find_after(
        &self,
        slot: u32,
        request: &Request,
        now: u64,
        room: Room,
    ) -> Result<Plan, PagesError> {
        let block = self.ranges.at(slot).filter(|range| range.state == State::Live);
        let block = block.ok_or(PagesError::WrongState)?;
        let (at, zone) = (block.end(), self.ranges.zone_at(block.start));
        let end = at.checked_add(request.bytes).ok_or(PagesError::BadSize)?;
        let (mut parts, mut next, mut upto) = (Vec::new(), block.next, at);
        while upto < end {
            let Some(range) = self.ranges.at(next) else {
                let span = self.ranges.span(zone);
                parts.push((upto, span.limit, true));
                upto = span.limit;
                break;
            };
            let free = range.state == State::Free || range.state == State::Hole;
            if !free {
                break;
            }
            parts.push((range.start, range.end(), range.state == State::Hole));
            (upto, next) = (range.end(), range.next);
        }
        if upto < end {
            return Err(PagesError::WrongState);
        }
        let extent = Extent { parts, hint: slot };
        let gaps = self.gaps(&extent, at, request.bytes);
        self.fill(zone, request, &Site { at, hint: slot, gaps }, now, room, true)
    }

    fn site(&self, zone: Zone, request: &Request) -> Option<Site> {
        let span = self.ranges.span(zone);
        let mut search = Search::new(self, zone, request);
        for list in self.lists(zone, request.stream, true) {
            for hit in list.longest(LONGEST) {
                search.around(hit.range, hit.start);
            }
        }
        if let Some(&(_, start, hole)) = span.holes.range((request.bytes, 0, 0)..).next() {
            search.around(hole, start);
        }
        search.around(span.last, self.ranges.at(span.last).map_or(0, |range| range.start));
        if self.ranges.at(span.last).is_some_and(|range| !Self::usable(range, request))
            || span.last == NONE
        {
            search.beyond();
        }
        search.best.map(|(_, site)| site)
    }

    fn usable(range: &Range, request: &Request) -> bool {
        match range.state {
            State::Hole => true,
            State::Free => {
                let owner = Owner::of(&range.points);
                owner == Owner::Anyone || owner == Owner::Stream(request.stream)
            }
            _ => false,
        }
    }

    /// The surroundings of a range, itself included if it is usable. Tells whether they end on both
    /// sides before they reach as far as is looked.
    fn extent(&self, zone: Zone, index: u32, request: &Request, extent: &mut Extent) -> bool {
        let usable =
            |index: u32| self.ranges.at(index).filter(|range| Self::usable(range, request));
        let (mut first, mut complete) = (index, false);
        for _ in 0..REACH {
            match usable(first).map(|range| range.prev) {
                Some(prev) if usable(prev).is_some() => first = prev,
                _ => {
                    complete = true;
                    break;
                }
            }
        }
        extent.parts.clear();
        extent.hint = first;
        let (mut at, mut left) = (first, 2 * REACH);
        while let Some(range) = usable(at).filter(|_| left > 0) {
            extent.parts.push((range.start, range.end(), range.state == State::Hole));
            if range.next == NONE {
                let span = self.ranges.span(zone);
                if span.top < span.limit {
                    extent.parts.push((span.top, span.limit, true));
                }
                break;
            }
            at = range.next;
            left -= 1;
        }
        complete && left > 0
    }

    fn gaps(&self, extent: &Extent, at: u64, bytes: u64) -> Vec<Gap> {
        let low = self.granule.round_down(at);
        let high = at + bytes + self.granule.padding(at + bytes);
        let holes = extent.parts.iter().filter(|part| part.2);
        holes
            .map(|&(start, end, _)| Gap {
                start: start.max(low),
                end: end.min(high),
                space_end: end,
            })
            .filter(|gap| gap.start < gap.end)
            .collect()
    }

    fn cost(&self, extent: &Extent, at: u64, bytes: u64) -> u64 {
        let end = at + bytes;
        let low = self.granule.round_down(at);
        let high = end + self.granule.padding(end);
        let (mut cost, mut first_backed, mut last_backed) = (0_u64, true, true);
        for &(start, stop, hole) in &extent.parts {
            if hole && start < high && stop > low {
                cost += stop.min(high) - start.max(low);
                cost = cost.saturating_add(self.policy.gap_bytes);
                first_backed &= at < start || at >= stop;
                last_backed &= end - 1 < start || end > stop;
            }
        }
        if !first_backed {
            cost = cost.saturating_add(at - low);
        }
        if !last_backed {
            cost = cost.saturating_add(high - end);
        }
        cost.saturating_add(self.stranded_ends(at, bytes, first_backed, last_backed))
    }

    /// [`stranded`](Self::stranded), for a placement whose ends may lie in holes.
    fn stranded_ends(&self, at: u64, bytes: u64, first: bool, last: bool) -> u64 {
        match (first, last) {
            (true, true) => self.stranded(at, bytes),
            (true, false) => self.store.page_at(at).map_or(0, |(_, page)| {
                let used = page.at + page.backing.bytes - at;
                if page.live == 0 { page.backing.bytes - used } else { 0 }
            }),
            (false, true) => self.store.page_at(at + bytes - 1).map_or(0, |(_, page)| {
                let used = at + bytes - page.at;
                if page.live == 0 { page.backing.bytes - used } else { 0 }
            }),
            (false, false) => 0,
        }
    }
}
