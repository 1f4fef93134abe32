//! Work: copies, fills, and what goes between host and device.

pub mod tickets;
pub mod transfer;
