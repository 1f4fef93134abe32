//! Cases from users' reports of other allocators, each with the wait mode it is about.
//!
//! They run on the simulated device, where work completes when the test says so, and a referee
//! objects to every race and every release of memory in use.

#![allow(clippy::unwrap_used, clippy::single_element_loop)]

mod limits;
mod lying_handles;
mod moving;
mod streams;
mod waiting;

use std::time::Duration;

use terrane_core::device::sim::{Completion, Sim, SimDevice};
use terrane_core::device::{Access, Binding, Device, StreamId, StreamSpec, SyncPoint};
use terrane_core::{Allocation, Allocator, Config, Error, Handle, Limit, Request, Wait};

/// A size that stands for "one unit" where a case names none.
const U: u64 = 1 << 20;

struct Rig {
    sim: SimDevice,
    alloc: Allocator,
}

impl Rig {
    /// A device of `capacity` bytes on which work completes by hand.
    fn new(capacity: u64) -> Self {
        Self::with(Sim::slabs().capacity(capacity), |_| {})
    }

    fn with(sim: Sim, configure: impl FnOnce(&mut Config)) -> Self {
        let sim = sim.completion(Completion::ByHand).log(1 << 16).open();
        let mut config = Config::for_device(sim.caps());
        configure(&mut config);
        let alloc = Allocator::with_config(sim.shared(), config).unwrap();
        Self { sim, alloc }
    }

    fn stream(&self) -> StreamId {
        self.sim.create_stream(StreamSpec::default()).unwrap()
    }

    fn ask(&self, bytes: u64, stream: StreamId, wait: Wait) -> Result<Allocation, Error> {
        self.alloc.alloc(&Request::new(bytes, stream).wait(wait))
    }

    fn get(&self, bytes: u64, stream: StreamId) -> Handle {
        self.ask(bytes, stream, Wait::Never).unwrap().handle
    }

    /// Work on `stream` that uses a block and is not done until the test says so.
    fn work(&self, handle: Handle, stream: StreamId) -> SyncPoint {
        let mut submission = self.alloc.submit(stream);
        let at = submission.resolve(handle).unwrap();
        let binding = Binding { place: at.place, bytes: at.bytes, access: Access::Write };
        let point = self.sim.submit_using(stream, 1, &[binding]).unwrap();
        submission.close_at(point);
        point
    }

    fn offset(&self, handle: Handle) -> u64 {
        self.alloc.info(handle).unwrap().place.offset
    }

    fn reserved(&self) -> u64 {
        self.alloc.stats().reserved.current
    }

    fn calls(&self, kind: terrane_core::device::calls::CallKind) -> u64 {
        self.sim.calls().of(kind).calls
    }

    /// The end of every case: the bookkeeping is sound and the referee has nothing to say.
    fn assert_sound(&self) {
        self.alloc.check().unwrap();
        assert_eq!(self.sim.violations(), []);
    }
}

impl Drop for Rig {
    /// Work that a case left undone ends, so that the allocator does not wait for it.
    fn drop(&mut self) {
        self.sim.complete_all();
    }
}

fn on_host(ms: u64) -> Wait {
    Wait::OnHost(Duration::from_millis(ms))
}

/// A second thread that completes points one after the other, with a pause before each.
fn completing(sim: &SimDevice, points: Vec<SyncPoint>) -> std::thread::JoinHandle<()> {
    let sim = sim.clone();
    std::thread::spawn(move || {
        for point in points {
            std::thread::sleep(Duration::from_millis(5));
            sim.complete(point);
        }
    })
}

fn limited(bytes: u64) -> impl FnOnce(&mut Config) {
    move |config| config.limits = vec![Limit::Bytes(bytes)]
}
