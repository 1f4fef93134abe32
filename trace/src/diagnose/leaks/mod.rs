//! Does the program keep more and more memory, and which line keeps it?
//!
//! The history is cut at steps. Of each step and site the least live bytes are taken, so that
//! what a step uses and returns plays no part. The curves of these decide; `judge` has the rules.
//! What comes after the last allocation (the program ends, or a stack unwinds) is left out.

mod curves;
mod judge;
mod steps;

pub use steps::StepSource;

use crate::Trace;
use crate::diagnose::explain::settings;
use crate::diagnose::sites::{Names, SiteBy};
use crate::model::{Pytorch, PytorchConfig};
use crate::snapshot::{History, Snapshot};
use curves::Curves;
use serde::Serialize;
use std::collections::HashMap;
use steps::Steps;

/// What kind of growth there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeakClass {
    /// A site keeps about as much more at every step.
    Accumulating,
    /// A site keeps a multiple of what it kept some steps before.
    Exponential,
    /// Small blocks that stay hold ever more large segments that are otherwise empty.
    Fragmenting,
    /// Ever more freed blocks wait for other streams.
    PendingBacklog,
    /// It grew and has stopped growing.
    Plateau,
    /// It does not grow.
    None,
    /// Too few steps to say.
    Unknown,
}

/// How to look for leaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeakOptions {
    /// Length of a step in events of the trace, if it is known; otherwise steps are found.
    pub period: Option<usize>,
}

/// The verdict on growth, with the site as a number of the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The verdict.
    pub class: LeakClass,
    /// The site that keeps the memory; `None` where the class has no single one.
    pub site: Option<u64>,
    /// Bytes kept more per step, on average over the steps judged.
    pub bytes_per_step: f64,
    /// First step of the growth.
    pub first_step: Option<u64>,
    /// 0 to 1: how clearly the curve has the shape of its class, and how many steps show it.
    pub confidence: f64,
    /// Number of steps seen.
    pub steps: u64,
    /// How many steps it takes to say, where there are too few.
    pub steps_needed: Option<u64>,
    /// How the steps were found.
    pub step_source: StepSource,
}

/// The verdict on growth in a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Leaks {
    /// Verdict and numbers.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The program's own line that keeps the memory.
    pub line: Option<String>,
    /// What to do.
    pub advice: &'static str,
}

/// Looks for leaks in a history.
#[must_use]
pub fn leaks(snapshot: &Snapshot, history: &History, options: LeakOptions) -> Leaks {
    let origins = history.blocks.iter().zip(history.trace.lifetimes());
    let sites: Vec<u64> = origins
        .map(|(origin, life)| match origin.stack {
            Some(stack) => u64::from(stack.index()),
            // Without frames, blocks of one size are taken for one site.
            None => NO_FRAMES | life.bytes,
        })
        .collect();
    let steps = match options.period {
        Some(period) => Steps::every(&history.trace, period),
        None => Steps::annotated(snapshot, history)
            .unwrap_or_else(|| Steps::found(&history.trace, &sites)),
    };
    let steps = steps.until_last_alloc(&history.trace);
    let model = Pytorch::new(settings(snapshot), None).with_addresses(history.placed());
    let verdict = judge::judge(&Curves::of(&history.trace, &sites, &steps, model));
    let line = verdict.site.and_then(|site| line_of(snapshot, history, &sites, site));
    Leaks { verdict, line, advice: advice(verdict.class) }
}

/// Looks for leaks in a trace whose blocks have the given sites, one for each block; the
/// placement is that of PyTorch's default rules.
#[must_use]
pub fn judge_trace(trace: &Trace, sites: &[u64], options: LeakOptions) -> Verdict {
    let steps = match options.period {
        Some(period) => Steps::every(trace, period),
        None => Steps::found(trace, sites),
    };
    let steps = steps.until_last_alloc(trace);
    let model = Pytorch::new(PytorchConfig::default(), None);
    judge::judge(&Curves::of(trace, sites, &steps, model))
}

/// Marks the site of blocks without frames; the rest is their size.
const NO_FRAMES: u64 = 1 << 63;

fn line_of(snapshot: &Snapshot, history: &History, sites: &[u64], site: u64) -> Option<String> {
    let block = sites.iter().position(|other| *other == site)?;
    let Some(stack) = history.blocks.get(block)?.stack else {
        return Some(format!("no frames, {} bytes each", site & !NO_FRAMES));
    };
    let mut names = Names { snapshot, by: SiteBy::User, known: HashMap::new() };
    Some(names.of(stack).to_owned())
}

fn advice(class: LeakClass) -> &'static str {
    match class {
        LeakClass::Accumulating => {
            "find what keeps the tensors of this line: a list or a logged loss that holds its \
             graph; keep `.item()` or `.detach().cpu()` instead"
        }
        LeakClass::Exponential => {
            "this line makes its tensor a multiple larger each time: look for a concatenation \
             with itself, or a shape that feeds back"
        }
        LeakClass::Fragmenting => {
            "allocate what this line keeps before the loop or in one piece, or use \
             expandable_segments:True; `tune` replays the settings"
        }
        LeakClass::PendingBacklog => {
            "frees wait for other streams: check that they make progress, and that record_stream \
             names only the streams that use the block"
        }
        LeakClass::Plateau => "nothing: it grew while caches and optimizer state were filled",
        LeakClass::None => "nothing: no growth",
        LeakClass::Unknown => "record more steps",
    }
}
