//! Memory kinds: what memory is for, whatever the API calls it.

use std::fmt;

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryKind {
    /// Fastest for the device; the host may not see it.
    Device,
    /// Written by the host, read by the device.
    Upload,
    /// Written by the device, read by the host.
    Readback,
    /// Used by both without explicit copies: unified or managed memory.
    Shared,
}

impl MemoryKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Device, Self::Upload, Self::Readback, Self::Shared];

    /// The kind's name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Upload => "upload",
            Self::Readback => "readback",
            Self::Shared => "shared",
        }
    }
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
