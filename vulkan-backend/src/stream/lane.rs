//! One stream: its timeline, its queue, and the submissions in flight.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use terrane_core::device::{DeviceError, Points, StreamId, SyncPoint};

use super::queue::Queue;
use super::slot::Slot;
use super::timeline::Timeline;

/// Whose work a stream carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only ours.
    Own,
    /// Page binds of ours: barriers do not cover them, only semaphores do.
    Paging,
    /// A host program's queue, on which we signal a timeline of our own.
    HostQueue,
    /// A host program's timeline semaphore: its values are the program's, and we submit nothing.
    HostTimeline,
}

/// A stream.
pub struct Lane {
    pub id: StreamId,
    pub kind: Kind,
    pub timeline: Arc<Timeline>,
    /// Absent for [`Kind::HostTimeline`].
    pub queue: Option<Arc<Queue>>,
    /// The last value given out.
    last: AtomicU64,
    /// The largest value known to be reached.
    known: AtomicU64,
    retired: AtomicBool,
    state: Mutex<State>,
}

/// What changes with each submission.
#[derive(Default)]
pub struct State {
    /// What the next submission has to wait for.
    pub waits: Points,
    /// A value given out by `mark` that nothing signals yet.
    pub open: Option<u64>,
    flying: VecDeque<(u64, Slot)>,
    free: Vec<Slot>,
    /// What submissions without commands keep alive.
    kept: VecDeque<(u64, Kept)>,
}

/// Things kept alive for a submission.
pub type Kept = Vec<Box<dyn Any + Send>>;

/// Submissions in flight from which on the driver is asked which of them are done.
const CROWD: usize = 4;

impl Lane {
    pub fn new(
        id: StreamId,
        kind: Kind,
        timeline: Timeline,
        queue: Option<Arc<Queue>>,
        reached: u64,
    ) -> Self {
        Self {
            id,
            kind,
            timeline: Arc::new(timeline),
            queue,
            last: AtomicU64::new(reached),
            known: AtomicU64::new(reached),
            retired: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn last(&self) -> u64 {
        self.last.load(Acquire)
    }

    pub fn set_last(&self, value: u64) {
        self.last.fetch_max(value, Release);
    }

    pub fn known(&self) -> u64 {
        self.known.load(Acquire)
    }

    pub fn is_retired(&self) -> bool {
        self.retired.load(Relaxed)
    }

    pub fn retire(&self) {
        self.retired.store(true, Relaxed);
    }

    pub fn point(&self, value: u64) -> SyncPoint {
        SyncPoint { stream: self.id, value }
    }

    /// Whether all work is known to be done.
    pub fn is_done(&self) -> bool {
        self.known() >= self.last()
    }

    /// Gives back what finished submissions hold, when many are in flight.
    pub fn reap(&self) -> Result<(), DeviceError> {
        let crowded = {
            let state = self.lock();
            state.free.is_empty() && state.flying.len() + state.kept.len() >= CROWD
        };
        if crowded { self.refresh().map(|_| ()) } else { Ok(()) }
    }

    /// Asks the driver what is reached, unless everything is known to be.
    pub fn refresh(&self) -> Result<u64, DeviceError> {
        if self.kind != Kind::HostTimeline && self.is_done() {
            return Ok(self.known());
        }
        let value = self.timeline.value()?;
        let before = self.known.fetch_max(value, Release);
        if value > before {
            drop(self.lock().finished(value));
        }
        Ok(value.max(before))
    }
}

impl State {
    /// Takes what finished submissions kept, so that it is dropped outside the lock.
    fn finished(&mut self, reached: u64) -> Kept {
        let mut kept = Kept::new();
        while self.kept.front().is_some_and(|(value, _)| *value <= reached) {
            kept.extend(self.kept.pop_front().into_iter().flat_map(|(_, things)| things));
        }
        while self.flying.front().is_some_and(|(value, _)| *value <= reached) {
            if let Some((_, mut slot)) = self.flying.pop_front() {
                kept.append(&mut slot.keep);
                slot.waited.clear();
                self.free.push(slot);
            }
        }
        kept
    }

    /// A slot to record into, reset.
    pub fn take(
        &mut self,
        make: impl FnOnce() -> Result<Slot, DeviceError>,
    ) -> Result<Slot, DeviceError> {
        match self.free.pop() {
            Some(mut slot) => slot.reset().map(|()| slot),
            None => make(),
        }
    }

    pub fn give_back(&mut self, mut slot: Slot) {
        slot.keep.clear();
        slot.waited.clear();
        self.free.push(slot);
    }

    pub fn keep(&mut self, value: u64, things: Kept) {
        self.kept.push_back((value, things));
    }

    pub fn fly(&mut self, value: u64, slot: Slot) {
        self.flying.push_back((value, slot));
    }
}
