//! A replay that is looked at now and then.

use std::num::NonZeroU64;

use anyhow::{Context as _, Result};
use terrane_core::Allocator;
use terrane_core::compact::{Goal, Limits};
use terrane_trace::Trace;
use terrane_trace::replay::Options;

use super::Choice;
use crate::window::{PassNote, Refusal};

/// The heap at one look.
pub struct Watched {
    /// How much of the run is done, 0 to 1.
    pub done: f64,
    /// Microseconds of recorded time.
    pub time_us: u64,
    /// All segments.
    pub segments: Vec<WatchedSegment>,
    /// All live blocks.
    pub blocks: Vec<WatchedBlock>,
    /// Streams there are.
    pub streams: u32,
    /// The pass of compaction that was made just before.
    pub pass: Option<PassNote>,
}

/// What whoever looks wants next.
pub struct Wish {
    /// Go on replaying.
    pub go_on: bool,
    /// Move live blocks together first.
    pub compact: bool,
}

/// A segment.
pub struct WatchedSegment {
    /// Its number.
    pub number: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A live block.
pub struct WatchedBlock {
    /// Its handle, which it keeps when it moves.
    pub handle: u64,
    /// The number of its segment.
    pub segment: u64,
    /// First byte in its segment.
    pub offset: u64,
    /// Bytes after rounding.
    pub bytes: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// Stream, from 0.
    pub stream: u32,
    /// Its name or where it was asked for.
    pub site: String,
}

/// Sizes are divided by this at least on a device whose memory is real: filling it takes time.
const REAL_SCALE: NonZeroU64 = NonZeroU64::new(256).unwrap();

/// How a replay is looked at.
pub struct Watching<'a> {
    /// As on the command line.
    pub device: &'a str,
    /// How often, in all.
    pub looks: usize,
    /// Whether live blocks are to be moved together: then from segments, where they have to be.
    pub compacts: bool,
}

/// Replays a workload on a device and calls `look` now and then; what it returns says how to go
/// on. Gives one sentence about the run.
///
/// # Errors
/// A name that no device answers to; the device's.
pub fn watch(
    trace: &Trace,
    name: &str,
    how: &Watching<'_>,
    look: &mut dyn FnMut(Watched) -> Wish,
) -> Result<String> {
    let choice: Choice = how.device.parse()?;
    let opened = super::open(&choice)?;
    let mut options = Options::default();
    if opened.sim.is_none() {
        options.scale = super::fitting_scale(&opened, trace)?.max(REAL_SCALE);
    }
    if how.compacts {
        options.paging = Some(false);
    }
    let mut replay = super::replay(&opened, name, trace, &options)?;
    let events = trace.events();
    let stride = events.len().div_ceil(how.looks.max(1)).max(1);
    while replay.step(stride)? > 0 {
        replay.allocator().maintain()?;
        let at = replay.position();
        let time_us = events[at - 1].time_us - events[0].time_us;
        let done = at as f64 / events.len() as f64;
        let mut wish = look(seen(replay.allocator(), done, time_us));
        if wish.compact {
            let pass = compact(replay.allocator())?;
            let after = seen(replay.allocator(), done, time_us);
            wish = look(Watched { pass: Some(pass), ..after });
        }
        if !wish.go_on {
            return Ok(format!("The run was stopped after {at} of {} events.", events.len()));
        }
    }
    let report = replay.finish().context("the end of the run")?;
    Ok(format!(
        "The run is over: {} requested at most, {} reserved ({:.3} times), {} verified, {} blocks \
         differ.",
        crate::units::bytes(report.peak_requested),
        crate::units::bytes(report.peak_reserved),
        report.ratio,
        crate::units::bytes(report.verified_bytes),
        report.mismatches
    ))
}

/// Moves live blocks together until at most a twentieth of the free bytes is outside the largest
/// hole, and tells what was done.
fn compact(alloc: &Allocator) -> Result<PassNote> {
    let report = alloc.compact(Goal::Fragmentation { below: 0.05 }, Limits::NONE)?;
    let refused = report.refused.iter().map(|(why, refused)| Refusal {
        why: why.text().to_owned(),
        blocks: refused.blocks,
        bytes: refused.bytes,
    });
    let text = format!(
        "{} blocks, {} moved by {}; largest hole {} before and {} after",
        report.moves,
        crate::units::bytes(report.bytes),
        if report.by_kernel > 0 { "kernel" } else { "copy" },
        crate::units::bytes(report.largest_free.0),
        crate::units::bytes(report.largest_free.1)
    );
    Ok(PassNote { at: 0, refused: refused.collect(), text })
}

fn seen(alloc: &Allocator, done: f64, time_us: u64) -> Watched {
    let mut watched =
        Watched { done, time_us, segments: Vec::new(), blocks: Vec::new(), streams: 0, pass: None };
    for segment in alloc.snapshot().segments {
        let number = segment.space.0;
        watched.segments.push(WatchedSegment { number, bytes: segment.bytes });
        for part in segment.parts {
            let Some(block) = part.block else { continue };
            watched.streams = watched.streams.max(block.stream.0 + 1);
            watched.blocks.push(WatchedBlock {
                handle: block.handle.number(),
                segment: number,
                offset: part.offset,
                bytes: part.bytes,
                requested: block.requested,
                stream: block.stream.0,
                site: if block.name.is_empty() { block.site } else { block.name },
            });
        }
    }
    watched
}
