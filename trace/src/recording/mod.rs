//! Any file that tells of GPU memory, opened without being told what it is.
//!
//! Told apart by content, never by name. What a kind of file lacks is absent in the
//! [`Recording`], and [`Recording::lacks`] says so in words.

mod error;
mod follow;
mod own;
mod redact;
mod select;
mod sniff;
mod walk;
mod wrap;

pub use error::OpenError;
pub use follow::Follow;
pub use select::{Point, Selection};

use crate::file::{Meta, TraceFile};
use crate::import::{Dump, DumpError, DumpSource, open_dump, open_rmm, read_dump, read_rmm};
use crate::snapshot::{
    Early, History, ReadOptions, Snapshot, open_json_snapshot, open_snapshot, open_snapshot_early,
    read_json_snapshot, read_snapshot,
};
use crate::{Limits, Reason, open_csv, read_csv};
use serde::Serialize;
use sniff::Looks;
use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::ControlFlow;
use std::path::Path;

/// What a file turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Format {
    /// Our own trace file.
    Terrane,
    /// A PyTorch memory snapshot, pickled or in a torch.save archive.
    PytorchSnapshot,
    /// The same as JSON.
    PytorchJson,
    /// A recorded workload: CSV `t_us,op,block,size,stream`.
    Csv,
    /// The CSV log of RMM.
    RmmLog,
    /// A JSON dump of VMA: one moment.
    VmaDump,
    /// A JSON dump of D3D12MA: one moment.
    D3d12maDump,
    /// A report of gpu-allocator: one moment.
    GpuAllocatorReport,
    /// A report of wgpu's allocator: one moment.
    WgpuReport,
}

impl Format {
    /// What it is, for people.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Terrane => "Terrane trace",
            Self::PytorchSnapshot => "PyTorch memory snapshot",
            Self::PytorchJson => "PyTorch memory snapshot (JSON)",
            Self::Csv => "recorded workload (CSV)",
            Self::RmmLog => "RMM log",
            Self::VmaDump => DumpSource::Vma.describe(),
            Self::D3d12maDump => DumpSource::D3d12ma.describe(),
            Self::GpuAllocatorReport => DumpSource::GpuAllocator.describe(),
            Self::WgpuReport => DumpSource::Wgpu.describe(),
        }
    }

    /// True where the file says which allocator placed the blocks and where: PyTorch's rules
    /// and addresses apply to its history.
    #[must_use]
    pub fn is_pytorch(self) -> bool {
        matches!(self, Self::PytorchSnapshot | Self::PytorchJson)
    }
}

/// A file, opened.
#[derive(Debug)]
pub struct Recording {
    /// What it is.
    pub format: Format,
    /// Segments, stacks and settings; empty where the file has none.
    pub snapshot: Snapshot,
    /// The history of each device that has one, by device.
    pub histories: Vec<History>,
    /// The moment that a dump shows.
    pub dump: Option<Dump>,
    /// Names of the tags that blocks of a trace of ours have.
    pub tags: BTreeMap<u16, String>,
    /// Where a trace of ours was recorded and why it was written.
    pub meta: Option<Meta>,
    /// Call stacks that were taken of some requests, of a trace of ours.
    pub stacks: Option<StacksTaken>,
    /// What this kind of file does not tell, or this one lacks, a sentence each.
    pub lacks: Vec<String>,
}

/// Call stacks that a recorder took, and what that cost the threads that allocate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StacksTaken {
    /// How many.
    pub count: u64,
    /// Nanoseconds for all of them.
    pub total_ns: u64,
}

impl Recording {
    /// The history of a device; without one named, the longest.
    #[must_use]
    pub fn history(&self, device: Option<usize>) -> Option<&History> {
        match device {
            Some(device) => self.histories.iter().find(|history| history.device == device),
            // The first of equally long ones.
            None => self.histories.iter().rev().max_by_key(|h| h.trace.events().len()),
        }
    }
}

/// Opens the end of a trace of ours alone, which takes a fraction of the time that its history
/// takes: what is live there, as one moment. `None` for files that have to be read from their
/// beginning.
///
/// # Errors
/// [`OpenError`] with the place and the reason.
pub fn open_end(path: &Path) -> Result<Option<Recording>, OpenError> {
    match sniff::look(path)? {
        Looks::Own => own::end(path).map(Some),
        _ => Ok(None),
    }
}

/// [`open_recording`] that tells of what can be looked at before all is read: of a large PyTorch
/// snapshot the segments at the dump, then the moment of the peak, each as a recording without
/// history whose [`lacks`](Recording::lacks) say what it is. Nothing is told of other files; of a
/// trace of ours [`open_end`] gives the end.
///
/// # Errors
/// As [`open_recording`].
pub fn open_recording_early(
    path: &Path,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    tell: &mut dyn FnMut(Recording),
) -> Result<Recording, OpenError> {
    if !matches!(sniff::look(path)?, Looks::Pickle) {
        return open_recording(path, progress);
    }
    let mut early = |early| {
        let (Early::Segments(snapshot) | Early::Peak(snapshot)) = early;
        // Without a history there is nothing that could not be put together.
        if let Ok(recording) = wrap::snapshot(Format::PytorchSnapshot, snapshot) {
            tell(recording);
        }
    };
    let options = ReadOptions::default();
    let snapshot = open_snapshot_early(path, &options, progress, &mut early)?;
    Ok(wrap::snapshot(Format::PytorchSnapshot, snapshot)?)
}

/// Opens a file. `progress` sees now and then how many bytes of it (decompressed) were read, for
/// formats that can be large, and may stop the reading.
///
/// # Errors
/// [`OpenError`] with the place and the reason.
pub fn open_recording(
    path: &Path,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Recording, OpenError> {
    match sniff::look(path)? {
        Looks::Own => own::open(path, progress),
        Looks::Csv => Ok(wrap::workload(Format::Csv, open_csv(path, Limits::default())?)),
        Looks::Rmm => Ok(wrap::rmm(open_rmm(path, Limits::default())?)),
        Looks::Pickle => {
            let snapshot = open_snapshot(path, &ReadOptions::default(), progress)?;
            Ok(wrap::snapshot(Format::PytorchSnapshot, snapshot)?)
        }
        Looks::Json => match open_json_snapshot(path, &ReadOptions::default(), progress) {
            Ok(snapshot) => Ok(wrap::snapshot(Format::PytorchJson, snapshot)?),
            Err(error) if error.is_other_shape() => match open_dump(path) {
                Ok(dump) => Ok(wrap::dump(dump)),
                Err(DumpError::Other) => Err(OpenError::OtherJson),
                Err(error) => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        },
        Looks::Unknown => Err(OpenError::Unknown),
    }
}

/// Reads a file that is in memory, as [`open_recording`] does, within the limits given.
///
/// # Errors
/// As [`open_recording`].
pub fn read_recording(
    bytes: &[u8],
    options: &ReadOptions,
    progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Recording, OpenError> {
    match sniff::look_at(bytes)? {
        Looks::Own => own::read(TraceFile::new(Cursor::new(bytes))?, progress),
        Looks::Csv => Ok(wrap::workload(Format::Csv, read_csv(bytes, Limits::default())?)),
        Looks::Rmm => Ok(wrap::rmm(read_rmm(bytes, Limits::default())?)),
        Looks::Pickle => {
            let snapshot = read_snapshot(bytes, options, progress)?;
            Ok(wrap::snapshot(Format::PytorchSnapshot, snapshot)?)
        }
        Looks::Json => match read_json_snapshot(bytes, options, progress) {
            Ok(snapshot) => Ok(wrap::snapshot(Format::PytorchJson, snapshot)?),
            Err(error) if error.is_other_shape() => match read_dump(bytes) {
                Ok(dump) => Ok(wrap::dump(dump)),
                Err(DumpError::Other) => Err(OpenError::OtherJson),
                Err(error) => Err(error.into()),
            },
            Err(error) => Err(error.into()),
        },
        Looks::Unknown => Err(OpenError::Unknown),
    }
}

impl From<Reason> for OpenError {
    fn from(reason: Reason) -> Self {
        Self::History(reason)
    }
}
