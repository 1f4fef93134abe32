//! Terrane's CUDA device, loaded at run time.
//!
//! Building needs no CUDA toolkit and running needs no CUDA: on a machine without NVIDIA's driver
//! [`CudaDevice::open`] and [`devices`] answer with a [`CudaUnavailable`]. Public types carry raw
//! `CUstream` and `CUdeviceptr` values as numbers, so nothing here ties a program to another CUDA
//! crate.

mod calibrate;
mod caps;
mod capture;
mod compute;
mod device;
mod driver;
mod event;
mod fork;
mod host;
mod inner;
pub mod kernels;
mod paging;
mod presence;
mod process;
mod share;
mod space;
mod staging;
mod stream;
#[cfg(test)]
mod tests;
mod timing;

pub use caps::Details;
pub use device::CudaDevice;
pub use driver::{CallStat, calls};
pub use presence::{CudaUnavailable, MIN_DRIVER, Selector, devices};
pub use share::Advice;
pub use timing::Stamp;

/// Where plain device segments come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// `cuMemAlloc`.
    #[default]
    Plain,
    /// The driver's own pool, `cuMemAllocAsync`; where the device has none, as
    /// [`Plain`](Self::Plain).
    DriverPool,
}

/// How to open a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether to offer paging where the device has it. On by default.
    pub paging: bool,
    /// Where plain device segments come from.
    pub source: Source,
    /// Guard mode, to find overruns: every plain device segment ends at an unmapped page, sizes
    /// are multiples of 256 bytes and paging is off. With one block per segment the device faults
    /// at the first access past a block. Slow; off by default. Needs virtual memory.
    pub guard: bool,
    /// Whether the program captures streams into graphs. While it does, every free asks each
    /// stream whose handle the program has; without such streams that costs nothing. A program
    /// that says `false` must not free blocks while a capture that uses them is open. On by
    /// default.
    pub capture: bool,
    /// Whether to measure the costs in [`Caps`](terrane_core::device::Caps) while opening (under
    /// 50 ms) instead of using modelled ones. Off by default.
    pub calibrate: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { paging: true, source: Source::Plain, guard: false, capture: true, calibrate: false }
    }
}

impl Options {
    /// The options with what the device lacks left out.
    pub(crate) fn possible(mut self, details: &Details) -> Self {
        if !details.virtual_memory {
            self.guard = false;
            self.paging = false;
        }
        if !details.memory_pools {
            self.source = Source::Plain;
        }
        self
    }

    /// Whether device memory comes from the driver's own pool.
    pub(crate) fn pooled_source(self) -> bool {
        self.source == Source::DriverPool
    }
}
