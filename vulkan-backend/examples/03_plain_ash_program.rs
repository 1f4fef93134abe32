//! 03: Terrane inside a plain ash program, which keeps its own device, queue and semaphore.
//!
//! The program asks what to enable, makes its `VkDevice`, hands it over, and goes on submitting
//! its own work. A block that a frame used is free once the frame's semaphore value is reached:
//! no deletion queue. Run: `cargo run -p terrane-vulkan --example
//! 03_plain_ash_program`. Where there is no Vulkan it says so and exits with 77.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ash::vk;
use terrane_core::device::Device;
use terrane_core::point::{Points, SyncPoint};
use terrane_core::{Allocator, Request, Slice};
use terrane_vulkan::{
    HostQueue, OpenOptions, QueueLock, RawPlace, Role, VulkanDevice, WrappedTimeline, wanted,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The program's queue is used by the program and by Terrane in turns.
struct Turns(Mutex<()>);

impl QueueLock for Turns {
    fn with(&self, call: &mut dyn FnMut()) {
        let _turn = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        call();
    }
}

/// By this exit code CI knows that the machine lacks what an example shows.
fn no_vulkan(reason: &str) -> ! {
    eprintln!("skipped: {reason}");
    std::process::exit(77)
}

fn main() -> Result<()> {
    // SAFETY: plain Vulkan as in any ash program; what is made below is destroyed at the end, in
    // the right order, and outlives Terrane's device.
    unsafe {
        let Ok(entry) = ash::Entry::load() else { no_vulkan("there is no loader") };
        let app = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_2);
        let info = vk::InstanceCreateInfo::default().application_info(&app);
        let instance = match entry.create_instance(&info, None) {
            Err(vk::Result::ERROR_INCOMPATIBLE_DRIVER) => no_vulkan("there is no driver"),
            made => made?,
        };
        let Some(&physical) = instance.enumerate_physical_devices()?.first() else {
            no_vulkan("there is no device")
        };

        // What Terrane would like; the program may enable less and is told what it loses.
        let wanted = wanted(&entry, &instance, physical)?;
        for part in wanted.parts.iter() {
            println!("enable {}; without it: {}", part.name(), part.without());
        }
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
        let device = instance.create_device(physical, &features.chain(info), None)?;
        let queue = device.get_device_queue(family, 0);

        let turns = Arc::new(Turns(Mutex::new(())));
        let lock: Arc<dyn QueueLock> = Arc::clone(&turns) as _;
        let given = HostQueue { raw: queue, family, role: Role::Ordinary, lock: Some(lock) };
        let options = OpenOptions::default();
        let terrane = VulkanDevice::from_host(
            &entry,
            &instance,
            physical,
            &device,
            &[given],
            wanted.parts,
            &options,
        )?;
        println!("working on {}", terrane.info().name);
        let program = Program::new(device.clone(), queue, family, turns)?;
        program.frames(&terrane)?;
        drop(terrane);
        program.destroy();
        device.destroy_device(None);
        instance.destroy_instance(None);
    }
    Ok(())
}

/// The part of the program that knows nothing of Terrane: it submits frames.
struct Program {
    device: ash::Device,
    queue: vk::Queue,
    turns: Arc<Turns>,
    timeline: vk::Semaphore,
    pool: vk::CommandPool,
}

impl Program {
    unsafe fn new(
        device: ash::Device,
        queue: vk::Queue,
        family: u32,
        turns: Arc<Turns>,
    ) -> Result<Self> {
        let mut kind =
            vk::SemaphoreTypeCreateInfo::default().semaphore_type(vk::SemaphoreType::TIMELINE);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut kind);
        let pool = vk::CommandPoolCreateInfo::default().queue_family_index(family);
        // SAFETY: the device is alive and has timeline semaphores.
        let (timeline, pool) = unsafe {
            (device.create_semaphore(&info, None)?, device.create_command_pool(&pool, None)?)
        };
        Ok(Self { device, queue, turns, timeline, pool })
    }

    unsafe fn frames(&self, terrane: &VulkanDevice) -> Result<()> {
        let alloc = Allocator::new(Arc::new(terrane.clone()))?;
        let wrapped = WrappedTimeline { semaphore: self.timeline, owner: None };
        // SAFETY: the semaphore outlives Terrane's device.
        let stream = unsafe { terrane.wrap_timeline(&wrapped) }?;
        let last = alloc.buffer(&Request::new(1 << 20, stream).name("result"))?;
        let mut done = SyncPoint { stream, value: 0 };
        for number in 1..=4_u64 {
            // What this frame needs for the last time goes into `frame`, at the moment at which
            // the program knows it. That is all there is of a deletion queue.
            let mut frame = alloc.frame();
            let scratch = alloc.buffer(&Request::new(1 << 20, stream))?;
            let (pin, result) = (scratch.pin()?, last.pin()?);
            let (raw, target) = (terrane.raw(pin.at().place)?, terrane.raw(result.at().place)?);
            frame.keep(scratch)?;
            let waits = terrane.take_waits(stream)?;
            // SAFETY: both blocks are pinned; the scratch is freed behind this frame only.
            unsafe { self.submit([raw, target], number, &waits) }?;
            done = terrane.announce(stream, number)?;
            frame.end(&Points::one(done));
            alloc.record_use_until(last.handle(), done)?;
            println!("frame {number}: scratch at offset {}", raw.offset);
        }
        let own = terrane.create_stream(Default::default())?;
        alloc.insert_waits(own, &Points::one(done))?;
        let ticket = alloc.read(own, Slice::read(last.handle()).part(0, 4))?;
        alloc.wait(ticket.point, Duration::from_secs(10))?;
        let word = alloc.take_read(ticket)?;
        println!("the last frame wrote {word:?}");
        assert_eq!(word, 4_u32.to_le_bytes());
        drop(last);
        println!("{}", alloc.summary());
        Ok(())
    }

    /// One frame: fills the scratch with the frame's number, copies it to the result, signals it.
    unsafe fn submit(
        &self,
        [scratch, result]: [RawPlace; 2],
        frame: u64,
        waits: &[(vk::Semaphore, u64)],
    ) -> Result<()> {
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(self.pool)
            .level(vk::CommandBufferLevel::PRIMARY)
            .command_buffer_count(1);
        let (semaphores, values): (Vec<_>, Vec<_>) = waits.iter().copied().unzip();
        let stages = vec![vk::PipelineStageFlags::ALL_COMMANDS; waits.len()];
        let (signals, signal_values) = ([self.timeline], [frame]);
        let mut timelines = vk::TimelineSemaphoreSubmitInfo::default()
            .wait_semaphore_values(&values)
            .signal_semaphore_values(&signal_values);
        // SAFETY: the caller's promise about the block; the queue is used in turns.
        unsafe {
            let commands = self.device.allocate_command_buffers(&info)?;
            let begin = vk::CommandBufferBeginInfo::default();
            self.device.begin_command_buffer(commands[0], &begin)?;
            let (from, bytes) = (scratch.offset, 1 << 20);
            self.device.cmd_fill_buffer(commands[0], scratch.buffer, from, bytes, frame as u32);
            let barrier = [vk::MemoryBarrier::default()
                .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
                .dst_access_mask(vk::AccessFlags::TRANSFER_READ | vk::AccessFlags::TRANSFER_WRITE)];
            let stage = vk::PipelineStageFlags::TRANSFER;
            let none = vk::DependencyFlags::empty();
            self.device.cmd_pipeline_barrier(commands[0], stage, stage, none, &barrier, &[], &[]);
            let copy = vk::BufferCopy { src_offset: from, dst_offset: result.offset, size: bytes };
            self.device.cmd_copy_buffer(commands[0], scratch.buffer, result.buffer, &[copy]);
            self.device.cmd_pipeline_barrier(commands[0], stage, stage, none, &barrier, &[], &[]);
            self.device.end_command_buffer(commands[0])?;
            let submit = vk::SubmitInfo::default()
                .wait_semaphores(&semaphores)
                .wait_dst_stage_mask(&stages)
                .command_buffers(&commands)
                .signal_semaphores(&signals)
                .push_next(&mut timelines);
            let mut result = Ok(());
            self.turns.with(&mut || {
                result = self.device.queue_submit(self.queue, &[submit], vk::Fence::null());
            });
            Ok(result?)
        }
    }

    unsafe fn destroy(&self) {
        // SAFETY: nothing is submitted any more once the device is idle.
        unsafe {
            let _ = self.device.device_wait_idle();
            self.device.destroy_command_pool(self.pool, None);
            self.device.destroy_semaphore(self.timeline, None);
        }
    }
}
