//! One GPU memory allocator for CUDA and Vulkan, with live compaction that people can watch.
//!
//! This package opens devices of any backend ([`devices`], [`open`]) and re-exports the allocator
//! ([`Allocator`]). Features: `cuda` and `vulkan` (both on by default; neither needs a toolkit to
//! build, their drivers are loaded at run time), `record` (traces), `live`
//! (looking on while a program runs).
//!
//! ```
//! use terrane::{Allocator, Choice, Request, StreamSpec};
//!
//! let opened = terrane::open(&Choice::Host)?;
//! let alloc = Allocator::new(opened.device.clone())?;
//! let stream = opened.device.create_stream(StreamSpec::default())?;
//! let block = alloc.buffer(&Request::new(1 << 20, stream))?;
//! let point = alloc.write(stream, block.handle(), 0, b"terrane!")?;
//! alloc.wait(point, std::time::Duration::from_secs(10))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

mod choice;
#[cfg(feature = "cuda")]
mod cuda_raw;
mod devices;
mod open;
#[cfg(feature = "record")]
mod record;
#[cfg(feature = "vulkan")]
mod shared_budget;

pub use choice::{Choice, ChoiceError, Preset};
#[cfg(feature = "cuda")]
pub use cuda_raw::CudaRaw;
pub use devices::{Absent, Backend, Found, Survey, devices, survey};
pub use open::{OpenError, OpenOptions, Opened, open, open_with};

pub use terrane_core as core;
pub use terrane_core::device::{Compute, Device, StreamSpec};
pub use terrane_core::point::{Points, StreamId, SyncPoint};
pub use terrane_core::{
    Allocation, Allocator, Buffer, Config, Error, Frame, Graph, Growth, Handle, Limit, Mapped,
    MemoryKind, Pin, Prefer, Raw, Request, Reuse, Slice, Submission, Tag, Wait,
};

#[cfg(feature = "live")]
pub use record::inspect;
#[cfg(feature = "record")]
pub use record::{
    FLIGHT_EVENTS, RECORD_VARIABLE, flight_recorder, record, record_from_env, record_to, tap,
};
#[cfg(feature = "cuda")]
pub use terrane_cuda as cuda;
#[cfg(feature = "record")]
pub use terrane_trace as trace;
#[cfg(feature = "vulkan")]
pub use terrane_vulkan as vulkan;
