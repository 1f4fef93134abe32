//! Paging, compute and host access.

use std::ptr::NonNull;

use terrane_core::device::{
    Binding, ClassId, Compute, CopyOp, DeviceError, Feature, HostAccess, HostView, KernelId,
    KernelSource, MapOp, MemoryId, Paging, Place, Region, Report, Reserved, SpaceId, StreamId,
    SyncPoint, Ticket, UnmapOp, UnsafeKernelSource,
};

use super::{Flaw, Probe};

const WINDOW: u64 = 16 << 20;

impl Probe {
    fn pages(&self) -> Result<&dyn Paging, DeviceError> {
        self.inner.paging().ok_or(DeviceError::Unsupported(Feature::Paging))
    }

    fn kernels(&self) -> Result<&dyn Compute, DeviceError> {
        self.inner.compute().ok_or(DeviceError::Unsupported(Feature::Compute))
    }

    fn host(&self) -> Result<&dyn HostAccess, DeviceError> {
        self.inner.host_access().ok_or(DeviceError::Unsupported(Feature::HostMapping))
    }

    /// Takes pages away from where they are, as if nothing had to stand.
    fn unmap_elsewhere(&self, ops: &[MapOp]) -> Result<(), DeviceError> {
        let old = self.shadow().elsewhere(ops);
        self.pages()?.unmap(&old, &[])?;
        self.shadow().unmapped(&old);
        Ok(())
    }

    fn regions(&self, regions: &[Region]) -> Vec<Region> {
        let mut regions = regions.to_vec();
        for region in &mut regions {
            match self.flaw {
                Flaw::SeedHalved => region.seed &= u64::from(u32::MAX),
                Flaw::PatternDropsSecondWindow => region.bytes = region.bytes.min(WINDOW),
                _ => {}
            }
        }
        regions
    }
}

impl Paging for Probe {
    fn reserve(&self, class: ClassId, bytes: u64) -> Result<Reserved, DeviceError> {
        let most = self.caps.paging.map_or(0, |paging| paging.max_space_bytes);
        let bytes = if self.has(Flaw::HugeReserveAccepted) { bytes.min(most) } else { bytes };
        let answer = self.pages()?.reserve(class, bytes);
        let mut made = self.count(answer, |alive| alive.spaces += 1)?;
        self.shadow().reserved(made.space, class);
        if self.has(Flaw::ReserveSameTwice) {
            let first = *self.memory().reserved.get_or_insert(made.space);
            made.space = first;
        }
        Ok(made)
    }

    fn unreserve(&self, space: SpaceId) -> Result<(), DeviceError> {
        let answer = self.count(self.pages()?.unreserve(space), |alive| alive.spaces -= 1);
        self.forgiving(answer)
    }

    fn create(
        &self,
        class: ClassId,
        bytes: u64,
        exportable: bool,
    ) -> Result<MemoryId, DeviceError> {
        let answer = self.pages()?.create(class, bytes, exportable);
        let memory = self.count(answer, |alive| alive.objects += 1)?;
        self.shadow().created(memory, class, bytes, exportable);
        Ok(memory)
    }

    fn release(&self, memory: MemoryId) -> Result<(), DeviceError> {
        if self.has(Flaw::PagesNotReleased) {
            return Ok(());
        }
        let answer = self.count(self.pages()?.release(memory), |alive| alive.objects -= 1);
        if answer.is_ok() {
            self.shadow().released(memory);
        }
        self.forgiving(answer)
    }

    fn map(&self, ops: &[MapOp], after: &[SyncPoint]) -> Result<Option<SyncPoint>, DeviceError> {
        let mut ops = ops.to_vec();
        let after = if self.has(Flaw::MapIgnoresAfter) { &[] } else { after };
        match self.flaw {
            Flaw::MapDropsLast if ops.len() > 1 => drop(ops.pop()),
            Flaw::MapIgnoresOffset => ops.iter_mut().for_each(|op| op.memory_offset = 0),
            Flaw::MapPartly => {
                let answer = self.pages()?.map(&ops, after);
                if let (Err(_), Some(first)) = (answer, ops.first()) {
                    let _ = self.pages()?.map(&[*first], after);
                }
                return answer;
            }
            Flaw::StaleUnmappedEarly => self.unmap_elsewhere(&ops)?,
            Flaw::MapSwapsPages => self.shadow().swap_mapped(&mut ops),
            _ => {}
        }
        let point = self.pages()?.map(&ops, after)?;
        self.shadow().mapped(&ops);
        Ok(point)
    }

    fn unmap(
        &self,
        ops: &[UnmapOp],
        after: &[SyncPoint],
    ) -> Result<Option<SyncPoint>, DeviceError> {
        if self.has(Flaw::UnmapIgnored) {
            return Ok(None);
        }
        let after = if self.has(Flaw::UnmapIgnoresAfter) { &[] } else { after };
        let answer = self.pages()?.unmap(ops, after);
        if answer.is_ok() {
            self.shadow().unmapped(ops);
        }
        match answer {
            Err(DeviceError::InvalidCall(_)) if self.has(Flaw::UnmapForgives) => Ok(None),
            answer => answer,
        }
    }
}

impl Compute for Probe {
    fn load(&self, source: &KernelSource) -> Result<KernelId, DeviceError> {
        let answer = match self.kernels()?.load(source) {
            Err(_) if self.has(Flaw::AnyKernelLoads) => return Ok(KernelId(u64::MAX)),
            answer => answer,
        };
        self.count(answer, |alive| alive.kernels += 1)
    }

    #[allow(unsafe_code)]
    unsafe fn load_unchecked(&self, source: &UnsafeKernelSource) -> Result<KernelId, DeviceError> {
        // SAFETY: the caller's promise is passed on as it is.
        let answer = unsafe { self.kernels()?.load_unchecked(source) };
        self.count(answer, |alive| alive.kernels += 1)
    }

    fn unload(&self, kernel: KernelId) -> Result<(), DeviceError> {
        if self.has(Flaw::UnloadIgnored) {
            self.lock().kernels -= 1;
            return Ok(());
        }
        let answer = self.count(self.kernels()?.unload(kernel), |alive| alive.kernels -= 1);
        self.forgiving(answer)
    }

    fn dispatch(
        &self,
        stream: StreamId,
        kernel: KernelId,
        bindings: &[Binding],
        push: &[u8],
        groups: [u32; 3],
    ) -> Result<SyncPoint, DeviceError> {
        let zeros = vec![0; push.len()];
        let push = if self.has(Flaw::PushIgnored) { &zeros } else { push };
        let groups = if self.has(Flaw::FirstGroupOnly) { groups.map(|n| n.min(1)) } else { groups };
        let answer = self.kernels()?.dispatch(stream, kernel, bindings, push, groups);
        self.lenient(stream, answer)
    }

    fn fill_pattern(&self, stream: StreamId, regions: &[Region]) -> Result<SyncPoint, DeviceError> {
        let regions = self.regions(regions);
        self.lenient(stream, self.kernels()?.fill_pattern(stream, &regions))
    }

    fn verify(&self, stream: StreamId, regions: &[Region]) -> Result<Ticket, DeviceError> {
        self.kernels()?.verify(stream, &self.regions(regions))
    }

    fn checksum(&self, stream: StreamId, regions: &[Region]) -> Result<Ticket, DeviceError> {
        self.kernels()?.checksum(stream, regions)
    }

    fn take_report(&self, ticket: Ticket) -> Result<Report, DeviceError> {
        let taken = self.kernels()?.take_report(ticket);
        match (self.flaw, taken) {
            (Flaw::TicketsTakenEarly, Err(DeviceError::InvalidCall(_))) => Ok(Vec::new()),
            (Flaw::TicketsTakenTwice, Ok(report)) => {
                self.memory().reports.insert(ticket.id, report.clone());
                Ok(report)
            }
            (Flaw::TicketsTakenTwice, Err(error)) => {
                self.memory().reports.get(&ticket.id).cloned().ok_or(error)
            }
            (Flaw::VerifySaysZero, Ok(report)) => Ok(vec![0; report.len()]),
            (Flaw::VerifySaysOne, Ok(report)) => Ok(report.iter().map(|n| n + 1).collect()),
            (Flaw::ReportsReversed, Ok(mut report)) => {
                report.reverse();
                Ok(report)
            }
            (Flaw::ChecksumIgnoresOrder, Ok(report)) => Ok(report.iter().map(|n| n | 1).collect()),
            (_, taken) => taken,
        }
    }

    fn gather(&self, stream: StreamId, ops: &[CopyOp]) -> Result<SyncPoint, DeviceError> {
        let drops = self.has(Flaw::GatherDropsLast) && ops.len() > 1;
        let ops = if drops { &ops[..ops.len() - 1] } else { ops };
        self.lenient(stream, self.kernels()?.gather(stream, ops))
    }

    fn gather_within(
        &self,
        stream: StreamId,
        ops: &[CopyOp],
        groups: u32,
    ) -> Result<SyncPoint, DeviceError> {
        let drops = self.has(Flaw::GatherDropsLast) && ops.len() > 1;
        let ops = if drops { &ops[..ops.len() - 1] } else { ops };
        self.lenient(stream, self.kernels()?.gather_within(stream, ops, groups))
    }

    fn dispatches(&self) -> u64 {
        if self.has(Flaw::DispatchesNotCounted) {
            return 0;
        }
        self.inner.compute().map_or(0, Compute::dispatches)
    }
}

/// A view that is broken.
struct Broken {
    inner: Box<dyn HostView>,
    bytes: Vec<u8>,
}

impl HostView for Broken {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // What is written here never comes to the view inside.
        let _ = self.inner.bytes();
        &mut self.bytes
    }
}

/// A view of nothing.
struct Nothing(Vec<u8>);

impl HostView for Nothing {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl HostAccess for Probe {
    fn view(&self, place: Place, bytes: u64) -> Result<Box<dyn HostView>, DeviceError> {
        let inner = match self.host()?.view(place, bytes) {
            Err(_) if self.has(Flaw::ViewOfEverything) => {
                return Ok(Box::new(Nothing(vec![0; bytes as usize])));
            }
            answer => answer?,
        };
        match self.flaw {
            Flaw::ViewReadsZero => {
                let bytes = vec![0; inner.bytes().len()];
                Ok(Box::new(Broken { inner, bytes }))
            }
            Flaw::ViewWritesLost => {
                let bytes = inner.bytes().to_vec();
                Ok(Box::new(Broken { inner, bytes }))
            }
            // What the first view of a place showed is all that any later one shows.
            Flaw::MapsStale => {
                let id = place.space.0 ^ place.offset.rotate_left(32);
                let now = inner.bytes().to_vec();
                let mut bytes = self.memory().bytes.entry(id).or_insert(now).clone();
                bytes.resize(inner.bytes().len(), 0);
                Ok(Box::new(Broken { inner, bytes }))
            }
            _ => Ok(inner),
        }
    }

    fn pointer(&self, place: Place) -> Result<NonNull<u8>, DeviceError> {
        let pointer = self.host()?.pointer(place)?;
        if self.has(Flaw::PointersShifted) && place.offset > 0 {
            let address = pointer.addr().saturating_add(1);
            return Ok(pointer.with_addr(address));
        }
        Ok(pointer)
    }

    fn flush(&self, place: Place, bytes: u64) -> Result<(), DeviceError> {
        self.host()?.flush(place, bytes)
    }

    fn invalidate(&self, place: Place, bytes: u64) -> Result<(), DeviceError> {
        self.host()?.invalidate(place, bytes)
    }
}
