//! JSON dumps of VMA (`vmaBuildStatsString`) and D3D12MA (`BuildStatsString`), and what all dumps
//! have in common.
//!
//! Both list blocks of memory with the ranges in them. Where they differ: VMA groups by memory
//! type (`DefaultPools`, `CustomPools`), D3D12MA by heap type with its own names. Whatever has
//! the keys of a block is taken as one, at any place, so both and their versions are read.

use super::report;
use crate::input::unpack;
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// Which allocator wrote a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub enum DumpSource {
    /// Vulkan Memory Allocator.
    Vma,
    /// D3D12 Memory Allocator.
    D3d12ma,
    /// gpu-allocator, as terrane-vulkan writes its report.
    GpuAllocator,
    /// wgpu, as terrane-vulkan writes its report.
    Wgpu,
}

impl DumpSource {
    /// What a dump of it is, for people.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Vma => "VMA dump",
            Self::D3d12ma => "D3D12MA dump",
            Self::GpuAllocator => "report of gpu-allocator",
            Self::Wgpu => "report of wgpu's allocator",
        }
    }
}

/// One moment of an allocator's memory.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Dump {
    /// Who wrote it.
    pub source: DumpSource,
    /// Blocks and dedicated allocations, in the order of the file.
    pub blocks: Vec<DumpBlock>,
    /// Sum of the blocks' bytes.
    pub reserved_bytes: u64,
    /// Sum of the bytes of ranges that are in use.
    pub allocated_bytes: u64,
}

/// A piece of memory obtained from the driver.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct DumpBlock {
    /// Pool or memory type, as the file names it: `DefaultPools/Type 0`.
    pub pool: String,
    /// The block's number or name.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// True for memory of one allocation.
    pub dedicated: bool,
    /// Its ranges by offset; empty where the dump has no detailed map.
    pub ranges: Vec<DumpRange>,
}

/// A range in a block.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct DumpRange {
    /// Offset in its block.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// `FREE`, `BUFFER`, `IMAGE_OPTIMAL`, ..., as the file names it.
    pub kind: String,
    /// The program's name for it, where it gave one.
    pub name: Option<String>,
}

impl DumpRange {
    /// True when nothing is allocated there.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.kind == FREE
    }
}

/// Why a dump was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// The operating system refused to open or read the file.
    #[error("the file cannot be read ({0}); check the path and its permissions")]
    Io(io::ErrorKind),
    /// No JSON; the message has line and column.
    #[error("this is no JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// More bytes than are read.
    #[error("the dump is larger than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// JSON of something else.
    #[error("this is no dump of VMA or D3D12MA, and no report of gpu-allocator or wgpu")]
    Other,
    /// A dump or report whose parts do not fit.
    #[error("the dump cannot be right: {0}")]
    Shape(&'static str),
}

pub(super) const FREE: &str = "FREE";
/// Largest dump that is read: one of a few million ranges.
const BYTES_MAX: u64 = 1 << 30;

/// Opens a dump, plain, gzip or zstd.
///
/// # Errors
/// [`DumpError`] with what is wrong.
pub fn open_dump(path: &Path) -> Result<Dump, DumpError> {
    let file = File::open(path).map_err(|e| DumpError::Io(e.kind()))?;
    read_dump(file)
}

/// Reads a dump, plain, gzip or zstd.
///
/// # Errors
/// [`DumpError`] with what is wrong.
pub fn read_dump(source: impl Read) -> Result<Dump, DumpError> {
    let source = unpack(source).map_err(|e| DumpError::Io(e.kind()))?.source;
    let mut limited = source.take(BYTES_MAX + 1);
    let parsed: Result<Value, _> = serde_json::from_reader(BufReader::new(&mut limited));
    if limited.limit() == 0 {
        return Err(DumpError::TooLarge { limit: BYTES_MAX });
    }
    let parsed = parsed?;
    let root = parsed.as_object().ok_or(DumpError::Other)?;
    if let Some(source) = report::source_of(root) {
        return report::read(source, parsed);
    }
    let vulkan = root.get("General").and_then(|general| general.get("API"));
    let source = match vulkan.and_then(Value::as_str) {
        Some("Vulkan") => DumpSource::Vma,
        Some(api) if api.contains("Direct3D") || api.contains("D3D12") => DumpSource::D3d12ma,
        _ if root.contains_key("DefaultPools") => DumpSource::Vma,
        _ => return Err(DumpError::Other),
    };
    let mut blocks = Vec::new();
    for section in ["DefaultPools", "CustomPools"] {
        if let Some(pools) = root.get(section) {
            collect(pools, section, &mut blocks)?;
        }
    }
    let used = blocks.iter().flat_map(|block| &block.ranges).filter(|range| !range.is_free());
    let allocated_bytes = used.map(|range| range.bytes).fold(0, u64::saturating_add);
    let reserved_bytes = blocks.iter().map(|block| block.bytes).fold(0, u64::saturating_add);
    Ok(Dump { source, blocks, reserved_bytes, allocated_bytes })
}

/// Walks pools down to the objects that hold blocks. serde_json bounds the depth.
fn collect(value: &Value, path: &str, blocks: &mut Vec<DumpBlock>) -> Result<(), DumpError> {
    if let Some(list) = value.as_array() {
        // D3D12MA lists custom pools; VMA lists the pools of a memory type.
        for (at, pool) in list.iter().enumerate() {
            let name = text(pool, "Name").unwrap_or_else(|| at.to_string());
            collect(pool, &format!("{path}/{name}"), blocks)?;
        }
        return Ok(());
    }
    for (key, inner) in value.as_object().into_iter().flatten() {
        match key.as_str() {
            "Blocks" => {
                for (name, block) in inner.as_object().into_iter().flatten() {
                    blocks.push(one_block(block, path, name)?);
                }
            }
            "DedicatedAllocations" => {
                for (at, allocation) in inner.as_array().into_iter().flatten().enumerate() {
                    let range = range(allocation, true)?;
                    blocks.push(DumpBlock {
                        pool: path.to_owned(),
                        name: range.name.clone().unwrap_or_else(|| at.to_string()),
                        bytes: range.bytes,
                        dedicated: true,
                        ranges: vec![range],
                    });
                }
            }
            _ => collect(inner, &format!("{path}/{key}"), blocks)?,
        }
    }
    Ok(())
}

fn one_block(value: &Value, path: &str, name: &str) -> Result<DumpBlock, DumpError> {
    let total = value.get("TotalBytes").or_else(|| value.get("Size"));
    let bytes = total.and_then(Value::as_u64).ok_or(DumpError::Shape("a block has no size"))?;
    let listed = value.get("Suballocations").and_then(Value::as_array);
    let ranges: Result<Vec<DumpRange>, DumpError> =
        listed.into_iter().flatten().map(|entry| range(entry, false)).collect();
    let (pool, name) = (path.to_owned(), name.to_owned());
    Ok(DumpBlock { pool, name, bytes, dedicated: false, ranges: ranges? })
}

fn range(value: &Value, dedicated: bool) -> Result<DumpRange, DumpError> {
    let number = |key: &str| value.get(key).and_then(Value::as_u64);
    let offset = if dedicated { Some(0) } else { number("Offset") };
    Ok(DumpRange {
        offset: offset.ok_or(DumpError::Shape("a range has no offset"))?,
        bytes: number("Size").ok_or(DumpError::Shape("a range has no size"))?,
        kind: text(value, "Type").unwrap_or_else(|| "UNKNOWN".to_owned()),
        name: text(value, "Name"),
    })
}

fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).map(str::to_owned)
}
