//! Reports of other allocators as JSON, which `terrane FILE` and terrane-trace read: what a program
//! that uses gpu-allocator or wgpu writes to see its memory in our tools.

use std::ops::Range;

use serde_json::{Value, json};

/// What gpu-allocator says of itself, as JSON.
///
/// ```
/// let report = gpu_allocator::AllocatorReport {
///     allocations: Vec::new(),
///     blocks: Vec::new(),
///     total_allocated_bytes: 0,
///     total_capacity_bytes: 0,
/// };
/// let json = terrane_vulkan::gpu_allocator_json(&report);
/// assert!(json.contains("gpu-allocator report"));
/// ```
pub fn gpu_allocator_json(report: &gpu_allocator::AllocatorReport) -> String {
    let allocations: Vec<Value> =
        report.allocations.iter().map(|a| one(&a.name, a.offset, a.size)).collect();
    let blocks = report.blocks.iter().map(|block| (block.size, block.allocations.clone()));
    let totals = (report.total_allocated_bytes, report.total_capacity_bytes);
    document("gpu-allocator report", &allocations, blocks, totals)
}

/// What `wgpu::Device::generate_allocator_report` says, as JSON.
#[cfg(feature = "wgpu-report")]
pub fn wgpu_json(report: &wgpu_types::AllocatorReport) -> String {
    let allocations: Vec<Value> =
        report.allocations.iter().map(|a| one(&a.name, a.offset, a.size)).collect();
    let blocks = report.blocks.iter().map(|block| (block.size, block.allocations.clone()));
    let totals = (report.total_allocated_bytes, report.total_reserved_bytes);
    document("wgpu report", &allocations, blocks, totals)
}

fn one(name: &str, offset: u64, size: u64) -> Value {
    json!({ "name": name, "offset": offset, "size": size })
}

fn document(
    format: &str,
    allocations: &[Value],
    blocks: impl Iterator<Item = (u64, Range<usize>)>,
    (allocated, reserved): (u64, u64),
) -> String {
    let of = |range: Range<usize>| allocations.get(range).map(<[Value]>::to_vec);
    let blocks: Vec<Value> = blocks
        .map(|(size, range)| json!({ "size": size, "allocations": of(range).unwrap_or_default() }))
        .collect();
    json!({
        "format": format,
        "version": 1,
        "total_allocated_bytes": allocated,
        "total_reserved_bytes": reserved,
        "blocks": blocks,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrane_trace::import::{DumpSource, read_dump};

    #[test]
    fn a_report_of_gpu_allocator_is_read_again() {
        let allocation = |name: &str, offset, size| gpu_allocator::AllocationReport {
            name: name.to_owned(),
            offset,
            size,
        };
        let report = gpu_allocator::AllocatorReport {
            allocations: vec![
                allocation("vertices \"1\"", 0, 256),
                allocation("b", 512, 256),
                allocation("image", 0, 1 << 20),
            ],
            blocks: vec![
                gpu_allocator::MemoryBlockReport { size: 4096, allocations: 0..2 },
                gpu_allocator::MemoryBlockReport { size: 1 << 20, allocations: 2..3 },
            ],
            total_allocated_bytes: (1 << 20) + 512,
            total_capacity_bytes: (1 << 20) + 4096,
        };
        let dump = read_dump(gpu_allocator_json(&report).as_bytes()).unwrap();
        assert_eq!(dump.source, DumpSource::GpuAllocator);
        assert_eq!(dump.reserved_bytes, report.total_capacity_bytes);
        assert_eq!(dump.blocks[0].ranges[0].name.as_deref(), Some("vertices \"1\""));
        let live = dump.blocks.iter().flat_map(|block| &block.ranges).filter(|r| !r.is_free());
        assert_eq!(live.map(|range| range.bytes).sum::<u64>(), report.total_allocated_bytes);
    }

    #[cfg(feature = "wgpu-report")]
    #[test]
    fn a_report_of_wgpu_is_read_again() {
        let report = wgpu_types::AllocatorReport {
            allocations: vec![wgpu_types::AllocationReport {
                name: "uniforms".to_owned(),
                offset: 64,
                size: 64,
            }],
            blocks: vec![wgpu_types::MemoryBlockReport { size: 256, allocations: 0..1 }],
            total_allocated_bytes: 64,
            total_reserved_bytes: 256,
        };
        let dump = read_dump(wgpu_json(&report).as_bytes()).unwrap();
        assert_eq!((dump.source, dump.blocks[0].ranges.len()), (DumpSource::Wgpu, 3));
    }
}
