//! `terrane diff`: how two recordings differ.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::ValueHint;
use terrane_trace::diagnose::{Change, Comparison, compare};

use super::shared::{By, PartArgs, cut, show};
use crate::exit::BadInput;
use crate::text::{Side, Table};
use crate::{source, units};

/// Options of `diff`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The first file: before, or the one that worked.
    #[arg(value_hint = ValueHint::FilePath)]
    pub a: PathBuf,
    /// The second file: after, or the one that did not.
    #[arg(value_hint = ValueHint::FilePath)]
    pub b: PathBuf,
    /// The same part of both.
    #[command(flatten)]
    pub part: PartArgs,
    /// Which GPU of both; the one with the longest history of each unless given.
    #[arg(long, value_name = "N")]
    pub device: Option<usize>,
    /// What makes blocks belong together.
    #[arg(long, value_enum, default_value = "user")]
    pub by: By,
    /// Show so many sites; 0 for all.
    #[arg(long, value_name = "N", default_value = "12")]
    pub rows: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Prints how two recordings differ.
///
/// # Errors
/// Bad input.
pub fn run(args: &Args, quiet: bool) -> Result<()> {
    let part_of = |path| cut(source::recording(path, quiet)?, &args.part);
    let (a, b) = (part_of(&args.a)?, part_of(&args.b)?);
    let compared = compare(&a, &b, args.device, args.by.into());
    let compared = compared.ok_or_else(|| {
        let path = if a.history(args.device).is_none() { &args.a } else { &args.b };
        let of = args.device.map_or_else(String::new, |device| format!(" of device {device}"));
        BadInput(format!("{}: no history{of} to compare; see `terrane info`", path.display()))
    })?;
    show(args.json, &compared, || text(&compared, args))
}

fn text(compared: &Comparison, args: &Args) -> String {
    let mut text = format!("A  {}\nB  {}\n\n", args.a.display(), args.b.display());
    let sides = [("", Side::Left), ("A", Side::Right), ("B", Side::Right), ("B - A", Side::Right)];
    let mut table = Table::with_head(&sides);
    for &Change { what, is_bytes, a, b } in &compared.figures {
        let shown = |value| if is_bytes { units::bytes(value) } else { units::count(value) };
        table.row([what.to_owned(), shown(a), shown(b), difference(a, b, shown)]);
    }
    // Writing to a String cannot fail.
    let _ = write!(text, "{table}");
    if let Some((a, b)) = &compared.settings {
        let shown = |conf: &String| if conf.is_empty() { "(default)".into() } else { conf.clone() };
        let _ = writeln!(text, "\nSettings: A {}; B {}", shown(a), shown(b));
    }
    if compared.sites.is_empty() {
        text.push_str("\nThe same sites hold the same bytes at both peaks.\n");
        return text;
    }
    text.push_str("\nSites that differ, each file at its own peak:\n\n");
    let sides =
        [("B - A", Side::Right), ("A", Side::Right), ("B", Side::Right), ("site", Side::Left)];
    let mut table = Table::with_head(&sides);
    let rows = if args.rows == 0 { usize::MAX } else { args.rows };
    for change in compared.sites.iter().take(rows) {
        let (a, b) = (change.a, change.b);
        let site = change.site.clone();
        table.row([difference(a, b, units::bytes), units::bytes(a), units::bytes(b), site]);
    }
    let _ = write!(text, "{table}");
    let more = compared.sites.len().saturating_sub(rows);
    if more > 0 {
        let _ = writeln!(text, "  and {more} more; --rows 0 shows all");
    }
    text
}

fn difference(a: u64, b: u64, shown: impl Fn(u64) -> String) -> String {
    match b.cmp(&a) {
        std::cmp::Ordering::Equal => "=".to_owned(),
        std::cmp::Ordering::Greater => format!("+{}", shown(b - a)),
        std::cmp::Ordering::Less => format!("-{}", shown(a - b)),
    }
}
