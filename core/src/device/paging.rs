//! Spaces backed page by page: the power behind near-zero fragmentation.

use super::{ClassId, DeviceError, Place, SpaceId, SyncPoint};

/// A memory object that pages are mapped from, named by the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemoryId(pub u64);

/// One mapping to make: `bytes` of a memory object appear at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapOp {
    /// Where the page appears. Nothing is mapped there.
    pub at: Place,
    /// The memory object.
    pub memory: MemoryId,
    /// First byte of it: 0 where [`PagingCaps::whole_objects`](super::PagingCaps::whole_objects).
    pub memory_offset: u64,
    /// Bytes, a multiple of the page granularity.
    pub bytes: u64,
}

/// One mapping to drop: exactly the range of an earlier [`MapOp`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnmapOp {
    /// Where the page appears.
    pub at: Place,
    /// Bytes of the mapping.
    pub bytes: u64,
}

/// Reserving address space and mapping memory objects into it.
///
/// All sizes and offsets are multiples of [`PagingCaps::granularity`](super::PagingCaps).
/// One page may be mapped at two places at once; the two agree only across completed launches
/// ordered by stream, sync point or host wait.
pub trait Paging {
    /// Reserves a space with nothing mapped.
    ///
    /// # Errors
    /// [`DeviceError::OutOfAddressSpace`], [`DeviceError::TooLarge`].
    fn reserve(&self, class: ClassId, bytes: u64) -> Result<Reserved, DeviceError>;

    /// Gives a space back. Pre: nothing is mapped in it and no work uses it.
    ///
    /// # Errors
    /// [`DeviceError::InvalidCall`].
    fn unreserve(&self, space: SpaceId) -> Result<(), DeviceError>;

    /// Makes a memory object to map pages from. Contents are undefined.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::TooManyObjects`], [`DeviceError::TooLarge`].
    fn create(&self, class: ClassId, bytes: u64, exportable: bool)
    -> Result<MemoryId, DeviceError>;

    /// Gives a memory object back. Pre: all its mappings were dropped. Where that is ordered behind
    /// work ([`PagingCaps::stream_ordered`](super::PagingCaps)) and not done yet, the device keeps
    /// the object until it is.
    ///
    /// # Errors
    /// [`DeviceError::InvalidCall`].
    fn release(&self, memory: MemoryId) -> Result<(), DeviceError>;

    /// Makes all mappings of `ops`, or none of them, once `after` is reached.
    ///
    /// Post: work that starts after the returned point (with `None`: any work submitted after
    /// the return) may use the ranges. A device whose
    /// [`PagingCaps::stream_ordered`](super::PagingCaps) is false maps at once and is called with
    /// `after` reached already, or empty where the new place may be mapped while the old one is
    /// in use.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], [`DeviceError::TooManyObjects`]; nothing is mapped then.
    fn map(&self, ops: &[MapOp], after: &[SyncPoint]) -> Result<Option<SyncPoint>, DeviceError>;

    /// Drops all mappings of `ops` once `after` is reached. A device whose
    /// [`PagingCaps::stream_ordered`](super::PagingCaps) is false is called when `after` is
    /// reached already.
    ///
    /// # Errors
    /// [`DeviceError::InvalidCall`] for a range that is no mapping.
    fn unmap(&self, ops: &[UnmapOp], after: &[SyncPoint])
    -> Result<Option<SyncPoint>, DeviceError>;
}

/// A reserved space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// The space, from offset 0 to the bytes asked for.
    pub space: SpaceId,
    /// The device address of offset 0, where the device has addresses.
    pub address: Option<u64>,
}
