//! PyTorch's memory snapshot.

use super::json::Json;
use super::pickle::Pickle;
use super::tree::{Shared, Tree};
use crate::Op;
use crate::model::{PlacedBlock, Pytorch, PytorchConfig, SegmentOp, replay_each};
use crate::recording::Recording;
use crate::snapshot::{
    Action, Block, BlockState, History, Segment, SegmentKind, Snapshot, StackId, TraceEntry,
};
use std::borrow::Cow;
use std::io::{self, Write};

/// In which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A pickle of protocol 4: what `pickle.load` and PyTorch's viewer read.
    Pickle,
    /// JSON. Stacks are repeated, so it is many times larger.
    Json,
}

/// Writes a recording as PyTorch's memory snapshot. Where a recording has no addresses, blocks
/// are placed by PyTorch's default rules.
///
/// # Errors
/// The sink's.
pub fn pytorch(recording: &Recording, encoding: Encoding, sink: impl Write) -> io::Result<()> {
    let (segments, traces) = contents(recording);
    let export = Export { snapshot: &recording.snapshot };
    match encoding {
        Encoding::Pickle => export.all(&mut Pickle::new(sink)?, &segments, &traces),
        Encoding::Json => export.all(&mut Json::new(sink), &segments, &traces),
    }
}

type Contents<'a> = (Cow<'a, [Segment]>, Vec<Cow<'a, [TraceEntry]>>);

fn contents(recording: &Recording) -> Contents<'_> {
    let snapshot = &recording.snapshot;
    if recording.format.is_pytorch() {
        let traces = snapshot.device_traces.iter().map(|trace| Cow::Borrowed(trace.as_slice()));
        return (Cow::Borrowed(&snapshot.segments), traces.collect());
    }
    let Some(history) = recording.history(None) else {
        return (Cow::Owned(Vec::new()), Vec::new());
    };
    if history.blocks.iter().any(|block| block.address > 0) {
        let addresses = history.blocks.iter().map(|block| block.address).collect::<Vec<_>>();
        let entries = entries(history, &addresses, segment_entries(history));
        return (Cow::Borrowed(&snapshot.segments), vec![Cow::Owned(entries)]);
    }
    let (segments, addresses, made) = place(history);
    (Cow::Owned(segments), vec![Cow::Owned(entries(history, &addresses, made))])
}

/// A segment's change, before an event of the trace.
type Change = (usize, SegmentOp, u64, u64, u32);

fn segment_entries(history: &History) -> Vec<Change> {
    let changes = history.segments.iter();
    changes
        .map(|c| (c.before_event, c.event.op, c.event.address, c.event.bytes, c.event.stream))
        .collect()
}

/// Segments, the address of every block, and the changes of segments, by PyTorch's rules.
fn place(history: &History) -> (Vec<Segment>, Vec<u64>, Vec<Change>) {
    let mut model = Pytorch::new(PytorchConfig::default(), None).logging_segments();
    let mut addresses = vec![0; history.blocks.len()];
    let mut sizes = vec![0; history.blocks.len()];
    let mut changes = Vec::new();
    let events = history.trace.events();
    replay_each(&history.trace, &mut model, |step, model: &Pytorch| {
        let event = events[step.event];
        if event.op == Op::Alloc {
            let place = model.place_of(event.block).unwrap_or_default();
            (addresses[event.block as usize], sizes[event.block as usize]) = place;
        }
        for made in &model.segment_events()[changes.len()..] {
            changes.push((step.event, made.op, made.address, made.bytes, made.stream));
        }
    });
    let live = history.trace.lifetimes();
    let holder = |address: u64| {
        let live = live.iter().enumerate().filter(|(_, life)| life.completed.is_none());
        live.map(|(block, life)| (addresses[block], life)).find(|(at, _)| *at == address)
    };
    let placed = model.placed_blocks();
    let segments = placed.chunk_by(|a, b| a.segment == b.segment);
    (segments.map(|blocks| segment(blocks, &holder)).collect(), addresses, changes)
}

fn segment<'a>(
    placed: &[PlacedBlock],
    holder: &impl Fn(u64) -> Option<(u64, &'a crate::Lifetime)>,
) -> Segment {
    let first = placed[0];
    let mut segment = Segment {
        address: first.address,
        stream: first.stream,
        kind: if first.large { SegmentKind::Large } else { SegmentKind::Small },
        requested_bytes: Some(0),
        ..Segment::default()
    };
    for block in placed {
        let life = holder(block.address).filter(|_| !block.free).map(|(_, life)| life);
        let state = match life {
            Some(life) if life.requested.is_none() => BlockState::Allocated,
            Some(_) => BlockState::PendingFree,
            None => BlockState::Inactive,
        };
        let requested = life.map_or(0, |life| life.bytes);
        segment.total_bytes += block.bytes;
        segment.active_bytes += if state == BlockState::Inactive { 0 } else { block.bytes };
        segment.allocated_bytes += if state == BlockState::Allocated { block.bytes } else { 0 };
        segment.requested_bytes = segment.requested_bytes.map(|sum| sum + requested);
        let (address, bytes) = (block.address, block.bytes);
        let requested_bytes = Some(requested);
        segment.blocks.push(Block { address, bytes, requested_bytes, state, stack: None });
    }
    segment
}

fn entries(history: &History, addresses: &[u64], changes: Vec<Change>) -> Vec<TraceEntry> {
    let mut entries = Vec::with_capacity(history.trace.events().len() + changes.len());
    let mut changes = changes.into_iter().peekable();
    let mut attempts = history.attempts.iter().peekable();
    let blank = |time_us: u64| TraceEntry {
        address: 0,
        bytes: 0,
        // Zero stands for a time that is not known.
        time_us: history.start_us + time_us.max(1),
        stream: 0,
        stack: None,
        compile_context: None,
        metadata: None,
        action: Action::Unknown,
    };
    let mut now = 0;
    let events = history.trace.events();
    for (at, event) in events.iter().map(Some).chain([None]).enumerate() {
        now = event.map_or(now, |event| event.time_us);
        while let Some((_, op, address, bytes, stream)) = changes.next_if(|c| c.0 <= at) {
            let action = match op {
                SegmentOp::Alloc => Action::SegmentAlloc,
                SegmentOp::Free => Action::SegmentFree,
                SegmentOp::Map => Action::SegmentMap,
                SegmentOp::Unmap => Action::SegmentUnmap,
            };
            entries.push(TraceEntry { action, address, bytes, stream, ..blank(now) });
        }
        while let Some(attempt) = attempts.next_if(|attempt| attempt.before_event <= at) {
            let (bytes, stream, stack) = (attempt.bytes, attempt.stream, attempt.stack);
            let (action, address) = (Action::OutOfMemory, attempt.device_free);
            entries.push(TraceEntry { action, address, bytes, stream, stack, ..blank(now) });
        }
        let Some(event) = event else { break };
        let action = match event.op {
            Op::Alloc => Action::Alloc,
            Op::FreeRequested => Action::FreeRequested,
            Op::FreeCompleted => Action::FreeCompleted,
        };
        let stack = history.blocks[event.block as usize].stack;
        let address = addresses[event.block as usize];
        let (bytes, stream) = (event.bytes, event.stream);
        entries.push(TraceEntry { action, address, bytes, stream, stack, ..blank(now) });
    }
    entries
}

struct Export<'a> {
    snapshot: &'a Snapshot,
}

impl Export<'_> {
    fn all(
        &self,
        tree: &mut impl Tree,
        segments: &[Segment],
        traces: &[Cow<'_, [TraceEntry]>],
    ) -> io::Result<()> {
        tree.begin_dict()?;
        tree.key("segments")?;
        self.segments(tree, segments)?;
        tree.key("device_traces")?;
        self.traces(tree, traces)?;
        let snapshot = self.snapshot;
        if !snapshot.host_segments.is_empty() || !snapshot.host_traces.is_empty() {
            tree.key("host_segments")?;
            self.segments(tree, &snapshot.host_segments)?;
            tree.key("host_traces")?;
            let host: Vec<_> = snapshot.host_traces.iter().map(Cow::from).collect();
            self.traces(tree, &host)?;
        }
        self.settings(tree)?;
        self.annotations(tree)?;
        tree.end_dict()?;
        tree.finish()
    }

    fn segments(&self, tree: &mut impl Tree, segments: &[Segment]) -> io::Result<()> {
        tree.begin_list()?;
        for segment in segments {
            tree.begin_dict()?;
            tree.key("device")?;
            tree.signed(segment.device)?;
            tree.entry("address", segment.address)?;
            tree.entry("total_size", segment.total_bytes)?;
            tree.entry("allocated_size", segment.allocated_bytes)?;
            tree.entry("active_size", segment.active_bytes)?;
            if let Some(bytes) = segment.requested_bytes {
                tree.entry("requested_size", bytes)?;
            }
            tree.entry("stream", self.stream(segment.stream))?;
            match segment.kind {
                SegmentKind::Small => tree.entry_text("segment_type", "small")?,
                SegmentKind::Large => tree.entry_text("segment_type", "large")?,
                SegmentKind::Unknown => {}
            }
            tree.key("segment_pool_id")?;
            tree.pair(segment.pool.0, segment.pool.1)?;
            tree.key("is_expandable")?;
            tree.boolean(segment.expandable)?;
            tree.key("frames")?;
            self.frames(tree, segment.stack)?;
            tree.key("blocks")?;
            self.blocks(tree, &segment.blocks)?;
            tree.end_dict()?;
        }
        tree.end_list()
    }

    fn blocks(&self, tree: &mut impl Tree, blocks: &[Block]) -> io::Result<()> {
        tree.begin_list()?;
        for block in blocks {
            tree.begin_dict()?;
            tree.entry("address", block.address)?;
            tree.entry("size", block.bytes)?;
            if let Some(bytes) = block.requested_bytes {
                tree.entry("requested_size", bytes)?;
            }
            tree.entry_text(
                "state",
                match block.state {
                    BlockState::Allocated => "active_allocated",
                    BlockState::PendingFree => "active_pending_free",
                    BlockState::Inactive => "inactive",
                },
            )?;
            tree.key("frames")?;
            self.frames(tree, block.stack)?;
            tree.end_dict()?;
        }
        tree.end_list()
    }

    fn traces(&self, tree: &mut impl Tree, traces: &[Cow<'_, [TraceEntry]>]) -> io::Result<()> {
        tree.begin_list()?;
        for trace in traces {
            tree.begin_list()?;
            for entry in trace.iter() {
                self.one(tree, entry)?;
            }
            tree.end_list()?;
        }
        tree.end_list()
    }

    fn one(&self, tree: &mut impl Tree, entry: &TraceEntry) -> io::Result<()> {
        let failed = entry.action == Action::OutOfMemory;
        tree.begin_dict()?;
        tree.entry_text("action", action_name(entry.action))?;
        tree.entry(if failed { "device_free" } else { "addr" }, entry.address)?;
        tree.entry("size", entry.bytes)?;
        tree.entry("stream", self.stream(entry.stream))?;
        if entry.time_us > 0 {
            tree.entry("time_us", entry.time_us)?;
        }
        tree.key("frames")?;
        self.frames(tree, entry.stack)?;
        for (key, text) in
            [("compile_context", entry.compile_context), ("user_metadata", entry.metadata)]
        {
            if let Some(text) = text {
                tree.entry_text(key, self.snapshot.strings.get(text))?;
            }
        }
        tree.end_dict()
    }

    fn frames(&self, tree: &mut impl Tree, stack: Option<StackId>) -> io::Result<()> {
        let Some(stack) = stack else {
            tree.begin_list()?;
            return tree.end_list();
        };
        if tree.refer(Shared::Stack(stack.index()))? {
            return Ok(());
        }
        tree.begin_list()?;
        for &id in self.snapshot.stacks.get(stack) {
            let Some(frame) = self.snapshot.stacks.frame(id) else { continue };
            if tree.refer(Shared::Frame(id.index()))? {
                continue;
            }
            let strings = &self.snapshot.strings;
            tree.begin_dict()?;
            tree.entry_text("filename", strings.get(frame.file))?;
            tree.entry("line", frame.line.into())?;
            tree.entry_text("name", strings.get(frame.name))?;
            tree.end_dict()?;
            tree.made(Shared::Frame(id.index()))?;
        }
        tree.end_list()?;
        tree.made(Shared::Stack(stack.index()))
    }

    fn settings(&self, tree: &mut impl Tree) -> io::Result<()> {
        let settings = &self.snapshot.settings;
        tree.key("allocator_settings")?;
        tree.begin_dict()?;
        tree.entry_text("PYTORCH_CUDA_ALLOC_CONF", settings.conf.as_deref().unwrap_or(""))?;
        if let Some(on) = settings.expandable_segments {
            tree.key("expandable_segments")?;
            tree.boolean(on)?;
        }
        if let Some(bytes) = settings.max_split_bytes {
            tree.entry("max_split_size", bytes)?;
        }
        tree.end_dict()
    }

    fn annotations(&self, tree: &mut impl Tree) -> io::Result<()> {
        tree.key("external_annotations")?;
        tree.begin_list()?;
        for annotation in &self.snapshot.annotations {
            let strings = &self.snapshot.strings;
            tree.begin_dict()?;
            if let Some(device) = annotation.device {
                tree.key("device")?;
                tree.signed(device)?;
            }
            if let Some(stage) = annotation.stage {
                tree.entry_text("stage", strings.get(stage))?;
            }
            tree.entry_text("name", strings.get(annotation.name))?;
            tree.entry("time_us", annotation.time_us)?;
            tree.end_dict()?;
        }
        tree.end_list()
    }

    /// The CUDA stream behind a small number.
    fn stream(&self, number: u32) -> u64 {
        self.snapshot.streams.get(number as usize).copied().unwrap_or_else(|| number.into())
    }
}

fn action_name(action: Action) -> &'static str {
    match action {
        Action::Alloc => "alloc",
        Action::FreeRequested => "free_requested",
        Action::FreeCompleted => "free_completed",
        Action::SegmentAlloc => "segment_alloc",
        Action::SegmentFree => "segment_free",
        Action::SegmentMap => "segment_map",
        Action::SegmentUnmap => "segment_unmap",
        Action::Snapshot => "snapshot",
        Action::OutOfMemory => "oom",
        Action::Annotate => "annotate",
        Action::Unknown => "unknown",
    }
}
