//! One GPU memory allocator for CUDA and Vulkan, with live compaction that people can watch.
#![forbid(unsafe_code)]

pub use terrane_core as core;
