//! The contract between the allocator and a device. The only module a backend's author must read.
//!
//! # The shape
//! A [`Device`] gives out memory and runs work; it decides nothing. Pools, budgets, reuse, order
//! and moves are the allocator's. A backend translates each method into its driver's calls and
//! answers with plain data. Three optional powers are traits of their own, reached through
//! [`Device::paging`], [`Device::compute`] and [`Device::host_access`]; claiming one in [`Caps`]
//! makes it mandatory.
//!
//! # Rules for every method
//! - **Threads.** Any method may be called from any thread at any time, also two at once on the
//!   same stream. A backend may hold one leaf lock per queue and must not call back.
//! - **Blocking.** Only [`Device::wait_any`] waits for work. Nothing else waits for submitted
//!   work, though a driver call may take its time.
//! - **Errors** cover what the caller can not know beforehand. After an error nothing has
//!   changed, unless it is [`DeviceError::Lost`], after which every method answers `Lost` and
//!   releasing things stays allowed, does nothing and answers `Ok`.
//! - **Ids** are the backend's; they are never reused while the device lives, so that a late
//!   call with a dead id is answered with [`DeviceError::InvalidCall`], never with another
//!   object's data.
//! - **Order.** Work submitted to one stream runs in submission order. Work on different streams
//!   is ordered only by [`Device::wait_on_stream`]. Completed work is visible to work that starts
//!   after its sync point, on every stream and, for host-visible memory, to the host.
//!
//! # Streams and sync points
//! Every submission returns the [`SyncPoint`] of that submission; values on a stream grow by at
//! least one per submission. [`Device::mark`] gives a point that covers all that was submitted to
//! the stream so far, by anyone: for a stream of our own it is the last submission's point, for a
//! wrapped foreign stream it opens a new value whose driver event is recorded at the latest when
//! somebody asks about it (recording late is allowed: it only covers more). `mark` makes no
//! driver call. A point stays valid after its stream is retired: it is reached once that work is
//! done.
//!
//! # Memory
//! A *memory object* is what the driver hands out. A *space* is an address range that can be
//! used by work: a plain segment is one memory object and one space, born and gone together; a
//! paged segment is a space whose pages are mapped from memory objects (see [`Paging`]). All work
//! names memory by [`Place`]: a space and an offset.

pub mod calls;
mod caps;
mod compute;
pub mod host;
mod mapping;
mod paging;
pub mod pattern;
#[cfg(test)]
mod random_tests;
pub mod rules;
pub mod sim;
pub mod wrap;

use std::time::Duration;

pub use caps::{Caps, Class, ClassId, Costs, DeviceInfo, Heap, HeapId, Line, PagingCaps};
pub use compute::{
    Access, Binding, Compute, KernelId, KernelSource, Region, Report, Ticket, UnsafeKernelSource,
};
pub use paging::{MapOp, MemoryId, Paging, Reserved, UnmapOp};

pub use crate::error::{DeviceError, Feature};
pub use crate::kind::MemoryKind;
pub use crate::point::{Points, StreamId, SyncPoint};

/// An address range on a device, named by the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceId(pub u64);

/// A byte on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The address range.
    pub space: SpaceId,
    /// Bytes from its start.
    pub offset: u64,
}

/// What a plain segment is to be.
#[derive(Clone, Copy, Debug)]
pub struct PlainSpec<'a> {
    /// The memory class, an index into [`Caps::classes`].
    pub class: ClassId,
    /// Bytes, a multiple of [`Caps::plain_granularity`].
    pub bytes: u64,
    /// Whether other processes or APIs may import it.
    pub exportable: bool,
    /// 0.0 to 1.0: what to keep on the device when the driver runs short. 0.5 is usual.
    pub priority: f32,
    /// A name for debuggers.
    pub name: &'a str,
}

/// A plain segment: one memory object and the space over all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// The space, from offset 0 to `bytes`.
    pub space: SpaceId,
    /// Bytes usable and bytes counted as reserved: at least what was asked for.
    pub bytes: u64,
    /// The device address of offset 0, where the device has addresses.
    pub address: Option<u64>,
}

/// What a stream is to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamSpec {
    /// Prefer a queue that only copies, where there is one.
    pub copy_only: bool,
    /// Ahead of other streams where the device can: for short work beside long work.
    pub high_priority: bool,
}

/// Bytes to copy between two places. Source and destination do not overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyOp {
    /// Where to read.
    pub from: Place,
    /// Where to write.
    pub to: Place,
    /// Bytes, a multiple of 4; both offsets are multiples of 4 too.
    pub bytes: u64,
}

/// Memory of a heap as the driver sees it now, for the whole machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapUse {
    /// Bytes of the heap.
    pub total: u64,
    /// Bytes that this process can expect to get, beside what it has.
    pub free: u64,
    /// Bytes that this process holds by all means, where the driver tells.
    pub process: Option<u64>,
}

/// A graphics or compute device, or a model of one. See the module's text for the rules.
pub trait Device: Send + Sync + 'static {
    /// Name, driver and identity. Constant.
    fn info(&self) -> &DeviceInfo;

    /// What the device can do and its limits. Constant.
    fn caps(&self) -> &Caps;

    /// A monotonic clock in nanoseconds; a model's is virtual.
    fn now_ns(&self) -> u64;

    /// What the driver says of a heap now.
    ///
    /// # Errors
    /// [`DeviceError::InvalidCall`] for an unknown heap.
    fn heap_use(&self, heap: HeapId) -> Result<HeapUse, DeviceError>;

    /// Makes a memory object and the space over it.
    ///
    /// Post: the contents are undefined; the base is aligned to at least
    /// [`Caps::plain_base_align`].
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::TooManyObjects`], [`DeviceError::TooLarge`].
    fn create_plain(&self, spec: &PlainSpec<'_>) -> Result<Plain, DeviceError>;

    /// Gives a plain segment back. Pre: no work uses it any more.
    ///
    /// # Errors
    /// [`DeviceError::InvalidCall`] when the space is no plain segment of this device.
    fn release_plain(&self, space: SpaceId) -> Result<(), DeviceError>;

    /// Makes a stream.
    ///
    /// # Errors
    /// The driver's.
    fn create_stream(&self, spec: StreamSpec) -> Result<StreamId, DeviceError>;

    /// Ends a stream: work submitted so far still completes, points on it stay valid, more work
    /// is answered with [`DeviceError::UnknownStream`]. A wrapped stream's handle is no longer
    /// used after this returns.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`].
    fn retire_stream(&self, stream: StreamId) -> Result<(), DeviceError>;

    /// Whether others submit work to this stream too, so that only [`mark`](Self::mark) covers it.
    fn is_foreign(&self, stream: StreamId) -> bool {
        let _ = stream;
        false
    }

    /// A point that covers all work submitted to the stream so far. No driver call.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`].
    fn mark(&self, stream: StreamId) -> Result<SyncPoint, DeviceError>;

    /// The largest value on the stream known to be reached; asks the driver, never waits.
    /// For a retired stream this is the value that covers all of its work, once that is done.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`] for a stream that never was; [`DeviceError::Capturing`]
    /// when a capture forbids asking.
    fn reached(&self, stream: StreamId) -> Result<u64, DeviceError>;

    /// Makes work submitted to `stream` from now on start after `points`. Never waits on the
    /// host. Points of `stream` itself and reached points cost nothing.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`].
    fn wait_on_stream(&self, stream: StreamId, points: &[SyncPoint]) -> Result<(), DeviceError>;

    /// Waits on the host until one of `points` is reached or `timeout` has passed; tells whether
    /// one was. With no points it answers `false` after the time.
    ///
    /// # Errors
    /// [`DeviceError::Capturing`] when a capture forbids waiting.
    fn wait_any(&self, points: &[SyncPoint], timeout: Duration) -> Result<bool, DeviceError>;

    /// Copies all of `ops` as one submission, in no order among them.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`], [`DeviceError::InvalidCall`].
    fn copy(&self, stream: StreamId, ops: &[CopyOp]) -> Result<SyncPoint, DeviceError>;

    /// Writes `word` to every 4 bytes of the range. Offset and bytes are multiples of 4.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`], [`DeviceError::InvalidCall`].
    fn fill(
        &self,
        stream: StreamId,
        place: Place,
        bytes: u64,
        word: u32,
    ) -> Result<SyncPoint, DeviceError>;

    /// Copies host bytes to a place in stream order. `data` may be reused when this returns.
    ///
    /// # Errors
    /// [`DeviceError::UnknownStream`], [`DeviceError::InvalidCall`], and
    /// [`DeviceError::OutOfMemory`] when no staging memory can be had.
    fn write(&self, stream: StreamId, place: Place, data: &[u8]) -> Result<SyncPoint, DeviceError>;

    /// Copies a range to the host in stream order. The bytes come by
    /// [`take_read`](Self::take_read) once the ticket's point is reached.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn read(&self, stream: StreamId, place: Place, bytes: u64) -> Result<Ticket, DeviceError>;

    /// The bytes of a finished [`read`](Self::read); each ticket is taken once.
    ///
    /// # Errors
    /// [`DeviceError::InvalidCall`] when the ticket's point is not reached or was taken.
    fn take_read(&self, ticket: Ticket) -> Result<Vec<u8>, DeviceError>;

    /// [`copy`](Self::copy), or [`Compute::gather`] where `by_kernel` says so, with the device's
    /// own times of its start and its end. They come by [`take_times`](Self::take_times) once the
    /// ticket's point is reached, which is the copies' point.
    ///
    /// # Errors
    /// Those of the method that is meant; [`DeviceError::Unsupported`] where the device or the
    /// stream's queue tells no time.
    fn copy_timed(
        &self,
        stream: StreamId,
        ops: &[CopyOp],
        by_kernel: bool,
    ) -> Result<Ticket, DeviceError> {
        let _ = (stream, ops, by_kernel);
        Err(DeviceError::Unsupported(Feature::Timestamps))
    }

    /// Start and end of finished copies in nanoseconds, on a clock that is good for differences
    /// only; each ticket is taken once.
    ///
    /// # Errors
    /// [`DeviceError::InvalidCall`] when the ticket's point is not reached or was taken.
    fn take_times(&self, ticket: Ticket) -> Result<[u64; 2], DeviceError> {
        let _ = ticket;
        Err(DeviceError::Unsupported(Feature::Timestamps))
    }

    /// The capture that the stream takes part in, if any. Cheap; no driver call where the device
    /// has no capture.
    fn capture_of(&self, stream: StreamId) -> Option<CaptureId> {
        let _ = stream;
        None
    }

    /// Whether any capture is open on the device, so that nothing may be waited for, asked or
    /// given back.
    fn is_capturing(&self) -> bool {
        false
    }

    /// Makes an API object (on Vulkan a `VkBuffer`) over exactly this range.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] where [`Caps::views`] is false.
    fn create_view(&self, place: Place, bytes: u64) -> Result<View, DeviceError> {
        let _ = (place, bytes);
        Err(DeviceError::Unsupported(Feature::Views))
    }

    /// Destroys a view. Pre: no work uses it any more.
    ///
    /// # Errors
    /// [`DeviceError::InvalidCall`] for an unknown view.
    fn destroy_view(&self, view: View) -> Result<(), DeviceError> {
        let _ = view;
        Err(DeviceError::Unsupported(Feature::Views))
    }

    /// The power to map pages, exactly when [`Caps::paging`] says so.
    fn paging(&self) -> Option<&dyn Paging> {
        None
    }

    /// The power to run kernels, exactly when [`Caps::compute`] says so.
    fn compute(&self) -> Option<&dyn Compute> {
        None
    }

    /// The power to let the host see memory, exactly when some class is host-visible.
    fn host_access(&self) -> Option<&dyn HostAccess> {
        None
    }
}

/// A stream capture (a CUDA graph being recorded), named by the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CaptureId(pub u64);

/// An API object made over a range: on Vulkan the raw value of a `VkBuffer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct View(pub u64);

/// Host access to memory whose [`Class`] is host-visible.
pub trait HostAccess {
    /// The bytes of a range as the host sees them.
    ///
    /// Pre, kept by the allocator: no submitted work uses the range until the view is dropped,
    /// and no other view of it exists, so the backend may hand out plain slices. The view makes
    /// device writes visible when made and host writes visible when dropped (invalidate and
    /// flush, where memory is not coherent).
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] when the class is not host-visible.
    fn view(&self, place: Place, bytes: u64) -> Result<Box<dyn HostView>, DeviceError>;

    /// The address at which the host sees `place` for as long as its segment lives; for
    /// persistent mapping, where the user orders host and device accesses. Null never.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] when the class is not host-visible.
    fn pointer(&self, place: Place) -> Result<std::ptr::NonNull<u8>, DeviceError>;

    /// Makes host writes through [`pointer`](Self::pointer) visible to work submitted later.
    ///
    /// # Errors
    /// The driver's.
    fn flush(&self, place: Place, bytes: u64) -> Result<(), DeviceError>;

    /// Makes device writes of completed work visible through [`pointer`](Self::pointer).
    ///
    /// # Errors
    /// The driver's.
    fn invalidate(&self, place: Place, bytes: u64) -> Result<(), DeviceError>;
}

/// Bytes of device memory seen by the host while this lives.
pub trait HostView: Send {
    /// To read.
    fn bytes(&self) -> &[u8];
    /// To write.
    fn bytes_mut(&mut self) -> &mut [u8];
}
