//! Settings that would have served the request, found by replaying them.

use crate::Reason;
use crate::model::{Pytorch, PytorchConfig, replay_each};
use crate::snapshot::History;
use serde::Serialize;

/// A setting under which the replay serves every request that mattered. The premise: the program
/// makes the same requests in the same order, as far as the recording goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// Text for `PYTORCH_CUDA_ALLOC_CONF`.
    pub conf: String,
    /// Peak that it reserves, bytes.
    pub peak_reserved: u64,
    /// Limit under which it was replayed, bytes.
    pub capacity: u64,
    /// Failures left that the program survived in the recording too.
    pub survived_failures: u64,
    /// Times that the cache was emptied and the driver asked again.
    pub retries: u64,
    /// The command that repeats the replay; FILE stands for the snapshot.
    pub command: String,
}

/// Tried in this order; each is a change to the settings of the run. Expandable segments stay
/// without a split limit and garbage collection, as in `tune`: with those PyTorch is known to fail
/// its own assertions.
const CANDIDATES: [(&str, &str); 7] = [
    ("expandable_segments", "True"),
    ("max_split_size_mb", "512"),
    ("max_split_size_mb", "256"),
    ("max_split_size_mb", "128"),
    ("max_split_size_mb", "64"),
    ("roundup_power2_divisions", "8"),
    ("roundup_power2_divisions", "4"),
];

/// The candidates that serve all but failures that were survived, least reserved first.
pub(super) fn search(
    history: &History,
    config: &PytorchConfig,
    capacity: u64,
) -> Result<Vec<Remedy>, Reason> {
    let (trace, attempt_of) = history.with_attempts()?;
    let last = u32::try_from(history.attempts.len().saturating_sub(1)).ok();
    let mut remedies = Vec::new();
    for (key, value) in CANDIDATES {
        let mut changed = config.clone();
        match key {
            "expandable_segments" => (changed.max_split_bytes, changed.gc_threshold) = (None, 0.0),
            "max_split_size_mb" if config.expandable_segments => continue,
            _ => {}
        }
        if changed.set(key, value).is_err() || changed == *config {
            continue;
        }
        let mut model = Pytorch::new(changed.clone(), Some(capacity));
        let (mut useless, mut survived_failures) = (false, 0);
        let outcome = replay_each(&trace, &mut model, |step, _| {
            if step.refused {
                let attempt = attempt_of[step.event];
                useless |= attempt.is_none() || attempt == last;
                survived_failures += 1;
            }
        });
        if useless {
            continue;
        }
        remedies.push(Remedy {
            conf: changed.to_conf(),
            peak_reserved: outcome.peak_reserved,
            capacity,
            survived_failures,
            retries: outcome.retries,
            command: command(&changed, capacity),
        });
    }
    remedies.sort_by_key(|remedy| (remedy.survived_failures, remedy.peak_reserved));
    Ok(remedies)
}

fn command(config: &PytorchConfig, capacity: u64) -> String {
    // Options of a model are written with `=`; lists within brackets keep their colons.
    let items = config.to_options();
    let options: Vec<String> = items.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let options = options.join(",");
    format!("terrane whatif FILE --allocator 'pytorch:{options}' --capacity {capacity}")
}
