//! What the model objects to, beyond what a driver would answer.

// Keys are numbers of the model's own making.
use rustc_hash::FxHashMap as HashMap;

use crate::device::calls::CallKind;
use crate::device::mapping::Piece;
use crate::device::{MemoryId, Place, Points, SyncPoint};

/// A rule of the device contract that was broken. A correct allocator causes none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// A call that was answered with [`DeviceError::InvalidCall`](crate::device::DeviceError).
    InvalidCall {
        /// The method.
        call: CallKind,
        /// The reason given.
        reason: &'static str,
    },
    /// Work was submitted over, or ran into, a range that nothing is mapped at.
    Unmapped {
        /// First byte of the range.
        place: Place,
        /// Bytes of the range.
        bytes: u64,
        /// The work.
        work: SyncPoint,
    },
    /// Memory or a mapping was given back while submitted work uses it.
    ReleasedInUse {
        /// The method.
        call: CallKind,
        /// The work that uses it.
        work: SyncPoint,
    },
    /// The host was given a view of bytes that submitted work uses.
    SeenInUse {
        /// The work that uses them.
        work: SyncPoint,
    },
    /// Two pieces of work touch the same bytes, one of them writes, and nothing orders them.
    Race {
        /// The work submitted first.
        first: SyncPoint,
        /// The work submitted second.
        second: SyncPoint,
        /// The memory object that both touch.
        memory: MemoryId,
        /// A byte of it that both touch.
        offset: u64,
    },
    /// The capture that is open forbids the call.
    DuringCapture {
        /// The method.
        call: CallKind,
    },
    /// Mappings were changed on a device that changes them at once, before the points given
    /// with the call were reached.
    TooEarly {
        /// The method.
        call: CallKind,
        /// A point that is not reached.
        point: SyncPoint,
    },
    /// A point was named that was never submitted.
    NeverSubmitted {
        /// The point.
        point: SyncPoint,
    },
}

/// A range that submitted work uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    pub(super) place: Place,
    pub(super) bytes: u64,
    pub(super) write: bool,
}

#[derive(Clone, Copy)]
struct Touch {
    piece: Piece,
    point: SyncPoint,
    write: bool,
}

/// Bytes of memory objects that work in flight touches.
#[derive(Default)]
pub(super) struct InFlight {
    by_memory: HashMap<u64, Vec<Touch>>,
}

impl InFlight {
    /// Notes that `point` touches `piece` and returns the work that races with it.
    ///
    /// `ordered` are the points that come before `point`, `reached` tells what is done.
    pub(super) fn touch(
        &mut self,
        piece: Piece,
        write: bool,
        point: SyncPoint,
        ordered: &Points,
        reached: impl Fn(SyncPoint) -> bool,
    ) -> Option<SyncPoint> {
        let touches = self.by_memory.entry(piece.memory).or_default();
        touches.retain(|touch| !reached(touch.point));
        let before = |other: SyncPoint| {
            other.stream == point.stream
                || ordered.iter().any(|p| p.stream == other.stream && p.value >= other.value)
        };
        let race = touches
            .iter()
            .find(|t| t.piece.overlaps(&piece) && (t.write || write) && !before(t.point))
            .map(|t| t.point);
        touches.push(Touch { piece, point, write });
        race
    }

    /// Work that uses a memory object and is not reached.
    pub(super) fn user_of(
        &self,
        memory: u64,
        reached: impl Fn(SyncPoint) -> bool,
    ) -> Option<SyncPoint> {
        self.by_memory.get(&memory)?.iter().map(|t| t.point).find(|point| !reached(*point))
    }

    /// Work that uses a mapping, by its place, and is not settled.
    pub(super) fn user_of_mapping(
        &self,
        mapping: &Piece,
        settled: impl Fn(SyncPoint) -> bool,
    ) -> Option<SyncPoint> {
        self.by_memory
            .get(&mapping.memory)?
            .iter()
            .filter(|t| t.piece.meets(mapping))
            .map(|t| t.point)
            .find(|point| !settled(*point))
    }

    /// Work that uses some of the bytes, by whatever mapping, and is not reached.
    pub(super) fn user_of_bytes(
        &self,
        bytes: &Piece,
        reached: impl Fn(SyncPoint) -> bool,
    ) -> Option<SyncPoint> {
        let touches = self.by_memory.get(&bytes.memory)?;
        touches.iter().filter(|t| t.piece.overlaps(bytes)).map(|t| t.point).find(|p| !reached(*p))
    }

    pub(super) fn forget(&mut self, memory: u64) {
        self.by_memory.remove(&memory);
    }
}
