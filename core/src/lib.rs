//! Terrane's allocator: pools, stream order, budgets and compaction, without any GPU crate.
#![deny(unsafe_code)]

pub mod device;
pub mod error;
pub mod id;
pub mod kind;
pub mod point;
#[doc(hidden)]
pub mod range;
pub mod size_class;
pub mod units;
