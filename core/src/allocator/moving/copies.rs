//! The copies themselves: by the driver or by the gather kernel, behind all last uses, on a
//! stream of their own, with checksums before and after where a move is to be verified.

use crate::compact::Mode;
use crate::device::{CopyOp, Region, Ticket};
use crate::error::Error;
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
        // A queue that only copies runs no checksums.
        let background = pass.limits.mode == Mode::Background && checked.is_empty();
        let stream = self.copy_stream(background).map_err(|error| (error, None))?;
        let failed = |error: Error| (error, Some(stream));
        self.device.wait_on_stream(stream, waits.as_slice()).map_err(|e| failed(e.into()))?;
        let old = checked.iter().map(|it| region(it, true)).collect::<Vec<_>>();
        let before = self.checksums(stream, &old).map_err(failed)?;
        let ops: Vec<CopyOp> = armed.iter().map(Armed::op).collect();
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

    /// Submits copies that do not overlap: by kernel where the device is faster that way.
    pub(super) fn copy_all(
        &self,
        pass: &mut Pass,
        stream: StreamId,
        ops: &[CopyOp],
    ) -> Result<SyncPoint, Error> {
        pass.report.copied_bytes += ops.iter().map(|op| op.bytes).sum::<u64>();
        let kernel = self.device.compute().filter(|_| self.is_gathering(pass, ops));
        let point = match kernel {
            Some(kernel) => {
                pass.report.by_kernel += 1;
                kernel.gather(stream, ops)?
            }
            None => self.device.copy(stream, ops)?,
        };
        pass.report.submissions += 1;
        Ok(point)
    }

    /// Whether the gather kernel is to copy: it can, and it was measured to be the faster.
    fn is_gathering(&self, pass: &Pass, ops: &[CopyOp]) -> bool {
        let fits = |op: &CopyOp| {
            [op.from.offset, op.to.offset, op.bytes].iter().all(|n| n.is_multiple_of(GATHER_UNIT))
        };
        self.caps().prefer_gather && pass.limits.mode == Mode::Full && ops.iter().all(fits)
    }
}

fn region(it: &Armed, old: bool) -> Region {
    Region { place: if old { it.from } else { it.to }, bytes: it.it.bytes, seed: 0 }
}
