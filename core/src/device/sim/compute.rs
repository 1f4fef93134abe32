//! The model's kernels: closures, and the built-in ones, run on kept bytes.

use super::device::copies;
use super::work::{Effect, Launch};
use super::{Charge, Held, SimDevice};
use crate::device::calls::CallKind;
use crate::device::{
    Binding, Compute, CopyOp, DeviceError, Feature, KernelId, KernelSource, Region, Report,
    StreamId, SyncPoint, Ticket, UnsafeKernelSource, rules,
};

impl SimDevice {
    fn regions(&self, kind: CallKind, regions: &[Region]) -> Result<Charge, DeviceError> {
        let bytes = regions.iter().fold(0_u64, |sum, region| sum.saturating_add(region.bytes));
        let items = regions.len() as u64;
        let ns = self.inner.caps.costs.gather.ns(bytes);
        let charge = Charge { kind, items, bytes, ns };
        self.checked(charge, rules::regions(regions))?;
        Ok(charge)
    }

    fn count(&self, point: SyncPoint) -> SyncPoint {
        self.lock().dispatches += 1;
        point
    }
}

impl Compute for SimDevice {
    fn load(&self, source: &KernelSource) -> Result<KernelId, DeviceError> {
        self.call(Charge::of(CallKind::Load), |state, _| match source {
            KernelSource::Host(kernel) => {
                let id = state.take_id();
                state.kernels.insert(id, kernel.clone());
                Ok(KernelId(id))
            }
            KernelSource::Wgsl { .. } => Err(DeviceError::Unsupported(Feature::KernelLanguage)),
        })
    }

    #[allow(unsafe_code)] // the trait's signature; nothing unsafe is done
    unsafe fn load_unchecked(&self, _: &UnsafeKernelSource) -> Result<KernelId, DeviceError> {
        let none = DeviceError::Unsupported(Feature::KernelLanguage);
        self.call(Charge::of(CallKind::Load), |_, _| Err(none))
    }

    fn unload(&self, kernel: KernelId) -> Result<(), DeviceError> {
        self.call_back(Charge::of(CallKind::Unload), |state, _| {
            let known = state.kernels.remove(&kernel.0);
            known.map(drop).ok_or(DeviceError::InvalidCall("no such kernel"))
        })
    }

    fn dispatch(
        &self,
        stream: StreamId,
        kernel: KernelId,
        bindings: &[Binding],
        push: &[u8],
        groups: [u32; 3],
    ) -> Result<SyncPoint, DeviceError> {
        let bytes = bindings.iter().fold(0_u64, |sum, b| sum.saturating_add(b.bytes));
        let charge = Charge { bytes, ..Charge::of(CallKind::Dispatch) };
        let found = self.lock().kernels.get(&kernel.0).cloned();
        let ready = rules::dispatch(&self.inner.caps, bindings, push, groups)
            .and_then(|()| found.ok_or(DeviceError::InvalidCall("no such kernel")));
        let kernel = match ready {
            Ok(kernel) => kernel,
            Err(error) => return self.call(charge, |_, _| Err(error)),
        };
        let (bindings, push) = (bindings.to_vec(), push.to_vec());
        let launch = Launch { kernel, bindings, push, groups };
        let point = self.enqueue(charge, stream, |_| Effect::Launch(Box::new(launch)))?;
        Ok(self.count(point))
    }

    fn fill_pattern(&self, stream: StreamId, regions: &[Region]) -> Result<SyncPoint, DeviceError> {
        let charge = self.regions(CallKind::FillPattern, regions)?;
        let point = self.enqueue(charge, stream, |_| Effect::Pattern(regions.to_vec()))?;
        Ok(self.count(point))
    }

    fn verify(&self, stream: StreamId, regions: &[Region]) -> Result<Ticket, DeviceError> {
        let charge = self.regions(CallKind::Verify, regions)?;
        let regions = regions.to_vec();
        let ticket =
            self.enqueue_ticket(charge, stream, |ticket| Effect::Verify { ticket, regions })?;
        self.count(ticket.point);
        Ok(ticket)
    }

    fn checksum(&self, stream: StreamId, regions: &[Region]) -> Result<Ticket, DeviceError> {
        let charge = self.regions(CallKind::Checksum, regions)?;
        let regions = regions.to_vec();
        let ticket =
            self.enqueue_ticket(charge, stream, |ticket| Effect::Checksum { ticket, regions })?;
        self.count(ticket.point);
        Ok(ticket)
    }

    fn take_report(&self, ticket: Ticket) -> Result<Report, DeviceError> {
        self.call(Charge::of(CallKind::TakeReport), |state, _| match state.take(ticket)? {
            Held::Report(report) => Ok(report),
            _ => Err(DeviceError::InvalidCall("the ticket is of no report")),
        })
    }

    fn gather(&self, stream: StreamId, ops: &[CopyOp]) -> Result<SyncPoint, DeviceError> {
        let charge = copies(CallKind::Gather, ops, self.inner.caps.costs.gather);
        self.checked(charge, rules::copies(ops, 16))?;
        let point = self.enqueue(charge, stream, |_| Effect::Copy(ops.to_vec()))?;
        Ok(self.count(point))
    }

    fn dispatches(&self) -> u64 {
        self.lock().dispatches
    }
}
