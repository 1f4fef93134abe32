//! A space as far as blocks of the large zone can be placed anew in it, taken down a few slots at a
//! time, so that nobody waits for a copy of all of it. It may change meanwhile: what then does not
//! go together is left out, and a plan made on it is checked when it is carried out.

use std::collections::BTreeMap;

use super::page::{Page, Store};
use super::policy::Heat;
use super::ranges::{NONE, Range, Ranges, Saved, State};
use super::{Align, Pages, Points, Policy, StreamId, Zone};

/// What is taken down so far.
#[derive(Debug)]
pub struct Sketch {
    policy: Policy,
    granule: Align,
    middle: u64,
    limit: u64,
    reached: BTreeMap<StreamId, u64>,
    eager: bool,
    heat: Heat,
    /// Ranges of the large zone, holes apart.
    ranges: Vec<Range>,
    /// Pages of the large zone, and the free ones of the other with what they wait for.
    pages: Vec<(Page, Points)>,
    /// The latest of both.
    seen: Vec<Range>,
    seen_pages: Vec<(Page, Points)>,
}

impl Pages {
    /// Begins to take the space down; `None` where no block is in the large zone. O(streams).
    pub fn sketch(&self) -> Option<Sketch> {
        let span = self.ranges.span(Zone::Large);
        self.ranges.at(span.last)?;
        // Mappings that still stand count against the most that there may be.
        let stale = self.stale.len() + self.unmapping;
        let stale_max = self.policy.stale_max.saturating_sub(stale);
        Some(Sketch {
            policy: Policy { stale_max, ..self.policy },
            granule: self.granule,
            middle: span.base,
            limit: span.limit,
            reached: self.reached.clone(),
            eager: self.eager,
            heat: self.heat,
            ranges: Vec::new(),
            pages: Vec::new(),
            seen: Vec::new(),
            seen_pages: Vec::new(),
        })
    }
}

impl Sketch {
    /// Takes in what was taken down since the last call, and has room for what so many slots hold,
    /// so that taking it down makes none.
    pub fn take_in(&mut self, slots: usize) {
        self.ranges.append(&mut self.seen);
        self.pages.append(&mut self.seen_pages);
        self.seen.reserve(slots);
        self.seen_pages.reserve(slots);
    }

    /// Takes down what is in some slots of ranges. Tells the owners of blocks among them, with
    /// their first bytes, to `owned`.
    pub fn add_ranges(
        &mut self,
        of: &Pages,
        slots: std::ops::Range<u32>,
        mut owned: impl FnMut(u32, u64),
    ) {
        let ranges = slots.filter_map(|slot| of.ranges.at(slot));
        for range in ranges.filter(|it| it.start >= self.middle && it.state != State::Hole) {
            if range.state == State::Live && range.owner != NONE {
                owned(range.owner, range.start);
            }
            self.seen.push(range.clone());
        }
    }

    /// Takes down what is in some slots of pages.
    pub fn add_pages(&mut self, of: &Pages, slots: std::ops::Range<u32>) {
        let pages = slots.filter_map(|slot| of.store.pages.at(slot)).map(|(_, page)| page);
        for page in pages {
            if page.at >= self.middle {
                self.seen_pages.push((page.clone(), Points::NONE));
            } else if page.is_free() {
                let points = of.points_under(page.at, page.at + page.backing.bytes);
                self.seen_pages.push((page.clone(), points));
            }
        }
    }

    /// The space, with names of its own.
    pub fn build(mut self) -> Pages {
        self.take_in(0);
        let mut pages = Pages {
            policy: self.policy,
            granule: self.granule,
            ranges: Ranges::new(0, self.middle, self.limit),
            store: Store::new(self.granule, self.middle),
            reached: self.reached,
            stale: std::collections::VecDeque::new(),
            unmapping: 0,
            live: 0,
            paused: 0,
            active_peak: 0,
            eager: self.eager,
            heat: self.heat,
            remaps: Vec::new(),
            version: 0,
        };
        self.pages.sort_unstable_by_key(|(page, _)| page.at);
        self.ranges.sort_unstable_by_key(|range| range.start);
        let mut end = 0;
        for (page, points) in self.pages {
            if page.at < end {
                continue;
            }
            end = page.at + page.backing.bytes;
            pages.add_page(&page);
            if end <= self.middle {
                pages.put(Zone::Small, (page.at, end), State::Free, points);
            }
        }
        for range in self.ranges {
            pages.add_range(range);
        }
        pages.active_peak = pages.live + pages.ranges.pending_bytes;
        pages
    }
}

impl Pages {
    fn add_page(&mut self, page: &Page) {
        let key = self.store.add(page.backing, page.at, 0, page.idle_since);
        if let Some(key) = key {
            self.store.change(key.index(), |it| {
                (it.in_flight, it.unmapping) = (page.in_flight, page.unmapping);
            });
        }
    }

    /// Adds a range behind the others of the large zone.
    fn add_range(&mut self, range: Range) {
        let top = self.ranges.span(Zone::Large).top;
        let (start, end) = (range.start.max(top), range.end());
        if end <= start {
            return;
        }
        let is_whole = start == range.start && self.is_backed(start, end);
        let state = match range.state {
            // Of a page that is gone by now.
            State::Free | State::Live | State::Mapping if !is_whole => State::Leaving,
            // Nothing is mapped there that could be used.
            State::Stale | State::Paused => State::Leaving,
            state => state,
        };
        if state == State::Leaving {
            self.keep_out(start, end);
        } else if state != State::Free {
            self.store.cover(start, end - start);
            self.live += end - start;
        }
        let points = if state == State::Leaving { Points::NONE } else { range.points };
        if let Some(slot) = self.put(Zone::Large, (start, end), state, points) {
            self.set_owner(slot, if state == State::Live { range.owner } else { NONE });
        }
    }

    /// Appends a range to a zone, and a hole before it where it does not follow the last one.
    fn put(
        &mut self,
        zone: Zone,
        (start, end): (u64, u64),
        state: State,
        mut points: Points,
    ) -> Option<u32> {
        self.keep_out(self.ranges.span(zone).top, start);
        self.ranges.extend(zone, start)?;
        self.prune(&mut points);
        let last = self.ranges.span(zone).last;
        let saved = Saved { start, len: end - start, state, points };
        self.ranges.spans[zone as usize].top = end;
        let slot = self.ranges.place(saved, last, NONE)?.index();
        Some(self.ranges.coalesce(slot))
    }

    /// Pages in a stretch of which nothing is known: on their way.
    fn keep_out(&mut self, start: u64, end: u64) {
        let mut at = start;
        while at < end {
            let page = self.store.page_at(at).map(|(key, page)| (key, page.at, page.backing.bytes));
            let Some((key, from, bytes)) = page else {
                at = self.granule.round_down(at) + self.granule.get();
                continue;
            };
            self.store.change(key.index(), |page| page.in_flight = true);
            at = from + bytes;
        }
    }

    fn is_backed(&self, start: u64, end: u64) -> bool {
        let mut at = start;
        while at < end {
            let Some((_, page)) = self.store.page_at(at) else { return false };
            at = page.at + page.backing.bytes;
        }
        true
    }
}
