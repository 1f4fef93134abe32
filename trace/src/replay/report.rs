//! What a replay found, as one JSON object.

use serde::Serialize;

use super::Policy;

/// What a replay found. Bytes and counts are over the whole run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Name of the workload, as the caller gave it.
    pub trace: String,
    /// The device that it ran on.
    pub device: String,
    /// What every size was divided by. Above 1 the ratio says nothing about the workload.
    pub scale: u64,
    /// The limit in bytes, `null` for none.
    pub capacity: Option<u64>,
    /// When memory could be used again.
    pub policy: Policy,
    /// Peak of the bytes asked for, each counted until its free completed.
    pub peak_requested: u64,
    /// Peak of the allocator's active bytes: live blocks after rounding, and freed ones that work
    /// may still use.
    pub peak_active: u64,
    /// Peak of the bytes of memory objects.
    pub peak_reserved: u64,
    /// `peak_reserved / peak_requested`.
    pub ratio: f64,
    /// Bytes ever asked for.
    pub allocated_bytes: u64,
    /// Bytes that compaction has moved.
    pub moved_bytes: u64,
    /// Blocks that compaction has moved, each move counted.
    pub moves: u64,
    /// Most memory objects that existed at once.
    pub memory_objects: u64,
    /// Memory objects ever made for pages.
    pub pages_created: u64,
    /// Pages taken from free ranges.
    pub pages_stolen: u64,
    /// Dry runs that warmed the allocator before, 0 for none. What they made is in the peaks and
    /// in the pages created, not in the calls.
    pub warm_rounds: u32,
    /// Calls that get, map, unmap and give back memory.
    pub memory_calls: u64,
    /// Milliseconds of the calls that get, map, unmap and give back memory: modelled on `sim`,
    /// measured elsewhere.
    pub map_ms_total: f64,
    /// The part of it that belongs to events after the first tenth of them.
    pub map_ms_after_tenth: f64,
    /// The part of it that belongs to events after the first tenth of the recorded time.
    pub map_ms_after_tenth_of_time: f64,
    /// Milliseconds from the first event to the last.
    pub recorded_ms: f64,
    /// Allocations that had to wait for other work.
    pub waits: u64,
    /// Blocks whose memory, at hand-out, was compared with that of every use that had not ended:
    /// all of them with [`Policy::Wait`] on the model, where one handed out too early ends the
    /// replay.
    pub hand_outs_checked: u64,
    /// Milliseconds that streams stood still for those waits, by the recorded times: from the
    /// allocation to the recorded completion, summed over streams, overlapping waits of one
    /// stream once. That a stream which stands still is late afterwards is not modelled. 0 on
    /// real devices, where it is not observed.
    pub stall_ms: f64,
    /// Events replayed.
    pub events: u64,
    /// Requests that were refused.
    pub failures: u64,
    /// The hash of all placements, `null` unless asked for: of each hand-out its stream, segment,
    /// offset, bytes, waits and the bytes reserved by then, and of each refusal, in order. Segments
    /// and streams are numbered as they appear, so that devices can be compared.
    pub placements: Option<String>,
    /// Kernels run, built-in ones included.
    pub dispatches: u64,
    /// Bytes compared with their pattern.
    pub verified_bytes: u64,
    /// Blocks whose contents differed from their pattern.
    pub mismatches: u64,
    /// Wall time in nanoseconds spent in the allocator's calls, per event.
    pub ns_per_op: f64,
}
