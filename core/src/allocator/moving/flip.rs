//! The flip: right after the submission of its copy a block is at its new place for everybody who
//! resolves it from now on, behind the copy's sync point.

use crate::compact::Verdict;
use crate::event::{Event, EventKind, MoveKind};
use crate::id::Key;
use crate::point::{Points, SyncPoint};
use crate::pool::Spot;

use super::super::Inner;
use super::super::state::{RetiredView, State, flag};
use super::compactor::Pass;
use super::copies::Copied;
use super::state::{Check, Flight};
use super::submit::{Armed, SLICE};

impl Inner {
    pub(super) fn flip(&self, pass: &mut Pass, armed: Vec<Armed>, waits: &Points, copied: &Copied) {
        let (mut checked, mut flights) = (0, Vec::new());
        let mut armed = armed.into_iter().peekable();
        while armed.peek().is_some() {
            // Filled with the lock held, so it does not grow then.
            flights.reserve(SLICE);
            let mut state = self.lock();
            for it in armed.by_ref().take(SLICE) {
                let at = checked;
                checked += usize::from(it.check);
                flights.extend(self.flip_one(&mut state, pass, it, waits, (copied, at)));
            }
            // Those that share a report are settled together: another thread may see the copies
            // done before the last one has flipped, and a report can be taken once.
            if copied.tickets.is_none() || armed.peek().is_none() {
                state.moves.take_off(std::mem::take(&mut flights));
            }
            self.unlock_and_tell(state);
        }
        self.destroy_unused(pass);
    }

    fn flip_one(
        &self,
        state: &mut State,
        pass: &mut Pass,
        armed: Armed,
        waits: &Points,
        (copied, at): (&Copied, usize),
    ) -> Option<Flight> {
        let (key, point) = (armed.it.key, copied.point);
        let touched = state.blocks.get(key).is_ok_and(|block| block.has(flag::TOUCHED));
        if touched {
            // Somebody has the old address, and his work may not be in the copy.
            self.give_up_one(state, pass, armed.it, Verdict::Cancelled, Some(point));
            let view = state.calm(key, Some(point));
            pass.unused_views.extend(view);
            return None;
        }
        let (bytes, new) = (armed.it.bytes, armed.it.to.spot);
        if armed.it.ends.is_some() {
            state.change_over(pass.pool, key, (armed.it.from, new), waits, point);
            state.note_moved(pass.pool, key, new, bytes, MoveKind::Remap);
            pass.report.remaps += 1;
            pass.report.remapped_bytes += armed.it.bytes - armed.it.copied();
            return Some(note_flight(
                state,
                pass,
                Flight { pass: pass.id, key, bytes, point, check: None },
            ));
        }
        let (source, points) =
            state.change_places(pass.pool, key, armed.it.from, new, waits, point);
        if let Some(view) = armed.it.view {
            state.change_view(key, view, &points);
        }
        let check = match (armed.check, copied.tickets) {
            (true, Some(tickets)) => Some(Check { pool: pass.pool, source, points, tickets, at }),
            _ => {
                state.let_go(pass.pool, source, points);
                None
            }
        };
        state.note_moved(pass.pool, key, new, bytes, MoveKind::Copy);
        Some(note_flight(state, pass, Flight { pass: pass.id, key, bytes, point, check }))
    }
}

impl State {
    /// Makes `new` the block's range and its old one nobody's. Gives that, with what has to be
    /// reached before it can be used again.
    fn change_places(
        &mut self,
        pool: u16,
        key: Key,
        old: Spot,
        new: Spot,
        waited: &Points,
        point: SyncPoint,
    ) -> (Spot, Points) {
        let ranges = &mut self.pools[usize::from(pool)];
        let mut points = ranges.make_source(old);
        // The copy comes behind all that it waited for.
        points.retain(|use_| !is_covered(*use_, waited));
        points.insert(point);
        ranges.make_live(new, key.index(), points.clone());
        self.set_place(key, new, point);
        (old, points)
    }

    /// Notes where a block is now and that everybody has to wait for its copy.
    pub(super) fn set_place(&mut self, key: Key, new: Spot, point: SyncPoint) {
        if let Ok(block) = self.blocks.get_mut(key) {
            block.spot = new;
            block.flags |= flag::HAS_WAITS;
        }
        self.waits.insert(key.index(), Points::one(point));
    }

    fn change_view(&mut self, key: Key, new: crate::device::View, uses: &Points) {
        if let Some(view) = self.views.insert(key.index(), new) {
            self.retired_views.push(RetiredView { view, graph: None, uses: uses.clone() });
        }
    }

    /// Counts a move that was submitted, and writes the event.
    pub(super) fn note_moved(&mut self, pool: u16, key: Key, new: Spot, bytes: u64, by: MoveKind) {
        self.moves.stats.moves += 1;
        self.moves.stats.bytes += bytes;
        let (class, space) = self.class_and_space(pool, new);
        let offset = self.pools[usize::from(pool)].offset(new);
        let event = Event::new(EventKind::MoveSubmitted).handle(key.to_bits()).a(space).b(bytes);
        let (tag, stream) = self.blocks.get(key).map_or((0, 0), |b| (b.tag.0, b.stream.0));
        self.event(event.c(offset).by(by).of(class, tag).on(stream, 0));
    }
}

/// Counts a move whose address has flipped.
fn note_flight(state: &mut State, pass: &mut Pass, flight: Flight) -> Flight {
    pass.report.moves += 1;
    pass.report.bytes += flight.bytes;
    let view = state.calm(flight.key, None);
    pass.unused_views.extend(view);
    flight
}

pub(super) fn is_covered(point: SyncPoint, by: &Points) -> bool {
    by.iter().any(|other| other.stream == point.stream && other.value >= point.value)
}
