//! A recorded workload without addresses as a recording.

use std::path::Path;
use std::sync::Arc;

use terrane_trace::Op;
use terrane_trace::model::{Pytorch, PytorchConfig, replay_each};
use terrane_trace::recording::Recording as Read;

use super::from_snapshot::failures;
use super::{
    Addresses, BlockRow, EventOp, EventRow, Facts, Hold, Lives, NEVER, Places, Recording, Series,
};

/// Makes a recording; blocks lie where PyTorch's default rules would have put them. `progress`
/// sees the events done.
pub fn from_trace(read: Arc<Read>, path: &Path, mut progress: impl FnMut(u64)) -> Recording {
    let empty = terrane_trace::TraceBuilder::new().finish();
    let trace = read.history(None).map_or(&empty, |history| &history.trace);
    let mut places = Places::default();
    let mut blocks: Vec<BlockRow> = Vec::with_capacity(trace.block_count() as usize);
    let mut lives = Lives::default();
    let mut model = Pytorch::new(PytorchConfig::default(), None).logging_segments();
    let (all, mut told) = (trace.events(), 0);
    replay_each(trace, &mut model, |step, model: &Pytorch| {
        for change in &model.segment_events()[told..] {
            lives.take(step.event as u32, change);
        }
        told = model.segment_events().len();
        let (event, moment) = (all[step.event], step.event as u32 + 1);
        match event.op {
            Op::Alloc => {
                let (address, bytes) = model.place_of(event.block).unwrap_or((0, event.bytes));
                let size = format!("requests of {}", crate::units::bytes(event.bytes));
                let site = places.site(&size);
                blocks.push(block(event, (address, bytes), moment, site));
            }
            Op::FreeRequested => blocks[event.block as usize].freed = moment,
            Op::FreeCompleted => blocks[event.block as usize].gone = moment,
        }
        if step.event.is_multiple_of(1 << 16) {
            progress(step.event as u64);
        }
    });
    let failures = failures(&read.snapshot, read.history(None), &mut places);
    places.seal();
    let events: Vec<EventRow> = trace.iter().map(row).collect();
    let segments = lives.finish();
    let mut notes = read.lacks.clone();
    notes.push(
        "Blocks lie where PyTorch's default rules would have put them; sites are request sizes."
            .to_owned(),
    );
    let streams = trace.streams().last().map_or(1, |last| last + 1);
    Recording {
        name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        path: path.to_owned(),
        kind: read.format.describe(),
        addresses: Addresses::Modelled,
        series: Series::of(&events, &blocks, &segments),
        streams: (0..streams.min(MOST_STREAMS)).map(|n| format!("stream {n}")).collect(),
        notes,
        events,
        blocks,
        segments,
        failures,
        moves: Vec::new(),
        passes: Vec::new(),
        waits: Vec::new(),
        gaps: Vec::new(),
        work: Vec::new(),
        holds: Vec::new(),
        pending: Vec::new(),
        stale: Vec::new(),
        tags: Vec::new(),
        kinds: Vec::new(),
        limits: Vec::new(),
        is_live: false,
        device: 0,
        devices: Vec::new(),
        places,
        facts: Some(Facts(read, None)),
    }
}

/// The row of a block that was just handed out.
fn block(
    event: terrane_trace::Event,
    (address, bytes): (u64, u64),
    born: u32,
    site: u32,
) -> BlockRow {
    BlockRow {
        address,
        bytes,
        requested: event.bytes,
        born,
        freed: NEVER,
        gone: NEVER,
        stream: event.stream,
        site,
        stack: NEVER,
        tag: 0,
        hold: Hold::Unknown,
        kind: 0,
    }
}

/// Stream numbers are the file's own and may be anything.
const MOST_STREAMS: u32 = 4096;

fn row(event: terrane_trace::Event) -> EventRow {
    EventRow {
        time_us: event.time_us,
        block: event.block,
        op: match event.op {
            Op::Alloc => EventOp::Alloc,
            Op::FreeRequested => EventOp::Freed,
            Op::FreeCompleted => EventOp::Done,
        },
    }
}
