//! Folds the events of our own allocator into a history.

use super::StacksTaken;
use crate::file::{HeapState, held, moved};
use crate::model::{SegmentEvent, SegmentOp};
use crate::snapshot::{
    Attempt, Gaps, Happened, Happening, History, Origin, SegmentChange, StackId,
};
use crate::workload::Live;
use crate::{Op, Reason, TraceBuilder};
use std::collections::{BTreeMap, HashMap};
use terrane_core::event::{Event, EventKind, GoalKind, MoveKind};

/// What an event tells beside blocks and memory.
fn happened(event: &Event) -> Option<Happened> {
    let blocks = if event.handle == 0 { event.c as u32 } else { 1 };
    let moves = [
        (EventKind::MoveSubmitted, Happened::MoveSubmitted(event.move_kind())),
        (EventKind::MoveCommitted, Happened::MoveCommitted),
        (EventKind::MoveCancelled, Happened::MoveCancelled),
        (EventKind::MoveDropped, Happened::MoveDropped),
        (EventKind::MoveCorrupt, Happened::MoveCorrupt),
        (EventKind::Damage, Happened::Damage),
        (EventKind::Wait, Happened::WaitFor(event.stream())),
        (EventKind::MoveRefused, Happened::MoveRefused { why: event.a as u8, blocks }),
        (EventKind::PassEnd, Happened::PassEnd(event.c as u32)),
        (EventKind::LimitSet, Happened::LimitSet),
        (EventKind::Submitted, Happened::Submitted(event.a)),
        (EventKind::Reached, Happened::Reached(event.a)),
        (EventKind::FreeWaits, Happened::FreeWaits { behind: event.stream(), value: event.a }),
        (EventKind::WorkWaits, Happened::WorkWaitsFor(event.stream())),
        (EventKind::Hold, Happened::Hold(held(event))),
        (EventKind::PassGoal, pass_goal(event)),
        (EventKind::PassLimits, Happened::PassLimits { moves: event.c, ticks: event.handle }),
    ];
    if event.is(EventKind::LimitSet) && event.a != 0 {
        // Of another heap than the one whose figures are told.
        return None;
    }
    moves.into_iter().find(|(kind, _)| event.is(*kind)).map(|(_, what)| what)
}

fn pass_goal(event: &Event) -> Happened {
    let background = event.c & GoalKind::BACKGROUND != 0;
    Happened::PassGoal { number: event.b, kind: event.c as u8, background }
}

/// Folds events into a history.
#[derive(Clone, Debug, Default)]
pub(super) struct Walk {
    pub sites: HashMap<u32, StackId>,
    pub state: HeapState,
    builder: TraceBuilder,
    blocks: Vec<Origin>,
    attempts: Vec<Attempt>,
    segments: Vec<SegmentChange>,
    happenings: Vec<Happening>,
    stacks: StacksTaken,
    pub gaps: Gaps,
    start_ns: Option<u64>,
    last_sequence: Option<u64>,
    pub lost: u64,
    /// Blocks whose call site has no name yet: a connection may tell names later.
    unnamed: Vec<(usize, u32)>,
    pub streams: u32,
    begun: bool,
}

impl Walk {
    /// Events so far.
    pub fn len(&self) -> usize {
        self.builder.len()
    }

    /// Names the call sites of blocks whose names came by now.
    pub fn name(&mut self) {
        let (sites, blocks) = (&self.sites, &mut self.blocks);
        self.unnamed.retain(|(block, site)| match sites.get(site) {
            Some(stack) => {
                blocks[*block].stack = Some(*stack);
                false
            }
            None => true,
        });
    }

    /// Call stacks that were taken, if any were.
    pub fn stacks_taken(&self) -> Option<StacksTaken> {
        (self.stacks.count > 0).then_some(self.stacks)
    }

    /// A keyframe tells nothing new, unless it is the first or follows a gap.
    pub fn keyframe(&mut self, sequence: u64, events: &[Event]) -> Result<(), Reason> {
        let expected = self.last_sequence.unwrap_or(0);
        let is_start = !self.begun;
        if !is_start && sequence <= expected {
            return Ok(());
        }
        if is_start {
            self.begin(sequence, events)?;
        } else {
            self.lose(sequence - expected);
            self.resume(sequence, events)?;
        }
        (self.begun, self.last_sequence) = (true, Some(sequence));
        Ok(())
    }

    fn begin(&mut self, sequence: u64, events: &[Event]) -> Result<(), Reason> {
        self.state = HeapState::empty_after(sequence);
        for event in events {
            if !(event.is(EventKind::Alloc) && self.builder.live(event.handle).is_some()) {
                self.record(event)?;
            }
            self.state.apply(event, &mut |_| {});
        }
        self.begun_late();
        Ok(())
    }

    /// Begins with a state, as with a keyframe of it.
    pub fn begin_with(&mut self, state: HeapState) -> Result<(), Reason> {
        let events = state.to_events();
        self.builder.reserve(state.blocks.len());
        self.blocks.reserve(state.blocks.len());
        (self.begun, self.last_sequence) = (true, Some(state.sequence));
        self.state = state;
        events.iter().try_for_each(|event| self.record(event))?;
        self.begun_late();
        Ok(())
    }

    /// All that is there so far is from before.
    fn begun_late(&mut self) {
        self.gaps.earlier_blocks = self.blocks.len() as u64;
        self.gaps.earlier_bytes = self.builder.all_live().map(|(_, live)| live.bytes).sum();
    }

    /// Goes on from the state after a gap: what is not in it was freed meanwhile, and what is only
    /// in it is new, or has moved.
    fn resume(&mut self, sequence: u64, events: &[Event]) -> Result<(), Reason> {
        let mut after = HeapState::empty_after(sequence);
        events.iter().for_each(|event| after.apply(event, &mut |_| {}));
        let mut gone: Vec<u64> = self
            .builder
            .all_live()
            .map(|(it, _)| it)
            .filter(|it| !after.blocks.contains_key(it))
            .collect();
        gone.sort_unstable();
        for handle in gone {
            self.gaps.frees_missing += 1;
            self.complete(handle);
        }
        let before = std::mem::replace(&mut self.state, after);
        self.memory_since(&before);
        for event in events {
            // Of a block that is in a full state nobody knows when it was made.
            let mut event = *event;
            event.time_ns = event.time_ns.max(before.time_ns);
            let event = &event;
            match self.builder.live(event.handle) {
                // One of another size ends here and begins anew, as where it is told.
                Some(live) if event.is(EventKind::Alloc) && live.bytes == event.a.max(1) => {
                    self.moved_since(&before, event, live);
                }
                _ if event.is(EventKind::Alloc) || event.is(EventKind::FreeRequested) => {
                    self.record(event)?;
                }
                _ => {}
            }
        }
        if self.state.limit != before.limit
            && let Some(limit) = self.state.limit
        {
            let mut event = Event::new(EventKind::LimitSet).b(limit);
            event.time_ns = before.time_ns;
            self.record(&event)?;
        }
        Ok(())
    }

    /// Notes memory that came and went in a gap.
    fn memory_since(&mut self, before: &HeapState) {
        let ranges = |state: &HeapState| -> BTreeMap<u64, (u64, Option<u64>)> {
            let page = |(class, at): (u8, u64)| HeapState::paged_base(class).wrapping_add(at);
            let plain = state.segments.iter();
            let plain = plain.map(|(space, it)| (HeapState::plain_base(*space), (it.bytes, None)));
            let paged = state.pages.iter();
            let paged = paged.map(|(at, (object, bytes))| (page(*at), (*bytes, Some(*object))));
            plain.chain(paged).collect()
        };
        let (old, new) = (ranges(before), ranges(&self.state));
        for (at, was) in old.iter().filter(|(at, was)| new.get(at) != Some(was)) {
            let op = if was.1.is_some() { SegmentOp::Unmap } else { SegmentOp::Free };
            self.change(op, *at, *was);
        }
        for (at, is) in new.iter().filter(|(at, is)| old.get(at) != Some(is)) {
            let op = if is.1.is_some() { SegmentOp::Map } else { SegmentOp::Alloc };
            self.change(op, *at, *is);
        }
    }

    /// Notes a block that is elsewhere after a gap.
    fn moved_since(&mut self, before: &HeapState, event: &Event, live: Live) {
        let Some(old) = before.blocks.get(&event.handle).map(|block| block.made) else { return };
        let was = before.base_of(&old).wrapping_add(old.c);
        let address = self.state.base_of(event).wrapping_add(event.c);
        let time_us = self.time_us(event);
        let mut note = |what, address| {
            self.happenings.push(Happening {
                before_event: self.builder.len(),
                time_us,
                what,
                stream: live.stream,
                bytes: event.b,
                block: Some(live.index),
                address,
            });
        };
        if was != address {
            note(Happened::MoveSubmitted(MoveKind::Untold), address);
        }
        if old.hold_code() != event.hold_code() {
            note(Happened::Hold(event.hold_code()), 0);
        }
    }

    pub fn take(&mut self, event: &Event) -> Result<(), Reason> {
        self.begun = true;
        let expected = self.last_sequence.map_or(event.sequence, |last| last.saturating_add(1));
        let lost = event.sequence.saturating_sub(expected);
        self.lose(lost);
        self.last_sequence = Some(event.sequence);
        self.state.overlaid(event).into_iter().for_each(|handle| self.complete(handle));
        self.record(event)?;
        let mut completed = Vec::new();
        self.state.apply(event, &mut |handle| completed.push(handle));
        completed.into_iter().for_each(|handle| self.complete(handle));
        Ok(())
    }

    /// Notes events that were lost.
    fn lose(&mut self, events: u64) {
        if events > 0 {
            self.lost = self.lost.saturating_add(events);
            let time_us = self.state.time_ns.saturating_sub(self.start_ns.unwrap_or(0)) / 1000;
            self.happenings.push(Happening {
                before_event: self.builder.len(),
                time_us,
                what: Happened::Lost(events),
                stream: 0,
                bytes: 0,
                block: None,
                address: 0,
            });
        }
    }

    /// Time since the first event that has one.
    fn time_us(&mut self, event: &Event) -> u64 {
        if event.time_ns == 0 {
            return 0;
        }
        let start = *self.start_ns.get_or_insert(event.time_ns);
        event.time_ns.saturating_sub(start) / 1000
    }

    fn record(&mut self, event: &Event) -> Result<(), Reason> {
        let time = self.time_us(event);
        if event.is(EventKind::Alloc) {
            self.alloc(event, time)?;
        } else if event.is(EventKind::FreeRequested) {
            self.builder.request(time, event.handle);
        } else if event.is(EventKind::Resized) {
            self.complete(event.handle);
            if let Some(block) = self.state.blocks.get(&event.handle).copied() {
                self.alloc(&block.made.a(event.a).b(event.b), time)?;
            }
        } else if event.is(EventKind::OutOfMemory) {
            self.attempts.push(Attempt {
                before_event: self.builder.len(),
                entry: self.builder.len(),
                bytes: event.a,
                stream: event.stream(),
                device_free: event.c,
                stack: self.sites.get(&event.site()).copied(),
            });
        } else if event.is(EventKind::Stack) {
            self.stacks.count += 1;
            self.stacks.total_ns = self.stacks.total_ns.saturating_add(event.b);
            let live = self.builder.live(event.handle);
            if let Some(origin) = live.and_then(|it| self.blocks.get_mut(it.index as usize)) {
                origin.stack = self.sites.get(&(event.a as u32)).copied().or(origin.stack);
            }
        } else if let Some(what) = happened(event) {
            self.happens(event, what, time);
        } else {
            self.segment(event, time);
        }
        Ok(())
    }

    /// Notes what an event tells beside blocks and memory.
    fn happens(&mut self, event: &Event, what: Happened, time_us: u64) {
        let is_wait = matches!(what, Happened::WaitFor(_) | Happened::WorkWaitsFor(_));
        if is_wait {
            self.streams = self.streams.max(event.c as u32);
        }
        // A stream that owns no block is awaited, and works, all the same.
        self.streams = self.streams.max(event.stream());
        let made = self.state.blocks.get(&event.handle).map(|block| block.made);
        let stream = match (is_wait, made) {
            (true, _) => event.c as u32,
            (false, Some(made)) => made.stream(),
            (false, None) => event.stream(),
        };
        let made = made.filter(|_| what.is_move());
        let there = made.map(|made| moved(made, event));
        let live = self.builder.live(event.handle);
        self.happenings.push(Happening {
            before_event: self.builder.len(),
            time_us,
            what,
            stream,
            bytes: if is_wait { 0 } else { event.b },
            block: live.map(|live| live.index),
            address: there.map_or(0, |made| self.state.base_of(&made).wrapping_add(made.c)),
        });
    }

    /// Notes an old mapping of pages that are mapped elsewhere now.
    fn mapping(&mut self, what: Happened, address: u64, bytes: u64, time_us: u64) {
        let before_event = self.builder.len();
        let (stream, block) = (0, None);
        let happening = Happening { before_event, time_us, what, stream, bytes, block, address };
        self.happenings.push(happening);
    }

    /// Notes memory that came or went. Pages are counted where they are mapped, each once.
    fn segment(&mut self, event: &Event, time: u64) {
        let is = |kind| event.is(kind);
        let page = |class, at| HeapState::paged_base(class).wrapping_add(at);
        let here = page(event.class(), event.c);
        if is(EventKind::SegmentEnd) {
            self.change(SegmentOp::Alloc, HeapState::plain_base(event.a), (event.b, None));
        } else if is(EventKind::SegmentReleased) {
            self.change(SegmentOp::Free, HeapState::plain_base(event.a), (event.b, None));
        } else if is(EventKind::PageMapped) || is(EventKind::PageStolen) {
            if let Some((class, at)) = self.state.stolen_from(event) {
                self.change(SegmentOp::Unmap, page(class, at), (event.b, None));
                self.mapping(Happened::MappingStale, page(class, at), event.b, time);
            }
            self.change(SegmentOp::Map, here, (event.b, Some(event.a)));
        } else if is(EventKind::PageUnmapped) {
            let mapped = self.state.pages.get(&(event.class(), event.c));
            if mapped.is_some_and(|page| page.0 == event.a) {
                self.change(SegmentOp::Unmap, here, (event.b, None));
            } else {
                self.mapping(Happened::MappingGone, here, event.b, time);
            }
        } else if is(EventKind::PageReleased) {
            let gone: Vec<_> = self.state.pages_of(event.a).collect();
            for ((class, at), bytes) in gone {
                self.change(SegmentOp::Unmap, page(class, at), (bytes, None));
            }
        }
    }

    fn change(&mut self, op: SegmentOp, address: u64, (bytes, object): (u64, Option<u64>)) {
        let event = SegmentEvent { op, address, bytes, stream: 0, object };
        let at = self.builder.len();
        self.segments.push(SegmentChange { before_event: at, entry: at, event });
    }

    fn alloc(&mut self, event: &Event, time: u64) -> Result<(), Reason> {
        self.complete(event.handle);
        let (block, stream) = (self.blocks.len(), event.stream());
        self.streams = self.streams.max(stream);
        self.builder.push(Op::Alloc, time, event.handle, event.a.max(1), stream)?;
        let stack = self.sites.get(&event.site()).copied();
        if stack.is_none() && event.site() != 0 {
            self.unnamed.push((block, event.site()));
        }
        let address = self.state.base_of(event).wrapping_add(event.c);
        let (tag, class, hold) = (event.tag(), event.class(), event.hold_code());
        self.blocks.push(Origin { address, stack, tag, class, hold });
        Ok(())
    }

    fn complete(&mut self, handle: u64) {
        let start = self.start_ns.unwrap_or(0);
        let time = self.state.time_ns.saturating_sub(start) / 1000;
        self.builder.complete(time, handle);
    }

    pub fn finish(self) -> History {
        History {
            device: 0,
            start_us: 0,
            trace: self.builder.finish(),
            blocks: self.blocks,
            attempts: self.attempts,
            segments: self.segments,
            happenings: self.happenings,
            entries: Vec::new(),
            gaps: self.gaps,
        }
    }
}
