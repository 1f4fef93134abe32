//! `terrane tune`: which of PyTorch's settings needs the least memory.

use std::fmt::Write as _;

use anyhow::Result;
use serde::Serialize;
use terrane_trace::diagnose::{Requests, Tuned, Tuning, Untracked, settings, tune};
use terrane_trace::replay::Capacity;

use super::shared::{FileArgs, PartArgs, bad, card, cut, history, open, show, untracked, usable};
use crate::text::{Side, Table};
use crate::units;

/// Options of `tune`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub file: FileArgs,
    #[command(flatten)]
    pub part: PartArgs,
    /// The most that may be reserved: bytes (24GiB) or times the peak requested (1.05x).
    #[arg(long, value_name = "BYTES|TIMESx", conflicts_with = "card")]
    pub capacity: Option<Capacity>,
    /// The same as a card's memory (24GB), less what is untracked.
    #[arg(long, value_name = "GB", value_parser = card)]
    pub card: Option<u64>,
    /// With --card: bytes of it that the program cannot have; `auto` assumes 1/64 and 512 MiB.
    #[arg(long, value_name = "auto|BYTES", default_value = "auto", value_parser = untracked)]
    pub untracked: Untracked,
}

#[derive(Serialize)]
struct Answer {
    /// The line to set; `null` when no setting helps.
    line: Option<String>,
    /// Peak that the best setting reserves.
    peak_reserved: u64,
    /// Whether it serves every request under the limit.
    fits: bool,
    capacity: Option<u64>,
    #[serde(flatten)]
    tuned: Tuned,
}

/// Prints the best setting.
///
/// # Errors
/// Bad input.
pub fn run(args: &Args, quiet: bool) -> Result<()> {
    let recording = cut(open(&args.file, quiet)?, &args.part)?;
    let history = history(&recording, &args.file)?;
    let peak = history.trace.figures().peak_requested;
    let usable = args.card.map(|card| usable(card, args.untracked));
    let given = args.capacity.unwrap_or_default().bytes(peak);
    let capacity = usable.as_ref().map(|usable| usable.bytes).or(given);
    let requests = Requests::under(history, capacity).map_err(bad(&args.file))?;
    let tuned = tune(&requests, &settings(&recording.snapshot), capacity);
    let best = &tuned.best;
    let answer = Answer {
        line: tuned.helps.then(|| format!("PYTORCH_CUDA_ALLOC_CONF={}", best.conf)),
        peak_reserved: best.peak_reserved,
        fits: best.failures == 0,
        capacity,
        tuned,
    };
    show(args.file.json, &answer, || {
        text(&answer, peak, usable.as_ref().map(|usable| usable.text.as_str()))
    })
}

fn text(answer: &Answer, peak: u64, card: Option<&str>) -> String {
    let (best, before) = (&answer.tuned.best, &answer.tuned.before);
    let mut text = match &answer.line {
        Some(line) => format!(
            "{line}\n\nreserves at most {}, where the settings of the run reserve {}.\n",
            units::bytes(best.peak_reserved),
            units::bytes(before.peak_reserved)
        ),
        None => format!(
            "No setting helps: the best of those tried reserves {}, the settings of the run {}.\n",
            units::bytes(best.peak_reserved),
            units::bytes(before.peak_reserved)
        ),
    };
    // Writing to a String cannot fail.
    if let Some(card) = card {
        let _ = writeln!(text, "On {card}:");
    }
    if let Some(capacity) = answer.capacity {
        let capacity = units::bytes(capacity);
        let _ = match best.failures {
            0 if best.retries == 0 => writeln!(text, "it fits into {capacity}."),
            0 => writeln!(
                text,
                "it fits into {capacity}, emptying its cache {} times, which costs time.",
                units::count(best.retries)
            ),
            failures => writeln!(
                text,
                "it does not fit into {capacity}: {} requests fail.",
                units::count(failures)
            ),
        };
    }
    let _ = writeln!(text, "The program itself asks for {} at its peak.\n", units::bytes(peak));
    let mut table = Table::with_head(&[
        ("peak reserved", Side::Right),
        ("failures", Side::Right),
        ("retries", Side::Right),
        ("setting", Side::Left),
    ]);
    for Tuning { conf, peak_reserved, failures, retries } in &answer.tuned.tried {
        let run = if conf == &before.conf { " (of the run)" } else { "" };
        let conf = if conf.is_empty() { "(default)" } else { conf };
        table.row([
            units::bytes(*peak_reserved),
            units::count(*failures),
            units::count(*retries),
            format!("{conf}{run}"),
        ]);
    }
    let _ = write!(text, "{table}");
    text
}
