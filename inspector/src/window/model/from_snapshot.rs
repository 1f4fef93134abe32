//! A PyTorch snapshot as a recording.

use std::path::Path;
use std::sync::Arc;

use terrane_trace::Op;
use terrane_trace::diagnose::Sidecar;
use terrane_trace::recording::Recording as Read;
use terrane_trace::snapshot::{BlockState, History, Segment, SegmentKind, Snapshot};

use super::from_own::{Happened, tags, take_happenings};
use super::{
    Addresses, BlockRow, EventOp, EventRow, Facts, Failure, Hold, LimitRow, Lives, NEVER, Places,
    PoolKind, Recording, SegmentRow, Series,
};

/// PyTorch rounds every request up to a multiple of this.
const ROUNDING: u64 = 512;
/// From here on our own files keep what pages hold, apart from the segments that show them.
const PAGES: u64 = 1 << 60;

/// Makes a recording of the device named, else of that with the longest history, else of the first
/// with segments.
pub fn from_snapshot(read: Arc<Read>, path: &Path, named: Option<usize>) -> Recording {
    let (snapshot, history) = (&read.snapshot, read.history(named));
    let first = || snapshot.segments.first().map_or(0, |s| usize::try_from(s.device).unwrap_or(0));
    let device = named.or(history.map(|history| history.device)).unwrap_or_else(first);
    let mut places = Places::default();
    let is_pytorch = read.format.is_pytorch();
    let rounding = if is_pytorch { ROUNDING } else { 1 };
    let (mut events, mut blocks) = match history {
        Some(history) => with_history(snapshot, history, rounding, &mut places),
        None => (Vec::new(), at_dump(snapshot, device, &mut places)),
    };
    let happened = history.map_or_else(Happened::default, |history| {
        take_happenings(&history.happenings, &mut events, &mut blocks)
    });
    let mut segments = segments(snapshot, device, history);
    segments.retain(|segment| segment.address < PAGES);
    let failures = failures(snapshot, history, &mut places);
    places.seal();
    let mut limits = happened.limits;
    if limits.is_empty() {
        limits.extend(beside(path, events.len() as u32).into_iter().flatten());
    }
    let mut notes = read.lacks.clone();
    notes.extend(other_devices(snapshot, device));
    Recording {
        name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        path: path.to_owned(),
        kind: read.format.describe(),
        addresses: if is_pytorch { Addresses::Recorded } else { Addresses::Own },
        series: Series::of(&events, &blocks, &segments),
        streams: stream_names(&snapshot.streams, is_pytorch),
        notes,
        events,
        blocks,
        segments,
        failures,
        moves: happened.moves,
        passes: happened.passes,
        waits: happened.waits,
        gaps: happened.gaps,
        work: happened.work,
        holds: happened.holds,
        pending: happened.pending,
        stale: happened.stale,
        tags: tags(&read.tags),
        kinds: read.meta.as_ref().map(|meta| meta.kinds.clone()).unwrap_or_default(),
        limits,
        is_live: false,
        device,
        devices: Vec::new(),
        places,
        facts: Some(Facts(read, Some(device))),
    }
}

/// What a sidecar tells of limits: one for the whole run, and the device's figures at the end.
fn beside(path: &Path, end: u32) -> Option<Vec<LimitRow>> {
    let sidecar = Sidecar::beside(path).ok()??;
    let limit = sidecar.known().limit.unwrap_or(0);
    let device = sidecar.device_total.zip(sidecar.device_free);
    let (device_total, device_free) = device.unwrap_or_default();
    let all_along = LimitRow { limit, ..LimitRow::default() };
    let at_end = LimitRow { at: end, limit, device_free, device_total };
    Some(vec![all_along, at_end])
}

fn with_history(
    snapshot: &Snapshot,
    history: &History,
    rounding: u64,
    places: &mut Places,
) -> (Vec<EventRow>, Vec<BlockRow>) {
    let earlier = history.gaps.earlier_blocks as usize;
    let trace = &history.trace;
    let mut events = Vec::with_capacity(trace.events().len());
    let mut blocks: Vec<BlockRow> = Vec::with_capacity(trace.block_count() as usize);
    for (moment, event) in (1..).zip(trace) {
        let op = match event.op {
            Op::Alloc => EventOp::Alloc,
            Op::FreeRequested => EventOp::Freed,
            Op::FreeCompleted => EventOp::Done,
        };
        events.push(EventRow { time_us: event.time_us, block: event.block, op });
        let number = event.block as usize;
        match op {
            EventOp::Freed => blocks[number].freed = moment,
            EventOp::Done => blocks[number].gone = moment,
            // Blocks are numbered in the order of their making.
            EventOp::Alloc => {
                let origin = &history.blocks[number];
                let (site, stack) = match origin.stack {
                    None if number < earlier => {
                        (places.site("allocated before the recording"), NEVER)
                    }
                    stack => places.of(snapshot, stack),
                };
                blocks.push(BlockRow {
                    address: origin.address,
                    bytes: event.bytes.next_multiple_of(rounding),
                    requested: event.bytes,
                    born: moment,
                    freed: NEVER,
                    gone: NEVER,
                    stream: event.stream,
                    site,
                    stack,
                    tag: origin.tag,
                    hold: Hold::of_told(origin.hold),
                    kind: origin.class,
                });
            }
        }
    }
    (events, blocks)
}

/// Without history only the blocks at the dump are known.
fn at_dump(snapshot: &Snapshot, device: usize, places: &mut Places) -> Vec<BlockRow> {
    let mut blocks = Vec::new();
    for segment in of_device(snapshot, device) {
        for block in segment.blocks.iter().filter(|block| block.state != BlockState::Inactive) {
            let (site, stack) = places.of(snapshot, block.stack);
            let pending = block.state == BlockState::PendingFree;
            blocks.push(BlockRow {
                address: block.address,
                bytes: block.bytes,
                requested: block.requested_bytes.unwrap_or(block.bytes),
                born: 0,
                freed: if pending { 0 } else { NEVER },
                gone: NEVER,
                stream: segment.stream,
                site,
                stack,
                tag: 0,
                hold: Hold::Unknown,
                kind: 0,
            });
        }
    }
    blocks
}

fn of_device(snapshot: &Snapshot, device: usize) -> impl Iterator<Item = &Segment> {
    let wanted = i64::try_from(device).unwrap_or(i64::MAX);
    snapshot.segments.iter().filter(move |segment| segment.device == wanted)
}

/// Segments that the history makes, and those that it does not and that exist at the dump.
fn segments(snapshot: &Snapshot, device: usize, history: Option<&History>) -> Vec<SegmentRow> {
    let mut lives = Lives::default();
    for change in history.map(|history| history.segments.as_slice()).unwrap_or_default() {
        lives.take(change.before_event as u32, &change.event);
    }
    let mut earlier = Vec::new();
    for segment in of_device(snapshot, device) {
        if !lives.covers(segment.address) {
            earlier.push(SegmentRow {
                address: segment.address,
                bytes: segment.total_bytes,
                born: 0,
                gone: NEVER,
                stream: segment.stream,
                pool: match (segment.kind, segment.expandable) {
                    (SegmentKind::Small, false) => PoolKind::Small,
                    (SegmentKind::Large, false) => PoolKind::Large,
                    _ => PoolKind::Unknown,
                },
                object: None,
            });
        }
    }
    earlier.extend(lives.finish());
    earlier
}

/// The requests that failed.
pub fn failures(
    snapshot: &Snapshot,
    history: Option<&History>,
    places: &mut Places,
) -> Vec<Failure> {
    let Some(history) = history else { return Vec::new() };
    let fatal = history.fatal().map(|fatal| fatal.before_event);
    let failure = |attempt: &terrane_trace::snapshot::Attempt| Failure {
        at: attempt.before_event as u32,
        bytes: attempt.bytes,
        stream: attempt.stream,
        device_free: attempt.device_free,
        stack: places.of(snapshot, attempt.stack).1,
        fatal: fatal.is_some_and(|fatal| attempt.before_event >= fatal),
    };
    history.attempts.iter().map(failure).collect()
}

/// Streams of PyTorch by their handles in the driver; others have numbers alone.
fn stream_names(streams: &[u64], is_pytorch: bool) -> Vec<String> {
    let name = |(number, handle): (usize, &u64)| match handle {
        _ if !is_pytorch => format!("stream {number}"),
        0 => "default stream".to_owned(),
        handle => format!("stream {number} ({handle:#x})"),
    };
    streams.iter().enumerate().map(name).collect()
}

fn other_devices(snapshot: &Snapshot, device: usize) -> Option<String> {
    let others = snapshot.segments.iter().filter(|s| s.device != device as i64).count() as u64;
    (others > 0).then(|| {
        let segments = crate::text::counted(others, "segment", "segments");
        format!(
            "Device {device} is shown; {segments} of other devices are in the file: choose another \
             device above, or with --device."
        )
    })
}
