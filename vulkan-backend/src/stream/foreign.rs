//! Streams of work that a host program submits itself.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ash::vk;
use terrane_core::device::{DeviceError, StreamId, SyncPoint};

use super::Streams;
use super::lane::{Kind, Lane};
use super::queue::Queue;
use super::timeline::Timeline;

/// How long to wait for binds that a host program's work could overtake.
const DRAIN: Duration = Duration::from_secs(5);

/// A host program's timeline semaphore, to be wrapped as a stream.
#[derive(Clone)]
pub struct WrappedTimeline {
    /// The semaphore. It has to live until the stream is retired and all values announced are
    /// reached.
    pub semaphore: vk::Semaphore,
    /// Whatever owns the semaphore, kept for as long as it may be used; optional.
    pub owner: Option<Arc<dyn Any + Send + Sync>>,
}

impl Streams {
    /// A stream over a queue that a host program submits to.
    pub fn wrap_queue(&self, queue: Queue) -> Result<StreamId, DeviceError> {
        self.driver.check()?;
        self.foreign.store(true, Relaxed);
        self.drain_binds(DRAIN)?;
        Ok(self.add(Kind::HostQueue, Arc::new(queue))?.id)
    }

    /// A stream whose values are those of a host program's timeline semaphore.
    pub fn wrap_timeline(&self, wrapped: &WrappedTimeline) -> Result<StreamId, DeviceError> {
        self.driver.check()?;
        self.foreign.store(true, Relaxed);
        self.drain_binds(DRAIN)?;
        let owner = wrapped.owner.clone();
        let timeline = Timeline::of_host(&self.driver, wrapped.semaphore, owner);
        let reached = timeline.value()?;
        let lane =
            self.lanes.add(|id| Lane::new(id, Kind::HostTimeline, timeline, None, reached))?;
        Ok(lane.id)
    }

    /// Tells that the host program has submitted work that signals `value`.
    pub fn announce(&self, id: StreamId, value: u64) -> Result<SyncPoint, DeviceError> {
        let lane = self.live(id)?;
        if lane.kind != Kind::HostTimeline {
            return Err(DeviceError::InvalidCall("only wrapped timelines are announced to"));
        }
        lane.set_last(value);
        Ok(lane.point(value))
    }

    /// What the host program's next submission has to wait for, as semaphores and values; taken
    /// once. Keep the semaphores' streams until that submission is done.
    pub fn take_waits(&self, id: StreamId) -> Result<Vec<(vk::Semaphore, u64)>, DeviceError> {
        let lane = self.live(id)?;
        if lane.kind != Kind::HostTimeline {
            return Err(DeviceError::InvalidCall("only wrapped timelines take waits themselves"));
        }
        let points = std::mem::take(&mut lane.lock().waits);
        let waits = self.semaphores(&points, None)?;
        Ok(waits.semaphores.into_iter().zip(waits.values).collect())
    }

    /// Whether a host program submits work of its own to any stream.
    pub fn has_foreign(&self) -> bool {
        self.foreign.load(Relaxed)
    }

    /// Whether a host program submits work of its own to the stream.
    pub fn is_foreign(&self, id: StreamId) -> bool {
        let foreign = |lane: &Lane| matches!(lane.kind, Kind::HostQueue | Kind::HostTimeline);
        self.live(id).is_ok_and(|lane| foreign(&lane))
    }
}
