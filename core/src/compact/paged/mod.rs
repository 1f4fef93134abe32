//! Freeing whole pages: in a paged space what is free need not lie together, since pages are mapped
//! where they are wanted. But what is free of a page that a block is in serves nobody elsewhere.

mod evacuate;
mod shift;
mod spare;
#[cfg(test)]
mod tests;
mod worth;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::rc::Rc;

use super::view::{Part, What};
use spare::Spare;
pub(crate) use worth::worth_making;

/// A page is left alone where its blocks have more bytes than so many times its own.
const DEAREST: u64 = 4;
/// What emptying a page costs is counted in such parts of its bytes.
const SHARES: u64 = 1 << 10;

/// A paged space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PagedView {
    /// Blocks and free parts, in order of address. Free parts are backed; addresses without a page
    /// need not be listed, and pages on their way are busy.
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

impl PageView {
    const fn end(&self) -> u64 {
        self.at + self.bytes
    }
}

impl PagedView {
    /// A space with these pages and taken parts, each in any order: what is backed and not taken is
    /// free. Of those that overlap, as a view taken while the space changes can have, one is left
    /// out or cut.
    pub fn new(mut taken: Vec<Part>, mut pages: Vec<PageView>) -> Self {
        pages.sort_unstable_by_key(|page| page.at);
        let mut end = 0;
        pages.retain(|page| {
            let is_apart = page.at >= end;
            end = end.max(page.end());
            is_apart
        });
        taken.sort_unstable_by_key(|part| part.offset);
        let mut parts = Vec::with_capacity(taken.len() * 2 + 1);
        let (mut at, mut left) = (0, pages.as_slice());
        for part in taken {
            let (offset, end) = (part.offset.max(at), part.end());
            if end <= offset {
                continue;
            }
            add_free(&mut parts, &mut left, at, offset);
            // A part that was cut is no block as a whole.
            let what = if offset == part.offset { part.what } else { What::Busy };
            parts.push(Part { offset, bytes: end - offset, what });
            at = end;
        }
        add_free(&mut parts, &mut left, at, u64::MAX);
        Self { parts, pages }
    }
}

/// Adds what is backed of a gap. `pages` are those from the gap on.
fn add_free(parts: &mut Vec<Part>, pages: &mut &[PageView], at: u64, end: u64) {
    let (mut begin, mut next) = (at, at);
    let mut add = |begin: u64, end: u64| {
        if end > begin {
            parts.push(Part { offset: begin, bytes: end - begin, what: What::Free });
        }
    };
    while let Some(page) = pages.first().filter(|page| page.at < end) {
        if page.at.max(at) > next {
            add(begin, next);
            begin = page.at;
        }
        next = page.end().clamp(at, end);
        if page.end() > end {
            break;
        }
        *pages = &pages[1..];
    }
    add(begin, next);
}

/// The moves after which `bytes` more lie in wholly free pages, or as many as can be, the cheapest
/// pages first. Blocks go to what is free of pages that stay in use; where that is not enough, they
/// go close together into free pages, fewer than they leave. Pure; O(n log n).
pub fn free_pages(view: &PagedView, bytes: u64) -> Vec<PagedMove> {
    let mut course = Course::new(view);
    let wanted = i128::from(bytes);
    course.empty_cheapest(wanted, DEAREST);
    course.evacuate(wanted);
    course.shift(wanted);
    course.moves
}

/// What is decided so far.
#[derive(Clone)]
struct Course<'a> {
    view: &'a PagedView,
    /// What of it does not change.
    fixed: Rc<Fixed>,
    /// How many parts of each page are not free and do not move.
    stay: Vec<u32>,
    /// Bytes of the blocks with a share in each page that do not move.
    cost: Vec<u64>,
    /// Parts that move.
    moved: Vec<bool>,
    /// Pages that become free.
    closed: Vec<bool>,
    /// Pages that blocks move to.
    taken: Vec<bool>,
    /// Pages whose blocks found no place.
    failed: Vec<bool>,
    /// Pages by what emptying them costs, the cheapest first. Some have become cheaper since.
    order: BinaryHeap<Reverse<(u64, usize)>>,
    /// What is free of pages in use.
    spare: Spare,
    moves: Vec<PagedMove>,
    /// Bytes of the pages that become free, less those of free pages that are used.
    gained: i128,
}

/// What lies where.
struct Fixed {
    /// The pages under each part.
    under: Vec<Range<usize>>,
    /// The parts that each page has a share in.
    parts: Vec<Range<usize>>,
    /// Whether a page can be emptied, by what is in it.
    can_empty: Vec<bool>,
    /// Whether a page is wholly free to begin with.
    is_free: Vec<bool>,
}

impl Fixed {
    fn new(view: &PagedView) -> Self {
        let PagedView { parts, pages } = view;
        let under = parts.iter().map(|part| pages_under(pages, part.offset, part.end())).collect();
        let in_page = |page: &PageView| {
            let first = parts.partition_point(|part| part.end() <= page.at);
            first..parts.partition_point(|part| part.offset < page.end()).max(first)
        };
        let in_pages: Vec<Range<usize>> = pages.iter().map(in_page).collect();
        let stays = |part: &Part| matches!(part.what, What::Fixed { .. } | What::Busy);
        let pairs = || in_pages.iter().zip(pages);
        let can_empty =
            pairs().map(|(of, page)| page.may_leave && !parts[of.clone()].iter().any(stays));
        let is_free = pairs().map(|(of, _)| parts[of.clone()].iter().all(Part::is_free));
        Self { can_empty: can_empty.collect(), is_free: is_free.collect(), under, parts: in_pages }
    }
}

impl<'a> Course<'a> {
    fn new(view: &'a PagedView) -> Self {
        let fixed = Fixed::new(view);
        let taken = |of: &Range<usize>| view.parts[of.clone()].iter().filter(|it| !it.is_free());
        let stay = fixed.parts.iter().map(|of| taken(of).count() as u32).collect();
        let cost: Vec<u64> =
            fixed.parts.iter().map(|of| taken(of).map(|part| part.bytes).sum()).collect();
        let spare = Spare::new(view, |page| !fixed.is_free[page]);
        let count = view.pages.len();
        let mut course = Self {
            view,
            fixed: Rc::new(fixed),
            stay,
            cost,
            moved: vec![false; view.parts.len()],
            closed: vec![false; count],
            taken: vec![false; count],
            failed: vec![false; count],
            order: BinaryHeap::new(),
            spare,
            moves: Vec::new(),
            gained: 0,
        };
        course.order = (0..count).filter_map(|page| Some(Reverse(course.entry(page)?))).collect();
        course
    }

    /// A page as it stands among those that can be emptied: blocks' bytes for so many of its own.
    fn entry(&self, page: usize) -> Option<(u64, usize)> {
        let is_open = self.fixed.can_empty[page] && !self.taken[page] && !self.closed[page];
        let share = u128::from(self.cost[page]) * u128::from(SHARES);
        let share = share.div_ceil(u128::from(self.view.pages[page].bytes.max(1)));
        let is_open = is_open && !self.fixed.is_free[page] && !self.failed[page];
        is_open.then(|| (u64::try_from(share).unwrap_or(u64::MAX), page))
    }

    /// Empties pages until `wanted` bytes are gained, as long as each costs at most so many times
    /// its bytes.
    fn empty_cheapest(&mut self, wanted: i128, dearest: u64) {
        while self.gained < wanted
            && let Some(Reverse((share, page))) = self.order.pop()
        {
            if self.entry(page) != Some((share, page)) {
                continue;
            }
            if share > dearest * SHARES {
                self.order.push(Reverse((share, page)));
                return;
            }
            self.empty(page);
        }
    }

    /// Finds places for all blocks of a page. Changes nothing where there is none for one of them.
    fn empty(&mut self, page: usize) {
        let open = |at: &usize| self.view.parts[*at].is_movable() && !self.moved[*at];
        let mut blocks: Vec<usize> = self.fixed.parts[page].clone().filter(open).collect();
        blocks.sort_unstable_by_key(|&at| (Reverse(self.view.parts[at].bytes), at));
        let longest = blocks.first().map_or(0, |&at| self.view.parts[at].bytes);
        if longest > self.spare.longest() {
            self.failed[page] = true;
            return;
        }
        let PageView { at, bytes, .. } = self.view.pages[page];
        self.spare.close(at, at + bytes);
        let mut places = Vec::with_capacity(blocks.len());
        for at in blocks {
            let part = self.view.parts[at];
            let What::Movable { align, .. } = part.what else { continue };
            let Some(to) = self.spare.take(part.bytes, align) else {
                self.spare.undo();
                self.failed[page] = true;
                return;
            };
            places.push((at, to));
        }
        self.note(&places);
    }

    /// Decides on moves: parts by number, and the first byte of their places.
    fn note(&mut self, places: &[(usize, u64)]) {
        let fixed = Rc::clone(&self.fixed);
        for &(at, to) in places {
            let part = self.view.parts[at];
            let What::Movable { owner, .. } = part.what else { continue };
            self.moved[at] = true;
            self.moves.push(PagedMove { owner, from: part.offset, bytes: part.bytes, to });
            for page in pages_under(&self.view.pages, to, to + part.bytes) {
                if fixed.is_free[page] && !self.taken[page] {
                    self.gained -= i128::from(self.view.pages[page].bytes);
                }
                self.taken[page] = true;
            }
        }
        for &(at, _) in places {
            for page in fixed.under[at].clone() {
                self.stay[page] -= 1;
                self.cost[page] -= self.view.parts[at].bytes;
                // The pages that were to be emptied, and those that only these blocks kept in use.
                if self.stay[page] == 0 && self.may_become_free(page) {
                    let PageView { at, bytes, .. } = self.view.pages[page];
                    self.closed[page] = true;
                    self.gained += i128::from(bytes);
                    self.spare.close(at, at + bytes);
                }
                // It has fewer blocks to find a place for.
                self.failed[page] = false;
                self.order.extend(self.entry(page).map(Reverse));
            }
        }
        self.spare.keep();
    }

    fn may_become_free(&self, page: usize) -> bool {
        self.view.pages[page].may_leave && !self.taken[page] && !self.closed[page]
    }
}

/// The pages that a stretch reaches into.
fn pages_under(pages: &[PageView], at: u64, end: u64) -> Range<usize> {
    let first = pages.partition_point(|page| page.end() <= at);
    first..pages.partition_point(|page| page.at < end).max(first)
}
