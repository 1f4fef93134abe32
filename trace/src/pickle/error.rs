//! What can be wrong with a pickle, and where.

use std::io;

/// Why a pickle was refused, with the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {reason}")]
pub struct PickleError {
    /// Offset of the opcode at fault in the decompressed bytes, from 0.
    pub offset: u64,
    /// What is wrong there, and what to do about it.
    pub reason: PickleReason,
}

/// Reasons to refuse a pickle. All are permanent for the file at hand, except `Io` and
/// `Cancelled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PickleReason {
    /// The operating system refused to read.
    #[error("the file cannot be read ({0}); check the path and its permissions")]
    Io(io::ErrorKind),
    /// The caller's progress function asked to stop.
    #[error("reading was cancelled")]
    Cancelled,
    /// Not one byte was there.
    #[error("the file is empty; was the program stopped before it was written?")]
    Empty,
    /// The first bytes belong to no form that is read.
    #[error("this is no pickle of protocol 2 to 5 (nor gzip, zstd, a torch.save archive or JSON)")]
    NotPickle,
    /// The compressed data around the pickle is damaged.
    #[error("the compressed data is damaged; copy the file again")]
    Damaged,
    /// The file ends within the pickle.
    #[error("the file ends early; copy it again, or dump it again with room on the disk")]
    Truncated,
    /// Bytes follow the end of the pickle.
    #[error("bytes follow the end of the pickle; are several files joined into one?")]
    Trailing,
    /// A protocol outside 2 to 5.
    #[error("pickle protocol {0}; protocols 2 to 5 are read: dump it again with protocol=4")]
    Protocol(u8),
    /// An opcode that plain data does not need. It is not carried out.
    #[error("opcode {name} ({byte:#04x}) is refused: plain data does not need it")]
    Refused {
        /// The opcode.
        byte: u8,
        /// Its name in Python's pickletools.
        name: &'static str,
    },
    /// A byte that is no opcode of any protocol.
    #[error("{0:#04x} is no pickle opcode; the file is damaged")]
    UnknownOpcode(u8),
    /// An opcode found fewer values on the stack than it takes.
    #[error("opcode {0} finds too little on the stack; the file is damaged")]
    Underflow(&'static str),
    /// An opcode found a value of another type than it takes.
    #[error("opcode {opcode} finds {found} on the stack; the file is damaged")]
    WrongType {
        /// The opcode's name.
        opcode: &'static str,
        /// Type of the value that it found.
        found: &'static str,
    },
    /// A reference to something that was not stored.
    #[error("reference to memo {0}, which is not stored; the file is damaged")]
    Memo(u32),
    /// A dictionary that had become a record is changed later.
    #[error("a dictionary is changed after it was complete; no known writer does that")]
    Changed,
    /// The data is whole and is not what a memory snapshot holds.
    #[error("this is no memory snapshot: {0}")]
    Shape(&'static str),
    /// The text is no JSON.
    #[error("line {line}, column {column}: this is no JSON; the file is damaged or was edited")]
    Json {
        /// Line, from 1.
        line: u64,
        /// Column, from 1.
        column: u64,
    },
    /// A string is not UTF-8.
    #[error("a string is not UTF-8")]
    Utf8,
    /// An integer beyond 64 bits.
    #[error("an integer of {0} bytes; at most 64 bits are read")]
    Integer(u32),
    /// A string is longer than the limit.
    #[error("a string of {bytes} bytes; the limit is {limit}")]
    StringLength {
        /// Its length.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// More open marks than the limit.
    #[error("nested deeper than {limit}; the limit can be raised")]
    Depth {
        /// The limit.
        limit: u32,
    },
    /// More values than the limit.
    #[error("more than {limit} values; the limit can be raised")]
    Items {
        /// The limit.
        limit: u64,
    },
    /// More memory than the limit.
    #[error("needs more than {limit} bytes of memory; the limit can be raised")]
    Memory {
        /// The limit.
        limit: u64,
    },
}

impl PickleError {
    /// True when the file is sound and holds something else than a snapshot.
    #[must_use]
    pub fn is_other_shape(&self) -> bool {
        matches!(self.reason, PickleReason::Shape(_))
    }
}

/// What is wrong with a JSON text.
pub(crate) fn reason_of_json(error: &serde_json::Error) -> PickleReason {
    match (error.classify(), error.io_error_kind()) {
        (serde_json::error::Category::Eof, _) => PickleReason::Truncated,
        (_, Some(io::ErrorKind::UnexpectedEof)) => PickleReason::Truncated,
        // Decoders of packed data report damage under these kinds.
        (
            _,
            Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::Other),
        ) => PickleReason::Damaged,
        (_, Some(kind)) => PickleReason::Io(kind),
        (_, None) => {
            let (line, column) = (error.line() as u64, error.column() as u64);
            PickleReason::Json { line, column }
        }
    }
}
