//! A connection to someone who looks on, over a local socket or loopback TCP.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Longest line that is read from a peer: a word and a token.
const LINE_BYTES_MAX: usize = 256;

/// Either kind of stream.
#[derive(Debug)]
pub(crate) enum Stream {
    Local(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    pub fn set_nonblocking(&self, is: bool) -> io::Result<()> {
        match self {
            Self::Local(stream) => stream.set_nonblocking(is),
            Self::Tcp(stream) => stream.set_nonblocking(is),
        }
    }

    pub fn set_write_timeout(&self, time: Duration) -> io::Result<()> {
        match self {
            Self::Local(stream) => stream.set_write_timeout(Some(time)),
            Self::Tcp(stream) => stream.set_write_timeout(Some(time)),
        }
    }

    pub fn set_read_timeout(&self, time: Duration) -> io::Result<()> {
        match self {
            Self::Local(stream) => stream.set_read_timeout(Some(time)),
            Self::Tcp(stream) => stream.set_read_timeout(Some(time)),
        }
    }

    /// A second handle of the same stream.
    pub fn again(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Local(stream) => Self::Local(stream.try_clone()?),
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
        })
    }

    pub fn close(&self) {
        // It may be closed already.
        let _ = match self {
            Self::Local(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Local(stream) => stream.read(into),
            Self::Tcp(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Local(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Lines that a peer sends, read without waiting.
#[derive(Debug)]
pub(crate) struct Lines {
    stream: Stream,
    begun: Vec<u8>,
}

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Line(String),
    /// Nothing whole yet.
    Nothing,
    /// The peer is gone, or sends what no client of ours does.
    Gone,
}

impl Lines {
    pub fn of(stream: Stream) -> Self {
        Self { stream, begun: Vec::new() }
    }

    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The next line, if one is there.
    pub fn next(&mut self) -> Came {
        if self.stream.set_nonblocking(true).is_err() {
            return Came::Gone;
        }
        let came = self.read();
        // Whoever writes to it waits, within its time.
        if self.stream.set_nonblocking(false).is_err() { Came::Gone } else { came }
    }

    fn read(&mut self) -> Came {
        loop {
            if let Some(end) = self.begun.iter().position(|byte| *byte == b'\n') {
                let rest = self.begun.split_off(end + 1);
                let line = std::mem::replace(&mut self.begun, rest);
                return match String::from_utf8(line) {
                    Ok(line) => Came::Line(line.trim_end().to_owned()),
                    Err(_) => Came::Gone,
                };
            }
            if self.begun.len() > LINE_BYTES_MAX {
                return Came::Gone;
            }
            let mut bytes = [0; LINE_BYTES_MAX];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Came::Gone,
                Ok(read) => self.begun.extend_from_slice(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Came::Nothing,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Came::Gone,
            }
        }
    }
}

/// A secret that a peer has to know.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    /// # Errors
    /// For a text that is no secret, or that does not fit a line.
    pub fn new(text: &str) -> io::Result<Self> {
        let fits = (16..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
        if fits {
            return Ok(Self(text.to_owned()));
        }
        let text = "a token has 16 to 128 visible ASCII characters";
        Err(io::Error::new(ErrorKind::InvalidInput, text))
    }

    /// Whether a text is this, in a time that does not tell how much of it was right.
    pub fn is(&self, other: &str) -> bool {
        let (own, other) = (self.0.as_bytes(), other.as_bytes());
        let differ = own.iter().zip(other).fold(0, |differ, (a, b)| differ | (a ^ b));
        own.len() == other.len() && differ == 0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}
