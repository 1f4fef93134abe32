//! Why a replay was given up. A request that is refused for want of memory is no such reason: it
//! is counted.

use terrane_core::device::DeviceError;

/// Why a replay was given up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The device or the allocator could not be made ready.
    #[error("the allocator could not be opened: {0}")]
    Open(terrane_core::Error),
    /// An event could not be replayed, for another reason than want of memory.
    #[error("event {event}: {error}")]
    Event {
        /// Index of the event, from 0.
        event: usize,
        /// What the allocator said.
        error: terrane_core::Error,
    },
    /// An invariant of the allocator does not hold: a bug of ours.
    #[error("event {event}: {violation} (a bug in Terrane: please report it with the trace)")]
    Invariant {
        /// Index of the event after which it was seen.
        event: usize,
        /// The sentence with the id of the invariant.
        violation: String,
    },
    /// Submitted work did not end in time.
    #[error("work on the device did not end within {seconds} s: is it hung?")]
    Hung {
        /// How long it was waited for.
        seconds: u64,
    },
    /// Blocks were to be damaged on a device that can not check contents.
    #[error(
        "contents are not checked on this device, so no block can be damaged: choose one that computes, such as `host`"
    )]
    NothingToCorrupt,
    /// More blocks were to be damaged than there are.
    #[error("{asked} blocks were to be damaged and only {damaged} could be: ask for fewer")]
    CorruptedTooFew {
        /// Blocks to damage.
        asked: u64,
        /// Blocks damaged.
        damaged: u64,
    },
    /// A device for one of many replays could not be opened.
    #[error("no device: {why}")]
    NoDevice {
        /// What was said.
        why: String,
    },
    /// Dry runs of the workload went on needing memory.
    #[error(
        "after {rounds} dry runs the workload still needs new memory: report it with the trace"
    )]
    NotSettled {
        /// Dry runs made.
        rounds: u32,
    },
    /// Sixteen times the peak requested is not enough.
    #[error(
        "the workload does not complete within sixteen times what it asks for: does the device hold as much?"
    )]
    NoCapacity,
    /// The device failed.
    #[error("the device failed: {0}")]
    Device(#[from] DeviceError),
}
