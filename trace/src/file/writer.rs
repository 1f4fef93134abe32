//! Writes chunks.

use super::columns::{encode, put};
use super::format::{self, ChunkHeader};
use super::reader::ChunkRef;
use super::state::HeapState;
use super::texts::{Meta, Status, Text};
use std::io::{self, Write};
use terrane_core::event::Event;

/// Writes a trace file, front to back.
///
/// Every call writes whole chunks, so whatever happens between two calls the file is readable.
#[derive(Debug)]
pub struct TraceWriter<W> {
    sink: W,
    offset: u64,
    index: Vec<ChunkRef>,
    events: u64,
}

/// zstd's own default: faster than a disk and within a few per cent of the best here.
const LEVEL: i32 = 3;

impl<W: Write> TraceWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// The sink's.
    pub fn new(mut sink: W, meta: &Meta) -> io::Result<Self> {
        let header = format::header(format::VERSION);
        sink.write_all(&header)?;
        let offset = header.len() as u64;
        let mut writer = Self { sink, offset, index: Vec::new(), events: 0 };
        let meta = serde_json::to_vec(meta)?;
        writer.chunk(format::META, 1, 0, &meta)?;
        Ok(writer)
    }

    /// Writes names. They come before the events that use them.
    ///
    /// # Errors
    /// The sink's.
    pub fn texts(&mut self, texts: &[Text]) -> io::Result<()> {
        if texts.is_empty() {
            return Ok(());
        }
        let body = serde_json::to_vec(texts)?;
        self.chunk(format::TEXTS, texts.len() as u32, 0, &body)
    }

    /// Writes the whole state, so that reading can begin here.
    ///
    /// # Errors
    /// The sink's.
    pub fn keyframe(&mut self, state: &HeapState) -> io::Result<()> {
        let events = state.to_events();
        // A state of more blocks than a chunk may hold goes into several, in order.
        for part in parts(&events) {
            let body = encode(part);
            self.chunk(format::KEYFRAME, part.len() as u32, state.sequence, &body)?;
        }
        Ok(())
    }

    /// Writes events, in order.
    ///
    /// # Errors
    /// The sink's.
    pub fn events(&mut self, events: &[Event]) -> io::Result<()> {
        for part in events.chunks(CHUNK_EVENTS) {
            let body = encode(part);
            self.chunk(format::EVENTS, part.len() as u32, part[0].sequence, &body)?;
            self.events += part.len() as u64;
        }
        Ok(())
    }

    /// Writes figures that only the allocator knows.
    ///
    /// # Errors
    /// The sink's.
    pub fn status(&mut self, status: &Status) -> io::Result<()> {
        let body = serde_json::to_vec(status)?;
        self.chunk(format::STATUS, 1, 0, &body)
    }

    /// Hands what was written on.
    ///
    /// # Errors
    /// The sink's.
    pub fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }

    /// Events written so far.
    #[must_use]
    pub fn event_count(&self) -> u64 {
        self.events
    }

    /// Bytes written so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.offset
    }

    /// Writes the index and gives the sink back.
    ///
    /// # Errors
    /// The sink's.
    pub fn finish(mut self) -> io::Result<W> {
        self.finish_in_place()?;
        Ok(self.sink)
    }

    /// Writes the index; gives the length of the file.
    pub(super) fn finish_in_place(&mut self) -> io::Result<u64> {
        let at = self.offset;
        let mut body = Vec::new();
        for chunk in &self.index {
            body.push(chunk.code);
            put(&mut body, chunk.offset);
            put(&mut body, chunk.first);
            put(&mut body, chunk.count.into());
        }
        let count = self.index.len() as u32;
        self.chunk(format::INDEX, count, 0, &body)?;
        let trailer = format::trailer(at);
        self.sink.write_all(&trailer)?;
        self.sink.flush()?;
        Ok(self.offset + trailer.len() as u64)
    }

    fn chunk(&mut self, kind: u8, count: u32, first: u64, body: &[u8]) -> io::Result<()> {
        let packed = zstd::bulk::compress(body, LEVEL)?;
        let length = |bytes: usize| {
            u32::try_from(bytes).map_err(|_| io::Error::other("a chunk is larger than 4 GiB"))
        };
        let header = ChunkHeader {
            kind,
            packed: length(packed.len())?,
            raw: length(body.len())?,
            count,
            first,
            crc: 0,
        };
        // One write: a program that is killed leaves the chunk whole or cut at its end.
        let mut bytes = header.sealed(&packed).to_bytes().to_vec();
        bytes.extend_from_slice(&packed);
        self.sink.write_all(&bytes)?;
        self.index.push(ChunkRef { code: kind, offset: self.offset, first, count });
        self.offset += bytes.len() as u64;
        Ok(())
    }
}

/// Events of one chunk: enough for zstd, little to lose.
pub(super) const CHUNK_EVENTS: usize = 1 << 16;

/// A keyframe's chunks: at least one, so that an empty state is one too.
fn parts(events: &[Event]) -> Vec<&[Event]> {
    if events.is_empty() { vec![events] } else { events.chunks(CHUNK_EVENTS).collect() }
}
