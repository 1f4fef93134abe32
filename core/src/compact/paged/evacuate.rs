//! Blocks that fit nowhere in pages in use, for they lie apart by less than their own length: those
//! of many pages go close together into few free ones.

use std::ops::Range;

use super::{Course, DEAREST};

/// Runs of free pages tried.
const RUNS: usize = 16;

impl Course<'_> {
    /// Moves blocks out of pages into free ones until `wanted` bytes are gained, or as many as can
    /// be. Each run of free pages is used only if more become free by it.
    pub(super) fn evacuate(&mut self, wanted: i128) {
        for run in self.free_runs() {
            if self.gained >= wanted {
                return;
            }
            let mut trial = self.clone();
            let (first, last) = (&self.view.pages[run.start], &self.view.pages[run.end - 1]);
            trial.spare.open(first.at, last.end());
            trial.try_again();
            // A page whose blocks have as many bytes as itself gains nothing by being emptied.
            trial.empty_cheapest(wanted, 1);
            let moved = trial.moves[self.moves.len()..].iter().map(|it| i128::from(it.bytes));
            let gained = trial.gained - self.gained;
            if gained <= 0 || moved.sum::<i128>() > gained * i128::from(DEAREST) {
                return;
            }
            *self = trial;
        }
    }

    /// Lets pages be tried again that had no place for a block.
    fn try_again(&mut self) {
        for page in 0..self.failed.len() {
            if std::mem::take(&mut self.failed[page]) {
                self.order.extend(self.entry(page).map(super::Reverse));
            }
        }
    }

    /// Runs of free pages side by side, the longest first.
    fn free_runs(&self) -> Vec<Range<usize>> {
        let pages = &self.view.pages;
        let is_open = |page: &usize| self.fixed.is_free[*page] && !self.taken[*page];
        let mut runs: Vec<Range<usize>> = Vec::new();
        for page in (0..pages.len()).filter(is_open) {
            match runs.last_mut() {
                Some(run) if run.end == page && pages[page - 1].end() == pages[page].at => {
                    run.end = page + 1;
                }
                _ => runs.push(page..page + 1),
            }
        }
        let bytes = |run: &Range<usize>| pages[run.end - 1].end() - pages[run.start].at;
        runs.sort_by_key(|run| super::Reverse(bytes(run)));
        runs.truncate(RUNS);
        runs
    }
}
