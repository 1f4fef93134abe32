//! What is free and may take blocks, tightest first, with trials taken back.

use std::collections::{BTreeMap, BTreeSet};

use super::super::holes::round_up;
use super::PagedView;

/// Places too short only by their alignment that are looked at before longer ones are.
const LOOKED_AT: usize = 16;

/// Free stretches, none of them side by side when they are entered.
#[derive(Clone, Debug, Default)]
pub(super) struct Spare {
    /// Bytes and first byte.
    by_size: BTreeSet<(u64, u64)>,
    /// First byte, and bytes.
    by_place: BTreeMap<u64, u64>,
    /// Changes since the last [`keep`](Self::keep): first byte, bytes, whether it was added.
    log: Vec<(u64, u64, bool)>,
}

impl Spare {
    /// What is free of the pages for which `of` is true, by their numbers.
    pub fn new(view: &PagedView, of: impl Fn(usize) -> bool) -> Self {
        let (mut places, mut page) = (BTreeMap::new(), 0);
        let (mut begin, mut end) = (0, 0);
        let mut add = |begin: u64, end: u64| {
            if end > begin {
                places.insert(begin, end - begin);
            }
        };
        for part in view.parts.iter().filter(|part| part.is_free()) {
            while view.pages.get(page).is_some_and(|it| it.end() <= part.offset) {
                page += 1;
            }
            let reached = view.pages[page..].iter().take_while(|it| it.at < part.end());
            for (it, _) in reached.zip(page..).filter(|(_, at)| of(*at)) {
                let (from, to) = (it.at.max(part.offset), it.end().min(part.end()));
                if from != end {
                    add(begin, end);
                    begin = from;
                }
                end = to;
            }
        }
        add(begin, end);
        let by_size = places.iter().map(|(&at, &bytes)| (bytes, at)).collect();
        Self { by_size, by_place: places, log: Vec::new() }
    }

    fn add(&mut self, at: u64, bytes: u64) {
        if bytes > 0 {
            self.by_size.insert((bytes, at));
            self.by_place.insert(at, bytes);
            self.log.push((at, bytes, true));
        }
    }

    fn remove(&mut self, at: u64, bytes: u64) {
        self.by_size.remove(&(bytes, at));
        self.by_place.remove(&at);
        self.log.push((at, bytes, false));
    }

    /// Bytes of the longest place.
    pub fn longest(&self) -> u64 {
        self.by_size.last().map_or(0, |&(bytes, _)| bytes)
    }

    /// Takes the tightest place.
    pub fn take(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let fits = |&&(len, at): &&(u64, u64)| round_up(at, align) - at <= len - bytes;
        let tight = self.by_size.range((bytes, 0)..).take(LOOKED_AT).find(fits);
        let sure = || self.by_size.range((bytes.saturating_add(align - 1), 0)..).next();
        let (len, at) = *tight.or_else(sure)?;
        let to = round_up(at, align);
        self.remove(at, len);
        self.add(at, to - at);
        self.add(to + bytes, at + len - (to + bytes));
        Some(to)
    }

    /// Enters a stretch of which nothing is entered yet, for good.
    pub fn open(&mut self, at: u64, end: u64) {
        self.add(at, end - at);
        self.keep();
    }

    /// Takes a stretch out.
    pub fn close(&mut self, at: u64, end: u64) {
        while let Some((&from, &bytes)) = self.by_place.range(..end).next_back() {
            let to = from + bytes;
            if to <= at {
                break;
            }
            self.remove(from, bytes);
            self.add(from, at.saturating_sub(from));
            self.add(end, to.saturating_sub(end));
        }
    }

    /// Takes what was done so far for given.
    pub fn keep(&mut self) {
        self.log.clear();
    }

    /// Takes back what was done since the last [`keep`](Self::keep).
    pub fn undo(&mut self) {
        while let Some((at, bytes, was_added)) = self.log.pop() {
            if was_added {
                self.by_size.remove(&(bytes, at));
                self.by_place.remove(&at);
            } else {
                self.by_size.insert((bytes, at));
                self.by_place.insert(at, bytes);
            }
        }
    }
}
