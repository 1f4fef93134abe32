//! Arguments that many commands share, and what they do with them.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum, ValueHint};
use serde::Serialize;
use terrane_trace::diagnose::{SiteBy, Untracked};
use terrane_trace::recording::{Point, Recording, Selection};
use terrane_trace::replay::Capacity;
use terrane_trace::snapshot::History;

use crate::exit::BadInput;
use crate::{source, units};

/// A file and how to print what is found in it.
#[derive(Clone, Debug, Args)]
pub struct FileArgs {
    /// A PyTorch memory snapshot (pickle, torch.save archive or JSON), a trace of Terrane, a
    /// recorded workload (CSV), an RMM log, a JSON dump of VMA or D3D12MA, or a report of
    /// gpu-allocator or wgpu; plain, gzip or zstd.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Which GPU of the file; the one with the longest history unless given.
    #[arg(long, value_name = "N")]
    pub device: Option<usize>,
}

/// Which part of a recording is looked at.
#[derive(Clone, Debug, Default, Args)]
pub struct PartArgs {
    /// Begin here: events (1200), time since the start (1.5s, 20ms) or an annotation (@name).
    #[arg(long, value_name = "PLACE")]
    pub from: Option<Point>,
    /// End here.
    #[arg(long, value_name = "PLACE")]
    pub to: Option<Point>,
    /// Only blocks of this stream (a small number; `info` lists them).
    #[arg(long, value_name = "N")]
    pub stream: Option<u32>,
    /// Only blocks of at least this size (20MiB).
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub min_size: Option<u64>,
    /// Only blocks of at most this size.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub max_size: Option<u64>,
    /// Only blocks with this text in a line of their stack.
    #[arg(long, value_name = "TEXT")]
    pub site: Option<String>,
}

impl PartArgs {
    /// True when nothing is left out.
    pub fn is_all(&self) -> bool {
        self.selection().is_all()
    }

    fn selection(&self) -> Selection {
        Selection {
            from: self.from.clone(),
            to: self.to.clone(),
            stream: self.stream,
            bytes_min: self.min_size,
            bytes_max: self.max_size,
            site: self.site.clone(),
        }
    }
}

/// What makes two blocks belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// The innermost frame.
    Top,
    /// The innermost frame of the program itself, outside installed packages.
    User,
    /// The source file of that frame.
    Module,
    /// The whole stack.
    Stack,
}

impl From<By> for SiteBy {
    fn from(by: By) -> Self {
        match by {
            By::Top => Self::Top,
            By::User => Self::User,
            By::Module => Self::Module,
            By::Stack => Self::Stack,
        }
    }
}

/// Bytes as a person writes them: 8589934592, 8GiB, 900MB.
pub fn bytes(text: &str) -> Result<u64, String> {
    match text.parse::<Capacity>() {
        Ok(Capacity::Bytes(bytes)) => Ok(bytes),
        _ => Err(format!("`{text}` is no size: give bytes (8589934592, 21.9GiB, 900MB)")),
    }
}

/// `auto` or bytes.
pub fn untracked(text: &str) -> Result<Untracked, String> {
    match text {
        "auto" => Ok(Untracked::Auto),
        "0" => Ok(Untracked::Bytes(0)),
        text => bytes(text).map(Untracked::Bytes),
    }
}

/// A card as it is sold: 24GB, 24.
pub fn card(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = matches!(&text[digits.len()..], "" | "G" | "GB" | "GiB");
    let gb = digits.parse().ok().filter(|gb| (1..=100_000).contains(gb));
    gb.filter(|_| unit).ok_or_else(|| format!("`{text}` is no card: give its memory, as in 24GB"))
}

/// How much of a card the program can have, with the subtraction for people.
pub struct Usable {
    pub bytes: u64,
    pub text: String,
}

/// What is left of a card.
pub fn usable(card_gb: u64, untracked: Untracked) -> Usable {
    let card = card_gb << 30;
    let taken = untracked.of(card).min(card);
    let why = match untracked {
        Untracked::Auto => "assumed: driver and CUDA context",
        Untracked::Bytes(_) => "as given",
    };
    let bytes = card - taken;
    let text = format!(
        "a {card_gb} GB card: {} - {} untracked ({why}) = {}",
        units::bytes(card),
        units::bytes(taken),
        units::bytes(bytes)
    );
    Usable { bytes, text }
}

/// The file, opened.
pub fn open(file: &FileArgs, quiet: bool) -> Result<Recording> {
    source::recording(&file.file, quiet)
}

/// The history that is asked about.
///
/// # Errors
/// [`BadInput`] where the file has none.
pub fn history<'a>(recording: &'a Recording, file: &FileArgs) -> Result<&'a History> {
    let Some(history) = recording.history(file.device) else {
        let path = file.file.display();
        let text = match file.device {
            Some(device) if !recording.histories.is_empty() => {
                let has: Vec<String> =
                    recording.histories.iter().map(|h| h.device.to_string()).collect();
                format!("{path}: no history of device {device}; there is {}", has.join(", "))
            }
            _ => format!(
                "{path}: a {} without history; `terrane info` shows what is in it, `terrane howto \
                 pytorch` how to record one",
                recording.format.describe()
            ),
        };
        return Err(BadInput(text).into());
    };
    Ok(history)
}

/// The part of the history that is asked about.
///
/// # Errors
/// [`BadInput`] for a part that is not there.
pub fn part(recording: &Recording, history: &History, part: &PartArgs) -> Result<Option<History>> {
    let selection = part.selection();
    if selection.is_all() {
        return Ok(None);
    }
    let part = selection.apply(&recording.snapshot, history).map_err(BadInput)?;
    Ok(Some(part))
}

/// Of each block, whether it is asked about; `None` when all are.
///
/// # Errors
/// [`BadInput`] for a part that is not there.
pub fn chosen(
    recording: &Recording,
    history: &History,
    asked: &PartArgs,
) -> Result<Option<Vec<bool>>> {
    let selection = asked.selection();
    if selection.is_all() {
        return Ok(None);
    }
    Ok(Some(selection.chosen(&recording.snapshot, history).map_err(BadInput)?))
}

/// Leaves only the part of each history that is asked about, and no history without such a part.
///
/// # Errors
/// [`BadInput`] for a part that no history has.
pub fn cut(mut recording: Recording, asked: &PartArgs) -> Result<Recording> {
    if asked.is_all() {
        return Ok(recording);
    }
    let mut missing = Some("there is no history that a part could be taken of".to_owned());
    for history in std::mem::take(&mut recording.histories) {
        match asked.selection().apply(&recording.snapshot, &history) {
            Ok(part) => recording.histories.push(part),
            Err(reason) => missing = Some(reason),
        }
    }
    match missing {
        Some(reason) if recording.histories.is_empty() => Err(BadInput(reason).into()),
        _ => Ok(recording),
    }
}

/// Leaves out the failed requests behind the last one that is asked about.
///
/// # Errors
/// [`BadInput`] when there is no such request.
pub fn until_failure(mut recording: Recording, asked: &PartArgs) -> Result<Recording> {
    if asked.is_all() {
        return Ok(recording);
    }
    let mut histories = std::mem::take(&mut recording.histories);
    let mut missing = None;
    for history in &mut histories {
        match asked.selection().last_failure(&recording.snapshot, history) {
            Ok(last) => history.attempts.truncate(last + 1),
            Err(reason) => {
                history.attempts.clear();
                missing = Some(reason);
            }
        }
    }
    recording.histories = histories;
    match missing {
        Some(reason) if recording.histories.iter().all(|it| it.attempts.is_empty()) => {
            Err(BadInput(reason).into())
        }
        _ => Ok(recording),
    }
}

/// Sizes that cannot exist, as bad input.
pub fn bad<E: std::fmt::Display>(file: &FileArgs) -> impl Fn(E) -> anyhow::Error {
    let path = file.file.display().to_string();
    move |error| anyhow!(BadInput(format!("{path}: {error}")))
}

/// Prints a value as JSON or a text.
pub fn show(json: bool, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
    let text = if json { format!("{}\n", serde_json::to_string_pretty(value)?) } else { text() };
    super::print(&text)
}
