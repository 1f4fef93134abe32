//! What recording costs the thread that allocates: one event by itself, told into the ring under a
//! lock that is held, and the pair of alloc and free, which tells three; with the recorder off, as
//! a flight recorder, and with a thread that takes the events.
//!
//! They come in bursts with a pause after each that is not counted, as a program's do: a ring that
//! overflows would measure nothing. The reader runs on another core, so that what it leaves behind
//! in the caches is what a recorder leaves.

#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use terrane_core::device::StreamSpec;
use terrane_core::device::sim::Sim;
use terrane_core::event::{Event, EventKind, RecorderMode, Ring, Why};
use terrane_core::{Allocator, Request};
use terrane_trace::file::{Meta, Recorder};

const BURST: u64 = 2_000;
const PAUSE: Duration = Duration::from_millis(2);

/// A thread that takes all events of a ring when it is told to.
struct Reader {
    go: mpsc::Sender<()>,
    done: mpsc::Receiver<()>,
}

impl Reader {
    fn of(ring: &Arc<Mutex<Ring>>) -> Self {
        let (go, told) = mpsc::channel();
        let (tell, done) = mpsc::channel();
        let ring = Arc::clone(ring);
        std::thread::spawn(move || {
            let mut events = Vec::new();
            while told.recv().is_ok() {
                events.clear();
                ring.lock().unwrap().drain(&mut events, usize::MAX);
                if tell.send(()).is_err() {
                    break;
                }
            }
        });
        Self { go, done }
    }

    fn read(&self) {
        self.go.send(()).unwrap();
        self.done.recv().unwrap();
    }
}

fn event(c: &mut Criterion) {
    let mut group = c.benchmark_group("one event");
    for (name, mode) in [
        ("terrane", RecorderMode::Off),
        ("terrane-flight", RecorderMode::Flight { capacity: 4096 }),
        ("terrane-recorded", RecorderMode::Stream { capacity: 1 << 18 }),
    ] {
        let ring = Arc::new(Mutex::new(Ring::new(mode)));
        let reader = Reader::of(&ring);
        group.bench_function(name, |b| {
            b.iter_custom(|events| {
                let mut total = Duration::ZERO;
                let mut left = events;
                while left > 0 {
                    let burst = left.min(3 * BURST);
                    let mut ring = ring.lock().unwrap();
                    let start = Instant::now();
                    for number in 0..burst {
                        let number = black_box(number);
                        let event = Event::new(EventKind::Alloc).handle(number).a(number).b(4096);
                        let event = event.c(number).within(number).why(Why::OwnHole).of(1, 2);
                        ring.push(event.on(3, number as u32));
                    }
                    total += start.elapsed();
                    drop(ring);
                    left -= burst;
                    if mode != RecorderMode::Off {
                        reader.read();
                    }
                }
                total
            });
        });
    }
    group.finish();
}

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
    targets = event, pair
}
criterion_main!(benches);
