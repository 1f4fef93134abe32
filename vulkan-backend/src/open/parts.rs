//! The optional parts of Vulkan that the backend can use, and what is lost without each.

use std::ffi::CStr;

/// A feature or an extension that the backend uses where a device has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Part {
    /// `timelineSemaphore` of Vulkan 1.2, the only one that is required.
    TimelineSemaphore,
    /// `bufferDeviceAddress` of Vulkan 1.2.
    BufferDeviceAddress,
    /// `sparseBinding`.
    SparseBinding,
    /// `sparseResidencyBuffer`.
    SparseResidencyBuffer,
    /// `sparseResidencyAliased`.
    SparseResidencyAliased,
    /// `VK_EXT_memory_budget`.
    MemoryBudget,
    /// `VK_EXT_memory_priority` with its feature `memoryPriority`.
    MemoryPriority,
    /// `VK_KHR_external_memory_fd`.
    ExternalMemoryFd,
    /// `shaderInt64`, for users' kernels.
    ShaderInt64,
    /// `VK_EXT_debug_utils`, an extension of the instance.
    DebugUtils,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::TimelineSemaphore,
        Self::BufferDeviceAddress,
        Self::SparseBinding,
        Self::SparseResidencyBuffer,
        Self::SparseResidencyAliased,
        Self::MemoryBudget,
        Self::MemoryPriority,
        Self::ExternalMemoryFd,
        Self::ShaderInt64,
        Self::DebugUtils,
    ];

    /// The name of the feature or extension.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TimelineSemaphore => "timelineSemaphore",
            Self::BufferDeviceAddress => "bufferDeviceAddress",
            Self::SparseBinding => "sparseBinding",
            Self::SparseResidencyBuffer => "sparseResidencyBuffer",
            Self::SparseResidencyAliased => "sparseResidencyAliased",
            Self::MemoryBudget => "VK_EXT_memory_budget",
            Self::MemoryPriority => "VK_EXT_memory_priority",
            Self::ExternalMemoryFd => "VK_KHR_external_memory_fd",
            Self::ShaderInt64 => "shaderInt64",
            Self::DebugUtils => "VK_EXT_debug_utils",
        }
    }

    /// The device extension that has to be enabled for it, if any.
    pub const fn extension(self) -> Option<&'static CStr> {
        match self {
            Self::MemoryBudget => Some(ash::ext::memory_budget::NAME),
            Self::MemoryPriority => Some(ash::ext::memory_priority::NAME),
            Self::ExternalMemoryFd => Some(ash::khr::external_memory_fd::NAME),
            _ => None,
        }
    }

    /// Whether the backend can not work without it.
    pub const fn is_required(self) -> bool {
        matches!(self, Self::TimelineSemaphore)
    }

    /// What is lost without it.
    pub const fn without(self) -> &'static str {
        match self {
            Self::TimelineSemaphore => "nothing works: sync points are timeline semaphores",
            Self::BufferDeviceAddress => {
                "blocks have no device address, and gathers use bindings instead of addresses"
            }
            Self::SparseBinding | Self::SparseResidencyBuffer | Self::SparseResidencyAliased => {
                "no paging: segments are plain memory objects and compaction copies"
            }
            Self::MemoryBudget => "what other processes use of a heap is not known",
            Self::MemoryPriority => "the priorities of segments are ignored",
            Self::ExternalMemoryFd => "memory can not be exported",
            Self::ShaderInt64 => "kernels can not use 64-bit integers",
            Self::DebugUtils => "objects have no names in debuggers",
        }
    }
}

/// A set of [`Part`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts(u16);

impl Parts {
    /// Whether the set has `part`.
    pub const fn has(self, part: Part) -> bool {
        self.0 & (1 << part as u16) != 0
    }

    /// The set with `part`.
    #[must_use]
    pub const fn with(self, part: Part) -> Self {
        Self(self.0 | 1 << part as u16)
    }

    /// The set without `part`.
    #[must_use]
    pub const fn without(self, part: Part) -> Self {
        Self(self.0 & !(1 << part as u16))
    }

    /// The parts, in order.
    pub fn iter(self) -> impl Iterator<Item = Part> {
        Part::ALL.into_iter().filter(move |part| self.has(*part))
    }

    /// Whether pages can be mapped: all three sparse features.
    pub const fn can_page(self) -> bool {
        self.has(Part::SparseBinding)
            && self.has(Part::SparseResidencyBuffer)
            && self.has(Part::SparseResidencyAliased)
    }
}

impl FromIterator<Part> for Parts {
    fn from_iter<I: IntoIterator<Item = Part>>(parts: I) -> Self {
        parts.into_iter().fold(Self::default(), Self::with)
    }
}
