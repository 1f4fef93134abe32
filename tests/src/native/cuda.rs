//! A CUDA program beside Terrane: streams that it made, functions of its own in them, captures.

use std::ffi::c_void;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys;
use terrane::core::device::{ClassId, Device, DeviceError, SpaceId, StreamId, SyncPoint};
use terrane::cuda::CudaDevice;

use super::{Captures, Foreign, Imported, Imports, Mapped};
use crate::busy::{Gate, Held, Keeper};

/// Keeps streams busy by a kernel, and is a program of CUDA's own besides.
pub(crate) struct Program {
    spin: Option<Arc<dyn Keeper>>,
    device: Arc<CudaDevice>,
    /// Handles of the program's streams, which live as long as the process.
    streams: Mutex<Vec<(StreamId, u64)>>,
}

impl Program {
    pub fn new(device: Arc<CudaDevice>) -> Self {
        let shared: Arc<dyn Device> = device.clone();
        Self { spin: crate::spin::keeper(&shared), device, streams: Mutex::default() }
    }

    fn raw(&self, stream: StreamId) -> Option<u64> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.iter().find(|(id, _)| *id == stream).map(|(_, raw)| *raw)
    }

    /// Runs calls with the device's context current.
    fn within<T>(&self, calls: impl FnOnce() -> Result<T, DeviceError>) -> Result<T, DeviceError> {
        let context = self.device.raw_context() as usize as sys::CUcontext;
        // SAFETY: the context is alive as long as the device.
        told("cuCtxPushCurrent", unsafe { sys::cuCtxPushCurrent_v2(context) })?;
        let answer = calls();
        let mut popped = std::ptr::null_mut();
        // SAFETY: balances the push.
        told("cuCtxPopCurrent", unsafe { sys::cuCtxPopCurrent_v2(&raw mut popped) })?;
        answer
    }
}

fn told(call: &'static str, code: sys::CUresult) -> Result<(), DeviceError> {
    if code == sys::CUresult::CUDA_SUCCESS {
        Ok(())
    } else {
        Err(DeviceError::Driver { call, code: code as i32 })
    }
}

const fn handle(raw: u64) -> sys::CUstream {
    raw as usize as sys::CUstream
}

impl Keeper for Program {
    fn hold(&self, stream: StreamId) -> Result<Box<dyn Held>, DeviceError> {
        let none = DeviceError::InvalidCall("no kernel keeps this device busy");
        self.spin.as_ref().ok_or(none)?.hold(stream)
    }

    fn can_hold(&self) -> bool {
        self.spin.is_some()
    }

    fn foreign(&self) -> Option<&dyn Foreign> {
        Some(self)
    }

    fn captures(&self) -> Option<&dyn Captures> {
        Some(self)
    }

    fn imports(&self) -> Option<&dyn Imports> {
        Some(self)
    }
}

/// A function in a stream: it takes its share of the gate and waits until that is open.
unsafe extern "C" fn pass(gate: *mut c_void) {
    // SAFETY: `submit` gave the function this share of the gate.
    let gate = unsafe { Arc::from_raw(gate.cast::<Gate>().cast_const()) };
    gate.pass();
}

impl Foreign for Program {
    fn wrap(&self) -> Result<StreamId, DeviceError> {
        let raw = self.within(|| {
            let mut raw = std::ptr::null_mut();
            // SAFETY: the context is current; 1 is a stream that does not wait for the default one.
            told("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut raw, 1) })?;
            Ok(raw as usize as u64)
        })?;
        // SAFETY: the stream is never destroyed.
        let stream = unsafe { self.device.wrap_stream(raw) }?;
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.push((stream, raw));
        Ok(stream)
    }

    fn submit(&self, stream: StreamId) -> Result<Box<dyn Held>, DeviceError> {
        let raw = self.raw(stream).ok_or(DeviceError::UnknownStream)?;
        let gate = Arc::new(Gate::default());
        let share = Arc::into_raw(Arc::clone(&gate));
        self.within(|| {
            let data = share.cast_mut().cast::<c_void>();
            // SAFETY: the stream is alive, and the function takes the share that it is given.
            let code = unsafe { sys::cuLaunchHostFunc(handle(raw), Some(pass), data) };
            told("cuLaunchHostFunc", code).inspect_err(|_| {
                // SAFETY: the function was not launched, so that nobody else takes the share.
                drop(unsafe { Arc::from_raw(share) });
            })
        })?;
        // Nobody else would let the function return.
        let point = self.device.mark(stream).inspect_err(|_| gate.open())?;
        Ok(Box::new(Open { gate, point }))
    }
}

impl Captures for Program {
    fn begin(&self, stream: StreamId) -> Result<(), DeviceError> {
        let raw = self.device.raw_stream(stream)?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        self.within(|| {
            // SAFETY: the stream is alive.
            let code = unsafe { sys::cuStreamBeginCapture_v2(handle(raw), mode) };
            told("cuStreamBeginCapture", code)
        })
    }

    fn end(&self, stream: StreamId) -> Result<(), DeviceError> {
        let raw = self.device.raw_stream(stream)?;
        self.within(|| {
            let mut graph = std::ptr::null_mut();
            // SAFETY: ends the capture that began on this stream.
            let code = unsafe { sys::cuStreamEndCapture(handle(raw), &raw mut graph) };
            told("cuStreamEndCapture", code)?;
            if graph.is_null() {
                return Ok(());
            }
            // SAFETY: the graph was just made, and nothing was made from it.
            told("cuGraphDestroy", unsafe { sys::cuGraphDestroy(graph) })
        })
    }
}

impl Imports for Program {
    fn import(&self, space: SpaceId, bytes: u64) -> Result<Box<dyn Imported>, DeviceError> {
        let descriptor = self.device.export_plain(space)?;
        let memory = self.device.import_memory(descriptor.as_fd(), bytes)?;
        Ok(Box::new(Mapped::new(self.device.clone(), ClassId(0), memory, bytes)?))
    }
}

struct Open {
    gate: Arc<Gate>,
    point: SyncPoint,
}

impl Held for Open {
    fn point(&self) -> SyncPoint {
        self.point
    }

    fn let_go(&self) {
        self.gate.open();
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.let_go();
    }
}
