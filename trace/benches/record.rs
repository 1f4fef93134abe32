//! What recording costs the thread that allocates, by the pair of alloc and free, which tells
//! three events: with the recorder off, as a flight recorder, and with a thread that writes a file.
//!
//! Pairs come in bursts with a pause after each that is not counted, as a program's do: a ring that
//! overflows would measure nothing.

#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

use criterion::{Criterion, criterion_group, criterion_main};
use std::time::{Duration, Instant};
use terrane_core::device::StreamSpec;
use terrane_core::device::sim::Sim;
use terrane_core::event::RecorderMode;
use terrane_core::{Allocator, Request};
use terrane_trace::file::{Meta, Recorder};

const BURST: u64 = 2_000;
const PAUSE: Duration = Duration::from_millis(2);

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
            b.iter_custom(|pairs| {
                let mut total = Duration::ZERO;
                let mut left = pairs;
                while left > 0 {
                    let burst = left.min(BURST);
                    let start = Instant::now();
                    for _ in 0..burst {
                        let allocation = alloc.alloc(&Request::new(4096, stream)).unwrap();
                        alloc.free(allocation.handle).unwrap();
                    }
                    total += start.elapsed();
                    left -= burst;
                    std::thread::sleep(PAUSE);
                }
                total
            });
        });
        if let Some(recorder) = recorder {
            println!("written: {:?}", recorder.finish().unwrap());
            let _ = std::fs::remove_file(&path);
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = pair
}
criterion_main!(benches);
