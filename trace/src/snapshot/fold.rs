//! Turns the dictionaries of a snapshot into records while they are read.

use super::stacks::{Frame, StackId, Stacks};
use super::{Action, BlockState, TraceEntry};
use crate::pickle::{Arena, Fold, Strings, Text, Value};
use std::collections::HashMap;

/// Kinds of records.
pub(super) const ENTRY: u8 = 0;
pub(super) const FRAME: u8 = 1;
pub(super) const BLOCK: u8 = 2;

/// Every key that a snapshot has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Action,
    Address,
    Addr,
    ActiveSize,
    AllocatedSize,
    AllocatorSettings,
    Blocks,
    CompileContext,
    Conf,
    Device,
    DeviceFree,
    DeviceTraces,
    ExpandableSegments,
    ExternalAnnotations,
    Filename,
    Frames,
    HostSegments,
    HostTraces,
    IsExpandable,
    Line,
    MaxSplitSize,
    Name,
    RequestedSize,
    SegmentPoolId,
    SegmentType,
    Segments,
    Size,
    Stage,
    State,
    Stream,
    TimeUs,
    TotalSize,
    UserMetadata,
    Other,
}

fn key_named(name: &str) -> Key {
    match name {
        "action" => Key::Action,
        "address" => Key::Address,
        "addr" => Key::Addr,
        "active_size" => Key::ActiveSize,
        "allocated_size" => Key::AllocatedSize,
        "allocator_settings" => Key::AllocatorSettings,
        "blocks" => Key::Blocks,
        "compile_context" => Key::CompileContext,
        "PYTORCH_CUDA_ALLOC_CONF" | "PYTORCH_ALLOC_CONF" | "PYTORCH_HIP_ALLOC_CONF" => Key::Conf,
        "device" => Key::Device,
        "device_free" => Key::DeviceFree,
        "device_traces" => Key::DeviceTraces,
        "expandable_segments" => Key::ExpandableSegments,
        "external_annotations" => Key::ExternalAnnotations,
        "filename" => Key::Filename,
        "frames" => Key::Frames,
        "host_segments" => Key::HostSegments,
        "host_traces" => Key::HostTraces,
        "is_expandable" => Key::IsExpandable,
        "line" => Key::Line,
        "max_split_size" => Key::MaxSplitSize,
        "name" => Key::Name,
        "requested_size" => Key::RequestedSize,
        "segment_pool_id" => Key::SegmentPoolId,
        "segment_type" => Key::SegmentType,
        "segments" => Key::Segments,
        "size" => Key::Size,
        "stage" => Key::Stage,
        "state" => Key::State,
        "stream" => Key::Stream,
        "time_us" => Key::TimeUs,
        "total_size" => Key::TotalSize,
        "user_metadata" => Key::UserMetadata,
        _ => Key::Other,
    }
}

/// A block before its place among its neighbours is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawBlock {
    pub address: Option<u64>,
    pub bytes: u64,
    pub requested_bytes: Option<u64>,
    pub state: BlockState,
    pub frames: Option<u32>,
}

/// The records made so far. A stack in them is the index of the list of its frames.
#[derive(Debug)]
pub(super) struct Records {
    pub entries: Vec<TraceEntry>,
    pub blocks: Vec<RawBlock>,
    pub stacks: Stacks,
    pub streams: Vec<u64>,
    pub entries_without_time: u64,
    stream_numbers: HashMap<u64, u32>,
    /// What each string means as a key.
    keys: Vec<Key>,
}

impl Default for Records {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            blocks: Vec::new(),
            stacks: Stacks::default(),
            streams: vec![0],
            entries_without_time: 0,
            stream_numbers: HashMap::from([(0, 0)]),
            keys: Vec::new(),
        }
    }
}

impl Fold for Records {
    fn dict(&mut self, arena: &Arena, pairs: &[Value]) -> Option<(u8, u32)> {
        let mut has = [false; 3];
        for pair in pairs.chunks_exact(2) {
            match self.key(&arena.strings, pair[0]) {
                Key::Action => has[0] = true,
                Key::Filename => has[1] = true,
                Key::State => has[2] = true,
                Key::Blocks => return None,
                _ => {}
            }
        }
        match has {
            [true, false, false] => self.entry(arena, pairs).map(|at| (ENTRY, at)),
            [false, true, false] => self.frame(arena, pairs).map(|at| (FRAME, at)),
            [false, false, true] => self.block(arena, pairs).map(|at| (BLOCK, at)),
            _ => None,
        }
    }
}

impl Records {
    /// The same without entries, for what stands before them in the file.
    pub(super) fn without_entries(&self) -> Self {
        let blocks = self.blocks.clone();
        let (stacks, streams) = (self.stacks.clone(), self.streams.clone());
        let (stream_numbers, keys) = (self.stream_numbers.clone(), self.keys.clone());
        Self { blocks, stacks, streams, stream_numbers, keys, ..Self::default() }
    }

    /// What a key of the file is.
    pub(super) fn key(&mut self, strings: &Strings, key: Value) -> Key {
        let Value::Text(text) = key else { return Key::Other };
        while self.keys.len() <= text.index() {
            let Some(name) = strings.at(self.keys.len()) else { break };
            self.keys.push(key_named(name));
        }
        self.keys.get(text.index()).copied().unwrap_or(Key::Other)
    }

    fn entry(&mut self, arena: &Arena, pairs: &[Value]) -> Option<u32> {
        let mut entry = TraceEntry {
            address: 0,
            bytes: 0,
            time_us: 0,
            stream: 0,
            stack: None,
            compile_context: None,
            metadata: None,
            action: Action::Unknown,
        };
        let mut timed = false;
        for pair in pairs.chunks_exact(2) {
            let value = pair[1];
            match self.key(&arena.strings, pair[0]) {
                Key::Action => entry.action = action_named(arena.strings.get(text(value)?)),
                Key::Addr | Key::Address | Key::DeviceFree => entry.address = address(value)?,
                Key::Size => entry.bytes = unsigned(value)?,
                Key::Stream => entry.stream = self.stream(address(value)?),
                Key::TimeUs => (entry.time_us, timed) = (unsigned(value)?, true),
                Key::Frames => entry.stack = frames(value)?.map(StackId::at),
                Key::CompileContext => entry.compile_context = said(arena, value, "N/A"),
                Key::UserMetadata => entry.metadata = said(arena, value, ""),
                _ => {}
            }
        }
        self.entries_without_time += u64::from(!timed);
        push(&mut self.entries, entry)
    }

    fn frame(&mut self, arena: &Arena, pairs: &[Value]) -> Option<u32> {
        let (mut file, mut name, mut line) = (None, None, 0);
        for pair in pairs.chunks_exact(2) {
            match self.key(&arena.strings, pair[0]) {
                Key::Filename => file = Some(text(pair[1])?),
                Key::Name => name = Some(text(pair[1])?),
                Key::Line => line = unsigned(pair[1]).and_then(|n| u32::try_from(n).ok())?,
                _ => {}
            }
        }
        Some(self.stacks.intern_frame(Frame { file: file?, name: name?, line }).0)
    }

    fn block(&mut self, arena: &Arena, pairs: &[Value]) -> Option<u32> {
        let mut size = None;
        let mut block = RawBlock {
            address: None,
            bytes: 0,
            requested_bytes: None,
            state: BlockState::Inactive,
            frames: None,
        };
        for pair in pairs.chunks_exact(2) {
            let value = pair[1];
            match self.key(&arena.strings, pair[0]) {
                Key::Address => block.address = Some(address(value)?),
                Key::Size => size = Some(unsigned(value)?),
                Key::RequestedSize => block.requested_bytes = Some(unsigned(value)?),
                Key::State => block.state = state_named(arena.strings.get(text(value)?))?,
                Key::Frames => block.frames = frames(value)?,
                _ => {}
            }
        }
        block.bytes = size?;
        push(&mut self.blocks, block)
    }

    /// The small number of a CUDA stream.
    pub(super) fn stream(&mut self, raw: u64) -> u32 {
        let next = self.streams.len() as u32;
        *self.stream_numbers.entry(raw).or_insert_with(|| {
            self.streams.push(raw);
            next
        })
    }
}

fn push<T>(records: &mut Vec<T>, record: T) -> Option<u32> {
    let at = u32::try_from(records.len()).ok()?;
    records.push(record);
    Some(at)
}

fn action_named(name: &str) -> Action {
    match name {
        "alloc" => Action::Alloc,
        "free_requested" | "free" => Action::FreeRequested,
        "free_completed" => Action::FreeCompleted,
        "segment_alloc" => Action::SegmentAlloc,
        "segment_free" => Action::SegmentFree,
        "segment_map" => Action::SegmentMap,
        "segment_unmap" => Action::SegmentUnmap,
        "snapshot" => Action::Snapshot,
        "oom" => Action::OutOfMemory,
        "annotate" | "user_defined" => Action::Annotate,
        _ => Action::Unknown,
    }
}

fn state_named(name: &str) -> Option<BlockState> {
    match name {
        "active_allocated" => Some(BlockState::Allocated),
        "active_pending_free" | "active_awaiting_free" => Some(BlockState::PendingFree),
        "inactive" => Some(BlockState::Inactive),
        _ => None,
    }
}

pub(super) fn text(value: Value) -> Option<Text> {
    match value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// A text, unless it is the one that stands for nothing.
fn said(arena: &Arena, value: Value, nothing: &str) -> Option<Text> {
    text(value).filter(|text| arena.strings.get(*text) != nothing)
}

pub(super) fn unsigned(value: Value) -> Option<u64> {
    match value {
        Value::Int(int) => u64::try_from(int).ok(),
        Value::Unsigned(unsigned) => Some(unsigned),
        _ => None,
    }
}

/// An address or a stream; writers that know only signed integers give high ones as negative.
pub(super) fn address(value: Value) -> Option<u64> {
    match value {
        Value::Int(int) => Some(int as u64),
        Value::Unsigned(unsigned) => Some(unsigned),
        _ => None,
    }
}

/// The list of frames, if there is one; the outer `None` is a wrong type.
#[allow(clippy::option_option, reason = "absent and wrong are two things")]
pub(super) fn frames(value: Value) -> Option<Option<u32>> {
    match value {
        Value::List(at) | Value::Tuple(at) => Some(Some(at)),
        Value::None => Some(None),
        _ => None,
    }
}
