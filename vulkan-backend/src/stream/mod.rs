//! Streams: timeline semaphores over queues.

mod bind;
mod foreign;
mod lane;
mod lanes;
mod queue;
mod slot;
mod stamps;
mod submit;
mod sync;
mod timeline;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use terrane_core::device::{DeviceError, StreamId, StreamSpec, SyncPoint};

use crate::driver::Driver;
use crate::open::Role;

pub use bind::Bind;
pub use foreign::WrappedTimeline;
pub use lane::{Kept, Kind, Lane};
pub use lanes::Entry;
pub use queue::{Queue, QueueLock};
pub use stamps::Stamps;
pub use submit::Recorder;
pub use timeline::Timeline;

/// All queues and streams of a device.
pub struct Streams {
    driver: Arc<Driver>,
    queues: Vec<Arc<Queue>>,
    next: AtomicUsize,
    lanes: lanes::Lanes,
    paging: Option<Arc<Lane>>,
    /// The page bind that all work submitted from now on has to wait for.
    floor: AtomicU64,
    /// Whether a host program's queue or timeline was ever wrapped.
    foreign: AtomicBool,
}

impl Streams {
    /// Over `queues`, the first of which can compute. With `paging` there is a stream for binds.
    pub fn new(
        driver: Arc<Driver>,
        queues: Vec<Arc<Queue>>,
        paging: bool,
    ) -> Result<Self, DeviceError> {
        let mut streams = Self {
            driver,
            queues,
            next: AtomicUsize::new(0),
            lanes: lanes::Lanes::default(),
            paging: None,
            floor: AtomicU64::new(0),
            foreign: AtomicBool::new(false),
        };
        if let Some(queue) = streams.binding_queue().filter(|_| paging) {
            let queue = Arc::clone(queue);
            streams.paging = Some(streams.add(Kind::Paging, queue)?);
        }
        Ok(streams)
    }

    /// The queue that binds pages: one kept for that, else any that can.
    pub fn binding_queue(&self) -> Option<&Arc<Queue>> {
        let can = || self.queues.iter().filter(|q| q.can_bind());
        can().find(|q| q.role == Role::Paging).or_else(|| can().next())
    }

    /// The stream of page binds.
    pub fn paging(&self) -> Option<&Arc<Lane>> {
        self.paging.as_ref()
    }

    /// Makes a stream of our own.
    pub fn create(&self, spec: StreamSpec) -> Result<StreamId, DeviceError> {
        self.driver.check()?;
        let queue = self.pick(spec).ok_or(DeviceError::InvalidCall("the device has no queue"))?;
        Ok(self.add(Kind::Own, queue)?.id)
    }

    fn add(&self, kind: Kind, queue: Arc<Queue>) -> Result<Arc<Lane>, DeviceError> {
        let timeline = Timeline::new(&self.driver)?;
        let lane = self.lanes.add(|id| Lane::new(id, kind, timeline, Some(queue), 0))?;
        self.driver.name(lane.timeline.raw, &format!("terrane {}", lane.id));
        Ok(lane)
    }

    fn pick(&self, spec: StreamSpec) -> Option<Arc<Queue>> {
        let of = |role: Role| self.queues.iter().find(|q| q.role == role);
        let special = if spec.copy_only {
            of(Role::CopyOnly)
        } else if spec.high_priority {
            of(Role::HighPriority)
        } else {
            None
        };
        if let Some(queue) = special {
            return Some(Arc::clone(queue));
        }
        let mut ordinary: Vec<_> =
            self.queues.iter().filter(|q| q.role == Role::Ordinary).collect();
        if ordinary.is_empty() {
            ordinary = self.queues.iter().filter(|q| q.can_compute()).collect();
        }
        let turn = self.next.fetch_add(1, Relaxed);
        ordinary.get(turn % ordinary.len().max(1)).map(|q| Arc::clone(q))
    }

    /// The stream's entry.
    pub fn entry(&self, id: StreamId) -> Result<Entry, DeviceError> {
        self.lanes.get(id)
    }

    /// The stream if it takes work.
    pub fn live(&self, id: StreamId) -> Result<Arc<Lane>, DeviceError> {
        match self.lanes.get(id)? {
            Entry::Live(lane) => Ok(lane),
            _ => Err(DeviceError::UnknownStream),
        }
    }

    /// The stream of a point, or `None` when the point is reached for certain.
    pub fn lane_of(&self, point: SyncPoint) -> Result<Option<Arc<Lane>>, DeviceError> {
        match self.lanes.get(point.stream)? {
            Entry::Live(lane) | Entry::Retired(lane) => Ok(Some(lane)),
            Entry::Done(_) => Ok(None),
        }
    }

    /// Whether kernels can run on the stream.
    pub fn can_compute(&self, id: StreamId) -> bool {
        let Ok(Entry::Live(lane)) = self.lanes.get(id) else { return false };
        lane.queue.as_ref().is_some_and(|queue| queue.can_compute())
    }

    /// All queue families in use.
    pub fn families(queues: &[Arc<Queue>]) -> Vec<u32> {
        let mut families: Vec<u32> = queues.iter().map(|q| q.family).collect();
        families.sort_unstable();
        families.dedup();
        families
    }
}
