//! Files of other allocators.
//!
//! [`read_rmm`] turns an RMM log into a [`Trace`](crate::Trace). [`read_dump`] reads the JSON
//! dumps of VMA and of D3D12MA, and the reports of gpu-allocator and wgpu that terrane-vulkan's
//! helpers write: one moment, no history.

mod dump;
mod report;
mod rmm;

pub use dump::{Dump, DumpBlock, DumpError, DumpRange, DumpSource, open_dump, read_dump};
pub use rmm::{RmmLog, open_rmm, read_rmm};
