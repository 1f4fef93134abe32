//! Terrane's Vulkan device, over ash.
//!
//! [`list`] says which devices there are, [`open`] makes a [`VulkanDevice`] that owns its
//! `VkDevice`; a program that has a `VkDevice` already asks [`wanted`] what to enable and hands
//! it over by [`VulkanDevice::from_host`]. Either way the device implements
//! [`terrane_core::device::Device`], and everything above it is the allocator's.
//!
//! # How the contract is met
//! - **Plain segment**: one `VkDeviceMemory` with one `VkBuffer` over all of it.
//! - **Paged segment**: one sparse, aliased, partially resident `VkBuffer`; pages are pieces of
//!   `VkDeviceMemory`. All binds of a call go into one `vkQueueBindSparse`, ordered by timeline
//!   semaphores on an internal stream.
//! - **Stream**: one timeline semaphore over a queue. Several streams may share a queue; there is
//!   one leaf lock per queue. The sync point `(stream, value)` is the semaphore's value.
//! - **Order inside a stream**: every submission begins and ends with a full memory barrier, so
//!   that work sees what came before it without any tracking of ranges.
//! - **Kinds**: memory of kind `Device` is never host-visible here, whatever the memory type can
//!   do: programs that want the host to see it ask for `Shared`.
//!
//! # Locks
//! A stream's lock is taken before the lock of its queue; the tables' locks are never held across
//! a driver call. No callback of the allocator runs under any of them.

mod calibrate;
mod calls;
mod device;
mod driver;
mod error;
mod foreign;
mod instance;
mod memory;
mod open;
mod report;
mod stream;
mod work;

pub use calls::{Call, CallStat};
pub use device::{RawPlace, VulkanDevice};
pub use driver::{Faults, Told};
pub use error::OpenError;
pub use memory::budget::Budget;
pub use memory::images::Image;
pub use open::{
    Features, HostQueue, OpenOptions, Part, Parts, Role, Selector, Tuning, Wanted, WantedQueue,
    list, open, wanted,
};
pub use report::gpu_allocator_json;
#[cfg(feature = "wgpu-report")]
pub use report::wgpu_json;
pub use stream::{QueueLock, WrappedTimeline};
pub use work::timed::{Timed, Timing};
