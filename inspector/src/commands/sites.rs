//! `terrane sites` and `terrane peak`: who holds the memory.

use std::fmt::Write as _;

use anyhow::Result;
use serde::Serialize;
use terrane_trace::diagnose::{Moment, SiteBy, SiteRow, Sites, TimelinePoint, sites, timeline};
use terrane_trace::recording::{Point, Recording};
use terrane_trace::snapshot::History;

use super::shared::{By, FileArgs, PartArgs, history, open, part, show};
use crate::exit::BadInput;
use crate::text::{Side, Table, counted, duration_us, percent};
use crate::units;

/// Options of `peak`.
#[derive(Debug, clap::Args)]
pub struct PeakArgs {
    #[command(flatten)]
    pub file: FileArgs,
    #[command(flatten)]
    pub part: PartArgs,
    /// Show so many sites; 0 for all.
    #[arg(long, value_name = "N", default_value = "12")]
    pub rows: usize,
}

/// Options of `sites`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub file: FileArgs,
    #[command(flatten)]
    pub part: PartArgs,
    /// What makes blocks belong together.
    #[arg(long, value_enum, default_value = "user")]
    pub by: By,
    /// When: `peak`, `end`, or a place as in --from.
    #[arg(long, value_name = "MOMENT", default_value = "peak", value_parser = at)]
    pub at: At,
    /// Show so many sites; 0 for all.
    #[arg(long, value_name = "N", default_value = "20")]
    pub rows: usize,
}

/// When to look.
#[derive(Clone, Debug)]
pub enum At {
    Peak,
    End,
    Place(Point),
}

/// `peak`, `end`, or a place.
pub fn at(text: &str) -> Result<At, String> {
    match text {
        "peak" => Ok(At::Peak),
        "end" => Ok(At::End),
        text => text.parse().map(At::Place),
    }
}

#[derive(Serialize)]
struct Peak<'a> {
    peak: TimelinePoint,
    /// Largest bytes reserved at any moment; 0 where the file has no segments.
    peak_reserved: u64,
    #[serde(flatten)]
    sites: &'a Sites,
}

/// Prints the moment of the largest active bytes and who holds them.
///
/// # Errors
/// Bad input.
pub fn peak(args: &PeakArgs, quiet: bool) -> Result<()> {
    let recording = open(&args.file, quiet)?;
    let whole = history(&recording, &args.file)?;
    let cut = part(&recording, whole, &args.part)?;
    let history = cut.as_ref().unwrap_or(whole);
    let line = timeline(&recording.snapshot, history, 1);
    let found = of(&recording, history, Moment::Peak, SiteBy::User);
    let peak = Peak { peak: line.peak, peak_reserved: line.peak_reserved, sites: &found };
    show(args.file.json, &peak, || {
        let TimelinePoint { event, time_us, active, reserved, .. } = line.peak;
        let mut text = format!(
            "The peak is {} in use, after event {} ({} after the start).\n",
            units::bytes(active),
            units::count(event),
            duration_us(time_us)
        );
        if line.peak_reserved > 0 {
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "Reserved at that moment: {}; at most in the whole recording: {}.",
                units::bytes(reserved),
                units::bytes(line.peak_reserved)
            );
        }
        text.push('\n');
        text.push_str(&table(&found, args.rows));
        text
    })
}

/// Prints live bytes by site.
///
/// # Errors
/// Bad input.
pub fn run(args: &Args, quiet: bool) -> Result<()> {
    let recording = open(&args.file, quiet)?;
    let whole = history(&recording, &args.file)?;
    let cut = part(&recording, whole, &args.part)?;
    let history = cut.as_ref().unwrap_or(whole);
    let moment = match &args.at {
        At::Peak => Moment::Peak,
        At::End => Moment::End,
        At::Place(place) => {
            let events = place.events(&recording.snapshot, history).map_err(BadInput)?;
            Moment::After(events)
        }
    };
    let found = of(&recording, history, moment, args.by.into());
    show(args.file.json, &found, || {
        let when = match &args.at {
            At::Peak => "at the peak",
            At::End => "at the end",
            At::Place(_) => "at that moment",
        };
        let (bytes, event) = (units::bytes(found.bytes), units::count(found.event));
        let head = format!("{bytes} are in use {when} (after event {event}).\n\n");
        head + &table(&found, args.rows)
    })
}

/// Live bytes by site; by size where the file has no stacks at all.
fn of(recording: &Recording, history: &History, moment: Moment, by: SiteBy) -> Sites {
    let mut found = sites(&recording.snapshot, history, moment, by);
    if recording.snapshot.stacks.is_empty() {
        by_size(&mut found, history);
    }
    found
}

/// Names sizes where there are no sites.
fn by_size(found: &mut Sites, history: &History) {
    let mut sizes = std::collections::BTreeMap::<u64, u64>::new();
    let event = found.event as usize;
    for life in history.trace.lifetimes() {
        if life.alloc < event && life.completed.is_none_or(|end| end >= event) {
            *sizes.entry(life.bytes).or_default() += 1;
        }
    }
    found.rows = sizes
        .into_iter()
        .map(|(size, blocks)| SiteRow {
            site: format!("{} each", units::bytes(size)),
            bytes: size * blocks,
            blocks,
        })
        .collect();
    found.rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    (found.bytes_without_frames, found.bytes_from_earlier) = (0, 0);
}

/// The sites as a table; what has no frames is a line of its own.
pub fn table(sites: &Sites, rows: usize) -> String {
    let rows = if rows == 0 { usize::MAX } else { rows };
    let mut table = Table::with_head(&[
        ("bytes", Side::Right),
        ("share", Side::Right),
        ("blocks", Side::Right),
        ("site", Side::Left),
    ]);
    let mut line = |bytes: u64, blocks: String, site: &str| {
        let share = percent(bytes, sites.bytes);
        table.row([units::bytes(bytes), share, blocks, site.to_owned()]);
    };
    for row in sites.rows.iter().take(rows) {
        line(row.bytes, units::count(row.blocks), &row.site);
    }
    let rest = sites.rows.get(rows..).unwrap_or_default();
    if !rest.is_empty() {
        let bytes = rest.iter().map(|row| row.bytes).sum();
        let blocks: u64 = rest.iter().map(|row| row.blocks).sum();
        let more = counted(rest.len() as u64, "more site", "more sites");
        line(bytes, units::count(blocks), &format!("({more}; --rows 0 shows all)"));
    }
    if sites.bytes_without_frames > 0 {
        let why = "(no frames: C++ threads such as the backward pass, or stacks not recorded)";
        line(sites.bytes_without_frames, "-".to_owned(), why);
    }
    if sites.bytes_from_earlier > 0 {
        line(sites.bytes_from_earlier, "-".to_owned(), "(from before the recording began)");
    }
    table.to_string()
}
