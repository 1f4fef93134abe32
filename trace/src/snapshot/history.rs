//! The history of one device as a [`Trace`] that can be replayed.

use super::{Action, BlockState, Snapshot, StackId, TraceEntry};
use crate::model::{Placed, SegmentEvent, SegmentOp};
use crate::{Op, Reason, Trace, TraceBuilder};
use std::collections::BTreeMap;
use terrane_core::event::MoveKind;

/// A device's history, replayable, with what a [`Trace`] has no place for.
#[derive(Debug)]
pub struct History {
    /// Device index.
    pub device: usize,
    /// Time of the trace's start, microseconds since 1970; 0 where the file has no times.
    pub start_us: u64,
    /// Requests that were served, and frees. Blocks from before the history begins are
    /// allocated at its start.
    pub trace: Trace,
    /// Of each block of the trace: its address and where it was allocated.
    pub blocks: Vec<Origin>,
    /// Requests that failed, in order.
    pub attempts: Vec<Attempt>,
    /// What happened to segments, in order.
    pub segments: Vec<SegmentChange>,
    /// Moves, waits and the like, in order; only our own allocator tells of them.
    pub happenings: Vec<Happening>,
    /// Entry of the history that each event comes from; `u32::MAX` for events that were added.
    /// Empty where the file has no entries.
    pub entries: Vec<u32>,
    /// What was found amiss.
    pub gaps: Gaps,
}

/// Where a block came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its address.
    pub address: u64,
    /// Where it was allocated, if that was recorded.
    pub stack: Option<StackId>,
    /// Its tag, as [`Recording::tags`](crate::recording::Recording::tags) names them; 0 for none.
    pub tag: u16,
    /// Its memory class, as [`Meta::kinds`](crate::file::Meta::kinds) names them.
    pub class: u8,
    /// What held it in place when it was made: 1 for nothing, else one more than the number of
    /// [`Why`](terrane_core::compact::Why); 0 where that was not told.
    pub hold: u8,
}

/// A request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Number of events of the trace that came before.
    pub before_event: usize,
    /// Entry of the history.
    pub entry: usize,
    /// Bytes asked for.
    pub bytes: u64,
    /// Stream that asked.
    pub stream: u32,
    /// Memory that the driver had free.
    pub device_free: u64,
    /// Where it was asked for.
    pub stack: Option<StackId>,
}

/// A segment made or given back, between two events of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentChange {
    /// Number of events of the trace that came before.
    pub before_event: usize,
    /// Entry of the history.
    pub entry: usize,
    /// What happened.
    pub event: SegmentEvent,
}

/// Something between two events of the trace that neither asks for memory nor frees any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happening {
    /// Number of events of the trace that came before.
    pub before_event: usize,
    /// Microseconds since the trace's start.
    pub time_us: u64,
    /// What it was.
    pub what: Happened,
    /// Stream of the block, or that waits.
    pub stream: u32,
    /// Bytes of the block, the mapping, the limit, what a pass may move or the blocks that work
    /// uses; 0 for a wait.
    pub bytes: u64,
    /// The block, by its number in the trace, where it is about one that is there.
    pub block: Option<u32>,
    /// The block's new address when a move is submitted, and the address of a mapping.
    pub address: u64,
}

/// What a [`Happening`] was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A block's move was submitted, by these means: from here on it is elsewhere.
    MoveSubmitted(MoveKind),
    /// The copy is over.
    MoveCommitted,
    /// A move was given up before its copy.
    MoveCancelled,
    /// The block was freed while it moved.
    MoveDropped,
    /// The copy differed.
    MoveCorrupt,
    /// A check found words written that nobody may write.
    Damage,
    /// The request that follows waits for this stream.
    WaitFor(u32),
    /// Blocks were not moved.
    MoveRefused {
        /// The number of [`Why`](terrane_core::compact::Why).
        why: u8,
        /// How many.
        blocks: u32,
    },
    /// A pass of moves has ended, with so many blocks moved.
    PassEnd(u32),
    /// Pages were mapped elsewhere, and their old mapping stands: neither hole nor backed.
    MappingStale,
    /// Such a mapping is gone: its addresses are not backed.
    MappingGone,
    /// The allocator's limit was set.
    LimitSet,
    /// So many events were lost here; what follows begins with the state after them.
    Lost(u64),
    /// Work that uses blocks was submitted to the stream, as this value of it.
    Submitted(u64),
    /// The stream was found to have reached this value.
    Reached(u64),
    /// The block, which is about to be freed, is in use until a stream reaches a value.
    FreeWaits {
        /// The stream.
        behind: u32,
        /// The value.
        value: u64,
    },
    /// Work on the stream waits for what this other stream has done with the block.
    WorkWaitsFor(u32),
    /// What holds a block in place has changed, as in [`Origin::hold`].
    Hold(u8),
    /// What the pass of moves that begins next is to reach.
    PassGoal {
        /// Bytes, or parts of a million for a fragmentation.
        number: u64,
        /// The number of a [`GoalKind`](terrane_core::event::GoalKind).
        kind: u8,
        /// Beside other work.
        background: bool,
    },
    /// What that pass may spend.
    PassLimits {
        /// Blocks.
        moves: u64,
        /// Nanoseconds.
        ticks: u64,
    },
}

impl Happened {
    /// Whether a block is elsewhere from here on.
    #[must_use]
    pub const fn is_move(&self) -> bool {
        matches!(self, Self::MoveSubmitted(_))
    }
}

/// What the history does not show; all zero when it shows everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Gaps {
    /// Blocks that were allocated before the history begins (it was begun late, or its oldest
    /// entries were overwritten).
    pub earlier_blocks: u64,
    /// Their bytes.
    pub earlier_bytes: u64,
    /// Blocks whose free is not shown, though their address was used again.
    pub frees_missing: u64,
    /// Completions of a free whose request is not shown.
    pub requests_missing: u64,
    /// Segments that exist at the end, less those that the history makes: segments from before.
    pub earlier_segments: u64,
}

impl Snapshot {
    /// The history of one device as a replayable trace; `None` without history for it.
    ///
    /// # Errors
    /// [`Reason`] when the sizes cannot all exist.
    pub fn history(&self, device: usize) -> Result<Option<History>, Reason> {
        let Some(entries) = self.device_traces.get(device).filter(|trace| !trace.is_empty()) else {
            return Ok(None);
        };
        let mut walk = Walk::new(entries);
        for earlier in self.earlier_blocks(device, entries) {
            walk.alloc(&earlier, None)?;
            walk.gaps.earlier_blocks += 1;
            walk.gaps.earlier_bytes += earlier.bytes;
        }
        for (at, entry) in entries.iter().enumerate() {
            walk.take(at, entry)?;
        }
        walk.gaps.earlier_segments = self.earlier_segments(device, entries);
        Ok(Some(walk.finish(device)))
    }

    /// Blocks that the history frees, or that live at the dump, and that it never allocates; as
    /// entries at its start, by address.
    fn earlier_blocks(&self, device: usize, entries: &[TraceEntry]) -> Vec<TraceEntry> {
        let mut found = BTreeMap::new();
        // Address -> true while a block that the history allocated is live there.
        let mut seen = BTreeMap::new();
        for entry in entries {
            match entry.action {
                Action::Alloc => _ = seen.insert(entry.address, true),
                Action::FreeRequested | Action::FreeCompleted => {
                    let first = !seen.contains_key(&entry.address);
                    if first {
                        let earlier = TraceEntry { stack: None, ..*entry };
                        found.insert(entry.address, earlier);
                    }
                    seen.insert(entry.address, entry.action == Action::FreeRequested);
                }
                _ => {}
            }
        }
        for segment in self.segments.iter().filter(|s| usize::try_from(s.device) == Ok(device)) {
            for block in segment.blocks.iter().filter(|b| b.state != BlockState::Inactive) {
                if !seen.contains_key(&block.address) {
                    let bytes = block.requested_bytes.unwrap_or(block.bytes);
                    let entry = TraceEntry {
                        address: block.address,
                        bytes,
                        stream: segment.stream,
                        stack: block.stack,
                        ..entries[0]
                    };
                    found.insert(block.address, entry);
                }
            }
        }
        found.into_values().collect()
    }

    fn earlier_segments(&self, device: usize, entries: &[TraceEntry]) -> u64 {
        let count = |action| entries.iter().filter(|entry| entry.action == action).count() as u64;
        let here = |s: &&super::Segment| usize::try_from(s.device) == Ok(device) && !s.expandable;
        let at_end = self.segments.iter().filter(here).count() as u64;
        let made = count(Action::SegmentAlloc).saturating_sub(count(Action::SegmentFree));
        at_end.saturating_sub(made)
    }
}

struct Walk {
    builder: TraceBuilder,
    start_us: u64,
    blocks: Vec<Origin>,
    attempts: Vec<Attempt>,
    segments: Vec<SegmentChange>,
    entries: Vec<u32>,
    gaps: Gaps,
}

impl Walk {
    fn new(entries: &[TraceEntry]) -> Self {
        Self {
            builder: TraceBuilder::new(),
            start_us: entries.iter().map(|entry| entry.time_us).find(|us| *us > 0).unwrap_or(0),
            blocks: Vec::new(),
            attempts: Vec::new(),
            segments: Vec::new(),
            entries: Vec::new(),
            gaps: Gaps::default(),
        }
    }

    fn take(&mut self, at: usize, entry: &TraceEntry) -> Result<(), Reason> {
        let before_event = self.builder.len();
        let segment = |op| {
            let TraceEntry { address, bytes, stream, .. } = *entry;
            let event = SegmentEvent { op, address, bytes, stream, object: None };
            SegmentChange { before_event, entry: at, event }
        };
        match entry.action {
            Action::Alloc => self.alloc(entry, Some(at))?,
            Action::FreeRequested => self.request(entry, at),
            Action::FreeCompleted => self.complete(entry, at),
            Action::SegmentAlloc => self.segments.push(segment(SegmentOp::Alloc)),
            Action::SegmentFree => self.segments.push(segment(SegmentOp::Free)),
            Action::SegmentMap => self.segments.push(segment(SegmentOp::Map)),
            Action::SegmentUnmap => self.segments.push(segment(SegmentOp::Unmap)),
            Action::OutOfMemory => self.attempts.push(Attempt {
                before_event,
                entry: at,
                bytes: entry.bytes,
                stream: entry.stream,
                device_free: entry.address,
                stack: entry.stack,
            }),
            Action::Snapshot | Action::Annotate | Action::Unknown => {}
        }
        Ok(())
    }

    fn alloc(&mut self, entry: &TraceEntry, at: Option<usize>) -> Result<(), Reason> {
        let time = self.time_us(entry);
        let added = self.builder.complete(time, entry.address);
        self.gaps.frees_missing += u64::from(added > 0);
        self.source(None, added);
        self.builder.push(Op::Alloc, time, entry.address, entry.bytes.max(1), entry.stream)?;
        self.source(at, 1);
        self.blocks.push(Origin {
            address: entry.address,
            stack: entry.stack,
            tag: 0,
            class: 0,
            hold: 0,
        });
        Ok(())
    }

    fn request(&mut self, entry: &TraceEntry, at: usize) {
        if self.builder.request(self.time_us(entry), entry.address) {
            self.source(Some(at), 1);
        }
    }

    fn complete(&mut self, entry: &TraceEntry, at: usize) {
        let added = self.builder.complete(self.time_us(entry), entry.address);
        if added > 1 {
            self.gaps.requests_missing += 1;
            self.source(None, 1);
        }
        self.source(Some(at), added.min(1));
    }

    fn time_us(&self, entry: &TraceEntry) -> u64 {
        entry.time_us.saturating_sub(self.start_us)
    }

    /// Notes which entry so many events come from.
    fn source(&mut self, at: Option<usize>, events: usize) {
        let at = at.and_then(|at| u32::try_from(at).ok());
        self.entries.extend(std::iter::repeat_n(at.unwrap_or(u32::MAX), events));
    }

    fn finish(self, device: usize) -> History {
        History {
            device,
            start_us: self.start_us,
            trace: self.builder.finish(),
            blocks: self.blocks,
            attempts: self.attempts,
            segments: self.segments,
            happenings: Vec::new(),
            entries: self.entries,
            gaps: self.gaps,
        }
    }
}

impl History {
    /// The failure that ended the run, if one did: after it the stack unwinds, so blocks are freed
    /// and none is allocated.
    #[must_use]
    pub fn fatal(&self) -> Option<&Attempt> {
        let last = self.attempts.last()?;
        let after = self.trace.events().get(last.before_event..).unwrap_or_default();
        (!after.iter().any(|event| event.op == Op::Alloc)).then_some(last)
    }

    /// The trace with the failed requests in it too, each freed as soon as it is served: what
    /// the program asked for, whether it got it or not. The second value says for each event
    /// which attempt it belongs to, if any.
    ///
    /// # Errors
    /// [`Reason`] when the sizes cannot all exist.
    pub fn with_attempts(&self) -> Result<(Trace, Vec<Option<u32>>), Reason> {
        let mut builder = TraceBuilder::new();
        let mut attempt_of = Vec::new();
        let mut attempts = self.attempts.iter().enumerate().peekable();
        let mut now = 0;
        let events = self.trace.events();
        for (at, event) in events.iter().map(Some).chain([None]).enumerate() {
            while let Some((number, attempt)) = attempts.next_if(|next| next.1.before_event <= at) {
                // Blocks of the trace are numbered from 0, attempts from above them.
                let block = u64::from(u32::MAX) + 1 + number as u64;
                for op in [Op::Alloc, Op::FreeRequested, Op::FreeCompleted] {
                    builder.push(op, now, block, attempt.bytes.max(1), attempt.stream)?;
                    attempt_of.push(u32::try_from(number).ok());
                }
            }
            let Some(event) = event else { break };
            now = event.time_us;
            builder.push(event.op, now, event.block.into(), event.bytes, event.stream)?;
            attempt_of.push(None);
        }
        Ok((builder.finish(), attempt_of))
    }

    /// Addresses of the segments that the history makes, in order: what
    /// [`Pytorch::with_addresses`](crate::model::Pytorch::with_addresses) takes.
    pub fn placed(&self) -> impl Iterator<Item = Placed> {
        let allocs = self.segments.iter().filter(|change| change.event.op == SegmentOp::Alloc);
        allocs.map(|c| Placed { address: c.event.address, bytes: c.event.bytes })
    }
}
