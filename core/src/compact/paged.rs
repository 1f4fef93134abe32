//! Freeing whole pages: in a paged space what is free need not lie together, since pages are mapped
//! where they are wanted. But what is free of a page that a block is in serves nobody elsewhere.

use std::collections::BTreeSet;

use super::holes::round_up;
use super::view::{Part, What};

/// Pages tried, the cheapest first.
const TRIALS: usize = 64;
/// A page is left alone where its blocks have more bytes than so many times its own.
const DEAREST: u64 = 4;
/// Blocks moved into free pages at most.
const SHIFTS: usize = 16;

/// A paged space.
#[derive(Clone, Debug, Default)]
pub struct PagedView {
    /// What lies where, in order of address. Free parts are backed; addresses without a page, and
    /// pages on their way, are busy.
    pub parts: Vec<Part>,
    /// The pages, in order of address.
    pub pages: Vec<PageView>,
}

/// A page where it is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageView {
    /// First byte.
    pub at: u64,
    /// Bytes.
    pub bytes: u64,
    /// Whether it can be mapped elsewhere once it is free.
    pub may_leave: bool,
}

/// One block to a free place in another page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagedMove {
    /// The block's slot.
    pub owner: u32,
    /// Its first byte.
    pub from: u64,
    /// Bytes.
    pub bytes: u64,
    /// Its first byte after the move.
    pub to: u64,
}

/// The moves after which `bytes` more lie in wholly free pages, or as many as can be, the cheapest
/// pages first. Blocks go to what is free of pages that stay in use. Pure.
pub fn free_pages(view: &PagedView, bytes: u64) -> Vec<PagedMove> {
    let mut victims: Vec<(u64, usize)> = (0..view.pages.len())
        .filter_map(|page| Some((cost(view, page)?, page)))
        .filter(|&(cost, page)| cost > 0 && cost <= view.pages[page].bytes.saturating_mul(DEAREST))
        .collect();
    victims.sort_by(|a, b| {
        let (a_bytes, b_bytes) = (view.pages[a.1].bytes, view.pages[b.1].bytes);
        let (a_cost, b_cost) = (a.0 as u128 * b_bytes as u128, b.0 as u128 * a_bytes as u128);
        a_cost.cmp(&b_cost).then(a.1.cmp(&b.1))
    });
    let is_used = |page| !parts_of(view, page).iter().all(Part::is_free);
    let used = (0..view.pages.len()).map(is_used).collect();
    let mut course = Course { view, used, closed: BTreeSet::new(), moves: Vec::new() };
    let mut gained = 0;
    for (_, page) in victims.into_iter().take(TRIALS) {
        if gained >= bytes {
            break;
        }
        if course.empty(page) {
            gained += view.pages[page].bytes;
        }
    }
    // Blocks for which no page in use has room: closer together, in free ones.
    for _ in 0..SHIFTS {
        if gained >= bytes {
            break;
        }
        let Some(shift) = course.best_shift() else { break };
        gained += shift.gain;
        course.moves.push(shift.it);
        course.closed.extend(shift.freed);
    }
    course.moves
}

/// A block moved into free pages, which frees more of them than it takes.
struct Shift {
    it: PagedMove,
    freed: Vec<usize>,
    gain: u64,
}

/// The parts that a page has a share in.
fn parts_of(view: &PagedView, page: usize) -> &[Part] {
    let PageView { at, bytes, .. } = view.pages[page];
    let first = view.parts.partition_point(|part| part.end() <= at);
    let last = view.parts.partition_point(|part| part.offset < at + bytes);
    &view.parts[first..last.max(first)]
}

/// Bytes of the blocks in a page, or `None` where one of them may not move.
fn cost(view: &PagedView, page: usize) -> Option<u64> {
    if !view.pages[page].may_leave {
        return None;
    }
    let mut cost = 0;
    for part in parts_of(view, page) {
        match part.what {
            What::Free => {}
            What::Movable { .. } => cost += part.bytes,
            What::Fixed { .. } | What::Busy => return None,
        }
    }
    Some(cost)
}

/// What is decided so far.
struct Course<'a> {
    view: &'a PagedView,
    /// The pages in which blocks are, or what is on its way.
    used: Vec<bool>,
    /// Pages that are to become free.
    closed: BTreeSet<usize>,
    moves: Vec<PagedMove>,
}

impl Course<'_> {
    /// Finds places for all blocks of a page. Changes nothing where there is none for one of them.
    fn empty(&mut self, page: usize) -> bool {
        // What has taken blocks of others stays.
        if self.is_taken(page) {
            return false;
        }
        self.closed.insert(page);
        let before = self.moves.len();
        let mut blocks: Vec<&Part> = parts_of(self.view, page)
            .iter()
            .filter(|part| part.is_movable())
            .filter(|part| self.moves.iter().all(|it| it.from != part.offset))
            .collect();
        blocks.sort_by_key(|part| (std::cmp::Reverse(part.bytes), part.offset));
        let mut holes = self.holes();
        for part in blocks {
            let What::Movable { owner, align } = part.what else { continue };
            let Some(to) = take(&mut holes, part.bytes, align) else {
                self.closed.remove(&page);
                self.moves.truncate(before);
                return false;
            };
            self.moves.push(PagedMove { owner, from: part.offset, bytes: part.bytes, to });
        }
        true
    }

    /// The single move that costs the fewest bytes for each byte of pages that it frees.
    fn best_shift(&self) -> Option<Shift> {
        let stretches = self.stretches();
        let mut best: Option<Shift> = None;
        for part in self.view.parts.iter().filter(|part| part.is_movable()) {
            let What::Movable { owner, align } = part.what else { continue };
            if self.moves.iter().any(|it| it.from == part.offset) {
                continue;
            }
            let freed = self.freed_without(part);
            if freed.is_empty() {
                continue;
            }
            for &(begin, end) in &stretches {
                let low = round_up(begin, align);
                let high = end.saturating_sub(part.bytes) & !(align - 1);
                let fits = |to: &u64| *to >= low && *to + part.bytes <= end;
                for to in [low, high].into_iter().filter(fits) {
                    // A page that it leaves and enters again is not freed.
                    let stays =
                        |page: &PageView| page.at < to + part.bytes && page.at + page.bytes > to;
                    let left = freed.iter().map(|&page| self.view.pages[page]);
                    let left = left.filter(|page| !stays(page)).map(|page| page.bytes);
                    let gain = left.sum::<u64>().saturating_sub(self.free_under(to, part.bytes));
                    let is_better = |it: &Shift| {
                        part.bytes as u128 * (it.gain as u128) < it.it.bytes as u128 * gain as u128
                    };
                    if gain > 0 && best.as_ref().is_none_or(is_better) {
                        let it = PagedMove { owner, from: part.offset, bytes: part.bytes, to };
                        let freed = freed.iter().copied();
                        let freed = freed.filter(|page| !stays(&self.view.pages[*page])).collect();
                        best = Some(Shift { it, freed, gain });
                    }
                }
            }
        }
        best
    }

    /// Whether blocks are moved to a page.
    fn is_taken(&self, page: usize) -> bool {
        let PageView { at, bytes, .. } = self.view.pages[page];
        self.moves.iter().any(|it| it.to < at + bytes && it.to + it.bytes > at)
    }

    /// The pages that are free once a block is gone.
    fn freed_without(&self, gone: &Part) -> Vec<usize> {
        let stays = |part: &Part| {
            !part.is_free()
                && part.offset != gone.offset
                && self.moves.iter().all(|it| it.from != part.offset)
        };
        self.pages_under(gone.offset, gone.bytes)
            .filter(|page| self.view.pages[*page].may_leave && !self.is_taken(*page))
            .filter(|page| !parts_of(self.view, *page).iter().any(stays))
            .collect()
    }

    /// Bytes of wholly free pages under a stretch.
    fn free_under(&self, at: u64, bytes: u64) -> u64 {
        let is_free = |page: &usize| !self.used[*page] && !self.is_taken(*page);
        self.pages_under(at, bytes).filter(is_free).map(|page| self.view.pages[page].bytes).sum()
    }

    fn pages_under(&self, at: u64, bytes: u64) -> impl Iterator<Item = usize> + '_ {
        let pages = &self.view.pages;
        let first = pages.partition_point(|page| page.at + page.bytes <= at);
        let last = pages.partition_point(|page| page.at < at + bytes);
        first..last.max(first)
    }

    /// All free stretches outside the pages that are to become free.
    fn stretches(&self) -> Vec<(u64, u64)> {
        let mut taken: Vec<(u64, u64)> = self.moves.iter().map(|it| (it.to, it.bytes)).collect();
        let closed = self.closed.iter().map(|page| self.view.pages[*page]);
        taken.extend(closed.map(|page| (page.at, page.bytes)));
        taken.sort_unstable();
        let mut holes = BTreeSet::new();
        let (mut begin, mut end) = (0, 0);
        for part in self.view.parts.iter().filter(|part| part.is_free()) {
            if part.offset != end {
                cut(&mut holes, &taken, begin, end);
                begin = part.offset;
            }
            end = part.end();
        }
        cut(&mut holes, &taken, begin, end);
        holes.into_iter().map(|(bytes, at)| (at, at + bytes)).collect()
    }

    /// Free stretches of pages that stay in use, by size: bytes and first byte.
    fn holes(&self) -> BTreeSet<(u64, u64)> {
        let mut holes = BTreeSet::new();
        let mut taken: Vec<(u64, u64)> = self.moves.iter().map(|it| (it.to, it.bytes)).collect();
        taken.sort_unstable();
        let mut page = 0;
        for part in self.view.parts.iter().filter(|part| part.is_free()) {
            while page < self.view.pages.len()
                && self.view.pages[page].at + self.view.pages[page].bytes <= part.offset
            {
                page += 1;
            }
            let (mut begin, mut end) = (part.offset, part.offset);
            for (at, it) in self.view.pages.iter().enumerate().skip(page) {
                if it.at >= part.end() {
                    break;
                }
                let (from, to) = (it.at.max(part.offset), (it.at + it.bytes).min(part.end()));
                // A page that is wholly free is what is wanted.
                let is_open = !self.closed.contains(&at) && self.used[at];
                if !is_open || from != end {
                    cut(&mut holes, &taken, begin, end);
                    begin = from;
                }
                (begin, end) = if is_open { (begin, to) } else { (to, to) };
            }
            cut(&mut holes, &taken, begin, end);
        }
        holes
    }
}

/// Enters what of a free stretch is not taken.
fn cut(holes: &mut BTreeSet<(u64, u64)>, taken: &[(u64, u64)], begin: u64, end: u64) {
    let mut at = begin;
    let first = taken.partition_point(|(to, bytes)| to + bytes <= begin);
    for &(to, bytes) in taken[first..].iter().take_while(|(to, _)| *to < end) {
        if to > at {
            holes.insert((to - at, at));
        }
        at = at.max(to + bytes);
    }
    if end > at {
        holes.insert((end - at, at));
    }
}

/// Takes the tightest place.
fn take(holes: &mut BTreeSet<(u64, u64)>, bytes: u64, align: u64) -> Option<u64> {
    let fits = |&&(len, at): &&(u64, u64)| round_up(at, align) - at <= len - bytes;
    let (len, at) = *holes.range((bytes, 0)..).find(fits)?;
    holes.remove(&(len, at));
    let to = round_up(at, align);
    if to > at {
        holes.insert((to - at, at));
    }
    if at + len > to + bytes {
        holes.insert((at + len - (to + bytes), to + bytes));
    }
    Some(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 100;

    /// Pages side by side, and blocks in them: first byte and bytes.
    fn view(pages: u64, blocks: &[(u64, u64)]) -> PagedView {
        let mut parts = Vec::new();
        let mut at = 0;
        for (&(offset, bytes), owner) in blocks.iter().zip(0..) {
            if offset > at {
                parts.push(Part { offset: at, bytes: offset - at, what: What::Free });
            }
            parts.push(Part { offset, bytes, what: What::Movable { owner, align: 1 } });
            at = offset + bytes;
        }
        if at < pages * PAGE {
            parts.push(Part { offset: at, bytes: pages * PAGE - at, what: What::Free });
        }
        let page = |n| PageView { at: n * PAGE, bytes: PAGE, may_leave: true };
        PagedView { parts, pages: (0..pages).map(page).collect() }
    }

    /// Bytes of wholly free pages once the moves are made; no two blocks may overlap.
    fn free_after(view: &PagedView, moves: &[PagedMove]) -> u64 {
        let mut blocks: Vec<(u64, u64)> = Vec::new();
        for part in view.parts.iter().filter(|part| !part.is_free()) {
            let moved = moves.iter().find(|it| it.from == part.offset);
            blocks.push((moved.map_or(part.offset, |it| it.to), part.bytes));
        }
        blocks.sort_unstable();
        assert!(blocks.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0), "{blocks:?}");
        let is_free = |page: &&PageView| {
            blocks.iter().all(|&(at, len)| at + len <= page.at || at >= page.at + page.bytes)
        };
        view.pages.iter().filter(is_free).map(|page| page.bytes).sum()
    }

    #[test]
    fn the_page_whose_blocks_are_smallest_is_emptied() {
        let view = view(3, &[(0, 60), (110, 10), (150, 10), (200, 70)]);
        let moves = free_pages(&view, PAGE);
        assert_eq!(moves.iter().map(|it| it.bytes).sum::<u64>(), 20, "{moves:?}");
        assert_eq!(free_after(&view, &moves), PAGE);
    }

    #[test]
    fn a_block_over_two_pages_goes_where_there_is_room_for_it_and_not_into_a_free_page() {
        // 90 to 110 is one block; page 2 is free; page 3 has a hole of 30.
        let view = view(4, &[(0, 85), (90, 20), (330, 70)]);
        let moves = free_pages(&view, PAGE);
        assert_eq!(moves, [PagedMove { owner: 1, from: 90, bytes: 20, to: 300 }]);
        assert_eq!(free_after(&view, &moves), 2 * PAGE);
    }

    #[test]
    fn blocks_that_fit_into_no_page_in_use_come_closer_together_in_free_ones() {
        // Two blocks of 90 bytes with 60 between them reach into four pages; two are enough.
        let view = view(7, &[(55, 90), (205, 90)]);
        assert_eq!(free_after(&view, &[]), 4 * PAGE);
        let moves = free_pages(&view, PAGE);
        assert!(free_after(&view, &moves) >= 5 * PAGE, "{moves:?}");
    }

    #[test]
    fn what_can_not_be_placed_stays_and_held_blocks_hold_their_page() {
        let mut full = view(2, &[(0, 60), (100, 60)]);
        assert_eq!(free_pages(&full, PAGE), []);
        full = view(2, &[(0, 10), (100, 60)]);
        full.parts[0].what = What::Fixed { owner: 0, why: super::super::Why::Held };
        assert_eq!(free_pages(&full, PAGE), [PagedMove { owner: 1, from: 100, bytes: 60, to: 10 }]);
    }
}
