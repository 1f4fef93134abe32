//! Marks, questions and waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ash::vk;
use terrane_core::device::{DeviceError, Points, StreamId, SyncPoint};

use crate::calls::Call;

use super::Streams;
use super::lane::{Kind, Lane};
use super::lanes::Entry;
use super::submit::Waits;

impl Streams {
    /// A point that covers all work submitted so far; no driver call.
    pub fn mark(&self, id: StreamId) -> Result<SyncPoint, DeviceError> {
        self.driver.check()?;
        let lane = self.live(id)?;
        if lane.kind != Kind::HostQueue {
            return Ok(lane.point(lane.last()));
        }
        let mut state = lane.lock();
        let value = state.open.unwrap_or_else(|| lane.last() + 1);
        state.open = Some(value);
        lane.set_last(value);
        Ok(lane.point(value))
    }

    /// The largest value known to be reached.
    pub fn reached(&self, id: StreamId) -> Result<u64, DeviceError> {
        self.driver.check()?;
        match self.lanes.get(id)? {
            Entry::Done(value) => Ok(value),
            Entry::Live(lane) => {
                self.settle(&lane, u64::MAX)?;
                lane.refresh()
            }
            Entry::Retired(lane) => {
                let value = lane.refresh()?;
                if lane.is_done() {
                    self.lanes.set(id, Entry::Done(value));
                }
                Ok(value)
            }
        }
    }

    /// Makes later work on the stream start after `points`.
    pub fn wait_on_stream(&self, id: StreamId, points: &[SyncPoint]) -> Result<(), DeviceError> {
        self.driver.check()?;
        let lane = self.live(id)?;
        let mut waits = Points::NONE;
        for &point in points {
            if point.stream == id {
                continue;
            }
            let Some(other) = self.lane_of(point)? else { continue };
            if other.known() < point.value {
                self.settle(&other, point.value)?;
                waits.insert(point);
            }
        }
        if lane.kind == Kind::HostQueue {
            return self.wait_on_host_queue(&lane, &waits);
        }
        lane.lock().waits.merge(&waits);
        Ok(())
    }

    /// Waits on the host until one of `points` is reached.
    pub fn wait_any(&self, points: &[SyncPoint], timeout: Duration) -> Result<bool, DeviceError> {
        self.driver.check()?;
        if points.is_empty() {
            std::thread::sleep(timeout);
            return Ok(false);
        }
        let mut waits = Waits::default();
        let mut lanes: Vec<Arc<Lane>> = Vec::new();
        for &point in points {
            let Some(lane) = self.lane_of(point)? else { return Ok(true) };
            self.settle(&lane, point.value)?;
            if lane.known() >= point.value {
                return Ok(true);
            }
            waits.semaphores.push(lane.timeline.raw);
            waits.values.push(point.value);
            waits.timelines.push(Arc::clone(&lane.timeline));
            lanes.push(lane);
        }
        if !self.wait_for(&waits, vk::SemaphoreWaitFlags::ANY, timeout)? {
            return Ok(false);
        }
        for lane in &lanes {
            lane.refresh()?;
        }
        Ok(true)
    }

    fn wait_for(
        &self,
        waits: &Waits,
        flags: vk::SemaphoreWaitFlags,
        timeout: Duration,
    ) -> Result<bool, DeviceError> {
        let info = vk::SemaphoreWaitInfo::default()
            .flags(flags)
            .semaphores(&waits.semaphores)
            .values(&waits.values);
        let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: `waits` keeps the semaphores alive through the call.
        let result = self
            .driver
            .try_run(Call::WaitSemaphores, 0, |d| unsafe { d.wait_semaphores(&info, timeout) });
        match result {
            Ok(()) => Ok(true),
            Err(vk::Result::TIMEOUT) => Ok(false),
            Err(other) => Err(crate::error::meaning(Call::WaitSemaphores.name(), other, 0)),
        }
    }

    /// Ends a stream. Its work still completes.
    pub fn retire(&self, id: StreamId) -> Result<(), DeviceError> {
        if self.driver.is_lost() {
            if let Ok(lane) = self.live(id) {
                self.lanes.set(id, Entry::Done(lane.last()));
            }
            return Ok(());
        }
        let lane = self.live(id)?;
        self.settle(&lane, u64::MAX)?;
        {
            // With the lock held no submission is half-way.
            let _state = lane.lock();
            lane.retire();
        }
        let done = lane.is_done();
        self.lanes.set(id, if done { Entry::Done(lane.last()) } else { Entry::Retired(lane) });
        Ok(())
    }

    /// Waits until all our work is done, before everything is destroyed. Host programs' timelines
    /// are theirs to wait for.
    pub fn finish(&self) {
        let start = Instant::now();
        for lane in self.lanes.all() {
            if self.driver.is_lost() {
                return;
            }
            if lane.kind == Kind::HostTimeline || lane.is_done() {
                continue;
            }
            if self.settle(&lane, u64::MAX).is_err() {
                continue;
            }
            let waits = Waits {
                timelines: vec![Arc::clone(&lane.timeline)],
                semaphores: vec![lane.timeline.raw],
                values: vec![lane.last()],
            };
            while matches!(
                self.wait_for(&waits, vk::SemaphoreWaitFlags::empty(), Duration::from_secs(1)),
                Ok(false)
            ) {
                tracing::warn!(stream = lane.id.0, waited = ?start.elapsed(), "work still runs");
            }
        }
    }
}
