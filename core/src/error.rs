//! What can go wrong, and what to do about it.
//!
//! All errors are small `Copy` values: numbers instead of strings, no backtrace, nothing to free.
//! [`DeviceError`] is what a backend answers; [`Error`] is what the allocator's callers see.
//! [`Error::is_transient`] tells whether the same call can succeed later without a change by the
//! caller.

use crate::kind::MemoryKind;

/// Why a device could not do what it was asked.
///
/// Only conditions that a caller can not know beforehand are here; calls that break the contract
/// of [`Device`](crate::device::Device) (a foreign id, a range outside its space) are answered
/// with [`InvalidCall`](Self::InvalidCall) and name a bug in the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The driver has no memory for this object now. Transient: give memory back and ask again.
    #[error("the driver refused {bytes} bytes of memory: free some, or ask for less")]
    OutOfMemory {
        /// Bytes of the object that was refused.
        bytes: u64,
    },
    /// The number of memory objects or mappings that the device allows is used up.
    #[error("all {limit} memory objects or mappings are in use: use larger segments, or free some")]
    TooManyObjects {
        /// The device's limit.
        limit: u64,
    },
    /// One object would be larger than the device allows. Permanent for this size.
    #[error("an object of {bytes} bytes exceeds the device's limit of {limit}: split it")]
    TooLarge {
        /// Bytes asked for.
        bytes: u64,
        /// The device's limit in bytes.
        limit: u64,
    },
    /// The address space that can be reserved is used up. Transient.
    #[error("no address space for {bytes} bytes: release segments first")]
    OutOfAddressSpace {
        /// Bytes of address space asked for.
        bytes: u64,
    },
    /// The device or its driver is gone. Permanent: drop everything and open the device anew.
    #[error("the device is lost: drop its allocators and open it again")]
    Lost,
    /// The device has no such capability; [`Caps`](crate::device::Caps) says so beforehand.
    #[error("the device does not support {0}: look at its capabilities first")]
    Unsupported(Feature),
    /// The stream is not one of this device, or was retired.
    #[error("no such stream on this device, or it was retired")]
    UnknownStream,
    /// A graph is being captured and the call would break the capture. Transient.
    #[error("a stream is being captured: end the capture first")]
    Capturing,
    /// The process was forked after the device was opened. Permanent in this process.
    #[error("the device was opened before a fork: open it in the child")]
    AfterFork,
    /// A kernel on this stream panicked or faulted; the stream accepts no more work.
    #[error("a kernel failed on this stream: retire the stream, its results are undefined")]
    StreamPoisoned,
    /// The call breaks the contract of the device; a bug in the caller.
    #[error("invalid call: {0}")]
    InvalidCall(&'static str),
    /// The device answered what its contract excludes: a bug in its backend or its driver.
    /// Permanent.
    #[error("the device breaks its contract: {0}; its driver or backend needs mending")]
    Contract(&'static str),
    /// The driver failed with a code of its own.
    #[error("the driver failed with code {code} in {call}")]
    Driver {
        /// The name of the driver's function.
        call: &'static str,
        /// The driver's result code.
        code: i32,
    },
}

impl DeviceError {
    /// Whether giving memory, objects or addresses back can make the same call succeed.
    pub const fn is_shortage(self) -> bool {
        matches!(
            self,
            Self::OutOfMemory { .. } | Self::TooManyObjects { .. } | Self::OutOfAddressSpace { .. }
        )
    }
}

/// A capability that a device may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Feature {
    #[error("paging")]
    Paging,
    #[error("compute")]
    Compute,
    #[error("host mapping of this memory")]
    HostMapping,
    #[error("view objects")]
    Views,
    #[error("this kernel language")]
    KernelLanguage,
    #[error("export of memory")]
    Export,
    #[error("stream capture")]
    Capture,
    #[error("this memory kind")]
    MemoryKind,
    #[error("device timestamps")]
    Timestamps,
    #[error("device addresses")]
    Addresses,
    #[error("prefetch and advice")]
    Advice,
    #[error("this use of a buffer")]
    Usage,
}

/// Why a request for memory failed for want of memory: the state at that moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shortage {
    /// Bytes that had to be found: the request after rounding.
    pub asked: u64,
    /// Largest free range of the pools that could serve the request, in bytes.
    pub largest_free: u64,
    /// All free bytes of those pools.
    pub total_free: u64,
    /// Bytes freed but still ordered behind work.
    pub pending: u64,
    /// Bytes of memory objects held by the allocator.
    pub reserved: u64,
    /// Bytes that the budget still allows.
    pub budget_left: u64,
}

/// Why the allocator did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A request of zero bytes. Permanent: ask for at least one byte.
    #[error("a request of zero bytes: ask for at least one")]
    ZeroSize,
    /// The alignment is not a power of two. Permanent.
    #[error("alignment {align} is no power of two")]
    BadAlign {
        /// The alignment asked for.
        align: u64,
    },
    /// More than the device can ever give in one block. Permanent for this size.
    #[error(
        "{asked} bytes exceed what the device can give in one block, {limit}: split the request"
    )]
    OverDeviceLimit {
        /// Bytes asked for.
        asked: u64,
        /// The most one block can have, in bytes.
        limit: u64,
    },
    /// A limit that the user set would be passed. Transient: free memory or raise the limit.
    #[error("{asked} more bytes would pass the limit of {limit} set by the user ({used} in use)")]
    OverUserLimit {
        /// Bytes asked for.
        asked: u64,
        /// Bytes that count against the limit now.
        used: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The device's number of memory objects is used up and none of them has room. Transient.
    #[error(
        "all {limit} memory objects are in use and none has room: free blocks or use larger segments"
    )]
    TooManyObjects {
        /// The device's limit.
        limit: u64,
    },
    /// A binding is larger than a kernel of the user's can be given. Permanent for this size.
    #[error("a binding of {bytes} bytes exceeds the device's {limit}: bind it in windows")]
    BindingTooLarge {
        /// Bytes of the binding.
        bytes: u64,
        /// The largest binding in bytes.
        limit: u64,
    },
    /// Nothing could serve the request, after every remedy that the request allowed. Transient.
    #[error(
        "out of memory: {} bytes asked, largest free {}, free {}, pending {}, reserved {}, budget left {}",
        .0.asked, .0.largest_free, .0.total_free, .0.pending, .0.reserved, .0.budget_left
    )]
    OutOfMemory(Shortage),
    /// Memory would be there after a wait that the request does not allow. Transient.
    #[error(
        "{asked} bytes are there only after a wait, which the request forbids: allow one, or ask later"
    )]
    WouldWait {
        /// Bytes asked for, after rounding.
        asked: u64,
    },
    /// The wait that the request allows has passed. Transient.
    #[error("{asked} bytes were not free within the time allowed: wait longer, or free memory")]
    TimedOut {
        /// Bytes asked for, after rounding.
        asked: u64,
    },
    /// Memory ran out while a graph is captured, when nothing may be waited for or given back.
    #[error(
        "out of memory during a capture, which forbids every remedy: end it, or warm the pool first"
    )]
    OutOfMemoryInCapture(Shortage),
    /// The device has no memory of this kind. Permanent.
    #[error("the device has no {0} memory")]
    NoSuchKind(MemoryKind),
    /// The handle was made by another allocator.
    #[error("the handle belongs to another allocator")]
    ForeignHandle,
    /// The block was freed and its slot names another block by now.
    #[error("the handle is stale: its block was freed long ago")]
    StaleHandle,
    /// The block was freed before.
    #[error("the block was freed already")]
    DoubleFree,
    /// The block was freed; a handle to it can not be used any more.
    #[error("the block was freed: its handle can not be used")]
    UseAfterFree,
    /// The block is held in place (pinned, mapped or in an open submission). Transient.
    #[error("the block is held by a guard: drop the guard first")]
    Held,
    /// The block is paused: its memory is with the device. Transient.
    #[error("the block is paused and has no memory: resume it first")]
    Paused,
    /// A range lies outside its block. Permanent.
    #[error("offset {offset} and {bytes} bytes lie outside the block of {block} bytes")]
    OutOfRange {
        /// First byte of the range in the block.
        offset: u64,
        /// Bytes of the range.
        bytes: u64,
        /// Bytes of the block.
        block: u64,
    },
    /// No live block of the table has this address. Permanent.
    #[error("no live block at address {address:#x}: it was freed, or is another allocator's")]
    UnknownAddress {
        /// The address.
        address: u64,
    },
    /// The block's neighbour is not free, so it can not grow where it is. Transient.
    #[error("the block can not grow in place: allocate anew and copy")]
    NoRoomToGrow,
    /// A name table is full (2^32 - 1 blocks, or 65,535 tags). Permanent.
    #[error("a name table of the allocator is full")]
    TableFull,
    /// A callback of the user's panicked; the allocator is sound, the request was not served.
    #[error("a hook panicked: the request was given up")]
    HookPanicked,
    /// `TERRANE_CHECKS` names something that is no check. Permanent: correct the variable, see
    /// [`Checks`](crate::Checks).
    #[error("TERRANE_CHECKS names an unknown check: see the documentation of `Checks`")]
    UnknownCheck,
    /// The configuration switches moves off. Permanent for this allocator.
    #[error("moves are switched off: set `Config::moves` to have blocks moved")]
    MovesOff,
    /// A moved block's checksum differed, so nothing is moved any more. Permanent.
    #[error("moving has stopped, since a moved block's checksum differed: see the pass's report")]
    MovesStopped,
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl Error {
    /// Whether the same call can succeed later, when others free memory or work completes.
    pub const fn is_transient(self) -> bool {
        match self {
            Self::OverUserLimit { .. }
            | Self::TooManyObjects { .. }
            | Self::OutOfMemory(_)
            | Self::WouldWait { .. }
            | Self::TimedOut { .. }
            | Self::OutOfMemoryInCapture(_)
            | Self::Held
            | Self::Paused
            | Self::NoRoomToGrow
            | Self::HookPanicked => true,
            Self::Device(error) => error.is_shortage() || matches!(error, DeviceError::Capturing),
            _ => false,
        }
    }
}
