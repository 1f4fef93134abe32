//! The CPU device: real memory, real remapping, streams served by threads.
//!
//! With the feature `host`, `Host::new().open()` gives a `HostDevice`. Plain segments are
//! anonymous memory; pages are ranges of one file in memory, mapped where they are wanted, also
//! twice. Streams are queues that a pool of workers serves; kernels are closures. Capacity is
//! what the machine and its control groups have left. It keeps no promise less than a GPU's
//! driver would, and one more: whatever it is asked, memory stays safe. Ranges in use can not be
//! unmapped, and the host sees no bytes that work is at.
//!
//! [`HostKernel`] is known to the contract even where the device is not built.
//!
//! Only `os` knows the operating system, and unsafe code is there, in `span` (access to bytes)
//! and where the two meet in `tables`.

#[cfg(all(feature = "host", target_os = "linux"))]
mod build;
#[cfg(all(feature = "host", target_os = "linux"))]
mod device;
#[cfg(all(feature = "host", target_os = "linux"))]
#[allow(unsafe_code)]
mod os;
#[cfg(all(feature = "host", target_os = "linux"))]
mod powers;
#[cfg(all(feature = "host", target_os = "linux"))]
#[allow(unsafe_code)] // calls of functions built for newer processors
mod scan;
#[cfg(all(feature = "host", target_os = "linux"))]
mod shared;
#[cfg(all(feature = "host", target_os = "linux"))]
#[allow(unsafe_code)]
mod span;
#[cfg(all(feature = "host", target_os = "linux"))]
mod streams;
#[cfg(all(feature = "host", target_os = "linux"))]
mod tables;
#[cfg(test)]
#[cfg(all(feature = "host", target_os = "linux"))]
mod tests;
#[cfg(all(feature = "host", target_os = "linux"))]
mod work;

use std::fmt;
use std::sync::Arc;

#[cfg(all(feature = "host", target_os = "linux"))]
pub use build::Host;
#[cfg(all(feature = "host", target_os = "linux"))]
pub use device::HostDevice;

/// A kernel of the host device: called once per workgroup.
///
/// It gets raw views, never slices: two bindings, streams or mappings may overlap.
#[derive(Clone)]
pub struct HostKernel(pub Arc<dyn Fn(&HostGroup<'_>) + Send + Sync>);

impl fmt::Debug for HostKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostKernel")
    }
}

/// What one workgroup of a host kernel sees.
pub struct HostGroup<'a> {
    /// The workgroup's number in each dimension.
    pub group: [u32; 3],
    /// Workgroups in each dimension.
    pub groups: [u32; 3],
    /// The push data.
    pub push: &'a [u8],
    /// The bindings, in order.
    pub bindings: &'a [&'a dyn RawView],
}

/// A binding of a host kernel: reads and writes by copy, word by word, checked.
pub trait RawView: Sync {
    /// Bytes of the binding.
    fn len(&self) -> u64;
    /// Whether the binding has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Copies from the binding; tells whether the range was inside it.
    fn read(&self, offset: u64, into: &mut [u8]) -> bool;
    /// Copies to the binding; tells whether the range was inside it and may be written.
    fn write(&self, offset: u64, from: &[u8]) -> bool;
    /// Adds to a 4-byte word atomically and returns what it was; `None` outside the binding.
    fn add_u32(&self, offset: u64, value: u32) -> Option<u32>;
}
