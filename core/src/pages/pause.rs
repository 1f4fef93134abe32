//! Pausing a block: its pages go back to the device and its addresses stay. Resuming backs the
//! same addresses anew.
//!
//! A page that other blocks lie on too stays, with the part of the block that is on it.

use super::page::Backing;
use super::ranges::{NONE, Saved, State};
use super::{BlockId, PageId, Pages, PagesError, Points, StaleMapping};

/// A page on its way back to the device while its block keeps the addresses.
#[derive(Debug)]
pub struct Parting {
    page: PageId,
    /// Where the page is mapped.
    pub at: u64,
    /// What it is made of.
    pub backing: Backing,
    /// Other places where it is still mapped: to be unmapped with it.
    pub stale: Vec<StaleMapping>,
}

/// A block being paused, its device calls under way. Ends in [`Pages::pause_done`] or
/// [`Pages::pause_failed`].
#[derive(Debug)]
#[must_use = "say how it ended"]
pub struct Pausing {
    block: BlockId,
    /// The pages that go.
    pub pages: Vec<Parting>,
}

/// A paused block being backed again. Ends in [`Pages::resume_done`] or
/// [`Pages::resume_failed`].
#[derive(Debug)]
#[must_use = "say how it ended"]
pub struct Resuming {
    block: BlockId,
    /// What has to be backed: first byte and bytes of each gap, in order, whole granules.
    pub gaps: Vec<(u64, u64)>,
}

impl Pages {
    /// Begins to give back the pages that lie wholly under the block in a slot, whose uses have
    /// to be over. From here on nobody else may take or change the block.
    ///
    /// # Errors
    /// [`PagesError::WrongState`] for anything but a live block. Nothing has changed then.
    pub fn pause(&mut self, slot: u32) -> Result<Pausing, PagesError> {
        let range = self.ranges.table.at(slot).filter(|(_, range)| range.state == State::Live);
        let (key, range) = range.ok_or(PagesError::WrongState)?;
        let (start, end) = (range.start, range.end());
        self.version += 1;
        let mut going = Vec::new();
        let mut at = start + self.granule.padding(start);
        while at < end {
            let Some((page, found)) = self.store.page_at(at) else {
                at += self.granule.get();
                continue;
            };
            let (from, backing) = (found.at, found.backing);
            let whole = from >= start && from + backing.bytes <= end;
            if whole && !found.in_flight && found.unmapping == 0 {
                going.push((PageId(page), from, backing));
            }
            at = from + backing.bytes;
        }
        let mut pages = Vec::with_capacity(going.len());
        for (page, at, backing) in going {
            let stale = self.stale_of(page);
            self.store.change(page.0.index(), |page| page.in_flight = true);
            pages.push(Parting { page, at, backing, stale });
        }
        self.ranges.set(slot, State::Mapping, Points::NONE);
        Ok(Pausing { block: BlockId(key), pages })
    }

    /// Says that the pages are unmapped, at all their places: the block is paused. Returns what
    /// held their objects' last pages: release those.
    pub fn pause_done(&mut self, pausing: Pausing) -> Vec<Backing> {
        self.version += 1;
        let mut gone = Vec::new();
        for parting in pausing.pages {
            parting.stale.iter().for_each(|stale| self.unmap_ordered(stale));
            self.live -= parting.backing.bytes;
            self.paused += parting.backing.bytes;
            if self.store.remove(parting.page.0).is_some() {
                gone.push(parting.backing);
            }
        }
        self.ranges.set(pausing.block.slot(), State::Paused, Points::NONE);
        gone
    }

    /// Says that nothing was unmapped: the block is live as before.
    pub fn pause_failed(&mut self, pausing: Pausing) {
        self.version += 1;
        for parting in pausing.pages {
            parting.stale.into_iter().for_each(|stale| self.still_mapped(stale));
            self.store.change(parting.page.0.index(), |page| page.in_flight = false);
        }
        self.ranges.set(pausing.block.slot(), State::Live, Points::NONE);
    }

    /// Begins to back the paused block in a slot again.
    ///
    /// # Errors
    /// [`PagesError::WrongState`] for anything but a paused block. Nothing has changed then.
    pub fn resume(&mut self, slot: u32) -> Result<Resuming, PagesError> {
        let range = self.ranges.table.at(slot).filter(|(_, range)| range.state == State::Paused);
        let (key, range) = range.ok_or(PagesError::WrongState)?;
        let parts = self.backed_parts(range.start, range.end());
        let gaps: Vec<_> = parts.into_iter().filter(|part| !part.2).map(|p| (p.0, p.1)).collect();
        self.version += 1;
        let missing: u64 = gaps.iter().map(|gap| gap.1).sum();
        self.paused -= missing;
        self.live += missing;
        self.active_peak = self.active_peak.max(self.live + self.ranges.pending_bytes);
        self.ranges.set(slot, State::Mapping, Points::NONE);
        Ok(Resuming { block: BlockId(key), gaps })
    }

    /// Says that `backings`, each with the address it is mapped at, fill the gaps: the block is
    /// live, behind `mapped`.
    pub fn resume_done(
        &mut self,
        resuming: &Resuming,
        backings: &[(u64, Backing)],
        mapped: &Points,
        now: u64,
    ) {
        self.version += 1;
        for &(at, backing) in backings {
            self.store.add(backing, at, backing.bytes, now);
        }
        self.ranges.set(resuming.block.slot(), State::Live, mapped.clone());
    }

    /// Says that nothing was mapped: the block is paused as before.
    #[allow(clippy::needless_pass_by_value, reason = "a resumption ends once")]
    pub fn resume_failed(&mut self, resuming: Resuming) {
        self.version += 1;
        let missing: u64 = resuming.gaps.iter().map(|gap| gap.1).sum();
        self.paused += missing;
        self.live -= missing;
        self.ranges.set(resuming.block.slot(), State::Paused, Points::NONE);
    }

    /// Frees a paused block: what is still backed becomes free, the rest a hole.
    pub(super) fn free_paused(&mut self, block: BlockId, now: u64) -> Result<(), PagesError> {
        let range = self.ranges.table.get(block.0)?;
        let (start, end, next) = (range.start, range.end(), range.next);
        let mut prev = range.prev;
        let parts = self.backed_parts(start, end);
        if self.ranges.table.len() + parts.len() + 4 >= NONE as usize {
            return Err(PagesError::TooMany);
        }
        self.version += 1;
        self.ranges.remove(block.slot());
        let mut made = Vec::with_capacity(parts.len());
        for (at, bytes, backed) in parts {
            if backed {
                self.live -= bytes;
            } else {
                self.paused -= bytes;
            }
            let state = if backed { State::Free } else { State::Hole };
            let part = Saved { start: at, len: bytes, state, points: Points::NONE };
            let key = self.ranges.insert(part, prev, next).ok_or(PagesError::TooMany)?;
            prev = key.index();
            made.push(key);
        }
        self.store.uncover(start, end - start, now);
        for key in made.into_iter().rev() {
            // An inner part may have been joined by its neighbour.
            if self.ranges.table.get(key).is_ok() {
                self.ranges.delist(key.index());
                self.ranges.coalesce(key.index());
            }
        }
        Ok(())
    }

    /// `[start, end)` in parts that have pages and parts that have none: first byte, bytes,
    /// whether backed.
    fn backed_parts(&self, start: u64, end: u64) -> Vec<(u64, u64, bool)> {
        let mut parts: Vec<(u64, u64, bool)> = Vec::new();
        let mut at = start;
        while at < end {
            let (stop, backed) = match self.store.page_at(at) {
                Some((_, page)) => (page.at + page.backing.bytes, true),
                None => (self.granule.round_down(at) + self.granule.get(), false),
            };
            let stop = stop.min(end);
            match parts.last_mut() {
                Some(last) if last.2 == backed => last.1 += stop - at,
                _ => parts.push((at, stop - at, backed)),
            }
            at = stop;
        }
        parts
    }
}
