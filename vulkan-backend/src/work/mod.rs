//! Work: copies, fills, kernels, and what goes between host and device.

pub mod builtin;
pub mod by_address;
pub mod compute;
pub mod dispatch;
pub mod fold;
pub mod gather;
pub mod kernels;
pub mod pipeline;
pub mod tables;
pub mod tickets;
pub mod tiles;
pub mod timed;
pub mod transfer;
pub mod wgsl;
