//! Reads chunks, as far as they go.

use super::columns::{decode, take};
use super::format::{self, ChunkHeader};
use super::state::HeapState;
use super::texts::{Meta, Text};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use terrane_core::event::Event;

/// What a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChunkKind {
    /// Where the file comes from.
    Meta,
    /// Names.
    Texts,
    /// The whole state.
    Keyframe,
    /// Events.
    Events,
    /// The places of all chunks.
    Index,
    /// Figures at one moment.
    Status,
    /// Something that this version does not know.
    Unknown,
}

/// A chunk's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkRef {
    pub(super) code: u8,
    /// Offset in the file.
    pub offset: u64,
    /// Number of its first event; of a keyframe, of the last event before it.
    pub first: u64,
    /// Events or texts in it.
    pub count: u32,
}

impl ChunkRef {
    /// What it holds.
    #[must_use]
    pub fn kind(&self) -> ChunkKind {
        match self.code {
            format::META => ChunkKind::Meta,
            format::TEXTS => ChunkKind::Texts,
            format::KEYFRAME => ChunkKind::Keyframe,
            format::EVENTS => ChunkKind::Events,
            format::INDEX => ChunkKind::Index,
            format::STATUS => ChunkKind::Status,
            _ => ChunkKind::Unknown,
        }
    }
}

/// How a file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With its index: it was finished.
    Finished,
    /// After a whole chunk, or within one: the recorder was killed or the file was cut. The
    /// number is the offset behind the last whole chunk.
    Cut(u64),
    /// Damaged at this offset; what comes before it is read.
    Damaged(u64),
}

/// Why a trace file was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// A socket that somebody else made.
    #[error("the socket belongs to another user, who could show anything")]
    ForeignSocket,
    /// An address of another machine.
    #[error("the address is not this machine's: make a tunnel to it, the token would be sent open")]
    FarAddress,
    /// A text that is no token.
    #[error("a token has 16 to 128 visible ASCII characters")]
    BadToken,
    /// The operating system's.
    #[error("the file cannot be read ({0}); check the path and its permissions")]
    Io(io::ErrorKind),
    /// Another file.
    #[error("this is no trace file of Terrane")]
    NotOurs,
    /// A version that this program does not know.
    #[error("version {found}; this program reads up to {known}: use a newer one")]
    Version {
        /// The file's.
        found: u32,
        /// The newest that is read.
        known: u32,
    },
    /// A chunk whose checksum is right and whose contents no writer makes.
    #[error("byte {offset}: a chunk holds what no writer makes; the file is damaged")]
    Chunk {
        /// Offset of the chunk.
        offset: u64,
    },
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error.kind())
    }
}

/// A trace file, opened: its chunks are known, and read when asked for.
#[derive(Debug)]
pub struct TraceFile<R> {
    source: R,
    length: u64,
    version: u32,
    chunks: Vec<ChunkRef>,
    ending: Ending,
}

impl TraceFile<BufReader<File>> {
    /// Opens a file.
    ///
    /// # Errors
    /// [`FileError`] for a file that is not ours or of a newer version; a file that was cut is
    /// opened, see [`ending`](Self::ending).
    pub fn open(path: &Path) -> Result<Self, FileError> {
        Self::new(BufReader::new(File::open(path)?))
    }
}

/// A body unpacked; `None` when its checksum or length is wrong.
pub(super) fn unpack(header: ChunkHeader, packed: &[u8]) -> Option<Vec<u8>> {
    let raw = header.fits(packed).then(|| zstd::bulk::decompress(packed, header.raw as usize));
    raw?.ok().filter(|raw| raw.len() == header.raw as usize)
}

impl<R: Read + Seek> TraceFile<R> {
    /// Opens a file from any source of bytes.
    ///
    /// # Errors
    /// As [`open`](TraceFile::open).
    pub fn new(mut source: R) -> Result<Self, FileError> {
        let length = source.seek(SeekFrom::End(0))?;
        source.seek(SeekFrom::Start(0))?;
        let mut header = [0; format::HEADER_BYTES];
        let known = format::VERSION;
        if length < header.len() as u64 {
            return Err(FileError::NotOurs);
        }
        source.read_exact(&mut header)?;
        let version = format::version_of(&header).ok_or(FileError::NotOurs)?;
        if !(1..=known).contains(&version) {
            return Err(FileError::Version { found: version, known });
        }
        let (chunks, ending) = (Vec::new(), Ending::Finished);
        let mut file = Self { source, length, version, chunks, ending };
        match file.indexed(length)? {
            Some(chunks) => file.chunks = chunks,
            None => file.walk(length)?,
        }
        Ok(file)
    }

    /// The format's version.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// All whole chunks, in order.
    #[must_use]
    pub fn chunks(&self) -> &[ChunkRef] {
        &self.chunks
    }

    /// How the file ends.
    #[must_use]
    pub fn ending(&self) -> Ending {
        self.ending
    }

    /// The chunks by the index at the end, if the file has one.
    fn indexed(&mut self, length: u64) -> Result<Option<Vec<ChunkRef>>, FileError> {
        let trailer_at = length.saturating_sub(format::TRAILER_BYTES as u64);
        self.source.seek(SeekFrom::Start(trailer_at))?;
        let mut trailer = [0; format::TRAILER_BYTES];
        if self.source.read_exact(&mut trailer).is_err() {
            return Ok(None);
        }
        let Some(at) = format::index_at(&trailer).filter(|at| *at < trailer_at) else {
            return Ok(None);
        };
        let Some((header, body)) = self.body(at, trailer_at)? else { return Ok(None) };
        let mut body = body.as_slice();
        let mut chunks = Vec::new();
        while let Some((&code, rest)) = body.split_first() {
            body = rest;
            let (offset, first) = (take(&mut body), take(&mut body));
            let count = take(&mut body).and_then(|count| u32::try_from(count).ok());
            let (Some(offset), Some(first), Some(count)) = (offset, first, count) else {
                return Ok(None);
            };
            chunks.push(ChunkRef { code, offset, first, count });
        }
        let whole = header.kind == format::INDEX && chunks.len() == header.count as usize;
        Ok(whole.then_some(chunks))
    }

    /// The chunks from front to back, as far as they are whole.
    fn walk(&mut self, length: u64) -> Result<(), FileError> {
        let mut at = format::HEADER_BYTES as u64;
        self.ending = loop {
            match self.body(at, length)? {
                Some((header, _)) => {
                    let ChunkHeader { kind, packed, count, first, .. } = header;
                    self.chunks.push(ChunkRef { code: kind, offset: at, first, count });
                    at += format::CHUNK_BYTES as u64 + u64::from(packed);
                }
                None if self.is_cut(at, length)? => break Ending::Cut(at),
                None => break Ending::Damaged(at),
            }
        };
        Ok(())
    }

    /// True when the file just ends at or within the chunk that begins at `at`.
    fn is_cut(&mut self, at: u64, length: u64) -> Result<bool, FileError> {
        if length - at < format::CHUNK_BYTES as u64 {
            return Ok(true);
        }
        self.source.seek(SeekFrom::Start(at))?;
        let mut bytes = [0; format::CHUNK_BYTES];
        self.source.read_exact(&mut bytes)?;
        let end = |header: ChunkHeader| at + bytes.len() as u64 + u64::from(header.packed);
        Ok(ChunkHeader::from_bytes(&bytes).is_some_and(|header| end(header) > length))
    }

    /// Header and unpacked body of the chunk at `at`; `None` when it is not whole.
    fn body(&mut self, at: u64, length: u64) -> Result<Option<(ChunkHeader, Vec<u8>)>, FileError> {
        if at.saturating_add(format::CHUNK_BYTES as u64) > length {
            return Ok(None);
        }
        self.source.seek(SeekFrom::Start(at))?;
        let mut bytes = [0; format::CHUNK_BYTES];
        self.source.read_exact(&mut bytes)?;
        let Some(header) = ChunkHeader::from_bytes(&bytes) else { return Ok(None) };
        if at + bytes.len() as u64 + u64::from(header.packed) > length {
            return Ok(None);
        }
        let mut packed = vec![0; header.packed as usize];
        self.source.read_exact(&mut packed)?;
        Ok(unpack(header, &packed).map(|raw| (header, raw)))
    }

    fn whole(&mut self, chunk: ChunkRef) -> Result<(ChunkHeader, Vec<u8>), FileError> {
        let found = self.body(chunk.offset, self.length)?;
        found.ok_or(FileError::Chunk { offset: chunk.offset })
    }

    /// Where the file comes from; empty when that chunk was cut.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn meta(&mut self) -> Result<Meta, FileError> {
        let Some(chunk) = self.chunks.iter().copied().find(|c| c.kind() == ChunkKind::Meta) else {
            return Ok(Meta::default());
        };
        let (_, body) = self.whole(chunk)?;
        serde_json::from_slice(&body).map_err(|_| FileError::Chunk { offset: chunk.offset })
    }

    /// All names in the file.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn texts(&mut self) -> Result<Vec<Text>, FileError> {
        let mut texts = Vec::new();
        let chunks: Vec<ChunkRef> = self.chunks.clone();
        for chunk in chunks.into_iter().filter(|chunk| chunk.kind() == ChunkKind::Texts) {
            let (_, body) = self.whole(chunk)?;
            let more: Result<Vec<Text>, _> = serde_json::from_slice(&body);
            texts.extend(more.map_err(|_| FileError::Chunk { offset: chunk.offset })?);
        }
        Ok(texts)
    }

    /// The events of a chunk of events or of a keyframe.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn events(&mut self, chunk: ChunkRef) -> Result<Vec<Event>, FileError> {
        let (header, body) = self.whole(chunk)?;
        decode(&body, header.count).ok_or(FileError::Chunk { offset: chunk.offset })
    }

    /// The state after the event with this number, read from the keyframe before it.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn state_at(&mut self, sequence: u64) -> Result<HeapState, FileError> {
        let chunks = self.chunks.clone();
        let is_start = |at: usize, chunk: &ChunkRef| {
            // Of a keyframe in several chunks the first one.
            let before = at.checked_sub(1).map(|before| &chunks[before]);
            let goes_on = before.is_some_and(|b| b.code == chunk.code && b.first == chunk.first);
            chunk.kind() == ChunkKind::Keyframe && chunk.first <= sequence && !goes_on
        };
        let start = (0..chunks.len()).rev().find(|at| is_start(*at, &chunks[*at])).unwrap_or(0);
        let mut state = HeapState::default();
        let mut after_events = false;
        for chunk in &chunks[start..] {
            match chunk.kind() {
                // Keyframes after the first only repeat what was folded.
                ChunkKind::Keyframe if !after_events => {
                    state.sequence = state.sequence.max(chunk.first);
                }
                ChunkKind::Events if chunk.first <= sequence => after_events = true,
                ChunkKind::Events => break,
                _ => continue,
            }
            for event in self.events(*chunk)? {
                if event.sequence > sequence {
                    return Ok(state);
                }
                state.apply(&event, &mut |_| {});
            }
        }
        Ok(state)
    }
}
