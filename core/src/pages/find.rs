//! Looking for a place: the rungs in order, and the holes that fit.

use super::index::{Hit, Index};
use super::ranges::Owner;
use super::{BlockId, Pages, PagesError, Plan, Points, Request, Room, StreamId, Why, Zone};

/// Holes looked at, in order of address, for one that a small block divides.
const SCAN: usize = 256;
/// A hole counts as divided when at most this fraction of one block is left over.
const REST: u64 = 12;
/// Shortest holes compared for a large block.
const SHORTEST: usize = 32;

/// A number that others are divided by, one after the other: by multiplication.
#[derive(Clone, Copy)]
struct Divisor {
    number: u64,
    /// 2^64 by the number, a little less than exact.
    inverse: u64,
}

impl Divisor {
    const fn new(number: u64) -> Self {
        Self { number, inverse: u64::MAX / if number == 0 { 1 } else { number } }
    }

    /// The rest of `other` divided by the number.
    #[inline]
    const fn rest(self, other: u64) -> u64 {
        // The estimate is the quotient or one less.
        let quotient = ((other as u128 * self.inverse as u128) >> 64) as u64;
        let rest = other - quotient * self.number;
        if rest >= self.number { rest - self.number } else { rest }
    }
}

impl Pages {
    /// Looks for a place; changes nothing. In order: a hole ready for the request's stream; past
    /// the room for creating, such a hole of the other zone; gaps backed by new and stolen pages;
    /// if the request may wait, a hole behind other streams' work, then pages behind it.
    ///
    /// # Errors
    /// [`PagesError::BadSize`], [`PagesError::NoAddresses`], [`PagesError::NoRoom`].
    pub fn find(&self, request: &Request, now: u64, room: Room) -> Result<Plan, PagesError> {
        let zone = self.policy.zone(request.bytes);
        let span = self.ranges.span(zone);
        if request.bytes == 0 || request.bytes > span.limit - span.base {
            return Err(PagesError::BadSize);
        }
        if let Some(plan) = self.find_ready(request, now, room) {
            return Ok(plan);
        }
        let backed = self.back(zone, request, now, room, false);
        if backed.is_ok() || !request.may_wait {
            return backed;
        }
        match self.find_behind(request, now) {
            Some(plan) => Ok(plan),
            None => self.back(zone, request, now, room, true),
        }
    }

    /// The first rung of [`find`](Self::find): a hole ready for the request's stream.
    pub fn find_ready(&self, request: &Request, now: u64, room: Room) -> Option<Plan> {
        let found = self.ready(request, room)?;
        Some(self.hole_plan(request, found, Why::Hole, now))
    }

    /// Takes the hole that [`find_ready`](Self::find_ready) finds; the block is live at once.
    pub fn serve(&mut self, request: &Request, now: u64, room: Room) -> Option<BlockId> {
        let (hit, at) = self.ready(request, room)?;
        self.take_free(hit.range, at, request.bytes, now)
    }

    fn ready(&self, request: &Request, room: Room) -> Option<(Hit, u64)> {
        let zone = self.policy.zone(request.bytes);
        let tight = room.before_stealing < request.bytes;
        self.fit(zone, request, true).or_else(|| {
            let other = tight.then(|| zone.other())?;
            self.fit(other, request, true)
        })
    }

    /// The third rung of [`find`](Self::find): a hole behind other streams' work.
    pub fn find_behind(&self, request: &Request, now: u64) -> Option<Plan> {
        let zone = self.policy.zone(request.bytes);
        let found =
            self.fit(zone, request, false).or_else(|| self.fit(zone.other(), request, false))?;
        Some(self.hole_plan(request, found, Why::Wait, now))
    }

    fn hole_plan(&self, request: &Request, found: (Hit, u64), why: Why, now: u64) -> Plan {
        let (hit, at) = found;
        let points = self.ranges.at(hit.range).map_or(Points::NONE, |range| range.points.clone());
        Plan {
            at,
            bytes: request.bytes,
            steps: Vec::new(),
            waits: points.without(request.stream),
            why,
            hint: hit.range,
            now,
            version: self.version,
        }
    }

    /// The lists of free ranges that serve `stream` without a wait, what it freed itself first, or
    /// those that do not.
    pub(super) fn lists(
        &self,
        zone: Zone,
        stream: StreamId,
        ready: bool,
    ) -> impl Iterator<Item = &Index> {
        let free = &self.ranges.span(zone).free;
        let own = [Owner::Stream(stream), Owner::Anyone];
        let ours = own.into_iter().filter(move |_| ready).filter_map(|owner| free.get(&owner));
        let others = free.iter().filter(move |(owner, _)| !ready && !own.contains(owner));
        ours.chain(others.map(|(_, list)| list))
    }

    fn fit(&self, zone: Zone, request: &Request, ready: bool) -> Option<(Hit, u64)> {
        match zone {
            Zone::Small => self.fit_small(request, ready),
            Zone::Large => self.fit_large(request, ready),
        }
    }

    fn fit_small(&self, request: &Request, ready: bool) -> Option<(Hit, u64)> {
        let Request { bytes, align, stream, .. } = *request;
        let block = Divisor::new(bytes);
        let room = |start: u64, len: u64| len.saturating_sub(align.padding(start));
        let serves = |start: u64, len: u64| room(start, len) >= bytes;
        let divided = |start: u64, len: u64| {
            let room = room(start, len);
            room >= bytes && block.rest(room) <= bytes / REST
        };
        let place = |hit: Hit| (hit, hit.start + align.padding(hit.start));
        let mut lowest: Option<(Hit, u64)> = None;
        for list in self.lists(Zone::Small, stream, ready) {
            match list.first(bytes, SCAN, divided, serves) {
                (Some(hit), _) => return Some(place(hit)),
                (None, Some(hit)) if lowest.is_none_or(|(_, at)| place(hit).1 < at) => {
                    lowest = Some(place(hit));
                }
                _ => {}
            }
        }
        lowest
    }

    fn fit_large(&self, request: &Request, ready: bool) -> Option<(Hit, u64)> {
        let Request { bytes, align, stream, .. } = *request;
        let mut best: Option<((u64, u64), (Hit, u64))> = None;
        for list in self.lists(Zone::Large, stream, ready) {
            for hit in list.shortest(bytes).take(SHORTEST) {
                let low = hit.start + align.padding(hit.start);
                let high = align.round_down(hit.start + hit.len - bytes);
                if low > high {
                    continue;
                }
                let both = [low, high];
                for &at in &both[usize::from(low == high)..] {
                    let cost = (self.stranded(at, bytes), hit.len);
                    if best.is_none_or(|(least, _)| cost < least) {
                        best = Some((cost, (hit, at)));
                    }
                }
                // Longer ones of this list can not be better.
                if best.is_some_and(|(least, _)| least <= (0, hit.len)) {
                    break;
                }
            }
        }
        best.map(|(_, found)| found)
    }

    /// Bytes of wholly free pages that a block here would make partly used without using them.
    pub(super) fn stranded(&self, at: u64, bytes: u64) -> u64 {
        let end = at + bytes;
        let Some((first, page)) = self.store.page_at(at) else { return 0 };
        let mut stranded = 0;
        if page.live == 0 {
            let page_end = page.at + page.backing.bytes;
            stranded += page.backing.bytes - (end.min(page_end) - at);
        }
        match self.store.page_at(end - 1) {
            Some((last, page)) if last != first && page.live == 0 => {
                stranded + page.backing.bytes - (end - page.at)
            }
            _ => stranded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_divisor_gives_the_rest() {
        let mut seed = 5_u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> (seed >> 58)
        };
        for _ in 0..100_000 {
            let (number, other) = (next().max(1), next());
            assert_eq!(Divisor::new(number).rest(other), other % number, "{other} by {number}");
        }
        for number in [1, 2, 3, 512, u64::MAX - 1, u64::MAX] {
            for other in [0, 1, number - 1, number, u64::MAX - 1, u64::MAX] {
                assert_eq!(Divisor::new(number).rest(other), other % number, "{other} by {number}");
            }
        }
    }
}
