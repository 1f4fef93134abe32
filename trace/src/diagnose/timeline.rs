//! Bytes over time.

use crate::Op;
use crate::model::SegmentOp;
use crate::snapshot::{History, Snapshot};
use serde::Serialize;

/// Bytes at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TimelinePoint {
    /// Events of the history before this moment.
    pub event: u64,
    /// Microseconds since the start of the history.
    pub time_us: u64,
    /// Bytes asked for by live blocks.
    pub requested: u64,
    /// The same with blocks that were freed and are still in use by other streams.
    pub active: u64,
    /// Bytes obtained from the driver.
    pub reserved: u64,
}

/// Bytes over time, and their peaks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Timeline {
    /// In order of time, at most as many as were asked for; each is the moment of the largest
    /// active bytes in its slice of the events, so that no peak is lost.
    pub points: Vec<TimelinePoint>,
    /// The moment of the largest active bytes.
    pub peak: TimelinePoint,
    /// Largest bytes reserved at any moment.
    pub peak_reserved: u64,
    /// Bytes reserved before the history begins, from segments that it does not make.
    pub reserved_at_start: u64,
}

/// Bytes over the whole history in at most `points` points.
#[must_use]
pub fn timeline(snapshot: &Snapshot, history: &History, points: usize) -> Timeline {
    let reserved_at_start = reserved_before(snapshot, history);
    let mut timeline = Timeline { reserved_at_start, ..Timeline::default() };
    let slice = history.trace.events().len().div_ceil(points.max(1)).max(1);
    let mut best: Option<TimelinePoint> = None;
    for point in walk(history, reserved_at_start) {
        timeline.peak_reserved = timeline.peak_reserved.max(point.reserved);
        if point.active > timeline.peak.active {
            timeline.peak = point;
        }
        if best.is_none_or(|best| point.active > best.active) {
            best = Some(point);
        }
        if (point.event as usize).is_multiple_of(slice) {
            timeline.points.extend(best.take());
        }
    }
    timeline.points.extend(best);
    timeline
}

/// The bytes after every event.
pub fn timeline_each(
    snapshot: &Snapshot,
    history: &History,
) -> impl Iterator<Item = TimelinePoint> {
    walk(history, reserved_before(snapshot, history))
}

/// The bytes after every event.
pub(super) fn walk(
    history: &History,
    reserved_at_start: u64,
) -> impl Iterator<Item = TimelinePoint> {
    let mut segments = history.segments.iter().peekable();
    let mut point = TimelinePoint { reserved: reserved_at_start, ..TimelinePoint::default() };
    history.trace.iter().zip(1..).map(move |(event, number)| {
        // Segments that were made for this event come before it.
        while let Some(change) = segments.next_if(|c| c.before_event < number) {
            let bytes = change.event.bytes;
            point.reserved = match change.event.op {
                SegmentOp::Alloc | SegmentOp::Map => point.reserved.saturating_add(bytes),
                SegmentOp::Free | SegmentOp::Unmap => point.reserved.saturating_sub(bytes),
            };
        }
        match event.op {
            Op::Alloc => {
                point.requested += event.bytes;
                point.active += event.bytes;
            }
            Op::FreeRequested => point.requested -= event.bytes,
            Op::FreeCompleted => point.active -= event.bytes,
        }
        (point.event, point.time_us) = (number as u64, event.time_us);
        point
    })
}

/// Bytes reserved before the history: those at its end, less what it added.
pub(super) fn reserved_before(snapshot: &Snapshot, history: &History) -> u64 {
    let device = i64::try_from(history.device).unwrap_or(i64::MAX);
    let at_end = i128::from(snapshot.reserved_bytes(device));
    let signed = |op, bytes: u64| match op {
        SegmentOp::Alloc | SegmentOp::Map => i128::from(bytes),
        SegmentOp::Free | SegmentOp::Unmap => -i128::from(bytes),
    };
    let added: i128 = history.segments.iter().map(|c| signed(c.event.op, c.event.bytes)).sum();
    u64::try_from(at_end - added).unwrap_or(0)
}
