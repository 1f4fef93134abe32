//! Reports of gpu-allocator and wgpu, as terrane-vulkan's helpers write them.
//!
//! ```text
//! {"format": "gpu-allocator report" | "wgpu report", "version": 1,
//!  "total_allocated_bytes": N, "total_reserved_bytes": N,
//!  "blocks": [{"size": N, "allocations": [{"name": "...", "offset": N, "size": N}, ...]}, ...]}
//! ```
//!
//! Both crates report live allocations by block of memory and nothing else, so what is free is
//! what lies between them.

use super::dump::{Dump, DumpBlock, DumpError, DumpRange, DumpSource, FREE};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Report {
    blocks: Vec<Block>,
    total_allocated_bytes: u64,
    total_reserved_bytes: u64,
}

#[derive(Deserialize)]
struct Block {
    size: u64,
    allocations: Vec<Allocation>,
}

#[derive(Deserialize)]
struct Allocation {
    #[serde(default)]
    name: String,
    offset: u64,
    size: u64,
}

/// Whose report a document says it is; `None` for another document.
pub(super) fn source_of(root: &serde_json::Map<String, Value>) -> Option<DumpSource> {
    match root.get("format")?.as_str()? {
        "gpu-allocator report" => Some(DumpSource::GpuAllocator),
        "wgpu report" => Some(DumpSource::Wgpu),
        _ => None,
    }
}

pub(super) fn read(source: DumpSource, root: Value) -> Result<Dump, DumpError> {
    if root.get("version").and_then(Value::as_u64) != Some(1) {
        return Err(DumpError::Shape("a report of another version than 1"));
    }
    let report: Report = serde_json::from_value(root)?;
    let blocks: Result<Vec<DumpBlock>, DumpError> =
        (0..).zip(report.blocks).map(|(number, block)| one_block(number, block)).collect();
    Ok(Dump {
        source,
        blocks: blocks?,
        reserved_bytes: report.total_reserved_bytes,
        allocated_bytes: report.total_allocated_bytes,
    })
}

fn one_block(number: usize, block: Block) -> Result<DumpBlock, DumpError> {
    let mut allocations = block.allocations;
    allocations.sort_by_key(|allocation| allocation.offset);
    let mut ranges = Vec::new();
    let mut end = 0;
    for Allocation { name, offset, size } in allocations {
        if offset < end {
            return Err(DumpError::Shape("two allocations of a report overlap"));
        }
        ranges.extend(free(end, offset));
        let Some(after) = offset.checked_add(size).filter(|after| *after <= block.size) else {
            return Err(DumpError::Shape("an allocation of a report ends beyond its block"));
        };
        end = after;
        let name = (!name.is_empty()).then_some(name);
        ranges.push(DumpRange { offset, bytes: size, kind: "ALLOCATION".to_owned(), name });
    }
    // One allocation that fills its block: memory of its own, as both crates make it.
    let dedicated = ranges.len() == 1 && end == block.size;
    ranges.extend(free(end, block.size));
    Ok(DumpBlock {
        pool: "blocks".to_owned(),
        name: number.to_string(),
        bytes: block.size,
        dedicated,
        ranges,
    })
}

fn free(from: u64, to: u64) -> Option<DumpRange> {
    let range = || DumpRange { offset: from, bytes: to - from, kind: FREE.to_owned(), name: None };
    (from < to).then(range)
}
