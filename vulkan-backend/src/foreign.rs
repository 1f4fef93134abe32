//! Streams of work that a host program submits itself, on a [`VulkanDevice`].

use ash::vk;
use terrane_core::device::{DeviceError, StreamId, SyncPoint};

use crate::device::VulkanDevice;
use crate::open::HostQueue;
use crate::stream::{Queue, WrappedTimeline};

impl VulkanDevice {
    /// Wraps a queue that the host program submits to as a stream.
    ///
    /// A mark on the stream covers everything submitted to the queue by then: it is an empty
    /// submission that signals a semaphore of ours, made when somebody first asks about it. Waits
    /// are empty submissions too. Both need the queue's lock; after the stream is retired the
    /// queue is not touched any more.
    ///
    /// # Safety
    /// The queue belongs to this device and is used by others only under the given lock.
    ///
    /// # Errors
    /// [`DeviceError::InvalidCall`] for a family that the device does not have.
    pub unsafe fn wrap_queue(&self, queue: &HostQueue) -> Result<StreamId, DeviceError> {
        let family = self.shared.survey.families.get(queue.family as usize);
        let flags = family.ok_or(DeviceError::InvalidCall("no such queue family"))?.queue_flags;
        let lock = queue.lock.clone();
        let queue = Queue::new(queue.raw, queue.family, flags, queue.role, lock);
        self.shared.streams.wrap_queue(queue)
    }

    /// Wraps a host program's timeline semaphore as a stream: the program's values are the
    /// stream's sync points, so that a block can be freed after `(semaphore, value)`.
    ///
    /// The program [announces](Self::announce) each value that it has submitted a signal for, and
    /// [takes the waits](Self::take_waits) that its next submission has to have. Terrane submits
    /// nothing to such a stream.
    ///
    /// # Safety
    /// The semaphore is a timeline of this device and lives as [`WrappedTimeline`] says.
    ///
    /// # Errors
    /// The driver's.
    pub unsafe fn wrap_timeline(&self, wrapped: &WrappedTimeline) -> Result<StreamId, DeviceError> {
        self.shared.streams.wrap_timeline(wrapped)
    }

    /// Tells that the program has submitted work that signals `value` of a wrapped timeline. Once
    /// a frame is enough: everything freed on the stream until then waits for this value.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`], or [`DeviceError::InvalidCall`] for other streams.
    pub fn announce(&self, stream: StreamId, value: u64) -> Result<SyncPoint, DeviceError> {
        self.shared.streams.announce(stream, value)
    }

    /// The semaphores and values that the program's next submission on a wrapped timeline has to
    /// wait for; each is given once.
    ///
    /// # Errors
    /// As [`announce`](Self::announce).
    pub fn take_waits(&self, stream: StreamId) -> Result<Vec<(vk::Semaphore, u64)>, DeviceError> {
        self.shared.streams.take_waits(stream)
    }

    /// The semaphore and value of a point, for a program's own submissions to wait for; `None`
    /// when the point is reached. The semaphore lives until the stream is retired and done.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`].
    pub fn semaphore(&self, point: SyncPoint) -> Result<Option<(vk::Semaphore, u64)>, DeviceError> {
        let streams = &self.shared.streams;
        let Some(lane) = streams.lane_of(point)? else { return Ok(None) };
        streams.settle(&lane, point.value)?;
        let value = point.value;
        Ok((lane.known() < value).then_some((lane.timeline.raw, value)))
    }
}
