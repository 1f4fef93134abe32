//! Our own trace file: everything that an allocator told, in chunks.
//!
//! ```text
//! file   = header chunk* [index trailer]
//! header = magic (8)  version (u32)  CRC-32 of both (u32)
//! chunk  = "TRCK"  kind (u8)  zero (3)  packed (u32)  raw (u32)  count (u32)  first (u64)
//!          CRC-32 of all that and the body (u32)  body (`packed` bytes of zstd)
//! trailer= offset of the index chunk (u64)  "TRIX"  CRC-32 of both (u32)
//! ```
//!
//! Numbers are little-endian. Every chunk stands alone: a file that was cut anywhere is read to
//! its last whole chunk, and a recorder that is killed loses what it had not written yet, at most
//! a second. Events lie in columns, each event as the difference from what the ones before it
//! suggest. A keyframe is the list of events that would make the state at its place, so whoever
//! reads from there needs nothing before it. The version changes when a reader of the old one
//! could not read the new one; readers read every version there was.

mod columns;
mod early_names;
mod flight;
mod format;
mod reader;
mod recorder;
mod source;
#[cfg(feature = "stacks")]
mod stacks;
mod state;
#[cfg(feature = "live")]
mod stream;
mod texts;
mod worker;
mod writer;

pub use format::VERSION;
pub use reader::{ChunkKind, ChunkRef, Ending, FileError, TraceFile};
pub use recorder::{ForeignRecorder, Recorder, Summary, Tap};
pub use state::{HeapState, LiveBlock, SegmentState};
pub(crate) use state::{held, moved};
#[cfg(feature = "live")]
pub(crate) use stream::ChunkReader;
pub use texts::{Meta, Status, Text, TextKind};
pub use writer::TraceWriter;
