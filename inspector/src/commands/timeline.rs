//! `terrane timeline`: bytes over time.

use anyhow::Result;
use terrane_trace::diagnose::timeline;

use super::shared::{FileArgs, PartArgs, history, open, part, show};
use crate::text::{Side, Table, bar, duration_us};
use crate::units;

/// Options of `timeline`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub file: FileArgs,
    #[command(flatten)]
    pub part: PartArgs,
    /// Show at most so many moments; each is the highest of its stretch, so no peak is lost.
    #[arg(long, value_name = "N", default_value = "24", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub points: u32,
}

/// Prints bytes over time.
///
/// # Errors
/// Bad input.
pub fn run(args: &Args, quiet: bool) -> Result<()> {
    let recording = open(&args.file, quiet)?;
    let whole = history(&recording, &args.file)?;
    let cut = part(&recording, whole, &args.part)?;
    let history = cut.as_ref().unwrap_or(whole);
    let line = timeline(&recording.snapshot, history, args.points as usize);
    show(args.file.json, &line, || {
        let has_reserved = line.peak_reserved > 0;
        let most = line.peak_reserved.max(line.peak.active);
        let mut head =
            vec![("after", Side::Right), ("event", Side::Right), ("in use", Side::Right)];
        if has_reserved {
            head.push(("reserved", Side::Right));
        }
        let key = if has_reserved { "# in use  . reserved" } else { "# in use" };
        head.push((key, Side::Left));
        let mut table = Table::with_head(&head);
        for point in &line.points {
            let mut row = vec![
                duration_us(point.time_us),
                units::count(point.event),
                units::bytes(point.active),
            ];
            if has_reserved {
                row.push(units::bytes(point.reserved));
            }
            let mark = if point.event == line.peak.event { " <- peak" } else { "" };
            let reserved = if has_reserved { point.reserved } else { 0 };
            row.push(format!("{}{mark}", bar(point.active, reserved, most, 40)));
            table.row(row);
        }
        table.to_string()
    })
}
