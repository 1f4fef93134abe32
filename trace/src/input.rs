//! From a file to lines: decompression chosen by content, bounded lines, counted.

use crate::{ReadError, Reason};
use flate2::bufread::MultiGzDecoder;
use std::io::{self, BufRead, BufReader, Read};

/// Longest line of a recorded CSV: five numbers of at most 20 digits, with room.
const LINE_BYTES_MAX: usize = 256;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// What a reader accepts before it refuses the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most events that are read. Each takes 32 bytes of memory, and some 40 more while its
    /// block is live. The default is 2^26 (2 GiB).
    pub events: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { events: 1 << 26 }
    }
}

/// The lines of a file, decompressed where its first bytes say gzip.
pub(crate) struct Lines<'a> {
    source: Box<dyn BufRead + 'a>,
    gzip: bool,
    line: Vec<u8>,
    number: u64,
}

impl<'a> Lines<'a> {
    /// Looks at the first two bytes to choose.
    pub(crate) fn new(source: impl Read + 'a) -> Result<Self, ReadError> {
        let mut plain = BufReader::with_capacity(1 << 16, source);
        let error = |e: io::Error| ReadError { line: 0, reason: Reason::Io(e.kind()) };
        let first = first_two(&mut plain).map_err(error)?;
        let whole = io::Cursor::new(first.clone()).chain(plain);
        let gzip = first == GZIP_MAGIC;
        let source: Box<dyn BufRead + 'a> = if gzip {
            Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(whole)))
        } else {
            Box::new(whole)
        };
        Ok(Self { source, gzip, line: Vec::with_capacity(LINE_BYTES_MAX), number: 0 })
    }

    /// The next line without its end, or `None` at the end of the file.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, ReadError> {
        self.number += 1;
        self.line.clear();
        let mut bounded = (&mut self.source).take(LINE_BYTES_MAX as u64 + 1);
        let read = bounded.read_until(b'\n', &mut self.line);
        let count = read.map_err(|e| self.error(self.read_reason(&e)))?;
        if count == 0 {
            return Ok(None);
        }
        if self.line.pop_if(|byte| *byte == b'\n').is_none() {
            return Err(self.error(if count > LINE_BYTES_MAX {
                Reason::LineTooLong { limit: LINE_BYTES_MAX }
            } else {
                Reason::TruncatedLine
            }));
        }
        self.line.pop_if(|byte| *byte == b'\r');
        Ok(Some(&self.line))
    }

    /// The line read last, as far as it was read.
    pub(crate) fn line(&self) -> &[u8] {
        &self.line
    }

    /// `reason` at the line read last.
    pub(crate) fn error(&self, reason: Reason) -> ReadError {
        ReadError { line: self.number, reason }
    }

    fn read_reason(&self, error: &io::Error) -> Reason {
        match error.kind() {
            io::ErrorKind::UnexpectedEof if self.gzip => Reason::GzipTruncated,
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData if self.gzip => {
                Reason::GzipCorrupt
            }
            kind => Reason::Io(kind),
        }
    }
}

/// Up to two bytes; fewer only at the end of the source.
fn first_two(source: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut first = Vec::with_capacity(2);
    source.take(2).read_to_end(&mut first)?;
    Ok(first)
}
