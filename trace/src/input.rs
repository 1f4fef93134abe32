//! From a file to lines: decompression chosen by content, bounded lines, counted.

use crate::{ReadError, Reason};
use flate2::bufread::MultiGzDecoder;
use std::io::{self, BufRead, BufReader, Read};

/// Longest line of a recorded CSV: five numbers of at most 20 digits, with room.
const LINE_BYTES_MAX: usize = 256;
const BUFFER_BYTES: usize = 1 << 16;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

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

/// What the bytes of a file are packed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

/// A file without its packing.
pub(crate) struct Unpacked<'a> {
    pub source: Box<dyn BufRead + 'a>,
    pub packing: Packing,
}

/// Looks at the first bytes of a file, never at its name, to unpack it.
pub(crate) fn unpack<'a>(source: impl Read + 'a) -> io::Result<Unpacked<'a>> {
    let mut plain = BufReader::with_capacity(BUFFER_BYTES, source);
    let mut first = Vec::with_capacity(ZSTD_MAGIC.len());
    plain.by_ref().take(ZSTD_MAGIC.len() as u64).read_to_end(&mut first)?;
    let packing = if first.starts_with(&GZIP_MAGIC) {
        Packing::Gzip
    } else if first.starts_with(&ZSTD_MAGIC) {
        Packing::Zstd
    } else {
        Packing::Plain
    };
    let whole = io::Cursor::new(first).chain(plain);
    let source: Box<dyn BufRead + 'a> = match packing {
        Packing::Plain => Box::new(whole),
        Packing::Gzip => {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(whole)))
        }
        Packing::Zstd => {
            let decoder = zstd::Decoder::with_buffer(whole)?;
            Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
        }
    };
    Ok(Unpacked { source, packing })
}

/// The lines of a file, unpacked.
pub(crate) struct Lines<'a> {
    source: Box<dyn BufRead + 'a>,
    packing: Packing,
    line: Vec<u8>,
    number: u64,
}

impl<'a> Lines<'a> {
    /// Unpacks a source.
    pub(crate) fn new(source: impl Read + 'a) -> Result<Self, ReadError> {
        let error = |e: io::Error| ReadError { line: 0, reason: Reason::Io(e.kind()) };
        let Unpacked { source, packing } = unpack(source).map_err(error)?;
        Ok(Self { source, packing, line: Vec::with_capacity(LINE_BYTES_MAX), number: 0 })
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
            _ if self.packing == Packing::Plain => Reason::Io(error.kind()),
            io::ErrorKind::UnexpectedEof => Reason::PackedTruncated,
            // Decoders report damage under these kinds.
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::Other => {
                Reason::PackedCorrupt
            }
            kind => Reason::Io(kind),
        }
    }
}
