//! Measuring what the device's calls cost, in under 50 ms.

use std::time::{Duration, Instant};

use terrane_core::device::{
    ClassId, Compute, CopyOp, Costs, Device, DeviceError, Line, MapOp, Paging, Place, PlainSpec,
    SpaceId, StreamId, StreamSpec, UnmapOp,
};

use crate::CudaDevice;

const MIB: u64 = 1 << 20;
/// The two sizes through which a line is drawn, in bytes, and the rounds for each.
const SMALL: u64 = 2 * MIB;
const LARGE: u64 = 64 * MIB;
const ROUNDS: usize = 5;
/// How long one wait may take before the measurement is given up.
const PATIENCE: Duration = Duration::from_secs(2);

/// The middle of a few measurements, in nanoseconds.
fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(0.0)
}

/// The line through two measurements; never falling, never below zero.
fn line(small: f64, large: f64) -> Line {
    let mib = (LARGE - SMALL) as f64 / MIB as f64;
    let slope = ((large - small) / mib).max(0.0);
    Line { fixed_ns: (small - slope * (SMALL / MIB) as f64).max(0.0), ns_per_mib: slope }
}

fn timed<T>(
    samples: &mut Vec<f64>,
    call: impl FnOnce() -> Result<T, DeviceError>,
) -> Result<T, DeviceError> {
    let start = Instant::now();
    let out = call()?;
    samples.push(start.elapsed().as_nanos() as f64);
    Ok(out)
}

/// Samples of every call, at one size.
#[derive(Default)]
struct Samples {
    plain_create: Vec<f64>,
    plain_release: Vec<f64>,
    page_create: Vec<f64>,
    page_map: Vec<f64>,
    page_unmap: Vec<f64>,
    page_release: Vec<f64>,
}

impl CudaDevice {
    /// Measures the costs of this device's calls: the medians of a few rounds at 2 MiB and at
    /// 64 MiB with a line through them. Takes under 50 ms and about 260 MiB while it runs; other
    /// work on the device makes the figures higher.
    ///
    /// # Errors
    /// What the calls answer, such as [`DeviceError::OutOfMemory`].
    pub fn calibrate(&self) -> Result<Costs, DeviceError> {
        let (small, large) = (self.sample(SMALL)?, self.sample(LARGE)?);
        let both = |part: fn(&Samples) -> &Vec<f64>| {
            line(median(part(&small).clone()), median(part(&large).clone()))
        };
        let (copy, gather) = self.measure_copies()?;
        Ok(Costs {
            plain_create: both(|samples| &samples.plain_create),
            plain_release: both(|samples| &samples.plain_release),
            page_create: both(|samples| &samples.page_create),
            page_map: both(|samples| &samples.page_map),
            page_unmap: both(|samples| &samples.page_unmap),
            page_release: both(|samples| &samples.page_release),
            copy,
            gather,
        })
    }

    fn sample(&self, bytes: u64) -> Result<Samples, DeviceError> {
        let mut samples = Samples::default();
        let spec =
            PlainSpec { class: ClassId(0), bytes, exportable: false, priority: 0.5, name: "" };
        for _ in 0..ROUNDS {
            let plain = timed(&mut samples.plain_create, || self.create_plain(&spec))?;
            timed(&mut samples.plain_release, || self.release_plain(plain.space))?;
        }
        if self.paging().is_some() {
            let space = Paging::reserve(self, ClassId(0), bytes)?.space;
            let sampled =
                (0..ROUNDS).try_for_each(|_| self.sample_page(&mut samples, space, bytes));
            self.unreserve(space)?;
            sampled?;
        }
        Ok(samples)
    }

    fn sample_page(
        &self,
        samples: &mut Samples,
        space: SpaceId,
        bytes: u64,
    ) -> Result<(), DeviceError> {
        let at = Place { space, offset: 0 };
        let memory = timed(&mut samples.page_create, || self.create(ClassId(0), bytes, false))?;
        let op = MapOp { at, memory, memory_offset: 0, bytes };
        let mapped = timed(&mut samples.page_map, || self.map(&[op], &[]));
        if mapped.is_ok() {
            timed(&mut samples.page_unmap, || self.unmap(&[UnmapOp { at, bytes }], &[]))?;
        }
        timed(&mut samples.page_release, || self.release(memory))?;
        mapped.map(|_| ())
    }

    /// The lines of the driver's copy and of a gather, per block: what many blocks cost together,
    /// divided by their number.
    fn measure_copies(&self) -> Result<(Line, Line), DeviceError> {
        let spec = PlainSpec {
            class: ClassId(0),
            bytes: 2 * LARGE,
            exportable: false,
            priority: 0.5,
            name: "",
        };
        let plain = self.create_plain(&spec)?;
        let stream = self.create_stream(StreamSpec::default())?;
        let lines = self.copy_lines(stream, plain.space);
        let mark = self.mark(stream)?;
        let idle = self.wait_any(&[mark], PATIENCE);
        self.retire_stream(stream)?;
        idle?;
        self.release_plain(plain.space)?;
        lines
    }

    fn copy_lines(&self, stream: StreamId, space: SpaceId) -> Result<(Line, Line), DeviceError> {
        let ops = |count: u64| -> Vec<CopyOp> {
            let bytes = LARGE / count;
            let place = |offset| Place { space, offset };
            (0..count)
                .map(|i| CopyOp { from: place(i * bytes), to: place(LARGE + i * bytes), bytes })
                .collect()
        };
        let (many, few) = (ops(LARGE / SMALL), ops(1));
        // The first gather loads the kernels.
        self.gather(stream, &few)?;
        let driver = |ops: &[CopyOp]| self.per_block(stream, ops, |ops| self.copy(stream, ops));
        let kernel = |ops: &[CopyOp]| self.per_block(stream, ops, |ops| self.gather(stream, ops));
        let copy = line(driver(&many)?, driver(&few)?);
        Ok((copy, line(kernel(&many)?, kernel(&few)?)))
    }

    fn per_block(
        &self,
        stream: StreamId,
        ops: &[CopyOp],
        submit: impl Fn(&[CopyOp]) -> Result<terrane_core::device::SyncPoint, DeviceError>,
    ) -> Result<f64, DeviceError> {
        let mut samples = Vec::with_capacity(3);
        for _ in 0..3 {
            let start = self.stamp(stream)?;
            submit(ops)?;
            let end = self.stamp(stream)?;
            if !self.wait_any(&[end.point()], PATIENCE)? {
                return Err(DeviceError::InvalidCall("the device is too busy to measure"));
            }
            samples.push(self.elapsed_ns(&start, &end)? / ops.len().max(1) as f64);
        }
        Ok(median(samples))
    }
}
