//! `terrane check`: thresholds for CI.

use anyhow::Result;
use serde::Serialize;
use terrane_trace::diagnose::{
    LeakClass, LeakOptions, Requests, leaks, recorded_model, timeline, whatif,
};

use super::shared::{FileArgs, PartArgs, bytes, history, open, part, show};
use crate::exit::{BadInput, FoundWrong};
use crate::text::{Side, Table};
use crate::units;

/// Options of `check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub file: FileArgs,
    #[command(flatten)]
    pub part: PartArgs,
    /// The peak of the bytes asked for may be at most this.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub max_requested: Option<u64>,
    /// The peak of the bytes reserved may be at most this (recorded, or replayed by PyTorch's
    /// rules where the file has no segments).
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub max_reserved: Option<u64>,
    /// The peak reserved may be at most this many times the peak requested (1.2).
    #[arg(long, value_name = "TIMES")]
    pub max_ratio: Option<f64>,
    /// Bytes that live at the end may be at most this.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub max_live_at_end: Option<u64>,
    /// At most so many requests may fail.
    #[arg(long, value_name = "N")]
    pub max_failures: Option<u64>,
    /// Nothing may grow from step to step: no leak that is accumulating, exponential, fragmenting
    /// or a backlog of pending frees.
    #[arg(long)]
    pub no_leak: bool,
}

#[derive(Serialize)]
struct Rule {
    rule: &'static str,
    value: String,
    limit: String,
    ok: bool,
}

#[derive(Serialize)]
struct Checked {
    ok: bool,
    rules: Vec<Rule>,
}

/// Checks every threshold given.
///
/// # Errors
/// Bad input; [`FoundWrong`] after the list when one does not hold.
pub fn run(args: &Args, quiet: bool) -> Result<()> {
    let rules = rules(args, quiet)?;
    if rules.is_empty() {
        let text = "nothing to check: give a threshold, such as --max-reserved 24GiB or --no-leak";
        return Err(BadInput(text.to_owned()).into());
    }
    let failed = rules.iter().filter(|rule| !rule.ok).count();
    let checked = Checked { ok: failed == 0, rules };
    show(args.file.json, &checked, || {
        let mut table = Table::new(&[Side::Left, Side::Left, Side::Right, Side::Left]);
        for Rule { rule, value, limit, ok } in &checked.rules {
            let verdict = if *ok { "ok" } else { "FAILED" };
            table.row([verdict, rule, value, &format!("limit {limit}")]);
        }
        table.to_string()
    })?;
    match failed {
        0 => Ok(()),
        1 => Err(FoundWrong("1 threshold is exceeded".to_owned()).into()),
        failed => Err(FoundWrong(format!("{failed} thresholds are exceeded")).into()),
    }
}

fn rules(args: &Args, quiet: bool) -> Result<Vec<Rule>> {
    let recording = open(&args.file, quiet)?;
    let whole = history(&recording, &args.file)?;
    let cut = part(&recording, whole, &args.part)?;
    let history = cut.as_ref().unwrap_or(whole);
    let figures = history.trace.figures();
    let mut rules = Vec::new();
    let mut bytes_rule = |rule, value: u64, limit: Option<u64>| {
        rules.extend(limit.map(|limit| Rule {
            rule,
            value: units::bytes(value),
            limit: units::bytes(limit),
            ok: value <= limit,
        }));
    };
    bytes_rule("peak requested", figures.peak_requested, args.max_requested);
    bytes_rule("live at the end", figures.live_bytes_at_end, args.max_live_at_end);
    if args.max_reserved.is_some() || args.max_ratio.is_some() {
        let recorded = timeline(&recording.snapshot, history, 1).peak_reserved;
        let reserved = match recorded {
            0 => {
                let model = recorded_model(&recording.snapshot);
                whatif(&Requests::served(history), history, &model, None).peak_reserved
            }
            recorded => recorded,
        };
        bytes_rule("peak reserved", reserved, args.max_reserved);
        rules.extend(args.max_ratio.map(|limit| {
            let ratio = reserved as f64 / figures.peak_requested.max(1) as f64;
            let (value, shown) = (format!("{ratio:.3}"), format!("{limit:.3}"));
            Rule { rule: "reserved over requested", value, limit: shown, ok: ratio <= limit }
        }));
    }
    rules.extend(args.max_failures.map(|limit| {
        let failures = history.attempts.len() as u64;
        let (value, shown) = (units::count(failures), units::count(limit));
        Rule { rule: "requests that failed", value, limit: shown, ok: failures <= limit }
    }));
    if args.no_leak {
        let found = leaks(&recording.snapshot, history, LeakOptions::default());
        let class = found.verdict.class;
        let grows = matches!(
            class,
            LeakClass::Accumulating
                | LeakClass::Exponential
                | LeakClass::Fragmenting
                | LeakClass::PendingBacklog
        );
        let line = found.line.map_or_else(String::new, |line| format!(" ({line})"));
        let value = format!("{}{line}", format!("{class:?}").to_lowercase());
        rules.push(Rule { rule: "growth", value, limit: "none".to_owned(), ok: !grows });
    }
    Ok(rules)
}
