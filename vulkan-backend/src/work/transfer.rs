//! Copies by the driver: between places, and between host and device.

use std::sync::Arc;

use ash::vk;
use terrane_core::device::{CopyOp, DeviceError, Place, rules};

use crate::memory::space::{Range, Spaces};
use crate::memory::staging::{Chunk, MAX_CHUNK, Staging, Way};
use crate::stream::Recorder;

/// The most bytes of a region: lavapipe takes the size of one of 2 GiB for a negative number, and
/// writes outside (Mesa 25.0.7).
const MAX_REGION: u64 = 1 << 30;

/// A copy with its ranges found.
pub type Pair = (Range, Range);

/// Finds the ranges of copies and checks them: inside their spaces, multiples of `unit` bytes,
/// no source over its destination.
pub fn pairs(spaces: &Spaces, ops: &[CopyOp], unit: u64) -> Result<Vec<Pair>, DeviceError> {
    rules::copies(ops, unit).map_err(DeviceError::InvalidCall)?;
    if ops.iter().any(|op| op.bytes == 0) {
        return Err(DeviceError::InvalidCall("a copy of no bytes"));
    }
    ops.iter()
        .map(|op| Ok((spaces.range(op.from, op.bytes)?, spaces.range(op.to, op.bytes)?)))
        .collect()
}

/// The regions of a copy, none longer than [`MAX_REGION`].
fn pieces(from: u64, to: u64, bytes: u64) -> impl Iterator<Item = vk::BufferCopy> {
    (0..bytes.div_ceil(MAX_REGION)).map(move |piece| {
        let done = piece * MAX_REGION;
        let size = (bytes - done).min(MAX_REGION);
        vk::BufferCopy::default().src_offset(from + done).dst_offset(to + done).size(size)
    })
}

/// Records copies, one command per pair of buffers.
pub fn copy(recorder: &Recorder<'_>, pairs: &mut [Pair]) {
    pairs.sort_by_key(|(from, to)| (from.space, to.space));
    for group in pairs.chunk_by(|a, b| a.0.buffer == b.0.buffer && a.1.buffer == b.1.buffer) {
        let [(from, to), ..] = group else { continue };
        let regions: Vec<_> = group
            .iter()
            .flat_map(|(from, to)| pieces(from.offset, to.offset, from.bytes))
            .collect();
        // SAFETY: the buffers are alive until the work is done, by the contract; the ranges lie
        // inside them and do not overlap.
        unsafe {
            recorder.device.cmd_copy_buffer(recorder.commands, from.buffer, to.buffer, &regions);
        }
    }
}

/// Records a fill with one word.
pub fn fill(recorder: &Recorder<'_>, range: Range, word: u32) {
    // SAFETY: the buffer is alive until the work is done, by the contract; offset and bytes are
    // multiples of 4 inside it.
    unsafe {
        recorder.device.cmd_fill_buffer(
            recorder.commands,
            range.buffer,
            range.offset,
            range.bytes,
            word,
        );
    }
}

/// The range of a host transfer, checked.
pub fn host_range(spaces: &Spaces, place: Place, bytes: u64) -> Result<Range, DeviceError> {
    if bytes == 0 {
        return Err(DeviceError::InvalidCall("a transfer of no bytes"));
    }
    spaces.range(place, bytes)
}

/// Puts `data` into chunks.
pub fn upload(staging: &Arc<Staging>, data: &[u8]) -> Result<Vec<Chunk>, DeviceError> {
    data.chunks(MAX_CHUNK as usize)
        .map(|piece| {
            let mut chunk = staging.take(Way::Up, piece.len() as u64)?;
            chunk.bytes_mut()[..piece.len()].copy_from_slice(piece);
            Ok(chunk)
        })
        .collect()
}

/// Chunks for `bytes` on their way to the host.
pub fn download(staging: &Arc<Staging>, bytes: u64) -> Result<Vec<Chunk>, DeviceError> {
    let pieces = bytes.div_ceil(MAX_CHUNK);
    (0..pieces).map(|i| staging.take(Way::Down, (bytes - i * MAX_CHUNK).min(MAX_CHUNK))).collect()
}

/// Records the copies between chunks and a range.
pub fn between(recorder: &Recorder<'_>, chunks: &[Chunk], range: Range, way: Way) {
    let mut done = 0;
    for chunk in chunks {
        let size = (range.bytes - done).min(MAX_CHUNK);
        let device = range.offset + done;
        let (from, to, src, dst) = match way {
            Way::Up => (chunk.buffer, range.buffer, 0, device),
            _ => (range.buffer, chunk.buffer, device, 0),
        };
        let region = [vk::BufferCopy::default().src_offset(src).dst_offset(dst).size(size)];
        // SAFETY: the chunk is kept until the submission is done, the range's buffer is alive
        // until then by the contract, and both ranges lie inside.
        unsafe { recorder.device.cmd_copy_buffer(recorder.commands, from, to, &region) };
        done += size;
    }
}

/// The bytes that have come.
pub fn collect(chunks: &[Chunk], bytes: u64) -> Vec<u8> {
    let mut data = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
    for chunk in chunks {
        let left = usize::try_from(bytes).unwrap_or(usize::MAX) - data.len();
        let piece = left.min(MAX_CHUNK as usize);
        data.extend_from_slice(&chunk.bytes()[..piece]);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_of_a_copy_are_short_and_cover_it() {
        for bytes in [1, MAX_REGION - 1, MAX_REGION, MAX_REGION + 1, 2 << 30, 5 << 31] {
            let mut done = 0;
            for piece in pieces(100, 7, bytes) {
                assert_eq!((piece.src_offset, piece.dst_offset), (100 + done, 7 + done));
                assert!((1..=MAX_REGION).contains(&piece.size));
                done += piece.size;
            }
            assert_eq!(done, bytes);
        }
    }
}
