//! Work with device timestamps around it, for measuring.

use std::sync::Arc;

use terrane_core::device::{CopyOp, DeviceError, Feature, Region, StreamId, SyncPoint, Ticket};

use crate::device::Shared;
use crate::stream::Stamps;

use super::kernels::Builtin;
use super::transfer;

/// Work to be measured.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Timed<'a> {
    /// Copies by the driver.
    Copy(&'a [CopyOp]),
    /// Copies by kernel.
    Gather(&'a [CopyOp]),
    /// Patterns written.
    FillPattern(&'a [Region]),
    /// Memory read by checksums; the sums come by [`Timing::ticket`].
    Checksum(&'a [Region]),
}

/// Measured work on its way.
pub struct Timing {
    /// Reached when the work is done.
    pub point: SyncPoint,
    /// The ticket of measured checksums, to be taken as usual.
    pub ticket: Option<Ticket>,
    stamps: Arc<Stamps>,
}

impl Timing {
    /// Nanoseconds that the device worked. Pre: the point is reached.
    ///
    /// # Errors
    /// The driver's.
    pub fn device_ns(&self) -> Result<f64, DeviceError> {
        self.stamps.elapsed_ns()
    }
}

impl Shared {
    /// Copies with the device's times of their start and end.
    pub fn copy_timed(
        &self,
        stream: StreamId,
        ops: &[CopyOp],
        by_kernel: bool,
    ) -> Result<Ticket, DeviceError> {
        let work = if by_kernel { Timed::Gather(ops) } else { Timed::Copy(ops) };
        let Timing { point, stamps, .. } = self.timed(stream, work)?;
        Ok(self.stamps.add(point, stamps))
    }

    fn new_stamps(&self, stream: StreamId) -> Result<Arc<Stamps>, DeviceError> {
        self.driver.check()?;
        let bits = self.streams.live(stream)?.queue.as_ref().map_or(0, |queue| {
            let family = self.survey.families.get(queue.family as usize);
            family.map_or(0, |family| family.timestamp_valid_bits)
        });
        if bits == 0 {
            return Err(DeviceError::Unsupported(Feature::Timestamps));
        }
        let period = f64::from(self.survey.limits.timestamp_period);
        Ok(Arc::new(Stamps::new(&self.driver, period, bits)?))
    }

    /// Submits work between two timestamps.
    pub fn timed(&self, stream: StreamId, work: Timed<'_>) -> Result<Timing, DeviceError> {
        let stamps = self.new_stamps(stream)?;
        let given = Some(Arc::clone(&stamps));
        let point = match work {
            Timed::Copy(ops) => {
                let mut pairs = transfer::pairs(&self.spaces, ops, 4)?;
                self.streams.submit_timed(stream, given, |recorder| {
                    transfer::copy(recorder, &mut pairs);
                    Ok(())
                })?
            }
            Timed::Gather(ops) => self.gather(stream, ops, given)?,
            Timed::FillPattern(regions) => self.fill_pattern(stream, regions, given)?,
            Timed::Checksum(regions) => {
                let ticket = self.report(stream, regions, Builtin::Checksum, given)?;
                return Ok(Timing { point: ticket.point, ticket: Some(ticket), stamps });
            }
        };
        Ok(Timing { point, ticket: None, stamps })
    }
}
