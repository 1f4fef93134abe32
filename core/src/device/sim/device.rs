//! The model as a [`Device`].

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::lanes::Submission;
use super::referee::Violation;
use super::work::{Effect, uses_of};
use super::{Charge, Held, SimDevice, State};
use crate::device::calls::CallKind;
use crate::device::{
    Caps, CaptureId, Compute, CopyOp, Device, DeviceError, DeviceInfo, Feature, HeapId, HeapUse,
    HostAccess, HostView, Paging, Place, Plain, PlainSpec, SpaceId, StreamId, StreamSpec,
    SyncPoint, Ticket, rules,
};

impl SimDevice {
    /// Submits work of the device's own: checks its ranges, then queues it.
    pub(super) fn enqueue(
        &self,
        charge: Charge,
        stream: StreamId,
        effect: impl FnOnce(&mut State) -> Effect,
    ) -> Result<SyncPoint, DeviceError> {
        let (modelled_ns, host) = (charge.ns as u64, Charge { ns: 0.0, ..charge });
        self.call(host, |state, _| {
            state.lanes.next_point(stream)?;
            let effect = effect(state);
            let uses = uses_of(&effect);
            for used in &uses {
                state.memory.contains(used.place, used.bytes)?;
            }
            let work = Submission { modelled_ns, given_ns: None, effect };
            let point = state.submit(stream, work, &uses)?;
            state.settle();
            Ok(point)
        })
    }

    /// As [`enqueue`](Self::enqueue), with a result to be taken later.
    pub(super) fn enqueue_ticket(
        &self,
        charge: Charge,
        stream: StreamId,
        effect: impl FnOnce(u64) -> Effect,
    ) -> Result<Ticket, DeviceError> {
        let mut id = 0;
        let point = self.enqueue(charge, stream, |state| {
            id = state.take_id();
            state.tickets.insert(id, Held::Coming);
            effect(id)
        });
        if point.is_err() {
            self.lock().tickets.remove(&id);
        }
        Ok(Ticket { id, point: point? })
    }

    /// One round of a wait: `Some` when it is decided.
    fn wait_round(&self, state: &mut State, points: &[SyncPoint], until_ns: u64) -> Wait {
        if state.lost {
            return Wait::Over(Err(DeviceError::Lost));
        }
        if !state.captures.is_empty() {
            return Wait::Over(Err(DeviceError::Capturing));
        }
        state.settle();
        if points.iter().any(|point| state.lanes.is_reached(*point)) {
            return Wait::Over(Ok(true));
        }
        match state.lanes.next_due() {
            Some(due) if due <= until_ns => {
                state.lanes.now = state.lanes.now.max(due);
                Wait::Again
            }
            _ if state.lanes.any_by_hand() => Wait::ForTest,
            due => {
                // Nothing ends in time: the time passes, unless it would never end.
                if due.is_some() || until_ns < u64::MAX {
                    state.lanes.now = state.lanes.now.max(until_ns);
                }
                Wait::Over(Ok(false))
            }
        }
    }
}

enum Wait {
    Over(Result<bool, DeviceError>),
    Again,
    /// Only a test can complete what is left.
    ForTest,
}

impl Device for SimDevice {
    fn info(&self) -> &DeviceInfo {
        &self.inner.info
    }

    fn caps(&self) -> &Caps {
        &self.inner.caps
    }

    fn now_ns(&self) -> u64 {
        self.lock().lanes.now
    }

    fn heap_use(&self, heap: HeapId) -> Result<HeapUse, DeviceError> {
        self.call(Charge::of(CallKind::HeapUse), |state, caps| state.memory.heap_use(caps, heap))
    }

    fn create_plain(&self, spec: &PlainSpec<'_>) -> Result<Plain, DeviceError> {
        let bytes = spec.bytes;
        let ns = self.inner.caps.costs.plain_create.ns(bytes);
        let charge = Charge { kind: CallKind::CreatePlain, items: 1, bytes, ns };
        self.call(charge, |state, caps| state.memory.create_plain(caps, spec))
    }

    fn release_plain(&self, space: SpaceId) -> Result<(), DeviceError> {
        let bytes = self.lock().memory.plain_bytes(space);
        let ns = self.inner.caps.costs.plain_release.ns(bytes);
        let charge = Charge { kind: CallKind::ReleasePlain, items: 1, bytes, ns };
        self.call_back(charge, |state, _| {
            if !state.captures.is_empty() {
                return Err(DeviceError::Capturing);
            }
            let memory = state.memory.plain_object(space)?;
            state.object_idle(CallKind::ReleasePlain, memory)?;
            state.memory.release_plain(space)
        })
    }

    fn create_stream(&self, _: StreamSpec) -> Result<StreamId, DeviceError> {
        self.call(Charge::of(CallKind::CreateStream), |state, _| Ok(state.lanes.open(false)))
    }

    fn retire_stream(&self, stream: StreamId) -> Result<(), DeviceError> {
        self.call_back(Charge::of(CallKind::RetireStream), |state, _| {
            state.lanes.open_mut(stream)?.retired = true;
            Ok(())
        })
    }

    fn is_foreign(&self, stream: StreamId) -> bool {
        self.lock().lanes.any(stream).is_ok_and(|lane| lane.foreign)
    }

    fn mark(&self, stream: StreamId) -> Result<SyncPoint, DeviceError> {
        self.call(Charge::of(CallKind::Mark), |state, _| {
            let point = state.lanes.mark(stream)?;
            state.settle();
            Ok(point)
        })
    }

    fn reached(&self, stream: StreamId) -> Result<u64, DeviceError> {
        self.call(Charge::of(CallKind::Reached), |state, _| {
            if state.captures.is_empty() {
                state.lanes.reached(stream)
            } else {
                Err(DeviceError::Capturing)
            }
        })
    }

    fn wait_on_stream(&self, stream: StreamId, points: &[SyncPoint]) -> Result<(), DeviceError> {
        let items = points.len() as u64;
        self.call(Charge { items, ..Charge::of(CallKind::WaitOnStream) }, |state, _| {
            state.points_exist(points)?;
            state.join_captures(stream, points)?;
            state.lanes.wait(stream, points)
        })
    }

    fn wait_any(&self, points: &[SyncPoint], timeout: Duration) -> Result<bool, DeviceError> {
        let started = Instant::now();
        let mut state = self.lock();
        let before = state.lanes.now;
        let wait_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let until_ns = before.saturating_add(wait_ns);
        let result = match state.points_exist(points) {
            Err(error) => Err(error),
            Ok(()) => loop {
                match self.wait_round(&mut state, points, until_ns) {
                    Wait::Over(result) => break result,
                    Wait::Again => {}
                    Wait::ForTest => {
                        let left = timeout.saturating_sub(started.elapsed());
                        if left.is_zero() {
                            state.lanes.now = state.lanes.now.max(until_ns);
                            break Ok(false);
                        }
                        state.waiting += 1;
                        let woken = self.inner.changed.wait_timeout(state, left);
                        state = woken.unwrap_or_else(std::sync::PoisonError::into_inner).0;
                        state.waiting -= 1;
                    }
                }
            },
        };
        let ns = state.lanes.now - before;
        let kind = CallKind::WaitAny;
        state.lanes.now = before;
        state.charge(Charge { kind, items: 1, bytes: 0, ns: ns as f64 }, result.err());
        state.lanes.now = state.lanes.now.max(before.saturating_add(ns));
        result
    }

    fn copy(&self, stream: StreamId, ops: &[CopyOp]) -> Result<SyncPoint, DeviceError> {
        let charge = copies(CallKind::Copy, ops, self.inner.caps.costs.copy);
        self.checked(charge, rules::copies(ops, 4))?;
        self.enqueue(charge, stream, |_| Effect::Copy(ops.to_vec()))
    }

    fn fill(
        &self,
        stream: StreamId,
        place: Place,
        bytes: u64,
        word: u32,
    ) -> Result<SyncPoint, DeviceError> {
        let charge = Charge { bytes, ..Charge::of(CallKind::Fill) };
        self.checked(charge, rules::fill(place.offset, bytes))?;
        self.enqueue(charge, stream, |_| Effect::Fill { place, bytes, word })
    }

    fn write(&self, stream: StreamId, place: Place, data: &[u8]) -> Result<SyncPoint, DeviceError> {
        let charge = Charge { bytes: data.len() as u64, ..Charge::of(CallKind::Write) };
        self.enqueue(charge, stream, |_| Effect::Write { place, data: data.to_vec() })
    }

    fn read(&self, stream: StreamId, place: Place, bytes: u64) -> Result<Ticket, DeviceError> {
        let charge = Charge { bytes, ..Charge::of(CallKind::Read) };
        self.staging(charge)?;
        self.enqueue_ticket(charge, stream, |ticket| Effect::Read { ticket, place, bytes })
    }

    fn take_read(&self, ticket: Ticket) -> Result<Vec<u8>, DeviceError> {
        self.call(Charge::of(CallKind::TakeRead), |state, _| match state.take(ticket)? {
            Held::Bytes(bytes) => Ok(bytes),
            _ => Err(DeviceError::InvalidCall("the ticket is of no read")),
        })
    }

    fn capture_of(&self, stream: StreamId) -> Option<CaptureId> {
        if !self.is_capturing() {
            return None;
        }
        self.lock().lanes.any(stream).ok()?.capture
    }

    fn is_capturing(&self) -> bool {
        self.inner.capturing.load(Ordering::Acquire) > 0
    }

    fn paging(&self) -> Option<&dyn Paging> {
        self.inner.caps.paging.as_ref().map(|_| self as &dyn Paging)
    }

    fn compute(&self) -> Option<&dyn Compute> {
        self.inner.caps.compute.then_some(self as &dyn Compute)
    }

    fn host_access(&self) -> Option<&dyn HostAccess> {
        let visible = self.inner.caps.classes.iter().any(|class| class.host_visible);
        visible.then_some(self as &dyn HostAccess)
    }
}

/// The charge of copies as one submission.
pub(super) fn copies(kind: CallKind, ops: &[CopyOp], line: crate::device::Line) -> Charge {
    let bytes = ops.iter().fold(0_u64, |sum, op| sum.saturating_add(op.bytes));
    Charge { kind, items: ops.len() as u64, bytes, ns: line.ns(bytes) }
}

impl SimDevice {
    /// Whether there is room for a copy of the bytes on the host.
    fn staging(&self, charge: Charge) -> Result<(), DeviceError> {
        const MAX: u64 = 4 << 30;
        let bytes = charge.bytes;
        if bytes <= MAX {
            return Ok(());
        }
        self.call(charge, |_, _| Err(DeviceError::OutOfMemory { bytes }))
    }

    /// Counts and answers a call that breaks a rule.
    pub(super) fn checked(
        &self,
        charge: Charge,
        valid: Result<(), &'static str>,
    ) -> Result<(), DeviceError> {
        match valid {
            Ok(()) => Ok(()),
            Err(reason) => self.call(charge, |_, _| Err(DeviceError::InvalidCall(reason))),
        }
    }
}

impl State {
    pub(super) fn points_exist(&mut self, points: &[SyncPoint]) -> Result<(), DeviceError> {
        match points.iter().find(|point| !self.lanes.was_submitted(**point)) {
            None => Ok(()),
            Some(&point) => {
                self.violations.push(Violation::NeverSubmitted { point });
                self.lanes.any(point.stream)?;
                Err(DeviceError::InvalidCall("the point was never submitted"))
            }
        }
    }

    /// A stream that waits for captured work takes part in the capture; a captured stream can
    /// not wait for work outside of it.
    fn join_captures(&mut self, stream: StreamId, points: &[SyncPoint]) -> Result<(), DeviceError> {
        if self.captures.is_empty() {
            return Ok(());
        }
        for &point in points.iter().filter(|point| point.stream != stream) {
            if self.lanes.is_reached(point) {
                continue;
            }
            let theirs = self.lanes.any(point.stream)?.capture;
            let lane = self.lanes.open_mut(stream)?;
            match (lane.capture, theirs) {
                (None, Some(_)) => lane.capture = theirs,
                (Some(_), _) if lane.capture != theirs => {
                    return Err(DeviceError::InvalidCall("a captured stream waits for other work"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Refuses, and notes, when work in flight uses a memory object.
    pub(super) fn object_idle(&mut self, call: CallKind, memory: u64) -> Result<(), DeviceError> {
        let lanes = &self.lanes;
        match self.in_flight.user_of(memory, |point| lanes.is_reached(point)) {
            None => {
                self.in_flight.forget(memory);
                Ok(())
            }
            Some(work) => {
                self.violations.push(Violation::ReleasedInUse { call, work });
                Err(DeviceError::InvalidCall("work that is not done uses the memory"))
            }
        }
    }

    /// Notes when work in flight uses bytes that the host is about to see.
    fn bytes_idle(&mut self, place: Place, bytes: u64) {
        let lanes = &self.lanes;
        for piece in self.memory.declared(place, bytes).unwrap_or_default() {
            let work = self.in_flight.user_of_bytes(&piece, |point| lanes.is_reached(point));
            if let Some(work) = work {
                self.violations.push(Violation::SeenInUse { work });
            }
        }
    }

    pub(super) fn take(&mut self, ticket: Ticket) -> Result<Held, DeviceError> {
        match self.tickets.remove(&ticket.id) {
            Some(Held::Coming) => {
                self.tickets.insert(ticket.id, Held::Coming);
                Err(DeviceError::InvalidCall("the ticket's point is not reached"))
            }
            Some(Held::Failed) => Err(DeviceError::StreamPoisoned),
            Some(held) => Ok(held),
            None => Err(DeviceError::InvalidCall("no such ticket, or it was taken")),
        }
    }
}

/// Bytes as they were when the view was made; written back when it is dropped.
struct SimView {
    device: SimDevice,
    place: Place,
    bytes: Vec<u8>,
    changed: bool,
}

impl HostView for SimView {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.changed = true;
        &mut self.bytes
    }
}

impl Drop for SimView {
    fn drop(&mut self) {
        if self.changed {
            self.device.lock().memory.write(self.place, &self.bytes);
        }
    }
}

impl SimDevice {
    fn visible(&self, state: &State, place: Place) -> Result<(), DeviceError> {
        let class = state.memory.class_of(place.space).and_then(|id| self.inner.caps.class(id));
        match class {
            None => Err(DeviceError::InvalidCall("no such space")),
            Some(class) if !class.host_visible => {
                Err(DeviceError::Unsupported(Feature::HostMapping))
            }
            Some(_) => Ok(()),
        }
    }
}

impl HostAccess for SimDevice {
    fn view(&self, place: Place, bytes: u64) -> Result<Box<dyn HostView>, DeviceError> {
        let charge = Charge { bytes, ..Charge::of(CallKind::HostView) };
        self.staging(charge)?;
        self.call(charge, |state, _| {
            self.visible(state, place)?;
            state.memory.contains(place, bytes)?;
            state.bytes_idle(place, bytes);
            let mut data = vec![0; bytes as usize];
            if !state.memory.read(place, &mut data) {
                return Err(DeviceError::InvalidCall("nothing is mapped there"));
            }
            let device = self.clone();
            Ok(Box::new(SimView { device, place, bytes: data, changed: false })
                as Box<dyn HostView>)
        })
    }

    fn pointer(&self, place: Place) -> Result<std::ptr::NonNull<u8>, DeviceError> {
        self.call(Charge::of(CallKind::HostPointer), |state, _| {
            self.visible(state, place)?;
            state.memory.contains(place, 1)?;
            // Pages of the model have no address of their own.
            let pointer = state.memory.pointer(place);
            pointer.ok_or(DeviceError::Unsupported(Feature::HostMapping))
        })
    }

    fn flush(&self, place: Place, bytes: u64) -> Result<(), DeviceError> {
        self.call(Charge { bytes, ..Charge::of(CallKind::Flush) }, |state, _| {
            state.memory.contains(place, bytes)
        })
    }

    fn invalidate(&self, place: Place, bytes: u64) -> Result<(), DeviceError> {
        self.call(Charge { bytes, ..Charge::of(CallKind::Invalidate) }, |state, _| {
            state.memory.contains(place, bytes)
        })
    }
}
