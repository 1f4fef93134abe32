//! The built-in kernels: fill, verify, checksum, gather. They let the allocator verify what it
//! moves and clear what it hands out; a backend without kernels of the user's may stop here.

use terrane_core::device::{
    Binding, Compute, CopyOp, DeviceError, Feature, KernelId, KernelSource, Region, Report,
    StreamId, SyncPoint, Ticket, UnsafeKernelSource, pattern, rules,
};

use crate::Template;
use crate::memory::Memory;

const NO_KERNELS: DeviceError = DeviceError::Unsupported(Feature::Compute);

impl Template {
    /// A number for each region, once the stream comes to it.
    fn report(
        &self,
        stream: StreamId,
        regions: &[Region],
        of: impl Fn(&Region, &[u8]) -> u64,
    ) -> Result<Ticket, DeviceError> {
        rules::regions(regions).map_err(DeviceError::InvalidCall)?;
        let mut state = self.lock()?;
        let look = |memory: &mut Memory| {
            let one = |region: &Region| Ok(of(region, memory.bytes(region.place, region.bytes)?));
            regions.iter().map(one).collect::<Result<Report, _>>()
        };
        let (report, point) = state.submit(stream, look)?;
        state.dispatches += 1;
        let ticket = state.ticket(point);
        state.reports.insert(ticket.id, report);
        Ok(ticket)
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]))
}

impl Compute for Template {
    fn load(&self, _: &KernelSource) -> Result<KernelId, DeviceError> {
        Err(NO_KERNELS)
    }

    unsafe fn load_unchecked(&self, _: &UnsafeKernelSource) -> Result<KernelId, DeviceError> {
        Err(NO_KERNELS)
    }

    fn unload(&self, _: KernelId) -> Result<(), DeviceError> {
        Err(DeviceError::InvalidCall("no such kernel"))
    }

    fn dispatch(
        &self,
        stream: StreamId,
        _: KernelId,
        _: &[Binding],
        _: &[u8],
        _: [u32; 3],
    ) -> Result<SyncPoint, DeviceError> {
        self.lock()?.open_stream(stream)?;
        Err(DeviceError::InvalidCall("no such kernel"))
    }

    fn fill_pattern(&self, stream: StreamId, regions: &[Region]) -> Result<SyncPoint, DeviceError> {
        rules::regions(regions).map_err(DeviceError::InvalidCall)?;
        let mut state = self.lock()?;
        let fill = |memory: &mut Memory| {
            for region in regions {
                memory.bytes(region.place, region.bytes)?;
            }
            for region in regions {
                let bytes = memory.bytes_mut(region.place, region.bytes)?;
                for (index, at) in (0..).zip(bytes.chunks_exact_mut(4)) {
                    at.copy_from_slice(&pattern::word(region.seed, index).to_le_bytes());
                }
            }
            Ok(())
        };
        let ((), point) = state.submit(stream, fill)?;
        state.dispatches += 1;
        Ok(point)
    }

    fn verify(&self, stream: StreamId, regions: &[Region]) -> Result<Ticket, DeviceError> {
        self.report(stream, regions, |region, bytes| {
            let differs = |(index, word)| word != pattern::word(region.seed, index);
            (0..).zip(words(bytes)).filter(|&it| differs(it)).count() as u64
        })
    }

    fn checksum(&self, stream: StreamId, regions: &[Region]) -> Result<Ticket, DeviceError> {
        self.report(stream, regions, |_, bytes| pattern::checksum(words(bytes)))
    }

    fn take_report(&self, ticket: Ticket) -> Result<Report, DeviceError> {
        let taken = self.lock()?.reports.remove(&ticket.id);
        taken.ok_or(DeviceError::InvalidCall("no such report, or it was taken"))
    }

    fn gather(&self, stream: StreamId, ops: &[CopyOp]) -> Result<SyncPoint, DeviceError> {
        rules::copies(ops, 16).map_err(DeviceError::InvalidCall)?;
        let mut state = self.lock()?;
        let ((), point) = state.submit(stream, |memory| memory.copy(ops))?;
        state.dispatches += 1;
        Ok(point)
    }

    fn dispatches(&self) -> u64 {
        self.lock().map_or(0, |state| state.dispatches)
    }
}
