//! Taking a plan's place, and what becomes of it: commit or rollback.

use super::give_back::Stale;
use super::page::{Backing, ObjectId};
use super::ranges::{NONE, Saved, State};
use super::{BlockId, Pages, PagesError, Plan, Points, Step};
use crate::id::Key;

/// A place that is taken, its device calls under way. Ends in [`Pages::commit`] or
/// [`Pages::rollback`]; dropping it leaves the range and its pages in flight for ever.
#[derive(Debug)]
#[must_use = "commit it or roll it back"]
pub struct Reservation {
    block: BlockId,
    plan: Plan,
    /// The ranges over the place and the pieces beside it, in order, and what was there.
    place: (Vec<Key>, Vec<Saved>),
    /// For each step that takes a page away: its old range, and what was there.
    leaving: Vec<(Key, Vec<Saved>)>,
}

impl Reservation {
    /// The block, live from commit on.
    pub const fn block(&self) -> BlockId {
        self.block
    }

    /// What is to be done.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// The stretch that a plan touches: the block and the pieces that stick out of it.
fn stretch(plan: &Plan) -> (u64, u64) {
    let (mut low, mut high) = (plan.at, plan.at + plan.bytes);
    for step in &plan.steps {
        let (at, bytes) = match *step {
            Step::Create { bytes, at } => (at, bytes),
            Step::Steal { backing, at, .. } => (at, backing.bytes),
            Step::Release { .. } => continue,
        };
        low = low.min(at);
        high = high.max(at + bytes);
    }
    (low, high)
}

impl Pages {
    /// Takes a plan's place. From here on nobody else merges, steals or gives back what it uses.
    ///
    /// # Errors
    /// [`PagesError::Outdated`] when anything has changed since the plan was made;
    /// [`PagesError::TooMany`]. Nothing has changed then.
    pub fn reserve(&mut self, plan: Plan) -> Result<Reservation, PagesError> {
        if plan.version != self.version {
            return Err(PagesError::Outdated);
        }
        // Every step makes three ranges at most; the table's end is far beyond any real use.
        if self.ranges.table.len() + 4 * (plan.steps.len() + 2) >= NONE as usize {
            return Err(PagesError::TooMany);
        }
        self.version += 1;
        self.heat.since.get_or_insert(plan.now);
        let (low, high) = stretch(&plan);
        let end = plan.at + plan.bytes;
        let zone = self.ranges.zone_at(low);
        self.ranges.extend(zone, high).ok_or(PagesError::TooMany)?;
        let hint = if plan.hint == NONE { self.ranges.span(zone).last } else { plan.hint };
        let parts = [
            (plan.at - low, State::Mapping, Points::NONE),
            (plan.bytes, State::Mapping, self.points_over(hint, plan.at, end)),
            (high - end, State::Mapping, Points::NONE),
        ];
        let (saved, keys) = self.ranges.carve(hint, low, &parts).ok_or(PagesError::TooMany)?;
        let leaving = self.take_pages(&plan)?;
        let block = keys[usize::from(plan.at > low)];
        self.store.cover(plan.at, plan.bytes);
        self.live += plan.bytes;
        self.active_peak = self.active_peak.max(self.live + self.ranges.pending_bytes);
        Ok(Reservation { block: BlockId(block), plan, place: (keys, saved), leaving })
    }

    /// Takes a plan that needs no device call; the block is live at once.
    ///
    /// # Errors
    /// [`PagesError::Outdated`] as for [`reserve`](Self::reserve); [`PagesError::WrongState`] for
    /// a plan with steps; [`PagesError::TooMany`]. Nothing has changed then.
    #[allow(clippy::needless_pass_by_value, reason = "a plan is taken once")]
    pub fn take_hole(&mut self, plan: Plan) -> Result<BlockId, PagesError> {
        if plan.version != self.version {
            return Err(PagesError::Outdated);
        }
        if !plan.steps.is_empty() {
            return Err(PagesError::WrongState);
        }
        self.take_free(plan.hint, plan.at, plan.bytes, plan.now).ok_or(PagesError::TooMany)
    }

    /// Makes a block of a part of one free range.
    pub(super) fn take_free(
        &mut self,
        range: u32,
        at: u64,
        bytes: u64,
        now: u64,
    ) -> Option<BlockId> {
        let key = self.ranges.take(range, at, bytes, State::Live)?;
        self.version += 1;
        self.heat.since.get_or_insert(now);
        self.store.cover(at, bytes);
        self.live += bytes;
        self.active_peak = self.active_peak.max(self.live + self.ranges.pending_bytes);
        Some(BlockId(key))
    }

    /// Makes one block of two that lie side by side; the first keeps its name.
    ///
    /// # Errors
    /// [`PagesError::Unknown`]; [`PagesError::WrongState`] unless both are live neighbours.
    pub fn join(&mut self, first: BlockId, second: BlockId) -> Result<(), PagesError> {
        let (a, b) = (self.ranges.table.get(first.0)?, self.ranges.table.get(second.0)?);
        let live = a.state == State::Live && b.state == State::Live;
        if !live || a.next != second.slot() {
            return Err(PagesError::WrongState);
        }
        self.version += 1;
        self.ranges.absorb(first.slot(), second.slot());
        Ok(())
    }

    fn take_pages(&mut self, plan: &Plan) -> Result<Vec<(Key, Vec<Saved>)>, PagesError> {
        let mut leaving = Vec::new();
        for step in &plan.steps {
            let (page, at, bytes) = match *step {
                Step::Create { .. } => continue,
                Step::Steal { page, from, backing, .. } => (page, from, backing.bytes),
                Step::Release { page, at, backing } => (page, at, backing.bytes),
            };
            self.store.change(page.0.index(), |page| page.in_flight = true);
            leaving.push(self.depart(at, bytes).ok_or(PagesError::TooMany)?);
        }
        Ok(leaving)
    }

    /// Turns the free range under a page into one that is leaving.
    pub(super) fn depart(&mut self, at: u64, bytes: u64) -> Option<(Key, Vec<Saved>)> {
        let points = self.points_under(at, at + bytes);
        let hint = self.ranges.find(at)?;
        let (saved, keys) = self.ranges.carve(hint, at, &[(bytes, State::Leaving, points)])?;
        Some((*keys.first()?, saved))
    }

    /// Says that the device calls are done. `backings` are those of the plan's
    /// [`Create`](Step::Create) steps, in order; `spent` is what stealing and releasing
    /// took, in ticks: the calls for [`Steal`](Step::Steal) and [`Release`](Step::Release) steps,
    /// the unmapping that will follow included as far as it is known.
    /// `mapped` is what has to be reached before the new mappings may be used. Returns the objects
    /// that are gone: their pages were in [`Release`](Step::Release) steps, were unmapped, at
    /// every place that [`stale_of`](Self::stale_of) named, and given back.
    ///
    /// # Errors
    /// [`PagesError::BadBacking`], with the reservation, when the backings do not match.
    pub fn commit(
        &mut self,
        reservation: Reservation,
        backings: &[Backing],
        spent: u64,
        mapped: &Points,
    ) -> Result<Vec<ObjectId>, (PagesError, Box<Reservation>)> {
        if !self.match_backings(&reservation.plan, backings) {
            return Err((PagesError::BadBacking, Box::new(reservation)));
        }
        self.version += 1;
        let Reservation { block, plan, place: (keys, _), leaving } = reservation;
        self.heat.spent = self.heat.spent.saturating_add(spent);
        let mut released = Vec::new();
        let mut backings = backings.iter();
        let mut leaving = leaving.into_iter();
        let mut beside = vec![(0, u64::MAX, mapped.clone())];
        for step in &plan.steps {
            match *step {
                Step::Create { at, .. } => {
                    if let Some(backing) = backings.next() {
                        self.land(*backing, at, &plan);
                    }
                }
                Step::Steal { page, backing, at, .. } => {
                    if let Some((range, _)) = leaving.next() {
                        let points = self.stolen(page.0, range, at, &plan);
                        beside.push((at, at + backing.bytes, points));
                    }
                }
                Step::Release { page, .. } => {
                    if let Some((range, _)) = leaving.next() {
                        released.extend(self.store.remove(page.0));
                        self.ranges.set(range.index(), State::Hole, Points::NONE);
                    }
                }
            }
        }
        self.go_live(block, &keys, &beside, State::Live);
        Ok(released)
    }

    /// [`commit`](Self::commit) of a plan that only steals, whose block does not live yet.
    pub(super) fn commit_steals(
        &mut self,
        reservation: Reservation,
        spent: u64,
        mapped: &Points,
    ) -> BlockId {
        self.version += 1;
        let Reservation { block, plan, place: (keys, _), leaving } = reservation;
        self.heat.spent = self.heat.spent.saturating_add(spent);
        let mut beside = vec![(0, u64::MAX, mapped.clone())];
        let mut leaving = leaving.into_iter();
        for step in &plan.steps {
            if let Step::Steal { page, backing, at, .. } = *step
                && let Some((range, _)) = leaving.next()
            {
                let points = self.stolen(page.0, range, at, &plan);
                beside.push((at, at + backing.bytes, points));
            }
        }
        self.go_live(block, &keys, &beside, State::Mapping);
        block
    }

    fn match_backings(&self, plan: &Plan, backings: &[Backing]) -> bool {
        let wanted = plan.steps.iter().filter_map(|step| match step {
            Step::Create { bytes, .. } => Some(*bytes),
            _ => None,
        });
        let fits = |backing: &Backing| {
            self.granule.divides(backing.offset)
                && backing
                    .offset
                    .checked_add(backing.bytes)
                    .is_some_and(|end| end <= backing.object_bytes)
        };
        wanted.eq(backings.iter().map(|backing| backing.bytes)) && backings.iter().all(fits)
    }

    /// Enters a page that was made, as far as the block covers it.
    fn land(&mut self, backing: Backing, at: u64, plan: &Plan) {
        let live = overlap(plan, at, backing.bytes);
        self.store.add(backing, at, live, plan.now);
    }

    /// Moves a stolen page to its new place; its old range is stale from here on. Returns what
    /// has to be reached before its bytes may be used by others.
    fn stolen(&mut self, page: Key, range: Key, at: u64, plan: &Plan) -> Points {
        let mut points =
            self.ranges.table.get(range).map_or(Points::NONE, |range| range.points.clone());
        self.prune(&mut points);
        let old = self.store.pages.get(page).map(|page| (page.at, page.backing.bytes));
        if let Ok((from, bytes)) = old {
            self.store.paint(from, bytes, None);
            self.store.paint(at, bytes, Some(page.index()));
            let live = overlap(plan, at, bytes);
            self.store.change(page.index(), |page| {
                page.at = at;
                page.live = live;
                page.in_flight = false;
                page.idle_since = plan.now;
            });
        }
        self.ranges.set(range.index(), State::Stale, points.clone());
        self.stale.push_back(Stale { range, page, after: points.clone() });
        points
    }

    /// The block enters its state; what sticks out of it on either side becomes free, behind the
    /// points of the pages it lies on.
    fn go_live(
        &mut self,
        block: BlockId,
        keys: &[Key],
        beside: &[(u64, u64, Points)],
        state: State,
    ) {
        let mut own = Points::NONE;
        for key in keys {
            let Ok(range) = self.ranges.table.get(*key) else { continue };
            let (start, end) = (range.start, range.end());
            let mut points = range.points.clone();
            for (from, to, more) in beside {
                if *from < end && *to > start {
                    points.merge(more);
                }
            }
            self.prune(&mut points);
            if *key == block.0 {
                own = points;
            } else {
                self.ranges.set(key.index(), State::Free, points);
            }
        }
        // A block's points are what it was given: it passes them on if it is never used.
        self.ranges.set(block.0.index(), state, own);
        // What sticks out may be pending, on top of the block.
        self.active_peak = self.active_peak.max(self.live + self.ranges.pending_bytes);
    }

    /// Says that a device call failed and what had been done is undone: everything is as before.
    pub fn rollback(&mut self, reservation: Reservation) {
        self.version += 1;
        let Reservation { plan, place: (keys, saved), leaving, .. } = reservation;
        self.live -= plan.bytes;
        self.store.uncover(plan.at, plan.bytes, plan.now);
        let pages = plan.steps.iter().filter_map(|step| match step {
            Step::Steal { page, .. } | Step::Release { page, .. } => Some(page.0),
            Step::Create { .. } => None,
        });
        for page in pages {
            self.store.change(page.index(), |page| page.in_flight = false);
        }
        // In reverse, so that each finds the neighbours it was cut from.
        for (key, saved) in leaving.into_iter().rev() {
            self.restore(&[key], saved);
        }
        self.restore(&keys, saved);
    }

    /// Puts ranges back, less what has been reached meanwhile.
    pub(super) fn restore(&mut self, keys: &[Key], saved: Vec<Saved>) {
        let mut saved = saved;
        for part in &mut saved {
            self.prune(&mut part.points);
        }
        self.ranges.restore(keys, saved);
    }
}

/// Bytes of a page at `at` that a plan's block covers.
fn overlap(plan: &Plan, at: u64, bytes: u64) -> u64 {
    let end = (plan.at + plan.bytes).min(at + bytes);
    end.saturating_sub(plan.at.max(at))
}
