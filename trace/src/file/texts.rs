//! What a file says beside events: names by number, and where it comes from.

use serde::{Deserialize, Serialize};

/// What a text is the name of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TextKind {
    /// A call site: `file:line`.
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
}
