//! On which cards a recorded program would run.

use super::whatif::{Requests, WhatIf, whatif};
use crate::Reason;
use crate::model::{ModelSpec, PytorchConfig};
use crate::snapshot::History;
use serde::Serialize;
use terrane_core::units::Bytes;

const GIB: u64 = 1 << 30;

/// Sizes of usual cards, as they are sold, in units of 2^30 bytes.
pub const CARDS_GB: [u64; 10] = [16, 24, 32, 40, 48, 64, 80, 96, 141, 192];

/// Bytes of a card that the program cannot have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Untracked {
    /// Assumed: what the driver keeps of a card (1/64 of it) and what a CUDA context with its
    /// libraries takes (512 MiB).
    #[default]
    Auto,
    /// Known.
    Bytes(u64),
}

impl Untracked {
    /// Bytes on a card of that many.
    #[must_use]
    pub fn of(self, card: u64) -> u64 {
        match self {
            Self::Auto => card / 64 + (512 << 20),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// A program on one card under one setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FitCell {
    /// Text for `PYTORCH_CUDA_ALLOC_CONF`; empty for the default settings.
    pub conf: String,
    /// True when every request is served that the recorded program was served or died of.
    pub fits: bool,
    /// Requests refused.
    pub failures: u64,
    /// Times that the cache is emptied to make room, which costs time.
    pub retries: u64,
    /// Bytes left above the peak reserved; below zero, what is missing without a limit.
    pub margin: i64,
}

/// A program on one card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FitRow {
    /// As it is sold, in GB.
    pub card_gb: u64,
    /// Bytes of the card.
    pub bytes: u64,
    /// Bytes of it that the program cannot have.
    pub untracked: u64,
    /// Bytes that the program can have.
    pub usable: u64,
    /// By setting, the program's own first.
    pub settings: Vec<FitCell>,
    /// What to change, in one sentence.
    pub advice: String,
}

/// A program on usual cards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fit {
    /// Peak of the bytes asked for: no allocator needs less.
    pub peak_requested: u64,
    /// By card, smallest first.
    pub rows: Vec<FitRow>,
}

/// Replays the program on every card of `cards_gb` under its own settings and under expandable
/// segments.
///
/// # Errors
/// [`Reason`] when the sizes cannot all exist.
pub fn fit(
    history: &History,
    run: &PytorchConfig,
    cards_gb: &[u64],
    untracked: Untracked,
) -> Result<Fit, Reason> {
    let served = Requests::served(history);
    let all = Requests::all(history)?;
    let mut settings = vec![run.clone()];
    if !run.expandable_segments {
        let expandable = PytorchConfig { expandable_segments: true, ..PytorchConfig::default() };
        settings.push(expandable);
    }
    let free: Vec<WhatIf> = settings
        .iter()
        .map(|config| whatif(&served, history, &ModelSpec::Pytorch(config.clone()), None))
        .collect();
    let rows = cards_gb.iter().map(|&card_gb| {
        let bytes = card_gb.saturating_mul(GIB);
        let taken = untracked.of(bytes).min(bytes);
        let usable = bytes - taken;
        let cells: Vec<FitCell> = settings
            .iter()
            .zip(&free)
            .map(|(config, free)| cell(&all, history, config, free, usable))
            .collect();
        let advice = advice(&cells, served.peak_requested(), usable);
        FitRow { card_gb, bytes, untracked: taken, usable, settings: cells, advice }
    });
    Ok(Fit { peak_requested: served.peak_requested(), rows: rows.collect() })
}

fn cell(
    all: &Requests,
    history: &History,
    config: &PytorchConfig,
    free: &WhatIf,
    usable: u64,
) -> FitCell {
    let under = whatif(all, history, &ModelSpec::Pytorch(config.clone()), Some(usable));
    let fits = under.failures == 0;
    let peak = if fits { under.peak_reserved } else { free.peak_reserved };
    let margin =
        i64::try_from(usable).unwrap_or(i64::MAX) - i64::try_from(peak).unwrap_or(i64::MAX);
    let WhatIf { failures, retries, .. } = under;
    FitCell { conf: config.to_conf(), fits, failures, retries, margin }
}

fn advice(cells: &[FitCell], peak_requested: u64, usable: u64) -> String {
    let easily = cells.iter().position(|cell| cell.fits && cell.retries == 0);
    match easily.or_else(|| cells.iter().position(|cell| cell.fits)) {
        Some(0) if easily.is_some() => "runs as it is".to_owned(),
        Some(0) => "runs, and empties its cache to make room: slower".to_owned(),
        Some(at) => format!("set PYTORCH_CUDA_ALLOC_CONF={}", cells[at].conf),
        None if peak_requested > usable => {
            let short = Bytes(peak_requested - usable);
            format!("cut {short} from the peak: no allocator helps")
        }
        None => "no setting here serves it; see `terrane tune --card`".to_owned(),
    }
}
