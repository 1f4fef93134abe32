//! What the views show: recorded facts, without pixels and without widgets.

mod from_dump;
mod from_own;
mod from_snapshot;
mod from_trace;
mod held;
mod hold;
mod lives;
#[cfg(test)]
mod made;
mod moment;
mod moves;
mod places;
mod plan;
mod series;
mod work;

use from_dump::from_dump;
use from_snapshot::from_snapshot;
use from_trace::from_trace;
pub use held::{Amount, Held, OfStream};
pub use hold::{Hold, HoldRow};
pub use lives::Lives;
pub use moment::{Moment, Page, Part, PartState, Space};
pub use moves::{PassNote, Refusal, Shift, largest_hole_after, means};
pub use places::{Places, short as short_site};
pub use plan::{Aim, plan_for};
pub use series::{Column, Series};
pub use work::{PendingRow, WorkRow};

use std::path::PathBuf;
use std::sync::Arc;

use terrane_core::event::MoveKind;
use terrane_trace::recording::Recording as Read;
use terrane_trace::snapshot::{History, Snapshot};

/// The moment that never comes: a block that was not freed, a part without a block.
pub const NEVER: u32 = u32::MAX;

/// Where the addresses come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// They were recorded.
    Recorded,
    /// The file has none: blocks lie where PyTorch's default rules would have put them.
    Modelled,
    /// They are made of a segment's number and the offset in it.
    Own,
}

/// A live block that changed its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The first moment at which it is at its new place.
    pub at: u32,
    /// The last moment at which it is at its old place.
    pub before: u32,
    /// The block at its old place, an index into [`Recording::blocks`].
    pub from: u32,
    /// The block at its new place.
    pub to: u32,
    /// By what means.
    pub by: MoveKind,
}

/// A stream that waited for the work of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitRow {
    /// Events before it.
    pub at: u32,
    /// The stream that was waited for, an index into [`Recording::streams`].
    pub behind: u32,
    /// The stream that waited.
    pub stream: u32,
    /// Whether work on it waited before it used a block of the other stream, rather than a
    /// request that was served from memory which the other stream had not done with.
    pub by_work: bool,
}

/// Events that were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapRow {
    /// Events before it.
    pub at: u32,
    /// How many were lost.
    pub lost: u64,
}

/// An old mapping of pages that are mapped elsewhere: neither hole nor destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleRow {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// First moment at which it is stale.
    pub born: u32,
    /// First moment at which it is unmapped, or [`NEVER`].
    pub gone: u32,
}

/// A block, from its making to its end. Moments count events: `born` is the number of events after
/// which it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRow {
    /// First address.
    pub address: u64,
    /// Bytes after rounding.
    pub bytes: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// First moment at which it is there.
    pub born: u32,
    /// First moment at which its free has been requested, or [`NEVER`].
    pub freed: u32,
    /// First moment at which its memory is free, or [`NEVER`].
    pub gone: u32,
    /// Index into [`Recording::streams`].
    pub stream: u32,
    /// Index into [`Places::sites`].
    pub site: u32,
    /// Index into [`Places::stacks`], or [`NEVER`].
    pub stack: u32,
    /// Index into [`Recording::tags`].
    pub tag: u16,
    /// Whether it could be moved when it was made; see [`Recording::hold`] for later.
    pub hold: Hold,
    /// Its memory class, an index into [`Recording::kinds`] where that is told.
    pub kind: u8,
}

impl BlockRow {
    /// Whether its memory is taken at a moment.
    pub fn is_there(&self, at: u32) -> bool {
        self.born <= at && at < self.gone
    }
}

/// Which requests a segment serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolKind {
    /// Small ones.
    Small,
    /// Large ones.
    Large,
    /// Not known.
    Unknown,
}

impl PoolKind {
    /// One word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
            Self::Unknown => "unknown",
        }
    }
}

/// A range of addresses backed by memory for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRow {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// First moment at which it is there.
    pub born: u32,
    /// First moment at which it is gone, or [`NEVER`].
    pub gone: u32,
    /// Index into [`Recording::streams`].
    pub stream: u32,
    /// Which requests it serves.
    pub pool: PoolKind,
    /// The memory object that it is a page of, where pages are told one by one.
    pub object: Option<u64>,
}

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventOp {
    /// A block was handed out.
    Alloc,
    /// The program freed it.
    Freed,
    /// Its memory can be used again.
    Done,
}

impl EventOp {
    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alloc => "allocated",
            Self::Freed => "free requested",
            Self::Done => "free completed",
        }
    }
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// Microseconds since the start.
    pub time_us: u64,
    /// Index into [`Recording::blocks`].
    pub block: u32,
    /// What happened.
    pub op: EventOp,
}

/// A request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Events before it.
    pub at: u32,
    /// Bytes asked for.
    pub bytes: u64,
    /// Index into [`Recording::streams`].
    pub stream: u32,
    /// Bytes that the driver had free.
    pub device_free: u64,
    /// Index into [`Places::stacks`], or [`NEVER`].
    pub stack: u32,
    /// Whether nothing was allocated afterwards.
    pub fatal: bool,
}

/// What the allocator could have, from a moment on. What is not known is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitRow {
    /// The moment.
    pub at: u32,
    /// The most that it may reserve.
    pub limit: u64,
    /// Bytes of the device that are free.
    pub device_free: u64,
    /// Bytes of the device.
    pub device_total: u64,
}

impl LimitRow {
    /// Bytes of the device that neither this allocator reserves nor anybody has free.
    pub fn untracked(&self, reserved: u64) -> Option<u64> {
        let known = self.device_total > 0;
        known.then(|| self.device_total.saturating_sub(self.device_free).saturating_sub(reserved))
    }
}

/// Blocks of which a frame can work the heap out.
const AT_ONCE: usize = 50_000;

/// Everything that a file tells.
pub struct Recording {
    /// The file's name.
    pub name: String,
    /// Where it is; empty for what was made here.
    pub path: PathBuf,
    /// What kind of file, in words.
    pub kind: &'static str,
    /// Where addresses come from.
    pub addresses: Addresses,
    /// Events in order.
    pub events: Vec<EventRow>,
    /// Blocks in order of their making.
    pub blocks: Vec<BlockRow>,
    /// Segments in order of their making.
    pub segments: Vec<SegmentRow>,
    /// Requests that failed, in order.
    pub failures: Vec<Failure>,
    /// Blocks that changed their place, in order.
    pub moves: Vec<Move>,
    /// What passes of compaction told about themselves.
    pub passes: Vec<PassNote>,
    /// Streams that waited for others, in order.
    pub waits: Vec<WaitRow>,
    /// Where events were lost, in order.
    pub gaps: Vec<GapRow>,
    /// Work on streams, in the order of its submission.
    pub work: Vec<WorkRow>,
    /// Changes of what holds blocks in place, by block.
    pub holds: Vec<HoldRow>,
    /// What freed blocks waited for, by block.
    pub pending: Vec<PendingRow>,
    /// Old mappings of pages, in order of their making.
    pub stale: Vec<StaleRow>,
    /// Names of tags; the first is that of no tag.
    pub tags: Vec<String>,
    /// What each memory class is for; empty where that is not told.
    pub kinds: Vec<String>,
    /// What limits there were, in order.
    pub limits: Vec<LimitRow>,
    /// Whether it is a run that may go on.
    pub is_live: bool,
    /// The device shown, of those that the file tells of; none where it does not name them.
    pub device: usize,
    /// All of those.
    pub devices: Vec<usize>,
    /// Names of streams.
    pub streams: Vec<String>,
    /// Call stacks and sites.
    pub places: Places,
    /// Bytes over the events.
    pub series: Series,
    /// What the file lacks or contradicts, one sentence each.
    pub notes: Vec<String>,
    /// The snapshot behind it, for the diagnosis.
    pub facts: Option<Facts>,
}

/// The file as it was read, for the diagnosis and for its other devices, and the device shown.
pub struct Facts(Arc<Read>, Option<usize>);

impl Facts {
    /// The snapshot; without contents where the file has none.
    pub fn snapshot(&self) -> &Snapshot {
        &self.0.snapshot
    }

    /// All that was read.
    pub fn read(&self) -> &Read {
        &self.0
    }

    /// The history shown.
    pub fn history(&self) -> Option<&History> {
        self.0.history(self.1)
    }

    /// The same file's recording of another device.
    pub fn of_device(&self, path: &std::path::Path, device: usize) -> Recording {
        build_device(Arc::clone(&self.0), path, Some(device), |_| {})
    }
}

/// Makes a recording of what was read: of the device named, else of that with the longest history.
/// `progress` sees the events placed.
pub fn build(
    mut read: Read,
    path: &std::path::Path,
    device: Option<usize>,
    progress: impl FnMut(u64),
) -> Recording {
    // No view looks at the entries: what devices did is in the histories by now. Of a large file
    // they are the most of what is held.
    read.snapshot.device_traces = Vec::new();
    read.snapshot.host_traces = Vec::new();
    build_device(Arc::new(read), path, device, progress)
}

fn build_device(
    read: Arc<Read>,
    path: &std::path::Path,
    device: Option<usize>,
    progress: impl FnMut(u64),
) -> Recording {
    if let Some(dump) = &read.dump {
        return from_dump(dump, path);
    }
    // One that the file does not tell of is none; whoever names it looks at what is shown.
    let devices = devices(&read);
    let device = device.filter(|device| devices.contains(device));
    let placed = read.history(device).is_some_and(|h| h.blocks.iter().any(|b| b.address != 0));
    let mut recording = if read.format.is_pytorch() || placed {
        from_snapshot(read, path, device)
    } else {
        from_trace(read, path, progress)
    };
    recording.devices = devices;
    recording
}

/// The devices that a file tells of, by their histories and segments.
fn devices(read: &Read) -> Vec<usize> {
    let of_segments = read.snapshot.segments.iter().filter_map(|s| usize::try_from(s.device).ok());
    let of_histories = read.histories.iter().map(|history| history.device);
    let all: std::collections::BTreeSet<usize> = of_histories.chain(of_segments).collect();
    all.into_iter().collect()
}

impl Recording {
    /// Whether its heap at a moment, or a table of it, is worked out within a frame.
    pub fn is_small(&self) -> bool {
        self.blocks.len() <= AT_ONCE && self.events.len() <= 3 * AT_ONCE
    }

    /// The last moment.
    pub fn end(&self) -> u32 {
        u32::try_from(self.events.len()).unwrap_or(NEVER - 1)
    }

    /// The moment with the most active bytes.
    pub fn peak(&self) -> u32 {
        self.series.peak
    }

    /// Where a person wants to look first: the fatal failure, else the peak.
    pub fn first_look(&self) -> u32 {
        let fatal = self.failures.iter().rev().find(|failure| failure.fatal);
        fatal.map_or_else(|| self.peak(), |failure| failure.at)
    }

    /// Microseconds since the start at a moment.
    pub fn time_us(&self, at: u32) -> u64 {
        let event = (at as usize).checked_sub(1).and_then(|before| self.events.get(before));
        event.or_else(|| self.events.first()).map_or(0, |event| event.time_us)
    }

    /// The last moment that is not after a time.
    pub fn moment_at(&self, time_us: u64) -> u32 {
        self.events.partition_point(|event| event.time_us <= time_us) as u32
    }

    /// Whether any event has a time of its own.
    pub fn has_times(&self) -> bool {
        self.events.last().is_some_and(|last| last.time_us > 0)
    }

    /// The site's name of a block.
    pub fn site(&self, block: &BlockRow) -> &str {
        self.places.sites.get(block.site as usize).map_or("", String::as_str)
    }

    /// The limits that hold at a moment.
    pub fn limits_at(&self, at: u32) -> Option<&LimitRow> {
        let after = self.limits.partition_point(|row| row.at <= at);
        self.limits.get(after.checked_sub(1)?)
    }

    /// A tag's name.
    pub fn tag(&self, tag: u16) -> &str {
        match self.tags.get(usize::from(tag)) {
            Some(name) if !name.is_empty() => name,
            _ => "no tag",
        }
    }

    /// What a memory class is for, in words.
    pub fn kind(&self, kind: u8) -> String {
        match self.kinds.get(usize::from(kind)) {
            // Several classes may serve the same.
            Some(name) if self.kinds.iter().filter(|other| *other == name).count() > 1 => {
                format!("{name} memory, class {kind}")
            }
            Some(name) => format!("{name} memory"),
            None => "not told".to_owned(),
        }
    }

    /// A stream's name.
    pub fn stream(&self, stream: u32) -> &str {
        self.streams.get(stream as usize).map_or("unknown stream", String::as_str)
    }
}
