//! Builds a [`Trace`] event by event and refuses what cannot have happened.

use super::{Event, Op, Trace};
use crate::Reason;
use std::collections::{BTreeSet, HashMap};

/// Collects events and checks each against the blocks that are live.
///
/// Block numbers are the caller's own (serial numbers, addresses); one may name a new block once
/// the free of the old one has completed.
#[derive(Clone, Debug, Default)]
pub struct TraceBuilder {
    events: Vec<Event>,
    live: HashMap<u64, Live>,
    streams: BTreeSet<u32>,
    block_count: u32,
    total_bytes: u64,
    now_us: u64,
    clock_reversals: u64,
}

/// A block whose free has not completed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Live {
    /// Its number in the trace.
    pub index: u32,
    /// Bytes asked for.
    pub bytes: u64,
    /// Stream that owns it.
    pub stream: u32,
    requested: bool,
}

impl TraceBuilder {
    /// A builder with no event.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Events taken so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// True before the first event.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Takes one event and returns the dense index of its block. A time before that of the
    /// last event is raised to it and counted.
    ///
    /// # Errors
    /// The [`Reason`] why this event cannot follow the earlier ones; the builder is unchanged.
    pub fn push(
        &mut self,
        op: Op,
        time_us: u64,
        block: u64,
        bytes: u64,
        stream: u32,
    ) -> Result<u32, Reason> {
        let live = match op {
            Op::Alloc => self.open(block, bytes, stream)?,
            Op::FreeRequested => {
                let live = self.find(block, bytes, stream)?;
                if std::mem::replace(&mut live.requested, true) {
                    return Err(Reason::RequestedTwice { block });
                }
                *live
            }
            Op::FreeCompleted => {
                let live = *self.find(block, bytes, stream)?;
                if !live.requested {
                    return Err(Reason::NeverRequested { block });
                }
                self.live.remove(&block);
                live
            }
        };
        self.note(op, time_us, live);
        Ok(live.index)
    }

    /// Makes room for so many blocks more.
    pub(crate) fn reserve(&mut self, blocks: usize) {
        self.events.reserve(blocks);
        self.live.reserve(blocks);
    }

    /// The block that is live under a number.
    pub(crate) fn live(&self, block: u64) -> Option<Live> {
        self.live.get(&block).copied()
    }

    /// All that are live, in no order, with their numbers.
    pub(crate) fn all_live(&self) -> impl Iterator<Item = (u64, Live)> {
        self.live.iter().map(|(block, live)| (*block, *live))
    }

    /// Takes the request to free a block; false where none is live or it was requested before.
    pub(crate) fn request(&mut self, time_us: u64, block: u64) -> bool {
        let Some(live) = self.live.get_mut(&block) else { return false };
        if std::mem::replace(&mut live.requested, true) {
            return false;
        }
        let live = *live;
        self.note(Op::FreeRequested, time_us, live);
        true
    }

    /// Takes the completion of a block's free, with the request where that was not taken: the
    /// number of events, 0 where no block is live.
    pub(crate) fn complete(&mut self, time_us: u64, block: u64) -> usize {
        let Some(live) = self.live.remove(&block) else { return 0 };
        if !live.requested {
            self.note(Op::FreeRequested, time_us, live);
        }
        self.note(Op::FreeCompleted, time_us, live);
        if live.requested { 1 } else { 2 }
    }

    fn note(&mut self, op: Op, time_us: u64, live: Live) {
        self.clock_reversals += u64::from(time_us < self.now_us);
        self.now_us = self.now_us.max(time_us);
        let Live { index: block, bytes, stream, .. } = live;
        self.events.push(Event { time_us: self.now_us, bytes, block, stream, op });
    }

    /// The trace of all events taken.
    #[must_use]
    pub fn finish(mut self) -> Trace {
        self.events.shrink_to_fit();
        Trace {
            events: self.events,
            streams: self.streams.into_iter().collect(),
            block_count: self.block_count,
            clock_reversals: self.clock_reversals,
        }
    }

    fn open(&mut self, block: u64, bytes: u64, stream: u32) -> Result<Live, Reason> {
        if bytes == 0 {
            return Err(Reason::ZeroSize { block });
        }
        if self.live.contains_key(&block) {
            return Err(Reason::DuplicateAlloc { block });
        }
        let index = self.block_count;
        let next = index.checked_add(1).ok_or(Reason::TooManyEvents { limit: u32::MAX.into() })?;
        self.total_bytes = self.total_bytes.checked_add(bytes).ok_or(Reason::TotalOverflow)?;
        self.block_count = next;
        self.streams.insert(stream);
        let live = Live { index, bytes, stream, requested: false };
        self.live.insert(block, live);
        Ok(live)
    }

    fn find(&mut self, block: u64, bytes: u64, stream: u32) -> Result<&mut Live, Reason> {
        let live = self.live.get_mut(&block).ok_or(Reason::UnknownBlock { block })?;
        if live.bytes != bytes {
            return Err(Reason::SizeMismatch { block, allocated: live.bytes, freed: bytes });
        }
        if live.stream != stream {
            return Err(Reason::StreamMismatch { block, allocated: live.stream, freed: stream });
        }
        Ok(live)
    }
}
