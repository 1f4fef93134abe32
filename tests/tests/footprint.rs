//! What the allocator itself takes: bytes for each live block, and nothing on a hit.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

use terrane_core::device::sim::Sim;
use terrane_core::device::{Device, StreamSpec};
use terrane_core::event::RecorderMode;
use terrane_core::{Allocator, Config, Request};

/// The system's allocator, counting live bytes and calls.
struct Counting;

static LIVE: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as u64, Ordering::Relaxed);
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static GLOBAL: Counting = Counting;

/// One test, since the counters are the whole process's.
#[test]
fn a_live_block_takes_at_most_100_bytes_and_a_hit_takes_none() {
    const BLOCKS: usize = 1_000_000;
    let sim = Sim::slabs().capacity(1 << 40).open();
    let stream = sim.create_stream(StreamSpec::default()).unwrap();
    let mut config = Config::for_device(sim.caps());
    config.recorder = RecorderMode::Off;
    config.growth = terrane_core::Growth::Proportional { min_bytes: 1 << 30, max_bytes: 1 << 30 };
    let alloc = Allocator::with_config(sim.shared(), config).unwrap();
    let mut handles = Vec::with_capacity(BLOCKS);

    let before = LIVE.load(Ordering::Relaxed);
    for _ in 0..BLOCKS {
        handles.push(alloc.alloc(&Request::new(256, stream)).unwrap().handle);
    }
    let each = (LIVE.load(Ordering::Relaxed) - before) as f64 / BLOCKS as f64;
    println!("{each:.1} bytes for each live block");
    assert!(each <= 100.0, "{each:.1} bytes for each live block");

    // Every second block again: holes of exactly the size, so that nothing has to grow.
    for handle in handles.iter().step_by(2) {
        alloc.free(*handle).unwrap();
    }
    let calls = CALLS.load(Ordering::Relaxed);
    let device = sim.calls();
    for _ in 0..BLOCKS / 2 {
        let got = alloc.alloc(&Request::new(256, stream)).unwrap();
        std::hint::black_box(got.handle);
    }
    assert_eq!(CALLS.load(Ordering::Relaxed), calls, "a hit allocates");
    let after = sim.calls();
    for kind in terrane_core::device::calls::CallKind::ALL {
        assert_eq!(after.of(*kind).calls, device.of(*kind).calls, "a hit calls {}", kind.name());
    }
}
