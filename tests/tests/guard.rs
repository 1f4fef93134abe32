//! Guard mode: every block on a memory object of its own, given back with it.

#![allow(clippy::unwrap_used)]

use terrane_core::device::sim::{Completion, Sim};
use terrane_core::device::{Device, StreamSpec};
use terrane_core::{Allocator, Config, Request};

#[test]
fn in_guard_mode_a_block_has_memory_of_its_own_that_goes_with_it() {
    let sim = Sim::cuda().open();
    let mut config = Config::for_device(sim.caps());
    config.guard = true;
    let alloc = Allocator::with_config(sim.shared(), config).unwrap();
    let stream = sim.create_stream(StreamSpec::default()).unwrap();
    let place = |handle| alloc.pin(handle).unwrap().at().place;
    let [a, b] = [1000, 3_000_000].map(|bytes| alloc.alloc(&Request::new(bytes, stream)).unwrap());
    assert_eq!(sim.memory_objects(), 2);
    let (first, second) = (place(a.handle), place(b.handle));
    assert!(first.space != second.space && (first.offset, second.offset) == (0, 0));
    // Freed behind work that is not done: the memory stays until it is.
    sim.set_completion(stream, Completion::ByHand).unwrap();
    let work = sim.submit(stream, 1).unwrap();
    alloc.record_use_until(a.handle, work).unwrap();
    alloc.free(a.handle).unwrap();
    let c = alloc.alloc(&Request::new(1000, stream)).unwrap();
    assert_eq!(sim.memory_objects(), 3, "nobody takes over what was freed");
    sim.complete(work);
    let d = alloc.alloc(&Request::new(1000, stream)).unwrap();
    assert_eq!(sim.memory_objects(), 3, "what was freed and is done went back");
    assert!(![first.space, second.space].contains(&place(d.handle).space));
    for block in [b, c, d] {
        alloc.free(block.handle).unwrap();
    }
    alloc.check().unwrap();
    drop(alloc.alloc(&Request::new(1, stream)).unwrap());
    assert_eq!(sim.memory_objects(), 1);
    assert_eq!(sim.violations(), []);
}
