//! `terrane why`: all that is known about one block.

use anyhow::Result;
use terrane_trace::diagnose::{When, Why, find_block, why};
use terrane_trace::snapshot::History;

use super::shared::{FileArgs, PartArgs, chosen, history, open, show};
use crate::exit::BadInput;
use crate::text::{Side, Table, counted, duration_us};
use crate::units;

/// Options of `why`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub file: FileArgs,
    /// The block: its number in the recording, or an address in it (0x7f...); of several that had
    /// the address, the last.
    pub block: String,
    #[command(flatten, next_help_heading = "Which block is meant: one of these")]
    pub part: PartArgs,
}

/// Prints a block's life.
///
/// # Errors
/// Bad input.
pub fn run(args: &Args, quiet: bool) -> Result<()> {
    let recording = open(&args.file, quiet)?;
    let history = history(&recording, &args.file)?;
    let chosen = chosen(&recording, history, &args.part)?;
    let is_chosen = |block: usize| chosen.as_ref().is_none_or(|chosen| chosen[block]);
    let found = find_block(history, &args.block, is_chosen);
    let found = found.and_then(|block| why(&recording.snapshot, history, block));
    let found = found.ok_or_else(|| BadInput(no_block(&args.block, history)))?;
    show(args.file.json, &found, || text(&found))
}

fn no_block(asked: &str, history: &History) -> String {
    if find_block(history, asked, |_| true).is_some() {
        return format!("`{asked}` is a block, and not one in the range and as the filters say");
    }
    let count = history.trace.block_count();
    format!(
        "`{asked}` is no block: give an address inside one (0x7f...), or a number below {count}"
    )
}

fn text(why: &Why) -> String {
    let at =
        |when: When| format!("event {}, {}", units::count(when.event), duration_us(when.time_us));
    let mut table = Table::new(&[Side::Left, Side::Left]);
    let mut row = |what: &str, value: String| table.row([what.to_owned(), value]);
    row("asked for", format!("{} on stream {}", crate::text::exact(why.bytes), why.stream));
    match (&why.site, why.from_earlier) {
        (Some(site), _) => row("by", site.clone()),
        (None, true) => row("by", "not known: it is from before the recording began".to_owned()),
        (None, false) => row("by", "not recorded (no frames)".to_owned()),
    }
    if !why.from_earlier {
        row("allocated", at(why.allocated));
    }
    if why.address > 0 {
        let place = match why.new_segment {
            Some(bytes) => format!("a new segment of {} was made for it", units::bytes(bytes)),
            None => "into a segment that was there".to_owned(),
        };
        row("placed", format!("{:#x}, {place}", why.address));
    }
    let life = |end: When| duration_us(end.time_us.saturating_sub(why.allocated.time_us));
    match (why.free_requested, why.free_completed) {
        (None, _) => row("freed", "never: it lived to the end of the recording".to_owned()),
        (Some(end), None) => {
            row("freed", at(end));
            row("reusable", "never: another stream still used it at the end".to_owned());
        }
        (Some(end), Some(done)) => {
            row("freed", format!("{}, after a life of {}", at(end), life(end)));
            let wait = done.time_us.saturating_sub(end.time_us);
            if done.event > end.event + 1 || wait > 0 {
                let wait = duration_us(wait);
                row("reusable", format!("{}: another stream used it {wait} longer", at(done)));
            }
        }
    }
    let peak = if why.live_at_peak { "it was live at the peak" } else { "it was not live then" };
    row("at the peak", peak.to_owned());
    let siblings = counted(why.site_blocks, "block", "blocks");
    let kind = if why.site.is_some() { "of this site" } else { "of this size without frames" };
    row("like it", format!("{siblings} {kind} were live, {}", units::bytes(why.site_bytes)));
    if let Some(held) = why.segment {
        let blocks = counted(held.live_blocks, "live block", "live blocks");
        row(
            "it holds",
            format!(
                "a segment of {} with {blocks} of {} in it at the dump",
                units::bytes(held.bytes),
                units::bytes(held.live_bytes)
            ),
        );
    }
    if why.others_at_address > 0 {
        let others = counted(why.others_at_address, "other block", "other blocks");
        row("same place", format!("{others} had this address at other times"));
    }
    let mut text = format!("Block {}\n\n{table}", why.block);
    if !why.stack.is_empty() {
        text.push_str("\nCalled from, innermost first:\n");
        for line in &why.stack {
            text.push_str(&format!("  {line}\n"));
        }
    }
    text
}
