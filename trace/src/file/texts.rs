//! What a file says beside events: names by number, and where it comes from.

use serde::{Deserialize, Serialize};

/// What a text is the name of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TextKind {
    /// A call site: `file:line`; or a call stack, a frame a line, innermost first, each with the
    /// function behind a tab.
    Site,
    /// A block's name.
    Name,
    /// A tag.
    Tag,
}

/// A text and the number by which events refer to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Text {
    /// What it names.
    pub kind: TextKind,
    /// Its number among those of its kind.
    pub number: u32,
    /// The text.
    pub text: String,
}

/// Where a file comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Meta {
    /// The program that recorded it.
    pub program: String,
    /// The allocator whose events these are.
    pub allocator: String,
    /// The device, backend and name.
    pub device: String,
    /// Bytes of the device's largest heap; 0 for unknown.
    pub device_bytes: u64,
    /// Process number.
    pub process: u32,
    /// Microseconds since 1970 when recording began.
    pub started_us: u64,
    /// The allocator's clock at that moment, nanoseconds.
    pub started_ns: u64,
    /// What each memory class of the events is for, by its number; empty for unknown.
    pub kinds: Vec<String>,
    /// Why the last events were written, of a flight recorder's file; else empty.
    pub reason: String,
}

/// Figures of an allocator at one moment, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Asked for by live blocks.
    pub requested: u64,
    /// The same after rounding.
    pub allocated: u64,
    /// With freed blocks that work may still use.
    pub active: u64,
    /// Memory objects.
    pub reserved: u64,
    /// Free in segments.
    pub free: u64,
    /// Largest free range.
    pub largest_free: u64,
    /// Freed and not yet reusable.
    pub pending: u64,
    /// Live blocks.
    pub blocks: u64,
    /// Requests that failed so far.
    pub out_of_memory: u64,
    /// The device's first heap.
    pub heap_total: u64,
    /// Free in it; `None` where the driver does not say.
    pub heap_free: Option<u64>,
}

impl Status {
    /// 1 - largest free / total free; 0 without free memory.
    #[must_use]
    pub fn fragmentation(&self) -> f64 {
        if self.free == 0 { 0.0 } else { 1.0 - self.largest_free as f64 / self.free as f64 }
    }

    /// Bytes of the device that are neither free nor reserved here.
    #[must_use]
    pub fn untracked(&self) -> Option<u64> {
        let used = self.heap_total.saturating_sub(self.heap_free?);
        Some(used.saturating_sub(self.reserved))
    }
}
