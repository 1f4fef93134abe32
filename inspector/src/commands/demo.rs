//! `terrane demo`: a recorded training workload on the best device, with a picture and a report.

use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use terrane_core::Allocator;
use terrane_trace::Trace;
use terrane_trace::replay::{Options, Report};

use crate::cli::DemoArgs;
use crate::exit::{BadInput, FoundWrong};
use crate::model::{HeapMap, Picture, Sample, Timeline};
use crate::paint::{self, Font, Row, Section};
use crate::source::{self, Opened};
use crate::{layout, progress, units};

/// Samples of the timeline.
const SAMPLES: usize = 600;

/// Replays, draws and reports.
///
/// # Errors
/// Bad input; the device's and the system's; [`FoundWrong`] when contents differ.
pub fn run(args: &DemoArgs, quiet: bool) -> Result<()> {
    let (name, trace) = match &args.trace {
        Some(path) => (source::name_of(path), source::trace(path)?),
        None => (source::BUILT_IN.to_owned(), source::built_in()?),
    };
    let opened = source::open(&args.device)?;
    let scale = match args.scale {
        Some(scale) => scale,
        None => source::fitting_scale(&opened, &trace)?,
    };
    progress::note(quiet, &format!("device: {}", describe(&opened)));
    progress::note(quiet, &format!("workload: {name}, every size divided by {scale}"));
    fs::create_dir_all(&args.output).map_err(|error| {
        BadInput(format!("{}: {error}; choose another --output", args.output.display()))
    })?;
    let (report, picture) = replay(&opened, &name, &trace, scale, quiet)?;
    let (image, page) = write(args, &opened, &report, &picture)?;
    super::print(&summary(&report, &image, &page))?;
    if report.mismatches > 0 {
        let text = format!("{} blocks lost their contents", report.mismatches);
        return Err(FoundWrong(text).into());
    }
    Ok(())
}

fn describe(opened: &Opened) -> String {
    let info = opened.device.info();
    format!("{} ({}); {}", opened.choice, info.name, opened.why)
}

/// Replays with a sample every so many events and a picture at the peak.
fn replay(
    opened: &Opened,
    name: &str,
    trace: &Trace,
    scale: NonZeroU64,
    quiet: bool,
) -> Result<(Report, Picture)> {
    let mut options = Options::default();
    options.scale = scale;
    let mut replay = source::replay(opened, name, trace, &options)?;
    let events = trace.events();
    // The picture shows the state just after the event with which the peak is reached.
    let peak = replay.figures().peak_event as usize + 1;
    let stride = events.len().div_ceil(SAMPLES).max(1);
    let bar = progress::bar(quiet, "replaying", events.len() as u64);
    let (mut timeline, mut map) = (Timeline::default(), HeapMap::default());
    loop {
        let at = replay.position();
        let next = (at / stride + 1) * stride;
        let to_peak = if at < peak { peak - at } else { usize::MAX };
        if replay.step((next - at).min(to_peak))? == 0 {
            break;
        }
        let position = replay.position();
        bar.set_position(position as u64);
        // Takes in the work that is done by now, as a program that cares does now and then.
        replay.allocator().maintain()?;
        let first_us = events[0].time_us;
        let time_us = events[position - 1].time_us - first_us;
        timeline.samples.push(sample(replay.allocator(), time_us));
        if position == peak {
            timeline.marked = timeline.samples.len() - 1;
            map.segments = source::segments(replay.allocator());
        }
    }
    bar.finish_and_clear();
    let report = replay.finish()?;
    let title = format!("The heap of {name} at its peak");
    let subtitle = subtitle(opened, &report);
    Ok((report, Picture { title, subtitle, map, timeline }))
}

fn subtitle(opened: &Opened, report: &Report) -> String {
    let scaled = match report.scale {
        1 => "at full size".to_owned(),
        scale => format!("every size divided by {scale}"),
    };
    let device = &opened.device.info().name;
    let events = units::count(report.events);
    format!("{device} ({}), {events} events, {scaled}", opened.choice)
}

fn sample(alloc: &Allocator, time_us: u64) -> Sample {
    let stats = alloc.stats();
    Sample {
        time_ms: time_us as f64 / 1e3,
        requested: stats.total.requested.current,
        active: stats.active.current,
        reserved: stats.reserved.current,
    }
}

fn write(
    args: &DemoArgs,
    opened: &Opened,
    report: &Report,
    picture: &Picture,
) -> Result<(PathBuf, PathBuf)> {
    let font = Font::new().context("the built-in font")?;
    let measure = |text: &str, size: f32| font.width(text, size);
    let scene = layout::picture(picture, args.size.0, args.size.1, &measure);
    let save = |name: &str, bytes: &[u8]| -> Result<PathBuf> {
        let path = args.output.join(name);
        fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    };
    let image = save("heap.png", &paint::png(&scene, &font)?)?;
    let all = serde_json::to_string_pretty(report)?;
    let sections = [Section { title: "All of it".to_owned(), text: all }];
    let verdict = verdict(report);
    let page = paint::html(
        &format!("Terrane: {} on {}", report.trace, opened.device.info().name),
        (&verdict, report.mismatches == 0 && report.failures == 0),
        &format!("Device {}.", describe(opened)),
        &paint::svg(&scene),
        &rows(report),
        &sections,
    );
    Ok((image, save("report.html", page.as_bytes())?))
}

fn verdict(report: &Report) -> String {
    let Report { verified_bytes, mismatches, failures, dispatches, .. } = *report;
    if dispatches == 0 {
        return format!(
            "Replayed without contents: this device computes nothing. {failures} failures."
        );
    }
    format!(
        "{} verified by {} kernels: {mismatches} blocks differ from their pattern, {failures} \
         requests failed.",
        units::bytes(verified_bytes),
        units::count(dispatches)
    )
}

fn rows(report: &Report) -> Vec<Row> {
    let row = |what, value, meaning| Row { what, value, meaning };
    let bytes = units::bytes;
    let ms = |ms: f64| format!("{ms:.1} ms");
    vec![
        row("Peak requested", bytes(report.peak_requested), "what the workload asks for at once"),
        row("Peak active", bytes(report.peak_active), "after rounding, with what work still uses"),
        row("Peak reserved", bytes(report.peak_reserved), "memory that the device gave"),
        row("Ratio", format!("{:.4}", report.ratio), "peak reserved over peak requested"),
        row("Allocated in all", bytes(report.allocated_bytes), "over the whole run"),
        row("Memory objects", units::count(report.memory_objects), "at most at once"),
        row("Verified", bytes(report.verified_bytes), "compared with their pattern by kernels"),
        row("Mismatches", units::count(report.mismatches), "blocks that differ; 0 is right"),
        row("Kernels", units::count(report.dispatches), "run to fill and verify"),
        row("Waits", units::count(report.waits), "allocations behind other streams' work"),
        row("Failures", units::count(report.failures), "requests refused"),
        row("Recorded time", ms(report.recorded_ms), "of the run that was recorded"),
        row("Allocator", format!("{:.0} ns", report.ns_per_op), "wall time per event"),
    ]
}

fn summary(report: &Report, image: &Path, page: &Path) -> String {
    let shown = |path: &Path| {
        let full = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        full.display().to_string()
    };
    format!(
        "{}\nPeak requested {}, reserved {} ({:.3} times), {:.0} ns of allocator per event.\n\
         Picture: {}\nReport:  {}\n",
        verdict(report),
        units::bytes(report.peak_requested),
        units::bytes(report.peak_reserved),
        report.ratio,
        report.ns_per_op,
        shown(image),
        shown(page),
    )
}
