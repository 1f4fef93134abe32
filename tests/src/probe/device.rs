//! The device's own methods.

use std::time::Duration;

use terrane_core::device::{
    Caps, CaptureId, ClassId, Compute, CopyOp, Device, DeviceError, DeviceInfo, HeapId, HeapUse,
    HostAccess, Paging, Place, Plain, PlainSpec, SpaceId, StreamId, StreamSpec, SyncPoint, Ticket,
    View,
};

use super::{Flaw, Probe};

/// Where a flaw cuts a large piece of work off.
const WINDOW: u64 = 16 << 20;

impl Device for Probe {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn caps(&self) -> &Caps {
        if self.has(Flaw::CapsChange) && !self.turn().is_multiple_of(2) {
            return &self.other_caps;
        }
        &self.caps
    }

    fn now_ns(&self) -> u64 {
        if self.has(Flaw::ClockRunsBack) {
            return (1 << 40) - self.turn() * 1000;
        }
        self.inner.now_ns()
    }

    fn heap_use(&self, heap: HeapId) -> Result<HeapUse, DeviceError> {
        let known = usize::from(heap.0) < self.caps.heaps.len();
        if self.has(Flaw::UnknownHeapAccepted) && !known {
            return Ok(HeapUse::default());
        }
        let mut found = self.inner.heap_use(heap)?;
        if self.has(Flaw::FreeAboveTotal) {
            found.free = found.total + 1;
        }
        if self.has(Flaw::HeapUseFrozen) {
            found.free = found.total;
        }
        Ok(found)
    }

    fn create_plain(&self, spec: &PlainSpec<'_>) -> Result<Plain, DeviceError> {
        let mut spec = *spec;
        if self.has(Flaw::HugePlainAccepted) {
            spec.bytes = spec.bytes.min(self.caps.plain_granularity.max(4096));
        }
        if self.has(Flaw::ClassIgnored) {
            spec.class = ClassId(0);
        }
        if self.has(Flaw::SamePlainTwice)
            && let Some(plain) = self.memory().plain
        {
            self.lock().plains += 1;
            return Ok(plain);
        }
        let asked = spec.bytes;
        let mut made = self.inner.create_plain(&spec);
        if self.has(Flaw::ShortageInWrongWords)
            && matches!(made, Err(DeviceError::OutOfMemory { .. }))
        {
            made = Err(DeviceError::InvalidCall("the flaw refuses in the wrong words"));
        }
        let mut plain = self.count(made, |alive| alive.plains += 1)?;
        self.memory().plain = Some(plain);
        if self.has(Flaw::PlainTooSmall) {
            plain.bytes = asked / 2;
        }
        if self.has(Flaw::BaseUnaligned) {
            plain.address = plain.address.map(|address| address + 4);
        }
        Ok(plain)
    }

    fn release_plain(&self, space: SpaceId) -> Result<(), DeviceError> {
        if self.has(Flaw::SamePlainTwice) || self.has(Flaw::ReleaseIgnored) {
            self.lock().plains -= 1;
            return Ok(());
        }
        if self.has(Flaw::LostKeepsThings)
            && self.inner.heap_use(HeapId(0)) == Err(DeviceError::Lost)
        {
            return Err(DeviceError::Lost);
        }
        let answer = self.inner.release_plain(space);
        let answer = self.count(answer, |alive| alive.plains -= 1);
        self.forgiving(answer)
    }

    fn create_stream(&self, spec: StreamSpec) -> Result<StreamId, DeviceError> {
        let stream = self.count(self.inner.create_stream(spec), |alive| alive.streams += 1)?;
        if self.has(Flaw::CopyStreamsCannotFill) && spec.copy_only {
            self.memory().retired.push(stream);
        }
        if self.has(Flaw::SameStreamTwice) {
            let first = self.memory().retired.first().copied();
            self.memory().retired.push(stream);
            return Ok(first.unwrap_or(stream));
        }
        Ok(stream)
    }

    fn retire_stream(&self, stream: StreamId) -> Result<(), DeviceError> {
        if self.has(Flaw::RetireIgnored) {
            self.lock().streams -= 1;
            return Ok(());
        }
        let answer = self.count(self.inner.retire_stream(stream), |alive| alive.streams -= 1);
        if self.has(Flaw::RetiredForgotten) {
            self.memory().retired.push(stream);
        }
        match answer {
            Err(DeviceError::UnknownStream) if self.has(Flaw::UnknownStreamAccepted) => Ok(()),
            answer => answer,
        }
    }

    fn is_foreign(&self, stream: StreamId) -> bool {
        self.inner.is_foreign(stream) && !self.has(Flaw::WrappedUnknown)
    }

    fn mark(&self, stream: StreamId) -> Result<SyncPoint, DeviceError> {
        let point = self.lenient(stream, self.inner.mark(stream))?;
        if self.has(Flaw::MarkIsZero) {
            return Ok(SyncPoint { value: 0, ..point });
        }
        if self.has(Flaw::MarkGoesOn) {
            return Ok(SyncPoint { value: point.value + 1, ..point });
        }
        Ok(point)
    }

    fn reached(&self, stream: StreamId) -> Result<u64, DeviceError> {
        if self.has(Flaw::RetiredForgotten) && self.memory().retired.contains(&stream) {
            return Err(DeviceError::UnknownStream);
        }
        let reached = match self.inner.reached(stream) {
            Err(DeviceError::UnknownStream) if self.has(Flaw::UnknownStreamAccepted) => 0,
            Err(DeviceError::Lost) if self.has(Flaw::LostUnnoticed) => 0,
            answer => answer?,
        };
        Ok(match self.flaw {
            Flaw::ReachedAtOnce => u64::MAX / 2,
            Flaw::ReachedNever => 0,
            Flaw::ReachedFallsBack => reached.saturating_sub(self.turn() % 2),
            _ => reached,
        })
    }

    fn wait_on_stream(&self, stream: StreamId, points: &[SyncPoint]) -> Result<(), DeviceError> {
        if self.has(Flaw::WaitOnStreamIgnored) {
            return Ok(());
        }
        if self.has(Flaw::WaitOnStreamBlocks) {
            for point in points {
                self.inner.wait_any(&[*point], Duration::from_millis(500))?;
            }
        }
        match self.inner.wait_on_stream(stream, points) {
            Err(DeviceError::UnknownStream) if self.has(Flaw::UnknownStreamAccepted) => Ok(()),
            answer => answer,
        }
    }

    fn wait_any(&self, points: &[SyncPoint], timeout: Duration) -> Result<bool, DeviceError> {
        match self.flaw {
            Flaw::WaitAnySaysYes => return Ok(true),
            Flaw::WaitAnySaysNo => return self.inner.wait_any(points, timeout).map(|_| false),
            Flaw::WaitAnyReturnsEarly => return self.inner.wait_any(points, Duration::ZERO),
            Flaw::WaitAnyWaitsForAll => {
                for point in points {
                    if !self.inner.wait_any(&[*point], timeout)? {
                        return Ok(false);
                    }
                }
                return Ok(!points.is_empty());
            }
            _ => {}
        }
        self.inner.wait_any(points, timeout)
    }

    fn copy(&self, stream: StreamId, ops: &[CopyOp]) -> Result<SyncPoint, DeviceError> {
        let mut ops = ops.to_vec();
        match self.flaw {
            Flaw::CopyDropsLast if ops.len() > 1 => drop(ops.pop()),
            Flaw::CopyTooShort => ops.iter_mut().for_each(|op| op.bytes -= 4.min(op.bytes)),
            Flaw::CopyTooLong => ops.iter_mut().for_each(|op| op.bytes += 4),
            Flaw::CopyOtherWay => {
                ops.iter_mut().for_each(|op| std::mem::swap(&mut op.from, &mut op.to));
            }
            Flaw::CopyPartlyDone => {
                let answer = self.inner.copy(stream, &ops);
                if let (Err(DeviceError::InvalidCall(_)), Some(first)) = (answer, ops.first()) {
                    let _ = self.inner.copy(stream, &[*first]);
                }
                return answer;
            }
            _ => {}
        }
        self.lenient(stream, self.inner.copy(stream, &ops))
    }

    fn fill(
        &self,
        stream: StreamId,
        place: Place,
        bytes: u64,
        word: u32,
    ) -> Result<SyncPoint, DeviceError> {
        if self.has(Flaw::CopyStreamsCannotFill) && self.memory().retired.contains(&stream) {
            return Err(DeviceError::InvalidCall("this stream only copies"));
        }
        let bytes = match self.flaw {
            Flaw::FillTooLong => bytes + 4,
            Flaw::FillTooShort => bytes - 4.min(bytes),
            Flaw::FillDropsSecondWindow => bytes.min(WINDOW),
            _ => bytes,
        };
        let word = if self.has(Flaw::FillIgnoresWord) { 0 } else { word };
        self.lenient(stream, self.inner.fill(stream, place, bytes, word))
    }

    fn write(&self, stream: StreamId, place: Place, data: &[u8]) -> Result<SyncPoint, DeviceError> {
        let zeros;
        let data = match self.flaw {
            Flaw::WriteTooShort => &data[..data.len().saturating_sub(1)],
            Flaw::WriteKeepsPointer => {
                zeros = vec![0; data.len()];
                &zeros[..]
            }
            _ => data,
        };
        self.lenient(stream, self.inner.write(stream, place, data))
    }

    fn read(&self, stream: StreamId, place: Place, bytes: u64) -> Result<Ticket, DeviceError> {
        match self.inner.read(stream, place, bytes) {
            Err(DeviceError::InvalidCall(_)) if self.has(Flaw::BrokenCallsAccepted) => {
                Ok(Ticket { id: u64::MAX, point: self.inner.mark(stream)? })
            }
            Err(DeviceError::UnknownStream) if self.has(Flaw::UnknownStreamAccepted) => {
                Ok(Ticket { id: u64::MAX, point: SyncPoint { stream, value: 0 } })
            }
            answer => answer,
        }
    }

    fn copy_timed(
        &self,
        stream: StreamId,
        ops: &[CopyOp],
        by_kernel: bool,
    ) -> Result<Ticket, DeviceError> {
        self.inner.copy_timed(stream, ops, by_kernel)
    }

    fn take_times(&self, ticket: Ticket) -> Result<[u64; 2], DeviceError> {
        self.inner.take_times(ticket)
    }

    fn take_read(&self, ticket: Ticket) -> Result<Vec<u8>, DeviceError> {
        let taken = self.inner.take_read(ticket);
        match (self.flaw, taken) {
            (Flaw::TicketsTakenEarly, Err(DeviceError::InvalidCall(_))) => Ok(Vec::new()),
            (Flaw::TicketsTakenTwice, Ok(bytes)) => {
                self.memory().bytes.insert(ticket.id, bytes.clone());
                Ok(bytes)
            }
            (Flaw::TicketsTakenTwice, Err(error)) => {
                self.memory().bytes.get(&ticket.id).cloned().ok_or(error)
            }
            (Flaw::ReadSpoilsLast, Ok(mut bytes)) => {
                bytes.last_mut().into_iter().for_each(|last| *last ^= 1);
                Ok(bytes)
            }
            (Flaw::ReadCutShort, Ok(mut bytes)) => {
                bytes.pop();
                Ok(bytes)
            }
            (_, taken) => taken,
        }
    }

    fn capture_of(&self, stream: StreamId) -> Option<CaptureId> {
        self.inner.capture_of(stream)
    }

    fn is_capturing(&self) -> bool {
        self.inner.is_capturing() && !self.has(Flaw::CaptureUnseen)
    }

    fn create_view(&self, place: Place, bytes: u64) -> Result<View, DeviceError> {
        let answer = match self.inner.create_view(place, bytes) {
            Err(DeviceError::Unsupported(_)) if self.lends_views() => Ok(self.memory().lend_view()),
            answer => answer,
        };
        self.count(answer, |alive| alive.views += 1)
    }

    fn destroy_view(&self, view: View) -> Result<(), DeviceError> {
        let answer = match self.inner.destroy_view(view) {
            Err(DeviceError::Unsupported(_)) if self.lends_views() => self.memory().take_view(view),
            answer => answer,
        };
        match self.count(answer, |alive| alive.views -= 1) {
            Err(DeviceError::InvalidCall(_) | DeviceError::Unsupported(_))
                if self.has(Flaw::ViewObjectsUnknownAccepted) =>
            {
                Ok(())
            }
            answer => answer,
        }
    }

    fn paging(&self) -> Option<&dyn Paging> {
        self.inner.paging().map(|_| self as &dyn Paging)
    }

    fn compute(&self) -> Option<&dyn Compute> {
        self.inner.compute().map(|_| self as &dyn Compute)
    }

    fn host_access(&self) -> Option<&dyn HostAccess> {
        self.inner.host_access().map(|_| self as &dyn HostAccess)
    }
}
