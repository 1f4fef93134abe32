//! Opens a snapshot, whatever it is packed in.

use super::convert::{ReadOptions, convert};
use super::early::{Early, Told, Watched};
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
    read_staged(open(path)?, options, progress, None)
}

/// [`open_snapshot`] that tells of the segments and of the peak before all is there. Small files
/// are there at once, and nothing is told of them early.
///
/// # Errors
/// As [`open_snapshot`].
pub fn open_snapshot_early(
    path: &Path,
    options: &ReadOptions,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    tell: &mut dyn FnMut(Early),
) -> Result<Snapshot, PickleError> {
    let mut told = false;
    let mut first = |early| {
        told = true;
        tell(early);
    };
    let snapshot = read_staged(open(path)?, options, progress, Some(&mut first))?;
    if told
        && let Some(peak) = snapshot.main_trace().and_then(|(device, _)| snapshot.at_peak(device))
    {
        tell(Early::Peak(peak));
    }
    Ok(snapshot)
}

fn open(path: &Path) -> Result<File, PickleError> {
    let error = |e: std::io::Error| PickleError { offset: 0, reason: PickleReason::Io(e.kind()) };
    File::open(path).map_err(error)
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
    read_staged(source, options, progress, None)
}

fn read_staged(
    source: impl Read,
    options: &ReadOptions,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    tell: Option<Told<'_>>,
) -> Result<Snapshot, PickleError> {
    let error = |e: std::io::Error| PickleError { offset: 0, reason: reason_of(&e) };
    let mut unpacked = unpack(source).map_err(error)?.source;
    let archived = unpacked.fill_buf().map_err(error)?.starts_with(archive::MAGIC);
    let limits = options.limits;
    let mut watched = Watched::new(limits, tell);
    let pickled = if archived {
        let member = archive::data_pickle(unpacked)?;
        read(member, limits, &mut watched, progress, false)?
    } else {
        read(unpacked, limits, &mut watched, progress, true)?
    };
    convert(pickled, watched.records, limits)
}
