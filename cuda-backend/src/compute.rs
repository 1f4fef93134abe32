//! Running kernels: a user's by its bindings, the built-in ones by tables of tiles.

use std::sync::atomic::Ordering;

use terrane_core::device::{
    Binding, Compute, CopyOp, DeviceError, Feature, KernelId, KernelSource, Region, Report,
    StreamId, SyncPoint, Ticket, UnsafeKernelSource, rules,
};

use crate::CudaDevice;
use crate::driver::{Launch, RawEvent, RawFunction, RawStream};
use crate::inner::{Inner, lock};
use crate::kernels::Kernel;
use crate::staging::{Home, NEVER_USED, TicketKind, Waiting, store};

/// Bytes that one group of threads works on at a time; the same number is in `builtin.cu`.
pub(crate) const TILE: u64 = 32 << 10;
/// Threads of a group of the built-in kernels; the same number is in `builtin.cu`.
pub(crate) const THREADS: u32 = 256;
/// Bytes of an entry of a table: address, bytes, extra, first tile.
pub(crate) const ENTRY: usize = 32;
/// Groups for each multiprocessor: enough to fill it, few enough that each has many tiles.
const GROUPS_EACH: u32 = 64;

/// The table of a built-in kernel.
struct Tiles {
    /// The entries' bytes, as the kernel reads them.
    table: Vec<u8>,
    count: u32,
    tiles: u64,
    /// Groups at most.
    most: u32,
}

impl Tiles {
    /// `rows` are (address, bytes, extra).
    fn new(rows: impl ExactSizeIterator<Item = (u64, u64, u64)>) -> Result<Self, DeviceError> {
        let count = u32::try_from(rows.len())
            .map_err(|_| DeviceError::InvalidCall("more than 2^32 - 1 ranges in one call"))?;
        let mut table = Vec::with_capacity(rows.len() * ENTRY);
        let mut tiles = 0_u64;
        for (address, bytes, extra) in rows {
            for number in [address, bytes, extra, tiles] {
                table.extend_from_slice(&number.to_le_bytes());
            }
            tiles += bytes.div_ceil(TILE);
        }
        Ok(Self { table, count, tiles, most: u32::MAX })
    }

    /// By no more groups than this, at least one.
    fn within(self, groups: u32) -> Self {
        Self { most: groups.max(1), ..self }
    }

    fn groups(&self, multiprocessors: u32) -> [u32; 3] {
        let most = multiprocessors.saturating_mul(GROUPS_EACH).min(self.most);
        [u32::try_from(self.tiles).map_or(most, |tiles| tiles.min(most)), 1, 1]
    }
}

/// What becomes of a table's results.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Results {
    /// The kernel has none.
    None,
    /// 8 bytes for each entry, added to by the kernel.
    Sums,
}

/// Where a run's memory is: table first, then results, on the host and on the device.
struct Run {
    table: u64,
    host: u64,
    scratch: u64,
    results: u64,
}

impl Inner {
    /// Runs a built-in kernel over a table; the ticket's buffer holds the results.
    fn run(
        &self,
        stream: StreamId,
        function: impl FnOnce(&Self) -> Result<RawFunction, DeviceError>,
        tiles: &Tiles,
        results: Results,
        times: Option<[RawEvent; 2]>,
    ) -> Result<(SyncPoint, Option<Ticket>), DeviceError> {
        let stream = self.streams.get(stream)?;
        self.not_captured(&stream)?;
        let function = function(self)?;
        let table_bytes = tiles.table.len() as u64;
        let result_bytes = match results {
            Results::None => 0,
            Results::Sums => u64::from(tiles.count) * 8,
        };
        let all_bytes = table_bytes + result_bytes;
        let host = self.take_buffer(Home::Pinned, all_bytes)?;
        let scratch = match self.take_buffer(Home::Device, all_bytes) {
            Ok(scratch) => scratch,
            Err(error) => {
                self.staging.put(host, NEVER_USED);
                return Err(error);
            }
        };
        store(&host, &tiles.table);
        let run = Run {
            table: table_bytes,
            host: host.address,
            scratch: scratch.address,
            results: result_bytes,
        };
        let submitted = stream
            .submit(|raw| self.between(times, raw, || self.submit_run(raw, function, tiles, &run)));
        self.kernels.count();
        // After a failure a part may have been submitted: what comes later on the stream covers it.
        let point = submitted.or_else(|_| stream.mark()).unwrap_or(NEVER_USED);
        self.staging.put(scratch, point);
        if submitted.is_ok() && results == Results::Sums {
            let kind = TicketKind::Report;
            let (offset, bytes) = (table_bytes, result_bytes);
            let ticket = self.ticket(Waiting { buffer: host, offset, bytes, kind, point });
            return Ok((point, Some(ticket)));
        }
        self.staging.put(host, point);
        submitted.map(|point| (point, None))
    }

    fn submit_run(
        &self,
        stream: RawStream,
        function: RawFunction,
        tiles: &Tiles,
        run: &Run,
    ) -> Result<(), DeviceError> {
        if tiles.count == 0 {
            return Ok(());
        }
        let (driver, results) = (self.driver.as_ref(), run.scratch + run.table);
        let submit = || {
            driver.copy(run.scratch, run.host, run.table, stream)?;
            if run.results > 0 {
                driver.fill(results, 0, run.results / 4, stream)?;
            }
            if tiles.tiles > 0 {
                let mut params = Vec::with_capacity(32);
                params.extend_from_slice(&run.scratch.to_le_bytes());
                params.extend_from_slice(&tiles.tiles.to_le_bytes());
                params.extend_from_slice(&tiles.count.to_le_bytes());
                // The driver refuses a byte too many, so what aligns the next one comes with it.
                if run.results > 0 {
                    params.extend_from_slice(&[0; 4]);
                    params.extend_from_slice(&results.to_le_bytes());
                }
                let groups = tiles.groups(self.details.multiprocessors);
                let threads = [THREADS, 1, 1];
                let launch = Launch { function, groups, threads, shared_bytes: 0, params: &params };
                driver.launch(&launch, stream)?;
            }
            if run.results > 0 {
                driver.copy(run.host + run.table, results, run.results, stream)?;
            }
            Ok(())
        };
        submit().map_err(|fault| self.fail(fault))
    }

    fn regions(&self, regions: &[Region]) -> Result<Tiles, DeviceError> {
        let ranges = regions.iter().map(|region| (region.place, region.bytes));
        let addresses = self.spaces.addresses(ranges)?;
        for region in regions {
            if !region.place.offset.is_multiple_of(4) || !region.bytes.is_multiple_of(4) {
                return Err(DeviceError::InvalidCall("offsets and bytes are multiples of 4"));
            }
        }
        Tiles::new(
            regions.iter().zip(addresses).map(|(region, at)| (at, region.bytes, region.seed)),
        )
    }

    fn copies(&self, ops: &[CopyOp]) -> Result<Tiles, DeviceError> {
        let from = self.spaces.addresses(ops.iter().map(|op| (op.from, op.bytes)))?;
        let to = self.spaces.addresses(ops.iter().map(|op| (op.to, op.bytes)))?;
        rules::copies(ops, 16).map_err(DeviceError::InvalidCall)?;
        let rows = ops.iter().zip(from.into_iter().zip(to));
        Tiles::new(rows.map(|(op, (from, to))| (from, op.bytes, to)))
    }

    /// Copies by the gather kernel, by no more than so many groups at a time. Pre: entered.
    pub(crate) fn gather(
        &self,
        stream: StreamId,
        ops: &[CopyOp],
        groups: u32,
        times: Option<[RawEvent; 2]>,
    ) -> Result<SyncPoint, DeviceError> {
        let tiles = self.copies(ops)?.within(groups);
        let function = |inner: &Self| Ok(inner.builtin()?.gather);
        Ok(self.run(stream, function, &tiles, Results::None, times)?.0)
    }

    fn params(&self, bindings: &[Binding], push: &[u8]) -> Result<Vec<u8>, DeviceError> {
        if push.len() > self.caps.max_push_bytes as usize
            || bindings.len() > self.caps.max_bindings as usize
        {
            return Err(DeviceError::InvalidCall("more bindings or push data than a kernel has"));
        }
        let mut params = Vec::with_capacity(bindings.len() * 8 + push.len());
        for binding in bindings {
            let limit = self.caps.max_binding_bytes;
            if binding.bytes > limit {
                return Err(DeviceError::TooLarge { bytes: binding.bytes, limit });
            }
            if !self.caps.binding_align.divides(binding.place.offset) {
                return Err(DeviceError::InvalidCall("a binding's offset is not aligned"));
            }
            let address = self.spaces.address(binding.place, binding.bytes)?;
            params.extend_from_slice(&address.to_le_bytes());
        }
        params.extend_from_slice(push);
        Ok(params)
    }

    fn launch(
        &self,
        stream: StreamId,
        kernel: &Kernel,
        params: &[u8],
        groups: [u32; 3],
    ) -> Result<SyncPoint, DeviceError> {
        let stream = self.streams.get(stream)?;
        let point = stream.submit(|raw| {
            if groups.contains(&0) {
                return Ok(());
            }
            let launch = Launch {
                function: kernel.function,
                groups,
                threads: kernel.threads,
                shared_bytes: kernel.shared_bytes,
                params,
            };
            self.driver.launch(&launch, raw).map_err(|fault| self.fail_launch(fault))
        })?;
        lock(&kernel.used).insert(point);
        self.kernels.count();
        Ok(point)
    }
}

fn ticket_of(ran: (SyncPoint, Option<Ticket>)) -> Result<Ticket, DeviceError> {
    ran.1.ok_or(DeviceError::InvalidCall("a report without results"))
}

impl CudaDevice {
    /// Loads the built-in kernels now rather than at their first use: where the driver has not
    /// compiled them before on this machine, that takes some 200 ms.
    ///
    /// # Errors
    /// The driver's.
    pub fn prepare(&self) -> Result<(), DeviceError> {
        let _entered = self.inner.enter()?;
        self.inner.builtin().map(drop)
    }
}

impl Compute for CudaDevice {
    fn load(&self, source: &KernelSource) -> Result<KernelId, DeviceError> {
        let _ = source;
        // What CUDA runs has addresses, so none of it is confined to its bindings.
        Err(DeviceError::Unsupported(Feature::KernelLanguage))
    }

    unsafe fn load_unchecked(&self, source: &UnsafeKernelSource) -> Result<KernelId, DeviceError> {
        self.inner.load_kernel(source)
    }

    fn unload(&self, kernel: KernelId) -> Result<(), DeviceError> {
        self.inner.unload_kernel(kernel)
    }

    fn dispatch(
        &self,
        stream: StreamId,
        kernel: KernelId,
        bindings: &[Binding],
        push: &[u8],
        groups: [u32; 3],
    ) -> Result<SyncPoint, DeviceError> {
        let inner = &self.inner;
        let kernel = inner.kernels.get(kernel)?;
        let params = inner.params(bindings, push)?;
        if groups.iter().zip(inner.caps.max_groups).any(|(&wanted, most)| wanted > most) {
            return Err(DeviceError::InvalidCall("more groups than the device has"));
        }
        let _entered = inner.enter()?;
        inner.launch(stream, &kernel, &params, groups)
    }

    fn fill_pattern(&self, stream: StreamId, regions: &[Region]) -> Result<SyncPoint, DeviceError> {
        let tiles = self.inner.regions(regions)?;
        let _entered = self.inner.enter()?;
        let function = |inner: &Inner| Ok(inner.builtin()?.fill_pattern);
        Ok(self.inner.run(stream, function, &tiles, Results::None, None)?.0)
    }

    fn verify(&self, stream: StreamId, regions: &[Region]) -> Result<Ticket, DeviceError> {
        let tiles = self.inner.regions(regions)?;
        let _entered = self.inner.enter()?;
        let function = |inner: &Inner| Ok(inner.builtin()?.verify);
        ticket_of(self.inner.run(stream, function, &tiles, Results::Sums, None)?)
    }

    fn checksum(&self, stream: StreamId, regions: &[Region]) -> Result<Ticket, DeviceError> {
        let tiles = self.inner.regions(regions)?;
        let _entered = self.inner.enter()?;
        let function = |inner: &Inner| Ok(inner.builtin()?.checksum);
        ticket_of(self.inner.run(stream, function, &tiles, Results::Sums, None)?)
    }

    fn take_report(&self, ticket: Ticket) -> Result<Report, DeviceError> {
        let bytes = self.inner.take_ticket(ticket, TicketKind::Report)?;
        let (words, _) = bytes.as_chunks::<8>();
        Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    fn gather(&self, stream: StreamId, ops: &[CopyOp]) -> Result<SyncPoint, DeviceError> {
        let _entered = self.inner.enter()?;
        self.inner.gather(stream, ops, u32::MAX, None)
    }

    fn gather_within(
        &self,
        stream: StreamId,
        ops: &[CopyOp],
        groups: u32,
    ) -> Result<SyncPoint, DeviceError> {
        let _entered = self.inner.enter()?;
        self.inner.gather(stream, ops, groups, None)
    }

    fn dispatches(&self) -> u64 {
        self.inner.kernels.dispatches.load(Ordering::Relaxed)
    }
}
