//! What gpu-allocator holds for a device, as JSON that our tools read.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a failed test panics

mod common;

use common::{at, bench};
use terrane_core::device::{Device as _, MemoryKind};
use terrane_trace::import::{DumpSource, read_dump};

#[test]
fn the_report_of_a_device_is_read_and_its_blocks_are_covered_without_gaps() {
    let Some(device) = bench() else { return };
    let plain = device.plain(MemoryKind::Device, 1 << 20);
    let stream = device.stream();
    let data = vec![7; 300_000];
    device.write(stream, at(plain.space, 0), &data).unwrap();
    assert!(device.fetch(stream, at(plain.space, 0), data.len() as u64) == data);
    let dump = read_dump(device.fixed_memory_json().as_bytes()).unwrap();
    assert_eq!(dump.source, DumpSource::GpuAllocator);
    // Staging and readback were needed.
    assert!(dump.allocated_bytes >= 300_000, "{dump:?}");
    assert!(dump.reserved_bytes >= dump.allocated_bytes);
    assert_eq!(dump.blocks.iter().map(|block| block.bytes).sum::<u64>(), dump.reserved_bytes);
    for block in &dump.blocks {
        let mut end = 0;
        for range in &block.ranges {
            assert_eq!(range.offset, end, "{block:?}");
            end += range.bytes;
        }
        assert_eq!(end, block.bytes, "{block:?}");
    }
    let live = dump.blocks.iter().flat_map(|block| &block.ranges).filter(|range| !range.is_free());
    assert_eq!(live.map(|range| range.bytes).sum::<u64>(), dump.allocated_bytes);
}
