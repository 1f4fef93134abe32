//! What another allocator would have done with the recorded requests.

use super::explain::settings;
use crate::model::{Failure, Model, ModelSpec, Pytorch, Validation, replay_each};
use crate::replay::{Replay, ReplayError};
use crate::snapshot::{History, Snapshot};
use crate::{Reason, Trace};
use serde::Serialize;

/// The requests of a recorded program, as far as the recording goes: those that were served and,
/// where a limit is asked about, those that failed too.
#[derive(Debug)]
pub struct Requests {
    trace: Trace,
    /// For each event, the failed request that it belongs to.
    attempt_of: Vec<Option<u32>>,
    /// The failed request that ended the recorded run.
    fatal: Option<u32>,
    peak_requested: u64,
}

impl Requests {
    /// A workload without failures.
    #[must_use]
    pub fn of(trace: Trace) -> Self {
        let peak_requested = trace.figures().peak_requested;
        Self { attempt_of: vec![None; trace.events().len()], trace, fatal: None, peak_requested }
    }

    /// Only the requests that were served.
    #[must_use]
    pub fn served(history: &History) -> Self {
        Self::of(history.trace.clone())
    }

    /// All requests; each that failed is freed as soon as it is served.
    ///
    /// # Errors
    /// [`Reason`] when the sizes cannot all exist.
    pub fn all(history: &History) -> Result<Self, Reason> {
        let (trace, attempt_of) = history.with_attempts()?;
        let last = history.attempts.len().checked_sub(1).and_then(|last| u32::try_from(last).ok());
        let fatal = history.fatal().and(last);
        let peak_requested = history.trace.figures().peak_requested;
        Ok(Self { trace, attempt_of, fatal, peak_requested })
    }

    /// The requests that a question about `capacity` is about: all of them under a limit, those
    /// that were served without one.
    ///
    /// # Errors
    /// As [`all`](Self::all).
    pub fn under(history: &History, capacity: Option<u64>) -> Result<Self, Reason> {
        if capacity.is_some() { Self::all(history) } else { Ok(Self::served(history)) }
    }

    /// The requests as a trace.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Peak of the bytes asked for by blocks that the program had.
    #[must_use]
    pub fn peak_requested(&self) -> u64 {
        self.peak_requested
    }

    /// Whether the recorded program went on after the request of this event had failed.
    #[must_use]
    pub fn survived(&self, event: usize) -> bool {
        let attempt = self.attempt_of.get(event).copied().flatten();
        attempt.is_some() && attempt != self.fatal
    }
}

/// What an allocator would have done. Bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WhatIf {
    /// The allocator's name with its options.
    pub model: String,
    /// Peak of the bytes asked for.
    pub peak_requested: u64,
    /// Peak of the bytes obtained from the driver.
    pub peak_reserved: u64,
    /// Requests refused that the recorded program did not survive.
    pub failures: u64,
    /// Requests refused that the recorded program was refused too and survived.
    pub survived_failures: u64,
    /// Times that the allocator gave its cache back, or waited, to ask the driver once more.
    pub retries: u64,
    /// Times that a stream had to wait for another one to reuse its memory.
    pub waits: u64,
    /// The limit on reserved bytes, `null` for none.
    pub capacity: Option<u64>,
    /// The first request refused.
    pub first_failure: Option<Failure>,
    /// How far the model may be believed.
    pub validation: Validation,
}

/// Replays the requests through a model. `placed` gives the recorded segments their addresses,
/// which decide between equal blocks.
#[must_use]
pub fn whatif(
    requests: &Requests,
    history: &History,
    spec: &ModelSpec,
    capacity: Option<u64>,
) -> WhatIf {
    let mut model: Box<dyn Model> = match spec {
        ModelSpec::Pytorch(config) if !config.expandable_segments => {
            let model = Pytorch::new(config.clone(), capacity);
            Box::new(model.with_addresses(history.placed()))
        }
        spec => spec.build(capacity),
    };
    let mut survived_failures = 0;
    let outcome = replay_each(&requests.trace, model.as_mut(), |step, _| {
        survived_failures += u64::from(step.refused && requests.survived(step.event));
    });
    WhatIf {
        model: spec.to_string(),
        peak_requested: requests.peak_requested,
        peak_reserved: outcome.peak_reserved,
        failures: outcome.failures - survived_failures,
        survived_failures,
        retries: outcome.retries,
        waits: outcome.waits,
        capacity,
        first_failure: outcome.first_failure,
        validation: spec.validation(),
    }
}

/// Plays a replay of the requests' trace through this project's allocator to its end.
///
/// # Errors
/// [`ReplayError`] for everything but a refused request.
pub fn whatif_terrane(
    requests: &Requests,
    name: &str,
    mut replay: Replay<'_>,
) -> Result<WhatIf, ReplayError> {
    let mut survived_failures = 0;
    let doubtful = (0..requests.attempt_of.len()).filter(|event| requests.survived(*event));
    for event in doubtful.collect::<Vec<_>>() {
        replay.step(event - replay.position())?;
        let before = replay.allocator().stats().out_of_memory;
        replay.step(1)?;
        let after = replay.allocator().stats().out_of_memory;
        survived_failures += u64::from(after > before);
    }
    while replay.step(1 << 16)? > 0 {}
    let retries = replay.allocator().stats().retries;
    let report = replay.finish()?;
    Ok(WhatIf {
        model: name.to_owned(),
        peak_requested: requests.peak_requested,
        peak_reserved: report.peak_reserved,
        failures: report.failures.saturating_sub(survived_failures),
        survived_failures,
        retries,
        waits: report.waits,
        capacity: report.capacity,
        first_failure: None,
        validation: Validation::Validated {
            within_percent: 0.0,
            against: "it is the allocator itself, on a model of the device",
        },
    })
}

/// What the file says the program ran under, as a model.
#[must_use]
pub fn recorded_model(snapshot: &Snapshot) -> ModelSpec {
    ModelSpec::Pytorch(settings(snapshot))
}
