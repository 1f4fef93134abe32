//! A Vulkan program beside Terrane that works on the host: its work on a timeline semaphore of its
//! own is over when it signals the next value.
//!
//! It signals in the suite's own thread. Where one thread signals what another one waits for,
//! Khronos' validation layer (1.3.239) at times misses it and says so.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ash::vk;
use terrane::core::device::{DeviceError, StreamId, SyncPoint};
use terrane::vulkan::{VulkanDevice, WrappedTimeline};

use super::Foreign;
use crate::busy::Held;
use crate::gate::Semaphore;

/// The program's streams.
pub(crate) struct Program {
    // Before the device: their semaphores are gone before it is.
    streams: Arc<Mutex<HashMap<StreamId, Stream>>>,
    device: VulkanDevice,
}

struct Stream {
    semaphore: Arc<Semaphore>,
    last: u64,
    works: VecDeque<Work>,
}

struct Work {
    value: u64,
    waits: Vec<(vk::Semaphore, u64)>,
    may_end: bool,
}

struct Begun {
    streams: Arc<Mutex<HashMap<StreamId, Stream>>>,
    point: SyncPoint,
}

fn lock(streams: &Mutex<HashMap<StreamId, Stream>>) -> MutexGuard<'_, HashMap<StreamId, Stream>> {
    streams.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Program {
    pub fn new(device: VulkanDevice) -> Self {
        Self { streams: Arc::default(), device }
    }

    pub(super) const fn device(&self) -> &VulkanDevice {
        &self.device
    }
}

impl Foreign for Program {
    fn wrap(&self) -> Result<StreamId, DeviceError> {
        let semaphore = Arc::new(Semaphore::new(&self.device)?);
        let owner: Arc<dyn std::any::Any + Send + Sync> = semaphore.clone();
        let wrapped = WrappedTimeline { semaphore: semaphore.raw, owner: Some(owner) };
        // SAFETY: the semaphore is of this device and is kept by its owner.
        let stream = unsafe { self.device.wrap_timeline(&wrapped) }?;
        let program = Stream { semaphore, last: 0, works: VecDeque::new() };
        lock(&self.streams).insert(stream, program);
        Ok(stream)
    }

    fn submit(&self, stream: StreamId) -> Result<Box<dyn Held>, DeviceError> {
        let waits = self.device.take_waits(stream)?;
        let value = {
            let mut streams = lock(&self.streams);
            let program = streams.get_mut(&stream).ok_or(DeviceError::UnknownStream)?;
            program.last += 1;
            let value = program.last;
            program.works.push_back(Work { value, waits, may_end: false });
            value
        };
        let point = self.device.announce(stream, value)?;
        Ok(Box::new(Begun { streams: Arc::clone(&self.streams), point }))
    }

    fn go_on(&self) {
        lock(&self.streams).values_mut().for_each(Stream::go_on);
    }
}

impl Stream {
    /// Ends, in their order, the works that may end and have waited for all that they had to.
    fn go_on(&mut self) {
        let device = &self.semaphore.device;
        // SAFETY: the semaphore lives until its stream is retired and done.
        let value = |semaphore| unsafe { device.get_semaphore_counter_value(semaphore) };
        let is_over = |&(semaphore, needed): &_| value(semaphore).is_ok_and(|now| now >= needed);
        let ends = |work: &&Work| work.may_end && work.waits.iter().all(is_over);
        while let Some(work) = self.works.front().filter(ends) {
            let semaphore = self.semaphore.raw;
            let info = vk::SemaphoreSignalInfo::default().semaphore(semaphore).value(work.value);
            // SAFETY: the semaphore is alive; nobody else signals it, and its values grow.
            let _ = unsafe { device.signal_semaphore(&info) };
            self.works.pop_front();
        }
    }
}

impl Held for Begun {
    fn point(&self) -> SyncPoint {
        self.point
    }

    fn let_go(&self) {
        let mut streams = lock(&self.streams);
        let Some(program) = streams.get_mut(&self.point.stream) else { return };
        let value = self.point.value;
        let work = program.works.iter_mut().find(|work| work.value == value);
        work.into_iter().for_each(|work| work.may_end = true);
        program.go_on();
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.let_go();
    }
}
