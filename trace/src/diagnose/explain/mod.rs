//! Why a request failed: one verdict, then the chain of numbers behind it.

mod chain;
mod limit;
mod remedy;

pub use chain::{Chain, Window};
pub use limit::Limit;
pub use remedy::Remedy;

use crate::Reason;
use crate::diagnose::sites::{Names, SiteBy};
use crate::model::PytorchConfig;
use crate::snapshot::{Attempt, History, Snapshot};
use chain::Replayed;
use serde::Serialize;
use std::collections::HashMap;

/// The one cause that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Live bytes and the request together exceed the limit: no allocator helps.
    Capacity,
    /// There is room, in pieces too small.
    Fragmentation,
    /// There is room behind work of other streams that had not ended.
    Pending,
    /// A free block is large enough and belongs to another stream.
    OtherStream,
    /// The request alone exceeds the limit that the process set itself; the device had room.
    UserLimit,
    /// Other processes (or memory outside PyTorch) hold what is missing.
    OtherProcess,
    /// The request alone exceeds the device.
    AbsurdRequest,
}

/// What is known beside the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Bytes that the process may reserve.
    pub limit: Option<u64>,
    /// Bytes that the device has.
    pub device_total: Option<u64>,
}

/// What was asked for and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Entry of the device's history.
    pub entry: u64,
    /// Events of the replayable trace before it.
    pub event: u64,
    /// Bytes asked for.
    pub asked: u64,
    /// Stream that asked, by its number in the snapshot.
    pub stream: u32,
    /// The program's own line that asked, if it was recorded.
    pub site: Option<String>,
    /// The innermost frame, if it was recorded.
    pub top: Option<String>,
    /// True when nothing was allocated after it: the run ended there.
    pub fatal: bool,
}

/// Failures that the program survived, folded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Survived {
    /// How many.
    pub count: u64,
    /// Largest request among them.
    pub largest: u64,
    /// Their innermost frames and how often, most frequent first.
    pub tops: Vec<(String, u64)>,
}

/// Why the last request failed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The verdict.
    pub class: Class,
    /// The request that failed last.
    pub fault: Fault,
    /// All failures.
    pub failures: u64,
    /// Failures before it that the program survived.
    pub survived: Survived,
    /// The limit, given or inferred.
    pub limit: Limit,
    /// Bytes by which live bytes and the request exceed the limit (as much of it as the file
    /// proves); 0 when they fit.
    pub short_bytes: u64,
    /// Bytes of the device that are neither reserved here nor free; `None` where the device's
    /// total is not known.
    pub untracked: Option<u64>,
    /// The numbers behind the verdict.
    pub chain: Chain,
    /// Settings that serve the request in a replay, best first; empty when none does.
    pub remedies: Vec<Remedy>,
    /// True when the model made exactly the recorded segments up to the failure, so that the
    /// chain's numbers are those of the run; otherwise they are an estimate.
    pub exact: bool,
}

/// Explains the last failure in a history; `None` where nothing failed.
///
/// # Errors
/// [`Reason`] when the history's sizes cannot all exist.
pub fn explain(
    snapshot: &Snapshot,
    history: &History,
    known: Known,
) -> Result<Option<Explanation>, Reason> {
    let Some(last) = history.attempts.last() else { return Ok(None) };
    let config = settings(snapshot);
    let limit = Limit::of(snapshot, history, &config, known.limit);
    let replayed = Replayed::until_last_failure(history, &config, limit.of_the_run())?;
    let chain = Chain::of(last, &replayed);
    let seen = chain.reserved.saturating_add(chain.device_free);
    let untracked = known.device_total.map(|total| total.saturating_sub(seen));
    let short_bytes = chain.needed().saturating_sub(limit.least());
    let class = class_of(&chain, &limit, known.device_total.unwrap_or(seen), untracked);
    let remedies = match class {
        Class::Fragmentation | Class::Pending | Class::OtherStream => {
            remedy::search(history, &config, limit.least())?
        }
        _ => Vec::new(),
    };
    Ok(Some(Explanation {
        class,
        fault: fault(snapshot, history, last),
        failures: history.attempts.len() as u64,
        survived: survived(snapshot, history),
        short_bytes,
        untracked,
        limit,
        exact: replayed.exact,
        chain,
        remedies,
    }))
}

/// The settings that the file says the program ran under; the default ones where it says none.
#[must_use]
pub fn settings(snapshot: &Snapshot) -> PytorchConfig {
    let conf = snapshot.settings.conf.as_deref().unwrap_or_default();
    let mut config = PytorchConfig::from_conf(conf).unwrap_or_default();
    if let Some(expandable) = snapshot.settings.expandable_segments {
        config.expandable_segments = expandable;
    }
    // The fraction is what is to be inferred; the limit stands for it.
    config.memory_fraction = 1.0;
    config
}

fn class_of(chain: &Chain, limit: &Limit, device: u64, untracked: Option<u64>) -> Class {
    if chain.rounded > device {
        return Class::AbsurdRequest;
    }
    if limit.most().is_some_and(|most| chain.rounded > most) {
        return Class::UserLimit;
    }
    let short = chain.needed().saturating_sub(limit.least());
    if short > 0 {
        let device_is_full = chain.device_free < chain.segment_bytes;
        let others = device_is_full && untracked.is_some_and(|bytes| bytes >= short);
        return if others { Class::OtherProcess } else { Class::Capacity };
    }
    if chain.best_hole_other_stream >= chain.rounded {
        Class::OtherStream
    } else if chain.best_hole_with_pending >= chain.rounded {
        Class::Pending
    } else {
        Class::Fragmentation
    }
}

fn fault(snapshot: &Snapshot, history: &History, last: &Attempt) -> Fault {
    let site = |by| {
        let mut names = Names { snapshot, by, known: HashMap::new() };
        last.stack.map(|stack| names.of(stack).to_owned())
    };
    Fault {
        entry: last.entry as u64,
        event: last.before_event as u64,
        asked: last.bytes,
        stream: last.stream,
        site: site(SiteBy::User),
        top: site(SiteBy::Top),
        fatal: is_fatal(history, last),
    }
}

fn is_fatal(history: &History, last: &Attempt) -> bool {
    history.fatal().is_some_and(|fatal| fatal.entry == last.entry)
}

fn survived(snapshot: &Snapshot, history: &History) -> Survived {
    let Some((last, earlier)) = history.attempts.split_last() else {
        return Survived { count: 0, largest: 0, tops: Vec::new() };
    };
    let survived = if is_fatal(history, last) { earlier } else { &history.attempts };
    let mut names = Names { snapshot, by: SiteBy::Top, known: HashMap::new() };
    let mut tops: HashMap<String, u64> = HashMap::new();
    for attempt in survived {
        let top = attempt.stack.map_or("no frames", |stack| names.of(stack));
        *tops.entry(top.to_owned()).or_default() += 1;
    }
    let mut tops: Vec<(String, u64)> = tops.into_iter().collect();
    tops.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let largest = survived.iter().map(|attempt| attempt.bytes).max().unwrap_or(0);
    Survived { count: survived.len() as u64, largest, tops }
}
