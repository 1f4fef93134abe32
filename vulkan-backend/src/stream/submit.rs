//! Submitting: recording, the waits of a stream turned into semaphores, one `vkQueueSubmit`.

use std::any::Any;
use std::sync::Arc;

use ash::vk;
use terrane_core::device::{DeviceError, Points, StreamId, SyncPoint};

use crate::calls::Call;

use super::lane::{Kept, Kind, Lane, State};
use super::queue::Queue;
use super::slot::Slot;
use super::stamps::Stamps;
use super::timeline::Timeline;
use super::{Streams, lanes};

/// What a submission records into.
pub struct Recorder<'a> {
    pub device: &'a ash::Device,
    pub commands: vk::CommandBuffer,
    slot: &'a mut Slot,
}

impl Recorder<'_> {
    /// Keeps `thing` alive until the submission is done.
    pub fn keep(&mut self, thing: impl Any + Send) {
        self.slot.keep.push(Box::new(thing));
    }

    /// A descriptor set that lives as long as the submission.
    pub fn set(
        &mut self,
        layout: vk::DescriptorSetLayout,
        buffers: u32,
    ) -> Result<vk::DescriptorSet, DeviceError> {
        self.slot.set(layout, buffers)
    }

    /// Makes what was recorded so far visible to what is recorded from now on.
    pub fn barrier(&self) {
        barrier(self.device, self.commands, vk::PipelineStageFlags::ALL_COMMANDS);
    }
}

/// Semaphores to wait for, with their values.
#[derive(Default)]
pub struct Waits {
    pub timelines: Vec<Arc<Timeline>>,
    pub semaphores: Vec<vk::Semaphore>,
    pub values: Vec<u64>,
}

impl Waits {
    pub fn add(&mut self, lane: &Lane, value: u64) {
        self.semaphores.push(lane.timeline.raw);
        self.values.push(value);
        self.timelines.push(Arc::clone(&lane.timeline));
    }

    pub fn keep(self) -> Kept {
        self.timelines.into_iter().map(|t| Box::new(t) as Box<dyn Any + Send>).collect()
    }
}

impl Streams {
    /// Records and submits work on a stream.
    pub fn submit(
        &self,
        stream: StreamId,
        record: impl FnOnce(&mut Recorder<'_>) -> Result<(), DeviceError>,
    ) -> Result<SyncPoint, DeviceError> {
        self.submit_timed(stream, None, record)
    }

    /// As [`submit`](Self::submit), with a timestamp before and after into two queries.
    pub fn submit_timed(
        &self,
        stream: StreamId,
        stamps: Option<Arc<Stamps>>,
        record: impl FnOnce(&mut Recorder<'_>) -> Result<(), DeviceError>,
    ) -> Result<SyncPoint, DeviceError> {
        self.driver.check()?;
        let (lane, queue) = self.lane_for_work(stream)?;
        lane.reap()?;
        let mut state = lane.lock();
        if lane.is_retired() {
            return Err(DeviceError::UnknownStream);
        }
        let mut slot = state.take(|| {
            Slot::new(&self.driver, queue.family, &format!("terrane {} commands", lane.id))
        })?;
        let done = self
            .record(&mut slot, stamps.as_deref(), record)
            .and_then(|()| self.send(&lane, &queue, &mut state, &mut slot));
        match done {
            Ok(value) => {
                slot.keep.extend(stamps.map(|stamps| Box::new(stamps) as Box<dyn Any + Send>));
                state.fly(value, slot);
                Ok(lane.point(value))
            }
            Err(error) => {
                state.give_back(slot);
                Err(error)
            }
        }
    }

    fn record(
        &self,
        slot: &mut Slot,
        stamps: Option<&Stamps>,
        record: impl FnOnce(&mut Recorder<'_>) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let driver = &*self.driver;
        let commands = slot.commands;
        let once = vk::CommandBufferBeginInfo::default()
            .flags(vk::CommandBufferUsageFlags::ONE_TIME_SUBMIT);
        driver.run(Call::RecordCommands, 0, |d| {
            // SAFETY: the slot is reset and used by nobody else.
            unsafe { d.begin_command_buffer(commands, &once) }
        })?;
        let all = vk::PipelineStageFlags::ALL_COMMANDS;
        barrier(&driver.device, commands, all);
        if let Some(&Stamps { pool, .. }) = stamps {
            // SAFETY: the command buffer is being recorded; the pool has two queries.
            unsafe {
                driver.device.cmd_reset_query_pool(commands, pool, 0, 2);
                driver.device.cmd_write_timestamp(commands, all_bottom(), pool, 0);
            }
        }
        record(&mut Recorder { device: &driver.device, commands, slot })?;
        if let Some(&Stamps { pool, .. }) = stamps {
            // SAFETY: as above.
            unsafe { driver.device.cmd_write_timestamp(commands, all_bottom(), pool, 1) };
        }
        barrier(&driver.device, commands, all | vk::PipelineStageFlags::HOST);
        // SAFETY: the command buffer is being recorded.
        driver.run(Call::EndCommandBuffer, 0, |d| unsafe { d.end_command_buffer(commands) })
    }

    /// Submits the slot's commands behind the stream's waits; the value signalled.
    fn send(
        &self,
        lane: &Lane,
        queue: &Arc<Queue>,
        state: &mut State,
        slot: &mut Slot,
    ) -> Result<u64, DeviceError> {
        let mut points = state.waits.clone();
        if let Some(floor) = self.floor() {
            points.insert(floor);
        }
        let waits = self.semaphores(&points, Some(queue))?;
        let value = lane.last() + 1;
        self.queue_submit(queue, &[slot.commands], &waits, lane.timeline.raw, value)?;
        slot.waited = waits.timelines;
        state.waits = Points::NONE;
        // Whatever value is open comes before this one on the same queue.
        state.open = None;
        lane.set_last(value);
        Ok(value)
    }

    /// Signals the open value of a wrapped queue, which covers all that the host program
    /// submitted so far. Values up to `needed` are signalled after this.
    pub fn settle(&self, lane: &Lane, needed: u64) -> Result<(), DeviceError> {
        if lane.kind != Kind::HostQueue || lane.known() >= needed {
            return Ok(());
        }
        let mut state = lane.lock();
        let (Some(value), Some(queue)) = (state.open, &lane.queue) else { return Ok(()) };
        if value > needed {
            return Ok(());
        }
        self.queue_submit(queue, &[], &Waits::default(), lane.timeline.raw, value)?;
        state.open = None;
        Ok(())
    }

    /// Makes a host program's queue wait, by a submission without commands.
    pub fn wait_on_host_queue(&self, lane: &Lane, points: &Points) -> Result<(), DeviceError> {
        let Some(queue) = &lane.queue else { return Ok(()) };
        let waits = self.semaphores(points, Some(queue))?;
        if waits.semaphores.is_empty() {
            return Ok(());
        }
        lane.reap()?;
        let mut state = lane.lock();
        let value = lane.last() + 1;
        self.queue_submit(queue, &[], &waits, lane.timeline.raw, value)?;
        state.open = None;
        lane.set_last(value);
        state.keep(value, waits.keep());
        Ok(())
    }

    fn queue_submit(
        &self,
        queue: &Queue,
        commands: &[vk::CommandBuffer],
        waits: &Waits,
        signal: vk::Semaphore,
        value: u64,
    ) -> Result<(), DeviceError> {
        let (signals, values) = ([signal], [value]);
        let stages = vec![vk::PipelineStageFlags::ALL_COMMANDS; waits.semaphores.len()];
        let mut timelines = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&waits.values)
            .signal_semaphore_values(&values);
        let submit = vk::SubmitInfo::default()
            .wait_semaphores(&waits.semaphores)
            .wait_dst_stage_mask(&stages)
            .command_buffers(commands)
            .signal_semaphores(&signals)
            .push_next(&mut timelines);
        self.driver.run(Call::QueueSubmit, 0, |d| {
            let submit = |raw| {
                // SAFETY: everything the submission uses is kept until it is done: the slot keeps
                // its resources and the semaphores waited for, the stream its own semaphore. The
                // queue's lock is held, and values on a stream grow since the stream's lock is
                // held by the caller.
                unsafe { d.queue_submit(raw, &[submit], vk::Fence::null()) }
            };
            queue.locked(submit).unwrap_or(Err(vk::Result::ERROR_UNKNOWN))
        })
    }

    /// The semaphores for a set of settled points, without those that need none: reached ones, and
    /// work on the same queue, which the barrier at the start of each submission covers.
    pub fn semaphores(
        &self,
        points: &Points,
        queue: Option<&Arc<Queue>>,
    ) -> Result<Waits, DeviceError> {
        let mut waits = Waits::default();
        for point in points.iter() {
            let Some(lane) = self.lane_of(point)? else { continue };
            let same = matches!((queue, &lane.queue), (Some(a), Some(b)) if Arc::ptr_eq(a, b));
            if (same && lane.kind != Kind::Paging) || lane.known() >= point.value {
                continue;
            }
            waits.add(&lane, point.value);
        }
        Ok(waits)
    }

    fn lane_for_work(&self, stream: StreamId) -> Result<(Arc<Lane>, Arc<Queue>), DeviceError> {
        match self.entry(stream)? {
            lanes::Entry::Live(lane) => match &lane.queue {
                Some(queue) => Ok((Arc::clone(&lane), Arc::clone(queue))),
                None => Err(DeviceError::InvalidCall(
                    "a wrapped timeline semaphore takes no work: wrap its queue instead",
                )),
            },
            _ => Err(DeviceError::UnknownStream),
        }
    }
}

const fn all_bottom() -> vk::PipelineStageFlags {
    vk::PipelineStageFlags::BOTTOM_OF_PIPE
}

/// A full memory barrier between everything before and everything after, `until` included.
fn barrier(device: &ash::Device, commands: vk::CommandBuffer, until: vk::PipelineStageFlags) {
    let host = if until.contains(vk::PipelineStageFlags::HOST) {
        vk::AccessFlags::HOST_READ | vk::AccessFlags::HOST_WRITE
    } else {
        vk::AccessFlags::empty()
    };
    let all = vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE;
    let memory = [vk::MemoryBarrier::default()
        .src_access_mask(vk::AccessFlags::MEMORY_WRITE | vk::AccessFlags::MEMORY_READ)
        .dst_access_mask(all | host)];
    let from = vk::PipelineStageFlags::ALL_COMMANDS;
    // SAFETY: the command buffer is being recorded.
    unsafe {
        device.cmd_pipeline_barrier(
            commands,
            from,
            until,
            vk::DependencyFlags::empty(),
            &memory,
            &[],
            &[],
        );
    }
}
