//! A picture of a recording: the heap at one moment and bytes over time.

use anyhow::{Context, Result};
use terrane_trace::diagnose::{Heap, heap_after, heap_by_address, timeline_each};
use terrane_trace::recording::{Format, Recording};
use terrane_trace::snapshot::History;

use crate::model::{HeapMap, Part, Picture, Sample, Segment, State, Timeline};
use crate::paint::{self, Font};
use crate::{layout, units};

/// Samples of the timeline.
const SAMPLES: usize = 1200;
const SIZE: (u32, u32) = (1600, 1200);

/// The picture as SVG.
///
/// # Errors
/// None in a sound build.
pub fn svg(recording: &Recording, history: &History, events: usize) -> Result<String> {
    Ok(paint::svg(&scene(recording, history, events)?.0))
}

/// The picture as PNG.
///
/// # Errors
/// None in a sound build.
pub fn png(recording: &Recording, history: &History, events: usize) -> Result<Vec<u8>> {
    let (scene, font) = scene(recording, history, events)?;
    paint::png(&scene, &font)
}

fn scene(recording: &Recording, history: &History, events: usize) -> Result<(layout::Scene, Font)> {
    let font = Font::new().context("the built-in font")?;
    let measure = |text: &str, size: f32| font.width(text, size);
    let scene = layout::picture(&of(recording, history, events), SIZE.0, SIZE.1, &measure);
    Ok((scene, font))
}

/// The picture's contents after so many events.
pub fn of(recording: &Recording, history: &History, events: usize) -> Picture {
    let heap = match recording.format {
        Format::Terrane => heap_by_address(history, events),
        _ => heap_after(&recording.snapshot, history, events),
    };
    let how = match (recording.format, heap.exact) {
        (_, true) => "as recorded",
        (Format::PytorchSnapshot | Format::PytorchJson, false) => "rebuilt by PyTorch's rules",
        _ => "as PyTorch's default rules would place it",
    };
    let all = history.trace.events().len() as u64;
    Picture {
        title: format!("The heap after event {}", units::count(events as u64)),
        subtitle: format!("{}, {} events, {how}", recording.format.describe(), units::count(all)),
        map: map(&heap, history),
        timeline: samples(recording, history, events),
    }
}

fn map(heap: &Heap, history: &History) -> HeapMap {
    let lifetimes = history.trace.lifetimes();
    let segments = heap.blocks.chunk_by(|a, b| a.segment == b.segment).map(|blocks| {
        let start = blocks[0].address;
        let end = blocks.last().map_or(start, |block| block.address + block.bytes);
        let part = |block: &terrane_trace::model::PlacedBlock| {
            let number = heap.at.get(&block.address);
            let life = number.and_then(|number| lifetimes.get(*number as usize));
            let state = match life {
                _ if block.free => State::Free,
                Some(life) => State::Live { requested: life.bytes, stream: block.stream },
                None => State::Pending,
            };
            Part { offset: block.address - start, bytes: block.bytes, state }
        };
        Segment { bytes: end - start, parts: blocks.iter().map(part).collect() }
    });
    HeapMap { segments: segments.collect() }
}

fn samples(recording: &Recording, history: &History, events: usize) -> Timeline {
    let stride = history.trace.events().len().div_ceil(SAMPLES).max(1) as u64;
    let mut timeline = Timeline::default();
    for point in timeline_each(&recording.snapshot, history) {
        let marked = point.event == events as u64;
        if marked || point.event % stride == 0 {
            if marked {
                timeline.marked = timeline.samples.len();
            }
            timeline.samples.push(Sample {
                time_ms: point.time_us as f64 / 1e3,
                requested: point.requested,
                active: point.active,
                reserved: point.reserved,
            });
        }
    }
    timeline
}
