//! The offset index beside the crate `offset-allocator` (32 bits, one home, no order of streams),
//! which counts in units of 256 B here so that both work on 64 GiB.
//!
//! `cargo bench -p terrane-core --bench range`. Throughput is in operations: a pair is two.

// What criterion_group! makes has no place for a comment; a bench may end at once.
#![allow(missing_docs, clippy::expect_used)]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use offset_allocator::Allocator;
use terrane_core::point::{Points, StreamId, SyncPoint};
use terrane_core::range::{Home, NodeId, Ranges, State};
use terrane_core::units::{Align, GIB, KIB};

const UNIT: u64 = 256;
const SPACE: u64 = 64 * GIB;
const HOLES: usize = 100_000;

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// From 256 B to 16 MiB, each power of two as likely.
    fn size(&mut self) -> u64 {
        let low = UNIT << (self.next() % 16);
        (low + self.next() % low) / UNIT * UNIT
    }
}

fn take(ranges: &mut Ranges, bytes: u64, home: Home) -> NodeId {
    let fit = ranges.find(bytes, Align::ONE, home).expect("the space is large enough");
    ranges.take(fit, State::Live).0
}

/// Both allocators with `HOLES` holes between as many live blocks, of sizes drawn by `size`.
fn holed(size: &mut dyn FnMut() -> u64, points: &Points) -> (Ranges, Allocator<u32>) {
    let mut ranges = Ranges::new();
    ranges.add_segment(SPACE);
    let mut peer = Allocator::with_max_allocs((SPACE / UNIT) as u32, 4 * HOLES as u32);
    let mut blocks: Vec<_> = (0..2 * HOLES)
        .map(|_| {
            let bytes = size();
            let theirs = peer.allocate((bytes / UNIT) as u32).expect("the space is large enough");
            (take(&mut ranges, bytes, Home::Done), theirs)
        })
        .step_by(2)
        .collect();
    let mut rng = Rng(1);
    for at in 0..blocks.len() {
        blocks.swap(at, rng.next() as usize % (at + 1));
    }
    for (node, theirs) in blocks {
        ranges.free(node, points.clone());
        peer.free(theirs);
    }
    (ranges, peer)
}

fn pairs(c: &mut Criterion) {
    let mut group = c.benchmark_group("pair");
    group.throughput(Throughput::Elements(2));
    let mut rng = Rng(2);
    let one: &mut dyn FnMut() -> u64 = &mut || 64 * KIB;
    let mixed: &mut dyn FnMut() -> u64 = &mut || rng.size() / 16 / UNIT * UNIT + UNIT;
    for (name, size) in [("holes of one size", one), ("holes of all sizes", mixed)] {
        let point = SyncPoint { stream: StreamId(3), value: 9 };
        let points = Points::one(point);
        let (mut ranges, mut peer) = holed(size, &points);
        group.bench_function(BenchmarkId::new("terrane, on a stream", name), |b| {
            b.iter(|| {
                let node = take(&mut ranges, black_box(64 * KIB), Home::Stream(point.stream));
                ranges.free(node, Points::one(point));
            });
        });
        ranges.reap(&mut |_| true);
        group.bench_function(BenchmarkId::new("terrane", name), |b| {
            b.iter(|| {
                let node = take(&mut ranges, black_box(64 * KIB), Home::Done);
                ranges.free(node, Points::NONE);
            });
        });
        group.bench_function(BenchmarkId::new("offset-allocator", name), |b| {
            b.iter(|| {
                let block = peer.allocate(black_box(64 * KIB / UNIT) as u32).expect("room");
                peer.free(block);
            });
        });
        ranges.check().expect("the index is sound");
    }
    group.finish();
}

/// One of 1,000 live blocks is replaced by one of another size.
fn replacing(c: &mut Criterion) {
    let mut group = c.benchmark_group("replace one of 1,000");
    group.throughput(Throughput::Elements(2));
    let mut rng = Rng(3);
    let steps: Vec<(usize, u64)> =
        (0..1 << 16).map(|_| (rng.next() as usize % 1_000, rng.size())).collect();

    let mut ranges = Ranges::new();
    ranges.add_segment(SPACE);
    let mut live: Vec<_> = (0..1_000).map(|_| take(&mut ranges, UNIT, Home::Done)).collect();
    let mut turn = steps.iter().cycle();
    group.bench_function("terrane", |b| {
        b.iter(|| {
            let (at, bytes) = turn.next().copied().unwrap_or_default();
            ranges.free(live[at], Points::NONE);
            live[at] = take(&mut ranges, bytes, Home::Done);
        });
    });

    let mut peer = Allocator::<u32>::new((SPACE / UNIT) as u32);
    let mut live: Vec<_> = (0..1_000).map(|_| peer.allocate(1).expect("room")).collect();
    let mut turn = steps.iter().cycle();
    group.bench_function("offset-allocator", |b| {
        b.iter(|| {
            let (at, bytes) = turn.next().copied().unwrap_or_default();
            peer.free(live[at]);
            live[at] = peer.allocate((bytes / UNIT) as u32).expect("room");
        });
    });
    group.finish();
}

criterion_group!(benches, pairs, replacing);
criterion_main!(benches);
