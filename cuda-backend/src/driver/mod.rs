//! The driver as this crate uses it: one trait, so that tests can put a software driver in.
//!
//! # Contract
//! Every handle given to a method came from the same driver and is alive, every address range lies
//! inside memory that the same driver handed out, and unless said otherwise the device's context
//! is current ([`crate::inner::Inner::enter`] sees to that). The tables of this crate (spaces,
//! memory objects, streams, kernels) hold the live handles; what users pass in from outside comes
//! through `unsafe` functions of [`crate::CudaDevice`].

mod count;
mod load;
mod real;
mod table;

#[cfg(test)]
pub(crate) mod fake;

pub use count::{CallStat, calls};
pub(crate) use load::load;

/// A device's number in the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dev(pub i32);

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(pub u64);
    )*};
}

handles! {
    /// A `CUcontext`.
    RawContext,
    /// A `CUstream`.
    RawStream,
    /// A `CUevent`.
    RawEvent,
    /// A `CUmemGenericAllocationHandle`.
    RawMemory,
    /// A `CUmodule`.
    RawModule,
    /// A `CUfunction`.
    RawFunction,
}

impl RawStream {
    /// The legacy default stream.
    pub(crate) const LEGACY: Self = Self(1);
    /// The calling thread's default stream.
    pub(crate) const PER_THREAD: Self = Self(2);
}

/// A driver call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The driver's function.
    pub call: &'static str,
    /// Its result, never 0.
    pub code: i32,
}

/// What a driver call gives.
pub(crate) type Answer<T> = Result<T, Fault>;

/// Result codes of the driver that mean something to us.
pub(crate) mod code {
    pub(crate) const INVALID_VALUE: i32 = 1;
    pub(crate) const OUT_OF_MEMORY: i32 = 2;
    pub(crate) const NO_DEVICE: i32 = 100;
    pub(crate) const INVALID_DEVICE: i32 = 101;
    pub(crate) const INVALID_CONTEXT: i32 = 201;
    pub(crate) const INVALID_HANDLE: i32 = 400;
    pub(crate) const NOT_FOUND: i32 = 500;
    pub(crate) const NOT_READY: i32 = 600;
    #[cfg(test)]
    pub(crate) const ILLEGAL_ADDRESS: i32 = 700;
    pub(crate) const LAUNCH_OUT_OF_RESOURCES: i32 = 701;
    pub(crate) const PEER_ACCESS_ALREADY_ENABLED: i32 = 704;
    #[cfg(test)]
    pub(crate) const STREAM_CAPTURE_UNSUPPORTED: i32 = 900;
    pub(crate) const STREAM_CAPTURE_IMPLICIT: i32 = 906;
}

/// Device attributes that are asked for, by the driver's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Attribute {
    GridX = 5,
    GridY = 6,
    GridZ = 7,
    MultiProcessors = 16,
    Integrated = 18,
    CopyEngines = 40,
    UnifiedAddressing = 41,
    ComputeMajor = 75,
    ComputeMinor = 76,
    Managed = 83,
    ConcurrentManaged = 89,
    VirtualMemory = 102,
    PosixDescriptors = 103,
    MemoryPools = 115,
}

/// A kernel launch: grid, threads, dynamic shared memory and the parameter bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch<'a> {
    pub function: RawFunction,
    pub groups: [u32; 3],
    pub threads: [u32; 3],
    pub shared_bytes: u32,
    pub params: &'a [u8],
}

/// What the driver says of a stream's capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CaptureState {
    /// Not part of a capture.
    None,
    /// Part of the capture with this number; an invalidated capture counts too.
    Active(u64),
}

/// The relaxed capture mode: calls that a capture elsewhere would forbid are allowed.
pub(crate) const CAPTURE_RELAXED: u32 = 2;

/// The driver's functions. See the module's text for what callers promise.
pub(crate) trait Driver: Send + Sync + 'static {
    // Presence, before any context.
    fn init(&self) -> Answer<()>;
    fn version(&self) -> Answer<i32>;
    fn device_count(&self) -> Answer<i32>;
    fn device(&self, ordinal: i32) -> Answer<Dev>;
    fn device_name(&self, device: Dev) -> Answer<String>;
    fn device_uuid(&self, device: Dev) -> Answer<[u8; 16]>;
    fn device_memory(&self, device: Dev) -> Answer<u64>;
    fn attribute(&self, attribute: Attribute, device: Dev) -> Answer<i32>;
    fn can_access_peer(&self, device: Dev, peer: Dev) -> Answer<bool>;

    // Contexts; these need none current.
    fn primary_retain(&self, device: Dev) -> Answer<RawContext>;
    fn primary_release(&self, device: Dev) -> Answer<()>;
    /// The current context, 0 for none.
    fn current(&self) -> Answer<RawContext>;
    fn push(&self, context: RawContext) -> Answer<()>;
    fn pop(&self) -> Answer<()>;
    /// Sets the thread's capture mode and gives the one before.
    fn exchange_capture_mode(&self, mode: u32) -> Answer<u32>;

    fn synchronize(&self) -> Answer<()>;
    fn enable_peer(&self, peer: RawContext) -> Answer<()>;
    /// Free and total bytes.
    fn memory_info(&self) -> Answer<(u64, u64)>;

    fn alloc(&self, bytes: u64) -> Answer<u64>;
    fn free(&self, address: u64) -> Answer<()>;
    fn alloc_async(&self, bytes: u64, stream: RawStream) -> Answer<u64>;
    fn free_async(&self, address: u64, stream: RawStream) -> Answer<()>;
    /// Page-locked host memory, visible to all devices under its host address.
    fn host_alloc(&self, bytes: u64) -> Answer<u64>;
    fn host_free(&self, address: u64) -> Answer<()>;
    fn managed_alloc(&self, bytes: u64) -> Answer<u64>;
    /// `device` -1 is the host.
    fn prefetch(&self, address: u64, bytes: u64, device: Dev, stream: RawStream) -> Answer<()>;
    fn advise(&self, address: u64, bytes: u64, advice: u32, device: Dev) -> Answer<()>;

    /// The minimum granularity of the device's page memory.
    fn granularity(&self, device: Dev) -> Answer<u64>;
    fn reserve(&self, bytes: u64, align: u64) -> Answer<u64>;
    fn unreserve(&self, address: u64, bytes: u64) -> Answer<()>;
    fn create(&self, bytes: u64, device: Dev, exportable: bool) -> Answer<RawMemory>;
    fn release(&self, memory: RawMemory) -> Answer<()>;
    fn map(&self, address: u64, bytes: u64, memory: RawMemory) -> Answer<()>;
    fn unmap(&self, address: u64, bytes: u64) -> Answer<()>;
    /// Read and write access to the range for every device of the list.
    fn set_access(&self, address: u64, bytes: u64, devices: &[Dev]) -> Answer<()>;
    /// A new posix file descriptor of a memory object.
    fn export(&self, memory: RawMemory) -> Answer<i32>;
    fn import(&self, descriptor: i32) -> Answer<RawMemory>;

    fn stream_create(&self, high_priority: bool) -> Answer<RawStream>;
    fn stream_destroy(&self, stream: RawStream) -> Answer<()>;
    fn stream_context(&self, stream: RawStream) -> Answer<RawContext>;
    fn stream_synchronize(&self, stream: RawStream) -> Answer<()>;
    fn stream_wait(&self, stream: RawStream, event: RawEvent) -> Answer<()>;
    fn capture_state(&self, stream: RawStream) -> Answer<CaptureState>;

    fn event_create(&self, timed: bool) -> Answer<RawEvent>;
    fn event_destroy(&self, event: RawEvent) -> Answer<()>;
    fn event_record(&self, event: RawEvent, stream: RawStream) -> Answer<()>;
    /// Records behind all work of the context.
    fn event_record_all(&self, event: RawEvent, context: RawContext) -> Answer<()>;
    /// Whether the event's work is done.
    fn event_query(&self, event: RawEvent) -> Answer<bool>;
    /// Milliseconds between two timed events.
    fn event_elapsed(&self, start: RawEvent, end: RawEvent) -> Answer<f32>;

    fn copy(&self, to: u64, from: u64, bytes: u64, stream: RawStream) -> Answer<()>;
    fn fill(&self, to: u64, word: u32, words: u64, stream: RawStream) -> Answer<()>;

    /// Loads PTX (ending in a zero byte) or cubin.
    fn module_load(&self, image: &[u8]) -> Answer<RawModule>;
    fn module_unload(&self, module: RawModule) -> Answer<()>;
    fn function(&self, module: RawModule, name: &str) -> Answer<RawFunction>;
    /// Allows more dynamic shared memory than the 48 KiB that every kernel has.
    fn allow_shared(&self, function: RawFunction, bytes: u32) -> Answer<()>;
    fn launch(&self, launch: &Launch<'_>, stream: RawStream) -> Answer<()>;
}
