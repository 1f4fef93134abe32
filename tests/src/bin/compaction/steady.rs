//! Kernels one after the other, without a pause between them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use terrane_core::device::{DeviceError, StreamId, StreamSpec, SyncPoint};

use crate::kernel::Multiply;
use crate::{Outcome, Shared, wait};

/// The shortest that a kernel of a loop takes: launching the next one has to take less.
const KERNEL: Duration = Duration::from_micros(150);
/// Kernels that a loop keeps submitted.
pub const AHEAD: usize = 4;

/// The least of doubling sizes with which a kernel takes long enough.
pub fn sized(
    device: &Shared,
    least: u64,
    most: u64,
    run: impl Fn(StreamId, u64) -> Result<SyncPoint, DeviceError>,
) -> Outcome<u64> {
    let stream = device.create_stream(StreamSpec::default())?;
    let mut size = least;
    loop {
        wait(&**device, run(stream, size)?)?;
        let begin = Instant::now();
        for _ in 0..AHEAD {
            run(stream, size)?;
        }
        wait(&**device, device.mark(stream)?)?;
        if begin.elapsed() >= KERNEL * AHEAD as u32 || size * 2 > most {
            device.retire_stream(stream)?;
            return Ok(size);
        }
        size *= 2;
    }
}

/// Keeps the device computing for so long.
///
/// Governors lower the clocks of a device that was mostly idle, and raise them after a second of
/// work: an H200 goes down to a third while a checkerboard is set up on it.
pub fn compute_for(device: &Shared, time: Duration) -> Outcome<()> {
    let multiply = Multiply::new(device)?;
    let groups = sized(device, 1, 1 << 24, |stream, groups| multiply.run(stream, groups as u32))?;
    let stream = device.create_stream(StreamSpec::default())?;
    let (begin, mut ahead) = (Instant::now(), VecDeque::new());
    while begin.elapsed() < time {
        ahead.push_back(multiply.run(stream, groups as u32)?);
        if ahead.len() > AHEAD
            && let Some(point) = ahead.pop_front()
        {
            wait(&**device, point)?;
        }
    }
    for point in ahead {
        wait(&**device, point)?;
    }
    device.retire_stream(stream)?;
    multiply.end()
}
