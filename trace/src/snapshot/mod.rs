//! A PyTorch memory snapshot: what `torch.cuda.memory._snapshot()` returns.
//!
//! Addresses are as the file gives them. What a file does not say is absent here, and
//! [`Snapshot::notes`] says so.

mod archive;
mod convert;
mod early;
mod fold;
mod history;
mod json;
mod open;
mod peak;
mod stacks;

pub use convert::{Note, ReadOptions};
pub use early::Early;
pub use history::{Attempt, Gaps, Happened, Happening, History, Origin, SegmentChange};
pub use json::{open_json_snapshot, read_json_snapshot};
pub use open::{open_snapshot, open_snapshot_early, read_snapshot};
pub use stacks::{Frame, FrameId, StackId, Stacks};

use crate::pickle::{Strings, Text};

/// A whole snapshot.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Segments at the moment of the dump, in the order of the file.
    pub segments: Vec<Segment>,
    /// History by device; empty where none was recorded.
    pub device_traces: Vec<Vec<TraceEntry>>,
    /// Segments of page-locked host memory, from PyTorch 2.14 on.
    pub host_segments: Vec<Segment>,
    /// History of page-locked host memory, from PyTorch 2.14 on.
    pub host_traces: Vec<Vec<TraceEntry>>,
    /// Call stacks of the entries above.
    pub stacks: Stacks,
    /// Names in the stacks, annotations and metadata.
    pub strings: Strings,
    /// CUDA streams by the small number used here; 0 is the default stream.
    pub streams: Vec<u64>,
    /// The settings that the program ran under, as far as they are in the file.
    pub settings: Settings,
    /// Annotations of the program: (stage or name, device, microseconds).
    pub annotations: Vec<Annotation>,
    /// What the file lacks or contradicts.
    pub notes: Vec<Note>,
}

/// Small requests (up to 1 MiB) and large ones never share a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SegmentKind {
    /// Serves requests up to 1 MiB.
    Small,
    /// Serves larger requests.
    Large,
    /// The file does not say.
    #[default]
    Unknown,
}

/// A range of addresses obtained from the driver.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segment {
    /// Device index.
    pub device: i64,
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub total_bytes: u64,
    /// Bytes of live blocks.
    pub allocated_bytes: u64,
    /// The same and bytes freed but still in use by other streams.
    pub active_bytes: u64,
    /// Bytes asked for by live blocks; `None` before PyTorch 2.1.
    pub requested_bytes: Option<u64>,
    /// Stream, an index into [`Snapshot::streams`].
    pub stream: u32,
    /// Which requests it serves.
    pub kind: SegmentKind,
    /// Private pool, (0, 0) for the default one.
    pub pool: (u64, u64),
    /// True for a mapped range of an expandable segment.
    pub expandable: bool,
    /// Where it was allocated.
    pub stack: Option<StackId>,
    /// Its blocks by address.
    pub blocks: Vec<Block>,
}

/// What a block was doing at the moment of the dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// In use by the program.
    Allocated,
    /// Freed; other streams still use it.
    PendingFree,
    /// Cached, free to be used again.
    Inactive,
}

/// A part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// First address.
    pub address: u64,
    /// Length in bytes, after rounding.
    pub bytes: u64,
    /// Bytes asked for; `None` where the file does not say.
    pub requested_bytes: Option<u64>,
    /// What it was doing.
    pub state: BlockState,
    /// Where it was allocated.
    pub stack: Option<StackId>,
}

/// What happened in a [`TraceEntry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A block was handed out.
    Alloc,
    /// The program freed a block.
    FreeRequested,
    /// The block can be used again.
    FreeCompleted,
    /// A segment was allocated from the driver.
    SegmentAlloc,
    /// A segment was given back.
    SegmentFree,
    /// Memory was mapped into an expandable segment.
    SegmentMap,
    /// Memory was unmapped from an expandable segment.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// A request failed. The address field is the driver's free memory.
    OutOfMemory,
    /// The program annotated this moment.
    Annotate,
    /// An action that this version does not know.
    Unknown,
}

/// One entry of a device's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    /// First address; the driver's free bytes for [`Action::OutOfMemory`].
    pub address: u64,
    /// Bytes: as asked for (alloc and free), or of the segment, or asked for (out of memory).
    pub bytes: u64,
    /// Microseconds since 1970; 0 where the file does not say (see the notes).
    pub time_us: u64,
    /// Stream, an index into [`Snapshot::streams`].
    pub stream: u32,
    /// Where it happened.
    pub stack: Option<StackId>,
    /// torch.compile's context, where there is one.
    pub compile_context: Option<Text>,
    /// The program's own text, where there is one.
    pub metadata: Option<Text>,
    /// What happened.
    pub action: Action,
}

/// Allocator settings in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Text of `PYTORCH_CUDA_ALLOC_CONF` or its successors; `None` where the file has no
    /// settings.
    pub conf: Option<String>,
    /// Whether expandable segments were on.
    pub expandable_segments: Option<bool>,
    /// `max_split_size` in bytes; `None`: no limit or not in the file.
    pub max_split_bytes: Option<u64>,
}

/// A named moment or stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation {
    /// Its text.
    pub name: Text,
    /// `START`, `END` or nothing.
    pub stage: Option<Text>,
    /// Device index, where there is one.
    pub device: Option<i64>,
    /// Microseconds since 1970.
    pub time_us: u64,
}

impl Snapshot {
    /// The history with the most entries, and its device.
    #[must_use]
    pub fn main_trace(&self) -> Option<(usize, &[TraceEntry])> {
        let traces = self.device_traces.iter().enumerate();
        let (device, trace) =
            traces.max_by_key(|(device, trace)| (trace.len(), usize::MAX - device))?;
        (!trace.is_empty()).then_some((device, trace.as_slice()))
    }

    /// Bytes of all segments of a device.
    #[must_use]
    pub fn reserved_bytes(&self, device: i64) -> u64 {
        let segments = self.segments.iter().filter(|segment| segment.device == device);
        segments.map(|segment| segment.total_bytes).sum()
    }
}
