//! Chunks as they come, from something that cannot be sought in.

use super::columns::decode;
use super::format::{self, ChunkHeader};
use super::reader::{FileError, unpack};
use super::state::HeapState;
use super::writer::CHUNK_EVENTS;
use crate::live::Message;
use std::io::{ErrorKind, Read};

/// Reads the chunks of a live connection.
#[derive(Debug)]
pub(crate) struct ChunkReader<R> {
    source: R,
    offset: u64,
    /// The keyframe so far: a large one comes in several chunks, full ones but for the last.
    state: Option<HeapState>,
    /// What came behind a keyframe whose last chunk was full.
    next: Option<Message>,
}

impl<R: Read> ChunkReader<R> {
    /// Reads the header.
    pub(crate) fn new(mut source: R) -> Result<Self, FileError> {
        let mut header = [0; format::HEADER_BYTES];
        source.read_exact(&mut header)?;
        let known = format::VERSION;
        match format::version_of(&header) {
            Some(found) if (1..=known).contains(&found) => {}
            Some(found) => return Err(FileError::Version { found, known }),
            None => return Err(FileError::NotOurs),
        }
        Ok(Self { source, offset: header.len() as u64, state: None, next: None })
    }

    /// The next message; `None` at the end.
    pub(crate) fn next_message(&mut self) -> Result<Option<Message>, FileError> {
        if let Some(message) = self.next.take() {
            return Ok(Some(message));
        }
        loop {
            let Some((header, raw)) = self.chunk()? else { return Ok(None) };
            if header.kind == format::KEYFRAME {
                if let Some(state) = self.keyframe(header, &raw)? {
                    return Ok(Some(Message::State(state)));
                }
                continue;
            }
            let Some(message) = self.message(header, &raw)? else { continue };
            let Some(state) = self.state.take() else { return Ok(Some(message)) };
            self.next = Some(message);
            return Ok(Some(Message::State(state)));
        }
    }

    fn message(&self, header: ChunkHeader, raw: &[u8]) -> Result<Option<Message>, FileError> {
        let json = |_| FileError::Chunk { offset: self.offset };
        Ok(Some(match header.kind {
            format::META => Message::Meta(serde_json::from_slice(raw).map_err(json)?),
            format::TEXTS => Message::Texts(serde_json::from_slice(raw).map_err(json)?),
            format::STATUS => Message::Status(serde_json::from_slice(raw).map_err(json)?),
            format::EVENTS => {
                let wrong = FileError::Chunk { offset: self.offset };
                Message::Events(decode(raw, header.count).ok_or(wrong)?)
            }
            _ => return Ok(None),
        }))
    }

    /// Takes a chunk of a keyframe in; the state, where that was the last one.
    fn keyframe(
        &mut self,
        header: ChunkHeader,
        raw: &[u8],
    ) -> Result<Option<HeapState>, FileError> {
        let wrong = FileError::Chunk { offset: self.offset };
        let events = decode(raw, header.count).ok_or(wrong)?;
        let begun = self.state.take().filter(|state| state.sequence == header.first);
        let mut state = begun.unwrap_or_else(|| HeapState::empty_after(header.first));
        events.iter().for_each(|event| state.apply(event, &mut |_| {}));
        state.sequence = header.first;
        if events.len() < CHUNK_EVENTS {
            return Ok(Some(state));
        }
        self.state = Some(state);
        Ok(None)
    }

    fn chunk(&mut self) -> Result<Option<(ChunkHeader, Vec<u8>)>, FileError> {
        let mut bytes = [0; format::CHUNK_BYTES];
        match self.source.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let wrong = || FileError::Chunk { offset: self.offset };
        let header = ChunkHeader::from_bytes(&bytes).ok_or_else(wrong)?;
        let mut packed = vec![0; header.packed as usize];
        self.source.read_exact(&mut packed)?;
        let raw = unpack(header, &packed).ok_or_else(wrong)?;
        self.offset += (bytes.len() + packed.len()) as u64;
        Ok(Some((header, raw)))
    }
}
