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
use terrane_core::point::Points;
use terrane_core::{Allocator, Request, Slice};
use terrane_vulkan::{
    HostQueue, OpenOptions, QueueLock, Role, VulkanDevice, WrappedTimeline, wanted,
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
        let mut kept = None;
        for frame in 1..=4_u64 {
            let buffer = alloc.buffer(&Request::new(1 << 20, stream))?;
            let pin = buffer.pin()?;
            let raw = terrane.raw(pin.at().place)?;
            let waits = terrane.take_waits(stream)?;
            // SAFETY: the block is pinned and freed behind this frame only.
            unsafe { self.submit(raw.buffer, raw.offset, frame, &waits) }?;
            // From here on, whatever is freed on the stream is free when this frame is done.
            let done = terrane.announce(stream, frame)?;
            drop(pin);
            println!("frame {frame}: {} bytes at offset {}", buffer.bytes(), raw.offset);
            // The buffer of the frame before goes here, without waiting.
            kept = Some((buffer, done));
        }
        let (last, done) = kept.ok_or("no frame")?;
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

    /// One frame: fills the block with the frame's number and signals it.
    unsafe fn submit(
        &self,
        buffer: vk::Buffer,
        offset: u64,
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
            self.device.cmd_fill_buffer(commands[0], buffer, offset, 1 << 20, frame as u32);
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
