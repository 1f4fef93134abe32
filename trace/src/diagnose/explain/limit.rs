//! How much the process could reserve: given, or between what it had and what it was refused.

use crate::diagnose::timeline::reserved_before;
use crate::model::{Pytorch, PytorchConfig, SegmentOp};
use crate::snapshot::{History, Snapshot};
use serde::Serialize;

/// The limit on reserved bytes. A snapshot does not contain it, so unless it is given it is an
/// interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// The limit as it was given.
    pub given: Option<u64>,
    /// It is at least this: as much was reserved at some moment.
    pub at_least: u64,
    /// It is at most this: with one byte more, a request that failed would have been served.
    pub at_most: Option<u64>,
}

impl Limit {
    pub(in crate::diagnose) fn of(
        snapshot: &Snapshot,
        history: &History,
        config: &PytorchConfig,
        given: Option<u64>,
    ) -> Self {
        let sizes = Pytorch::new(config.clone(), None);
        let mut reserved = reserved_before(snapshot, history);
        let mut limit = Self { given, at_least: reserved, at_most: None };
        let mut changes = history.segments.iter().peekable();
        for attempt in &history.attempts {
            while let Some(change) = changes.next_if(|c| c.entry < attempt.entry) {
                let bytes = change.event.bytes;
                reserved = match change.event.op {
                    SegmentOp::Alloc | SegmentOp::Map => reserved.saturating_add(bytes),
                    SegmentOp::Free | SegmentOp::Unmap => reserved.saturating_sub(bytes),
                };
                limit.at_least = limit.at_least.max(reserved);
            }
            // The request failed although the cache had been given back before it.
            if let Some((_, segment)) = sizes.sizes_for(attempt.bytes) {
                let refused = reserved.saturating_add(segment).saturating_sub(1);
                limit.at_most = Some(limit.at_most.map_or(refused, |most| most.min(refused)));
                if attempt.device_free < segment {
                    // The device itself was full: all of it could have been had, not more.
                    let all = reserved.saturating_add(attempt.device_free);
                    limit.at_least = limit.at_least.max(all);
                }
            }
        }
        limit
    }

    /// The largest limit that it may have been.
    pub(super) fn most(&self) -> Option<u64> {
        self.given.or(self.at_most)
    }

    /// The smallest limit that it may have been.
    pub(super) fn least(&self) -> u64 {
        self.given.unwrap_or(self.at_least)
    }

    /// A limit under which the recorded run is possible: the given one, if the recording does
    /// not contradict it.
    pub(in crate::diagnose) fn of_the_run(&self) -> Option<u64> {
        let possible =
            |given: &u64| *given >= self.at_least && self.at_most.is_none_or(|most| *given <= most);
        self.given.filter(possible).or(self.at_most)
    }
}
