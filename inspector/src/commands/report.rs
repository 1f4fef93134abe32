//! `terrane report`: one HTML file with the verdict, the picture and the tables.

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueHint;
use terrane_trace::diagnose::{
    Known, LeakClass, LeakOptions, Moment, Sidecar, SiteBy, leaks, sites, timeline,
};
use terrane_trace::recording::Recording;
use terrane_trace::snapshot::History;

use super::failure::Failure;
use super::shared::{FileArgs, PartArgs, bad, cut, history, open};
use crate::exit::BadInput;
use crate::paint::{self, Row, Section};
use crate::{picture, progress, text, units};

/// Options of `report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub file: FileArgs,
    #[command(flatten)]
    pub part: PartArgs,
    /// The file to write; the file's name and `.html` unless given.
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Replace paths, names and annotations by tokens; findings stay the same.
    #[arg(long)]
    pub redact: bool,
}

/// Writes the report. With --json, prints where it is and its verdict.
///
/// # Errors
/// Bad input; the system's.
pub fn run(args: &Args, quiet: bool) -> Result<()> {
    let mut recording = cut(open(&args.file, quiet)?, &args.part)?;
    if args.redact {
        recording.redact();
    }
    let history = history(&recording, &args.file)?;
    let sidecar = Sidecar::beside(&args.file.file).map_err(BadInput)?;
    let known = sidecar.as_ref().map(Sidecar::known).unwrap_or_default();
    let output = args.output.clone().unwrap_or_else(|| {
        let mut name = args.file.file.as_os_str().to_owned();
        name.push(".html");
        PathBuf::from(name)
    });
    let name = args.file.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name = if args.redact { recording.format.describe().to_owned() } else { name };
    let (page, verdict) = page(&recording, history, known, &name).map_err(bad(&args.file))?;
    super::export::save(&output, page.as_bytes())?;
    if args.file.json {
        let shown = serde_json::json!({ "output": output, "verdict": verdict });
        return super::print(&format!("{shown:#}\n"));
    }
    progress::note(quiet, &format!("{}: {}", output.display(), units::bytes(page.len() as u64)));
    Ok(())
}

fn page(
    recording: &Recording,
    history: &History,
    known: Known,
    name: &str,
) -> Result<(String, String)> {
    let snapshot = &recording.snapshot;
    let failure = Failure::of(recording, history, known).map_err(anyhow::Error::msg)?;
    let failure = failure.map(|failure| failure.with_remedies(history));
    let growth = leaks(snapshot, history, LeakOptions::default());
    let grows =
        !matches!(growth.verdict.class, LeakClass::None | LeakClass::Plateau | LeakClass::Unknown);
    let verdict = match &failure {
        Some(found) => found.verdict(),
        None if grows => super::leaks::sentence(&growth),
        None => "No request failed, and nothing grows from step to step.".to_owned(),
    };
    let moment = match &failure {
        Some(found) => Moment::After(found.event()),
        None => Moment::Peak,
    };
    let held = sites(snapshot, history, moment, SiteBy::User);
    let when = if failure.is_some() { "when the request failed" } else { "at the peak" };
    let mut sections = Vec::new();
    if let Some(found) = &failure {
        let text = found.text(std::path::Path::new("FILE"));
        sections.push(Section { title: "Why the request failed".to_owned(), text });
    }
    let title = format!("Who held the memory {when}");
    sections.push(Section { title, text: super::sites::table(&held, 30) });
    let text = super::leaks::text(&growth);
    sections.push(Section { title: "Growth from step to step".to_owned(), text });
    if !recording.lacks.is_empty() {
        let text = recording.lacks.join("\n");
        sections.push(Section { title: "What the file does not tell".to_owned(), text });
    }
    let drawn = picture::svg(recording, history, held.event as usize)?;
    let lead = format!("{}, seen {when}.", recording.format.describe());
    let good = failure.is_none() && !grows;
    let rows = rows(recording, history, failure.as_ref());
    let page = paint::html(name, (&verdict, good), &lead, &drawn, &rows, &sections);
    Ok((page, verdict))
}

fn rows(recording: &Recording, history: &History, failure: Option<&Failure>) -> Vec<Row> {
    let row = |what, value, meaning| Row { what, value, meaning };
    let figures = history.trace.figures();
    let line = timeline(&recording.snapshot, history, 1);
    let mut rows = vec![
        row(
            "Peak requested",
            units::bytes(figures.peak_requested),
            "what the program asks for at once",
        ),
        row("Largest request", units::bytes(figures.largest_bytes), "the largest single block"),
        row("Allocated in all", units::bytes(figures.allocated_bytes), "over the whole recording"),
        row(
            "Live at the end",
            units::bytes(figures.live_bytes_at_end),
            "never freed in the recording",
        ),
        row("Events", units::count(figures.events), "allocations, frees, completions"),
        row(
            "Recorded time",
            text::duration_us(figures.recorded_us),
            "from the first event to the last",
        ),
    ];
    if line.peak_reserved > 0 {
        let reserved = units::bytes(line.peak_reserved);
        rows.insert(1, row("Peak reserved", reserved, "memory taken from the driver"));
    }
    if let Some(found) = failure {
        let failures = units::count(found.failures());
        rows.push(row("Failures", failures, "requests that ran out of memory"));
    }
    rows
}
