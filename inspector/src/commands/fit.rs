//! `terrane fit`: on which cards the program would run.

use anyhow::Result;
use terrane_trace::diagnose::{CARDS_GB, Fit, Untracked, fit, settings};

use super::shared::{FileArgs, PartArgs, bad, card, cut, history, open, show, untracked};
use crate::text::{Side, Table};
use crate::units;

/// Options of `fit`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub file: FileArgs,
    #[command(flatten)]
    pub part: PartArgs,
    /// Only these cards (24GB); usual ones from 16 to 192 GB unless given.
    #[arg(long, value_name = "GB", value_parser = card)]
    pub card: Vec<u64>,
    /// Bytes of a card that the program cannot have; `auto` assumes 1/64 and 512 MiB.
    #[arg(long, value_name = "auto|BYTES", default_value = "auto", value_parser = untracked)]
    pub untracked: Untracked,
}

/// Prints cards by settings.
///
/// # Errors
/// Bad input.
pub fn run(args: &Args, quiet: bool) -> Result<()> {
    let recording = cut(open(&args.file, quiet)?, &args.part)?;
    let history = history(&recording, &args.file)?;
    let cards = if args.card.is_empty() { CARDS_GB.to_vec() } else { args.card.clone() };
    let run = settings(&recording.snapshot);
    let found = fit(history, &run, &cards, args.untracked).map_err(bad(&args.file))?;
    show(args.file.json, &found, || text(&found, args.untracked))
}

fn text(found: &Fit, untracked: Untracked) -> String {
    let assumed = match untracked {
        Untracked::Auto => "assumed untracked: 1/64 of the card and 512 MiB; --untracked sets it",
        Untracked::Bytes(_) => "untracked as given",
    };
    let mut head = vec![("card", Side::Right), ("usable", Side::Right)];
    let names: Vec<String> = found.rows.first().map_or_else(Vec::new, |row| {
        let name = |conf: &String| match conf.as_str() {
            "" => "default".to_owned(),
            conf => conf.replace("expandable_segments:True", "expandable"),
        };
        row.settings.iter().map(|cell| name(&cell.conf)).collect()
    });
    head.extend(names.iter().map(|name| (name.as_str(), Side::Left)));
    head.push(("what to change", Side::Left));
    let mut table = Table::with_head(&head);
    for row in &found.rows {
        let mut cells = vec![format!("{} GB", row.card_gb), units::bytes(row.usable)];
        for cell in &row.settings {
            let margin = units::bytes(cell.margin.unsigned_abs());
            cells.push(match (cell.fits, cell.retries) {
                (true, 0) => format!("fits, {margin} left"),
                (true, _) => "fits, cache emptied".to_owned(),
                (false, _) => format!("fails, {margin} short"),
            });
        }
        cells.push(row.advice.clone());
        table.row(cells);
    }
    format!(
        "The program asks for {} at its peak ({assumed}).\n\n{table}",
        units::bytes(found.peak_requested)
    )
}
