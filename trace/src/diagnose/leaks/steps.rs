//! Where the steps of a program begin and end in its history.

use crate::snapshot::{History, Snapshot};
use crate::{Op, Trace};
use serde::Serialize;
use std::collections::HashMap;

/// How the steps were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepSource {
    /// A period was given.
    Given,
    /// From annotations in the file (optimizer or profiler steps).
    Annotations,
    /// From a request that returns at even distances.
    Repetition,
    /// Nothing repeats: equal slices of the history.
    Slices,
}

/// Ends of steps, as numbers of events before them, ascending.
#[derive(Debug)]
pub(super) struct Steps {
    pub ends: Vec<usize>,
    pub source: StepSource,
}

/// Slices when nothing repeats.
const SLICES: usize = 24;
const RETURNS_MIN: usize = 3;
/// Distances between returns may differ by this share (standard deviation over mean).
const UNEVEN_MAX: f64 = 0.35;
/// Share of the history that a marker's returns must span.
const SPAN_MIN: f64 = 0.6;

impl Steps {
    /// Steps of a given number of events.
    pub(super) fn every(trace: &Trace, period: usize) -> Self {
        let ends = (1..=trace.events().len() / period.max(1)).map(|n| n * period.max(1)).collect();
        Self { ends, source: StepSource::Given }
    }

    /// Steps that the program's annotations mark.
    pub(super) fn annotated(snapshot: &Snapshot, history: &History) -> Option<Self> {
        let is_step = |name: &str| name.contains("Optimizer.step") || name.contains("ProfilerStep");
        let mut ends: Vec<usize> = snapshot
            .annotations
            .iter()
            .filter(|a| a.stage.is_none_or(|stage| snapshot.strings.get(stage) == "END"))
            .filter(|a| is_step(snapshot.strings.get(a.name)))
            .filter(|_| history.start_us > 0)
            .filter_map(|a| a.time_us.checked_sub(history.start_us))
            .map(|time| history.trace.events().partition_point(|event| event.time_us <= time))
            .collect();
        ends.dedup();
        (ends.len() >= 2).then_some(Self { ends, source: StepSource::Annotations })
    }

    /// Leaves out what comes after the last allocation.
    pub(super) fn until_last_alloc(mut self, trace: &Trace) -> Self {
        let last = trace.events().iter().rposition(|event| event.op == Op::Alloc);
        let length = last.map_or(0, |at| at + 1);
        self.ends.retain(|end| *end <= length);
        self
    }

    /// Steps between the returns of requests at even distances. A request is taken by its site
    /// and by its site and size; the number of returns that most of them agree on is the number
    /// of steps.
    pub(super) fn found(trace: &Trace, sites: &[u64]) -> Self {
        let mut returns: HashMap<(u64, Option<u64>), Vec<usize>> = HashMap::new();
        for (at, event) in trace.iter().enumerate().filter(|(_, event)| event.op == Op::Alloc) {
            let site = sites.get(event.block as usize).copied().unwrap_or(u64::MAX);
            for size in [None, Some(event.bytes)] {
                returns.entry((site, size)).or_default().push(at);
            }
        }
        let last = trace.events().iter().rposition(|event| event.op == Op::Alloc);
        let length = last.map_or(0, |at| at + 1);
        let even: Vec<Vec<usize>> =
            returns.into_values().filter(|at| is_even(at, length)).collect();
        let mut votes: HashMap<usize, usize> = HashMap::new();
        for at in &even {
            *votes.entry(at.len()).or_default() += 1;
        }
        let elected = votes.iter().max_by_key(|(count, votes)| (**votes, **count));
        let elected = elected.map_or(0, |(count, _)| *count);
        let markers = even.into_iter().filter(|at| at.len() == elected);
        match markers.min_by_key(|at| at[0]) {
            Some(ends) => Self { ends, source: StepSource::Repetition },
            None => {
                let ends = (1..=SLICES).map(|n| n * length / SLICES).collect();
                Self { ends, source: StepSource::Slices }
            }
        }
    }
}

fn is_even(at: &[usize], length: usize) -> bool {
    if at.len() < RETURNS_MIN || (at[at.len() - 1] - at[0]) as f64 <= SPAN_MIN * length as f64 {
        return false;
    }
    let gaps: Vec<f64> = at.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    variance.sqrt() <= UNEVEN_MAX * mean
}
