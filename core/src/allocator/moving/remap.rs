//! Remap moves: a block's own pages are mapped at its new place while the old mappings stand, its
//! ends are copied, and the address flips as with any move. What is copied does not grow with the
//! block.

use crate::device::{CopyOp, DeviceError, MapOp, Place};
use crate::error::{Error, Feature};
use crate::event::{Event, EventKind};
use crate::id::Key;
use crate::pages::{Anew, Landed, Remap, Reservation};
use crate::point::{Points, SyncPoint};
use crate::pool::{Grabbed, Spot, SpotKind};

use super::super::Inner;
use super::super::free::drop_reached;
use super::super::state::{Block, State, flag};
use super::compactor::Pass;
use super::flip::is_covered;
use super::offer::Answer;
use super::reserve::Apart;
use super::submit::Armed;

/// What of a remapped block is copied: so many bytes at its start and at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub head: u64,
    pub tail: u64,
}

impl Ends {
    /// The copies of a block's ends.
    pub fn ops(self, from: Place, to: Place, bytes: u64) -> impl Iterator<Item = CopyOp> {
        let at = |place: Place, offset: u64| Place { offset: place.offset + offset, ..place };
        let op = move |offset: u64, bytes: u64| CopyOp {
            from: at(from, offset),
            to: at(to, offset),
            bytes,
        };
        let ends = [op(0, self.head), op(bytes - self.tail, self.tail)];
        ends.into_iter().filter(|op| op.bytes > 0)
    }
}

/// A remap move whose pages are to be mapped.
struct Begun {
    key: Key,
    block: Block,
    remap: Remap,
    reservation: Reservation,
}

impl Inner {
    /// Moves a block by remapping it. Tells whether it did; nothing has changed otherwise.
    pub(super) fn remap(&self, pass: &mut Pass, it: &Anew, at_end: bool) -> Result<bool, Error> {
        let number = pass.pool;
        // As for a request: at the cap nothing is stolen.
        let _ = self.drop_stale(number, self.config.pages.stale_max / 2);
        let Some(begun) = self.lock().begin_remap(number, it, at_end) else { return Ok(false) };
        let ops = begun.ops(&self.lock(), number);
        let start = self.device.now_ns();
        let paging = self.device.paging().ok_or(DeviceError::Unsupported(Feature::Paging));
        let mapped = paging.and_then(|paging| paging.map(&ops, &[]));
        let mapped = mapped.and_then(|point| self.unreached(point));
        let spent = self.device.now_ns().saturating_sub(start);
        match mapped {
            Ok(mapped) => {
                let (armed, waits) = self.remapped(pass, it, begun, spent, &mapped);
                self.send_armed(pass, vec![armed], &waits)?;
                Ok(true)
            }
            Err(error) => {
                let mut state = self.lock();
                let view = state.undo_remap(number, begun);
                pass.unused_views.extend(view);
                self.unlock_and_tell(state);
                self.destroy_unused(pass);
                match error {
                    DeviceError::OutOfMemory { .. } | DeviceError::TooManyObjects { .. } => {
                        Ok(false)
                    }
                    error => Err(error.into()),
                }
            }
        }
    }

    /// The pages are mapped: the new place is held, and the copies are told what to wait for.
    fn remapped(
        &self,
        pass: &mut Pass,
        it: &Anew,
        begun: Begun,
        spent_ns: u64,
        mapped: &Points,
    ) -> (Armed, Points) {
        let mut state = self.lock();
        let Begun { key, block, remap, reservation } = begun;
        let ends = Ends { head: remap.head, tail: remap.tail };
        let to = state.hold_remapped(pass.pool, reservation, remap, spent_ns, mapped);
        state.note_reserved(pass.pool, key, &block, to.spot);
        let mut waits = to.points.clone();
        self.gather_waits(&state, key, &block, &mut waits);
        waits.retain(|point| point.value < SyncPoint::NEVER);
        let pool = &state.pools[usize::from(pass.pool)];
        let (from, at) = (pool.place(block.spot), pool.place(to.spot));
        self.unlock_and_tell(state);
        let it = Apart {
            key,
            from: block.spot,
            bytes: it.bytes,
            to,
            ends: Some(ends),
            raw: false,
            answer: Answer::default(),
            view: None,
        };
        (Armed { it, from, to: at, check: false }, waits)
    }
}

impl Begun {
    fn ops(&self, state: &State, number: u16) -> Vec<MapOp> {
        let Some(paged) = &state.pools[usize::from(number)].paged else { return Vec::new() };
        let own = self.remap.maps();
        let ends = self.remap.plan().steps.iter().filter_map(|step| match *step {
            crate::pages::Step::Steal { backing, at, .. } => Some((backing, at)),
            _ => None,
        });
        let op = |(backing, at): (crate::pages::Backing, u64)| MapOp {
            at: Place { space: paged.space, offset: at },
            memory: backing.object,
            memory_offset: backing.offset,
            bytes: backing.bytes,
        };
        ends.chain(own).map(op).collect()
    }
}

impl State {
    /// Reserves the place, and marks the block as being moved: it can be neither freed nor paused.
    fn begin_remap(&mut self, number: u16, it: &Anew, at_end: bool) -> Option<Begun> {
        let (key, block) = self.still_there(number, it)?;
        let SpotKind::Page(slot) = block.spot.kind() else { return None };
        let now = self.now().ns;
        let pool = &mut self.pools[usize::from(number)];
        let kind = pool.kind;
        let paged = pool.paged.as_mut()?;
        let remap = paged.pages.find_remap(paged.pages.block_in(slot)?, at_end, now)?;
        let (reservation, pending) = paged.reserve(remap.plan().clone()).ok()?;
        self.count_pending(kind, pending);
        self.in_flight += 1;
        if let Ok(block) = self.blocks.get_mut(key) {
            block.flags |= flag::MOVING;
        }
        Some(Begun { key, block, remap, reservation })
    }

    fn undo_remap(&mut self, number: u16, begun: Begun) -> Option<crate::device::View> {
        self.in_flight -= 1;
        let pool = &mut self.pools[usize::from(number)];
        let (kind, before) = (pool.kind, pool.pending());
        if let Some(paged) = &mut pool.paged {
            paged.pages.rollback(begun.reservation);
        }
        let change = pool.pending() as i64 - before as i64;
        self.count_pending(kind, change);
        self.calm(begun.key, None)
    }

    /// Commits what was mapped; the place is held.
    fn hold_remapped(
        &mut self,
        number: u16,
        reservation: Reservation,
        remap: Remap,
        spent_ns: u64,
        mapped: &Points,
    ) -> Grabbed {
        self.in_flight -= 1;
        let steps = reservation.plan().steps.clone();
        let pool = &mut self.pools[usize::from(number)];
        let (kind, class, before) = (pool.kind, pool.key.class, pool.pending());
        let (slot, points) = match &mut pool.paged {
            Some(paged) => {
                let new = paged.pages.commit_remap(reservation, remap, spent_ns, mapped);
                (new.slot(), paged.pages.uses(new.slot()).clone())
            }
            None => (0, Points::NONE),
        };
        let change = pool.pending() as i64 - before as i64;
        self.count_pending(kind, change);
        self.note_steps(class, &steps, &[]);
        let to = Grabbed { spot: Spot::page(slot), points, pending: 0 };
        self.note_held(number, &to);
        to
    }

    /// Makes the new place of a remapped block its own: its pages are there, and its ends' old
    /// places are free behind the copy.
    pub(super) fn change_over(
        &mut self,
        number: u16,
        key: Key,
        (old, new): (Spot, Spot),
        waited: &Points,
        point: SyncPoint,
    ) {
        let (kind, bytes) = {
            let pool = &self.pools[usize::from(number)];
            (pool.kind, pool.bytes(new))
        };
        let now = self.now().ns;
        let pool = &mut self.pools[usize::from(number)];
        let class = pool.key.class;
        let mut points = pool.make_source(old);
        points.retain(|use_| !is_covered(*use_, waited));
        points.insert(point);
        let mut left = points.clone();
        drop_reached(&mut left, &self.reached);
        let SpotKind::Page(slot) = new.kind() else { return };
        let before = pool.pending();
        let landed = pool.paged.as_mut().and_then(|it| it.pages.hand_over(slot, &left, now));
        let pending = pool.pending().saturating_sub(before);
        pool.make_live(new, key.index(), points);
        self.moves.bytes_held -= bytes;
        // What was held is the block's; of its old place only the ends are still waited for.
        self.count_done(kind, bytes - pending.min(bytes));
        self.frees += 1;
        self.set_place(key, new, point);
        for Landed { backing, from, at } in landed.into_iter().flatten() {
            let event = Event::new(EventKind::PageStolen).handle(from + 1).a(backing.object.0);
            self.event(event.b(backing.bytes).c(at).of(class.0, 0));
        }
    }
}
