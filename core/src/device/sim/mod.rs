//! A model of a device, with a virtual clock and a strict referee.
//!
//! [`Sim`] says what is modelled: capacity, limits, granularity, costs, heaps and classes, when
//! work completes, and whether bytes are kept. [`SimDevice`] is the device; beside [`Device`] it
//! has what a test needs:
//! - **the user's work**: [`submit`](SimDevice::submit), [`submit_using`](SimDevice::submit_using);
//! - **completion**: [`complete`](SimDevice::complete), [`advance`](SimDevice::advance);
//! - **what goes wrong**: [`lose`](SimDevice::lose), [`set_others`](SimDevice::set_others);
//! - **captures**: [`begin_capture`](SimDevice::begin_capture);
//! - **what was seen**: [`calls`](SimDevice::calls), [`violations`](SimDevice::violations).
//!
//! Time: every call moves the virtual clock by its modelled cost, work on streams takes place
//! beside it. Nothing is random and nothing depends on the machine's speed; only waiting for
//! work that completes by hand takes real time.
//!
//! Kernels given as closures run while the model is locked: they must not call the device.

mod build;
mod compute;
mod device;
mod lanes;

mod memory;
mod paging;
mod referee;
mod store;
#[cfg(test)]
mod tests;
mod work;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

pub use build::Sim;
pub use lanes::Completion;
pub use referee::Violation;

use super::calls::{Call, CallKind, CallTable};
use super::host::HostKernel;
use super::{
    Binding, Caps, CaptureId, Device, DeviceError, DeviceInfo, HeapId, MemoryId, Place, StreamId,
    SyncPoint,
};
use lanes::{Lanes, Submission};
use memory::Memory;
use referee::{InFlight, Use};
use work::{Effect, Outcome};

/// A modelled device. Cheap to clone: clones are the same device.
#[derive(Clone)]
pub struct SimDevice {
    inner: Arc<Inner>,
}

struct Inner {
    info: DeviceInfo,
    caps: Caps,
    state: Mutex<State>,
    /// Signalled when something completes by hand or the device is lost.
    changed: Condvar,
    /// Captures that are open: while there are none, asking about one takes no lock.
    capturing: AtomicUsize,
}

struct State {
    lanes: Lanes,
    memory: Memory,
    in_flight: InFlight,
    calls: CallTable,
    violations: Vec<Violation>,
    lost: bool,
    /// Threads that wait for something to complete by hand.
    waiting: u32,
    captures: Vec<CaptureId>,
    tickets: HashMap<u64, Held>,
    kernels: HashMap<u64, HostKernel>,
    dispatches: u64,
    next_id: u64,
    keep_bytes: bool,
    /// The stream on which mappings take their turn, where paging is stream-ordered.
    bind_stream: Option<StreamId>,
}

/// A result that was promised by a ticket.
enum Held {
    Coming,
    /// A kernel of the stream failed before.
    Failed,
    Bytes(Vec<u8>),
    Report(Vec<u64>),
}

/// What a call is counted as: kind, items, bytes and modelled nanoseconds.
#[derive(Clone, Copy)]
struct Charge {
    kind: CallKind,
    items: u64,
    bytes: u64,
    ns: f64,
}

impl Charge {
    const fn of(kind: CallKind) -> Self {
        Self { kind, items: 1, bytes: 0, ns: 0.0 }
    }
}

impl SimDevice {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one call of the device: checks, counts, and lets time pass.
    fn call<T>(
        &self,
        charge: Charge,
        run: impl FnOnce(&mut State, &Caps) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let mut state = self.lock();
        state.settle();
        let result =
            if state.lost { Err(DeviceError::Lost) } else { run(&mut state, &self.inner.caps) };
        state.charge(charge, result.as_ref().err().copied());
        result
    }

    /// As [`call`](Self::call), for what gives something back: on a lost device nothing happens.
    fn call_back(
        &self,
        charge: Charge,
        run: impl FnOnce(&mut State, &Caps) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        if self.lock().lost {
            return Ok(());
        }
        self.call(charge, run)
    }

    /// The device as the trait object that allocators take.
    pub fn shared(&self) -> Arc<dyn Device> {
        Arc::new(self.clone())
    }

    /// Submits work of the user's that takes `duration_ns` once it starts, whatever the rule;
    /// where work completes by hand, the duration is not used.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`], [`DeviceError::StreamPoisoned`], [`DeviceError::Lost`].
    pub fn submit(&self, stream: StreamId, duration_ns: u64) -> Result<SyncPoint, DeviceError> {
        self.submit_using(stream, duration_ns, &[])
    }

    /// As [`submit`](Self::submit), and the referee knows what the work reads and writes:
    /// unmapped ranges, races, and memory given back too early are violations.
    ///
    /// # Errors
    /// As [`submit`](Self::submit), and [`DeviceError::InvalidCall`] for a range outside its
    /// space.
    pub fn submit_using(
        &self,
        stream: StreamId,
        duration_ns: u64,
        ranges: &[Binding],
    ) -> Result<SyncPoint, DeviceError> {
        let mut state = self.lock();
        if state.lost {
            return Err(DeviceError::Lost);
        }
        let uses: Vec<Use> = ranges.iter().map(work::binding_use).collect();
        for used in &uses {
            state.memory.contains(used.place, used.bytes)?;
        }
        let given_ns = Some(duration_ns);
        let work = Submission { modelled_ns: 0, given_ns, effect: Effect::None };
        let point = state.submit(stream, work, &uses)?;
        state.settle();
        Ok(point)
    }

    /// Says when work submitted to this stream from now on completes.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`].
    pub fn set_completion(&self, stream: StreamId, rule: Completion) -> Result<(), DeviceError> {
        self.lock().lanes.set_rule(stream, rule)
    }

    /// Lets work up to a point that completes by hand complete, as soon as the points that it
    /// waits for are reached.
    pub fn complete(&self, point: SyncPoint) {
        let mut state = self.lock();
        state.lanes.complete(point);
        state.settle();
        self.inner.changed.notify_all();
    }

    /// Lets all work submitted so far that completes by hand complete.
    pub fn complete_all(&self) {
        let mut state = self.lock();
        state.lanes.complete_all();
        state.settle();
        self.inner.changed.notify_all();
    }

    /// Moves the virtual clock.
    pub fn advance(&self, ns: u64) {
        let mut state = self.lock();
        state.lanes.now = state.lanes.now.saturating_add(ns);
        state.settle();
        if state.waiting > 0 {
            self.inner.changed.notify_all();
        }
    }

    /// Makes a stream that stands for a wrapped one of another API: work submitted to it has no
    /// point of its own, only [`Device::mark`] covers it.
    pub fn create_foreign_stream(&self) -> StreamId {
        self.lock().lanes.open(true)
    }

    /// A segment as somebody else has it who opens what an exportable plain segment exports: the
    /// same memory, there until both are given back.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] for one that is not exportable, [`DeviceError::InvalidCall`]
    /// for no plain segment.
    pub fn import(&self, space: super::SpaceId) -> Result<super::Plain, DeviceError> {
        self.lock().memory.import(&self.inner.caps, space)
    }

    /// Begins to record a stream: work submitted to it is not run. Waits carry the capture to
    /// other streams. While a capture is open, asking, waiting and giving back are refused.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`], [`DeviceError::Capturing`] for a stream that is captured,
    /// [`DeviceError::Unsupported`] where [`Caps::capture`] is false.
    pub fn begin_capture(&self, stream: StreamId) -> Result<CaptureId, DeviceError> {
        if !self.inner.caps.capture {
            return Err(DeviceError::Unsupported(super::Feature::Capture));
        }
        let mut state = self.lock();
        let capture = CaptureId(state.take_id());
        let lane = state.lanes.open_mut(stream)?;
        if lane.capture.is_some() {
            return Err(DeviceError::Capturing);
        }
        lane.capture = Some(capture);
        state.captures.push(capture);
        self.inner.capturing.store(state.captures.len(), Ordering::Release);
        Ok(capture)
    }

    /// Ends a capture on all of its streams; the points of recorded work are then reached.
    ///
    /// # Errors
    /// [`DeviceError::InvalidCall`] for a capture that is not open.
    pub fn end_capture(&self, capture: CaptureId) -> Result<(), DeviceError> {
        let mut state = self.lock();
        if !state.lanes.end_capture(capture) {
            return Err(DeviceError::InvalidCall("no such capture is open"));
        }
        state.captures.retain(|open| *open != capture);
        self.inner.capturing.store(state.captures.len(), Ordering::Release);
        state.settle();
        self.inner.changed.notify_all();
        Ok(())
    }

    /// Loses the device: nothing completes any more, and all that waits is woken.
    pub fn lose(&self) {
        self.lock().lost = true;
        self.inner.changed.notify_all();
    }

    /// Says how many bytes of a heap other programs hold.
    pub fn set_others(&self, heap: HeapId, bytes: u64) {
        self.lock().memory.set_others(heap, bytes);
    }

    /// Calls so far, with modelled times.
    pub fn calls(&self) -> CallTable {
        self.lock().calls.clone()
    }

    /// Forgets the calls so far.
    pub fn clear_calls(&self) {
        self.lock().calls.clear();
    }

    /// Rules that were broken so far, oldest first.
    pub fn violations(&self) -> Vec<Violation> {
        self.lock().violations.clone()
    }

    /// Where a range lies: memory object, first byte in it and bytes, piece by piece; `None` where
    /// a part of it is not mapped.
    pub fn backing(&self, place: Place, bytes: u64) -> Option<Vec<(MemoryId, u64, u64)>> {
        let pieces = self.lock().memory.declared(place, bytes)?.into_iter();
        Some(pieces.map(|piece| (MemoryId(piece.memory), piece.offset, piece.bytes)).collect())
    }

    /// Memory objects that exist: plain segments and objects for pages.
    pub fn memory_objects(&self) -> u64 {
        self.lock().memory.object_count()
    }

    /// Mappings that exist.
    pub fn mappings(&self) -> u64 {
        self.lock().memory.mapping_count()
    }
}

impl State {
    fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn charge(&mut self, charge: Charge, error: Option<DeviceError>) {
        let Charge { kind, items, bytes, ns } = charge;
        let ns = if error.is_none() { ns as u64 } else { 0 };
        self.lanes.now = self.lanes.now.saturating_add(ns);
        let at_ns = self.lanes.now;
        self.calls.record(Call { kind, at_ns, ns, items, bytes, error });
        match error {
            Some(DeviceError::InvalidCall(reason)) => {
                self.violations.push(Violation::InvalidCall { call: kind, reason });
            }
            Some(DeviceError::Capturing) => {
                self.violations.push(Violation::DuringCapture { call: kind });
            }
            _ => {}
        }
    }

    /// Completes all that is done by now.
    fn settle(&mut self) {
        if self.lost {
            return;
        }
        while let Some((stream, effect)) = self.lanes.pop_done() {
            self.finish(stream, effect);
        }
    }

    fn finish(&mut self, stream: StreamId, effect: Effect) {
        if matches!(effect, Effect::None) {
            return;
        }
        if self.lanes.any(stream).is_ok_and(|lane| lane.poisoned) {
            if let Some(ticket) = effect.ticket() {
                self.tickets.insert(ticket, Held::Failed);
            }
            return;
        }
        match work::run(&mut self.memory, effect, self.keep_bytes) {
            Outcome::Nothing => {}
            Outcome::Unmapped { place, bytes } => {
                let value = self.lanes.reached(stream).unwrap_or(0);
                let work = SyncPoint { stream, value };
                self.violations.push(Violation::Unmapped { place, bytes, work });
            }
            Outcome::Bytes { ticket, bytes } => {
                self.tickets.insert(ticket, Held::Bytes(bytes));
            }
            Outcome::Report { ticket, report } => {
                self.tickets.insert(ticket, Held::Report(report));
            }
            Outcome::Panicked => {
                if let Ok(lane) = self.lanes.any_mut(stream) {
                    lane.poisoned = true;
                }
            }
        }
    }

    /// Submits work, after the referee has seen what it uses.
    fn submit(
        &mut self,
        stream: StreamId,
        work: Submission,
        uses: &[Use],
    ) -> Result<SyncPoint, DeviceError> {
        if !uses.is_empty() {
            let point = self.lanes.next_point(stream)?;
            let ordered = self.lanes.ordered(stream);
            for used in uses {
                let Some(pieces) = self.memory.declared(used.place, used.bytes) else {
                    let Use { place, bytes, .. } = *used;
                    self.violations.push(Violation::Unmapped { place, bytes, work: point });
                    continue;
                };
                let lanes = &self.lanes;
                for piece in pieces {
                    let reached = |point| lanes.is_reached(point);
                    let first = self.in_flight.touch(piece, used.write, point, &ordered, reached);
                    if let Some(first) = first {
                        let memory = MemoryId(piece.memory);
                        let (second, offset) = (point, piece.offset);
                        self.violations.push(Violation::Race { first, second, memory, offset });
                    }
                }
            }
        }
        self.lanes.submit(stream, work)
    }
}
