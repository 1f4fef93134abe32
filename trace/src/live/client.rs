//! The side of whoever looks on.

use crate::file::{ChunkReader, FileError, HeapState, Meta, Status, Text};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use terrane_core::event::Event;

/// What an allocator tells.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Message {
    /// Where it comes from: always the first.
    Meta(Meta),
    /// Names that events use from now on.
    Texts(Vec<Text>),
    /// The full state: after the names at the beginning, and again after events were lost.
    State(HeapState),
    /// What happened since.
    Events(Vec<Event>),
    /// The figures.
    Status(Status),
}

/// A connection to an allocator.
#[derive(Debug)]
pub struct Client {
    chunks: ChunkReader<UnixStream>,
}

impl Client {
    /// Connects to a socket; waits at most `patience` for each message.
    ///
    /// # Errors
    /// [`FileError`]: nobody listens, or it is no allocator of ours.
    pub fn connect(path: &Path, patience: Duration) -> Result<Self, FileError> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(patience))?;
        Ok(Self { chunks: ChunkReader::new(stream)? })
    }

    /// The next message; `None` when the process ended. A state in several chunks is given whole.
    ///
    /// # Errors
    /// [`FileError`]; of kind `WouldBlock` or `TimedOut` when nothing came in time, after which
    /// the connection is of no more use if a message had begun.
    pub fn receive(&mut self) -> Result<Option<Message>, FileError> {
        self.chunks.next_message()
    }
}
