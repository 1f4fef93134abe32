//! Why a file could not be opened.

use crate::ReadError;
use crate::Reason;
use crate::file::FileError;
use crate::import::DumpError;
use crate::pickle::PickleError;
use std::io;

/// Why a file was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The operating system refused.
    #[error("the file cannot be read ({0}); check the path and its permissions")]
    Io(io::ErrorKind),
    /// Not one byte was there.
    #[error("the file is empty; was the program stopped before it was written?")]
    Empty,
    /// Its first bytes belong to nothing that is read.
    #[error(
        "this is no file that is read: traces of Terrane, PyTorch snapshots (pickle, torch.save archive, JSON), \
         recorded workloads (CSV `t_us,op,block,size,stream`), RMM logs, JSON dumps of VMA and \
         D3D12MA, reports of gpu-allocator and wgpu; each plain, gzip or zstd"
    )]
    Unknown,
    /// JSON of something else.
    #[error(
        "this is JSON, and neither a PyTorch snapshot nor a dump of VMA, D3D12MA, gpu-allocator or wgpu"
    )]
    OtherJson,
    /// A line of a CSV.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A byte of a snapshot.
    #[error(transparent)]
    Pickle(#[from] PickleError),
    /// A trace of ours.
    #[error(transparent)]
    File(#[from] FileError),
    /// The caller's progress function asked to stop.
    #[error("reading was cancelled")]
    Cancelled,
    /// A dump.
    #[error(transparent)]
    Dump(#[from] DumpError),
    /// A snapshot whose sizes cannot all exist.
    #[error("its history cannot have happened: {0}")]
    History(Reason),
}
