//! `terrane leaks`: does the program keep more and more, and which line keeps it?

use std::fmt::Write as _;

use anyhow::Result;
use terrane_trace::diagnose::{LeakClass, LeakOptions, Leaks, StepSource, leaks};

use super::shared::{FileArgs, PartArgs, history, open, part, show};
use crate::text::{Side, Table, counted};
use crate::units;

/// Options of `leaks`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub file: FileArgs,
    #[command(flatten)]
    pub part: PartArgs,
    /// Events of one step, where it is known; found in the recording otherwise.
    #[arg(long, value_name = "EVENTS", value_parser = clap::value_parser!(u32).range(1..))]
    pub period: Option<u32>,
}

/// Prints the verdict on growth.
///
/// # Errors
/// Bad input.
pub fn run(args: &Args, quiet: bool) -> Result<()> {
    let recording = open(&args.file, quiet)?;
    let whole = history(&recording, &args.file)?;
    let cut = part(&recording, whole, &args.part)?;
    let history = cut.as_ref().unwrap_or(whole);
    let options = LeakOptions { period: args.period.map(|period| period as usize) };
    let found = leaks(&recording.snapshot, history, options);
    show(args.file.json, &found, || text(&found))
}

/// The verdict in one sentence.
pub fn sentence(leaks: &Leaks) -> String {
    let verdict = &leaks.verdict;
    let steps = counted(verdict.steps, "step", "steps");
    let line = leaks.line.as_deref().unwrap_or("one site");
    let rate = units::bytes(verdict.bytes_per_step.max(0.0) as u64);
    match verdict.class {
        LeakClass::Accumulating => {
            format!("Accumulating: {line} keeps {rate} more at every step.")
        }
        LeakClass::Exponential => {
            format!("Exponential: {line} keeps a multiple of what it kept some steps before.")
        }
        LeakClass::Fragmenting => format!(
            "Fragmenting: small blocks of {line} stay and hold large segments that are otherwise \
             empty."
        ),
        LeakClass::PendingBacklog => {
            format!("Pending backlog: {rate} more wait for other streams at every step.")
        }
        LeakClass::Plateau => format!("Plateau: it grew and has stopped growing ({steps})."),
        LeakClass::None => format!("None: nothing grows ({steps})."),
        LeakClass::Unknown => format!(
            "Unknown: {steps} are too few to tell; it takes {}.",
            verdict.steps_needed.unwrap_or(0)
        ),
    }
}

/// The verdict with its numbers and what to do.
pub fn text(leaks: &Leaks) -> String {
    let verdict = &leaks.verdict;
    let mut text = format!("{}\n\n", sentence(leaks));
    let mut table = Table::new(&[Side::Left, Side::Left]);
    if let Some(line) = &leaks.line {
        table.row(["line", line]);
    }
    if verdict.bytes_per_step > 0.0 {
        let rate = units::bytes(verdict.bytes_per_step as u64);
        table.row(["growth".to_owned(), format!("{rate} per step, on average")]);
    }
    if let Some(first) = verdict.first_step {
        table.row(["first seen".to_owned(), format!("step {first}")]);
    }
    let found = match verdict.step_source {
        StepSource::Given => "given with --period",
        StepSource::Annotations => "from the program's annotations",
        StepSource::Repetition => "found: a request that returns at even distances",
        StepSource::Slices => "nothing repeats: equal slices of the recording; give --period",
    };
    table.row(["steps".to_owned(), format!("{}, {found}", units::count(verdict.steps))]);
    if verdict.confidence > 0.0 {
        let confidence = format!("{:.0} %", verdict.confidence * 100.0);
        table.row(["confidence".to_owned(), confidence]);
    }
    // Writing to a String cannot fail.
    let _ = write!(text, "{table}\nWhat to do: {}.\n", leaks.advice);
    text
}
