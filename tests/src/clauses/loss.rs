//! A device that is lost.

use std::time::Duration;

use terrane_core::device::{CopyOp, DeviceError, HeapId, Region, StreamSpec};

use super::device;
use super::memory::start;
use crate::clause::{Blame, Clause, Need, Outcome, fails};
use crate::rig::{Rig, at};

pub(super) const CLAUSES: &[Clause] = &[device(
    "loss.every-method",
    "A lost device answers so to every method, and takes things back without a word.",
    &[Need::Losable, Need::Compute],
    "DeviceError::Lost",
    Blame::Backend,
    every_method,
)];

fn every_method(rig: &Rig) -> Outcome {
    let stream = rig.device().create_stream(StreamSpec::default())?;
    let plain =
        rig.device().create_plain(&rig.spec(rig.class(terrane_core::MemoryKind::Device)?, 4096))?;
    let place = start(plain);
    let point = rig.device().fill(stream, place, 64, 1)?;
    let (device, compute, lost) = (rig.device(), rig.compute()?, DeviceError::Lost);
    rig.sim()?.lose();
    let spec = rig.spec(rig.class(terrane_core::MemoryKind::Device)?, 4096);
    fails(&device.heap_use(HeapId(0)).map(drop), &lost, "heap use")?;
    fails(&device.create_plain(&spec).map(drop), &lost, "create plain")?;
    fails(&device.create_stream(StreamSpec::default()), &lost, "create stream")?;
    fails(&device.mark(stream), &lost, "mark")?;
    fails(&device.reached(stream), &lost, "reached")?;
    fails(&device.wait_on_stream(stream, &[point]), &lost, "wait on stream")?;
    fails(&device.wait_any(&[point], Duration::from_secs(5)), &lost, "wait any")?;
    fails(&device.fill(stream, place, 64, 1), &lost, "fill")?;
    let op = CopyOp { from: place, to: at(plain.space, 64), bytes: 64 };
    fails(&device.copy(stream, &[op]), &lost, "copy")?;
    fails(&device.write(stream, place, &[1]), &lost, "write")?;
    fails(&device.read(stream, place, 4).map(drop), &lost, "read")?;
    let region = Region { place, bytes: 64, seed: 1 };
    fails(&compute.fill_pattern(stream, &[region]), &lost, "fill pattern")?;
    fails(&compute.verify(stream, &[region]).map(drop), &lost, "verify")?;
    device.release_plain(plain.space)?;
    device.retire_stream(stream)?;
    Ok(())
}
