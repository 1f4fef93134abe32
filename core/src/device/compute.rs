//! Running kernels: the user's and the three built-in ones.

use std::sync::Arc;

use super::{CopyOp, DeviceError, Feature, Place, StreamId, SyncPoint};
use crate::device::host::HostKernel;

/// A loaded kernel, named by the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelId(pub u64);

/// The name of a result that comes later, with the point after which it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The backend's number.
    pub id: u64,
    /// The result can be taken once this is reached.
    pub point: SyncPoint,
}

/// One number per region of a [`Compute::verify`] or [`Compute::checksum`].
pub type Report = Vec<u64>;

/// How a kernel uses a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Only reads.
    Read,
    /// Writes, and may read.
    Write,
}

/// A range given to a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// First byte; the offset is a multiple of
    /// [`Caps::binding_align`](super::Caps::binding_align).
    pub place: Place,
    /// Bytes, at most [`Caps::max_binding_bytes`](super::Caps::max_binding_bytes).
    pub bytes: u64,
    /// How the kernel uses it.
    pub access: Access,
}

/// A range with the pattern that it holds or shall hold (see [`super::pattern`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First byte; the offset is a multiple of 4.
    pub place: Place,
    /// Bytes, a multiple of 4, of any size.
    pub bytes: u64,
    /// The pattern's seed.
    pub seed: u64,
}

/// A kernel that can not reach beyond its bindings, so loading and running it is safe.
#[derive(Clone)]
#[non_exhaustive]
pub enum KernelSource {
    /// WGSL: bindings are `@group(0) @binding(0..)` storage buffers in order, push data is
    /// `var<immediate>`. Accesses are checked against the bindings.
    Wgsl {
        /// The module.
        text: Arc<str>,
        /// The compute entry point.
        entry: Arc<str>,
    },
    /// A closure run on the host device, once per workgroup.
    Host(HostKernel),
}

/// A kernel that may hold any address: loading it is a promise.
#[derive(Clone)]
#[non_exhaustive]
pub enum UnsafeKernelSource {
    /// SPIR-V words; bindings are set 0, bindings 0.. in order; push constants from offset 0.
    SpirV {
        /// The module.
        words: Arc<[u32]>,
        /// The compute entry point.
        entry: Arc<str>,
        /// Threads per workgroup are in the module; storage buffers it declares, in order.
        bindings: u32,
        /// Bytes of push constants.
        push_bytes: u32,
    },
    /// PTX or cubin. Parameters are the bindings' addresses (64 bit each), then the push data.
    Cuda {
        /// The image, PTX as text without a trailing zero, or cubin.
        image: Arc<[u8]>,
        /// The kernel's name.
        entry: Arc<str>,
        /// Threads per workgroup.
        threads: [u32; 3],
        /// Dynamic shared memory in bytes.
        shared_bytes: u32,
    },
}

/// Running kernels on a device.
pub trait Compute {
    /// Loads a kernel.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] for another backend's language; [`DeviceError::InvalidCall`]
    /// when the source does not compile (the backend logs the compiler's text by `tracing`).
    fn load(&self, source: &KernelSource) -> Result<KernelId, DeviceError>;

    /// Loads a kernel that is trusted to stay within its bindings.
    ///
    /// # Safety
    /// The kernel, with the bindings and push data it will be given, reads and writes only inside
    /// its bindings.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    #[allow(unsafe_code)] // a declaration: only callers and backends have unsafe code
    unsafe fn load_unchecked(&self, source: &UnsafeKernelSource) -> Result<KernelId, DeviceError>;

    /// Unloads a kernel once submitted work with it is done.
    ///
    /// # Errors
    /// [`DeviceError::InvalidCall`] for an unknown kernel.
    fn unload(&self, kernel: KernelId) -> Result<(), DeviceError>;

    /// Submits one run of a kernel over `groups` workgroups.
    ///
    /// # Errors
    /// [`DeviceError::TooLarge`] for a binding over the limit; [`DeviceError::InvalidCall`] for
    /// wrong counts; [`DeviceError::StreamPoisoned`] after a kernel of this stream failed.
    fn dispatch(
        &self,
        stream: StreamId,
        kernel: KernelId,
        bindings: &[Binding],
        push: &[u8],
        groups: [u32; 3],
    ) -> Result<SyncPoint, DeviceError>;

    /// Writes each region's pattern, as one submission.
    ///
    /// # Errors
    /// As [`dispatch`](Self::dispatch); regions are windowed over the binding limit inside.
    fn fill_pattern(&self, stream: StreamId, regions: &[Region]) -> Result<SyncPoint, DeviceError>;

    /// Counts, per region, the 4-byte words that differ from its pattern.
    ///
    /// # Errors
    /// As [`fill_pattern`](Self::fill_pattern).
    fn verify(&self, stream: StreamId, regions: &[Region]) -> Result<Ticket, DeviceError>;

    /// Computes each region's checksum ([`super::pattern::checksum`]); seeds are not used.
    ///
    /// # Errors
    /// As [`fill_pattern`](Self::fill_pattern).
    fn checksum(&self, stream: StreamId, regions: &[Region]) -> Result<Ticket, DeviceError>;

    /// The numbers of a finished [`verify`](Self::verify) or [`checksum`](Self::checksum); each
    /// ticket is taken once.
    ///
    /// # Errors
    /// [`DeviceError::InvalidCall`] when the ticket's point is not reached or was taken.
    fn take_report(&self, ticket: Ticket) -> Result<Report, DeviceError>;

    /// Copies many ranges by one kernel, no two overlapping. Offsets and bytes are multiples
    /// of 16. Same result as [`Device::copy`](super::Device::copy); a device has both since
    /// either can be the faster.
    ///
    /// # Errors
    /// As [`fill_pattern`](Self::fill_pattern).
    fn gather(&self, stream: StreamId, ops: &[CopyOp]) -> Result<SyncPoint, DeviceError>;

    /// [`gather`](Self::gather) by no more than so many workgroups at a time, at least one, so that
    /// most of the device is left to others.
    ///
    /// # Errors
    /// As [`gather`](Self::gather); [`DeviceError::Unsupported`] where
    /// [`Caps::gather_within`](super::Caps::gather_within) is false.
    fn gather_within(
        &self,
        stream: StreamId,
        ops: &[CopyOp],
        groups: u32,
    ) -> Result<SyncPoint, DeviceError> {
        let _ = (stream, ops, groups);
        Err(DeviceError::Unsupported(Feature::Compute))
    }

    /// Submissions of kernels so far, built-in ones included.
    fn dispatches(&self) -> u64;
}
