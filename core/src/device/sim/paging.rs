//! The model's paging.

use super::lanes::Submission;
use super::referee::Violation;
use super::work::Effect;
use super::{Charge, SimDevice, State};
use crate::device::calls::CallKind;
use crate::device::mapping::Piece;
use crate::device::{
    Caps, ClassId, DeviceError, Feature, MapOp, MemoryId, Paging, PagingCaps, Points, Reserved,
    SpaceId, SyncPoint, UnmapOp,
};

impl SimDevice {
    fn paging_caps(&self) -> Result<PagingCaps, DeviceError> {
        self.inner.caps.paging.ok_or(DeviceError::Unsupported(Feature::Paging))
    }
}

impl State {
    /// Mappings are changed now, or take their turn on the stream of binds.
    fn bind(
        &mut self,
        effect: Effect,
        ns: f64,
        after: &[SyncPoint],
    ) -> Result<Option<SyncPoint>, DeviceError> {
        let Some(stream) = self.bind_stream else {
            super::work::run(&mut self.memory, effect, false);
            return Ok(None);
        };
        self.lanes.wait(stream, after)?;
        let work = Submission { modelled_ns: ns as u64, given_ns: None, effect };
        let point = self.lanes.submit(stream, work)?;
        self.settle();
        Ok(Some(point))
    }

    /// Notes points that should have been reached before the call.
    fn not_too_early(&mut self, call: CallKind, after: &[SyncPoint]) {
        if self.bind_stream.is_none() {
            for &point in after.iter().filter(|point| !self.lanes.is_reached(**point)) {
                self.violations.push(Violation::TooEarly { call, point });
            }
        }
    }

    /// Notes work that still uses a mapping, unless the call is ordered behind it.
    fn mapping_idle(&mut self, mapping: &Piece, after: &Points) -> Result<(), DeviceError> {
        let (lanes, ordered) = (&self.lanes, self.bind_stream.is_some());
        let settled = |work: SyncPoint| {
            let behind = after.iter().any(|p| p.stream == work.stream && p.value >= work.value);
            lanes.is_reached(work) || ordered && behind
        };
        match self.in_flight.user_of_mapping(mapping, settled) {
            None => Ok(()),
            Some(work) => {
                let call = CallKind::Unmap;
                self.violations.push(Violation::ReleasedInUse { call, work });
                Err(DeviceError::InvalidCall("work that is not done uses the mapping"))
            }
        }
    }
}

impl Paging for SimDevice {
    fn reserve(&self, class: ClassId, bytes: u64) -> Result<Reserved, DeviceError> {
        let paging = self.paging_caps()?;
        let charge = Charge { bytes, ..Charge::of(CallKind::Reserve) };
        self.call(charge, |state, caps| state.memory.reserve(caps, &paging, class, bytes))
    }

    fn unreserve(&self, space: SpaceId) -> Result<(), DeviceError> {
        self.call_back(Charge::of(CallKind::Unreserve), |state, _| state.memory.unreserve(space))
    }

    fn create(
        &self,
        class: ClassId,
        bytes: u64,
        exportable: bool,
    ) -> Result<MemoryId, DeviceError> {
        let paging = self.paging_caps()?;
        let ns = self.inner.caps.costs.page_create.ns(bytes);
        let charge = Charge { kind: CallKind::CreateMemory, items: 1, bytes, ns };
        self.call(charge, |state, caps| {
            state.memory.create(caps, &paging, class, bytes, exportable)
        })
    }

    fn release(&self, memory: MemoryId) -> Result<(), DeviceError> {
        let bytes = self.lock().memory.object_bytes(memory.0);
        let ns = self.inner.caps.costs.page_release.ns(bytes);
        let charge = Charge { kind: CallKind::ReleaseMemory, items: 1, bytes, ns };
        self.call_back(charge, |state, _| {
            state.object_idle(CallKind::ReleaseMemory, memory.0)?;
            state.memory.release(memory)
        })
    }

    fn map(&self, ops: &[MapOp], after: &[SyncPoint]) -> Result<Option<SyncPoint>, DeviceError> {
        let paging = self.paging_caps()?;
        let sizes = ops.iter().map(|op| op.bytes);
        let charge = self.binds(CallKind::Map, sizes, self.inner.caps.costs.page_map);
        self.call(charge, |state, _| {
            state.points_exist(after)?;
            state.not_too_early(CallKind::Map, after);
            state.memory.declare_map(&paging, ops)?;
            state.bind(Effect::Map(ops.to_vec()), charge.ns, after)
        })
    }

    fn unmap(
        &self,
        ops: &[UnmapOp],
        after: &[SyncPoint],
    ) -> Result<Option<SyncPoint>, DeviceError> {
        self.paging_caps()?;
        let sizes = ops.iter().map(|op| op.bytes);
        let charge = self.binds(CallKind::Unmap, sizes, self.inner.caps.costs.page_unmap);
        if self.lock().lost {
            return Ok(None);
        }
        self.call(charge, |state, _| {
            state.points_exist(after)?;
            state.not_too_early(CallKind::Unmap, after);
            let before = state.lanes.all_before(after);
            for op in ops {
                let mapping = state.memory.mapping(op)?;
                state.mapping_idle(&mapping, &before)?;
            }
            state.memory.declare_unmap(ops)?;
            state.bind(Effect::Unmap(ops.to_vec()), charge.ns, after)
        })
    }
}

impl SimDevice {
    fn binds(
        &self,
        kind: CallKind,
        sizes: impl Iterator<Item = u64>,
        line: crate::device::Line,
    ) -> Charge {
        let mut charge = Charge { kind, items: 0, bytes: 0, ns: 0.0 };
        for bytes in sizes {
            charge.items += 1;
            charge.bytes = charge.bytes.saturating_add(bytes);
            charge.ns += line.ns(bytes);
        }
        charge
    }
}

pub(super) fn pageable(
    caps: &Caps,
    paging: &PagingCaps,
    class: ClassId,
) -> Result<(), DeviceError> {
    caps.class(class).ok_or(DeviceError::InvalidCall("no such class"))?;
    if paging.classes >> u32::from(class.0).min(31) & 1 == 1 {
        Ok(())
    } else {
        Err(DeviceError::InvalidCall("the class can not be paged"))
    }
}

pub(super) fn aligned(paging: &PagingCaps, bytes: u64) -> Result<(), DeviceError> {
    if bytes > 0 && bytes.is_multiple_of(paging.granularity) {
        Ok(())
    } else {
        Err(DeviceError::InvalidCall("bytes are zero or no multiple of the granularity"))
    }
}
