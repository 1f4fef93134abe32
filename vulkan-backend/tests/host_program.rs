//! Terrane inside a program that has its own `VkDevice`, queue and timeline semaphore.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a failed test panics

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ash::vk;
use common::{Bench, at, bench, quick};
use terrane_core::device::{Device, DeviceError, MemoryKind, SyncPoint};
use terrane_core::point::Points;
use terrane_core::{Allocator, Config, Limit, Request, Wait};
use terrane_vulkan::{
    HostQueue, OpenError, OpenOptions, Part, QueueLock, Role, VulkanDevice, Wanted,
    WrappedTimeline, wanted,
};

/// The program's lock over its queue.
struct Turns(Mutex<()>);

impl QueueLock for Turns {
    fn with(&self, call: &mut dyn FnMut()) {
        let _turn = self.0.lock().unwrap();
        call();
    }
}

/// A program with a device of its own. Its instance is borrowed from a device with validation.
struct Program {
    base: Bench,
    device: ash::Device,
    queue: vk::Queue,
    family: u32,
    turns: Arc<Turns>,
    wanted: Wanted,
}

impl Program {
    fn start() -> Option<Self> {
        let base = bench()?;
        // SAFETY: the loader is trusted.
        let entry = unsafe { ash::Entry::load() }.unwrap();
        // SAFETY: the instance and the physical device are alive as long as `base`.
        let wanted = unsafe { wanted(&entry, base.ash_instance(), base.physical()) }.unwrap();
        let family = wanted.queues[0].family;
        let priorities = [1.0];
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(family)
            .queue_priorities(&priorities)];
        let names: Vec<_> = wanted.extensions().iter().map(|name| name.as_ptr()).collect();
        let mut features = wanted.features();
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&names);
        let info = features.chain(info);
        // SAFETY: everything named is there: `wanted` says so.
        let device = unsafe { base.ash_instance().create_device(base.physical(), &info, None) };
        let device = device.unwrap();
        // SAFETY: the queue was made with the device.
        let queue = unsafe { device.get_device_queue(family, 0) };
        Some(Self { base, device, queue, family, turns: Arc::new(Turns(Mutex::new(()))), wanted })
    }

    fn queue(&self) -> HostQueue {
        let lock: Arc<dyn QueueLock> = Arc::clone(&self.turns) as _;
        HostQueue { raw: self.queue, family: self.family, role: Role::Ordinary, lock: Some(lock) }
    }

    fn attach(
        &self,
        queues: &[HostQueue],
        options: &OpenOptions,
    ) -> Result<VulkanDevice, OpenError> {
        let (instance, physical) = (self.base.ash_instance(), self.base.physical());
        let enabled = self.wanted.parts;
        // SAFETY: the handles belong together and live until the test's end.
        unsafe {
            let entry = ash::Entry::load().unwrap();
            VulkanDevice::from_host(
                &entry,
                instance,
                physical,
                &self.device,
                queues,
                enabled,
                options,
            )
        }
    }

    fn timeline(&self) -> vk::Semaphore {
        let mut kind =
            vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        // SAFETY: timeline semaphores are enabled.
        unsafe { self.device.create_semaphore(&info, None) }.unwrap()
    }

    fn signal(&self, semaphore: vk::Semaphore, value: u64) {
        let info = vk::SemaphoreSignalInfo::default().semaphore(semaphore).value(value);
        // SAFETY: the semaphore is alive and its value grows.
        unsafe { self.device.signal_semaphore(&info) }.unwrap();
    }

    /// An empty submission of the program's own that waits for a value on the device.
    fn submit_wait(&self, semaphore: vk::Semaphore, value: u64) {
        let (semaphores, values) = ([semaphore], [value]);
        let stages = [vk::PipelineStageFlags::ALL_COMMANDS];
        let mut timelines =
            vk::TimelineSemaphoreSubmitInfo::default().wait_semaphore_values(&values);
        let info = vk::SubmitInfo::default()
            .wait_semaphores(&semaphores)
            .wait_dst_stage_mask(&stages)
            .push_next(&mut timelines);
        self.turns.with(&mut || {
            // SAFETY: the queue is used in turns.
            unsafe { self.device.queue_submit(self.queue, &[info], vk::Fence::null()) }.unwrap();
        });
    }

    /// Waits for what it has submitted, some of which may still refer to semaphores of ours.
    fn settle(&self) {
        // SAFETY: the device is alive, and nobody else submits meanwhile.
        unsafe { self.device.device_wait_idle() }.unwrap();
    }

    fn stop(self, semaphores: &[vk::Semaphore]) {
        // SAFETY: everything made from the device is gone but these.
        unsafe {
            self.device.device_wait_idle().unwrap();
            semaphores.iter().for_each(|s| self.device.destroy_semaphore(*s, None));
            self.device.destroy_device(None);
        }
    }
}

fn reached(device: &VulkanDevice, point: SyncPoint, time: Duration) -> bool {
    device.wait_any(&[point], time).unwrap()
}

#[test]
fn what_to_enable_is_data_with_what_is_lost_without_it() {
    let Some(program) = Program::start() else { return };
    let wanted = &program.wanted;
    assert!(wanted.parts.has(Part::TimelineSemaphore));
    assert!(wanted.lost(wanted.parts).is_empty());
    let lost = wanted.lost(wanted.parts.without(Part::BufferDeviceAddress));
    assert_eq!(lost.iter().map(|l| l.0).collect::<Vec<_>>(), [Part::BufferDeviceAddress]);
    assert!(wanted.queues.iter().any(|q| q.role == Role::Ordinary));
    assert_eq!(program.attach(&[], &quick()).err(), Some(OpenError::NoQueue));
    program.stop(&[]);
}

#[test]
fn the_device_of_a_host_program_works_like_our_own_and_survives_us() {
    let Some(program) = Program::start() else { return };
    let device = Bench::over(program.attach(&[program.queue()], &quick()).unwrap());
    let stream = device.stream();
    let plain = device.plain(MemoryKind::Device, 1 << 20);
    device.write(stream, at(plain.space, 64), b"inside a host").unwrap();
    assert_eq!(device.fetch(stream, at(plain.space, 64), 13), b"inside a host");
    assert_eq!(device.paging().is_some(), program.base.paging().is_some());
    drop(device);
    program.stop(&[]);
}

#[test]
fn a_block_used_by_a_host_program_is_free_after_its_semaphores_value() {
    let Some(program) = Program::start() else { return };
    let device = program.attach(&[program.queue()], &quick()).unwrap();
    let semaphore = program.timeline();
    let wrapped = WrappedTimeline { semaphore, owner: None };
    // SAFETY: the semaphore lives until the test's end.
    let stream = unsafe { device.wrap_timeline(&wrapped) }.unwrap();
    assert!(device.is_foreign(stream));
    let frame = device.announce(stream, 5).unwrap();
    assert_eq!(device.mark(stream).unwrap(), frame);
    assert!(!reached(&device, frame, Duration::from_millis(5)));
    program.signal(semaphore, 4);
    assert!(!reached(&device, frame, Duration::from_millis(5)));
    assert_eq!(device.reached(stream).unwrap(), 4);
    program.signal(semaphore, 5);
    assert!(reached(&device, frame, Duration::from_secs(5)));

    // Nothing is submitted by us: our waits come as data for the program's next submission.
    let refused = device.fill(stream, at(terrane_core::device::SpaceId(0), 0), 4, 0);
    assert!(matches!(refused, Err(DeviceError::InvalidCall(_))));
    let bench = Bench::over(device.clone());
    let (own, plain) = (bench.stream(), bench.plain(MemoryKind::Device, 1 << 20));
    let point = device.fill(own, at(plain.space, 0), 1 << 20, 3).unwrap();
    device.wait_on_stream(stream, &[point]).unwrap();
    for (semaphore, value) in device.take_waits(stream).unwrap() {
        program.submit_wait(semaphore, value);
    }
    assert!(device.take_waits(stream).unwrap().is_empty());
    assert!(reached(&device, point, Duration::from_secs(5)));
    assert_eq!(device.semaphore(point).unwrap(), None);
    device.retire_stream(stream).unwrap();
    program.settle();
    drop((bench, device));
    program.stop(&[semaphore]);
}

#[test]
fn the_blocks_of_a_frame_are_free_after_its_value_and_there_is_no_deletion_queue() {
    let Some(program) = Program::start() else { return };
    let device = program.attach(&[program.queue()], &quick()).unwrap();
    let semaphore = program.timeline();
    let wrapped = WrappedTimeline { semaphore, owner: None };
    // SAFETY: the semaphore lives until the test's end.
    let stream = unsafe { device.wrap_timeline(&wrapped) }.unwrap();
    let config = Config::for_device(device.caps()).limit(Limit::Bytes(64 << 20));
    let alloc = Allocator::with_config(Arc::new(device.clone()), config).unwrap();
    let other = device.create_stream(Default::default()).unwrap();
    let whole = Request::new(40 << 20, other).wait(Wait::Never);
    device.announce(stream, 1).unwrap();
    program.signal(semaphore, 1);
    for value in 2..=4 {
        let block = alloc.buffer(&Request::new(40 << 20, stream)).unwrap();
        let mut frame = alloc.frame();
        frame.keep(block).unwrap();
        // The frame before is over; this one is not submitted yet.
        assert!(alloc.buffer(&whole).is_err(), "taken while the frame is put together");
        frame.end(&Points::one(device.announce(stream, value).unwrap()));
        assert!(alloc.buffer(&whole).is_err(), "taken before the frame is over");
        program.signal(semaphore, value);
        drop(alloc.buffer(&whole).unwrap());
    }
    alloc.check().unwrap();
    drop(alloc);
    device.retire_stream(stream).unwrap();
    drop(device);
    program.stop(&[semaphore]);
}

#[test]
fn a_mark_on_a_wrapped_queue_covers_what_the_program_submitted_before() {
    let Some(program) = Program::start() else { return };
    let device = program.attach(&[program.queue()], &quick()).unwrap();
    // SAFETY: the queue is used in turns.
    let stream = unsafe { device.wrap_queue(&program.queue()) }.unwrap();
    let gate = program.timeline();
    let calls =
        |name: &str| device.calls().iter().find(|c| c.call.name() == name).map_or(0, |c| c.count);
    program.submit_wait(gate, 1);
    let before = calls("vkQueueSubmit");
    let mark = device.mark(stream).unwrap();
    assert_eq!(device.mark(stream).unwrap(), mark, "nobody has asked yet: one value is enough");
    assert_eq!(calls("vkQueueSubmit"), before, "a mark makes no driver call");
    assert!(!reached(&device, mark, Duration::from_millis(20)), "the program's work waits");
    program.signal(gate, 1);
    assert!(reached(&device, mark, Duration::from_secs(5)));

    // Waits are put into the program's queue, and our own work on it is ordered with its work.
    let bench = Bench::over(device.clone());
    let (own, plain) = (bench.stream(), bench.plain(MemoryKind::Device, 1 << 20));
    let point = device.fill(own, at(plain.space, 0), 1 << 20, 9).unwrap();
    device.wait_on_stream(stream, &[point]).unwrap();
    assert_eq!(bench.fetch_words(stream, at(plain.space, 4096), 1), [9]);
    let last = device.mark(stream).unwrap();
    device.retire_stream(stream).unwrap();
    assert!(reached(&device, last, Duration::from_secs(5)));
    drop((bench, device));
    program.stop(&[gate]);
}
