//! A replay that tells all it does to whoever looks on, and does now and then what they wish.

use std::num::NonZeroU64;
use std::os::unix::net::UnixStream;

use anyhow::{Context as _, Result};
use terrane_trace::Trace;
use terrane_trace::file::Meta;
use terrane_trace::live::Compact;
use terrane_trace::replay::Options;

use super::Choice;

/// What whoever looks wants next.
pub struct Wish {
    /// Go on replaying.
    pub go_on: bool,
    /// Move live blocks together first.
    pub compact: Option<Compact>,
}

/// Sizes are divided by this at least on a device whose memory is real: filling it takes time.
const REAL_SCALE: NonZeroU64 = NonZeroU64::new(256).unwrap();

/// How a replay is looked at.
pub struct Watching<'a> {
    /// As on the command line.
    pub device: &'a str,
    /// How often it stops to ask what is wished, in all.
    pub looks: usize,
    /// Whether live blocks are to be moved together: then from segments, where they have to be.
    pub compacts: bool,
}

/// Replays a workload on a device, tells its events to the other end of a pair of sockets, and asks
/// now and then how to go on; `ask` is told how much is done, 0 to 1. Gives one sentence about the
/// run.
///
/// # Errors
/// A name that no device answers to; the device's.
pub fn watch(
    trace: &Trace,
    name: &str,
    how: &Watching<'_>,
    end: UnixStream,
    ask: &mut dyn FnMut(f64) -> Wish,
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
    let meta = Meta {
        program: name.to_owned(),
        device: how.device.to_owned(),
        process: std::process::id(),
        ..Meta::default()
    };
    // Told to this program alone: nothing listens.
    let tap = terrane_trace::file::Tap::new(replay.allocator(), meta).pair(end);
    let recorder = tap.start().context("recording the run")?;
    let events = trace.events();
    let stride = events.len().div_ceil(how.looks.max(1)).max(1);
    while replay.step(stride)? > 0 {
        replay.allocator().maintain()?;
        let at = replay.position();
        let wish = ask(at as f64 / events.len() as f64);
        if let Some(asked) = wish.compact {
            asked.run(replay.allocator())?;
        }
        if !wish.go_on {
            recorder.finish()?;
            return Ok(format!("The run was stopped after {at} of {} events.", events.len()));
        }
    }
    let report = replay.finish().context("the end of the run")?;
    recorder.finish()?;
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
