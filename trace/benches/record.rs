//! What recording costs the thread that allocates: one pair of alloc and free, which tells three
//! events, with the recorder off, as a flight recorder, and with a thread that writes a file.

#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

use criterion::{Criterion, criterion_group, criterion_main};
use terrane_core::device::StreamSpec;
use terrane_core::device::sim::Sim;
use terrane_core::event::RecorderMode;
use terrane_core::{Allocator, Request};
use terrane_trace::file::{Meta, Recorder};

fn pair(c: &mut Criterion) {
    let mut group = c.benchmark_group("alloc and free, three events");
    for name in ["terrane", "terrane-flight", "terrane-recorded"] {
        let device = Sim::cuda().open().shared();
        let alloc = Allocator::new(device.clone()).unwrap();
        let stream = device.create_stream(StreamSpec::default()).unwrap();
        let path = std::env::temp_dir().join(format!("terrane-bench-{}", std::process::id()));
        let mode = RecorderMode::Flight { capacity: 4096 };
        alloc.set_recorder(if name == "terrane-flight" { mode } else { RecorderMode::Off });
        let recorder = (name == "terrane-recorded")
            .then(|| Recorder::attach(&alloc, &path, Meta::default()).unwrap());
        group.bench_function(name, |b| {
            b.iter(|| {
                let allocation = alloc.alloc(&Request::new(4096, stream)).unwrap();
                alloc.free(allocation.handle).unwrap();
            });
        });
        if let Some(recorder) = recorder {
            let summary = recorder.finish().unwrap();
            println!("written: {summary:?}");
            let _ = std::fs::remove_file(&path);
        }
    }
    group.finish();
}

criterion_group!(benches, pair);
criterion_main!(benches);
