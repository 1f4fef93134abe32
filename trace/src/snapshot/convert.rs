//! From the values of a pickle to a [`Snapshot`].

use super::fold::{self, BLOCK, ENTRY, FRAME, Key, RawBlock, Records};
use super::stacks::{FrameId, StackId};
use super::{Action, Annotation, Block, Segment, SegmentKind, Settings, Snapshot, TraceEntry};
use crate::pickle::{Arena, Dict, Fold, PickleError, PickleLimits, PickleReason, Pickled, Value};

/// What a snapshot lacks or contradicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Note {
    /// No history was recorded: only the segments at the dump are known.
    NoHistory,
    /// The file is a bare list of segments, as PyTorch wrote before 2.0.
    OnlySegments,
    /// So many entries have no time.
    EntriesWithoutTime(u64),
    /// Blocks have no addresses; they were laid out in order.
    BlocksWithoutAddress,
    /// So many annotations lack a name or a time and were left out.
    AnnotationsLeftOut(u64),
    /// So many entries have an action that is not known.
    UnknownActions(u64),
    /// Only the segments were read so far; the history follows.
    HistoryFollows,
    /// The moment of the peak, after so many entries; the history follows.
    PeakOnly {
        /// Entries of the history up to the peak.
        entries: u64,
    },
}

/// How to read a snapshot.
#[derive(Debug, Default)]
pub struct ReadOptions {
    /// Limits of the reader.
    pub limits: PickleLimits,
}

/// Makes the snapshot of what was read.
pub(super) fn convert(
    pickled: Pickled,
    records: Records,
    limits: PickleLimits,
) -> Result<Snapshot, PickleError> {
    let Pickled { arena, root } = pickled;
    let resolved = vec![None; arena.sequences.len()];
    let limit = limits.memory_bytes;
    let notes = Vec::new();
    Converter { arena, records, resolved, offset: 0, limit, bytes_left: limit, notes }.root(root)
}

/// What the next dictionary is expected to be, for messages.
const WHAT: [&str; 3] = [
    "a trace entry has a wrong type or no `action`",
    "a frame has a wrong type, or no `filename` or `name`",
    "a block has a wrong type, or no `size` or `state`",
];

struct Converter {
    arena: Arena,
    records: Records,
    /// For each list: the stack that its frames make, once it was asked for.
    resolved: Vec<Option<Option<StackId>>>,
    /// Where in the file the dictionary at hand is.
    offset: u64,
    /// Bytes that blocks and entries may still take; a file can refer to one list many times.
    bytes_left: u64,
    limit: u64,
    notes: Vec<Note>,
}

/// Fields of a dictionary.
type Fields = Vec<(Key, Value)>;

impl Converter {
    fn root(mut self, root: Value) -> Result<Snapshot, PickleError> {
        let mut fields = Fields::new();
        if matches!(root, Value::List(_)) {
            self.notes.push(Note::OnlySegments);
            fields.push((Key::Segments, root));
        } else {
            fields = self.fields(root)?;
        }
        if !fields.iter().any(|field| matches!(field.0, Key::Segments | Key::DeviceTraces)) {
            return Err(self.shape("it has neither `segments` nor `device_traces`"));
        }
        let mut snapshot = Snapshot::default();
        let mut traces = [Vec::new(), Vec::new()];
        for (key, value) in fields {
            match key {
                Key::Segments => snapshot.segments = self.segments(value)?,
                Key::HostSegments => snapshot.host_segments = self.segments(value)?,
                Key::DeviceTraces => traces[0] = self.traces(value)?,
                Key::HostTraces => traces[1] = self.traces(value)?,
                Key::AllocatorSettings => snapshot.settings = self.settings(value)?,
                Key::ExternalAnnotations => snapshot.annotations = self.annotations(value)?,
                _ => {}
            }
        }
        self.resolve_entries()?;
        let [device, host] = traces;
        snapshot.host_traces = host.iter().map(|trace| self.entries(trace)).collect();
        snapshot.device_traces = self.take_entries(&device);
        self.note_gaps(&snapshot);
        self.records.stacks.seal();
        snapshot.stacks = self.records.stacks;
        snapshot.strings = self.arena.strings;
        snapshot.streams = self.records.streams;
        snapshot.notes = self.notes;
        Ok(snapshot)
    }

    fn shape(&self, what: &'static str) -> PickleError {
        PickleError { offset: self.offset, reason: PickleReason::Shape(what) }
    }

    fn spend(&mut self, count: usize, size: usize) -> Result<(), PickleError> {
        let left = self.bytes_left.checked_sub(count as u64 * size as u64);
        let limit = self.limit;
        self.bytes_left = left
            .ok_or(PickleError { offset: self.offset, reason: PickleReason::Memory { limit } })?;
        Ok(())
    }

    /// The fields of a dictionary that is no record.
    fn fields(&mut self, value: Value) -> Result<Fields, PickleError> {
        let dict = self.arena.dict(value).ok_or_else(|| self.shape("a dictionary is missing"))?;
        match dict {
            Dict::Empty => Ok(Fields::new()),
            Dict::Record(..) => Err(self.shape("a record stands where a dictionary belongs")),
            Dict::Pairs(at) => {
                self.offset = self.arena.pair_offsets[at as usize];
                let pairs = self.arena.pairs(dict).chunks_exact(2);
                let key =
                    |pair: &[Value]| (self.records.key(&self.arena.strings, pair[0]), pair[1]);
                Ok(pairs.map(key).collect())
            }
        }
    }

    fn list(&self, value: Value, what: &'static str) -> Result<Vec<Value>, PickleError> {
        Ok(self.arena.elements(value).ok_or_else(|| self.shape(what))?.to_vec())
    }

    /// The record of a kind that a dictionary has become, or becomes now if it was written
    /// item by item.
    fn record(&mut self, value: Value, kind: u8) -> Result<u32, PickleError> {
        let what = WHAT[usize::from(kind)];
        let dict = self.arena.dict(value).ok_or_else(|| self.shape(what))?;
        let found = match dict {
            Dict::Record(found, at) => Some((found, at)),
            Dict::Empty => None,
            Dict::Pairs(at) => {
                self.offset = self.arena.pair_offsets[at as usize];
                self.records.dict(&self.arena, self.arena.pairs(dict))
            }
        };
        found.filter(|found| found.0 == kind).map(|found| found.1).ok_or_else(|| self.shape(what))
    }

    fn segments(&mut self, value: Value) -> Result<Vec<Segment>, PickleError> {
        let list = self.list(value, "`segments` is no list")?;
        self.spend(list.len(), size_of::<Segment>())?;
        list.into_iter().map(|segment| self.segment(segment)).collect()
    }

    fn segment(&mut self, value: Value) -> Result<Segment, PickleError> {
        let mut segment = Segment::default();
        let mut blocks = Value::None;
        for (key, value) in self.fields(value)? {
            let wrong = self.shape("a segment has a field of a wrong type");
            let number = || fold::unsigned(value).ok_or(wrong);
            match key {
                Key::Device => segment.device = number()? as i64,
                Key::Address => segment.address = fold::address(value).ok_or(wrong)?,
                Key::TotalSize | Key::Size => segment.total_bytes = number()?,
                Key::AllocatedSize => segment.allocated_bytes = number()?,
                Key::ActiveSize => segment.active_bytes = number()?,
                Key::RequestedSize => segment.requested_bytes = Some(number()?),
                Key::Stream => {
                    let raw = fold::address(value).ok_or(wrong)?;
                    segment.stream = self.records.stream(raw);
                }
                Key::SegmentType => segment.kind = self.kind(value),
                Key::SegmentPoolId => segment.pool = self.pool(value),
                Key::IsExpandable => segment.expandable = value == Value::Bool(true),
                Key::Frames => {
                    let frames = fold::frames(value).ok_or(wrong)?;
                    segment.stack = self.stack(frames)?;
                }
                Key::Blocks => blocks = value,
                _ => {}
            }
        }
        if blocks != Value::None {
            segment.blocks = self.blocks(blocks, segment.address)?;
        }
        Ok(segment)
    }

    fn kind(&self, value: Value) -> SegmentKind {
        match fold::text(value).map(|text| self.arena.strings.get(text)) {
            Some("small") => SegmentKind::Small,
            Some("large") => SegmentKind::Large,
            _ => SegmentKind::Unknown,
        }
    }

    fn pool(&self, value: Value) -> (u64, u64) {
        match self.arena.elements(value) {
            Some(&[a, b]) => (fold::unsigned(a).unwrap_or(0), fold::unsigned(b).unwrap_or(0)),
            _ => (0, 0),
        }
    }

    fn blocks(&mut self, value: Value, start: u64) -> Result<Vec<Block>, PickleError> {
        let list = self.list(value, "`blocks` is no list")?;
        self.spend(list.len(), size_of::<Block>())?;
        let mut address = start;
        let mut blocks = Vec::with_capacity(list.len());
        for value in list {
            let at = self.record(value, BLOCK)?;
            let raw = self.records.blocks[at as usize];
            if raw.address.is_none() && !self.notes.contains(&Note::BlocksWithoutAddress) {
                self.notes.push(Note::BlocksWithoutAddress);
            }
            address = raw.address.unwrap_or(address);
            let stack = self.stack(raw.frames)?;
            let RawBlock { bytes, requested_bytes, state, .. } = raw;
            blocks.push(Block { address, bytes, requested_bytes, state, stack });
            address = address.wrapping_add(bytes);
        }
        Ok(blocks)
    }

    /// The stack that a list of frames makes.
    fn stack(&mut self, frames: Option<u32>) -> Result<Option<StackId>, PickleError> {
        let Some(list) = frames else { return Ok(None) };
        if let Some(known) = self.resolved.get(list as usize).copied().flatten() {
            return Ok(known);
        }
        let values = self.list(Value::List(list), "`frames` is no list")?;
        let frames: Result<Vec<FrameId>, PickleError> =
            values.into_iter().map(|value| self.record(value, FRAME).map(FrameId)).collect();
        let stack = self.records.stacks.intern_stack(frames?);
        if let Some(slot) = self.resolved.get_mut(list as usize) {
            *slot = Some(stack);
        }
        Ok(stack)
    }

    /// For each device the records of its entries.
    fn traces(&mut self, value: Value) -> Result<Vec<Vec<u32>>, PickleError> {
        let mut traces = Vec::new();
        for trace in self.list(value, "`device_traces` is no list")? {
            let entries = self.list(trace, "a device's trace is no list")?;
            self.spend(entries.len(), size_of::<TraceEntry>())?;
            let records: Result<Vec<u32>, PickleError> =
                entries.into_iter().map(|entry| self.record(entry, ENTRY)).collect();
            traces.push(records?);
        }
        Ok(traces)
    }

    /// Replaces the list of frames in every entry by its stack.
    fn resolve_entries(&mut self) -> Result<(), PickleError> {
        for at in 0..self.records.entries.len() {
            let list = self.records.entries[at].stack.map(StackId::index);
            self.records.entries[at].stack = self.stack(list)?;
        }
        Ok(())
    }

    fn entries(&self, records: &[u32]) -> Vec<TraceEntry> {
        records.iter().map(|at| self.records.entries[*at as usize]).collect()
    }

    /// The entries of every device; without a copy where one device has them all, in order.
    fn take_entries(&mut self, traces: &[Vec<u32>]) -> Vec<Vec<TraceEntry>> {
        let all = self.records.entries.len();
        let in_order = |trace: &Vec<u32>| {
            trace.len() == all
                && trace.iter().enumerate().all(|(at, record)| at == *record as usize)
        };
        let Some(owner) = traces.iter().position(in_order).filter(|_| all > 0) else {
            return traces.iter().map(|trace| self.entries(trace)).collect();
        };
        let mut taken: Vec<Vec<TraceEntry>> = traces
            .iter()
            .enumerate()
            .map(|(device, trace)| if device == owner { Vec::new() } else { self.entries(trace) })
            .collect();
        taken[owner] = std::mem::take(&mut self.records.entries);
        taken
    }

    fn settings(&mut self, value: Value) -> Result<Settings, PickleError> {
        let mut settings = Settings::default();
        for (key, value) in self.fields(value)? {
            match (key, value) {
                (Key::Conf, Value::Text(text)) => {
                    let conf = self.arena.strings.get(text);
                    if settings.conf.as_ref().is_none_or(String::is_empty) {
                        settings.conf = Some(conf.to_owned());
                    }
                }
                (Key::ExpandableSegments, Value::Bool(on)) => {
                    settings.expandable_segments = Some(on);
                }
                (Key::MaxSplitSize, value) => settings.max_split_bytes = fold::unsigned(value),
                _ => {}
            }
        }
        Ok(settings)
    }

    fn annotations(&mut self, value: Value) -> Result<Vec<Annotation>, PickleError> {
        let list = self.list(value, "`external_annotations` is no list")?;
        self.spend(list.len(), size_of::<Annotation>())?;
        let mut annotations = Vec::new();
        let mut left_out = 0;
        for value in list {
            let (mut name, mut stage, mut device, mut time) = (None, None, None, None);
            for (key, value) in self.fields(value)? {
                match key {
                    Key::Name => name = fold::text(value),
                    Key::Stage => stage = fold::text(value),
                    Key::Device => device = fold::unsigned(value).map(|device| device as i64),
                    Key::TimeUs => time = fold::unsigned(value),
                    _ => {}
                }
            }
            match (name, time) {
                (Some(name), Some(time_us)) => {
                    annotations.push(Annotation { name, stage, device, time_us });
                }
                _ => left_out += 1,
            }
        }
        if left_out > 0 {
            self.notes.push(Note::AnnotationsLeftOut(left_out));
        }
        Ok(annotations)
    }

    fn note_gaps(&mut self, snapshot: &Snapshot) {
        let entries = || snapshot.device_traces.iter().flatten();
        if entries().next().is_none() {
            self.notes.push(Note::NoHistory);
        }
        if self.records.entries_without_time > 0 {
            self.notes.push(Note::EntriesWithoutTime(self.records.entries_without_time));
        }
        let unknown = entries().filter(|entry| entry.action == Action::Unknown).count();
        if unknown > 0 {
            self.notes.push(Note::UnknownActions(unknown as u64));
        }
    }
}
