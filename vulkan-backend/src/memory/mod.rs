//! Memory objects, spaces, staging, views and the host's sight of them.

pub mod budget;
pub mod buffers;
pub mod classes;
pub mod fixed;
pub mod heaps;
pub mod host;
pub mod images;
pub mod object;
pub mod paging;
pub mod plain;
pub mod space;
pub mod staging;
pub mod views;
