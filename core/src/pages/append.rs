//! A place right behind the last block of the large zone: what is free of the last page, then free
//! pages from anywhere. Blocks placed so one after the other share their pages, however long they
//! are.

use super::ranges::State;
use super::{PageId, Pages, Plan, Points, Step, Why, Zone};
use crate::units::Align;

/// A place at the end.
pub(super) struct Append {
    pub plan: Plan,
    /// Bytes that are free behind the last block, outside of wholly free pages: before and after.
    pub rest: (u64, u64),
    /// Bytes of wholly free pages there, which the block uses.
    pub under: u64,
}

/// Wholly free pages in a stretch.
#[derive(Default)]
struct FreeThere {
    slots: Vec<u32>,
    /// Bytes of the pages.
    bytes: u64,
    /// Bytes of them that lie in the stretch.
    overlap: u64,
}

impl Pages {
    /// Places a block at the end of the large zone, without making a page. `None` where there are
    /// not enough free pages or addresses. Changes nothing.
    pub fn find_append(&self, bytes: u64, align: Align, now: u64) -> Option<Plan> {
        self.append(bytes, align, now).map(|found| found.plan)
    }

    pub(super) fn append(&self, bytes: u64, align: Align, now: u64) -> Option<Append> {
        let span = self.ranges.span(Zone::Large);
        let last = self.ranges.at(span.last).filter(|range| range.state == State::Free);
        let (start, mut waits) =
            last.map_or((span.top, Points::NONE), |range| (range.start, range.points.clone()));
        let at = align.round_up(start)?;
        let end = at.checked_add(bytes)?;
        let stop = self.granule.round_up(end)?;
        let there = self.free_pages_in(start, span.top);
        // Those there that the block does not reach stay as they are.
        let last_page = self.store.page_at(end.saturating_sub(1));
        let reach = last_page.map_or(stop, |(_, page)| page.at + page.backing.bytes);
        let beyond = self.free_pages_in(reach, span.top);
        let before = span.top - start - there.overlap;
        let under = there.bytes - beyond.bytes;
        let mut taken = there.slots;
        let pages = self.edge_pages(stop.saturating_sub(span.top), &mut taken)?;
        let (mut steps, mut to) = (Vec::with_capacity(pages.len()), span.top);
        for slot in pages {
            let (key, page) = self.store.pages.at(slot)?;
            let (backing, from) = (page.backing, page.at);
            waits.merge(&self.points_under(from, from + backing.bytes));
            steps.push(Step::Steal { page: PageId(key), backing, from, at: to });
            to += backing.bytes;
        }
        let is_full = self.stale.len() + self.unmapping + steps.len() > self.policy.stale_max;
        if is_full || to > span.limit {
            return None;
        }
        let (hint, version, why) = (span.last, self.version, Why::Backed);
        let plan = Plan { at, bytes, steps, waits, why, hint, now, version };
        let rest = (before, (to - end).saturating_sub(beyond.overlap));
        Some(Append { plan, rest, under })
    }

    /// Bytes that are free behind the last block, outside of wholly free pages.
    pub(super) fn rest_at_end(&self) -> u64 {
        let (start, top) = (self.start_of_end(), self.ranges.span(Zone::Large).top);
        top - start - self.free_pages_in(start, top).overlap
    }

    /// Where the large zone's last block ends.
    pub(super) fn start_of_end(&self) -> u64 {
        let span = self.ranges.span(Zone::Large);
        let last = self.ranges.at(span.last).filter(|range| range.state == State::Free);
        last.map_or(span.top, |range| range.start)
    }

    /// The wholly free pages that reach into a stretch.
    fn free_pages_in(&self, start: u64, end: u64) -> FreeThere {
        let (mut found, mut at) = (FreeThere::default(), start);
        while at < end {
            let Some((key, page)) = self.store.page_at(at) else { break };
            let page_end = page.at + page.backing.bytes;
            if page.is_free() {
                found.slots.push(key.index());
                found.bytes += page.backing.bytes;
                found.overlap += page_end.min(end) - at;
            }
            at = page_end;
        }
        found
    }
}
