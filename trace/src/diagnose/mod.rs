//! What happened in a recorded program, why it failed, and what would have helped.
//!
//! Everything here is computed from a [`Snapshot`](crate::snapshot::Snapshot) and its
//! [`History`](crate::snapshot::History), returns plain data that serialises to JSON, and
//! guesses nothing: what a file does not say is absent or given as an interval.

mod compare;
mod explain;
mod fit;
mod heap;
mod leaks;
mod log;
mod message;
mod shortage;
mod sidecar;
mod sites;
mod timeline;
mod tune;
mod whatif;
mod why;

pub use compare::{Change, Comparison, SiteChange, compare};
pub use explain::{
    Chain, Class, Explanation, Fault, Known, Limit, Remedy, Survived, Window, explain, settings,
};
pub use fit::{CARDS_GB, Fit, FitCell, FitRow, Untracked, fit};
pub use heap::{Heap, heap_after, heap_by_address};
pub use leaks::{LeakClass, LeakOptions, Leaks, StepSource, Verdict, judge_trace, leaks};
pub use log::{LogShortage, Served, explain_log};
pub use message::{MessageVerdict, OutOfMemoryMessage};
pub use shortage::{Shortage, shortage};
pub use sidecar::Sidecar;
pub use sites::{Moment, SiteBy, SiteRow, Sites, peak, peak_by, site_name, sites};
pub use timeline::{Timeline, TimelinePoint, timeline, timeline_each};
pub use tune::{Tuned, Tuning, tune};
pub use whatif::{Requests, WhatIf, recorded_model, whatif, whatif_terrane};
pub use why::{Held, When, Why, find_block, why};
