//! `terrane info`: what is in a file, and which of several ranks failed first.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::ValueHint;
use serde::Serialize;
use terrane_core::event::MoveKind;
use terrane_trace::diagnose::timeline;
use terrane_trace::file::Meta;
use terrane_trace::import::Dump;
use terrane_trace::recording::{Format, Recording, StacksTaken};
use terrane_trace::snapshot::{Happened, Happening, History};

use super::shared::{PartArgs, cut, show};
use crate::exit::BadInput;
use crate::text::{Side, Table, counted, duration_us};
use crate::{source, units};

/// Options of `info`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files; several are taken for the ranks of one run.
    #[arg(required = true, value_hint = ValueHint::FilePath)]
    pub files: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Only this GPU of each file.
    #[arg(long, value_name = "N")]
    pub device: Option<usize>,
    #[command(flatten)]
    pub part: PartArgs,
}

#[derive(Serialize)]
struct Device {
    device: usize,
    events: u64,
    blocks: u64,
    streams: Vec<u32>,
    recorded_us: u64,
    peak_requested: u64,
    /// `null` where the file has no segments.
    peak_reserved: Option<u64>,
    live_at_end: u64,
    failures: u64,
    /// Live blocks that were moved, by what means; empty where none was.
    moves: Vec<Moved>,
    /// Microseconds since 1970 of the failure that ended the run.
    failed_at_us: Option<u64>,
    failed_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Moved {
    /// `copied`, `slid`, `remapped`, `rebound`, or `not told how`.
    how: &'static str,
    blocks: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct Moment {
    reserved: u64,
    allocated: u64,
    segments: u64,
}

#[derive(Serialize)]
struct File {
    file: String,
    format: Format,
    devices: Vec<Device>,
    /// At the dump; `null` where only a part of the history is asked about.
    moment: Option<Moment>,
    settings: Option<String>,
    /// The program, device and allocator that a trace of ours is of.
    recorded: Option<String>,
    /// Why a flight recorder wrote the file.
    reason: Option<String>,
    /// Call stacks that were taken of some requests, and what that cost.
    sampled: Option<StacksTaken>,
    stacks: u64,
    annotations: u64,
    lacks: Vec<String>,
}

#[derive(Serialize)]
struct Info {
    files: Vec<File>,
    /// Of several files, the one whose run ended first in a failure.
    failed_first: Option<String>,
    /// How it differs from the others.
    differences: Vec<String>,
}

/// Prints what is in the files.
///
/// # Errors
/// Bad input.
pub fn run(args: &Args, quiet: bool) -> Result<()> {
    let mut files = Vec::new();
    for path in &args.files {
        files.push(file(path, args, quiet)?);
    }
    let first = files.iter().filter(|_| files.len() > 1).filter_map(|file| {
        let failed = file.devices.iter().filter_map(|device| device.failed_at_us).min()?;
        Some((failed, file.file.clone()))
    });
    let failed_first = first.min().map(|(_, file)| file);
    let differences = failed_first.as_deref().map_or_else(Vec::new, |f| differences(&files, f));
    let info = Info { files, failed_first, differences };
    show(args.json, &info, || text(&info))
}

/// A device, and the entry of its history that is the failure that ended the run.
type Ended = (usize, usize);

/// What is in a file, as far as it is asked about.
fn file(path: &Path, args: &Args, quiet: bool) -> Result<File> {
    let name = path.display().to_string();
    let mut recording = source::recording(path, quiet)?;
    if let Some(device) = args.device {
        recording.histories.retain(|history| history.device == device);
        recording.snapshot.segments.retain(|it| usize::try_from(it.device) == Ok(device));
        if recording.histories.is_empty() && recording.snapshot.segments.is_empty() {
            return Err(BadInput(format!("{name}: nothing of device {device} is in it")).into());
        }
    }
    // A part ends where it is cut, which no request that failed there did.
    let ended = |history: &History| Some((history.device, history.fatal()?.entry));
    let ended: Vec<Ended> = recording.histories.iter().filter_map(ended).collect();
    let recording = cut(recording, &args.part).map_err(|error| error.context(name.clone()))?;
    Ok(describe(name, &recording, &ended, args.part.is_all()))
}

/// What is in the dump, at its moment.
fn moment(recording: &Recording) -> Option<Moment> {
    let segments = &recording.snapshot.segments;
    match &recording.dump {
        Some(Dump { reserved_bytes, allocated_bytes, blocks, .. }) => Some(Moment {
            reserved: *reserved_bytes,
            allocated: *allocated_bytes,
            segments: blocks.len() as u64,
        }),
        None => recording.format.is_pytorch().then(|| Moment {
            reserved: segments.iter().map(|segment| segment.total_bytes).sum(),
            allocated: segments.iter().map(|segment| segment.allocated_bytes).sum(),
            segments: segments.len() as u64,
        }),
    }
}

fn describe(file: String, recording: &Recording, ended: &[Ended], is_whole: bool) -> File {
    let snapshot = &recording.snapshot;
    File {
        file,
        format: recording.format,
        devices: recording.histories.iter().map(|h| device(recording, h, ended)).collect(),
        moment: if is_whole { moment(recording) } else { None },
        settings: snapshot.settings.conf.clone(),
        recorded: recording.meta.as_ref().and_then(recorded),
        reason: recording.meta.as_ref().map(|m| m.reason.clone()).filter(|r| !r.is_empty()),
        sampled: recording.stacks,
        stacks: snapshot.stacks.len() as u64,
        annotations: snapshot.annotations.len() as u64,
        lacks: recording.lacks.clone(),
    }
}

/// Who recorded what where, as far as a trace says so.
fn recorded(meta: &Meta) -> Option<String> {
    let process = (meta.process != 0).then(|| format!("process {}", meta.process));
    let parts = [meta.program.clone(), process.unwrap_or_default(), meta.device.clone()];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn device(recording: &Recording, history: &History, ended: &[Ended]) -> Device {
    let figures = history.trace.figures();
    let line = timeline(&recording.snapshot, history, 1);
    let fatal = history.attempts.last().filter(|it| ended.contains(&(history.device, it.entry)));
    let time = |event: usize| {
        let at = event.min(history.trace.events().len().saturating_sub(1));
        history.start_us + history.trace.events().get(at).map_or(0, |event| event.time_us)
    };
    Device {
        device: history.device,
        events: figures.events,
        blocks: figures.blocks,
        streams: history.trace.streams().to_vec(),
        recorded_us: figures.recorded_us,
        peak_requested: figures.peak_requested,
        peak_reserved: (line.peak_reserved > 0).then_some(line.peak_reserved),
        live_at_end: figures.live_bytes_at_end,
        failures: history.attempts.len() as u64,
        moves: moves(history),
        failed_at_us: fatal.map(|attempt| time(attempt.before_event)),
        failed_bytes: fatal.map(|attempt| attempt.bytes),
    }
}

/// Moves by their means.
fn moves(history: &History) -> Vec<Moved> {
    let sum = |kind: MoveKind| {
        let of = history.happenings.iter().filter(|it| it.what == Happened::MoveSubmitted(kind));
        let add = |(blocks, bytes): (u64, u64), it: &Happening| {
            (blocks + 1, bytes.saturating_add(it.bytes))
        };
        let (blocks, bytes) = of.fold((0, 0), add);
        Moved { how: kind.text(), blocks, bytes }
    };
    MoveKind::ALL.map(sum).into_iter().filter(|moved| moved.blocks > 0).collect()
}

/// Sentences on how the file that failed first differs from the rest.
fn differences(files: &[File], first: &str) -> Vec<String> {
    let peak = |file: &File| file.devices.iter().map(|d| d.peak_requested).max().unwrap_or(0);
    let events = |file: &File| file.devices.iter().map(|d| d.events).sum::<u64>();
    let Some(failed) = files.iter().find(|file| file.file == first) else { return Vec::new() };
    let others: Vec<&File> = files.iter().filter(|file| file.file != first).collect();
    let mut found = Vec::new();
    let most = others.iter().map(|file| peak(file)).max().unwrap_or(0);
    if peak(failed) > most {
        let (own, other) = (units::bytes(peak(failed)), units::bytes(most));
        found.push(format!("it asks for more at its peak: {own}, the others at most {other}"));
    } else {
        let (own, other) = (units::bytes(peak(failed)), units::bytes(most));
        found.push(format!("its peak is no higher: {own}, the others up to {other}"));
    }
    if others.iter().any(|file| file.settings != failed.settings) {
        found.push("its allocator settings differ".to_owned());
    }
    let counts: Vec<u64> = others.iter().map(|file| events(file)).collect();
    if counts.iter().all(|count| count.abs_diff(events(failed)) * 20 > *count) {
        found.push(format!(
            "it recorded {} events, the others {}",
            units::count(events(failed)),
            counts.iter().map(|count| units::count(*count)).collect::<Vec<_>>().join(", ")
        ));
    }
    found
}

fn text(info: &Info) -> String {
    let mut text = String::new();
    for (at, file) in info.files.iter().enumerate() {
        if at > 0 {
            text.push('\n');
        }
        // Writing to a String cannot fail.
        let _ = write_file(&mut text, file);
    }
    if let Some(first) = &info.failed_first {
        let _ = writeln!(text, "\n{first} failed first:");
        for difference in &info.differences {
            let _ = writeln!(text, "  {difference}");
        }
    }
    text
}

fn write_file(text: &mut String, file: &File) -> std::fmt::Result {
    writeln!(text, "{}: {}\n", file.file, file.format.describe())?;
    let mut table = Table::new(&[Side::Left, Side::Left]);
    for device in &file.devices {
        let Device { events, blocks, recorded_us, .. } = device;
        let (events, blocks) =
            (counted(*events, "event", "events"), counted(*blocks, "block", "blocks"));
        let time = duration_us(*recorded_us);
        table.row([
            format!("device {}", device.device),
            format!("{events}, {blocks}, {}, {time}", streams(&device.streams)),
        ]);
        table.row(["peak requested".to_owned(), units::bytes(device.peak_requested)]);
        if let Some(reserved) = device.peak_reserved {
            table.row(["peak reserved".to_owned(), units::bytes(reserved)]);
        }
        table.row(["live at the end".to_owned(), units::bytes(device.live_at_end)]);
        if !device.moves.is_empty() {
            let words = device.moves.iter().map(|Moved { how, blocks, bytes }| {
                format!("{} {how} ({})", counted(*blocks, "block", "blocks"), units::bytes(*bytes))
            });
            table.row(["moved".to_owned(), words.collect::<Vec<_>>().join(", ")]);
        }
        if device.failures > 0 {
            let failures = counted(device.failures, "request failed", "requests failed");
            let fatal = device.failed_bytes.map_or_else(
                || "; the program survived".to_owned(),
                |bytes| format!("; the last, of {}, ended the run", units::bytes(bytes)),
            );
            table.row(["out of memory".to_owned(), format!("{failures}{fatal}")]);
        }
    }
    if let Some(Moment { reserved, allocated, segments }) = &file.moment {
        let (reserved, allocated) = (units::bytes(*reserved), units::bytes(*allocated));
        let segments = counted(*segments, "segment", "segments");
        let at = format!("{segments}, {reserved} reserved, {allocated} live");
        table.row(["at the dump".to_owned(), at]);
    }
    if let Some(conf) = &file.settings {
        let conf = if conf.is_empty() { "the default" } else { conf };
        table.row(["settings".to_owned(), conf.to_owned()]);
    }
    for (what, text) in [("recorded by", &file.recorded), ("written because", &file.reason)] {
        if let Some(text) = text {
            table.row([what.to_owned(), text.clone()]);
        }
    }
    if let Some(StacksTaken { count, total_ns }) = file.sampled {
        let cost = format!("{:.1} us", total_ns as f64 / 1000.0 / count.max(1) as f64);
        let taken = counted(count, "request", "requests");
        let text = format!("of {taken}, {cost} each on the thread that allocates");
        table.row(["stacks taken".to_owned(), text]);
    }
    if file.stacks > 0 || file.annotations > 0 {
        let stacks = counted(file.stacks, "call stack", "call stacks");
        let notes = counted(file.annotations, "annotation", "annotations");
        table.row(["recorded too".to_owned(), format!("{stacks}, {notes}")]);
    }
    for lack in &file.lacks {
        table.row(["not in it".to_owned(), lack.clone()]);
    }
    write!(text, "{table}")
}

fn streams(streams: &[u32]) -> String {
    match streams {
        [] => "no stream".to_owned(),
        [one] => format!("stream {one}"),
        many if many.len() <= 8 => {
            let names: Vec<String> = many.iter().map(u32::to_string).collect();
            format!("streams {}", names.join(" "))
        }
        many => format!("{} streams", many.len()),
    }
}
