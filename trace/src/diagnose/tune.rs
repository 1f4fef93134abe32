//! Which of PyTorch's settings needs the least memory for a recorded program.

use super::whatif::Requests;
use crate::model::{Pytorch, PytorchConfig, replay_each};
use serde::Serialize;

/// One setting, replayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tuning {
    /// Text for `PYTORCH_CUDA_ALLOC_CONF`; empty for the default settings.
    pub conf: String,
    /// Peak that it reserves, bytes.
    pub peak_reserved: u64,
    /// Requests that fail at the capacity, without those that the recorded program survived.
    pub failures: u64,
    /// Times that the cache is emptied to ask the driver again, which costs time.
    pub retries: u64,
}

/// All settings, replayed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tuned {
    /// The settings of the run.
    pub before: Tuning,
    /// The best: fewest failures, then retries, then bytes reserved.
    pub best: Tuning,
    /// True when the best is better than the settings of the run: no failures in place of some,
    /// or at least 1 % less reserved. Otherwise no setting helps.
    pub helps: bool,
    /// Every setting tried, best first.
    pub tried: Vec<Tuning>,
}

/// Settings tried. `expandable_segments` stays alone but for rounding: with a split limit or
/// garbage collection PyTorch is known to fail its own assertions.
const CANDIDATES: [&str; 14] = [
    "",
    "expandable_segments:True",
    "expandable_segments:True,roundup_power2_divisions:8",
    "expandable_segments:True,roundup_power2_divisions:4",
    "max_split_size_mb:32",
    "max_split_size_mb:64",
    "max_split_size_mb:128",
    "max_split_size_mb:256",
    "max_split_size_mb:512",
    "max_split_size_mb:1024",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
    "roundup_power2_divisions:16",
    "max_split_size_mb:256,roundup_power2_divisions:8",
];

/// Replays every setting at `capacity` (`None`: without a limit). `run` is what the program ran
/// under.
#[must_use]
pub fn tune(requests: &Requests, run: &PytorchConfig, capacity: Option<u64>) -> Tuned {
    let before = tried(requests, run, capacity);
    let configs = CANDIDATES.iter().filter_map(|conf| PytorchConfig::from_conf(conf).ok());
    let mut all: Vec<Tuning> = configs.map(|config| tried(requests, &config, capacity)).collect();
    if !all.contains(&before) {
        all.push(before.clone());
    }
    // Of equal settings the earlier one is the simpler one.
    all.sort_by_key(|tuning| (tuning.failures, tuning.retries, tuning.peak_reserved));
    let best = all.first().unwrap_or(&before).clone();
    let serves = best.failures == 0 && before.failures > 0;
    let saves = best.failures <= before.failures
        && best.peak_reserved.saturating_add(before.peak_reserved / 100) <= before.peak_reserved;
    Tuned { helps: serves || saves, before, best, tried: all }
}

fn tried(requests: &Requests, config: &PytorchConfig, capacity: Option<u64>) -> Tuning {
    let mut survived = 0;
    let mut model = Pytorch::new(config.clone(), capacity);
    let outcome = replay_each(requests.trace(), &mut model, |step, _| {
        survived += u64::from(step.refused && requests.survived(step.event));
    });
    Tuning {
        conf: config.to_conf(),
        peak_reserved: outcome.peak_reserved,
        failures: outcome.failures - survived,
        retries: outcome.retries,
    }
}
