//! A job's device calls, with no allocator lock held.

use std::time::Duration;

use crate::device::{DeviceError, MapOp, MemoryId, Paging, UnmapOp};
use crate::pages::{Backing, Step};
use crate::point::{Points, SyncPoint};

use super::super::alloc::Asked;
use super::{Done, Inner, Job, Made};
use crate::request::Wait;

/// How long a mapping may take that is ordered behind no work.
const MAPPED_WITHIN: Duration = Duration::from_millis(10);

impl Inner {
    /// Makes a job's device calls. After an error nothing of it is mapped, and of its objects
    /// those in [`Made`] exist.
    pub(super) fn perform(&self, job: &Job) -> Result<Done, (Made, DeviceError)> {
        let mut made = Made::default();
        match self.try_perform(job, &mut made) {
            Ok(done) => Ok(done),
            Err(error) => Err((made, error)),
        }
    }

    fn try_perform(&self, job: &Job, made: &mut Made) -> Result<Done, DeviceError> {
        let paging = self.paging()?;
        let steps = &job.reservation.plan().steps;
        if steps.is_empty() {
            return Ok(Done { backings: Vec::new(), mapped: Points::NONE, spent_ns: 0 });
        }
        let start = self.device.now_ns();
        self.release_steps(paging, job, made)?;
        let backings = self.create_pages(paging, job, made)?;
        let mut new = backings.iter();
        let ops: Vec<MapOp> = steps
            .iter()
            .filter_map(|step| match *step {
                Step::Create { at, .. } => new.next().map(|backing| job.map_op(*backing, at)),
                Step::Steal { backing, at, .. } => Some(job.map_op(backing, at)),
                Step::Release { .. } => None,
            })
            .collect();
        // The old mappings of stolen pages stand: nothing has to be reached first.
        let mapped = paging.map(&ops, &[])?;
        let measured = self.device.now_ns().saturating_sub(start);
        let mapped = self.unreached(mapped)?;
        Ok(Done { backings, mapped, spent_ns: self.stealing_ns(steps, measured) })
    }

    /// For a request that may not wait: sees mappings through that are ordered behind no work, as
    /// a part of making them.
    pub(super) fn see_mapped(&self, asked: &Asked<'_>, done: &mut Done) {
        if asked.request.wait == Wait::Never
            && let [point] = *done.mapped.as_slice()
            // An error is told to whoever looks for the point next.
            && self.device.wait_any(&[point], MAPPED_WITHIN).unwrap_or(false)
        {
            done.mapped = Points::NONE;
        }
    }

    /// A point, unless it is reached already: memory that waits for nothing serves every stream.
    pub(in crate::allocator) fn unreached(
        &self,
        point: Option<SyncPoint>,
    ) -> Result<Points, DeviceError> {
        let Some(point) = point else { return Ok(Points::NONE) };
        if self.caps().paging.is_some_and(|paging| paging.submissions_wait) {
            return Ok(Points::NONE);
        }
        let reached = self.device.reached(point.stream)? >= point.value;
        Ok(if reached { Points::NONE } else { Points::one(point) })
    }

    /// What the steals and releases of a plan took, the unmapping that is to follow included:
    /// from the device's figures, or as measured where it has none.
    fn stealing_ns(&self, steps: &[Step], measured: u64) -> u64 {
        let costs = &self.caps().costs;
        let known = costs.page_map.ns(0) > 0.0;
        let mut ns = 0.0;
        for step in steps {
            match step {
                Step::Create { .. } => {}
                Step::Steal { backing, .. } => {
                    ns += costs.page_map.ns(backing.bytes) + costs.page_unmap.ns(backing.bytes);
                }
                Step::Release { backing, .. } => {
                    ns += costs.page_unmap.ns(backing.bytes) + costs.page_release.ns(backing.bytes);
                }
            }
        }
        let steals = steps.iter().any(|step| !matches!(step, Step::Create { .. }));
        if known || !steals { ns as u64 } else { measured }
    }

    fn release_steps(
        &self,
        paging: &dyn Paging,
        job: &Job,
        made: &mut Made,
    ) -> Result<(), DeviceError> {
        let released = || {
            job.reservation.plan().steps.iter().filter_map(|step| match *step {
                Step::Release { backing, at, .. } => Some((backing, at)),
                _ => None,
            })
        };
        let mut ops: Vec<UnmapOp> =
            released().map(|(backing, at)| job.unmap_op(at, backing.bytes)).collect();
        if ops.is_empty() {
            return Ok(());
        }
        ops.extend(job.stale.iter().map(|stale| job.unmap_op(stale.at, stale.bytes)));
        paging.unmap(&ops, &[])?;
        made.released = true;
        for (backing, _) in released() {
            paging.release(backing.object)?;
        }
        Ok(())
    }

    fn create_pages(
        &self,
        paging: &dyn Paging,
        job: &Job,
        made: &mut Made,
    ) -> Result<Vec<Backing>, DeviceError> {
        for &bytes in &job.taken {
            made.objects.push(paging.create(job.class, bytes, false)?);
        }
        Ok(backings_in(&made.objects, &job.taken, job.creates.iter().copied()))
    }
}

/// Pages of the given bytes in memory objects of `sizes` bytes, which were cut so that the pages
/// fill them one after the other.
pub(super) fn backings_in(
    objects: &[MemoryId],
    sizes: &[u64],
    pages: impl Iterator<Item = u64>,
) -> Vec<Backing> {
    let mut objects = objects.iter().zip(sizes);
    let (mut current, mut offset) = (objects.next(), 0);
    let mut backings = Vec::new();
    for bytes in pages {
        if current.is_some_and(|(_, &object_bytes)| offset + bytes > object_bytes) {
            (current, offset) = (objects.next(), 0);
        }
        let Some((&object, &object_bytes)) = current else { break };
        backings.push(Backing { object, object_bytes, offset, bytes });
        offset += bytes;
    }
    backings
}
