//! [`Compute`] for the device.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use terrane_core::device::{
    Binding, Compute, CopyOp, DeviceError, KernelId, KernelSource, Region, Report, StreamId,
    SyncPoint, Ticket, UnsafeKernelSource,
};

use crate::device::{Shared, VulkanDevice};

use super::dispatch::{Bound, Groups, dispatch};
use super::fold;
use super::kernels::{Builtin, Kernel};
use super::pipeline::Pipeline;

impl Compute for VulkanDevice {
    fn load(&self, source: &KernelSource) -> Result<KernelId, DeviceError> {
        self.shared.kernels.load(source)
    }

    // The unsafety is the caller's promise about the kernel; the code here calls nothing unsafe.
    unsafe fn load_unchecked(&self, source: &UnsafeKernelSource) -> Result<KernelId, DeviceError> {
        self.shared.kernels.load_unchecked(source)
    }

    fn unload(&self, kernel: KernelId) -> Result<(), DeviceError> {
        self.shared.kernels.unload(kernel)
    }

    fn dispatch(
        &self,
        stream: StreamId,
        kernel: KernelId,
        bindings: &[Binding],
        push: &[u8],
        groups: [u32; 3],
    ) -> Result<SyncPoint, DeviceError> {
        let s = &self.shared;
        s.check_compute(stream)?;
        let kernel = s.kernels.get(kernel)?;
        let bound = s.bound(&kernel, bindings)?;
        if push.len() != kernel.pipeline.push_bytes as usize {
            return Err(DeviceError::InvalidCall("push data of a wrong size"));
        }
        let (pipeline, runs) = s.runs(&kernel, groups)?;
        let point = s
            .streams
            .submit(stream, |recorder| dispatch(recorder, &pipeline, &bound, push, &runs))?;
        s.kernels.submissions.fetch_add(1, Relaxed);
        Ok(point)
    }

    fn fill_pattern(&self, stream: StreamId, regions: &[Region]) -> Result<SyncPoint, DeviceError> {
        self.shared.fill_pattern(stream, regions, None)
    }

    fn verify(&self, stream: StreamId, regions: &[Region]) -> Result<Ticket, DeviceError> {
        self.shared.report(stream, regions, Builtin::Verify, None)
    }

    fn checksum(&self, stream: StreamId, regions: &[Region]) -> Result<Ticket, DeviceError> {
        self.shared.report(stream, regions, Builtin::Checksum, None)
    }

    fn take_report(&self, ticket: Ticket) -> Result<Report, DeviceError> {
        self.shared.take_report(ticket)
    }

    fn gather(&self, stream: StreamId, ops: &[CopyOp]) -> Result<SyncPoint, DeviceError> {
        self.shared.gather(stream, ops, None)
    }

    fn dispatches(&self) -> u64 {
        self.shared.kernels.submissions.load(Relaxed)
    }
}

impl Shared {
    /// The pipeline and the dispatches for `groups` workgroups.
    fn runs(
        &self,
        kernel: &Kernel,
        groups: [u32; 3],
    ) -> Result<(Arc<Pipeline>, Vec<Groups>), DeviceError> {
        let native = self.native_groups();
        if groups.iter().zip(self.caps.max_groups).any(|(n, limit)| *n > limit) {
            return Err(DeviceError::InvalidCall("more workgroups than the device's limit"));
        }
        if groups[0] <= native[0] {
            return Ok((Arc::clone(&kernel.pipeline), vec![Groups::of(groups)]));
        }
        if groups[1] != 1 || groups[0] / native[0] >= native[1] {
            return Err(DeviceError::InvalidCall("too many workgroups in two dimensions"));
        }
        Ok((self.kernels.folded(kernel, native[0])?, fold::runs(groups, native[0])))
    }

    /// Workgroups that the driver takes in each dimension.
    pub fn native_groups(&self) -> [u32; 3] {
        self.survey.limits.max_compute_work_group_count
    }

    /// The ranges of a dispatch's bindings, checked against the kernel and the limits.
    fn bound(&self, kernel: &Kernel, bindings: &[Binding]) -> Result<Vec<Bound>, DeviceError> {
        if bindings.len() != kernel.least_bytes.len() {
            return Err(DeviceError::InvalidCall("a wrong number of bindings"));
        }
        let limit = self.caps.max_binding_bytes;
        let bound = |(binding, least): (&Binding, &u64)| {
            if binding.bytes > limit {
                return Err(DeviceError::TooLarge { bytes: binding.bytes, limit });
            }
            if binding.bytes < *least || binding.bytes == 0 {
                return Err(DeviceError::InvalidCall("a binding smaller than the kernel needs"));
            }
            if !self.caps.binding_align.divides(binding.place.offset) {
                return Err(DeviceError::InvalidCall("a binding's offset is not aligned"));
            }
            let range = self.spaces.range(binding.place, binding.bytes)?;
            Ok(Bound { buffer: range.buffer, offset: range.offset, bytes: range.bytes })
        };
        bindings.iter().zip(&kernel.least_bytes).map(bound).collect()
    }
}
