//! What every part of the device shares: the driver, its context, and how calls enter and fail.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use terrane_core::device::{Caps, DeviceError, DeviceInfo};

use crate::Options;
use crate::caps::Details;
use crate::driver::{CAPTURE_RELAXED, Dev, Driver, Fault, RawContext, RawEvent, RawStream, code};
use crate::event::EventPool;
use crate::fork::Birthplace;
use crate::kernels::Kernels;
use crate::process::ProcessUse;
use crate::space::Spaces;
use crate::staging::Staging;
use crate::stream::Streams;

/// Results after which the context never works again.
const STICKY: [i32; 20] =
    [3, 4, 46, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 807, 808, 810];
/// Results that a dead context gives, and wrong arguments too: the canary tells which.
const DOUBTFUL: [i32; 5] =
    [code::INVALID_VALUE, code::INVALID_DEVICE, code::INVALID_CONTEXT, code::INVALID_HANDLE, 999];
/// Results of calls that an open capture forbids.
const CAPTURE: std::ops::RangeInclusive<i32> = 900..=908;

pub(crate) struct Inner {
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) device: Dev,
    pub(crate) context: RawContext,
    pub(crate) info: DeviceInfo,
    pub(crate) caps: Caps,
    pub(crate) details: Details,
    pub(crate) options: Options,
    pub(crate) spaces: Spaces,
    pub(crate) streams: Streams,
    pub(crate) staging: Staging,
    pub(crate) kernels: Kernels,
    pub(crate) events: Arc<EventPool>,
    /// Devices that our page memory is accessible from: this one first.
    pub(crate) accessible: RwLock<Vec<Dev>>,
    /// The stream that `cuMemAllocAsync` takes from and gives back to, where it is the source.
    pub(crate) source: Option<RawStream>,
    pub(crate) process_use: ProcessUse,
    opened: Instant,
    birthplace: Birthplace,
    lost: AtomicBool,
    /// An event made at opening: when it is unknown to the driver, the context was destroyed.
    canary: RawEvent,
    next_id: AtomicU64,
    pub(crate) stamps: Mutex<crate::timing::Stamps>,
}

/// What opening has found out and made before the parts are put together.
pub(crate) struct Parts {
    pub driver: Arc<dyn Driver>,
    pub device: Dev,
    pub context: RawContext,
    pub info: DeviceInfo,
    pub caps: Caps,
    pub details: Details,
    pub options: Options,
    pub canary: RawEvent,
    pub source: Option<RawStream>,
}

impl Inner {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { driver, device, context, info, caps, details, options, canary, source } = parts;
        Self {
            events: Arc::new(EventPool::new(Arc::clone(&driver))),
            driver,
            device,
            context,
            info,
            caps,
            details,
            options,
            spaces: Spaces::default(),
            streams: Streams::default(),
            staging: Staging::default(),
            kernels: Kernels::default(),
            accessible: RwLock::new(vec![device]),
            source,
            process_use: ProcessUse::default(),
            opened: Instant::now(),
            birthplace: Birthplace::new(),
            lost: AtomicBool::new(false),
            canary,
            next_id: AtomicU64::new(1),
            stamps: Mutex::default(),
        }
    }

    /// A number that no other object of this device has or will have.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether driver calls make sense: not after a fork, not after the context died.
    pub(crate) fn usable(&self) -> Result<(), DeviceError> {
        if !self.birthplace.is_here() {
            return Err(DeviceError::AfterFork);
        }
        if self.lost.load(Ordering::Relaxed) {
            return Err(DeviceError::Lost);
        }
        Ok(())
    }

    /// Makes the device's context current and the thread's capture mode relaxed until the guard
    /// is dropped; then both are what the caller had.
    pub(crate) fn enter(&self) -> Result<Entered<'_>, DeviceError> {
        self.usable()?;
        let driver = self.driver.as_ref();
        let pushed = driver.current().map_err(|fault| self.fail(fault))? != self.context;
        if pushed {
            driver.push(self.context).map_err(|fault| self.fail(fault))?;
        }
        let mode = driver.exchange_capture_mode(CAPTURE_RELAXED).ok();
        Ok(Entered { driver, pushed, mode })
    }

    /// As [`enter`](Self::enter), for giving things back: `None` where that does nothing any more.
    pub(crate) fn enter_to_release(&self) -> Result<Option<Entered<'_>>, DeviceError> {
        match self.enter() {
            Ok(entered) => Ok(Some(entered)),
            Err(DeviceError::Lost) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What a failed driver call means; notes when it means that the device is lost.
    pub(crate) fn fail(&self, fault: Fault) -> DeviceError {
        if STICKY.contains(&fault.code) || self.canary_died(fault.code) {
            self.lost.store(true, Ordering::Relaxed);
            tracing::error!(call = fault.call, code = fault.code, "the CUDA context is lost");
            return DeviceError::Lost;
        }
        if CAPTURE.contains(&fault.code) {
            return DeviceError::Capturing;
        }
        DeviceError::Driver { call: fault.call, code: fault.code }
    }

    /// As [`fail`](Self::fail), where the driver may have run out of memory for `bytes`.
    pub(crate) fn fail_memory(&self, fault: Fault, bytes: u64) -> DeviceError {
        match fault.code {
            code::OUT_OF_MEMORY => DeviceError::OutOfMemory { bytes },
            _ => self.fail(fault),
        }
    }

    /// As [`fail`](Self::fail), where a kernel does not start. The driver says "out of resources"
    /// also when it is given more bytes of parameters than the kernel has.
    pub(crate) fn fail_launch(&self, fault: Fault) -> DeviceError {
        match fault.code {
            code::LAUNCH_OUT_OF_RESOURCES => DeviceError::InvalidCall(
                "the kernel has fewer parameters, or its threads or shared memory do not fit",
            ),
            _ => self.fail(fault),
        }
    }

    /// Declares the device lost after a state that can not be mended.
    pub(crate) fn give_up(&self, why: &'static str) {
        self.lost.store(true, Ordering::Relaxed);
        tracing::error!(why, "the device is given up");
    }

    fn canary_died(&self, code: i32) -> bool {
        DOUBTFUL.contains(&code)
            && self
                .driver
                .event_query(self.canary)
                .is_err_and(|fault| STICKY.contains(&fault.code) || DOUBTFUL.contains(&fault.code))
    }
}

/// The time in which driver calls may be made on this thread.
pub(crate) struct Entered<'a> {
    driver: &'a dyn Driver,
    pushed: bool,
    mode: Option<u32>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // Both concern only this thread's state; where the driver is gone there is none to keep.
        if let Some(mode) = self.mode {
            let _ = self.driver.exchange_capture_mode(mode);
        }
        if self.pushed {
            let _ = self.driver.pop();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // After a fork or a loss the driver has nothing of ours that could be given back.
        let Ok(entered) = self.enter() else { return };
        let driver = self.driver.as_ref();
        // Mapped pages may be unmapped only when no work uses them. A capture forbids the wait:
        // then everything stays with the context, which ends with the process.
        if driver.synchronize().is_ok() {
            self.spaces.clear(self);
            self.staging.clear(driver);
            self.kernels.clear(driver);
            lock(&self.stamps).clear(driver);
            self.streams.clear(driver);
            self.events.clear();
            if let Some(stream) = self.source {
                let _ = driver.stream_destroy(stream);
            }
            let _ = driver.event_destroy(self.canary);
        }
        drop(entered);
        let _ = driver.primary_release(self.device);
    }
}

/// Locks, whoever panicked before: every critical section leaves its data whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], to read.
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], to write.
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
