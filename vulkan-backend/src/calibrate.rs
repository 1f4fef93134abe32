//! What the device's calls cost, measured when it is opened: some milliseconds on a GPU.

use std::time::{Duration, Instant};

use terrane_core::device::{
    CopyOp, Costs, Device, DeviceError, Line, MapOp, MemoryKind, Paging, Place, PlainSpec,
    StreamId, StreamSpec, SyncPoint, UnmapOp,
};

use crate::device::VulkanDevice;
use crate::work::timed::Timed;

const MIB: u64 = 1 << 20;

/// Costs, and whether a gather by kernel beats the driver's copy.
pub struct Measured {
    pub costs: Costs,
    pub prefer_gather: bool,
}

/// Measures a device that nobody else uses yet.
pub fn measure(device: &VulkanDevice) -> Result<Measured, DeviceError> {
    let large = if device.info().is_cpu { 4 * MIB } else { 64 * MIB };
    let stream = device.create_stream(StreamSpec::default())?;
    let mut costs = Costs::default();
    let moved = moves(device, stream, large, &mut costs);
    let paged = match device.paging() {
        Some(paging) if moved.is_ok() => pages(device, paging, large, &mut costs),
        _ => Ok(()),
    };
    device.retire_stream(stream)?;
    let prefer_gather = moved?;
    paged?;
    Ok(Measured { costs, prefer_gather })
}

/// The line through two measurements.
fn line(small: (u64, f64), large: (u64, f64)) -> Line {
    let mib = |bytes: u64| bytes as f64 / MIB as f64;
    let slope = ((large.1 - small.1) / (mib(large.0) - mib(small.0))).max(0.0);
    Line { fixed_ns: (small.1 - slope * mib(small.0)).max(0.0), ns_per_mib: slope }
}

fn wait(device: &VulkanDevice, point: SyncPoint) -> Result<(), DeviceError> {
    // A second is far more than anything here takes; if it passes, the measurement is worthless
    // but nothing else is wrong.
    device.wait_any(&[point], Duration::from_secs(1)).map(|_| ())
}

fn ns(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64
}

fn moves(
    device: &VulkanDevice,
    stream: StreamId,
    large: u64,
    costs: &mut Costs,
) -> Result<bool, DeviceError> {
    let caps = device.caps();
    let class = caps.classes_of(MemoryKind::Device).next();
    let class = class.ok_or(DeviceError::InvalidCall("no device memory"))?;
    let small = caps.plain_granularity;
    let make = |bytes| {
        let bytes = bytes / small * small;
        let spec =
            PlainSpec { class, bytes, exportable: false, priority: 0.5, name: "calibration" };
        let start = Instant::now();
        device.create_plain(&spec).map(|plain| (plain.space, ns(start)))
    };
    let release = |space| {
        let start = Instant::now();
        device.release_plain(space).map(|()| ns(start))
    };
    // The first call of a kind often does more than the later ones.
    let (mut tiny_made, mut tiny_gone) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..3 {
        let (tiny, made) = make(small)?;
        tiny_made = tiny_made.min(made);
        tiny_gone = tiny_gone.min(release(tiny)?);
    }
    let (space, made) = make(2 * large)?;
    let result = copies(device, stream, Place { space, offset: 0 }, large, costs);
    let gone = release(space)?;
    costs.plain_create = line((small, tiny_made), (2 * large, made));
    costs.plain_release = line((small, tiny_gone), (2 * large, gone));
    costs.page_create = costs.plain_create;
    costs.page_release = costs.plain_release;
    result
}

fn copies(
    device: &VulkanDevice,
    stream: StreamId,
    from: Place,
    large: u64,
    costs: &mut Costs,
) -> Result<bool, DeviceError> {
    // Touched once, so that memory that the system gives lazily is there.
    wait(device, device.fill(stream, from, 2 * large, 0)?)?;
    let to = Place { offset: large, ..from };
    let small = 64 << 10;
    let best = |work: &dyn Fn(&[CopyOp]) -> Result<f64, DeviceError>, bytes| {
        let op = [CopyOp { from, to, bytes }];
        (0..3).try_fold(f64::INFINITY, |best, _| Ok::<_, DeviceError>(work(&op)?.min(best)))
    };
    let timed = |work: Timed<'_>| {
        let timing = device.timed(stream, work)?;
        wait(device, timing.point)?;
        timing.device_ns()
    };
    let copy = |ops: &[CopyOp]| timed(Timed::Copy(ops));
    let gather = |ops: &[CopyOp]| timed(Timed::Gather(ops));
    let copied = (best(&copy, small)?, best(&copy, large)?);
    let gathered = (best(&gather, small)?, best(&gather, large)?);
    costs.copy = line((small, copied.0), (large, copied.1));
    costs.gather = line((small, gathered.0), (large, gathered.1));
    Ok(gathered.1 < copied.1)
}

/// Binds one page alone, and as many bytes in one bind; both waited for.
fn pages(
    device: &VulkanDevice,
    paging: &dyn Paging,
    large: u64,
    costs: &mut Costs,
) -> Result<(), DeviceError> {
    let Some(caps) = device.caps().paging else { return Ok(()) };
    let Some(class) = device.caps().classes_of(MemoryKind::Device).next() else { return Ok(()) };
    let large = large.next_multiple_of(caps.granularity);
    let space = paging.reserve(class, large)?.space;
    let at = Place { space, offset: 0 };
    let result = paging.create(class, large, false).and_then(|memory| {
        let round = |bytes| -> Result<(f64, f64), DeviceError> {
            let start = Instant::now();
            let mapped = paging.map(&[MapOp { at, memory, memory_offset: 0, bytes }], &[])?;
            mapped.map_or(Ok(()), |point| wait(device, point))?;
            let map = ns(start);
            let start = Instant::now();
            let gone = paging.unmap(&[UnmapOp { at, bytes }], &[])?;
            gone.map_or(Ok(()), |point| wait(device, point))?;
            Ok((map, ns(start)))
        };
        let best = |bytes| {
            (0..3).try_fold((f64::INFINITY, f64::INFINITY), |best, _| {
                let (map, unmap) = round(bytes)?;
                Ok::<_, DeviceError>((map.min(best.0), unmap.min(best.1)))
            })
        };
        let times = best(caps.granularity).and_then(|small| Ok((small, best(large)?)));
        paging.release(memory)?;
        times
    });
    paging.unreserve(space)?;
    let (small, whole) = result?;
    costs.page_map = line((caps.granularity, small.0), (large, whole.0));
    costs.page_unmap = line((caps.granularity, small.1), (large, whole.1));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_through_both_measurements_and_never_falls() {
        let fit = line((MIB, 300.0), (11 * MIB, 1300.0));
        assert_eq!(fit, Line { fixed_ns: 200.0, ns_per_mib: 100.0 });
        assert_eq!(fit.ns(11 * MIB), 1300.0);
        assert_eq!(line((MIB, 300.0), (2 * MIB, 100.0)).ns_per_mib, 0.0);
    }
}
