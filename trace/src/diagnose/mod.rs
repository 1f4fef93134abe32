//! What happened in a recorded program, why it failed, and what would have helped.
//!
//! Everything here is computed from a [`Snapshot`](crate::snapshot::Snapshot) and its
//! [`History`](crate::snapshot::History), returns plain data that serialises to JSON, and
//! guesses nothing: what a file does not say is absent or given as an interval.

mod explain;
mod leaks;
mod message;
mod sites;
mod timeline;
mod tune;

pub use explain::{
    Chain, Class, Explanation, Fault, Known, Limit, Remedy, Survived, Window, explain,
};
pub use leaks::{LeakClass, LeakOptions, Leaks, StepSource, Verdict, judge_trace, leaks};
pub use message::{MessageVerdict, OutOfMemoryMessage};
pub use sites::{Moment, SiteBy, SiteRow, Sites, peak, sites};
pub use timeline::{Timeline, TimelinePoint, timeline};
pub use tune::{Tuned, Tuning, tune};
