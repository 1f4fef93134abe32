//! New segments from the device.

use crate::device::{Class, ClassId, DeviceError, MemoryKind, Plain, PlainSpec, rules};
use crate::error::Error;
use crate::event::{Event, EventKind, Rung, Why};
use crate::point::Points;
use crate::pool::{Grabbed, PoolKey, Situation, segment_sizes};
use crate::request::Layout;
use crate::units::Align;

use super::Inner;
use super::alloc::{Asked, Taken};
use super::config::allowed_classes;
use super::handle::Allocation;
use super::state::State;

impl Inner {
    /// Serves a request from a new segment, of the first class and the largest size that budget
    /// and device allow.
    pub(super) fn grow(&self, asked: &Asked<'_>) -> Result<Allocation, Error> {
        let mut refusal = Error::NoSuchKind(asked.request.kind);
        for class in allowed_classes(self.caps(), &self.config, asked.request) {
            let mapped = self.map_pages(asked, class, false);
            let outcome = match mapped {
                Ok(Some(allocation)) => Ok(allocation),
                Ok(None) => self.grow_in(asked, class),
                Err(error) => Err(error),
            };
            match outcome {
                Err(error) if super::ladder::is_shortage(error) => refusal = error,
                outcome => return outcome,
            }
        }
        Err(refusal)
    }

    fn grow_in(&self, asked: &Asked<'_>, id: ClassId) -> Result<Allocation, Error> {
        let Some(&class) = self.caps().class(id) else {
            return Err(Error::NoSuchKind(asked.request.kind));
        };
        let (bytes, limit) = (asked.layout.bytes, self.caps().max_plain_bytes);
        if bytes > limit {
            // Only pages could have served it, and they did not.
            return Err(Error::OverDeviceLimit { asked: bytes, limit });
        }
        let situation = self.situation(&self.lock(), class);
        let mut refusal = Error::NoSuchKind(asked.request.kind);
        for bytes in segment_sizes(asked.layout, asked.request.dedicated, &situation) {
            match self.new_segment(asked.key(id), &class, bytes, asked.request.name) {
                Ok((number, plain)) => {
                    let mut state = self.lock();
                    state.in_flight -= 1;
                    let pool = &mut state.pools[usize::from(number)];
                    let spot = pool.add(plain, asked.layout.bytes);
                    self.note_segment(&mut state, class.kind, id, &plain);
                    let range = Grabbed { spot, points: Points::NONE, pending: 0 };
                    let taken = Taken { pool: number, range, why: Why::New };
                    let outcome = self.commit(&mut state, asked, taken);
                    self.unlock_and_tell(state);
                    return outcome;
                }
                Err(error) if super::ladder::is_shortage(error) => refusal = error,
                Err(error) => return Err(error),
            }
        }
        Err(refusal)
    }

    /// Makes a memory object under the budget. The caller adds it to the pool and ends the
    /// `in_flight` count; after an error nothing is counted any more.
    fn new_segment(
        &self,
        key: PoolKey,
        class: &Class,
        bytes: u64,
        name: &str,
    ) -> Result<(u16, Plain), Error> {
        let number = {
            let mut state = self.lock();
            let number = state.pool_number(key, &*self.device)?;
            state.budget.take(class.heap, bytes)?;
            state.in_flight += 1;
            let event = Event::new(EventKind::SegmentBegin).b(bytes);
            state.event(event.of(key.class.0, 0));
            number
        };
        let spec = PlainSpec {
            class: key.class,
            bytes,
            exportable: key.exportable,
            priority: self.config.priority,
            name: if name.is_empty() { "terrane segment" } else { name },
        };
        match self.create_plain(&spec) {
            Ok(plain) => {
                self.lock().budget.correct(class.heap, bytes, plain.bytes);
                Ok((number, plain))
            }
            Err(error) => {
                let mut state = self.lock();
                state.budget.give(class.heap, bytes);
                state.in_flight -= 1;
                self.unlock_and_tell(state);
                Err(match error {
                    DeviceError::TooManyObjects { limit } => Error::TooManyObjects { limit },
                    error => error.into(),
                })
            }
        }
    }

    /// Asks the device, and once more when it refuses what the budget allows: another process may
    /// have given memory back meanwhile.
    fn create_plain(&self, spec: &PlainSpec<'_>) -> Result<Plain, DeviceError> {
        let plain = match self.device.create_plain(spec) {
            Err(DeviceError::OutOfMemory { .. }) => {
                let mut state = self.lock();
                let event = Event::new(EventKind::Rung).a(Rung::AskAgain as u64);
                state.event(event.b(spec.bytes));
                drop(state);
                self.device.create_plain(spec)
            }
            outcome => outcome,
        }?;
        // Blocks would lie outside of it, or not where they have to.
        if let Err(broken) = rules::plain(self.caps(), spec, &plain) {
            self.device.release_plain(plain.space)?;
            return Err(DeviceError::Contract(broken));
        }
        Ok(plain)
    }

    fn note_segment(&self, state: &mut State, kind: MemoryKind, class: ClassId, plain: &Plain) {
        state.count_reserved(kind, plain.bytes);
        let event = Event::new(EventKind::SegmentEnd).a(plain.space.0).b(plain.bytes);
        state.event(event.of(class.0, 0));
    }

    fn situation(&self, state: &State, class: Class) -> Situation {
        let caps = self.caps();
        let heap = caps.heaps.get(usize::from(class.heap.0)).map_or(0, |heap| heap.total);
        Situation {
            growth: self.config.growth,
            granularity: Align::new(caps.plain_granularity).unwrap_or_default(),
            max_bytes: caps.max_plain_bytes,
            held: state.budget.held(class.heap),
            heap: heap.min(state.budget.limit(class.heap)),
            max_objects: state.budget.max_objects(),
        }
    }

    /// Takes the part of heap 0 that [`Config::preallocate`](super::Config) wants, in segments as
    /// large as the device makes them.
    pub(super) fn preallocate(&self) -> Result<(), Error> {
        let part = self.config.preallocate.clamp(0.0, 1.0);
        let Some(id) = self.caps().classes_of(MemoryKind::Device).next() else { return Ok(()) };
        let Some(&class) = self.caps().class(id) else { return Ok(()) };
        if part == 0.0 {
            return Ok(());
        }
        let free = self.device.heap_use(class.heap)?.free;
        let granularity = Align::new(self.caps().plain_granularity).unwrap_or_default();
        let room = free.min(self.lock().budget.left(class.heap));
        self.warm(id, granularity.round_down((room as f64 * part) as u64))
    }

    /// Takes `bytes` of a class from the device and keeps them free.
    pub(super) fn warm(&self, id: ClassId, bytes: u64) -> Result<(), Error> {
        let Some(&class) = self.caps().class(id) else { return Ok(()) };
        let granularity = Align::new(self.caps().plain_granularity).unwrap_or_default();
        if bytes == 0 || self.warm_pages(id, bytes)? {
            return Ok(());
        }
        let mut left = granularity.round_up(bytes).unwrap_or(bytes);
        while left > 0 {
            let bytes = left.min(granularity.round_down(self.caps().max_plain_bytes));
            let key = PoolKey { class: id, small: false, exportable: false, graph: None };
            let (number, plain) = self.new_segment(key, &class, bytes, "")?;
            let mut state = self.lock();
            state.in_flight -= 1;
            let ms = state.clock.ms();
            let pool = &mut state.pools[usize::from(number)];
            pool.add_free(plain, ms);
            self.note_segment(&mut state, class.kind, id, &plain);
            left = left.saturating_sub(bytes);
        }
        Ok(())
    }

    /// Enlarges a block where it is, if what follows it is free.
    pub(super) fn grow_in_place(&self, key: crate::id::Key, bytes: u64) -> Result<Points, Error> {
        let mut state = self.lock();
        let block = *state.block(key)?;
        state.refuse_asleep(key, &block)?;
        state.checking.refuse_growth(key, bytes)?;
        let limit = self.caps().max_plain_bytes;
        let request = crate::request::Request::new(bytes, block.stream);
        let Layout { bytes: rounded, .. } = request.layout(self.caps().binding_align, limit)?;
        if block.has(super::state::flag::MOVING | super::state::flag::SLIDING) {
            return Err(Error::NoRoomToGrow);
        }
        let pool = state.pool(&block);
        let before = pool.bytes(block.spot);
        if rounded <= before {
            return self
                .note_resized(&mut state, key, before, before, bytes)
                .map(|()| Points::NONE);
        }
        if block.spot.is_paged() {
            drop(state);
            return self.grow_by_pages(key, bytes, rounded, &request);
        }
        let growth = pool.growth(block.spot, rounded).ok_or(Error::NoRoomToGrow)?;
        state.check_tag_limit(block.tag, rounded - before)?;
        let pool = state.pool_mut(&block);
        let kind = pool.kind;
        let taken_over = pool.grow_in_place(block.spot, rounded).ok_or(Error::NoRoomToGrow)?;
        state.count_done(kind, taken_over);
        let waits = growth.without(block.stream);
        if !waits.is_empty() {
            state.add_waits(key, &waits);
        }
        self.note_resized(&mut state, key, before, rounded, bytes)?;
        Ok(waits)
    }

    pub(super) fn note_resized(
        &self,
        state: &mut State,
        key: crate::id::Key,
        before: u64,
        after: u64,
        requested: u64,
    ) -> Result<(), Error> {
        let block = *state.block(key)?;
        let kind = state.pool(&block).kind;
        let was = before.saturating_sub(u64::from(block.pad));
        state.count_free(kind, block.tag, (was, before), false);
        state.count_done(kind, before);
        state.count_alloc(kind, block.tag, requested, after);
        state.block_mut(key)?.pad = u32::try_from(after - requested).unwrap_or(u32::MAX);
        let event = Event::new(EventKind::Resized).handle(key.to_bits());
        state.event(event.a(requested).b(after));
        Ok(())
    }
}
