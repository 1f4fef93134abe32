//! Passing every method of a device on, by one function that asks the hook.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use super::{Answer, Hook, Object};
use crate::device::calls::CallKind;
use crate::device::{
    Binding, Caps, CaptureId, ClassId, Compute, CopyOp, Device, DeviceError, DeviceInfo, Feature,
    HeapId, HeapUse, HostAccess, HostView, KernelId, KernelSource, MapOp, MemoryId, Paging, Place,
    Plain, PlainSpec, Region, Report, Reserved, SpaceId, StreamId, StreamSpec, SyncPoint, Ticket,
    UnmapOp, UnsafeKernelSource, View,
};

/// A call, as wrappers see it before it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The method.
    pub kind: CallKind,
    /// Mappings, copies or regions of the call; 1 where there is no list.
    pub items: u64,
    /// Bytes that it is about; 0 if none.
    pub bytes: u64,
    /// The stream that it submits to, if any.
    pub stream: Option<StreamId>,
}

impl Ask {
    const fn of(kind: CallKind) -> Self {
        Self { kind, items: 1, bytes: 0, stream: None }
    }

    const fn bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    const fn on(self, stream: StreamId) -> Self {
        Self { stream: Some(stream), ..self }
    }

    fn list(self, sizes: impl Iterator<Item = u64>) -> Self {
        let start = Self { items: 0, bytes: 0, ..self };
        sizes.fold(start, |ask, bytes| Self {
            items: ask.items + 1,
            bytes: ask.bytes.saturating_add(bytes),
            ..ask
        })
    }
}

/// A device inside another: [`Faulty`](super::Faulty), [`Logged`](super::Logged) or
/// [`Limited`](super::Limited).
pub struct Wrapped<H> {
    pub(super) inner: Arc<dyn Device>,
    pub(super) hook: H,
    caps: Caps,
}

#[allow(private_bounds)]
impl<H: Hook> Wrapped<H> {
    pub(super) fn around(inner: Arc<dyn Device>, hook: H) -> Arc<Self> {
        let caps = hook.caps(inner.caps().clone());
        Arc::new(Self { inner, hook, caps })
    }

    /// The device inside.
    pub fn inner(&self) -> &Arc<dyn Device> {
        &self.inner
    }

    fn pass<T>(
        &self,
        ask: Ask,
        call: impl FnOnce(&dyn Device) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        match self.hook.before(&ask) {
            Some(Answer::Error(error)) => return Err(error),
            // Only calls that give back have nothing to answer, and they go by `back`.
            Some(Answer::Nothing) => return Err(DeviceError::Lost),
            None => {}
        }
        self.made(ask, call)
    }

    /// As [`pass`](Self::pass), for calls that may be answered without being made.
    fn back<T: Default>(
        &self,
        ask: Ask,
        call: impl FnOnce(&dyn Device) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        match self.hook.before(&ask) {
            Some(Answer::Error(error)) => Err(error),
            Some(Answer::Nothing) => Ok(T::default()),
            None => self.made(ask, call),
        }
    }

    fn made<T>(
        &self,
        ask: Ask,
        call: impl FnOnce(&dyn Device) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let clock = || if self.hook.wants_time() { self.inner.now_ns() } else { 0 };
        let before = clock();
        let result = call(&*self.inner);
        self.hook.after(&ask, [before, clock()], result.as_ref().err().copied());
        result
    }
}

fn paging(device: &dyn Device) -> Result<&dyn Paging, DeviceError> {
    device.paging().ok_or(DeviceError::Unsupported(Feature::Paging))
}

fn compute(device: &dyn Device) -> Result<&dyn Compute, DeviceError> {
    device.compute().ok_or(DeviceError::Unsupported(Feature::Compute))
}

fn host(device: &dyn Device) -> Result<&dyn HostAccess, DeviceError> {
    device.host_access().ok_or(DeviceError::Unsupported(Feature::HostMapping))
}

fn copies(kind: CallKind, stream: StreamId, ops: &[CopyOp]) -> Ask {
    Ask::of(kind).on(stream).list(ops.iter().map(|op| op.bytes))
}

fn regions(kind: CallKind, stream: StreamId, regions: &[Region]) -> Ask {
    Ask::of(kind).on(stream).list(regions.iter().map(|region| region.bytes))
}

impl<H: Hook> Device for Wrapped<H> {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn now_ns(&self) -> u64 {
        self.inner.now_ns()
    }

    fn heap_use(&self, heap: HeapId) -> Result<HeapUse, DeviceError> {
        let found = self.pass(Ask::of(CallKind::HeapUse), |device| device.heap_use(heap));
        found.map(|heap| self.hook.heap_use(heap))
    }

    fn create_plain(&self, spec: &PlainSpec<'_>) -> Result<Plain, DeviceError> {
        let ask = Ask::of(CallKind::CreatePlain).bytes(spec.bytes);
        let plain = self.pass(ask, |device| device.create_plain(spec))?;
        self.hook.made(Object::Plain(plain.space), spec.bytes, plain.bytes);
        Ok(self.hook.plain(spec.bytes, plain))
    }

    fn release_plain(&self, space: SpaceId) -> Result<(), DeviceError> {
        self.back(Ask::of(CallKind::ReleasePlain), |device| {
            device.release_plain(space)?;
            self.hook.given_back(Object::Plain(space));
            Ok(())
        })
    }

    fn create_stream(&self, spec: StreamSpec) -> Result<StreamId, DeviceError> {
        self.pass(Ask::of(CallKind::CreateStream), |device| device.create_stream(spec))
    }

    fn retire_stream(&self, stream: StreamId) -> Result<(), DeviceError> {
        let ask = Ask::of(CallKind::RetireStream).on(stream);
        self.back(ask, |device| device.retire_stream(stream))
    }

    fn is_foreign(&self, stream: StreamId) -> bool {
        self.inner.is_foreign(stream)
    }

    fn mark(&self, stream: StreamId) -> Result<SyncPoint, DeviceError> {
        self.pass(Ask::of(CallKind::Mark).on(stream), |device| device.mark(stream))
    }

    fn reached(&self, stream: StreamId) -> Result<u64, DeviceError> {
        let ask = Ask::of(CallKind::Reached).on(stream);
        self.pass(ask, |device| self.hook.reached(device, stream))
    }

    fn wait_on_stream(&self, stream: StreamId, points: &[SyncPoint]) -> Result<(), DeviceError> {
        let ask = Ask::of(CallKind::WaitOnStream).on(stream).list(points.iter().map(|_| 0));
        self.pass(ask, |device| {
            device.wait_on_stream(stream, points)?;
            self.hook.waits(device, stream, points);
            Ok(())
        })
    }

    fn wait_any(&self, points: &[SyncPoint], timeout: Duration) -> Result<bool, DeviceError> {
        let ask = Ask::of(CallKind::WaitAny).list(points.iter().map(|_| 0));
        self.pass(ask, |device| self.hook.wait_any(device, points, timeout))
    }

    fn copy(&self, stream: StreamId, ops: &[CopyOp]) -> Result<SyncPoint, DeviceError> {
        self.pass(copies(CallKind::Copy, stream, ops), |device| device.copy(stream, ops))
    }

    fn fill(
        &self,
        stream: StreamId,
        place: Place,
        bytes: u64,
        word: u32,
    ) -> Result<SyncPoint, DeviceError> {
        let ask = Ask::of(CallKind::Fill).on(stream).bytes(bytes);
        self.pass(ask, |device| device.fill(stream, place, bytes, word))
    }

    fn write(&self, stream: StreamId, place: Place, data: &[u8]) -> Result<SyncPoint, DeviceError> {
        let ask = Ask::of(CallKind::Write).on(stream).bytes(data.len() as u64);
        self.pass(ask, |device| device.write(stream, place, data))
    }

    fn read(&self, stream: StreamId, place: Place, bytes: u64) -> Result<Ticket, DeviceError> {
        let ask = Ask::of(CallKind::Read).on(stream).bytes(bytes);
        self.pass(ask, |device| device.read(stream, place, bytes))
    }

    fn take_read(&self, ticket: Ticket) -> Result<Vec<u8>, DeviceError> {
        self.pass(Ask::of(CallKind::TakeRead), |device| device.take_read(ticket))
    }

    fn copy_timed(
        &self,
        stream: StreamId,
        ops: &[CopyOp],
        by_kernel: bool,
    ) -> Result<Ticket, DeviceError> {
        let ask = copies(CallKind::CopyTimed, stream, ops);
        self.pass(ask, |device| device.copy_timed(stream, ops, by_kernel))
    }

    fn take_times(&self, ticket: Ticket) -> Result<[u64; 2], DeviceError> {
        self.pass(Ask::of(CallKind::TakeTimes), |device| device.take_times(ticket))
    }

    fn capture_of(&self, stream: StreamId) -> Option<CaptureId> {
        self.inner.capture_of(stream)
    }

    fn is_capturing(&self) -> bool {
        self.inner.is_capturing()
    }

    fn create_view(&self, place: Place, bytes: u64) -> Result<View, DeviceError> {
        let ask = Ask::of(CallKind::CreateView).bytes(bytes);
        self.pass(ask, |device| device.create_view(place, bytes))
    }

    fn destroy_view(&self, view: View) -> Result<(), DeviceError> {
        self.back(Ask::of(CallKind::DestroyView), |device| device.destroy_view(view))
    }

    fn paging(&self) -> Option<&dyn Paging> {
        // A wrapper may hide a power by its capabilities.
        self.caps.paging.and(self.inner.paging()).map(|_| self as &dyn Paging)
    }

    fn compute(&self) -> Option<&dyn Compute> {
        self.inner.compute().map(|_| self as &dyn Compute)
    }

    fn host_access(&self) -> Option<&dyn HostAccess> {
        self.inner.host_access().map(|_| self as &dyn HostAccess)
    }
}

impl<H: Hook> Paging for Wrapped<H> {
    fn reserve(&self, class: ClassId, bytes: u64) -> Result<Reserved, DeviceError> {
        let ask = Ask::of(CallKind::Reserve).bytes(bytes);
        let reserved = self.pass(ask, |device| paging(device)?.reserve(class, bytes))?;
        Ok(self.hook.reserved(reserved))
    }

    fn unreserve(&self, space: SpaceId) -> Result<(), DeviceError> {
        self.back(Ask::of(CallKind::Unreserve), |device| paging(device)?.unreserve(space))
    }

    fn create(
        &self,
        class: ClassId,
        bytes: u64,
        exportable: bool,
    ) -> Result<MemoryId, DeviceError> {
        let ask = Ask::of(CallKind::CreateMemory).bytes(bytes);
        let memory = self.pass(ask, |device| paging(device)?.create(class, bytes, exportable))?;
        self.hook.made(Object::Memory(memory), bytes, bytes);
        Ok(memory)
    }

    fn release(&self, memory: MemoryId) -> Result<(), DeviceError> {
        self.back(Ask::of(CallKind::ReleaseMemory), |device| {
            paging(device)?.release(memory)?;
            self.hook.given_back(Object::Memory(memory));
            Ok(())
        })
    }

    fn map(&self, ops: &[MapOp], after: &[SyncPoint]) -> Result<Option<SyncPoint>, DeviceError> {
        let ask = Ask::of(CallKind::Map).list(ops.iter().map(|op| op.bytes));
        let point = self.pass(ask, |device| paging(device)?.map(ops, after))?;
        self.hook.mapped(&*self.inner, point)
    }

    fn unmap(
        &self,
        ops: &[UnmapOp],
        after: &[SyncPoint],
    ) -> Result<Option<SyncPoint>, DeviceError> {
        let ask = Ask::of(CallKind::Unmap).list(ops.iter().map(|op| op.bytes));
        let point = self.back(ask, |device| paging(device)?.unmap(ops, after))?;
        self.hook.mapped(&*self.inner, point)
    }
}

impl<H: Hook> Compute for Wrapped<H> {
    fn load(&self, source: &KernelSource) -> Result<KernelId, DeviceError> {
        self.pass(Ask::of(CallKind::Load), |device| compute(device)?.load(source))
    }

    #[allow(unsafe_code)]
    unsafe fn load_unchecked(&self, source: &UnsafeKernelSource) -> Result<KernelId, DeviceError> {
        self.pass(Ask::of(CallKind::Load), |device| {
            // SAFETY: the caller's promise is passed on as it is.
            unsafe { compute(device)?.load_unchecked(source) }
        })
    }

    fn unload(&self, kernel: KernelId) -> Result<(), DeviceError> {
        self.back(Ask::of(CallKind::Unload), |device| compute(device)?.unload(kernel))
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
        let ask = Ask::of(CallKind::Dispatch).on(stream).bytes(bytes);
        self.pass(ask, |device| compute(device)?.dispatch(stream, kernel, bindings, push, groups))
    }

    fn fill_pattern(&self, stream: StreamId, on: &[Region]) -> Result<SyncPoint, DeviceError> {
        let ask = regions(CallKind::FillPattern, stream, on);
        self.pass(ask, |device| compute(device)?.fill_pattern(stream, on))
    }

    fn verify(&self, stream: StreamId, on: &[Region]) -> Result<Ticket, DeviceError> {
        let ask = regions(CallKind::Verify, stream, on);
        self.pass(ask, |device| compute(device)?.verify(stream, on))
    }

    fn checksum(&self, stream: StreamId, on: &[Region]) -> Result<Ticket, DeviceError> {
        let ask = regions(CallKind::Checksum, stream, on);
        self.pass(ask, |device| compute(device)?.checksum(stream, on))
    }

    fn take_report(&self, ticket: Ticket) -> Result<Report, DeviceError> {
        self.pass(Ask::of(CallKind::TakeReport), |device| compute(device)?.take_report(ticket))
    }

    fn gather(&self, stream: StreamId, ops: &[CopyOp]) -> Result<SyncPoint, DeviceError> {
        let ask = copies(CallKind::Gather, stream, ops);
        self.pass(ask, |device| compute(device)?.gather(stream, ops))
    }

    fn gather_within(
        &self,
        stream: StreamId,
        ops: &[CopyOp],
        groups: u32,
    ) -> Result<SyncPoint, DeviceError> {
        let ask = copies(CallKind::GatherWithin, stream, ops);
        self.pass(ask, |device| compute(device)?.gather_within(stream, ops, groups))
    }

    fn dispatches(&self) -> u64 {
        self.inner.compute().map_or(0, Compute::dispatches)
    }
}

impl<H: Hook> HostAccess for Wrapped<H> {
    fn view(&self, place: Place, bytes: u64) -> Result<Box<dyn HostView>, DeviceError> {
        let ask = Ask::of(CallKind::HostView).bytes(bytes);
        self.pass(ask, |device| host(device)?.view(place, bytes))
    }

    fn pointer(&self, place: Place) -> Result<NonNull<u8>, DeviceError> {
        self.pass(Ask::of(CallKind::HostPointer), |device| host(device)?.pointer(place))
    }

    fn flush(&self, place: Place, bytes: u64) -> Result<(), DeviceError> {
        let ask = Ask::of(CallKind::Flush).bytes(bytes);
        self.pass(ask, |device| host(device)?.flush(place, bytes))
    }

    fn invalidate(&self, place: Place, bytes: u64) -> Result<(), DeviceError> {
        let ask = Ask::of(CallKind::Invalidate).bytes(bytes);
        self.pass(ask, |device| host(device)?.invalidate(place, bytes))
    }
}
