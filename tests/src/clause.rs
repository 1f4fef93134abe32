//! What a clause is.

use terrane_core::Error;
use terrane_core::device::DeviceError;

use crate::rig::Rig;

/// One sentence of the contract, and how to try it.
#[derive(Clone, Copy)]
pub struct Clause {
    /// Its name, `area.what`, never used for anything else.
    pub id: &'static str,
    /// What has to hold.
    pub sentence: &'static str,
    /// Whether it is about the device or about the allocator on it.
    pub level: Level,
    /// What the device has to offer for it; without that it is skipped.
    pub needs: &'static [Need],
    /// Where the rule is written.
    pub reference: &'static str,
    /// Where to look first when it fails.
    pub blames: Blame,
    /// Tries it.
    pub run: fn(&Rig) -> Outcome,
}

impl std::fmt::Debug for Clause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.id, self.sentence)
    }
}

/// What a clause is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The device alone.
    Device,
    /// The allocator on the device.
    Allocator,
}

/// Where the cause of a failure most likely is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The driver under the backend.
    Driver,
    /// The backend.
    Backend,
    /// Terrane's core.
    Core,
}

/// What a clause needs of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// `Device::compute`.
    Compute,
    /// A language that the suite has user kernels in.
    UserKernels,
    /// A language whose kernels can not reach beyond their bindings.
    CheckedKernels,
    /// Kernels that are closures on the host.
    HostKernels,
    /// `Device::paging`.
    Paging,
    /// `Device::paging` that changes mappings at once.
    PagingAtOnce,
    /// `Device::paging` that changes mappings in stream order.
    PagingInOrder,
    /// A class that the host can map.
    HostVisible,
    /// A class that the host can not map.
    HostInvisible,
    /// View objects.
    Views,
    /// Device addresses.
    Addresses,
    /// Work that is done when the test says so, on one stream without holding up the others.
    Busy,
    /// A device that counts what it gives out against its heap.
    CountedHeap,
    /// Stream capture that the suite can begin.
    Capture,
    /// A model that can be lost on demand.
    Losable,
    /// A stream of another API that the suite can wrap and put work into.
    Wrapped,
    /// Memory that can be exported.
    Export,
    /// Exported memory that the suite can open.
    Import,
    /// A second device of the same sort.
    Several,
    /// A process that can be forked, and a device that its child must not use.
    Fork,
}

impl Need {
    /// The reason for which a clause is skipped.
    pub const fn lacking(self) -> &'static str {
        match self {
            Self::Compute => "the device has no compute",
            Self::UserKernels => "the suite has no kernel in this device's language",
            Self::CheckedKernels => "kernels in this device's language are not checked",
            Self::HostKernels => "the device runs no closures",
            Self::Paging => "the device does not page",
            Self::PagingAtOnce => "the device does not change mappings at once",
            Self::PagingInOrder => "the device does not change mappings in stream order",
            Self::HostVisible => "no memory class is host-visible",
            Self::HostInvisible => "every memory class is host-visible",
            Self::Views => "the device has no view objects",
            Self::Addresses => "the device has no addresses",
            Self::Busy => "the suite can not keep one stream of this device busy at will",
            Self::CountedHeap => "what the device gives out is not bounded by its heap",
            Self::Capture => "the device captures no streams, or the suite can not begin to",
            Self::Losable => "the device can not be lost on demand",
            Self::Wrapped => "the device wraps no streams, or the suite has none to wrap",
            Self::Export => "the device does not export memory",
            Self::Import => "the device exports no memory, or the suite can not open it",
            Self::Several => "the suite has one device of this sort",
            Self::Fork => "the device belongs to no process, or the system does not fork",
        }
    }
}

/// What trying a clause gives.
pub type Outcome = Result<(), Stop>;

/// Why a clause did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It does not hold, and how that showed.
    Failed(String),
    /// It could not be tried, and why.
    Skipped(String),
}

impl Stop {
    /// A failure with its text.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }
}

impl From<DeviceError> for Stop {
    #[track_caller]
    fn from(error: DeviceError) -> Self {
        Self::Failed(format!("the device answered `{error}` at {}", at()))
    }
}

impl From<Error> for Stop {
    #[track_caller]
    fn from(error: Error) -> Self {
        Self::Failed(format!("the allocator answered `{error}` at {}", at()))
    }
}

#[track_caller]
fn at() -> String {
    let caller = std::panic::Location::caller();
    let file = caller.file().rsplit('/').next().unwrap_or_default();
    format!("{file}:{}", caller.line())
}

/// Fails with a text unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err($crate::Stop::failed(format!($($text)+)));
        }
    };
}

/// Fails unless what was found is what was expected.
macro_rules! equal {
    ($found:expr, $expected:expr, $($text:tt)+) => {{
        let (found, expected) = (&$found, &$expected);
        if found != expected {
            let what = format!($($text)+);
            return Err($crate::Stop::failed(format!("{what}: {found:?}, expected {expected:?}")));
        }
    }};
}

pub(crate) use {ensure, equal};

/// A call that breaks the contract has to be answered with `InvalidCall`.
pub(crate) fn refused<T>(answer: &Result<T, DeviceError>, what: &str) -> Outcome {
    match answer {
        Err(DeviceError::InvalidCall(_)) => Ok(()),
        Err(error) => Err(Stop::failed(format!("{what} was answered with `{error}`"))),
        Ok(_) => Err(Stop::failed(format!("{what} was accepted"))),
    }
}

/// A call has to fail with exactly this error.
pub(crate) fn fails<T, E: PartialEq + std::fmt::Display>(
    answer: &Result<T, E>,
    expected: &E,
    what: &str,
) -> Outcome {
    match answer {
        Err(error) if error == expected => Ok(()),
        Err(error) => Err(Stop::failed(format!("{what}: `{error}`, expected `{expected}`"))),
        Ok(_) => Err(Stop::failed(format!("{what} was accepted, expected `{expected}`"))),
    }
}
