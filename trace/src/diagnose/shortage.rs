//! Why a request failed in a recording that tells what was left: our own trace files.

use super::Class;
use super::timeline::timeline_each;
use crate::snapshot::{History, Snapshot};
use serde::Serialize;

/// The last request that failed, by the figures at that moment. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Shortage {
    /// The verdict: capacity, pending or fragmentation.
    pub class: Class,
    /// Requests that failed in the whole recording.
    pub failures: u64,
    /// Events of the trace before it.
    pub event: u64,
    /// Asked for.
    pub asked: u64,
    /// Stream that asked.
    pub stream: u32,
    /// Asked for by live blocks.
    pub live: u64,
    /// Freed and still in use by work.
    pub pending: u64,
    /// Memory objects.
    pub reserved: u64,
    /// What the limit and the device would still have given.
    pub left: u64,
    /// Bytes by which live bytes and the request exceed what there is; 0 when they fit.
    pub short_bytes: u64,
}

/// Explains the last failure; `None` where nothing failed.
#[must_use]
pub fn shortage(snapshot: &Snapshot, history: &History) -> Option<Shortage> {
    let last = history.attempts.last()?;
    let before = timeline_each(snapshot, history).take(last.before_event).last();
    let point = before.unwrap_or_default();
    let there = point.reserved.saturating_add(last.device_free);
    let (class, short_bytes) = Class::of_shortage(last.bytes, point.requested, point.active, there);
    Some(Shortage {
        class,
        failures: history.attempts.len() as u64,
        event: last.before_event as u64,
        asked: last.bytes,
        stream: last.stream,
        live: point.requested,
        pending: point.active - point.requested,
        reserved: point.reserved,
        left: last.device_free,
        short_bytes,
    })
}

impl Class {
    /// The verdict on a request of an allocator that tells what it could still have had, and the
    /// bytes that are missing for what is live and the request.
    pub(crate) fn of_shortage(asked: u64, live: u64, active: u64, there: u64) -> (Self, u64) {
        let short = |needed: u64| needed.saturating_add(asked).saturating_sub(there);
        let class = if short(live) > 0 {
            Self::Capacity
        } else if short(active) > 0 {
            Self::Pending
        } else {
            Self::Fragmentation
        };
        (class, short(live))
    }
}
