//! `terrane replay`: one JSON object of figures.

use anyhow::Result;
use terrane_trace::replay::{Options, Report};

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
    let opened = source::open_with(&args.device, args.guard)?;
    let mut options = Options::default();
    options.policy = args.policy;
    options.capacity = args.capacity;
    options.scale = args.scale;
    options.corrupt = args.corrupt;
    options.contents = !args.no_contents;
    options.check_every = args.check_every;
    options.guard = args.guard;
    let name = source::name_of(&args.file);
    let replay = source::replay(&opened, &name, &trace, &options)?;
    let recorder = source::record(replay.allocator(), args.record.as_deref())?;
    let bar = progress::bar(quiet, "replaying", trace.events().len() as u64);
    let outcome = replay.run_with(&mut |done, _| bar.set_position(done as u64));
    bar.finish_and_clear();
    source::recorded(recorder, quiet)?;
    let report = outcome.map_err(as_input)?;
    let text = if args.json {
        serde_json::to_string(&report)?
    } else {
        serde_json::to_string_pretty(&report)?
    };
    super::print(&format!("{text}\n"))?;
    verdict(&report, args)
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
