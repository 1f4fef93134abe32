//! Chunks as they come, from something that cannot be sought in.

use super::columns::decode;
use super::format::{self, ChunkHeader};
use super::reader::{FileError, unpack};
use super::state::HeapState;
use crate::live::Message;
use std::io::{ErrorKind, Read};

/// Reads the chunks of a live connection.
#[derive(Debug)]
pub(crate) struct ChunkReader<R> {
    source: R,
    offset: u64,
    /// The keyframe so far: a large one comes in several chunks.
    state: Option<HeapState>,
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
        Ok(Self { source, offset: header.len() as u64, state: None })
    }

    /// The next message; `None` at the end.
    pub(crate) fn next_message(&mut self) -> Result<Option<Message>, FileError> {
        loop {
            let Some((header, raw)) = self.chunk()? else { return Ok(None) };
            let wrong = FileError::Chunk { offset: self.offset };
            let json = |_| FileError::Chunk { offset: self.offset };
            let message = match header.kind {
                format::META => Message::Meta(serde_json::from_slice(&raw).map_err(json)?),
                format::TEXTS => Message::Texts(serde_json::from_slice(&raw).map_err(json)?),
                format::STATUS => Message::Status(serde_json::from_slice(&raw).map_err(json)?),
                format::EVENTS => {
                    self.state = None;
                    Message::Events(decode(&raw, header.count).ok_or(wrong)?)
                }
                format::KEYFRAME => {
                    let events = decode(&raw, header.count).ok_or(wrong)?;
                    let begun = self.state.take().filter(|state| state.sequence == header.first);
                    let mut state = begun.unwrap_or_else(|| HeapState::empty_after(header.first));
                    events.iter().for_each(|event| state.apply(event, &mut |_| {}));
                    state.sequence = header.first;
                    self.state = Some(state.clone());
                    Message::State(state)
                }
                _ => continue,
            };
            return Ok(Some(message));
        }
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
