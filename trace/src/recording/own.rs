//! From our own trace file to a [`Recording`].

use super::{Follow, Format, OpenError, Recording, StacksTaken};
use crate::file::{ChunkKind, Ending, FileError, HeapState, Text, TextKind, TraceFile, moved};
use crate::model::{SegmentEvent, SegmentOp};
use crate::snapshot::{
    Attempt, Block, BlockState, Frame, Gaps, Happened, Happening, History, Origin, Segment,
    SegmentChange, Snapshot, StackId,
};
use crate::{Op, Reason, TraceBuilder};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{Read, Seek};
use std::ops::ControlFlow;
use std::path::Path;
use terrane_core::event::{Event, EventKind};

pub(super) fn open(
    path: &Path,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Recording, OpenError> {
    read(TraceFile::open(path)?, progress)
}

/// The end of the recording alone, as one moment: the last keyframe and what follows it.
pub(super) fn end(path: &Path) -> Result<Recording, OpenError> {
    let mut file = TraceFile::open(path)?;
    let mut follow = Follow::new();
    follow.meta(file.meta()?);
    follow.texts(&file.texts()?);
    follow.state(&file.state_at(u64::MAX)?)?;
    Ok(follow.into_recording())
}

pub(super) fn read<R: Read + Seek>(
    mut file: TraceFile<R>,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Recording, OpenError> {
    let mut snapshot = Snapshot::default();
    let texts = file.texts()?;
    let mut walk = Walk::default();
    add_sites(&texts, &mut snapshot, &mut walk.sites);
    snapshot.stacks.seal();
    let tags = texts.into_iter().filter(|text| text.kind == TextKind::Tag);
    let tags = tags.filter_map(|text| Some((u16::try_from(text.number).ok()?, text.text)));
    let tags = tags.collect();
    let mut ending = file.ending();
    let chunks = file.chunks().to_vec();
    for chunk in chunks {
        if progress(chunk.offset).is_break() {
            return Err(OpenError::Cancelled);
        }
        let is_keyframe = chunk.kind() == ChunkKind::Keyframe;
        if !is_keyframe && chunk.kind() != ChunkKind::Events {
            continue;
        }
        match file.events(chunk) {
            Ok(events) if is_keyframe => walk.keyframe(chunk.first, &events)?,
            Ok(events) => events.iter().try_for_each(|event| walk.take(event))?,
            Err(FileError::Chunk { offset }) => {
                ending = Ending::Damaged(offset);
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    let lacks = lacks(ending, &walk);
    fill(&mut snapshot, &walk);
    let stacks = walk.stacks_taken();
    let histories = vec![walk.finish()];
    let meta = file.meta().ok();
    let format = Format::Terrane;
    Ok(Recording { format, snapshot, histories, dump: None, tags, meta, stacks, lacks })
}

/// The segments at the end, and the streams.
pub(super) fn fill(snapshot: &mut Snapshot, walk: &Walk) {
    snapshot.segments = segments(&walk.state, &walk.sites);
    let most = walk.state.blocks.values().map(|block| block.made.stream()).max();
    let streams = walk.streams.max(most.unwrap_or(0));
    snapshot.streams = (0..=u64::from(streams.min(1 << 16))).collect();
}

/// One stack of one frame for every call site.
pub(super) fn add_sites(
    texts: &[Text],
    snapshot: &mut Snapshot,
    sites: &mut HashMap<u32, StackId>,
) {
    for text in texts.iter().filter(|text| text.kind == TextKind::Site) {
        let frames = text.text.lines().map(|line| {
            let (place, function) = line.split_once('\t').unwrap_or((line, ""));
            let (path, line) = match place.rsplit_once(':') {
                Some((path, line)) => (path, line.parse().unwrap_or(0)),
                None => (place, 0),
            };
            let path = if line == 0 { place } else { path };
            let (file, name) = (snapshot.strings.intern(path), snapshot.strings.intern(function));
            snapshot.stacks.intern_frame(Frame { file, name, line })
        });
        let frames = frames.collect();
        let stack = snapshot.stacks.intern_stack(frames);
        sites.extend(stack.map(|stack| (text.number, stack)));
    }
}

pub(super) fn lacks(ending: Ending, walk: &Walk) -> Vec<String> {
    let mut lacks = Vec::new();
    match ending {
        Ending::Finished => {}
        Ending::Cut(at) => lacks.push(format!(
            "the file was not finished: it is read up to byte {at}; what was not written yet, at \
             most the last second, is lost"
        )),
        Ending::Damaged(at) => {
            lacks.push(format!("the file is damaged at byte {at}; what comes before is read"));
        }
    }
    if walk.lost > 0 {
        lacks.push(format!("{} events were lost: the recorder did not keep up", walk.lost));
    }
    if walk.gaps.earlier_blocks > 0 {
        let count = walk.gaps.earlier_blocks;
        lacks.push(format!("{count} blocks are from before the recording began"));
    }
    lacks
}

/// Segments at the end: plain ones, and the runs of pages that are mapped side by side.
fn segments(state: &HeapState, sites: &HashMap<u32, StackId>) -> Vec<Segment> {
    let mut ranges: BTreeMap<u64, (u64, bool)> = BTreeMap::new();
    for (&space, segment) in &state.segments {
        ranges.insert(HeapState::plain_base(space), (segment.bytes, false));
    }
    let mut run: Option<(u64, u64)> = None;
    for (&(class, at), &(_, bytes)) in &state.pages {
        let start = HeapState::paged_base(class).wrapping_add(at);
        run = Some(match run {
            Some((first, length)) if first.checked_add(length) == Some(start) => {
                (first, length.saturating_add(bytes))
            }
            before => {
                ranges.extend(before.map(|(first, length)| (first, (length, true))));
                (start, bytes)
            }
        });
    }
    ranges.extend(run.map(|(first, length)| (first, (length, true))));
    let segment = |(address, (total_bytes, expandable))| Segment {
        address,
        total_bytes,
        expandable,
        ..Segment::default()
    };
    let mut segments: Vec<Segment> = ranges.into_iter().map(segment).collect();
    for block in state.blocks.values() {
        let event = &block.made;
        let address = state.base_of(event).wrapping_add(event.c);
        let after = segments.partition_point(|segment| segment.address <= address);
        let Some(segment) = after.checked_sub(1).map(|at| &mut segments[at]) else { continue };
        let state = if block.pending { BlockState::PendingFree } else { BlockState::Allocated };
        segment.blocks.push(Block {
            address,
            bytes: event.b,
            requested_bytes: Some(event.a),
            state,
            stack: sites.get(&event.site()).copied(),
        });
        let live = if block.pending { 0 } else { event.b };
        segment.active_bytes = segment.active_bytes.saturating_add(event.b);
        segment.allocated_bytes = segment.allocated_bytes.saturating_add(live);
        segment.stream = event.stream();
    }
    segments.iter_mut().for_each(|s| s.blocks.sort_by_key(|block| block.address));
    segments
}

/// What an event tells beside blocks and memory.
fn happened(event: &Event) -> Option<Happened> {
    let moves = [
        (EventKind::MoveSubmitted, Happened::MoveSubmitted),
        (EventKind::MoveCommitted, Happened::MoveCommitted),
        (EventKind::MoveCancelled, Happened::MoveCancelled),
        (EventKind::MoveDropped, Happened::MoveDropped),
        (EventKind::MoveCorrupt, Happened::MoveCorrupt),
        (EventKind::Damage, Happened::Damage),
        (EventKind::Wait, Happened::WaitFor(event.stream())),
        (EventKind::MoveRefused, Happened::MoveRefused(event.a as u8)),
        (EventKind::LimitSet, Happened::LimitSet),
    ];
    if event.is(EventKind::LimitSet) && event.a != 0 {
        // Of another heap than the one whose figures are told.
        return None;
    }
    moves.into_iter().find(|(kind, _)| event.is(*kind)).map(|(_, what)| what)
}

#[derive(Clone, Copy, Debug)]
struct Live {
    /// Its number in the trace.
    block: usize,
    bytes: u64,
    stream: u32,
    requested: bool,
}

/// Folds events into a history.
#[derive(Clone, Debug, Default)]
pub(super) struct Walk {
    pub sites: HashMap<u32, StackId>,
    pub state: HeapState,
    builder: TraceBuilder,
    live: HashMap<u64, Live>,
    blocks: Vec<Origin>,
    attempts: Vec<Attempt>,
    segments: Vec<SegmentChange>,
    happenings: Vec<Happening>,
    stacks: StacksTaken,
    gaps: Gaps,
    start_ns: Option<u64>,
    last_sequence: Option<u64>,
    pub lost: u64,
    /// Blocks whose call site has no name yet: a connection may tell names later.
    unnamed: Vec<(usize, u32)>,
    streams: u32,
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
        if !is_start {
            self.lost = self.lost.saturating_add(sequence - expected);
        }
        // After a gap: what is not in the new state was freed meanwhile.
        let there: HashSet<u64> = events.iter().map(|e| e.handle).collect();
        let mut gone: Vec<u64> =
            self.live.keys().copied().filter(|handle| !there.contains(handle)).collect();
        gone.sort_unstable();
        for handle in gone {
            self.gaps.frees_missing += 1;
            self.complete(handle)?;
        }
        self.state = HeapState::empty_after(sequence);
        for event in events {
            if !(event.is(EventKind::Alloc) && self.live.contains_key(&event.handle)) {
                self.record(event)?;
            }
            self.state.apply(event, &mut |_| {});
        }
        if is_start {
            self.gaps.earlier_blocks = self.blocks.len() as u64;
            self.gaps.earlier_bytes = self.live.values().map(|live| live.bytes).sum();
        }
        self.last_sequence = Some(sequence);
        Ok(())
    }

    pub fn take(&mut self, event: &Event) -> Result<(), Reason> {
        self.begun = true;
        let expected = self.last_sequence.map_or(event.sequence, |last| last.saturating_add(1));
        let lost = event.sequence.saturating_sub(expected);
        self.lost = self.lost.saturating_add(lost);
        self.last_sequence = Some(event.sequence);
        self.state.overlaid(event).into_iter().try_for_each(|handle| self.complete(handle))?;
        self.record(event)?;
        let mut completed = Vec::new();
        self.state.apply(event, &mut |handle| completed.push(handle));
        completed.into_iter().try_for_each(|handle| self.complete(handle))
    }

    fn time_us(&mut self, event: &Event) -> u64 {
        let start = *self.start_ns.get_or_insert(event.time_ns);
        event.time_ns.saturating_sub(start) / 1000
    }

    fn record(&mut self, event: &Event) -> Result<(), Reason> {
        let time = self.time_us(event);
        if event.is(EventKind::Alloc) {
            self.alloc(event, time)?;
        } else if event.is(EventKind::FreeRequested) {
            self.request(event.handle, time)?;
        } else if event.is(EventKind::Resized) {
            self.complete(event.handle)?;
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
            let live = self.live.get(&event.handle);
            if let Some(origin) = live.and_then(|live| self.blocks.get_mut(live.block)) {
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
        let is_wait = matches!(what, Happened::WaitFor(_));
        if is_wait {
            // A stream that owns no block is awaited all the same.
            self.streams = self.streams.max(event.stream()).max(event.c as u32);
        }
        let made = self.state.blocks.get(&event.handle).map(|block| block.made);
        let stream = match (is_wait, made) {
            (true, _) => event.c as u32,
            (false, Some(made)) => made.stream(),
            (false, None) => event.stream(),
        };
        let made = made.filter(|_| what == Happened::MoveSubmitted);
        let there = made.map(|made| moved(made, event));
        let live = self.live.get(&event.handle);
        self.happenings.push(Happening {
            before_event: self.builder.len(),
            time_us,
            what,
            stream,
            bytes: if is_wait { 0 } else { event.b },
            block: live.and_then(|live| u32::try_from(live.block).ok()),
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
            self.change(SegmentOp::Alloc, HeapState::plain_base(event.a), event.b);
        } else if is(EventKind::SegmentReleased) {
            self.change(SegmentOp::Free, HeapState::plain_base(event.a), event.b);
        } else if is(EventKind::PageMapped) || is(EventKind::PageStolen) {
            if let Some((class, at)) = self.state.stolen_from(event) {
                self.change(SegmentOp::Unmap, page(class, at), event.b);
                self.mapping(Happened::MappingStale, page(class, at), event.b, time);
            }
            self.change(SegmentOp::Map, here, event.b);
        } else if is(EventKind::PageUnmapped) {
            let mapped = self.state.pages.get(&(event.class(), event.c));
            if mapped.is_some_and(|page| page.0 == event.a) {
                self.change(SegmentOp::Unmap, here, event.b);
            } else {
                self.mapping(Happened::MappingGone, here, event.b, time);
            }
        } else if is(EventKind::PageReleased) {
            let gone: Vec<_> = self.state.pages_of(event.a).collect();
            for ((class, at), bytes) in gone {
                self.change(SegmentOp::Unmap, page(class, at), bytes);
            }
        }
    }

    fn change(&mut self, op: SegmentOp, address: u64, bytes: u64) {
        let event = SegmentEvent { op, address, bytes, stream: 0 };
        let at = self.builder.len();
        self.segments.push(SegmentChange { before_event: at, entry: at, event });
    }

    fn alloc(&mut self, event: &Event, time: u64) -> Result<(), Reason> {
        self.complete(event.handle)?;
        let (block, stream) = (self.blocks.len(), event.stream());
        let live = Live { block, bytes: event.a.max(1), stream, requested: false };
        self.streams = self.streams.max(live.stream);
        self.builder.push(Op::Alloc, time, event.handle, live.bytes, live.stream)?;
        self.live.insert(event.handle, live);
        let stack = self.sites.get(&event.site()).copied();
        if stack.is_none() && event.site() != 0 {
            self.unnamed.push((block, event.site()));
        }
        let address = self.state.base_of(event).wrapping_add(event.c);
        self.blocks.push(Origin { address, stack, tag: event.tag() });
        Ok(())
    }

    fn request(&mut self, handle: u64, time: u64) -> Result<(), Reason> {
        let Some(live) = self.live.get_mut(&handle) else { return Ok(()) };
        if !std::mem::replace(&mut live.requested, true) {
            let live = *live;
            self.builder.push(Op::FreeRequested, time, handle, live.bytes, live.stream)?;
        }
        Ok(())
    }

    fn complete(&mut self, handle: u64) -> Result<(), Reason> {
        let start = self.start_ns.unwrap_or(0);
        let time = self.state.time_ns.saturating_sub(start) / 1000;
        self.request(handle, time)?;
        let Some(live) = self.live.remove(&handle) else { return Ok(()) };
        self.builder.push(Op::FreeCompleted, time, handle, live.bytes, live.stream)?;
        Ok(())
    }

    pub fn finish(self) -> History {
        let entries = vec![u32::MAX; self.builder.len()];
        History {
            device: 0,
            start_us: 0,
            trace: self.builder.finish(),
            blocks: self.blocks,
            attempts: self.attempts,
            segments: self.segments,
            happenings: self.happenings,
            entries,
            gaps: self.gaps,
        }
    }
}
