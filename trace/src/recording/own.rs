//! From our own trace file to a [`Recording`].

use super::walk::Walk;
use super::{Follow, Format, OpenError, Recording};
use crate::file::{ChunkKind, Ending, FileError, HeapState, Text, TextKind, TraceFile};
use crate::snapshot::{Block, BlockState, Frame, Segment, Snapshot, StackId};
use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Seek};
use std::ops::ControlFlow;
use std::path::Path;
use terrane_core::event::Event;

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
    follow.begin_with(file.state_at(u64::MAX)?)?;
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
    // A large keyframe comes in several chunks, one behind the other.
    let mut keyframe: Option<(u64, Vec<Event>)> = None;
    for chunk in chunks {
        if progress(chunk.offset).is_break() {
            return Err(OpenError::Cancelled);
        }
        let is_keyframe = chunk.kind() == ChunkKind::Keyframe;
        if !is_keyframe && chunk.kind() != ChunkKind::Events {
            continue;
        }
        match file.events(chunk) {
            Ok(events) if is_keyframe => match &mut keyframe {
                Some((sequence, begun)) if *sequence == chunk.first => begun.extend(events),
                other => {
                    let before = other.replace((chunk.first, events));
                    before.map_or(Ok(()), |(at, events)| walk.keyframe(at, &events))?;
                }
            },
            Ok(events) => {
                let before = keyframe.take();
                before.map_or(Ok(()), |(at, events)| walk.keyframe(at, &events))?;
                events.iter().try_for_each(|event| walk.take(event))?;
            }
            Err(FileError::Chunk { offset }) => {
                ending = Ending::Damaged(offset);
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    keyframe.map_or(Ok(()), |(at, events)| walk.keyframe(at, &events))?;
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
        lacks.push(format!("{} events were lost: they were not taken in time", walk.lost));
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
