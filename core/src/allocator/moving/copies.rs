//! The copies themselves: by the driver or by the gather kernel, behind all last uses, on a
//! stream of their own, with checksums before and after where a move is to be verified.

use crate::compact::Mode;
use crate::device::{CopyOp, Region, Ticket};
use crate::error::{DeviceError, Error};
use crate::point::{Points, StreamId, SyncPoint};

use super::super::Inner;
use super::compactor::Pass;
use super::submit::Armed;

/// Copies that were submitted.
pub(super) struct Copied {
    /// Everything of it is done when this is reached, checksums included.
    pub point: SyncPoint,
    /// Checksums of the old and the new places of the moves that are checked.
    pub tickets: Option<(Ticket, Ticket)>,
}

/// How copies are made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Means {
    /// By the driver.
    Copy,
    /// By the gather kernel.
    Gather,
    /// By no more than so many groups of it at a time.
    Within(u32),
}

/// The offsets and sizes that the gather kernel can copy are multiples of this.
const GATHER_UNIT: u64 = 16;

type Failed = (Error, Option<StreamId>);

impl Inner {
    /// Submits the copies of armed blocks. An error comes with the stream, if there is one: some
    /// of the copies may have been submitted.
    pub(super) fn copy_apart(
        &self,
        pass: &mut Pass,
        armed: &[Armed],
        waits: &Points,
    ) -> Result<Copied, Failed> {
        let checked: Vec<&Armed> = armed.iter().filter(|it| it.check).collect();
        // A queue that only copies runs no kernels.
        let background = pass.limits.mode == Mode::Background
            && checked.is_empty()
            && !self.is_gathering_within();
        let stream = self.copy_stream(background).map_err(|error| (error, None))?;
        let failed = |error: Error| (error, Some(stream));
        self.device.wait_on_stream(stream, waits.as_slice()).map_err(|e| failed(e.into()))?;
        let old = checked.iter().map(|it| region(it, true)).collect::<Vec<_>>();
        let before = self.checksums(stream, &old).map_err(failed)?;
        let ops: Vec<CopyOp> = armed.iter().flat_map(Armed::ops).collect();
        let mut point = self.copy_all(pass, stream, &ops).map_err(failed)?;
        let new = checked.iter().map(|it| region(it, false)).collect::<Vec<_>>();
        let after = self.checksums(stream, &new).map_err(failed)?;
        if let Some(ticket) = after {
            point = point.max(ticket.point);
        }
        pass.last = Some(point);
        Ok(Copied { point, tickets: before.zip(after) })
    }

    fn checksums(&self, stream: StreamId, regions: &[Region]) -> Result<Option<Ticket>, Error> {
        if regions.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.compute()?.checksum(stream, regions)?))
    }

    /// Submits copies that do not overlap: by kernel where the device is faster that way, or leaves
    /// more to others.
    pub(super) fn copy_all(
        &self,
        pass: &mut Pass,
        stream: StreamId,
        ops: &[CopyOp],
    ) -> Result<SyncPoint, Error> {
        let means = self.means(pass, ops);
        let point = match means {
            Means::Gather | Means::Copy if pass.limits.timed => {
                let by_kernel = means == Means::Gather;
                match self.device.copy_timed(stream, ops, by_kernel) {
                    Ok(ticket) => {
                        pass.timed.push(ticket);
                        ticket.point
                    }
                    Err(DeviceError::Unsupported(_)) => self.copy_plainly(stream, ops, means)?,
                    Err(error) => return Err(error.into()),
                }
            }
            _ => self.copy_plainly(stream, ops, means)?,
        };
        pass.report.copied_bytes += ops.iter().map(|op| op.bytes).sum::<u64>();
        pass.report.by_kernel += u64::from(means != Means::Copy);
        pass.report.submissions += 1;
        Ok(point)
    }

    fn copy_plainly(
        &self,
        stream: StreamId,
        ops: &[CopyOp],
        means: Means,
    ) -> Result<SyncPoint, Error> {
        Ok(match means {
            Means::Copy => self.device.copy(stream, ops)?,
            Means::Gather => self.compute()?.gather(stream, ops)?,
            Means::Within(groups) => self.compute()?.gather_within(stream, ops, groups)?,
        })
    }

    fn means(&self, pass: &Pass, ops: &[CopyOp]) -> Means {
        let fits = |op: &CopyOp| {
            [op.from.offset, op.to.offset, op.bytes].iter().all(|n| n.is_multiple_of(GATHER_UNIT))
        };
        if !self.caps().compute || !ops.iter().all(fits) {
            return Means::Copy;
        }
        match pass.limits.mode {
            Mode::Full if self.caps().prefer_gather => Means::Gather,
            Mode::Background if self.is_gathering_within() => {
                Means::Within(self.config.background_groups)
            }
            Mode::Full | Mode::Background => Means::Copy,
        }
    }

    /// Whether passes in the background copy by a few groups of the gather kernel.
    fn is_gathering_within(&self) -> bool {
        self.caps().gather_within && self.config.background_groups > 0
    }

    /// Nanoseconds from the start of the first copy to the end of the last, on the device's clock.
    pub(super) fn take_time(&self, pass: &mut Pass) -> Option<u64> {
        let times = pass.timed.drain(..).map(|ticket| self.device.take_times(ticket).ok());
        // All are taken, so that the device keeps none.
        let times: Vec<Option<[u64; 2]>> = times.collect();
        let times = times.into_iter().collect::<Option<Vec<[u64; 2]>>>()?;
        let (first, last) = (times.iter().map(|t| t[0]).min()?, times.iter().map(|t| t[1]).max()?);
        let since = |times: &[u64; 2]| times.map(|ns| ns.saturating_sub(first));
        pass.report.batches = times.iter().map(since).collect();
        Some(last.saturating_sub(first))
    }
}

fn region(it: &Armed, old: bool) -> Region {
    Region { place: if old { it.from } else { it.to }, bytes: it.it.bytes, seed: 0 }
}
