//! The allocator as a CUDA framework's plug-in wants it: streams and addresses as plain numbers.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use terrane_core::point::StreamId;
use terrane_core::{Allocator, Config, Error, Handle, Raw};
use terrane_cuda::CudaDevice;

/// The handle of the calling thread's default stream: it means another stream on each thread.
const PER_THREAD: u64 = 2;

/// An allocator over a CUDA device that takes `CUstream` values and gives `CUdeviceptr` values, by
/// the rules of PyTorch's caching allocator (see [`Raw`]). All that a plug-in for a framework
/// needs: three functions, and a fourth for streams that end.
///
/// Streams are made known to the device when they are first named, so a call with a stream that
/// was seen before costs a look into a table and no driver call.
#[derive(Debug)]
pub struct CudaRaw {
    device: Arc<CudaDevice>,
    raw: Raw,
    streams: RwLock<HashMap<u64, StreamId>>,
}

impl CudaRaw {
    /// An allocator over an open device, such as [`Opened::cuda`](crate::Opened).
    ///
    /// # Errors
    /// As [`Allocator::with_config`].
    pub fn new(device: Arc<CudaDevice>, config: Config) -> Result<Self, Error> {
        let raw = Allocator::with_config(device.clone(), config)?.raw()?;
        Ok(Self { device, raw, streams: RwLock::default() })
    }

    /// The allocator, for statistics, limits and graphs.
    pub const fn allocator(&self) -> &Allocator {
        self.raw.allocator()
    }

    /// The `CUdeviceptr` of a new block of `bytes`, to be used on `stream` at once: what it has to
    /// wait for was put into the stream. Never 0.
    ///
    /// # Safety
    /// `stream` is a `CUstream` of this device's primary context (0 and 1 the legacy default
    /// stream, 2 the calling thread's), and lives until
    /// [`forget_stream`](Self::forget_stream) was called for it or this is dropped.
    ///
    /// # Errors
    /// As [`Allocator::alloc`]; [`Error::ZeroSize`] for 0 bytes; the device's for a stream of
    /// another context.
    #[track_caller]
    #[allow(unsafe_code)] // a promise about a raw handle, passed on
    pub unsafe fn alloc_raw(&self, bytes: u64, stream: u64) -> Result<u64, Error> {
        // SAFETY: the caller's promise.
        let stream = unsafe { self.stream(stream) }?;
        self.raw.alloc(bytes, stream)
    }

    /// Frees a block: its stream may have the memory again at once, others when the work of all
    /// streams that were recorded for it is over.
    ///
    /// # Errors
    /// [`Error::UnknownAddress`] for what was not handed out here, or was freed.
    pub fn free_raw(&self, address: u64) -> Result<(), Error> {
        self.raw.free(address)
    }

    /// The handle of a live block.
    ///
    /// # Errors
    /// [`Error::UnknownAddress`].
    pub fn handle(&self, address: u64) -> Result<Handle, Error> {
        self.raw.handle(address)
    }

    /// Says that `stream` uses a block of another stream: its free waits for all that `stream` has
    /// been given by then.
    ///
    /// # Safety
    /// As [`alloc_raw`](Self::alloc_raw).
    ///
    /// # Errors
    /// [`Error::UnknownAddress`]; the device's for a stream of another context.
    #[allow(unsafe_code)] // a promise about a raw handle, passed on
    pub unsafe fn record_stream(&self, address: u64, stream: u64) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        let stream = unsafe { self.stream(stream) }?;
        self.raw.record_stream(address, stream)
    }

    /// Says that a stream is about to be destroyed: what blocks owe to it is settled, and it is
    /// not touched any more. A stream that was never named here changes nothing.
    ///
    /// # Errors
    /// The device's.
    pub fn forget_stream(&self, stream: u64) -> Result<(), Error> {
        let known = self.streams.write().unwrap_or_else(PoisonError::into_inner).remove(&stream);
        known.map_or(Ok(()), |id| self.allocator().retire_stream(id))
    }

    /// The number of a stream here.
    #[allow(unsafe_code)] // a promise about a raw handle, passed on
    unsafe fn stream(&self, raw: u64) -> Result<StreamId, Error> {
        if raw == PER_THREAD {
            // SAFETY: the caller's promise.
            return Ok(unsafe { self.device.wrap_stream(raw) }?);
        }
        let known = self.streams.read().unwrap_or_else(PoisonError::into_inner).get(&raw).copied();
        if let Some(id) = known {
            return Ok(id);
        }
        // SAFETY: the caller's promise.
        let id = unsafe { self.device.wrap_stream(raw) }?;
        self.streams.write().unwrap_or_else(PoisonError::into_inner).insert(raw, id);
        Ok(id)
    }
}
