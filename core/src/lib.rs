//! Terrane's allocator: pools, stream order, budgets and compaction, without any GPU crate.
#![cfg_attr(not(feature = "host"), forbid(unsafe_code))]

pub mod id;
pub mod point;
pub mod units;
