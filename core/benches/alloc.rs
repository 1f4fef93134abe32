//! What a request costs on the host: one thread, a device without costs.

#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use terrane_core::device::sim::Sim;
use terrane_core::device::{Device, StreamSpec};
use terrane_core::event::RecorderMode;
use terrane_core::{Allocator, Config, Handle, Request};

fn allocator(recorder: RecorderMode) -> (Allocator, terrane_core::point::StreamId) {
    let sim = Sim::slabs().capacity(64 << 30).open();
    let stream = sim.create_stream(StreamSpec::default()).unwrap();
    let mut config = Config::for_device(sim.caps());
    config.recorder = recorder;
    (Allocator::with_config(sim.shared(), config).unwrap(), stream)
}

/// A xorshift generator: the same sequence on every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Log-uniform from 256 B to 16 MiB.
    fn size(&mut self) -> u64 {
        let bits = 8 + self.next() % 16;
        (1 << bits) + self.next() % (1 << bits)
    }
}

fn pair(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("alloc_free_pair");
    group.throughput(Throughput::Elements(1));
    for (name, mode) in [("recorder_off", RecorderMode::Off), ("flight", RecorderMode::default())] {
        let (alloc, stream) = allocator(mode);
        let keep = alloc.alloc(&Request::new(1 << 20, stream)).unwrap();
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let got = alloc.alloc(&Request::new(4096, stream)).unwrap();
                alloc.free(got.handle).unwrap();
            });
        });
        alloc.free(keep.handle).unwrap();
    }
    group.finish();
}

fn mixed(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("mixed");
    group.throughput(Throughput::Elements(1));
    for live in [1_000_usize, 100_000] {
        let (alloc, stream) = allocator(RecorderMode::default());
        let mut random = Random(7);
        let ask = |random: &mut Random| {
            let bytes = if live > 1_000 { random.size() / 64 + 1 } else { random.size() };
            alloc.alloc(&Request::new(bytes, stream)).unwrap().handle
        };
        let mut blocks: Vec<Handle> = (0..live).map(|_| ask(&mut random)).collect();
        for _ in 0..live * 4 {
            let at = random.next() as usize % live;
            alloc.free(blocks[at]).unwrap();
            blocks[at] = ask(&mut random);
        }
        group.bench_function(format!("{live}_live"), |bencher| {
            bencher.iter_batched(
                || random.next() as usize % live,
                |at| {
                    alloc.free(blocks[at]).unwrap();
                    let mut random = Random(at as u64 + 1);
                    blocks[at] = ask(&mut random);
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, pair, mixed);
criterion_main!(benches);
