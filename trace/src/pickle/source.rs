//! Bytes of a pickle with their offset.

use super::{PickleError, PickleReason};
use std::io::{self, Read};

const BUFFER_BYTES: usize = 1 << 16;

/// A buffered reader that knows where it is.
pub(super) struct Source<R> {
    reader: R,
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    /// Offset of `buffer[0]`.
    base: u64,
}

impl<R: Read> Source<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, buffer: vec![0; BUFFER_BYTES], at: 0, end: 0, base: 0 }
    }

    pub(super) fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// The next byte, or `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<u8>, PickleError> {
        if self.at == self.end && !self.fill(1)? {
            return Ok(None);
        }
        self.at += 1;
        Ok(Some(self.buffer[self.at - 1]))
    }

    pub(super) fn byte(&mut self) -> Result<u8, PickleError> {
        self.next()?.ok_or_else(|| self.error(PickleReason::Truncated))
    }

    /// The next `N` bytes.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], PickleError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.slice(N)?);
        Ok(bytes)
    }

    /// The next `count` bytes, where `count` has been checked against a limit.
    pub(super) fn slice(&mut self, count: usize) -> Result<&[u8], PickleError> {
        if self.end - self.at < count && !self.fill(count)? {
            return Err(self.error(PickleReason::Truncated));
        }
        self.at += count;
        Ok(&self.buffer[self.at - count..self.at])
    }

    pub(super) fn error(&self, reason: PickleReason) -> PickleError {
        PickleError { offset: self.offset(), reason }
    }

    /// Reads until `count` bytes are there; false when the source ends before.
    fn fill(&mut self, count: usize) -> Result<bool, PickleError> {
        self.buffer.copy_within(self.at..self.end, 0);
        self.base += self.at as u64;
        self.end -= self.at;
        self.at = 0;
        while self.end < count {
            if self.end == self.buffer.len() {
                // Grows as bytes arrive, so that a length that lies costs nothing.
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Ok(false),
                Ok(read) => self.end += read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.error(reason_of(&e))),
            }
        }
        Ok(true)
    }
}

/// Decoders report damage as invalid data, and a cut file as an unexpected end.
pub(crate) fn reason_of(error: &io::Error) -> PickleReason {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => PickleReason::Truncated,
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::Other => {
            PickleReason::Damaged
        }
        kind => PickleReason::Io(kind),
    }
}
