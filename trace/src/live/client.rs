//! The side of whoever looks on.

use super::conn::{Stream, Token};
use super::server::Command;
use crate::file::{ChunkReader, FileError, HeapState, Meta, Status, Text};
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt as _;
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
    chunks: ChunkReader<Stream>,
    commands: Stream,
}

impl Client {
    /// Connects to a local socket; waits at most `patience` for each message.
    ///
    /// # Errors
    /// [`FileError`]: nobody listens, the socket belongs to another user, or it is no allocator
    /// of ours.
    pub fn connect(path: &Path, patience: Duration) -> Result<Self, FileError> {
        // Whoever made the socket says what is shown, and is sent the control token.
        let own = std::fs::metadata("/proc/self")?.uid();
        if std::fs::symlink_metadata(path)?.uid() != own {
            return Err(FileError::ForeignSocket);
        }
        Self::begin(Stream::Local(UnixStream::connect(path)?), patience)
    }

    /// Connects over loopback TCP, as [`Tap::tcp`](crate::file::Tap::tcp) offers it, and says the
    /// token.
    ///
    /// # Errors
    /// [`FileError`]: as [`connect`](Self::connect); also for a token that is none, for an address
    /// that is not this machine's, and when the other side does not take the token.
    pub fn connect_tcp(at: SocketAddr, token: &str, patience: Duration) -> Result<Self, FileError> {
        if !at.ip().is_loopback() {
            return Err(FileError::FarAddress);
        }
        Token::new(token).map_err(|_| FileError::BadToken)?;
        let mut stream = TcpStream::connect_timeout(&at, patience)?;
        stream.set_write_timeout(Some(patience))?;
        stream.write_all(format!("{token}\n").as_bytes())?;
        Self::begin(Stream::Tcp(stream), patience)
    }

    /// Takes a connection that was made otherwise, such as one end of a pair.
    ///
    /// # Errors
    /// [`FileError`]: the other side is no allocator of ours.
    pub fn over(stream: UnixStream, patience: Duration) -> Result<Self, FileError> {
        Self::begin(Stream::Local(stream), patience)
    }

    fn begin(stream: Stream, patience: Duration) -> Result<Self, FileError> {
        stream.set_read_timeout(patience)?;
        stream.set_write_timeout(patience)?;
        let commands = stream.again()?;
        Ok(Self { chunks: ChunkReader::new(stream)?, commands })
    }

    /// The next message; `None` when the process ended. A state in several chunks is given whole.
    ///
    /// # Errors
    /// [`FileError`]; of kind `WouldBlock` or `TimedOut` when nothing came in time, after which
    /// the connection is of no more use if a message had begun.
    pub fn receive(&mut self) -> Result<Option<Message>, FileError> {
        self.chunks.next_message()
    }

    /// Asks the program to do something. It does so if it knows this token and does nothing of the
    /// kind already; what came of it is seen in its events.
    ///
    /// # Errors
    /// The system's; for a token that is none.
    pub fn ask(&mut self, command: Command, token: &str) -> io::Result<()> {
        Token::new(token)?;
        self.commands.write_all(format!("{} {token}\n", command.line()).as_bytes())
    }
}
