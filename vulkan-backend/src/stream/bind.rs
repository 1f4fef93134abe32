//! Page binds: one `vkQueueBindSparse` a call, on a stream of their own.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::time::Duration;

use ash::vk;
use terrane_core::device::{DeviceError, Feature, Points, SyncPoint};

use crate::calls::Call;

use super::Streams;
use super::lane::Kept;
use super::submit::Waits;

/// The binds of one buffer.
pub struct Bind {
    pub buffer: vk::Buffer,
    pub pages: Vec<vk::SparseMemoryBind>,
}

impl Streams {
    /// Submits binds that take their turn behind `after` and behind all earlier binds. `keep`
    /// lives until they are done.
    pub fn bind(
        &self,
        binds: &[Bind],
        after: &[SyncPoint],
        mut keep: Kept,
    ) -> Result<SyncPoint, DeviceError> {
        self.driver.check()?;
        let lane = self.paging().ok_or(DeviceError::Unsupported(Feature::Paging))?;
        let queue = lane.queue.as_ref().ok_or(DeviceError::Unsupported(Feature::Paging))?;
        let after: Points = after.iter().copied().collect();
        for point in after.iter() {
            if let Some(other) = self.lane_of(point)? {
                self.settle(&other, point.value)?;
            }
        }
        lane.reap()?;
        let mut state = lane.lock();
        let last = lane.last();
        let mut points = after;
        points.insert(lane.point(last));
        // No barrier covers a bind, so even work on the same queue is waited for by semaphore.
        let waits = self.semaphores(&points, None)?;
        self.bind_sparse(queue, binds, &waits, lane.timeline.raw, last + 1)?;
        keep.extend(waits.keep());
        state.keep(last + 1, keep);
        lane.set_last(last + 1);
        Ok(lane.point(last + 1))
    }

    fn bind_sparse(
        &self,
        queue: &super::Queue,
        binds: &[Bind],
        waits: &Waits,
        signal: vk::Semaphore,
        value: u64,
    ) -> Result<(), DeviceError> {
        let infos: Vec<_> = binds
            .iter()
            .map(|b| vk::SparseBufferMemoryBindInfo::default().buffer(b.buffer).binds(&b.pages))
            .collect();
        let (signals, values) = ([signal], [value]);
        let mut timelines = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&waits.values)
            .signal_semaphore_values(&values);
        let info = vk::BindSparseInfo::default()
            .wait_semaphores(&waits.semaphores)
            .buffer_binds(&infos)
            .signal_semaphores(&signals)
            .push_next(&mut timelines);
        let bytes = binds.iter().flat_map(|b| &b.pages).map(|page| page.size).sum();
        self.driver.run(Call::QueueBindSparse, bytes, |d| {
            let submit = |raw| {
                // SAFETY: buffers, memory and semaphores are kept until the binds are done; the
                // queue's lock is held; the value grows since the stream's lock is held by the
                // caller.
                unsafe { d.queue_bind_sparse(raw, &[info], vk::Fence::null()) }
            };
            queue.locked(submit).unwrap_or(Err(vk::Result::ERROR_UNKNOWN))
        })
    }

    /// Waits for the binds made so far, at most `time`, and lets go of what they kept alive.
    pub fn drain_binds(&self, time: Duration) -> Result<(), DeviceError> {
        let Some(lane) = self.paging() else { return Ok(()) };
        let last = lane.last();
        if lane.refresh()? < last {
            self.wait_any(&[lane.point(last)], time)?;
            lane.refresh()?;
        }
        Ok(())
    }

    /// Makes all work submitted from now on wait for a page bind.
    pub fn raise_floor(&self, point: SyncPoint) {
        self.floor.fetch_max(point.value, AcqRel);
    }

    /// The page bind that new work has to wait for, unless it is reached.
    pub fn floor(&self) -> Option<SyncPoint> {
        let value = self.floor.load(Acquire);
        let lane: &Arc<_> = self.paging()?;
        (lane.known() < value).then(|| lane.point(value))
    }
}
