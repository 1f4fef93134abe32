//! The CPU device. `HostKernel` is known to the contract even where the device is not built.

use std::fmt;
use std::sync::Arc;

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
