//! `terrane replay`: one JSON object of figures.

use std::fmt::Write as _;

use anyhow::Result;
use serde::Serialize;
use terrane_trace::Trace;
use terrane_trace::replay::{self, Options, ReplayError, Report, Target, find_capacity};

use crate::cli::ReplayArgs;
use crate::exit::FoundWrong;
use crate::progress;
use crate::source::{self, as_input};

/// Replays a file and prints the report.
///
/// # Errors
/// Bad input; [`FoundWrong`] after the report when contents differ or, without a limit, a request
/// failed.
pub fn run(args: &ReplayArgs, quiet: bool) -> Result<()> {
    let trace = source::trace(&args.file)?;
    let mut options = Options::default();
    options.policy = args.policy;
    options.capacity = args.capacity;
    options.scale = args.scale;
    options.corrupt = args.corrupt;
    options.contents = !args.no_contents && args.common.is_none();
    options.placements = args.common.is_some();
    options.check_every = args.check_every;
    options.guard = args.guard;
    options.paging = args.paging;
    options.warm = args.warm;
    let name = source::name_of(&args.file);
    if args.find_capacity {
        return smallest(args, &name, &trace, &options);
    }
    if args.sweep {
        return sweep(args, &name, &trace, &options, quiet);
    }
    let opened = source::open_with(&args.device, args.guard)?;
    let replay = match args.common {
        Some(common) => source::replay_common(&opened, &name, &trace, &mut options, common)?,
        None => source::replay(&opened, &name, &trace, &options)?,
    };
    let recorder = source::record(replay.allocator(), args.record.as_deref())?;
    let bar = progress::bar(quiet, "replaying", trace.events().len() as u64);
    let outcome = replay.run_with(&mut |done, _| bar.set_position(done as u64));
    bar.finish_and_clear();
    source::recorded(recorder, quiet)?;
    let report = outcome.map_err(as_input)?;
    print_json(&report, args.json)?;
    verdict(&report, args)
}

fn print_json(value: &impl Serialize, on_one_line: bool) -> Result<()> {
    let text = if on_one_line {
        serde_json::to_string(value)?
    } else {
        serde_json::to_string_pretty(value)?
    };
    super::print(&format!("{text}\n"))?;
    Ok(())
}

/// A new device for each of many replays.
fn fresh(args: &ReplayArgs) -> impl FnMut() -> Result<Target, ReplayError> + use<> {
    let (device, guard) = (args.device.clone(), args.guard);
    move || {
        source::open_with(&device, guard)
            .map(|opened| source::target(&opened))
            .map_err(|error| ReplayError::NoDevice { why: format!("{error:#}") })
    }
}

fn smallest(args: &ReplayArgs, name: &str, trace: &Trace, options: &Options) -> Result<()> {
    let found = find_capacity(name, trace, options, &mut fresh(args)).map_err(as_input)?;
    print_json(&found, args.json)
}

fn sweep(
    args: &ReplayArgs,
    name: &str,
    trace: &Trace,
    options: &Options,
    quiet: bool,
) -> Result<()> {
    let bar = progress::bar(quiet, "sweeping", 0);
    let mut told = |done: usize, all: usize| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    };
    let rows = replay::sweep(name, trace, options, &mut fresh(args), &mut told);
    bar.finish_and_clear();
    let rows = rows.map_err(as_input)?;
    if args.json {
        return print_json(&rows, true);
    }
    let mut text = format!(
        "{:<28} {:>8} {:>10} {:>10} {:>8} {:>8}  frontier\n",
        "setting", "reserved", "mapping", "total ms", "pages", "stolen"
    );
    for row in &rows {
        let mark = if row.on_frontier { "*" } else { "" };
        let (ratio, share) = (row.ratio, row.mapping_share * 100.0);
        let (ms, pages, stolen) = (row.map_ms_total, row.pages_created, row.pages_stolen);
        writeln!(
            text,
            "{:<28} {ratio:>7.4}x {share:>8.2} % {ms:>10.1} {pages:>8} {stolen:>8}  {mark}",
            row.setting
        )?;
    }
    text.push_str(
        "\nreserved: peak of reserved over peak of requested bytes. mapping: driver time of pages \
         after the first tenth of\nthe events, over the recorded time. *: no other setting is \
         better in one and no worse in the other.\n",
    );
    super::print(&text)?;
    Ok(())
}

/// Whether the run shows something wrong. Refusals under a limit are an answer, not a fault, and
/// damage that was asked for has to be found.
fn verdict(report: &Report, args: &ReplayArgs) -> Result<()> {
    let Report { mismatches, failures, .. } = *report;
    if mismatches != args.corrupt {
        let text =
            format!("{mismatches} blocks differ from their pattern, {} should", args.corrupt);
        return Err(FoundWrong(text).into());
    }
    if failures > 0 && report.capacity.is_none() {
        let text = format!(
            "{failures} requests were refused: the workload needs {} at once, more than {} gives; \
             try --scale",
            crate::units::bytes(report.peak_requested),
            report.device,
        );
        return Err(FoundWrong(text).into());
    }
    Ok(())
}
