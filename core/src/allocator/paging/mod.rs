//! Serving a request by mapping pages: plan and reserve under the lock, device calls without it,
//! commit or undo under it again.

mod give_back;
pub(super) mod pause;
mod perform;
mod resume;
mod space;
pub(super) mod warm;

use crate::device::{ClassId, DeviceError, MapOp, MemoryId, Paging, Place, UnmapOp};
use crate::error::Error;
use crate::event::{Event, EventKind, Rung, Why};
use crate::pages::{Backing, PagesError, Plan, Reservation, StaleMapping, Step};
use crate::point::Points;
use crate::pool::{Grabbed, Paged, Spot};
use crate::request::Wait;

use super::Inner;
use super::alloc::{Asked, Taken};
use super::handle::Allocation;
use super::state::State;

/// Stale mappings that stand until there are more: they are dropped in batches, since a call for
/// ten costs little more than one for one; many would stand in the way of the next placements.
const STALE_KEPT: usize = 8;

/// A plan whose device calls are to be made.
pub(super) struct Job {
    pub pool: u16,
    class: ClassId,
    pub reservation: Reservation,
    place: Place,
    /// Other mappings of the pages that the plan gives back.
    stale: Vec<StaleMapping>,
    /// Bytes of each page to make.
    creates: Vec<u64>,
    /// Bytes that were taken from the budget, object by object.
    taken: Vec<u64>,
}

/// What the device did for a job.
struct Done {
    backings: Vec<Backing>,
    mapped: Points,
    spent_ns: u64,
}

/// How far a job came.
#[derive(Default)]
struct Made {
    /// Whether what the plan gives back is gone.
    released: bool,
    objects: Vec<MemoryId>,
}

/// What a plan is for.
#[derive(Clone, Copy)]
pub(in crate::allocator) enum Want {
    /// A place for a new block; with `behind` also behind other streams' work.
    Block { behind: bool },
    /// A new place for a block that moves, by pages that are there: found as for a request, or at
    /// the end.
    Move { append: bool },
    /// More bytes right after the block in a slot.
    After { slot: u32 },
}

impl Want {
    /// A place for what is asked for; `left` is what the budget still allows.
    fn find(
        self,
        paged: &Paged,
        asked: &Asked<'_>,
        now_ns: u64,
        left: u64,
    ) -> Result<Plan, PagesError> {
        let stream = asked.request.stream;
        match self {
            Want::Block { behind } => paged.find_backed(asked.layout, stream, behind, now_ns, left),
            Want::Move { append: false } => {
                paged.find_backed(asked.layout, stream, true, now_ns, 0)
            }
            Want::Move { append: true } => {
                let (bytes, align) = (asked.layout.bytes, asked.layout.align);
                let plan = paged.pages.find_append(bytes, align, now_ns);
                plan.ok_or(PagesError::NoAddresses { bytes })
            }
            Want::After { slot } => {
                paged.find_after(slot, asked.layout.bytes, stream, now_ns, left)
            }
        }
    }
}

impl Inner {
    /// The classes, by bit, whose requests paging may serve: none for a captured graph, whose
    /// addresses must stay backed, nor for memory objects that others are to see.
    pub(super) fn paged_classes(&self, dedicated: bool, exportable: bool, graph: bool) -> u32 {
        if dedicated || exportable || graph { 0 } else { self.paged }
    }

    /// Serves a request by mapping pages in a class. `None` when paging can not serve it there,
    /// so that plain segments may.
    pub(super) fn map_pages(
        &self,
        asked: &Asked<'_>,
        class: ClassId,
        behind: bool,
    ) -> Result<Option<Allocation>, Error> {
        if !asked.is_paged(class) {
            return Ok(None);
        }
        let Some(number) = self.paged_pool(asked.key(class))? else { return Ok(None) };
        // At the cap nothing is stolen: those that nothing uses any more make room. What can not
        // be dropped stays on record.
        let _ = self.drop_stale(number, self.config.pages.stale_max.saturating_sub(1));
        let done = self.with_pages(number, asked, Want::Block { behind })?;
        let Some((mut state, range)) = done else { return Ok(None) };
        let why = range.why;
        let others = range.grabbed.points.without(asked.request.stream);
        if asked.request.wait == Wait::Never && !others.is_empty() {
            // Free, behind its own mapping: whoever may wait can have it.
            state.give_pages_back(number, range.grabbed.spot);
            self.unlock_and_tell(state);
            return Err(Error::WouldWait { asked: asked.layout.bytes });
        }
        let taken = Taken { pool: number, range: range.grabbed, why };
        let outcome = self.commit(&mut state, asked, taken);
        self.unlock_and_tell(state);
        if why == Why::StolenPage {
            // The block is handed out already; mappings that could not be dropped stay on record.
            let _ = self.drop_stale(number, STALE_KEPT.min(self.config.pages.stale_max / 2));
        }
        outcome.map(Some)
    }

    /// Plans, calls the device and commits: the range is taken when this returns, and the lock is
    /// held. `None` when the paged space has no place for it.
    pub(super) fn with_pages(
        &self,
        number: u16,
        asked: &Asked<'_>,
        want: Want,
    ) -> Result<Option<(super::lock::Locked<'_>, Range)>, Error> {
        let (mut asked_again, mut stingy) = (false, false);
        loop {
            let mut state = self.lock();
            let job = match self.plan_pages(&mut state, number, asked, want, stingy) {
                Ok(Ok(job)) => job,
                // Plain segments can be smaller than a page.
                Ok(Err(PagesError::NoRoom { .. })) if self.is_below_a_page(&state, number) => {
                    return Ok(None);
                }
                Ok(Err(PagesError::NoRoom { missing })) => {
                    let asked = asked.layout.bytes.max(missing);
                    return Err(self.no_room(&state, number, asked));
                }
                Ok(Err(_)) => return Ok(None),
                Err(error) => return Err(error),
            };
            drop(state);
            match self.perform(&job) {
                Ok(mut done) => {
                    self.see_mapped(asked, &mut done);
                    return self.commit_job(job, &done).map(Some);
                }
                Err((made, error)) => {
                    self.undo(job, &made)?;
                    if matches!(error, DeviceError::TooManyObjects { .. }) {
                        // Mappings are used up: plain segments need one each.
                        return Ok(None);
                    }
                    let shortage = matches!(error, DeviceError::OutOfMemory { .. });
                    if !shortage || stingy {
                        return Err(error.into());
                    }
                    // The device is asked once more; then stealing has to do alone.
                    stingy = asked_again;
                    asked_again = true;
                    let event = Event::new(EventKind::Rung).a(Rung::AskAgain as u64);
                    self.lock().event(event.b(asked.layout.bytes));
                }
            }
        }
    }

    /// Whether the budget allows something, but no page.
    fn is_below_a_page(&self, state: &State, number: u16) -> bool {
        let left = state.budget.left(state.pools[usize::from(number)].heap);
        left > 0 && left < self.caps().paging.map_or(0, |paging| paging.granularity)
    }

    /// What the budget says to bytes that would have to be made.
    fn no_room(&self, state: &State, number: u16, bytes: u64) -> Error {
        let heap = state.pools[usize::from(number)].heap;
        match state.budget.room(heap, bytes) {
            Err(error) => error,
            Ok(()) => DeviceError::OutOfMemory { bytes }.into(),
        }
    }

    /// Finds a place and reserves it; what is to be made is taken from the budget.
    fn plan_pages(
        &self,
        state: &mut State,
        number: u16,
        asked: &Asked<'_>,
        want: Want,
        stingy: bool,
    ) -> Result<Result<Job, PagesError>, Error> {
        let (now, warming) = (state.now(), state.warming > 0);
        let pool = &mut state.pools[usize::from(number)];
        let (heap, kind, class) = (pool.heap, pool.kind, pool.key.class);
        let objects = state.budget.objects_left();
        let is_shut = stingy || objects == 0 || matches!(want, Want::Move { .. });
        let left = if is_shut { 0 } else { state.budget.left(heap) };
        let Some(paged) = &mut pool.paged else { return Ok(Err(PagesError::BadSize)) };
        paged.pages.set_eager(warming);
        let found = want.find(paged, asked, now.ns, left);
        let plan = match found {
            Ok(plan) => plan,
            Err(error) => return Ok(Err(error)),
        };
        let creates: Vec<u64> = plan
            .steps
            .iter()
            .filter_map(|step| match step {
                Step::Create { bytes, .. } => Some(*bytes),
                _ => None,
            })
            .collect();
        let (reservation, pending) = match paged.reserve(plan) {
            Ok(reserved) => reserved,
            Err(error) => return Ok(Err(error)),
        };
        let place = Place { space: paged.space, offset: 0 };
        let mut stale = Vec::new();
        let (mut gone, mut objects_gone) = (0, 0);
        for step in &reservation.plan().steps {
            if let Step::Release { page, backing, .. } = step {
                stale.extend(paged.pages.stale_of(*page));
                gone += backing.object_bytes;
                objects_gone += 1;
            }
        }
        // What is given back makes room for what is made instead.
        state.budget.lend(heap, gone, objects_gone);
        let taken = self.take_objects(state, heap, &creates);
        state.budget.take_back(heap, gone, objects_gone);
        state.count_pending(kind, pending);
        let taken = match taken {
            Ok(taken) => taken,
            Err(error) => {
                let pool = &mut state.pools[usize::from(number)];
                let undone = pool.paged.as_mut().map_or(0, |paged| {
                    let before = paged.pages.usage().pending;
                    paged.pages.rollback(reservation);
                    stale.into_iter().for_each(|stale| paged.pages.still_mapped(stale));
                    paged.pages.usage().pending as i64 - before as i64
                });
                state.count_pending(kind, undone);
                return Err(error);
            }
        };
        state.in_flight += 1;
        Ok(Ok(Job { pool: number, class, reservation, place, stale, creates, taken }))
    }

    /// Takes memory objects for pages from the budget: one for each page where a page is a whole
    /// object, else as few as the device's largest object allows.
    fn take_objects(
        &self,
        state: &mut State,
        heap: crate::device::HeapId,
        creates: &[u64],
    ) -> Result<Vec<u64>, Error> {
        let most = if self.pages_are_objects() { 0 } else { self.caps().max_plain_bytes };
        let mut objects: Vec<u64> = Vec::with_capacity(1);
        for &page in creates {
            match objects.last_mut() {
                Some(object) if *object + page <= most => *object += page,
                _ => objects.push(page),
            }
        }
        for (at, &bytes) in objects.iter().enumerate() {
            if let Err(error) = state.budget.take(heap, bytes) {
                objects[..at].iter().for_each(|&bytes| state.budget.give(heap, bytes));
                return Err(error);
            }
        }
        Ok(objects)
    }

    fn pages_are_objects(&self) -> bool {
        self.caps().paging.is_some_and(|paging| paging.whole_objects)
    }

    fn paging(&self) -> Result<&dyn Paging, DeviceError> {
        let feature = crate::error::Feature::Paging;
        self.device.paging().ok_or(DeviceError::Unsupported(feature))
    }

    /// Commits a job whose calls are done. Gives the range, the lock held.
    fn commit_job(&self, job: Job, done: &Done) -> Result<(super::lock::Locked<'_>, Range), Error> {
        let Job { pool: number, class, reservation, stale, taken, .. } = job;
        let slot = reservation.block().slot();
        let steps = reservation.plan().steps.clone();
        let waited = !reservation.plan().waits.is_empty();
        let mut state = self.lock();
        state.in_flight -= 1;
        let pool = &mut state.pools[usize::from(number)];
        let (heap, kind) = (pool.heap, pool.kind);
        let Some(paged) = &mut pool.paged else { return Err(Error::UseAfterFree) };
        let before = paged.pages.usage().pending;
        let committed =
            paged.pages.commit(reservation, &done.backings, done.spent_ns, &done.mapped);
        let gone = match committed {
            Ok(gone) => gone,
            Err((_, reservation)) => {
                // Our own backings never mismatch; the range goes back rather than leaks.
                paged.pages.rollback(*reservation);
                return Err(Error::TableFull);
            }
        };
        stale.iter().for_each(|stale| paged.pages.unmap_ordered(stale));
        let points = paged.pages.uses(slot).clone();
        let pending = paged.pages.usage().pending as i64 - before as i64;
        state.count_pending(kind, pending);
        state.note_steps(class, &steps, &done.backings);
        for step in &steps {
            if let Step::Release { backing, .. } = step
                && gone.contains(&backing.object)
            {
                state.give_object(number, heap, kind, backing.object, backing.object_bytes);
            }
        }
        state.note_objects(number, class, kind, &objects(&done.backings), &taken);
        let why = why(&steps, waited);
        let grabbed = Grabbed { spot: Spot::page(slot), points, pending: 0 };
        Ok((state, Range { grabbed, why }))
    }

    /// Undoes a job that failed: what was made is given back, what was given back is struck.
    fn undo(&self, job: Job, made: &Made) -> Result<(), Error> {
        let Job { pool: number, reservation, stale, taken, .. } = job;
        let mut outcome = Ok(());
        if let Ok(paging) = self.paging() {
            for object in &made.objects {
                outcome = outcome.and(paging.release(*object));
            }
        }
        let steps = reservation.plan().steps.clone();
        let mut state = self.lock();
        state.in_flight -= 1;
        let pool = &mut state.pools[usize::from(number)];
        let (heap, kind) = (pool.heap, pool.kind);
        let mut lost = Vec::new();
        if let Some(paged) = &mut pool.paged {
            let before = paged.pages.usage().pending;
            paged.pages.rollback(reservation);
            for stale in stale {
                if made.released {
                    paged.pages.unmap_ordered(&stale);
                } else {
                    paged.pages.still_mapped(stale);
                }
            }
            for step in steps.iter().filter(|_| made.released) {
                if let Step::Release { page, backing, .. } = step
                    && paged.pages.lose(*page).is_some()
                {
                    lost.push(*backing);
                }
            }
            let pending = paged.pages.usage().pending as i64 - before as i64;
            state.count_pending(kind, pending);
        }
        taken.iter().for_each(|&bytes| state.budget.give(heap, bytes));
        for backing in lost {
            state.give_object(number, heap, kind, backing.object, backing.object_bytes);
        }
        self.unlock_and_tell(state);
        Ok(outcome?)
    }
}

/// A range that [`Inner::with_pages`] has taken.
pub(super) struct Range {
    pub grabbed: Grabbed,
    pub why: Why,
}

fn why(steps: &[Step], waited: bool) -> Why {
    if waited {
        Why::Wait
    } else if steps.iter().any(|step| matches!(step, Step::Steal { .. })) {
        Why::StolenPage
    } else if steps.is_empty() {
        Why::CompletedHole
    } else {
        Why::New
    }
}

/// The objects of pages, each once.
fn objects(backings: &[Backing]) -> Vec<MemoryId> {
    let mut objects: Vec<MemoryId> = backings.iter().map(|backing| backing.object).collect();
    objects.dedup();
    objects
}

impl Job {
    const fn map_op(&self, backing: Backing, at: u64) -> MapOp {
        MapOp {
            at: Place { space: self.place.space, offset: at },
            memory: backing.object,
            memory_offset: backing.offset,
            bytes: backing.bytes,
        }
    }

    const fn unmap_op(&self, at: u64, bytes: u64) -> UnmapOp {
        UnmapOp { at: Place { space: self.place.space, offset: at }, bytes }
    }
}

impl State {
    /// Counts pending bytes that came or went with pages: they are active.
    pub(super) fn count_pending(&mut self, kind: crate::device::MemoryKind, change: i64) {
        match u64::try_from(change) {
            Ok(more) => {
                self.count_active(kind, more);
            }
            Err(_) => self.count_done(kind, change.unsigned_abs()),
        }
    }

    /// Counts a memory object of pages as gone.
    pub(super) fn give_object(
        &mut self,
        number: u16,
        heap: crate::device::HeapId,
        kind: crate::device::MemoryKind,
        object: MemoryId,
        bytes: u64,
    ) {
        self.pools[usize::from(number)].reserved.sub(bytes);
        self.budget.give(heap, bytes);
        self.count_released(kind, bytes);
        self.event(Event::new(EventKind::PageReleased).a(object.0).b(bytes));
    }

    /// Counts memory objects that were made for pages.
    fn note_objects(
        &mut self,
        number: u16,
        class: ClassId,
        kind: crate::device::MemoryKind,
        objects: &[MemoryId],
        sizes: &[u64],
    ) {
        for (object, &bytes) in objects.iter().zip(sizes) {
            self.pools[usize::from(number)].reserved.add(bytes);
            self.count_reserved(kind, bytes);
            let event = Event::new(EventKind::PageCreated).a(object.0).b(bytes);
            self.event(event.of(class.0, 0));
        }
    }

    pub(in crate::allocator) fn note_steps(
        &mut self,
        class: ClassId,
        steps: &[Step],
        made: &[Backing],
    ) {
        let mut new = made.iter();
        for step in steps {
            let mut from = 0;
            let (kind, backing, at) = match *step {
                Step::Create { at, .. } => {
                    let Some(&backing) = new.next() else { continue };
                    self.counters.pages_created += 1;
                    (EventKind::PageMapped, backing, at)
                }
                Step::Steal { backing, from: before, at, .. } => {
                    self.counters.pages_stolen += 1;
                    from = before + 1;
                    (EventKind::PageStolen, backing, at)
                }
                Step::Release { backing, at, .. } => (EventKind::PageUnmapped, backing, at),
            };
            let event = Event::new(kind).handle(from).a(backing.object.0).b(backing.bytes).c(at);
            self.event(event.of(class.0, 0));
        }
    }
}
