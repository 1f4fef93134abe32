//! The CPU device as a [`Device`].

use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::os;
use super::shared::Shared;
use super::work::{Held, Work};
use crate::device::{
    Caps, Compute, CopyOp, Device, DeviceError, DeviceInfo, Feature, HeapId, HeapUse, HostAccess,
    Paging, Place, Plain, PlainSpec, SpaceId, StreamId, StreamSpec, SyncPoint, Ticket, rules,
};

/// The processor and its memory as a device: see the [module](super).
pub struct HostDevice {
    pub(super) shared: Arc<Shared>,
    pub(super) workers: Vec<JoinHandle<()>>,
}

pub(super) fn valid(rule: Result<(), &'static str>) -> Result<(), DeviceError> {
    rule.map_err(DeviceError::InvalidCall)
}

/// Room for a copy of bytes on the host.
pub(super) fn staging(bytes: u64) -> Result<Vec<u8>, DeviceError> {
    let mut data = Vec::new();
    let len = usize::try_from(bytes).map_err(|_| DeviceError::OutOfMemory { bytes })?;
    data.try_reserve_exact(len).map_err(|_| DeviceError::OutOfMemory { bytes })?;
    Ok(data)
}

impl HostDevice {
    /// Copies, by whatever name: the processor has one way to do it.
    pub(super) fn copy_ops(
        &self,
        stream: StreamId,
        ops: &[CopyOp],
    ) -> Result<SyncPoint, DeviceError> {
        let ranges = ops.iter().flat_map(|op| [(op.from, op.bytes), (op.to, op.bytes)]);
        self.shared.submit(stream, ranges, |spans| {
            Ok(Work::copy(spans.chunks_exact(2).map(|pair| (pair[0], pair[1]))))
        })
    }
}

impl Device for HostDevice {
    fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    fn caps(&self) -> &Caps {
        &self.shared.caps
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.shared.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn heap_use(&self, heap: HeapId) -> Result<HeapUse, DeviceError> {
        let used = self.shared.tables()?.used_bytes();
        let heap = self.shared.caps.heaps.get(usize::from(heap.0));
        let total = heap.ok_or(DeviceError::InvalidCall("no such heap"))?.total;
        let free = total.saturating_sub(used).min(os::available_bytes());
        Ok(HeapUse { total, free, process: Some(used) })
    }

    fn create_plain(&self, spec: &PlainSpec<'_>) -> Result<Plain, DeviceError> {
        if spec.exportable {
            return Err(DeviceError::Unsupported(Feature::Export));
        }
        self.shared.tables()?.create_plain(&self.shared.caps, spec)
    }

    fn release_plain(&self, space: SpaceId) -> Result<(), DeviceError> {
        let remains = self.shared.tables()?.release_plain(space)?;
        self.shared.give_back(remains)
    }

    fn create_stream(&self, spec: StreamSpec) -> Result<StreamId, DeviceError> {
        Ok(self.shared.streams()?.open(spec.high_priority))
    }

    fn retire_stream(&self, stream: StreamId) -> Result<(), DeviceError> {
        self.shared.streams()?.retire(stream)
    }

    fn mark(&self, stream: StreamId) -> Result<SyncPoint, DeviceError> {
        self.shared.streams()?.mark(stream)
    }

    fn reached(&self, stream: StreamId) -> Result<u64, DeviceError> {
        self.shared.streams()?.reached(stream)
    }

    fn wait_on_stream(&self, stream: StreamId, points: &[SyncPoint]) -> Result<(), DeviceError> {
        self.shared.streams()?.wait(stream, points)
    }

    fn wait_any(&self, points: &[SyncPoint], timeout: Duration) -> Result<bool, DeviceError> {
        self.shared.wait_any(points, timeout)
    }

    fn copy(&self, stream: StreamId, ops: &[CopyOp]) -> Result<SyncPoint, DeviceError> {
        valid(rules::copies(ops, 4))?;
        self.copy_ops(stream, ops)
    }

    fn fill(
        &self,
        stream: StreamId,
        place: Place,
        bytes: u64,
        word: u32,
    ) -> Result<SyncPoint, DeviceError> {
        valid(rules::fill(place.offset, bytes))?;
        let ranges = [(place, bytes)];
        self.shared.submit(stream, ranges, |spans| Ok(Work::fill(spans[0], word)))
    }

    fn write(&self, stream: StreamId, place: Place, data: &[u8]) -> Result<SyncPoint, DeviceError> {
        let ranges = [(place, data.len() as u64)];
        self.shared.submit(stream, ranges, |spans| {
            let mut copy = staging(data.len() as u64)?;
            copy.extend_from_slice(data);
            Ok(Work::Write { to: spans[0], data: copy })
        })
    }

    fn read(&self, stream: StreamId, place: Place, bytes: u64) -> Result<Ticket, DeviceError> {
        self.shared.submit_ticket(stream, [(place, bytes)], |spans| {
            let mut into = staging(bytes)?;
            into.resize(bytes as usize, 0);
            Ok(Work::Read { from: spans[0], into: Mutex::new(into) })
        })
    }

    fn take_read(&self, ticket: Ticket) -> Result<Vec<u8>, DeviceError> {
        let held = self.shared.streams()?.take(ticket, |held| matches!(held, Held::Bytes(_)))?;
        match held {
            Held::Bytes(bytes) => Ok(bytes),
            _ => Err(DeviceError::InvalidCall("the ticket is of no read")),
        }
    }

    fn copy_timed(
        &self,
        stream: StreamId,
        ops: &[CopyOp],
        by_kernel: bool,
    ) -> Result<Ticket, DeviceError> {
        valid(rules::copies(ops, if by_kernel { 16 } else { 4 }))?;
        let ranges = ops.iter().flat_map(|op| [(op.from, op.bytes), (op.to, op.bytes)]);
        let ticket = self.shared.submit_ticket(stream, ranges, |spans| {
            let pairs = spans.chunks_exact(2).map(|pair| (pair[0], pair[1]));
            Ok(Work::copy(pairs).timed(self.shared.started))
        })?;
        if by_kernel {
            self.count();
        }
        Ok(ticket)
    }

    fn take_times(&self, ticket: Ticket) -> Result<[u64; 2], DeviceError> {
        let held = self.shared.streams()?.take(ticket, |held| matches!(held, Held::Times(_)))?;
        match held {
            Held::Times(times) => Ok(times),
            _ => Err(DeviceError::InvalidCall("the ticket is of no timed copies")),
        }
    }

    fn paging(&self) -> Option<&dyn Paging> {
        Some(self)
    }

    fn compute(&self) -> Option<&dyn Compute> {
        Some(self)
    }

    fn host_access(&self) -> Option<&dyn HostAccess> {
        Some(self)
    }
}

impl Drop for HostDevice {
    /// Work that has not begun is dropped; a chunk that a worker is at is done first.
    fn drop(&mut self) {
        if !self.shared.same_process() {
            // The threads live in the parent; here there is nothing to wait for.
            return;
        }
        self.shared.stop();
        let this = std::thread::current().id();
        for worker in self.workers.drain(..).filter(|worker| worker.thread().id() != this) {
            let _ = worker.join();
        }
    }
}
