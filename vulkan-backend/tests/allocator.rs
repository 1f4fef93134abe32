//! The allocator over a Vulkan device.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a failed test panics

mod common;

use std::sync::Arc;
use std::time::Duration;

use ash::vk;
use common::{Bench, bench};
use terrane_core::device::{
    CopyOp, Device, DeviceError, Feature, KernelSource, Region, StreamId, pattern,
};
use terrane_core::{Allocator, Buffer, Config, Error, MemoryKind, Request, Slice};

const MIB: u64 = 1 << 20;

fn allocator(device: &Bench) -> Allocator {
    Allocator::new(Arc::new(device.0.clone())).unwrap()
}

/// A pseudo-random sequence; the seed is printed and can be given as TERRANE_SEED.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let seed = std::env::var("TERRANE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(11);
        println!("run again with TERRANE_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// 4 KiB to 16 MiB, every power of two as likely as every other.
    fn size(&mut self) -> u64 {
        let base = 4096 << self.below(12);
        base + self.below(base + 1)
    }
}

#[test]
fn ten_thousand_buffers_made_and_dropped_at_random_live_in_few_memory_objects() {
    let Some(device) = bench() else { return };
    let alloc = allocator(&device);
    let stream = device.stream();
    let mut random = Random::new();
    let mut live: Vec<Buffer> = Vec::new();
    let (mut bytes, mut most, mut failed) = (0, 0, 0);
    for _ in 0..10_000 {
        let size = random.size();
        while bytes + size > 768 * MIB {
            let gone = live.swap_remove(random.below(live.len() as u64) as usize);
            bytes -= gone.bytes();
        }
        match alloc.buffer(&Request::new(size, stream)) {
            Ok(buffer) => {
                bytes += buffer.bytes();
                live.push(buffer);
            }
            Err(error) => {
                println!("{error}");
                failed += 1;
            }
        }
        most = most.max(device.memory_objects());
    }
    println!("at most {most} memory objects for 768 MiB of live buffers");
    assert_eq!(failed, 0);
    assert!(most <= 40, "{most} memory objects");
    drop(live);
    alloc.check().unwrap();
}

fn region(buffer: &Buffer, seed: u64) -> Region {
    let pin = buffer.pin().unwrap();
    Region { place: pin.at().place, bytes: buffer.bytes() / 4 * 4, seed }
}

#[test]
fn blocks_keep_their_contents_while_others_come_and_go() {
    let Some(device) = bench() else { return };
    let alloc = allocator(&device);
    let streams: Vec<StreamId> = (0..3).map(|_| device.stream()).collect();
    let compute = device.compute().unwrap();
    let mut random = Random::new();
    let mut live: Vec<(Buffer, u64, StreamId)> = Vec::new();
    for seed in 0..300 {
        let stream = streams[seed as usize % 3];
        let size = random.size().min(MIB);
        let buffer = alloc.buffer(&Request::new(size, stream)).unwrap();
        alloc.insert_waits(stream, buffer.waits()).unwrap();
        let filled = compute.fill_pattern(stream, &[region(&buffer, seed)]).unwrap();
        // Submitted past the allocator, which has to be told before it gives the memory to others.
        alloc.record_use_until(buffer.handle(), filled).unwrap();
        live.push((buffer, seed, stream));
        if live.len() > 24 {
            live.swap_remove(random.below(24) as usize);
        }
    }
    for (buffer, seed, stream) in &live {
        let ticket = compute.verify(*stream, &[region(buffer, *seed)]).unwrap();
        device.wait(ticket.point);
        assert_eq!(compute.take_report(ticket).unwrap(), [0], "the block of seed {seed}");
    }
    drop(live);
    alloc.check().unwrap();
}

#[test]
fn a_block_gives_a_vk_buffer_of_its_own_at_its_place() {
    let Some(device) = bench() else { return };
    let alloc = allocator(&device);
    let stream = device.stream();
    let bytes = 4 * MIB;
    let buffer = alloc.buffer(&Request::new(bytes, stream)).unwrap();
    let view = alloc.view(buffer.handle()).unwrap();
    assert_eq!(alloc.view(buffer.handle()).unwrap(), view, "one view a block");
    let point = alloc.write(stream, buffer.handle(), 4096, b"seen by all").unwrap();
    alloc.wait(point, Duration::from_secs(10)).unwrap();
    let ticket = alloc.read(stream, Slice::read(buffer.handle()).part(4096, 11)).unwrap();
    alloc.wait(ticket.point, Duration::from_secs(10)).unwrap();
    assert_eq!(alloc.take_read(ticket).unwrap(), b"seen by all");
    drop(buffer);
}

#[test]
fn a_request_says_its_use_its_memory_types_and_its_name() {
    let Some(device) = bench() else { return };
    let alloc = allocator(&device);
    let stream = device.stream();
    let usage = |flags: vk::BufferUsageFlags| u64::from(flags.as_raw());
    let good = usage(vk::BufferUsageFlags::VERTEX_BUFFER | vk::BufferUsageFlags::STORAGE_BUFFER);
    let tag = alloc.tag("meshes").unwrap();
    let request = Request::new(MIB, stream).usage(good).name("mesh 7").tag(tag);
    // What the driver says a buffer like this needs, as a program beside would ask it.
    let info = vk::BufferCreateInfo::default().size(MIB).usage(vk::BufferUsageFlags::VERTEX_BUFFER);
    // SAFETY: the buffer is destroyed before the device.
    let bits = unsafe {
        let raw = device.ash().create_buffer(&info, None).unwrap();
        let bits = device.ash().get_buffer_memory_requirements(raw).memory_type_bits;
        device.ash().destroy_buffer(raw, None);
        bits
    };
    let mask = device.classes_of_types(bits);
    let buffer = alloc.buffer(&request.classes(mask)).unwrap();
    let info = buffer.info().unwrap();
    assert_eq!((info.name.as_str(), info.tag), ("mesh 7", tag));
    let refused = alloc.buffer(&request.usage(good | 1 << 60)).err();
    assert_eq!(refused, Some(Error::Device(DeviceError::Unsupported(Feature::Usage))));
    let refused = alloc.buffer(&request.classes(device.classes_of_types(0))).err();
    assert_eq!(refused, Some(Error::NoSuchKind(MemoryKind::Device)));
}

/// 200 MiB on a processor, more than one binding reaches; on a GPU 6 GiB, more than one memory
/// object holds there.
fn large(device: &Bench) -> u64 {
    if device.info().is_cpu { 200 * MIB } else { 6 << 30 }
}

/// With paging, where no memory object of the device is `bytes` long.
fn allocator_for(device: &Bench, bytes: u64) -> Allocator {
    let mut config = Config::for_device(device.caps());
    config.paging |= bytes > device.caps().max_plain_bytes && device.caps().paging.is_some();
    println!("paging: {}", config.paging);
    Allocator::with_config(Arc::new(device.0.clone()), config).unwrap()
}

#[test]
fn a_large_block_is_filled_moved_and_verified_and_too_large_for_a_kernel_to_bind() {
    let Some(device) = bench() else { return };
    let bytes = large(&device);
    let alloc = allocator_for(&device, bytes);
    let compute = device.compute().unwrap();
    let stream = device.stream();
    println!("a block of {} MiB", bytes / MIB);
    let request = Request::new(bytes, stream);
    let (from, to) = (alloc.buffer(&request).unwrap(), alloc.buffer(&request).unwrap());
    for buffer in [&from, &to] {
        // Pages may be bound only then; the kernels below go to the device directly.
        device.wait_on_stream(stream, buffer.waits().as_slice()).unwrap();
    }
    compute.fill_pattern(stream, &[region(&from, 6)]).unwrap();
    alloc.copy(stream, Slice::read(from.handle()), Slice::write(to.handle())).unwrap();
    // Looked at without a kernel on either side of what one binding reaches here.
    let edge = device.caps().max_binding_bytes.min(bytes / 2) / 4 * 4;
    for offset in [0, edge - 4, edge, bytes - 4] {
        let ticket = alloc.read(stream, Slice::read(to.handle()).part(offset, 4)).unwrap();
        alloc.wait(ticket.point, Duration::from_secs(10)).unwrap();
        let word = pattern::word(6, offset / 4).to_le_bytes();
        assert_eq!(alloc.take_read(ticket).unwrap(), word, "at {offset}");
    }
    let ticket = compute.verify(stream, &[region(&to, 6)]).unwrap();
    device.wait(ticket.point);
    assert_eq!(compute.take_report(ticket).unwrap(), [0]);
    // The same by the kernel that moves blocks.
    let (at, back) = (region(&to, 6), region(&from, 6));
    compute.fill_pattern(stream, &[Region { seed: 7, ..back }]).unwrap();
    let op = CopyOp { from: at.place, to: back.place, bytes };
    compute.gather(stream, &[op]).unwrap();
    let ticket = compute.verify(stream, &[back]).unwrap();
    device.wait(ticket.point);
    assert_eq!(compute.take_report(ticket).unwrap(), [0], "after the move by kernel");
    let limit = device.caps().max_binding_bytes;
    let text = "@group(0) @binding(0) var<storage, read_write> a: array<u32>;
        @compute @workgroup_size(1) fn main() { a[0] = 1u; }";
    let source = KernelSource::Wgsl { text: text.into(), entry: "main".into() };
    let kernel = compute.load(&source).unwrap();
    let run = |slice| alloc.dispatch(stream, kernel, &[slice], &[], [1, 1, 1]);
    if limit >= to.bytes() {
        println!("one binding reaches {limit} bytes here: more than this block");
        run(Slice::write(to.handle())).unwrap();
        return;
    }
    let refused = run(Slice::write(to.handle()));
    assert_eq!(refused, Err(Error::BindingTooLarge { bytes: to.bytes(), limit }));
    let point = run(Slice::write(to.handle()).part(0, limit)).unwrap();
    device.wait(point);
}
