//! Kernels: the user's and the built-in ones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a failed test panics

mod common;

use std::sync::Arc;

use common::{Bench, at, bench, bench_with, quick};
use terrane_core::device::{
    Access, Binding, Compute, CopyOp, Device, DeviceError, KernelId, KernelSource, MemoryKind,
    Place, Region, StreamId, UnsafeKernelSource, pattern,
};
use terrane_vulkan::{OpenOptions, Part, Parts};

const MIB: u64 = 1 << 20;

const SCALE: &str = "
@group(0) @binding(0) var<storage> input: array<u32>;
@group(0) @binding(1) var<storage, read_write> output: array<u32>;
struct Push { factor: u32, reach: u32 }
var<immediate> push: Push;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    output[id.x + push.reach] = input[id.x + push.reach] * push.factor + 1u;
}";

fn compute(device: &Bench) -> &dyn Compute {
    device.compute().expect("every Vulkan device computes")
}

fn wgsl(text: &str) -> KernelSource {
    KernelSource::Wgsl { text: Arc::from(text), entry: Arc::from("main") }
}

fn load(device: &Bench, text: &str) -> KernelId {
    compute(device).load(&wgsl(text)).expect("the kernel compiles")
}

fn binding(place: Place, bytes: u64, access: Access) -> Binding {
    Binding { place, bytes, access }
}

fn push(words: [u32; 2]) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&words[0].to_le_bytes());
    bytes[4..].copy_from_slice(&words[1].to_le_bytes());
    bytes
}

fn verify(device: &Bench, stream: StreamId, regions: &[Region]) -> Vec<u64> {
    let ticket = compute(device).verify(stream, regions).expect("submitted");
    device.wait(ticket.point);
    compute(device).take_report(ticket).expect("the report is there")
}

#[test]
fn a_kernel_reads_and_writes_its_bindings_and_nothing_else() {
    let Some(device) = bench() else { return };
    let plain = device.plain(MemoryKind::Device, MIB);
    let stream = device.stream();
    let kernel = load(&device, SCALE);
    let word = |i: u32| (i * 3).to_le_bytes();
    let data: Vec<u8> = (0..1024).flat_map(word).collect();
    device.write(stream, at(plain.space, 0), &data).unwrap();
    device.fill(stream, at(plain.space, 4096), 8192, 0xFFFF_FFFF).unwrap();
    let bindings = [
        binding(at(plain.space, 0), 4096, Access::Read),
        binding(at(plain.space, 4096), 4096, Access::Write),
    ];
    let run =
        |bytes: &[u8], groups| compute(&device).dispatch(stream, kernel, &bindings, bytes, groups);
    run(&push([5, 0]), [16, 1, 1]).unwrap();
    let words = device.fetch_words(stream, at(plain.space, 4096), 2048);
    assert!((0..1024_u32).all(|i| words[i as usize] == i * 15 + 1));
    // A run over far more than the bindings stays inside them.
    run(&push([7, 512]), [64, 1, 1]).unwrap();
    let words = device.fetch_words(stream, at(plain.space, 4096), 2048);
    assert!((512..1024_u32).all(|i| words[i as usize] == i * 21 + 1));
    assert!(words[1024..].iter().all(|word| *word == u32::MAX));
    assert_eq!(compute(&device).dispatches(), 2);
    let invalid =
        |result| assert!(matches!(result, Err(DeviceError::InvalidCall(_))), "{result:?}");
    invalid(run(&[], [1, 1, 1]));
    invalid(compute(&device).dispatch(stream, kernel, &bindings[..1], &push([1, 0]), [1; 3]));
    compute(&device).unload(kernel).unwrap();
    invalid(run(&push([1, 0]), [1, 1, 1]));
    assert!(compute(&device).unload(kernel).is_err());
}

#[test]
fn bindings_that_a_kernel_can_not_have_are_refused() {
    let Some(device) = bench() else { return };
    let plain = device.plain(MemoryKind::Device, MIB);
    let stream = device.stream();
    let kernel = load(
        &device,
        "@group(0) @binding(0) var<storage, read_write> a: array<u32, 64>;
         @compute @workgroup_size(64)
         fn main(@builtin(local_invocation_index) i: u32) { a[i] = i; }",
    );
    let run = |place, bytes| {
        let bindings = [binding(place, bytes, Access::Write)];
        compute(&device).dispatch(stream, kernel, &bindings, &[], [1, 1, 1])
    };
    run(at(plain.space, 0), 256).unwrap();
    assert!(matches!(run(at(plain.space, 0), 252), Err(DeviceError::InvalidCall(_))));
    assert!(matches!(run(at(plain.space, 4), 256), Err(DeviceError::InvalidCall(_))));
    assert!(matches!(run(at(plain.space, plain.bytes), 256), Err(DeviceError::InvalidCall(_))));
    let limit = device.caps().max_binding_bytes;
    let refused = run(at(plain.space, 0), limit + 1);
    assert_eq!(refused, Err(DeviceError::TooLarge { bytes: limit + 1, limit }));
}

#[test]
fn sources_in_other_languages_and_sources_that_do_not_compile_are_refused() {
    let Some(device) = bench() else { return };
    let broken = compute(&device).load(&wgsl("fn main( {"));
    assert!(matches!(broken, Err(DeviceError::InvalidCall(_))));
    let (words, entry) = (Arc::from([1, 2, 3]), Arc::from("main"));
    let garbage = UnsafeKernelSource::SpirV { words, entry, bindings: 0, push_bytes: 0 };
    // SAFETY: nothing is loaded: the words are no SPIR-V.
    let refused = unsafe { compute(&device).load_unchecked(&garbage) };
    assert!(matches!(refused, Err(DeviceError::InvalidCall(_))));
    let cuda = UnsafeKernelSource::Cuda {
        image: Arc::from([0]),
        entry: Arc::from("main"),
        threads: [1; 3],
        shared_bytes: 0,
    };
    // SAFETY: nothing is loaded: CUDA kernels are refused.
    let refused = unsafe { compute(&device).load_unchecked(&cuda) };
    assert!(matches!(refused, Err(DeviceError::Unsupported(_))));
}

#[test]
fn patterns_and_checksums_agree_with_the_ones_computed_by_the_host() {
    let Some(device) = bench() else { return };
    let plain = device.plain(MemoryKind::Device, 2 * MIB);
    let stream = device.stream();
    let region = |offset, bytes, seed| Region { place: at(plain.space, offset), bytes, seed };
    let regions =
        [region(4, 4, 1), region(12, 300_000, u64::MAX - 5), region(MIB, 65_540, 0x1234_5678_9ABC)];
    device.fill(stream, at(plain.space, 0), 2 * MIB, 0x5555_5555).unwrap();
    compute(&device).fill_pattern(stream, &regions).unwrap();
    for r in &regions {
        let words = device.fetch_words(stream, r.place, r.bytes / 4);
        assert!(words.iter().zip(0..).all(|(word, i)| *word == pattern::word(r.seed, i)));
    }
    // Nothing was written between and around the regions.
    for offset in [0, 8, 12 + 300_000, MIB - 4, MIB + 65_540] {
        assert_eq!(device.fetch_words(stream, at(plain.space, offset), 1), [0x5555_5555]);
    }
    let ticket = compute(&device).checksum(stream, &regions).unwrap();
    device.wait(ticket.point);
    let sums = compute(&device).take_report(ticket).unwrap();
    let expected =
        |r: &Region| pattern::checksum((0..r.bytes / 4).map(|i| pattern::word(r.seed, i)));
    assert_eq!(sums, regions.iter().map(expected).collect::<Vec<_>>());
    assert!(compute(&device).take_report(ticket).is_err(), "a ticket is taken once");
}

#[test]
fn verify_counts_exactly_the_words_that_differ() {
    let Some(device) = bench() else { return };
    let plain = device.plain(MemoryKind::Device, 4 * MIB);
    let stream = device.stream();
    let regions: Vec<_> = (0..64)
        .map(|i| Region { place: at(plain.space, i * 65_536), bytes: 60_000, seed: i * 77 })
        .collect();
    compute(&device).fill_pattern(stream, &regions).unwrap();
    assert_eq!(verify(&device, stream, &regions), [0; 64]);
    // First, last and a middle word of region 5; a word just behind region 6.
    for offset in [0, 59_996, 30_000] {
        device.write(stream, at(plain.space, 5 * 65_536 + offset), &[1, 2, 3, 4]).unwrap();
    }
    device.write(stream, at(plain.space, 6 * 65_536 + 60_000), &[1, 2, 3, 4]).unwrap();
    let mut expected = [0; 64];
    expected[5] = 3;
    assert_eq!(verify(&device, stream, &regions), expected);
    let wrong = Region { seed: 1, ..regions[0] };
    assert_eq!(verify(&device, stream, &[wrong]), [15_000]);
}

#[test]
fn a_block_of_200_mib_is_filled_moved_and_verified_whole() {
    let Some(device) = bench() else { return };
    let bytes = 200 * MIB;
    let (a, b) = (device.plain(MemoryKind::Device, bytes), device.plain(MemoryKind::Device, bytes));
    let stream = device.stream();
    let from = Region { place: at(a.space, 0), bytes, seed: 42 };
    let to = Region { place: at(b.space, 0), ..from };
    compute(&device).fill_pattern(stream, &[from]).unwrap();
    // Looked at without the kernel: both sides of the windows' ends, and the block's ends.
    for offset in [0, 128 * MIB - 4, 128 * MIB, bytes - 4] {
        let word = device.fetch_words(stream, at(a.space, offset), 1)[0];
        assert_eq!(word, pattern::word(42, offset / 4), "at {offset}");
    }
    assert_eq!(verify(&device, stream, &[from]), [0]);
    assert_ne!(verify(&device, stream, &[to]), [0]);
    let op = CopyOp { from: from.place, to: to.place, bytes };
    compute(&device).gather(stream, &[op]).unwrap();
    assert_eq!(verify(&device, stream, &[to]), [0]);
}

fn gather_many(device: &Bench) {
    let (blocks, size) = (300_u64, 20_000_u64);
    let bytes = blocks * 32 * 1024;
    let (a, b) = (device.plain(MemoryKind::Device, bytes), device.plain(MemoryKind::Device, bytes));
    let stream = device.stream();
    let place = |space, i: u64| at(space, i * 32 * 1024 + (i % 7) * 16);
    let region = |space, i, seed| Region { place: place(space, i), bytes: size, seed };
    let from: Vec<_> = (0..blocks).map(|i| region(a.space, i, i)).collect();
    // Every block goes to the place of another, a third of them within its own segment.
    let to = |i: u64| if i.is_multiple_of(3) { (a.space, i) } else { (b.space, blocks - 1 - i) };
    compute(device).fill_pattern(stream, &from).unwrap();
    let half = 16 * 1024;
    let ops: Vec<_> = (0..blocks)
        .map(|i| match to(i) {
            (space, _) if space == a.space => CopyOp {
                from: place(a.space, i),
                to: at(a.space, i * 32 * 1024 + half + 4096),
                bytes: 8192,
            },
            (space, j) => CopyOp { from: place(a.space, i), to: place(space, j), bytes: size },
        })
        .collect();
    compute(device).gather(stream, &ops).unwrap();
    let moved: Vec<_> = ops
        .iter()
        .zip(0..)
        .map(|(op, i)| Region { place: op.to, bytes: op.bytes, seed: i })
        .collect();
    assert_eq!(verify(device, stream, &moved), vec![0; blocks as usize]);
    let odd = CopyOp { from: at(a.space, 4), to: at(b.space, 0), bytes: 16 };
    assert!(compute(device).gather(stream, &[odd]).is_err());
}

#[test]
fn many_blocks_are_gathered_in_one_submission_by_address() {
    let Some(device) = bench() else { return };
    gather_many(&device);
}

#[test]
fn many_blocks_are_gathered_in_one_submission_over_bindings() {
    let without = Parts::default().with(Part::BufferDeviceAddress);
    let Some(device) = bench_with(OpenOptions { without, ..quick() }) else { return };
    assert!(!device.caps().addresses);
    gather_many(&device);
}

#[test]
fn a_saved_pipeline_cache_is_taken_up_again() {
    let Some(device) = bench() else { return };
    load(&device, SCALE);
    let saved = device.pipeline_cache().unwrap();
    assert!(saved.len() >= 32);
    for pipeline_cache in [saved.clone(), saved[..20].to_vec(), vec![9; 100]] {
        let options = OpenOptions { pipeline_cache, ..quick() };
        let again = bench_with(options).expect("it opened before");
        load(&again, SCALE);
    }
}

#[test]
fn a_kernel_runs_over_more_workgroups_in_a_row_than_the_driver_takes() {
    let Some(device) = bench() else { return };
    let groups = 65_535 * 3 + 17_u32;
    let plain = device.plain(MemoryKind::Device, 4 << 20);
    let stream = device.stream();
    let kernel = load(
        &device,
        "@group(0) @binding(0) var<storage, read_write> a: array<u32>;
         @compute @workgroup_size(4)
         fn main(
             @builtin(global_invocation_id) id: vec3<u32>,
             @builtin(workgroup_id) group: vec3<u32>,
             @builtin(local_invocation_index) lane: u32,
         ) {
             if lane == 1u { a[group.x] = id.x * 7u + id.y + group.y; }
         }",
    );
    let bytes = u64::from(groups) * 4;
    let bindings = [binding(at(plain.space, 0), bytes, Access::Write)];
    device.fill(stream, at(plain.space, 0), plain.bytes, 0xAAAA_AAAA).unwrap();
    let run = |groups| compute(&device).dispatch(stream, kernel, &bindings, &[], groups);
    run([groups, 1, 1]).unwrap();
    let words = device.fetch_words(stream, at(plain.space, 0), u64::from(groups) + 1);
    for (i, word) in (0..groups).zip(&words) {
        assert_eq!(*word, (i * 4 + 1) * 7, "workgroup {i}");
    }
    assert_eq!(words[groups as usize], 0xAAAA_AAAA);

    let counting = load(
        &device,
        "@group(0) @binding(0) var<storage, read_write> a: array<u32>;
         @compute @workgroup_size(1)
         fn main(@builtin(num_workgroups) n: vec3<u32>) { a[0] = n.x; }",
    );
    // Where the driver takes that many nothing is folded, and counting is no matter.
    let result = compute(&device).dispatch(stream, counting, &bindings, &[], [groups, 1, 1]);
    if let Err(error) = result {
        assert!(matches!(error, DeviceError::InvalidCall(_)));
    } else {
        assert_eq!(device.fetch_words(stream, at(plain.space, 0), 1), [groups]);
    }
}

#[test]
fn what_calls_cost_is_measured_when_a_device_is_opened_and_nothing_is_left_behind() {
    let Some(device) = bench_with(OpenOptions::default()) else { return };
    let costs = device.caps().costs;
    println!("{costs:?}, prefer gather: {}", device.caps().prefer_gather);
    assert!(costs.copy.ns(64 * MIB) > 0.0 && costs.gather.ns(64 * MIB) > 0.0);
    assert!(costs.plain_create.ns(MIB) > 0.0 && costs.plain_release.ns(MIB) > 0.0);
    assert_eq!(costs.page_map.ns(2 * MIB) > 0.0, device.paging().is_some());
    assert_eq!(device.memory_objects(), 0);
    // Where one is far faster than the other there is no doubt which is to be preferred.
    let (gather, copy) = (costs.gather.ns(64 * MIB), costs.copy.ns(64 * MIB));
    if gather > 3.0 * copy || copy > 3.0 * gather {
        assert_eq!(device.caps().prefer_gather, gather < copy);
    }
}
