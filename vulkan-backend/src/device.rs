//! [`VulkanDevice`]: the contract's methods, each handed to the part that does it.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ash::vk;
use terrane_core::device::{
    Caps, Compute, CopyOp, Device, DeviceError, DeviceInfo, HeapId, HeapUse, HostAccess, HostView,
    Paging, Place, Plain, PlainSpec, SpaceId, StreamId, StreamSpec, SyncPoint, Ticket, View,
};

use crate::calibrate;
use crate::calls::CallStat;
use crate::driver::Driver;
use crate::error::OpenError;
use crate::memory::buffers::Buffers;
use crate::memory::fixed::Fixed;
use crate::memory::object::Objects;
use crate::memory::paging::PageStore;
use crate::memory::space::Spaces;
use crate::memory::staging::{Chunk, Staging, Way};
use crate::memory::views::{self, Views};
use crate::memory::{budget::Budget, heaps, host, plain};
use crate::open::caps::{Probe, caps};
use crate::open::{OpenOptions, Survey, Tuning};
use crate::stream::{Queue, Stamps, Streams};
use crate::work::builtin::PendingReport;
use crate::work::kernels::Kernels;
use crate::work::pipeline::PipelineCache;
use crate::work::tickets::Tickets;
use crate::work::timed::{Timed, Timing};
use crate::work::transfer;

/// A Vulkan device. Cheap to clone; the `VkDevice` lives until the last clone is dropped.
#[derive(Clone)]
pub struct VulkanDevice {
    pub(crate) shared: Arc<Shared>,
}

/// What all parts of a device share. Fields are dropped in this order.
pub struct Shared {
    pub info: DeviceInfo,
    pub caps: Caps,
    pub start: Instant,
    pub survey: Survey,
    pub tuning: Tuning,
    pub reads: Tickets<(Vec<Chunk>, u64)>,
    pub stamps: Tickets<Arc<Stamps>>,
    pub reports: Tickets<PendingReport>,
    pub kernels: Kernels,
    pub streams: Streams,
    pub views: Views,
    pub spaces: Spaces,
    pub pages: PageStore,
    pub objects: Arc<Objects>,
    pub staging: Arc<Staging>,
    pub fixed: Arc<Fixed>,
    pub buffers: Arc<Buffers>,
    pub driver: Arc<Driver>,
}

impl VulkanDevice {
    /// Puts a device together over a driver and its queues.
    pub(crate) fn build(
        driver: Arc<Driver>,
        survey: Survey,
        queues: Vec<Arc<Queue>>,
        options: &OpenOptions,
    ) -> Result<Self, OpenError> {
        if !queues.iter().any(|q| q.can_compute()) {
            return Err(OpenError::NoQueue);
        }
        let families = Streams::families(&queues);
        let buffers = Arc::new(Buffers::new(Arc::clone(&driver), families, options.buffer_usage));
        let probe = Probe::of(&driver, &buffers)?;
        let binds = driver.enabled.sparse && queues.iter().any(|q| q.can_bind());
        let caps = caps(&survey, &driver, &probe, buffers.usage, options.spill_to_host, binds)?;
        let fixed = Arc::new(Fixed::new(&driver, survey.memory)?);
        let staging = Arc::new(Staging::new(
            Arc::clone(&fixed),
            Arc::clone(&buffers),
            &survey.memory,
            probe.plain.types,
        ));
        let uuid = survey.pipeline_uuid;
        let cache = PipelineCache::new(&driver, &options.pipeline_cache, &uuid)?;
        let int64 = driver.enabled.int64;
        let shared = Shared {
            info: survey.info.clone(),
            start: Instant::now(),
            reads: Tickets::default(),
            stamps: Tickets::default(),
            reports: Tickets::default(),
            kernels: Kernels::new(&driver, cache, int64),
            streams: Streams::new(Arc::clone(&driver), queues, caps.paging.is_some())?,
            views: Views::default(),
            spaces: Spaces::default(),
            pages: PageStore::default(),
            objects: Arc::new(Objects::new(Arc::clone(&driver), caps.max_memory_objects)),
            caps,
            survey,
            tuning: options.tuning,
            staging,
            fixed,
            buffers,
            driver,
        };
        let mut device = Self { shared: Arc::new(shared) };
        if !options.skip_calibration {
            device.calibrate();
        }
        Ok(device)
    }

    fn calibrate(&mut self) {
        match calibrate::measure(self) {
            Ok(measured) => {
                if let Some(shared) = Arc::get_mut(&mut self.shared) {
                    shared.caps.costs = measured.costs;
                    shared.caps.prefer_gather = measured.prefer_gather;
                }
            }
            Err(error) => tracing::warn!(%error, "the device's costs are not known"),
        }
    }

    /// The driver's functions called so far, with their total and longest time.
    pub fn calls(&self) -> Vec<CallStat> {
        self.shared.driver.calls.stats()
    }

    /// Memory objects alive, segments and pages; staging and images are not among them.
    pub fn memory_objects(&self) -> u64 {
        self.shared.objects.alive()
    }

    /// The classes whose memory type is among `memory_type_bits`, for
    /// [`Request::classes`](terrane_core::Request::classes): what
    /// `vkGetBufferMemoryRequirements` or an API beside Vulkan answered goes in as it is.
    pub fn classes_of_types(&self, memory_type_bits: u32) -> u32 {
        let classes = (0_u32..).zip(&self.shared.caps.classes);
        let fits = classes.filter(|(_, class)| memory_type_bits >> class.native & 1 == 1);
        fits.fold(0, |mask, (id, _)| mask | 1 << id)
    }

    /// What the validation layer said so far; empty without it.
    pub fn validation_messages(&self) -> Vec<String> {
        self.shared.driver.instance.messages.all()
    }

    /// As [`validation_messages`](Self::validation_messages), for when the device may be gone: at
    /// its end the layer names what was not destroyed.
    pub fn validation_watch(&self) -> impl Fn() -> Vec<String> + Send + Sync + use<> {
        let messages = Arc::clone(&self.shared.driver.instance.messages);
        move || messages.all()
    }

    /// Has memory for staging, readback and images counted by `budget` from now on; what is held
    /// already is charged at once.
    ///
    /// # Errors
    /// The budget's, when it refuses what is held; the budget before stays in place then.
    pub fn set_budget(&self, budget: Arc<dyn Budget>) -> Result<(), DeviceError> {
        self.shared.fixed.set_budget(budget)
    }

    /// What is allocated of memory for staging, readback and images, as JSON that `terrane FILE`
    /// reads.
    pub fn fixed_memory_json(&self) -> String {
        crate::report::gpu_allocator_json(&self.shared.fixed.report())
    }

    /// Gives staging memory that is not in use back to the driver; bytes given back.
    pub fn trim_staging(&self) -> u64 {
        self.shared.staging.trim()
    }

    /// A file descriptor naming an exportable plain segment's memory, owned by the caller.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] where memory can not be exported or this was not made so.
    pub fn export_fd(&self, space: SpaceId) -> Result<i32, DeviceError> {
        let space = self.shared.spaces.get(space)?;
        let object = space
            .plain()
            .filter(|object| object.exportable)
            .ok_or(DeviceError::Unsupported(terrane_core::device::Feature::Export))?;
        self.shared.driver.memory_fd(object.raw)
    }

    /// Submits work with device timestamps around it.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] on queues without timestamps, and the work's own.
    pub fn timed(&self, stream: StreamId, work: Timed<'_>) -> Result<Timing, DeviceError> {
        self.shared.timed(stream, work)
    }

    /// Submits a program's own commands to a stream, in its order.
    ///
    /// # Safety
    /// The commands are valid in a primary command buffer outside a render pass on the stream's
    /// queue, and all that they use lives until the returned point is reached.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`] and the driver's.
    pub unsafe fn record(
        &self,
        stream: StreamId,
        commands: impl FnOnce(&ash::Device, vk::CommandBuffer),
    ) -> Result<SyncPoint, DeviceError> {
        self.shared.streams.submit(stream, |recorder| {
            commands(recorder.device, recorder.commands);
            Ok(())
        })
    }

    /// The device, for a program's own Vulkan calls.
    pub fn ash(&self) -> &ash::Device {
        &self.shared.driver.device
    }

    /// The instance that the device was made from.
    pub fn ash_instance(&self) -> &ash::Instance {
        &self.shared.driver.instance.raw
    }

    /// The physical device.
    pub fn physical(&self) -> vk::PhysicalDevice {
        self.shared.driver.physical
    }

    /// The pipelines made so far, for [`OpenOptions::pipeline_cache`] of a later run.
    ///
    /// # Errors
    /// The driver's.
    pub fn pipeline_cache(&self) -> Result<Vec<u8>, DeviceError> {
        self.shared.kernels.cache_data()
    }

    /// What a program's own submission has to wait for before it uses a view: the bind of its
    /// pages. Work submitted through this device waits by itself.
    ///
    /// # Errors
    /// [`DeviceError::InvalidCall`] for an unknown view.
    pub fn view_ready(&self, view: View) -> Result<Option<SyncPoint>, DeviceError> {
        self.shared.views.ready(view)
    }

    /// The raw objects at a place, for a program's own Vulkan calls.
    ///
    /// # Errors
    /// [`DeviceError::InvalidCall`] for a place outside every space.
    pub fn raw(&self, place: Place) -> Result<RawPlace, DeviceError> {
        let range = self.shared.spaces.range(place, 0)?;
        let space = self.shared.spaces.get(place.space)?;
        Ok(RawPlace {
            buffer: range.buffer,
            offset: range.offset,
            address: range.address,
            memory: space.plain().map(|object| (object.raw, place.offset)),
        })
    }
}

/// The raw objects at a place.
#[derive(Clone, Copy, Debug)]
pub struct RawPlace {
    /// The buffer over the whole segment.
    pub buffer: vk::Buffer,
    /// Bytes from the buffer's start.
    pub offset: u64,
    /// The device address of the place.
    pub address: Option<u64>,
    /// The memory object and the offset in it; absent in paged segments, where it varies by page.
    pub memory: Option<(vk::DeviceMemory, u64)>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.streams.finish();
        self.reads.clear();
        self.reports.clear();
        self.views.clear();
        self.spaces.clear();
        self.pages.clear();
    }
}

impl Device for VulkanDevice {
    fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    fn caps(&self) -> &Caps {
        &self.shared.caps
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.shared.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn heap_use(&self, heap: HeapId) -> Result<HeapUse, DeviceError> {
        heaps::heap_use(&self.shared, heap)
    }

    fn create_plain(&self, spec: &PlainSpec<'_>) -> Result<Plain, DeviceError> {
        let s = &self.shared;
        s.driver.check()?;
        plain::create(&s.caps, &s.buffers, &s.objects, &s.spaces, spec)
    }

    fn release_plain(&self, space: SpaceId) -> Result<(), DeviceError> {
        if self.shared.driver.is_lost() {
            return Ok(());
        }
        plain::release(&self.shared.spaces, space)
    }

    fn create_stream(&self, spec: StreamSpec) -> Result<StreamId, DeviceError> {
        self.shared.streams.create(spec)
    }

    fn retire_stream(&self, stream: StreamId) -> Result<(), DeviceError> {
        self.shared.streams.retire(stream)
    }

    fn is_foreign(&self, stream: StreamId) -> bool {
        self.shared.streams.is_foreign(stream)
    }

    fn mark(&self, stream: StreamId) -> Result<SyncPoint, DeviceError> {
        self.shared.streams.mark(stream)
    }

    fn reached(&self, stream: StreamId) -> Result<u64, DeviceError> {
        self.shared.streams.reached(stream)
    }

    fn wait_on_stream(&self, stream: StreamId, points: &[SyncPoint]) -> Result<(), DeviceError> {
        self.shared.streams.wait_on_stream(stream, points)
    }

    fn wait_any(&self, points: &[SyncPoint], timeout: Duration) -> Result<bool, DeviceError> {
        self.shared.streams.wait_any(points, timeout)
    }

    fn copy(&self, stream: StreamId, ops: &[CopyOp]) -> Result<SyncPoint, DeviceError> {
        let s = &self.shared;
        let mut pairs = transfer::pairs(&s.spaces, ops, 4)?;
        s.streams.submit(stream, |recorder| {
            transfer::copy(recorder, &mut pairs);
            Ok(())
        })
    }

    fn fill(
        &self,
        stream: StreamId,
        place: Place,
        bytes: u64,
        word: u32,
    ) -> Result<SyncPoint, DeviceError> {
        if bytes == 0 || !(bytes | place.offset).is_multiple_of(4) {
            return Err(DeviceError::InvalidCall("a fill's offset or bytes are no multiples of 4"));
        }
        let s = &self.shared;
        let range = s.spaces.range(place, bytes)?;
        s.streams.submit(stream, |recorder| {
            transfer::fill(recorder, range, word);
            Ok(())
        })
    }

    fn write(&self, stream: StreamId, place: Place, data: &[u8]) -> Result<SyncPoint, DeviceError> {
        let s = &self.shared;
        s.driver.check()?;
        let range = transfer::host_range(&s.spaces, place, data.len() as u64)?;
        let chunks = transfer::upload(&s.staging, data)?;
        s.streams.submit(stream, |recorder| {
            transfer::between(recorder, &chunks, range, Way::Up);
            recorder.keep(chunks);
            Ok(())
        })
    }

    fn read(&self, stream: StreamId, place: Place, bytes: u64) -> Result<Ticket, DeviceError> {
        let s = &self.shared;
        s.driver.check()?;
        let range = transfer::host_range(&s.spaces, place, bytes)?;
        let chunks = transfer::download(&s.staging, bytes)?;
        let point = s.streams.submit(stream, |recorder| {
            transfer::between(recorder, &chunks, range, Way::Down);
            Ok(())
        })?;
        Ok(s.reads.add(point, (chunks, bytes)))
    }

    fn take_read(&self, ticket: Ticket) -> Result<Vec<u8>, DeviceError> {
        let s = &self.shared;
        let (chunks, bytes) = s.reads.take(ticket, |point| s.is_reached(point))?;
        Ok(transfer::collect(&chunks, bytes))
    }

    fn copy_timed(
        &self,
        stream: StreamId,
        ops: &[CopyOp],
        by_kernel: bool,
    ) -> Result<Ticket, DeviceError> {
        self.shared.copy_timed(stream, ops, by_kernel)
    }

    fn take_times(&self, ticket: Ticket) -> Result<[u64; 2], DeviceError> {
        let s = &self.shared;
        s.stamps.take(ticket, |point| s.is_reached(point))?.times_ns()
    }

    fn create_view(&self, place: Place, bytes: u64) -> Result<View, DeviceError> {
        views::create(&self.shared, place, bytes)
    }

    fn destroy_view(&self, view: View) -> Result<(), DeviceError> {
        if self.shared.driver.is_lost() {
            return Ok(());
        }
        self.shared.views.destroy(view)
    }

    fn compute(&self) -> Option<&dyn Compute> {
        Some(self)
    }

    fn paging(&self) -> Option<&dyn Paging> {
        self.shared.caps.paging.is_some().then_some(self)
    }

    fn host_access(&self) -> Option<&dyn HostAccess> {
        self.shared.caps.classes.iter().any(|c| c.host_visible).then_some(self)
    }
}

impl Shared {
    /// Whether a point is reached.
    pub fn is_reached(&self, point: SyncPoint) -> Result<bool, DeviceError> {
        let value = point.value;
        Ok(self.streams.reached(point.stream)? >= value)
    }

    fn seen(&self, place: Place, bytes: u64) -> Result<host::Seen, DeviceError> {
        host::Seen::new(&self.driver, &self.spaces, self.caps.non_coherent_atom, place, bytes)
    }
}

impl HostAccess for VulkanDevice {
    fn view(&self, place: Place, bytes: u64) -> Result<Box<dyn HostView>, DeviceError> {
        let seen = self.shared.seen(place, bytes)?;
        seen.invalidate()?;
        Ok(Box::new(host::View(seen)))
    }

    fn pointer(&self, place: Place) -> Result<NonNull<u8>, DeviceError> {
        Ok(self.shared.seen(place, 0)?.pointer())
    }

    fn flush(&self, place: Place, bytes: u64) -> Result<(), DeviceError> {
        self.shared.seen(place, bytes)?.flush()
    }

    fn invalidate(&self, place: Place, bytes: u64) -> Result<(), DeviceError> {
        self.shared.seen(place, bytes)?.invalidate()
    }
}
