//! What a heap holds, by whose count.

use crate::device::HeapId;
use crate::error::Error;

use super::Allocator;

/// The bytes of a heap, split by who holds them. The driver's figures and the allocator's are
/// taken one after the other, so they may be apart by what happens between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapReport {
    /// Bytes of the heap.
    pub total: u64,
    /// Bytes that this process can still expect to get, as the driver says.
    pub free: u64,
    /// Bytes of this allocator's memory objects.
    pub reserved: u64,
    /// Bytes charged to its budget by others: staging, images.
    pub charged: u64,
    /// *Untracked*: bytes that this process holds by other means (contexts, other libraries, other
    /// allocators). `None` where the driver does not tell what the process holds.
    pub untracked: Option<u64>,
    /// Bytes that other processes hold, and what the driver keeps for itself; with those of
    /// [`untracked`](Self::untracked) where the driver does not tell them apart.
    pub others: u64,
}

impl Allocator {
    /// What a heap holds, by whose count. Asks the driver.
    ///
    /// # Errors
    /// The device's, for an unknown heap.
    pub fn heap(&self, heap: HeapId) -> Result<HeapReport, Error> {
        let told = self.inner.device.heap_use(heap)?;
        let (reserved, charged) = {
            let state = self.inner.lock();
            (state.budget.held(heap), state.budget.charged_in(heap))
        };
        let ours = reserved.saturating_add(charged);
        let in_use = told.total.saturating_sub(told.free);
        Ok(HeapReport {
            total: told.total,
            free: told.free,
            reserved,
            charged,
            untracked: told.process.map(|process| process.saturating_sub(ours)),
            others: in_use.saturating_sub(told.process.unwrap_or(ours)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Request;
    use crate::device::sim::Sim;
    use crate::device::{ClassId, Device, PlainSpec, StreamSpec};

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_taken_beside_the_allocator_is_untracked() {
        let sim = Sim::slabs().capacity(1 << 30).open();
        let alloc = Allocator::new(sim.shared()).unwrap();
        let stream = sim.create_stream(StreamSpec::default()).unwrap();
        let block = alloc.buffer(&Request::new(3 * MIB, stream)).unwrap();
        let report = alloc.heap(HeapId(0)).unwrap();
        assert_eq!((report.untracked, report.charged), (Some(0), 0));
        assert!(report.reserved >= 3 * MIB);
        let bytes = 32 * MIB;
        let spec =
            PlainSpec { class: ClassId(0), bytes, exportable: false, priority: 0.5, name: "" };
        let beside = sim.create_plain(&spec).unwrap();
        assert_eq!(alloc.heap(HeapId(0)).unwrap().untracked, Some(bytes));
        // Memory that is charged is no stranger.
        let charge = alloc.charge(HeapId(0), 8 * MIB).unwrap();
        let charged = alloc.heap(HeapId(0)).unwrap();
        assert_eq!((charged.untracked, charged.charged), (Some(bytes - 8 * MIB), 8 * MIB));
        drop((charge, block));
        sim.release_plain(beside.space).unwrap();
        assert!(alloc.heap(HeapId(200)).is_err());
    }
}
