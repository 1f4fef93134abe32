//! Serving a request by mapping pages: plan and reserve under the lock, device calls without it,
//! commit or undo under it again.

use crate::device::{ClassId, DeviceError, MapOp, MemoryId, Paging, Place, UnmapOp};
use crate::error::Error;
use crate::event::{Event, EventKind, Rung, Why};
use crate::pages::{Backing, Departure, Pages, PagesError, Reservation, StaleMapping, Step};
use crate::point::{Points, SyncPoint};
use crate::pool::{Grabbed, Paged, Pool, PoolKey, Spot, SpotKind};
use crate::request::Layout;
use crate::units::Align;

use super::Inner;
use super::alloc::{Asked, Taken};
use super::handle::Allocation;
use super::state::State;

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
pub(super) enum Want {
    /// A place for a new block; with `behind` also behind other streams' work.
    Block { behind: bool },
    /// More bytes right after the block in a slot.
    After { slot: u32 },
}

impl Inner {
    /// The classes, by bit, whose requests paging may serve: none for a captured graph, whose
    /// addresses must stay backed, nor for memory objects that others are to see.
    pub(super) fn paged_classes(&self, dedicated: bool, exportable: bool, graph: bool) -> u32 {
        if !self.config.paging || dedicated || exportable || graph {
            return 0;
        }
        self.caps().paging.map_or(0, |paging| paging.classes)
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
        let done = self.with_pages(number, asked, Want::Block { behind })?;
        let Some((mut state, range)) = done else { return Ok(None) };
        let why = range.why;
        let taken = Taken { pool: number, range: range.grabbed, why };
        let outcome = self.commit(&mut state, asked, taken);
        self.unlock_and_tell(state);
        if why == Why::StolenPage {
            self.drop_stale(number, self.config.pages.stale_max / 2)?;
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
    ) -> Result<Option<(std::sync::MutexGuard<'_, State>, Range)>, Error> {
        let (mut asked_again, mut stingy) = (false, false);
        loop {
            let mut state = self.lock();
            let job = match self.plan_pages(&mut state, number, asked, want, stingy) {
                Ok(Ok(job)) => job,
                Ok(Err(PagesError::NoRoom { missing })) => {
                    let asked = asked.layout.bytes.max(missing);
                    return Err(self.no_room(&state, number, asked));
                }
                Ok(Err(_)) => return Ok(None),
                Err(error) => return Err(error),
            };
            drop(state);
            match self.perform(&job) {
                Ok(done) => return self.commit_job(job, &done).map(Some),
                Err((made, error)) => {
                    self.undo(job, made)?;
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
        let now = state.now();
        let pool = &mut state.pools[usize::from(number)];
        let (heap, kind, class) = (pool.heap, pool.kind, pool.key.class);
        let objects = state.budget.objects_left();
        let left = if stingy || objects == 0 { 0 } else { state.budget.left(heap) };
        let Some(paged) = &mut pool.paged else { return Ok(Err(PagesError::BadSize)) };
        let stream = asked.request.stream;
        let found = match want {
            Want::Block { behind } => paged.find_backed(asked.layout, stream, behind, now.ns, left),
            Want::After { slot } => {
                paged.find_after(slot, asked.layout.bytes, stream, now.ns, left)
            }
        };
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
    /// object, else one for all.
    fn take_objects(
        &self,
        state: &mut State,
        heap: crate::device::HeapId,
        creates: &[u64],
    ) -> Result<Vec<u64>, Error> {
        let objects: Vec<u64> = if self.pages_are_objects() {
            creates.to_vec()
        } else {
            Some(creates.iter().sum()).filter(|&bytes| bytes > 0).into_iter().collect()
        };
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

    /// Makes a job's device calls. After an error nothing of it is mapped, and of its objects
    /// those in [`Made`] exist.
    fn perform(&self, job: &Job) -> Result<Done, (Made, DeviceError)> {
        let mut made = Made::default();
        match self.try_perform(job, &mut made) {
            Ok(done) => Ok(done),
            Err(error) => Err((made, error)),
        }
    }

    fn try_perform(&self, job: &Job, made: &mut Made) -> Result<Done, DeviceError> {
        let paging = self.paging()?;
        let steps = &job.reservation.plan().steps;
        if steps.is_empty() {
            return Ok(Done { backings: Vec::new(), mapped: Points::NONE, spent_ns: 0 });
        }
        let start = self.device.now_ns();
        self.release_steps(paging, job, made)?;
        let backings = self.create_pages(paging, job, made)?;
        let mut new = backings.iter();
        let ops: Vec<MapOp> = steps
            .iter()
            .filter_map(|step| match *step {
                Step::Create { at, .. } => new.next().map(|backing| job.map_op(*backing, at)),
                Step::Steal { backing, at, .. } => Some(job.map_op(backing, at)),
                Step::Release { .. } => None,
            })
            .collect();
        // The old mappings of stolen pages stand: nothing has to be reached first.
        let mapped = paging.map(&ops, &[])?;
        let measured = self.device.now_ns().saturating_sub(start);
        let mapped = self.unreached(mapped)?;
        Ok(Done { backings, mapped, spent_ns: self.stealing_ns(steps, measured) })
    }

    /// A point, unless it is reached already: memory that waits for nothing serves every stream.
    fn unreached(&self, point: Option<SyncPoint>) -> Result<Points, DeviceError> {
        let Some(point) = point else { return Ok(Points::NONE) };
        let reached = self.device.reached(point.stream)? >= point.value;
        Ok(if reached { Points::NONE } else { Points::one(point) })
    }

    /// What the steals and releases of a plan took, the unmapping that is to follow included:
    /// from the device's figures, or as measured where it has none.
    fn stealing_ns(&self, steps: &[Step], measured: u64) -> u64 {
        let costs = &self.caps().costs;
        let known = costs.page_map.ns(0) > 0.0;
        let mut ns = 0.0;
        for step in steps {
            match step {
                Step::Create { .. } => {}
                Step::Steal { backing, .. } => {
                    ns += costs.page_map.ns(backing.bytes) + costs.page_unmap.ns(backing.bytes);
                }
                Step::Release { backing, .. } => {
                    ns += costs.page_unmap.ns(backing.bytes) + costs.page_release.ns(backing.bytes);
                }
            }
        }
        let steals = steps.iter().any(|step| !matches!(step, Step::Create { .. }));
        if known || !steals { ns as u64 } else { measured }
    }

    fn release_steps(
        &self,
        paging: &dyn Paging,
        job: &Job,
        made: &mut Made,
    ) -> Result<(), DeviceError> {
        let released = || {
            job.reservation.plan().steps.iter().filter_map(|step| match *step {
                Step::Release { backing, at, .. } => Some((backing, at)),
                _ => None,
            })
        };
        let mut ops: Vec<UnmapOp> =
            released().map(|(backing, at)| job.unmap_op(at, backing.bytes)).collect();
        if ops.is_empty() {
            return Ok(());
        }
        ops.extend(job.stale.iter().map(|stale| job.unmap_op(stale.at, stale.bytes)));
        paging.unmap(&ops, &[])?;
        made.released = true;
        for (backing, _) in released() {
            paging.release(backing.object)?;
        }
        Ok(())
    }

    fn create_pages(
        &self,
        paging: &dyn Paging,
        job: &Job,
        made: &mut Made,
    ) -> Result<Vec<Backing>, DeviceError> {
        for &bytes in &job.taken {
            made.objects.push(paging.create(job.class, bytes, false)?);
        }
        let whole = self.pages_are_objects();
        let (mut backings, mut offset) = (Vec::with_capacity(job.creates.len()), 0);
        for (at, &bytes) in job.creates.iter().enumerate() {
            let object = if whole { made.objects.get(at) } else { made.objects.first() };
            let Some(&object) = object else { break };
            let object_bytes = if whole { bytes } else { job.taken[0] };
            let from = if whole { 0 } else { offset };
            backings.push(Backing { object, object_bytes, offset: from, bytes });
            offset += bytes;
        }
        Ok(backings)
    }

    /// Commits a job whose calls are done. Gives the range, the lock held.
    fn commit_job(
        &self,
        job: Job,
        done: &Done,
    ) -> Result<(std::sync::MutexGuard<'_, State>, Range), Error> {
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
        for (object, &bytes) in objects(&done.backings).iter().zip(&taken) {
            state.pools[usize::from(number)].reserved.add(bytes);
            state.count_reserved(kind, bytes);
            let event = Event::new(EventKind::PageCreated).a(object.0).b(bytes);
            state.event(event.of(class.0, 0));
        }
        let why = why(&steps, waited);
        let grabbed = Grabbed { node: Spot::page(slot), points, pending: 0 };
        Ok((state, Range { grabbed, why }))
    }

    /// Undoes a job that failed: what was made is given back, what was given back is struck.
    fn undo(&self, job: Job, made: Made) -> Result<(), Error> {
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

    /// Unmaps stale mappings that nothing uses any more, until at most `keep` stand.
    pub(super) fn drop_stale(&self, number: u16, keep: usize) -> Result<(), Error> {
        let ordered = self.caps().paging.is_some_and(|paging| paging.stream_ordered);
        let (stale, space) = {
            let mut state = self.lock();
            let Some(paged) = &mut state.pools[usize::from(number)].paged else { return Ok(()) };
            let many = paged.pages.usage().stale;
            if many <= keep {
                return Ok(());
            }
            let stale = if ordered {
                paged.pages.drop_stale(many - keep)
            } else {
                paged.pages.drop_settled(many - keep)
            };
            (stale, paged.space)
        };
        if stale.is_empty() {
            return Ok(());
        }
        let mut after = Points::NONE;
        let op = |stale: &StaleMapping| UnmapOp {
            at: Place { space, offset: stale.at },
            bytes: stale.bytes,
        };
        let ops: Vec<UnmapOp> = stale.iter().map(op).collect();
        stale.iter().for_each(|stale| after.merge(&stale.after));
        let unmapped = self.paging()?.unmap(&ops, after.as_slice());
        let mut state = self.lock();
        if let Some(paged) = &mut state.pools[usize::from(number)].paged {
            for stale in stale {
                match unmapped {
                    Ok(_) => paged.pages.unmap_ordered(&stale),
                    Err(_) => paged.pages.still_mapped(stale),
                }
            }
        }
        for op in ops.iter().filter(|_| unmapped.is_ok()) {
            let event = Event::new(EventKind::PageUnmapped).b(op.bytes).c(op.at.offset);
            state.event(event);
        }
        self.unlock_and_tell(state);
        unmapped?;
        Ok(())
    }

    /// Enlarges a block of a paged space to `rounded` bytes, backing what follows it.
    pub(super) fn grow_by_pages(
        &self,
        key: crate::id::Key,
        bytes: u64,
        rounded: u64,
        request: &crate::request::Request<'_>,
    ) -> Result<Points, Error> {
        let (block, before) = {
            let state = self.lock();
            let block = *state.block(key)?;
            let before = state.pool(&block).bytes(block.node);
            state.check_tag_limit(block.tag, rounded.saturating_sub(before))?;
            (block, before)
        };
        let SpotKind::Page(slot) = block.node.kind() else { return Err(Error::NoRoomToGrow) };
        let more = rounded.checked_sub(before).filter(|&more| more > 0);
        let layout = Layout { bytes: more.ok_or(Error::NoRoomToGrow)?, align: Align::ONE };
        let site = std::panic::Location::caller();
        let asked = Asked { request, layout, site, graph: None, paged: u32::MAX };
        let done = match self.with_pages(block.pool, &asked, Want::After { slot }) {
            Err(error) if super::ladder::is_shortage(error) => None,
            outcome => outcome?,
        };
        let Some((mut state, range)) = done else { return Err(Error::NoRoomToGrow) };
        let Grabbed { node, points, .. } = range.grabbed;
        let same = state.block(key).is_ok_and(|now| now.node == block.node);
        let joined = same && state.join_pages(&block, node);
        if !joined {
            // Freed or moved meanwhile: what was backed stays, free.
            let now = state.now();
            let pool = &mut state.pools[usize::from(block.pool)];
            let (kind, pending) = (pool.kind, pool.pending());
            pool.free(node, points, now);
            let change = pool.pending() as i64 - pending as i64;
            state.count_pending(kind, change);
            return Err(Error::NoRoomToGrow);
        }
        let waits = points.without(block.stream);
        if !waits.is_empty() {
            state.add_waits(key, &waits);
        }
        self.note_resized(&mut state, key, before, rounded, bytes)?;
        Ok(waits)
    }

    /// Backs `bytes` of a class's paged space and leaves them free. Tells whether the class has one.
    pub(super) fn warm_pages(&self, class: ClassId, bytes: u64) -> Result<bool, Error> {
        let request = crate::request::Request::new(bytes, crate::point::StreamId(u32::MAX));
        let align = Align::new(self.caps().paging.map_or(1, |paging| paging.granularity));
        let align = align.unwrap_or_default();
        let layout = Layout { bytes: align.round_up(bytes).unwrap_or(bytes), align };
        let site = std::panic::Location::caller();
        let paged = self.paged_classes(false, false, false);
        let asked = Asked { request: &request, layout, site, graph: None, paged };
        if !asked.is_paged(class) {
            return Ok(false);
        }
        let Some(number) = self.paged_pool(asked.key(class))? else { return Ok(false) };
        let done = self.with_pages(number, &asked, Want::Block { behind: false })?;
        let Some((mut state, range)) = done else { return Ok(false) };
        let now = state.now();
        let points = range.grabbed.points;
        let pool = &mut state.pools[usize::from(number)];
        let (kind, before) = (pool.kind, pool.pending());
        pool.free(range.grabbed.node, points, now);
        // Active until the device has made the mappings.
        let pending = pool.pending() as i64 - before as i64;
        state.count_pending(kind, pending);
        self.unlock_and_tell(state);
        Ok(true)
    }

    /// Gives wholly free pages of the chosen pools back, largest first, while `wanted` asks for
    /// bytes. Tells how many bytes of memory objects went.
    pub(super) fn release_pages(
        &self,
        wanted: &dyn Fn(&State) -> u64,
        idle_before_ns: u64,
        of: &dyn Fn(&Pool) -> bool,
    ) -> Result<u64, Error> {
        let (mut released, mut number) = (0, 0);
        loop {
            let (departures, space) = {
                let mut state = self.lock();
                let want = wanted(&state);
                let Some(pool) = state.pools.get_mut(usize::from(number)) else {
                    return Ok(released);
                };
                let chosen = of(pool);
                let Some(paged) = pool.paged.as_mut().filter(|_| chosen && want > 0) else {
                    number += 1;
                    continue;
                };
                let departures = paged.pages.trim(want, idle_before_ns);
                let space = paged.space;
                state.in_flight += u32::from(!departures.is_empty());
                (departures, space)
            };
            if !departures.is_empty() {
                released += self.depart(number, space, departures)?;
            }
            number += 1;
        }
    }

    fn depart(
        &self,
        number: u16,
        space: crate::device::SpaceId,
        departures: Vec<Departure>,
    ) -> Result<u64, Error> {
        let (mut ops, mut after) = (Vec::new(), Points::NONE);
        let at = |offset| Place { space, offset };
        for departure in &departures {
            ops.push(UnmapOp { at: at(departure.at), bytes: departure.backing.bytes });
            for stale in &departure.stale {
                ops.push(UnmapOp { at: at(stale.at), bytes: stale.bytes });
                after.merge(&stale.after);
            }
        }
        let unmapped = self.paging().and_then(|paging| paging.unmap(&ops, after.as_slice()));
        let mut gone = Vec::new();
        let mut state = self.lock();
        if let Some(paged) = &mut state.pools[usize::from(number)].paged {
            for departure in departures {
                let backing = departure.backing;
                if unmapped.is_err() {
                    paged.pages.depart_failed(departure);
                } else if paged.pages.depart_done(departure).is_some() {
                    gone.push(backing);
                }
            }
        }
        drop(state);
        let mut outcome = unmapped.map(|_| ());
        for backing in &gone {
            let released = self.paging().and_then(|paging| paging.release(backing.object));
            outcome = outcome.and(released);
        }
        let mut state = self.lock();
        state.in_flight -= 1;
        let pool = &state.pools[usize::from(number)];
        let (heap, kind) = (pool.heap, pool.kind);
        for backing in &gone {
            state.give_object(number, heap, kind, backing.object, backing.object_bytes);
        }
        self.unlock_and_tell(state);
        outcome?;
        Ok(gone.iter().map(|backing| backing.object_bytes).sum())
    }

    /// Gives a paged space back with all that is mapped in it. Errors have nobody to go to: the
    /// allocator is gone.
    pub(super) fn tear_down(&self, paged: &mut Paged) {
        let Ok(paging) = self.paging() else { return };
        let space = paged.space;
        let mut ops: Vec<UnmapOp> = Vec::new();
        let mut objects: Vec<MemoryId> = Vec::new();
        for (_, backing, at) in paged.pages.pages() {
            ops.push(UnmapOp { at: Place { space, offset: at }, bytes: backing.bytes });
            objects.push(backing.object);
        }
        for stale in paged.pages.drop_stale(usize::MAX) {
            ops.push(UnmapOp { at: Place { space, offset: stale.at }, bytes: stale.bytes });
        }
        objects.sort_unstable();
        objects.dedup();
        let _ = paging.unmap(&ops, &[]);
        for object in objects {
            let _ = paging.release(object);
        }
        let _ = paging.unreserve(space);
    }

    /// The pool under a key, with a paged space. `None` when the device has no addresses left.
    fn paged_pool(&self, key: PoolKey) -> Result<Option<u16>, Error> {
        {
            let mut state = self.lock();
            let number = state.pool_number(key, &*self.device)?;
            let pool = &state.pools[usize::from(number)];
            if pool.paged.is_some() {
                return Ok(Some(number));
            }
        }
        let Some(paged) = self.reserve_space(key.class)? else { return Ok(None) };
        let mut state = self.lock();
        let number = state.pool_number(key, &*self.device)?;
        let pool = &mut state.pools[usize::from(number)];
        if pool.paged.is_none() {
            pool.paged = Some(Box::new(paged));
            return Ok(Some(number));
        }
        drop(state);
        // Another thread was faster.
        self.paging()?.unreserve(paged.space)?;
        Ok(Some(number))
    }

    /// Reserves addresses for a class: four times its heap, twice for either size of block, less
    /// where the device has not as many.
    fn reserve_space(&self, class: ClassId) -> Result<Option<Paged>, Error> {
        let caps = self.caps();
        let (Some(paging), Some(info)) = (caps.paging, caps.class(class)) else { return Ok(None) };
        let Some(granule) = Align::new(paging.granularity) else { return Ok(None) };
        let total = caps.heaps.get(usize::from(info.heap.0)).map_or(0, |heap| heap.total);
        let most = paging.max_space_bytes.min(paging.space_bytes);
        let wanted = total.saturating_mul(8).clamp(granule.get() * 64, most.max(granule.get()));
        let mut bytes = granule.round_down(wanted);
        while bytes >= granule.get() * 8 {
            match self.paging()?.reserve(class, bytes) {
                Ok(reserved) => {
                    let pages = Pages::new(granule, bytes, self.config.pages);
                    let pages = pages.map_err(|_| Error::TableFull)?;
                    return Ok(Some(Paged::new(reserved.space, reserved.address, pages)));
                }
                Err(DeviceError::OutOfAddressSpace { .. } | DeviceError::TooLarge { .. }) => {
                    bytes = granule.round_down(bytes / 2);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
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
    /// Adds a taken range to the block before it.
    fn join_pages(&mut self, block: &super::state::Block, more: Spot) -> bool {
        let (SpotKind::Page(first), SpotKind::Page(second)) = (block.node.kind(), more.kind())
        else {
            return false;
        };
        let Some(paged) = &mut self.pools[usize::from(block.pool)].paged else { return false };
        let pages = &mut paged.pages;
        match (pages.block_in(first), pages.block_in(second)) {
            (Some(first), Some(second)) => pages.join(first, second).is_ok(),
            _ => false,
        }
    }

    /// Counts pending bytes that came or went with pages: they are active.
    pub(super) fn count_pending(&mut self, kind: crate::device::MemoryKind, change: i64) {
        match u64::try_from(change) {
            Ok(more) => {
                self.counters.active.add(more);
                self.counters.kinds[super::state::kind_index(kind)].active.add(more);
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

    fn note_steps(&mut self, class: ClassId, steps: &[Step], made: &[Backing]) {
        let mut new = made.iter();
        for step in steps {
            let (kind, backing, at) = match *step {
                Step::Create { at, .. } => {
                    let Some(&backing) = new.next() else { continue };
                    self.counters.pages_created += 1;
                    (EventKind::PageMapped, backing, at)
                }
                Step::Steal { backing, at, .. } => {
                    self.counters.pages_stolen += 1;
                    (EventKind::PageStolen, backing, at)
                }
                Step::Release { backing, at, .. } => (EventKind::PageUnmapped, backing, at),
            };
            let event = Event::new(kind).a(backing.object.0).b(backing.bytes).c(at);
            self.event(event.of(class.0, 0));
        }
    }
}
