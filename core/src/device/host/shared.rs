//! The state that the device and its workers share, and the workers' loop.
//!
//! Lock order: `streams`, then `tables`; `kernels` alone. No closure of the user's is run or
//! dropped while one of them is held.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::HostKernel;
use super::os::Birth;
use super::span::Span;
use super::streams::{Run, Streams};
use super::tables::{Claim, Remains, Tables};
use super::work::{Job, Work};
use crate::device::{Caps, DeviceError, DeviceInfo, Place, StreamId, SyncPoint, Ticket};

pub(super) struct Shared {
    pub(super) info: DeviceInfo,
    pub(super) caps: Caps,
    pub(super) started: Instant,
    birth: Birth,
    streams: Mutex<Streams>,
    tables: Mutex<Tables>,
    pub(super) kernels: Mutex<HashMap<u64, HostKernel>>,
    pub(super) dispatches: AtomicU64,
    /// Signalled when there are chunks to do, or to stop.
    work: Condvar,
    /// Signalled when a point was reached that somebody may wait for.
    reached: Condvar,
}

/// A lock that a panic elsewhere can not take away: all states in between are consistent.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(
        info: DeviceInfo,
        caps: Caps,
        birth: Birth,
        tables: Tables,
        workers: usize,
    ) -> Self {
        Self {
            info,
            caps,
            started: Instant::now(),
            birth,
            streams: Mutex::new(Streams::new(workers)),
            tables: Mutex::new(tables),
            kernels: Mutex::default(),
            dispatches: AtomicU64::new(0),
            work: Condvar::new(),
            reached: Condvar::new(),
        }
    }

    pub(super) fn same_process(&self) -> bool {
        self.birth.same_process()
    }

    fn alive(&self) -> Result<(), DeviceError> {
        if self.same_process() { Ok(()) } else { Err(DeviceError::AfterFork) }
    }

    /// The streams. In a forked child the lock may be held by a thread that is not there.
    pub(super) fn streams(&self) -> Result<MutexGuard<'_, Streams>, DeviceError> {
        self.alive()?;
        Ok(lock(&self.streams))
    }

    pub(super) fn tables(&self) -> Result<MutexGuard<'_, Tables>, DeviceError> {
        self.alive()?;
        Ok(lock(&self.tables))
    }

    pub(super) fn kernels(&self) -> Result<MutexGuard<'_, HashMap<u64, HostKernel>>, DeviceError> {
        self.alive()?;
        Ok(lock(&self.kernels))
    }

    /// Claims the ranges and queues the work that is made of their spans.
    pub(super) fn submit(
        &self,
        stream: StreamId,
        ranges: impl IntoIterator<Item = (Place, u64)>,
        work: impl FnOnce(Vec<Span>) -> Result<Work, DeviceError>,
    ) -> Result<SyncPoint, DeviceError> {
        self.submit_with(stream, None, ranges, work)
    }

    /// As [`submit`](Self::submit), with a result to be taken later.
    pub(super) fn submit_ticket(
        &self,
        stream: StreamId,
        ranges: impl IntoIterator<Item = (Place, u64)>,
        work: impl FnOnce(Vec<Span>) -> Result<Work, DeviceError>,
    ) -> Result<Ticket, DeviceError> {
        let id = self.streams()?.take_ticket();
        let point = self.submit_with(stream, Some(id), ranges, work)?;
        Ok(Ticket { id, point })
    }

    fn submit_with(
        &self,
        stream: StreamId,
        ticket: Option<u64>,
        ranges: impl IntoIterator<Item = (Place, u64)>,
        work: impl FnOnce(Vec<Span>) -> Result<Work, DeviceError>,
    ) -> Result<SyncPoint, DeviceError> {
        self.streams()?.ready(stream)?;
        let (claim, spans) = self.tables()?.claim(ranges)?;
        let queued = work(spans).and_then(|work| {
            let mut streams = self.streams()?;
            let point = streams.submit(stream, Job { work, claim, ticket })?;
            let mut dropped = Vec::new();
            streams.start(&|claim| self.unclaim(claim), &mut dropped);
            self.wake_workers(&streams, 0);
            drop(streams);
            Ok(point)
        });
        if queued.is_err() {
            self.unclaim(claim);
        }
        queued
    }

    /// Wakes workers for all open chunks but `taken`.
    fn wake_workers(&self, streams: &Streams, taken: usize) {
        if streams.idle == 0 {
            return;
        }
        match streams.open_chunks(streams.idle + taken).saturating_sub(taken) {
            0 => {}
            1 => self.work.notify_one(),
            _ => self.work.notify_all(),
        }
    }

    pub(super) fn unclaim(&self, claim: Claim) {
        if self.same_process() {
            lock(&self.tables).unclaim(claim);
        }
    }

    /// Gives memory back to the system after it left the tables.
    pub(super) fn give_back(&self, remains: Remains) -> Result<(), DeviceError> {
        let bytes = match remains {
            Remains::Region { region, bytes } => {
                drop(region);
                bytes
            }
            Remains::Range { offset, bytes } => {
                self.tables()?.punch(offset, bytes)?;
                bytes
            }
        };
        self.tables()?.given_back(bytes);
        Ok(())
    }

    pub(super) fn wait_any(
        &self,
        points: &[SyncPoint],
        timeout: Duration,
    ) -> Result<bool, DeviceError> {
        let started = Instant::now();
        let mut streams = self.streams()?;
        loop {
            for &point in points {
                if streams.is_reached(point)? {
                    return Ok(true);
                }
            }
            let left = timeout.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            streams.waiting += 1;
            let woken = self.reached.wait_timeout(streams, left);
            streams = woken.unwrap_or_else(PoisonError::into_inner).0;
            streams.waiting -= 1;
        }
    }

    /// What a worker does until the device is dropped.
    pub(super) fn serve(&self) {
        let mut streams = lock(&self.streams);
        while !streams.stop {
            let Some((run, chunk)) = streams.take_chunk() else {
                streams.idle += 1;
                streams = self.work.wait(streams).unwrap_or_else(PoisonError::into_inner);
                streams.idle -= 1;
                continue;
            };
            drop(streams);
            let dropped = if run.chunk(chunk) { self.finish(&run) } else { Vec::new() };
            drop_quietly((run, dropped));
            streams = lock(&self.streams);
        }
    }

    /// Books a job and starts what waited for it; returns jobs to be let go.
    fn finish(&self, run: &Run) -> Vec<Job> {
        // The claim goes before the point is reached: who sees the point may release at once.
        self.unclaim(run.claim());
        let mut dropped = Vec::new();
        let mut streams = lock(&self.streams);
        streams.finish(run);
        streams.start(&|claim| self.unclaim(claim), &mut dropped);
        // One chunk is for the worker that calls this.
        self.wake_workers(&streams, 1);
        if streams.waiting > 0 {
            self.reached.notify_all();
        }
        dropped
    }

    /// Lets workers end after the chunk that they are at.
    pub(super) fn stop(&self) {
        lock(&self.streams).stop = true;
        self.work.notify_all();
    }
}

/// Lets go of what a user's closure captured; a panic in there must not end a worker.
fn drop_quietly<T>(value: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
}
