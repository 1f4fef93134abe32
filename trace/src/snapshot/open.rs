//! Opens a snapshot, whatever it is packed in.

use super::convert::{ReadOptions, convert};
use super::fold::Records;
use super::{Snapshot, archive};
use crate::input::unpack;
use crate::pickle::{PickleError, PickleReason, read, reason_of};
use std::io::{BufRead, Read};
use std::ops::ControlFlow;
use std::{fs::File, path::Path};

/// Opens a snapshot file: a pickle, or a torch.save archive with one; plain, gzip or zstd. Told
/// apart by content, never by name. `progress` sees the offset in the decompressed pickle now
/// and then, and may stop the reading.
///
/// # Errors
/// [`PickleError`] with the offset and the reason at the first thing that is wrong.
pub fn open_snapshot(
    path: &Path,
    options: &ReadOptions,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Snapshot, PickleError> {
    let error = |e: std::io::Error| PickleError { offset: 0, reason: PickleReason::Io(e.kind()) };
    read_snapshot(File::open(path).map_err(error)?, options, progress)
}

/// Reads a snapshot from any source of bytes, as [`open_snapshot`] does.
///
/// # Errors
/// [`PickleError`] with the offset and the reason at the first thing that is wrong.
pub fn read_snapshot(
    source: impl Read,
    options: &ReadOptions,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Snapshot, PickleError> {
    let error = |e: std::io::Error| PickleError { offset: 0, reason: reason_of(&e) };
    let mut unpacked = unpack(source).map_err(error)?.source;
    let archived = unpacked.fill_buf().map_err(error)?.starts_with(archive::MAGIC);
    let mut records = Records::default();
    let limits = options.limits;
    let pickled = if archived {
        let member = archive::data_pickle(unpacked)?;
        read(member, limits, &mut records, progress, false)?
    } else {
        read(unpacked, limits, &mut records, progress, true)?
    };
    convert(pickled, records, limits)
}
