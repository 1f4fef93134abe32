//! What may cross threads, and what happens when many do.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use terrane_core::device::sim::Sim;
use terrane_core::device::{Device, StreamSpec};
use terrane_core::{
    Allocation, Allocator, Buffer, Charge, Error, Graph, Handle, Mapped, Pin, Request, Section,
    Slice, Submission,
};

const fn send<T: Send>() {}
const fn sync<T: Sync>() {}

/// The table: allocator, buffers, handles and guards may be sent and shared; a host mapping may
/// be sent, and is used by one thread at a time.
#[test]
fn the_types_cross_threads_as_the_table_says() {
    const {
        send::<Allocator>();
        sync::<Allocator>();
        send::<Buffer>();
        sync::<Buffer>();
        send::<Allocation>();
        sync::<Allocation>();
        send::<Handle>();
        sync::<Handle>();
        send::<Pin>();
        sync::<Pin>();
        send::<Mapped>();
        send::<Submission>();
        sync::<Submission>();
        send::<Slice>();
        sync::<Slice>();
        send::<Section>();
        sync::<Section>();
        send::<Charge>();
        sync::<Charge>();
        send::<Graph>();
        sync::<Graph>();
        send::<Error>();
        sync::<Error>();
        send::<Arc<dyn Device>>();
        sync::<Arc<dyn Device>>();
    }
}

#[test]
fn threads_that_allocate_free_and_trim_at_once_leave_the_books_right() {
    let sim = Sim::slabs().capacity(512 << 20).open();
    let alloc = Allocator::new(sim.shared()).unwrap();
    std::thread::scope(|scope| {
        for seed in 1..=4_u64 {
            let (alloc, sim) = (alloc.clone(), sim.clone());
            scope.spawn(move || {
                let stream = sim.create_stream(StreamSpec::default()).unwrap();
                let mut random = seed;
                let mut mine: Vec<Buffer> = Vec::new();
                for step in 0..5_000 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed);
                    let bytes = 1 + (random >> 33) % (4 << 20);
                    match alloc.buffer(&Request::new(bytes, stream)) {
                        Ok(buffer) => mine.push(buffer),
                        Err(Error::OutOfMemory(_)) => mine.clear(),
                        Err(error) => panic!("{error}"),
                    }
                    if mine.len() > 40 {
                        mine.swap_remove((random >> 40) as usize % mine.len());
                    }
                    if step % 512 == 0 {
                        alloc.trim(0).unwrap();
                    }
                }
            });
        }
    });
    alloc.check().unwrap();
    assert_eq!(alloc.stats().total.blocks.current, 0);
    alloc.trim(0).unwrap();
    assert_eq!(sim.memory_objects(), 0);
    assert_eq!(sim.violations(), []);
}
