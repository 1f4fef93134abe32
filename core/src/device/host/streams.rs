//! Streams as queues, served by a pool of workers that all streams share.
//!
//! A stream runs one job at a time; a job is cut into chunks that any worker takes. A stream
//! whose next job waits for another stream's point is parked in its queue and costs no worker.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::tables::Claim;
use super::work::{Held, Job, Work};
use crate::device::{DeviceError, Points, StreamId, SyncPoint, Ticket};

/// A job that workers are at.
pub(super) struct Run {
    stream: StreamId,
    value: u64,
    work: Work,
    claim: Claim,
    ticket: Option<u64>,
    urgent: bool,
    chunks: Vec<Range<u64>>,
    /// Chunks that a worker has taken; changed under the lock only.
    taken: AtomicUsize,
    left: AtomicUsize,
    panicked: AtomicBool,
}

impl Run {
    /// What the job holds in place.
    pub(super) fn claim(&self) -> Claim {
        self.claim
    }

    /// Does a chunk; true when it was the last one to be done.
    pub(super) fn chunk(&self, at: usize) -> bool {
        let skip = self.panicked.load(Ordering::Relaxed);
        if !skip && !self.chunks.get(at).is_none_or(|chunk| self.work.run(chunk.clone())) {
            self.panicked.store(true, Ordering::Relaxed);
        }
        // Release and acquire: the last worker sees what all the others wrote.
        self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

struct Queued {
    job: Job,
    value: u64,
    after: Points,
}

#[derive(Default)]
struct Lane {
    submitted: u64,
    done: u64,
    queue: VecDeque<Queued>,
    running: bool,
    /// What the next job has to wait for.
    after: Points,
    urgent: bool,
    poisoned: bool,
    retired: bool,
}

pub(super) struct Streams {
    lanes: Vec<Lane>,
    /// Streams that have jobs in their queues.
    queued: Vec<u32>,
    /// Jobs with chunks that nobody has taken.
    active: VecDeque<Arc<Run>>,
    tickets: HashMap<u64, Held>,
    last_ticket: u64,
    workers: usize,
    /// Workers that sleep, and hosts that wait.
    pub(super) idle: usize,
    pub(super) waiting: usize,
    pub(super) stop: bool,
}

const GONE: DeviceError = DeviceError::UnknownStream;

impl Streams {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            lanes: Vec::new(),
            queued: Vec::new(),
            active: VecDeque::new(),
            tickets: HashMap::new(),
            last_ticket: 0,
            workers,
            idle: 0,
            waiting: 0,
            stop: false,
        }
    }

    pub(super) fn open(&mut self, urgent: bool) -> StreamId {
        let id = StreamId(self.lanes.len() as u32);
        self.lanes.push(Lane { urgent, ..Lane::default() });
        id
    }

    fn lane(&self, stream: StreamId) -> Result<&Lane, DeviceError> {
        self.lanes.get(stream.0 as usize).ok_or(GONE)
    }

    fn open_lane(&mut self, stream: StreamId) -> Result<&mut Lane, DeviceError> {
        self.lanes.get_mut(stream.0 as usize).filter(|lane| !lane.retired).ok_or(GONE)
    }

    pub(super) fn retire(&mut self, stream: StreamId) -> Result<(), DeviceError> {
        let lane = self.open_lane(stream)?;
        lane.retired = true;
        // Streams are never forgotten: programs that make many keep only the numbers of old ones.
        lane.queue.shrink_to_fit();
        Ok(())
    }

    pub(super) fn mark(&mut self, stream: StreamId) -> Result<SyncPoint, DeviceError> {
        let value = self.open_lane(stream)?.submitted;
        Ok(SyncPoint { stream, value })
    }

    pub(super) fn reached(&self, stream: StreamId) -> Result<u64, DeviceError> {
        self.lane(stream).map(|lane| lane.done)
    }

    /// Whether a point is reached; an error for one that was never submitted.
    pub(super) fn is_reached(&self, point: SyncPoint) -> Result<bool, DeviceError> {
        let lane = self.lane(point.stream)?;
        if point.value > lane.submitted {
            return Err(DeviceError::InvalidCall("the point was never submitted"));
        }
        Ok(lane.done >= point.value)
    }

    pub(super) fn wait(
        &mut self,
        stream: StreamId,
        points: &[SyncPoint],
    ) -> Result<(), DeviceError> {
        self.open_lane(stream)?;
        let mut open = Points::NONE;
        for &point in points {
            if !self.is_reached(point)? && point.stream != stream {
                open.insert(point);
            }
        }
        self.open_lane(stream)?.after.merge(&open);
        Ok(())
    }

    /// Whether the stream takes work.
    pub(super) fn ready(&mut self, stream: StreamId) -> Result<(), DeviceError> {
        let lane = self.open_lane(stream)?;
        if lane.poisoned { Err(DeviceError::StreamPoisoned) } else { Ok(()) }
    }

    pub(super) fn take_ticket(&mut self) -> u64 {
        self.last_ticket += 1;
        self.last_ticket
    }

    pub(super) fn submit(&mut self, stream: StreamId, job: Job) -> Result<SyncPoint, DeviceError> {
        self.ready(stream)?;
        let ticket = job.ticket;
        let lane = self.open_lane(stream)?;
        lane.submitted += 1;
        let (value, after) = (lane.submitted, std::mem::take(&mut lane.after));
        if lane.queue.is_empty() {
            self.queued.push(stream.0);
        }
        self.open_lane(stream)?.queue.push_back(Queued { job, value, after });
        let point = SyncPoint { stream, value };
        if let Some(ticket) = ticket {
            self.tickets.insert(ticket, Held::Coming);
        }
        Ok(point)
    }

    /// Starts the next job of every stream that can start one.
    ///
    /// Jobs behind a kernel that failed are dropped: `unclaim` is called for each before its
    /// point is reached, and `dropped` receives them, to be let go without a lock.
    pub(super) fn start(&mut self, unclaim: &dyn Fn(Claim), dropped: &mut Vec<Job>) {
        let mut at = 0;
        while at < self.queued.len() {
            let stream = self.queued[at];
            let again = self.start_one(StreamId(stream), unclaim, dropped);
            if self.lanes[stream as usize].queue.is_empty() {
                self.queued.swap_remove(at);
            } else {
                at += 1;
            }
            if again {
                // Jobs were dropped, so points were reached that an earlier stream may wait for.
                at = 0;
            }
        }
    }

    fn start_one(
        &mut self,
        stream: StreamId,
        unclaim: &dyn Fn(Claim),
        dropped: &mut Vec<Job>,
    ) -> bool {
        let lane = &self.lanes[stream.0 as usize];
        let Some(next) = lane.queue.front().filter(|_| !lane.running) else { return false };
        if lane.poisoned {
            let lane = &mut self.lanes[stream.0 as usize];
            for Queued { job, value, .. } in lane.queue.drain(..) {
                unclaim(job.claim);
                lane.done = value;
                if let Some(ticket) = job.ticket {
                    self.tickets.insert(ticket, Held::Failed);
                }
                dropped.push(job);
            }
            return true;
        }
        let waits = next.after.iter().any(|point| !self.is_reached(point).unwrap_or(true));
        if waits {
            return false;
        }
        let lane = &mut self.lanes[stream.0 as usize];
        let Some(Queued { job, value, .. }) = lane.queue.pop_front() else { return false };
        lane.running = true;
        let Job { work, claim, ticket } = job;
        let chunks = work.chunks(self.workers);
        let left = AtomicUsize::new(chunks.len().max(1));
        let (taken, panicked) = (AtomicUsize::new(0), AtomicBool::new(false));
        let urgent = lane.urgent;
        let run = Run { stream, value, work, claim, ticket, urgent, chunks, taken, left, panicked };
        self.activate(Arc::new(run));
        false
    }

    fn activate(&mut self, run: Arc<Run>) {
        if run.urgent {
            self.active.push_front(run);
        } else {
            self.active.push_back(run);
        }
    }

    /// A chunk to do. Jobs take turns, chunk by chunk; urgent ones go first.
    pub(super) fn take_chunk(&mut self) -> Option<(Arc<Run>, usize)> {
        let run = self.active.pop_front()?;
        let chunk = run.taken.fetch_add(1, Ordering::Relaxed);
        if chunk + 1 < run.chunks.len() {
            self.activate(Arc::clone(&run));
        }
        Some((run, chunk))
    }

    /// Chunks that wait for a worker, at most `most`.
    pub(super) fn open_chunks(&self, most: usize) -> usize {
        let open = |run: &Arc<Run>| {
            run.chunks.len().saturating_sub(run.taken.load(Ordering::Relaxed)).max(1)
        };
        let mut sum = 0;
        for run in &self.active {
            sum += open(run);
            if sum >= most {
                return most;
            }
        }
        sum
    }

    /// Books a job whose chunks are all done.
    pub(super) fn finish(&mut self, run: &Run) {
        let panicked = run.panicked.load(Ordering::Relaxed);
        let result = if panicked { Some(Held::Failed) } else { run.work.result() };
        if let (Some(ticket), Some(result)) = (run.ticket, result) {
            self.tickets.insert(ticket, result);
        }
        if let Some(lane) = self.lanes.get_mut(run.stream.0 as usize) {
            lane.done = run.value;
            lane.running = false;
            lane.poisoned |= panicked;
        }
    }

    /// Takes a result; `want` says whether it is of the right kind.
    pub(super) fn take(
        &mut self,
        ticket: Ticket,
        want: impl Fn(&Held) -> bool,
    ) -> Result<Held, DeviceError> {
        match self.tickets.get(&ticket.id) {
            None => Err(DeviceError::InvalidCall("no such ticket, or it was taken")),
            Some(Held::Coming) => {
                Err(DeviceError::InvalidCall("the ticket's point is not reached"))
            }
            Some(Held::Failed) => {
                self.tickets.remove(&ticket.id);
                Err(DeviceError::StreamPoisoned)
            }
            Some(held) if !want(held) => {
                Err(DeviceError::InvalidCall("the ticket is of another kind"))
            }
            Some(_) => {
                let held = self.tickets.remove(&ticket.id);
                held.ok_or(DeviceError::InvalidCall("no such ticket, or it was taken"))
            }
        }
    }
}
