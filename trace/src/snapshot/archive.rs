//! The pickle in a torch.save archive: a zip file whose member `.../data.pkl` it is.
//!
//! Members are walked from the front, so nothing need be sought and a cut file is read as far
//! as it goes. PyTorch stores members without compression; deflate is read too.

use crate::pickle::{PickleError, PickleReason, reason_of};
use flate2::read::DeflateDecoder;
use std::io::{self, Read};

/// First bytes of an archive.
pub(super) const MAGIC: &[u8] = b"PK\x03\x04";
const MEMBER: &[u8] = b"data.pkl";
const HEADER_BYTES: usize = 30;
/// Size field that says: the size is in the zip64 extra field.
const IN_ZIP64: u32 = u32::MAX;
/// Flags: encrypted, and sizes that follow the data.
const ENCRYPTED: u16 = 1;
const SIZES_FOLLOW: u16 = 8;

/// The bytes of `data.pkl`.
pub(super) fn data_pickle<'a>(
    mut archive: Box<dyn io::BufRead + 'a>,
) -> Result<Box<dyn Read + 'a>, PickleError> {
    let mut offset = 0;
    loop {
        let failed = |reason| PickleError { offset, reason };
        let io_failed = |e: io::Error| failed(reason_of(&e));
        let mut header = [0; HEADER_BYTES];
        archive.read_exact(&mut header).map_err(io_failed)?;
        if !header.starts_with(MAGIC) {
            return Err(failed(PickleReason::Shape("the archive has no member data.pkl")));
        }
        let number16 = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let (flags, method) = (number16(6), number16(8));
        let mut name = vec![0; number16(26).into()];
        let mut extra = vec![0; number16(28).into()];
        archive.read_exact(&mut name).map_err(io_failed)?;
        archive.read_exact(&mut extra).map_err(io_failed)?;
        let size = [header[18], header[19], header[20], header[21]];
        let size = match u32::from_le_bytes(size) {
            IN_ZIP64 => zip64_size(&extra).ok_or_else(|| failed(PickleReason::Damaged))?,
            size => size.into(),
        };
        if flags & ENCRYPTED != 0 {
            return Err(failed(PickleReason::Shape("the archive is encrypted")));
        }
        if name.ends_with(MEMBER) {
            // A pickle knows its own end, so a size that follows the data is not needed.
            let known = if flags & SIZES_FOLLOW != 0 { u64::MAX } else { size };
            return match method {
                0 => Ok(Box::new(archive.take(known))),
                8 => Ok(Box::new(DeflateDecoder::new(archive.take(known)))),
                _ => Err(failed(PickleReason::Shape("the archive uses an unknown compression"))),
            };
        }
        if flags & SIZES_FOLLOW != 0 {
            return Err(failed(PickleReason::Shape("the archive does not begin with data.pkl")));
        }
        let skipped = io::copy(&mut archive.by_ref().take(size), &mut io::sink());
        if skipped.map_err(io_failed)? < size {
            return Err(failed(PickleReason::Truncated));
        }
        offset += (HEADER_BYTES + name.len() + extra.len()) as u64 + size;
    }
}

/// Compressed size in the zip64 extra field: after the uncompressed one.
fn zip64_size(mut extra: &[u8]) -> Option<u64> {
    while let [a, b, c, d, rest @ ..] = extra {
        let length = usize::from(u16::from_le_bytes([*c, *d]));
        if u16::from_le_bytes([*a, *b]) == 1 {
            let bytes = rest.get(8..16)?;
            return Some(u64::from_le_bytes(bytes.try_into().ok()?));
        }
        extra = rest.get(length..)?;
    }
    None
}
