//! What a living device of wgpu reports of its memory, as JSON that our tools read.

#![cfg(feature = "wgpu-report")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a failed test panics

use std::collections::BTreeMap;

use terrane_trace::import::{Dump, DumpSource, read_dump};
use wgpu::{BufferUsages, Device, Queue, TextureUsages};

/// A device of wgpu on Vulkan; `None`, with a word on why, where there is none.
/// TERRANE_REQUIRE_VULKAN=1 makes that a failure.
fn device() -> Option<(Device, Queue)> {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::VULKAN;
    let instance = wgpu::Instance::new(descriptor);
    let options = wgpu::RequestAdapterOptions::default();
    match pollster::block_on(instance.request_adapter(&options)) {
        Ok(adapter) => {
            println!("running on {}", adapter.get_info().name);
            let made = adapter.request_device(&wgpu::DeviceDescriptor::default());
            Some(pollster::block_on(made).unwrap())
        }
        Err(error) if std::env::var_os("TERRANE_REQUIRE_VULKAN").is_none() => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("wgpu finds no device: {error}"),
    }
}

fn buffer(device: &Device, name: &str, bytes: u64) -> wgpu::Buffer {
    device.create_buffer(&wgpu::BufferDescriptor {
        label: Some(name),
        size: bytes,
        usage: BufferUsages::STORAGE | BufferUsages::COPY_DST,
        mapped_at_creation: false,
    })
}

fn texture(device: &Device, name: &str, side: u32) -> wgpu::Texture {
    device.create_texture(&wgpu::TextureDescriptor {
        label: Some(name),
        size: wgpu::Extent3d { width: side, height: side, depth_or_array_layers: 1 },
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format: wgpu::TextureFormat::Rgba8Unorm,
        usage: TextureUsages::TEXTURE_BINDING | TextureUsages::COPY_DST,
        view_formats: &[],
    })
}

fn dump(device: &Device) -> Dump {
    let report = device.generate_allocator_report().expect("Vulkan devices report");
    let dump = read_dump(terrane_vulkan::wgpu_json(&report).as_bytes()).unwrap();
    assert_eq!(dump.source, DumpSource::Wgpu);
    assert_eq!(dump.allocated_bytes, report.total_allocated_bytes);
    assert_eq!(dump.reserved_bytes, report.total_reserved_bytes);
    dump
}

/// Bytes of the allocations by name; every block is covered without gaps.
fn named(dump: &Dump) -> BTreeMap<String, u64> {
    let mut named = BTreeMap::new();
    for block in &dump.blocks {
        let mut end = 0;
        for range in &block.ranges {
            assert_eq!(range.offset, end, "{block:?}");
            end += range.bytes;
        }
        assert_eq!(end, block.bytes, "{block:?}");
        let live = block.ranges.iter().filter(|range| !range.is_free());
        for range in live {
            *named.entry(range.name.clone().unwrap_or_default()).or_default() += range.bytes;
        }
    }
    assert_eq!(named.values().sum::<u64>(), dump.allocated_bytes);
    named
}

#[test]
fn the_report_of_a_living_device_has_its_buffers_and_textures_under_their_names() {
    let Some((device, queue)) = device() else { return };
    let before = named(&dump(&device));
    let weights = buffer(&device, "weights", 3 << 20);
    let uniforms = buffer(&device, "uniforms \"a\"", 256);
    let picture = texture(&device, "picture", 512);
    let large = buffer(&device, "large", 96 << 20);
    let with = named(&dump(&device));
    let bytes = |name: &str| with.get(name).copied().unwrap_or(0);
    assert!(bytes("weights") >= 3 << 20, "{with:?}");
    assert!(bytes("uniforms \"a\"") >= 256, "{with:?}");
    assert!(bytes("picture") >= 512 * 512 * 4, "{with:?}");
    assert!(bytes("large") >= 96 << 20, "{with:?}");
    // Memory is given back once no submission can still use it.
    large.destroy();
    drop(picture);
    queue.submit([]);
    device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
    let after = named(&dump(&device));
    assert!(!after.contains_key("large") && !after.contains_key("picture"), "{after:?}");
    assert!(after.contains_key("weights"), "{after:?}");
    let total = |named: &BTreeMap<String, u64>| named.values().sum::<u64>();
    assert!(total(&after) > total(&before) && total(&after) < total(&with));
    drop((weights, uniforms));
}
