//! Blocks that fit into no page in use: one by one to a place in free pages of which it takes fewer
//! than it frees.

use super::super::holes::round_up;
use super::super::view::What;
use super::{Course, PageView, pages_under};

/// Blocks moved at most.
const MOST: usize = 16;
/// Blocks tried for each of them, those beside the most free bytes first, and for each of these the
/// shortest stretches that it fits into.
const BLOCKS: usize = 64;
const STRETCHES: usize = 64;

/// A block moved into free pages, which frees more of them than it takes.
struct Shift {
    /// Its number among the parts.
    part: usize,
    bytes: u64,
    to: u64,
    gain: u64,
}

impl Course<'_> {
    /// Moves blocks until `wanted` bytes are gained, or as many as can be.
    pub(super) fn shift(&mut self, wanted: i128) {
        for _ in 0..MOST {
            if self.gained >= wanted {
                return;
            }
            let Some(best) = self.best_shift() else { return };
            self.note(&[(best.part, best.to)]);
        }
    }

    /// The move that costs the fewest bytes for each byte of pages that it frees.
    fn best_shift(&self) -> Option<Shift> {
        let blocks = self.beside_free();
        let least = blocks.iter().map(|&at| self.view.parts[at].bytes).min()?;
        let stretches = self.stretches(least);
        let mut best: Option<Shift> = None;
        for at in blocks {
            let part = self.view.parts[at];
            let What::Movable { align, .. } = part.what else { continue };
            let fits = stretches.partition_point(|&(bytes, _)| bytes < part.bytes);
            for &(bytes, begin) in stretches[fits..].iter().take(STRETCHES) {
                let low = round_up(begin, align);
                let high = (begin + bytes - part.bytes) & !(align - 1);
                let fits = |to: &u64| *to >= low && *to + part.bytes <= begin + bytes;
                for to in [low, high].into_iter().filter(fits) {
                    let used = self.free_under(to, to + part.bytes);
                    let freed = self.freed_by(at, Some((to, to + part.bytes)));
                    let gain = freed.saturating_sub(used);
                    let it = Shift { part: at, bytes: part.bytes, to, gain };
                    let is_better = |than: &Shift| {
                        let cost = |a: &Shift, b: &Shift| u128::from(a.bytes) * u128::from(b.gain);
                        cost(&it, than) < cost(than, &it)
                    };
                    if it.gain > 0 && best.as_ref().is_none_or(is_better) {
                        best = Some(it);
                    }
                }
            }
        }
        best
    }

    /// Blocks that alone keep pages in use, those beside the most free bytes first.
    fn beside_free(&self) -> Vec<usize> {
        let mut found: Vec<(std::cmp::Reverse<u64>, usize)> = (0..self.view.parts.len())
            .filter(|&at| self.view.parts[at].is_movable() && !self.moved[at])
            .map(|at| (self.freed_by(at, None), at))
            .filter(|(freed, _)| *freed > 0)
            .map(|(freed, at)| {
                (std::cmp::Reverse(freed.saturating_sub(self.view.parts[at].bytes)), at)
            })
            .collect();
        if found.len() > BLOCKS {
            found.select_nth_unstable(BLOCKS);
            found.truncate(BLOCKS);
        }
        found.sort_unstable();
        found.into_iter().map(|(_, at)| at).collect()
    }

    /// Bytes of the pages that are free once a block is gone, those apart that it enters again.
    fn freed_by(&self, at: usize, enters: Option<(u64, u64)>) -> u64 {
        let stays =
            |page: &PageView| enters.is_some_and(|(from, to)| page.at < to && page.end() > from);
        self.fixed.under[at]
            .clone()
            .filter(|&page| self.stay[page] == 1 && self.may_become_free(page))
            .map(|page| &self.view.pages[page])
            .filter(|page| !stays(page))
            .map(|page| page.bytes)
            .sum()
    }

    /// Bytes of the free pages that a place takes.
    fn free_under(&self, at: u64, end: u64) -> u64 {
        let is_free = |page: &usize| self.fixed.is_free[*page] && !self.taken[*page];
        let pages = pages_under(&self.view.pages, at, end).filter(is_free);
        pages.map(|page| self.view.pages[page].bytes).sum()
    }

    /// Free stretches of at least so many bytes outside of the pages that become free: bytes and
    /// first byte, the shortest first.
    fn stretches(&self, least: u64) -> Vec<(u64, u64)> {
        let taken = self.moves.iter().map(|it| (it.to, it.to + it.bytes));
        let closed = self.closed.iter().zip(&self.view.pages).filter(|(closed, _)| **closed);
        let mut taken: Vec<_> =
            taken.chain(closed.map(|(_, page)| (page.at, page.end()))).collect();
        taken.sort_unstable();
        let mut taken = taken.into_iter().peekable();
        let (mut found, mut free) = (Vec::new(), self.view.parts.iter().peekable());
        // What was taken may reach beyond the stretch that it was met in.
        let mut open = 0;
        while let Some(first) = free.next() {
            if !first.is_free() {
                continue;
            }
            let (mut at, mut end) = (first.offset.max(open), first.end());
            while let Some(next) = free.next_if(|next| next.is_free() && next.offset == end) {
                end = next.end();
            }
            let mut add = |at: u64, end: u64| {
                if end.saturating_sub(at) >= least {
                    found.push((end - at, at));
                }
            };
            while let Some((from, to)) = taken.next_if(|(from, _)| *from < end) {
                add(at, from);
                at = at.max(to);
            }
            add(at, end);
            open = open.max(at);
        }
        found.sort_unstable();
        found
    }
}
