//! The CPU device's paging, compute and host access.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::device::{HostDevice, valid};
use super::shared::Shared;
use super::span::Exclusive;
use super::tables::Claim;
use super::work::{Held, Scan, Work};
use crate::device::{
    Binding, ClassId, Compute, CopyOp, DeviceError, Feature, HostAccess, HostView, KernelId,
    KernelSource, MapOp, MemoryId, Paging, PagingCaps, Place, Region, Report, Reserved, SpaceId,
    StreamId, SyncPoint, Ticket, UnmapOp, UnsafeKernelSource, rules,
};

impl HostDevice {
    fn paging_caps(&self) -> Result<PagingCaps, DeviceError> {
        self.shared.caps.paging.ok_or(DeviceError::Unsupported(Feature::Paging))
    }

    /// Mappings change at once, so whatever they come after has to be reached.
    fn all_reached(&self, points: &[SyncPoint]) -> Result<(), DeviceError> {
        let streams = self.shared.streams()?;
        for &point in points {
            if !streams.is_reached(point)? {
                return Err(DeviceError::InvalidCall("a point of the call is not reached"));
            }
        }
        Ok(())
    }
}

impl Paging for HostDevice {
    fn reserve(&self, class: ClassId, bytes: u64) -> Result<Reserved, DeviceError> {
        self.shared.tables()?.reserve(&self.paging_caps()?, class, bytes)
    }

    fn unreserve(&self, space: SpaceId) -> Result<(), DeviceError> {
        let remains = self.shared.tables()?.unreserve(space)?;
        self.shared.give_back(remains)
    }

    fn create(
        &self,
        class: ClassId,
        bytes: u64,
        exportable: bool,
    ) -> Result<MemoryId, DeviceError> {
        if exportable {
            return Err(DeviceError::Unsupported(Feature::Export));
        }
        let (caps, paging) = (&self.shared.caps, self.paging_caps()?);
        self.shared.tables()?.create(caps, &paging, class, bytes)
    }

    fn release(&self, memory: MemoryId) -> Result<(), DeviceError> {
        let remains = self.shared.tables()?.release(memory)?;
        self.shared.give_back(remains)
    }

    fn map(&self, ops: &[MapOp], after: &[SyncPoint]) -> Result<Option<SyncPoint>, DeviceError> {
        let paging = self.paging_caps()?;
        self.all_reached(after)?;
        self.shared.tables()?.map(&paging, ops)?;
        Ok(None)
    }

    fn unmap(
        &self,
        ops: &[UnmapOp],
        after: &[SyncPoint],
    ) -> Result<Option<SyncPoint>, DeviceError> {
        self.all_reached(after)?;
        self.shared.tables()?.unmap(ops)?;
        Ok(None)
    }
}

fn ranges(regions: &[Region]) -> impl Iterator<Item = (Place, u64)> {
    regions.iter().map(|region| (region.place, region.bytes))
}

impl HostDevice {
    pub(super) fn count(&self) {
        self.shared.dispatches.fetch_add(1, Ordering::Relaxed);
    }

    fn report(
        &self,
        stream: StreamId,
        what: Scan,
        regions: &[Region],
    ) -> Result<Ticket, DeviceError> {
        valid(rules::regions(regions))?;
        let work = |spans| Ok(Work::scan(what, regions, spans));
        let ticket = self.shared.submit_ticket(stream, ranges(regions), work)?;
        self.count();
        Ok(ticket)
    }
}

impl Compute for HostDevice {
    fn load(&self, source: &KernelSource) -> Result<KernelId, DeviceError> {
        let KernelSource::Host(kernel) = source else {
            return Err(DeviceError::Unsupported(Feature::KernelLanguage));
        };
        let id = self.shared.tables()?.take_id();
        self.shared.kernels()?.insert(id, kernel.clone());
        Ok(KernelId(id))
    }

    #[allow(unsafe_code)] // the trait's signature; nothing unsafe is done
    unsafe fn load_unchecked(&self, _: &UnsafeKernelSource) -> Result<KernelId, DeviceError> {
        Err(DeviceError::Unsupported(Feature::KernelLanguage))
    }

    fn unload(&self, kernel: KernelId) -> Result<(), DeviceError> {
        // Submitted work has a share of the kernel, so it may go at once. It is dropped without
        // the lock: what it captured may do anything.
        let kernel = self.shared.kernels()?.remove(&kernel.0);
        kernel.map(drop).ok_or(DeviceError::InvalidCall("no such kernel"))
    }

    fn dispatch(
        &self,
        stream: StreamId,
        kernel: KernelId,
        bindings: &[Binding],
        push: &[u8],
        groups: [u32; 3],
    ) -> Result<SyncPoint, DeviceError> {
        rules::dispatch(&self.shared.caps, bindings, push, groups)?;
        let kernel = self.shared.kernels()?.get(&kernel.0).cloned();
        let kernel = kernel.ok_or(DeviceError::InvalidCall("no such kernel"))?;
        let ranges = bindings.iter().map(|binding| (binding.place, binding.bytes));
        let point = self.shared.submit(stream, ranges, |spans| {
            Ok(Work::kernel(kernel, bindings, spans, push, groups))
        })?;
        self.count();
        Ok(point)
    }

    fn fill_pattern(&self, stream: StreamId, regions: &[Region]) -> Result<SyncPoint, DeviceError> {
        valid(rules::regions(regions))?;
        let work = |spans| Ok(Work::scan(Scan::Fill, regions, spans));
        let point = self.shared.submit(stream, ranges(regions), work)?;
        self.count();
        Ok(point)
    }

    fn verify(&self, stream: StreamId, regions: &[Region]) -> Result<Ticket, DeviceError> {
        self.report(stream, Scan::Verify, regions)
    }

    fn checksum(&self, stream: StreamId, regions: &[Region]) -> Result<Ticket, DeviceError> {
        self.report(stream, Scan::Checksum, regions)
    }

    fn take_report(&self, ticket: Ticket) -> Result<Report, DeviceError> {
        let held = self.shared.streams()?.take(ticket, |held| matches!(held, Held::Report(_)))?;
        match held {
            Held::Report(report) => Ok(report),
            _ => Err(DeviceError::InvalidCall("the ticket is of no report")),
        }
    }

    fn gather(&self, stream: StreamId, ops: &[CopyOp]) -> Result<SyncPoint, DeviceError> {
        valid(rules::copies(ops, 16))?;
        let point = self.copy_ops(stream, ops)?;
        self.count();
        Ok(point)
    }

    fn dispatches(&self) -> u64 {
        self.shared.dispatches.load(Ordering::Relaxed)
    }
}

/// Bytes that the host has for itself until this is dropped.
struct View {
    bytes: Exclusive,
    claim: Claim,
    shared: Arc<Shared>,
}

impl HostView for View {
    fn bytes(&self) -> &[u8] {
        self.bytes.bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes.bytes_mut()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.shared.unclaim(self.claim);
    }
}

impl HostAccess for HostDevice {
    #[allow(unsafe_code)]
    fn view(&self, place: Place, bytes: u64) -> Result<Box<dyn HostView>, DeviceError> {
        let (claim, span) = self.shared.tables()?.claim_view(place, bytes)?;
        let shared = Arc::clone(&self.shared);
        // SAFETY: the claim keeps the bytes mapped, and refuses work and other views over them,
        // until it is given up when the view is dropped. The tables live as long as `shared`.
        let bytes = unsafe { Exclusive::new(span) };
        Ok(Box::new(View { bytes, claim, shared }))
    }

    fn pointer(&self, place: Place) -> Result<NonNull<u8>, DeviceError> {
        self.shared.tables()?.address(place)
    }

    fn flush(&self, place: Place, _: u64) -> Result<(), DeviceError> {
        self.shared.tables()?.address(place).map(drop)
    }

    fn invalidate(&self, place: Place, _: u64) -> Result<(), DeviceError> {
        self.shared.tables()?.address(place).map(drop)
    }
}
