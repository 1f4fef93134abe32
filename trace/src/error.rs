//! What can be wrong with a recorded workload, and where.

use std::io;

/// Why a trace was refused, with the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct ReadError {
    /// Line of the decompressed text, counted from 1 (the header is line 1). 0 means that no
    /// line had been read: the file could not be opened.
    pub line: u64,
    /// What is wrong there, and what to do about it.
    pub reason: Reason,
}

/// A column of the recorded CSV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// `t_us`: microseconds since the start of the recording, a u64.
    Time,
    /// `block`: serial number of the block, a u64.
    Block,
    /// `size`: bytes asked for, 1 to 2^63 - 1.
    Size,
    /// `stream`: number of the stream, a u32.
    Stream,
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Time => "t_us",
            Self::Block => "block",
            Self::Size => "size",
            Self::Stream => "stream",
        })
    }
}

/// Reasons to refuse a trace. All are permanent for the file at hand, except [`Reason::Io`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// The operating system refused to open or read the file.
    #[error("the file cannot be read ({0}); check the path and its permissions")]
    Io(io::ErrorKind),
    /// Not one byte was there.
    #[error("the file is empty; was the recording stopped before it was written?")]
    Empty,
    /// The first line is not the header of a recorded trace.
    #[error(
        "this is not a recorded trace (neither gzip nor the header `t_us,op,block,size,stream`)"
    )]
    Header,
    /// The first line is not the header of an RMM log.
    #[error("this is no RMM log (no header `Thread,Time,Action,Pointer,Size,Stream`)")]
    RmmHeader,
    /// A line of an RMM log does not have six columns.
    #[error("{found} columns where 6 belong (Thread,Time,Action,Pointer,Size,Stream)")]
    RmmColumns {
        /// How many columns there are.
        found: usize,
    },
    /// There is a header and no event.
    #[error("the trace has a header and no event; was the recording stopped too early?")]
    NoEvents,
    /// The gzip or zstd data ends before its end mark.
    #[error("the compressed data ends early; copy the file again, or recover it with `zcat`")]
    PackedTruncated,
    /// The gzip or zstd data is damaged (bad block, checksum or trailing bytes).
    #[error("the compressed data is damaged; copy the file again")]
    PackedCorrupt,
    /// The last line has no newline, so its numbers may have been cut.
    #[error("the last line is cut (no newline); delete it, or end it with a newline if whole")]
    TruncatedLine,
    /// A line is longer than any line of a trace can be.
    #[error("the line is longer than {limit} bytes; is this a trace?")]
    LineTooLong {
        /// Longest line that is read.
        limit: usize,
    },
    /// The line does not have five columns.
    #[error("{found} columns where 5 belong (t_us,op,block,size,stream)")]
    Columns {
        /// How many columns there are.
        found: usize,
    },
    /// A number is missing or has a character that is no digit.
    #[error("`{0}` is not a whole number in decimal digits")]
    NotANumber(Field),
    /// A number is beyond what its column allows.
    #[error("`{0}` is out of range")]
    OutOfRange(Field),
    /// The op is none of `a`, `r`, `f`.
    #[error("unknown op; a (allocated), r (free requested) and f (free completed) are known")]
    UnknownOp,
    /// A block of size zero was allocated.
    #[error("block {block} is allocated with size 0; record the bytes asked for")]
    ZeroSize {
        /// Number of the block in the file.
        block: u64,
    },
    /// A block that is live, or still waiting for its completion, is allocated again.
    #[error("block {block} is allocated while it is live; is a line missing before this one?")]
    DuplicateAlloc {
        /// Number of the block in the file.
        block: u64,
    },
    /// A free names a block that is not live.
    #[error("block {block} is freed and is not live; is its allocation missing, or freed twice?")]
    UnknownBlock {
        /// Number of the block in the file.
        block: u64,
    },
    /// A second `r` for one block.
    #[error("the free of block {block} is requested twice")]
    RequestedTwice {
        /// Number of the block in the file.
        block: u64,
    },
    /// An `f` without its `r`.
    #[error("the free of block {block} completes and was never requested (no `r` before)")]
    NeverRequested {
        /// Number of the block in the file.
        block: u64,
    },
    /// A free gives another size than the allocation.
    #[error("block {block} was allocated with {allocated} bytes and is freed with {freed}")]
    SizeMismatch {
        /// Number of the block in the file.
        block: u64,
        /// Bytes at its allocation.
        allocated: u64,
        /// Bytes at this free.
        freed: u64,
    },
    /// A free gives another stream than the allocation.
    #[error("block {block} belongs to stream {allocated} and is freed as of stream {freed}")]
    StreamMismatch {
        /// Number of the block in the file.
        block: u64,
        /// Stream at its allocation.
        allocated: u32,
        /// Stream at this free.
        freed: u32,
    },
    /// The sizes of all allocations together do not fit a u64.
    #[error("the sizes add up to more than 2^64 bytes; this cannot be a recording")]
    TotalOverflow,
    /// More events than the limit given.
    #[error("more than {limit} events; raise the limit or cut the trace")]
    TooManyEvents {
        /// The limit.
        limit: u64,
    },
}
