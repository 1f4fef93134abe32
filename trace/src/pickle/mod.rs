//! Python pickles of plain data, read by a stack machine that executes nothing.
//!
//! Only the opcodes that numbers, strings, lists, tuples and dictionaries need are carried out;
//! any other one ends the reading with its name and offset. What the file stores once and refers
//! to often is held once, so memory grows with the file and never with its references.

mod container;
mod error;
mod machine;
mod opcode;
mod source;
#[cfg(test)]
mod tests;
mod value;

pub(crate) use error::reason_of_json;
pub use error::{PickleError, PickleReason};
pub(crate) use machine::{Fold, Pickled, read};
pub(crate) use source::reason_of;
pub(crate) use value::{Arena, Dict, Value};
pub use value::{Strings, Text};

/// What a reader accepts before it refuses a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PickleLimits {
    /// Open marks at once: how deep containers nest.
    pub depth: u32,
    /// Values pushed in all.
    pub items: u64,
    /// Bytes of one string.
    pub string_bytes: u64,
    /// Bytes of memory for all that is held, approximately.
    pub memory_bytes: u64,
}

impl Default for PickleLimits {
    fn default() -> Self {
        Self { depth: 64, items: 1 << 33, string_bytes: 64 << 20, memory_bytes: 8 << 30 }
    }
}
