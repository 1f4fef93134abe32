//! [`CudaDevice`]: opening it, and the contract's methods.

use std::sync::Arc;
use std::time::{Duration, Instant};

use terrane_core::device::{
    Caps, CaptureId, Compute, CopyOp, Device, DeviceError, DeviceInfo, HeapId, HeapUse, HostAccess,
    Paging, Place, Plain, PlainSpec, SpaceId, StreamId, StreamSpec, SyncPoint, Ticket,
};

use crate::caps::{DEVICE_HEAP, Details, HOST_HEAP, caps};
use crate::driver::{Driver, RawEvent, RawStream, load};
use crate::inner::{Inner, Parts};
use crate::presence::{choose, start};
use crate::staging::TicketKind;
use crate::stream::Origin;
use crate::{CudaUnavailable, Options, Selector};

/// How long the host spins before it sleeps between two questions.
const SPINS: u32 = 100;
/// The first and the longest sleep between two questions.
const SLEEP: (Duration, Duration) = (Duration::from_micros(20), Duration::from_micros(500));

/// A CUDA device.
///
/// It retains the device's primary context, the one that CUDA's runtime and frameworks use, so
/// streams and addresses can be exchanged with them. Every call leaves the calling thread's
/// current context and capture mode as they were.
pub struct CudaDevice {
    pub(crate) inner: Arc<Inner>,
}

impl std::fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CudaDevice({})", self.inner.info.name)
    }
}

impl CudaDevice {
    /// Opens a device.
    ///
    /// # Errors
    /// Why that is not possible here; never a panic.
    pub fn open(selector: &Selector, options: Options) -> Result<Self, CudaUnavailable> {
        Self::open_with(load()?, selector, options)
    }

    pub(crate) fn open_with(
        driver: Arc<dyn Driver>,
        selector: &Selector,
        options: Options,
    ) -> Result<Self, CudaUnavailable> {
        let driver = start(driver)?;
        let (device, info) = choose(driver.as_ref(), selector)?;
        let details = Details::read(driver.as_ref(), device)?;
        let options = options.possible(&details);
        let caps = caps(driver.as_ref(), device, &details, &options)?;
        let context = driver.primary_retain(device)?;
        let made = make_in_context(driver.as_ref(), context, &options);
        let (canary, source) = made.inspect_err(|_| {
            let _ = driver.primary_release(device);
        })?;
        let parts = Parts { driver, device, context, info, caps, details, options, canary, source };
        let mut opened = Self { inner: Arc::new(Inner::new(parts)) };
        if options.calibrate {
            opened.adopt_calibration()?;
        }
        Ok(opened)
    }

    /// Measures the costs of the device's calls and puts them into its capabilities.
    fn adopt_calibration(&mut self) -> Result<(), CudaUnavailable> {
        let costs = self.calibrate().map_err(|error| match error {
            DeviceError::Driver { call, code } => CudaUnavailable::Driver { call, code },
            _ => CudaUnavailable::Driver { call: "calibration", code: 0 },
        })?;
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.caps.costs = costs;
            let block = 16 << 20;
            inner.caps.prefer_gather = costs.gather.ns(block) <= costs.copy.ns(block);
        }
        Ok(())
    }

    /// What CUDA says of the device beyond [`Device::caps`].
    pub fn details(&self) -> Details {
        self.inner.details
    }

    /// The `CUcontext` that this device uses, as a number: the primary context.
    pub fn raw_context(&self) -> u64 {
        self.inner.context.0
    }

    /// The `CUdeviceptr` of a place. Pre: a hold or an open submission of the allocator keeps the
    /// block there.
    ///
    /// # Errors
    /// [`DeviceError::InvalidCall`] for a range outside its space.
    pub fn address(&self, place: Place, bytes: u64) -> Result<u64, DeviceError> {
        self.inner.spaces.address(place, bytes)
    }

    /// Makes a stream of the program's known here; work that the program submits to it by itself
    /// is covered by [`Device::mark`]. `raw` is a `CUstream` as a number; 0 and 1 both name the
    /// legacy default stream, 2 the default stream of the calling thread, which then takes
    /// submissions from this thread only. A stream that is known already keeps its id.
    ///
    /// # Safety
    /// `raw` is a live stream, and stays so until [`Device::retire_stream`] has returned, or this
    /// device is dropped. The driver does not check handles: a stream that is destroyed before
    /// crashes the process at the next call that names it, the retirement included.
    ///
    /// # Errors
    /// [`DeviceError::InvalidCall`] for a stream of another context.
    pub unsafe fn wrap_stream(&self, raw: u64) -> Result<StreamId, DeviceError> {
        let inner = &self.inner;
        let (raw, origin) = match RawStream(raw) {
            RawStream(0) | RawStream::LEGACY => (RawStream::LEGACY, Origin::Foreign),
            RawStream::PER_THREAD => {
                (RawStream::PER_THREAD, Origin::PerThread(std::thread::current().id()))
            }
            other => (other, Origin::Foreign),
        };
        let _entered = inner.enter()?;
        if raw != RawStream::LEGACY && raw != RawStream::PER_THREAD {
            let context = inner.driver.stream_context(raw).map_err(|fault| inner.fail(fault))?;
            if context != inner.context {
                return Err(DeviceError::InvalidCall("a stream of another context"));
            }
        }
        inner.streams.add(raw, origin)
    }

    /// The `CUstream` behind an id, as a number. From now on the stream counts as foreign: the
    /// program may submit work to it that only [`Device::mark`] covers.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`].
    pub fn raw_stream(&self, stream: StreamId) -> Result<u64, DeviceError> {
        Ok(self.inner.streams.share(stream)?.0)
    }

    fn wait_round(&self, points: &[SyncPoint]) -> Result<bool, DeviceError> {
        self.inner.usable()?;
        for &point in points {
            if self.inner.has_reached(point)? {
                return Ok(true);
            }
        }
        let _entered = self.inner.enter()?;
        for &point in points {
            if self.inner.is_reached(point)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What has to be made with the context current: the canary event and the source stream.
fn make_in_context(
    driver: &dyn Driver,
    context: crate::driver::RawContext,
    options: &Options,
) -> Result<(RawEvent, Option<RawStream>), CudaUnavailable> {
    driver.push(context)?;
    let made = driver.event_create(false).and_then(|canary| {
        let source = options.pooled_source().then(|| driver.stream_create(false));
        Ok((canary, source.transpose()?))
    });
    let _ = driver.pop();
    Ok(made?)
}

impl Device for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        &self.inner.info
    }

    fn caps(&self) -> &Caps {
        &self.inner.caps
    }

    fn now_ns(&self) -> u64 {
        self.inner.now_ns()
    }

    fn heap_use(&self, heap: HeapId) -> Result<HeapUse, DeviceError> {
        let inner = &self.inner;
        match heap {
            DEVICE_HEAP => {
                let _entered = inner.enter()?;
                let (free, total) =
                    inner.driver.memory_info().map_err(|fault| inner.fail(fault))?;
                Ok(HeapUse { total, free, process: inner.process_use() })
            }
            HOST_HEAP => {
                inner.usable()?;
                let (total, free) = crate::host::host_memory();
                Ok(HeapUse { total, free, process: None })
            }
            _ => Err(DeviceError::InvalidCall("no such heap")),
        }
    }

    fn create_plain(&self, spec: &PlainSpec<'_>) -> Result<Plain, DeviceError> {
        self.inner.create_plain(spec)
    }

    fn release_plain(&self, space: SpaceId) -> Result<(), DeviceError> {
        self.inner.release_plain(space)
    }

    fn create_stream(&self, spec: StreamSpec) -> Result<StreamId, DeviceError> {
        let inner = &self.inner;
        let _entered = inner.enter()?;
        let raw =
            inner.driver.stream_create(spec.high_priority).map_err(|fault| inner.fail(fault))?;
        inner.streams.add(raw, Origin::Own).inspect_err(|_| {
            let _ = inner.driver.stream_destroy(raw);
        })
    }

    fn retire_stream(&self, stream: StreamId) -> Result<(), DeviceError> {
        self.inner.retire_stream(stream)
    }

    fn is_foreign(&self, stream: StreamId) -> bool {
        self.inner.streams.get(stream).is_ok_and(|stream| stream.is_shared())
    }

    fn mark(&self, stream: StreamId) -> Result<SyncPoint, DeviceError> {
        self.inner.usable()?;
        self.inner.streams.get(stream)?.mark()
    }

    fn reached(&self, stream: StreamId) -> Result<u64, DeviceError> {
        let stream = self.inner.streams.get(stream)?;
        self.inner.usable()?;
        if let Some(value) = stream.settled() {
            return Ok(value);
        }
        let _entered = self.inner.enter()?;
        stream.advance(&self.inner)
    }

    fn wait_on_stream(&self, stream: StreamId, points: &[SyncPoint]) -> Result<(), DeviceError> {
        self.inner.wait_on_stream(stream, points)
    }

    fn wait_any(&self, points: &[SyncPoint], timeout: Duration) -> Result<bool, DeviceError> {
        let start = Instant::now();
        let (mut rounds, mut sleep) = (0_u32, SLEEP.0);
        loop {
            if self.wait_round(points)? {
                return Ok(true);
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            rounds = rounds.saturating_add(1);
            if points.is_empty() {
                std::thread::sleep(left);
            } else if rounds < SPINS {
                std::thread::yield_now();
            } else {
                std::thread::sleep(sleep.min(left));
                sleep = (sleep * 2).min(SLEEP.1);
            }
        }
    }

    fn copy(&self, stream: StreamId, ops: &[CopyOp]) -> Result<SyncPoint, DeviceError> {
        let _entered = self.inner.enter()?;
        self.inner.copy_between(stream, ops, None)
    }

    fn fill(
        &self,
        stream: StreamId,
        place: Place,
        bytes: u64,
        word: u32,
    ) -> Result<SyncPoint, DeviceError> {
        let inner = &self.inner;
        let stream = inner.streams.get(stream)?;
        let to = inner.spaces.address(place, bytes)?;
        if !bytes.is_multiple_of(4) || !to.is_multiple_of(4) {
            return Err(DeviceError::InvalidCall("offset and bytes are multiples of 4"));
        }
        let _entered = inner.enter()?;
        stream.submit(|raw| {
            if bytes == 0 {
                return Ok(());
            }
            inner.driver.fill(to, word, bytes / 4, raw).map_err(|fault| inner.fail(fault))
        })
    }

    fn write(&self, stream: StreamId, place: Place, data: &[u8]) -> Result<SyncPoint, DeviceError> {
        self.inner.write(stream, place, data)
    }

    fn read(&self, stream: StreamId, place: Place, bytes: u64) -> Result<Ticket, DeviceError> {
        self.inner.read(stream, place, bytes)
    }

    fn take_read(&self, ticket: Ticket) -> Result<Vec<u8>, DeviceError> {
        self.inner.take_ticket(ticket, TicketKind::Read)
    }

    fn copy_timed(
        &self,
        stream: StreamId,
        ops: &[CopyOp],
        by_kernel: bool,
    ) -> Result<Ticket, DeviceError> {
        self.inner.copy_timed(stream, ops, by_kernel)
    }

    fn take_times(&self, ticket: Ticket) -> Result<[u64; 2], DeviceError> {
        self.inner.take_times(ticket)
    }

    fn capture_of(&self, stream: StreamId) -> Option<CaptureId> {
        self.inner.capture_of(stream)
    }

    fn is_capturing(&self) -> bool {
        self.inner.is_capturing()
    }

    fn paging(&self) -> Option<&dyn Paging> {
        self.inner.caps.paging.is_some().then_some(self as &dyn Paging)
    }

    fn compute(&self) -> Option<&dyn Compute> {
        Some(self)
    }

    fn host_access(&self) -> Option<&dyn HostAccess> {
        Some(self)
    }
}
