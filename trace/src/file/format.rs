//! Header, chunks and trailer as bytes.

use flate2::Crc;

/// The version that is written.
pub const VERSION: u32 = 1;

pub(super) const MAGIC: [u8; 8] = *b"\x89TERR\r\n\x1a";
pub(super) const HEADER_BYTES: usize = 16;
pub(super) const CHUNK_MARK: [u8; 4] = *b"TRCK";
pub(super) const CHUNK_BYTES: usize = 32;
pub(super) const TRAILER_MARK: [u8; 4] = *b"TRIX";
pub(super) const TRAILER_BYTES: usize = 16;
/// Largest body that is read, packed and unpacked.
pub(super) const BODY_BYTES_MAX: u32 = 256 << 20;
/// Most events in a chunk that is read.
pub(super) const CHUNK_EVENTS_MAX: u32 = 1 << 22;

pub(super) const META: u8 = 1;
pub(super) const TEXTS: u8 = 2;
pub(super) const KEYFRAME: u8 = 3;
pub(super) const EVENTS: u8 = 4;
pub(super) const INDEX: u8 = 5;
pub(super) const STATUS: u8 = 6;

/// What stands before a chunk's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkHeader {
    pub kind: u8,
    pub packed: u32,
    pub raw: u32,
    pub count: u32,
    /// Number of the first event; of a keyframe, of the last event before it.
    pub first: u64,
    pub crc: u32,
}

impl ChunkHeader {
    pub fn to_bytes(self) -> [u8; CHUNK_BYTES] {
        let mut bytes = [0; CHUNK_BYTES];
        bytes[..4].copy_from_slice(&CHUNK_MARK);
        bytes[4] = self.kind;
        bytes[8..12].copy_from_slice(&self.packed.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.raw.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.count.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.first.to_le_bytes());
        bytes[28..].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    /// `None` for bytes that are no chunk's beginning.
    pub fn from_bytes(bytes: &[u8; CHUNK_BYTES]) -> Option<Self> {
        if bytes[..4] != CHUNK_MARK {
            return None;
        }
        let header = Self {
            kind: bytes[4],
            packed: u32_at(bytes, 8),
            raw: u32_at(bytes, 12),
            count: u32_at(bytes, 16),
            first: u64_at(bytes, 20),
            crc: u32_at(bytes, 28),
        };
        let small = header.packed <= BODY_BYTES_MAX
            && header.raw <= BODY_BYTES_MAX
            && header.count <= CHUNK_EVENTS_MAX;
        small.then_some(header)
    }

    /// The same with the checksum of itself and its body.
    pub fn sealed(mut self, body: &[u8]) -> Self {
        self.crc = 0;
        self.crc = self.sum(body);
        self
    }

    /// Whether the checksum is that of these bytes.
    pub fn fits(self, body: &[u8]) -> bool {
        Self { crc: 0, ..self }.sum(body) == self.crc
    }

    fn sum(self, body: &[u8]) -> u32 {
        let mut crc = Crc::new();
        crc.update(&self.to_bytes()[..CHUNK_BYTES - 4]);
        crc.update(body);
        crc.sum()
    }
}

/// The file's beginning.
pub(super) fn header(version: u32) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let sum = sum(&bytes[..12]);
    bytes[12..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The version of a file with this beginning; `None` for another file.
pub(super) fn version_of(bytes: &[u8; HEADER_BYTES]) -> Option<u32> {
    let sound = bytes[..8] == MAGIC && u32_at(bytes, 12) == sum(&bytes[..12]);
    sound.then(|| u32_at(bytes, 8))
}

/// The file's end.
pub(super) fn trailer(index_at: u64) -> [u8; TRAILER_BYTES] {
    let mut bytes = [0; TRAILER_BYTES];
    bytes[..8].copy_from_slice(&index_at.to_le_bytes());
    bytes[8..12].copy_from_slice(&TRAILER_MARK);
    let sum = sum(&bytes[..12]);
    bytes[12..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Where the index is in a file with this end; `None` when it was not ended.
pub(super) fn index_at(bytes: &[u8; TRAILER_BYTES]) -> Option<u64> {
    let sound = bytes[8..12] == TRAILER_MARK && u32_at(bytes, 12) == sum(&bytes[..12]);
    sound.then(|| u64_at(bytes, 0))
}

fn sum(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}
