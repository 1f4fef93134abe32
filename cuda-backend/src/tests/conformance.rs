//! Every clause of the conformance suite, with the software driver under the backend.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use terrane_core::device::{Device, DeviceError, SpaceId, StreamId, SyncPoint};
use terrane_tests::{
    Captures, Ending, Foreign, Held, Imported, Imports, Keeper, Mapped, Plan, Source, clauses, run,
};

use super::{CudaDevice, DEVICE, FakeDriver, MIB, at, plain, raw};
use crate::driver::fake::work::Step;
use crate::driver::{Driver, Fault, RawEvent, RawStream};
use crate::{Options, Selector};

/// Holds streams in the software driver.
struct Holder {
    fake: Arc<FakeDriver>,
    device: Arc<CudaDevice>,
    scratch: SpaceId,
    /// The program's streams, beside the backend.
    programs: Mutex<Vec<(StreamId, RawStream)>>,
}

struct Stopped {
    fake: Arc<FakeDriver>,
    raw: u64,
    point: SyncPoint,
}

impl Keeper for Holder {
    fn hold(&self, stream: StreamId) -> Result<Box<dyn Held>, DeviceError> {
        let raw = raw(&self.device, stream);
        self.fake.hold(raw);
        let point = self.device.fill(stream, at(self.scratch, 0), 4, 0)?;
        Ok(Box::new(Stopped { fake: Arc::clone(&self.fake), raw, point }))
    }

    fn foreign(&self) -> Option<&dyn Foreign> {
        Some(self)
    }

    fn captures(&self) -> Option<&dyn Captures> {
        Some(self)
    }

    fn imports(&self) -> Option<&dyn Imports> {
        Some(self)
    }
}

impl Holder {
    fn told<T>(answer: Result<T, Fault>) -> Result<T, DeviceError> {
        answer.map_err(|Fault { call, code }| DeviceError::Driver { call, code })
    }

    /// As a program calls the driver: with the device's context current.
    fn within<T>(&self, calls: impl FnOnce() -> Result<T, Fault>) -> Result<T, DeviceError> {
        let _entered = self.device.inner.enter()?;
        Self::told(calls())
    }
}

impl Foreign for Holder {
    fn wrap(&self) -> Result<StreamId, DeviceError> {
        let raw = self.within(|| self.fake.stream_create(false))?;
        // SAFETY: the software driver knows the stream for as long as it lives.
        let stream = unsafe { self.device.wrap_stream(raw.0) }?;
        self.programs.lock().unwrap().push((stream, raw));
        Ok(stream)
    }

    fn submit(&self, stream: StreamId) -> Result<Box<dyn Held>, DeviceError> {
        let programs = self.programs.lock().unwrap();
        let (_, raw) = programs.iter().find(|(id, _)| *id == stream).expect("one of these streams");
        // An event that is done when the suite says so.
        let event = self.within(|| self.fake.event_create(false))?;
        let mut state = self.fake.state();
        let version = state.work.record(event).expect("an event that was just made");
        state.work.push(*raw, Step::Wait(event, version));
        drop(state);
        let point = self.device.mark(stream)?;
        Ok(Box::new(Passing { fake: Arc::clone(&self.fake), event, version, point }))
    }
}

impl Captures for Holder {
    fn begin(&self, stream: StreamId) -> Result<(), DeviceError> {
        // A program that captures has the handle.
        let raw = RawStream(self.device.raw_stream(stream)?);
        self.fake.state().captures.insert(raw, 17);
        Ok(())
    }

    fn end(&self, stream: StreamId) -> Result<(), DeviceError> {
        let raw = RawStream(self.device.raw_stream(stream)?);
        self.fake.state().captures.remove(&raw);
        Ok(())
    }
}

impl Held for Stopped {
    fn point(&self) -> SyncPoint {
        self.point
    }

    fn let_go(&self) {
        let mut state = self.fake.state();
        state.work.release(RawStream(self.raw));
        state.run();
    }
}

impl Imports for Holder {
    fn import(&self, space: SpaceId, bytes: u64) -> Result<Box<dyn Imported>, DeviceError> {
        let descriptor = self.device.export_plain(space)?;
        let memory = self.device.import_memory(descriptor.as_fd(), bytes)?;
        Ok(Box::new(Mapped::new(self.device.clone(), DEVICE, memory, bytes)?))
    }
}

/// Work of a program's own that is held up.
struct Passing {
    fake: Arc<FakeDriver>,
    event: RawEvent,
    version: u64,
    point: SyncPoint,
}

impl Held for Passing {
    fn point(&self) -> SyncPoint {
        self.point
    }

    fn let_go(&self) {
        let mut state = self.fake.state();
        state.work.complete(self.event, self.version);
        state.run();
    }
}

/// A new driver for every clause: one that faults breaks no other.
fn source() -> Source {
    let fake = Arc::new(FakeDriver::default());
    fake.state().memory.capacity = 256 * MIB;
    let driver: Arc<dyn Driver> = Arc::clone(&fake) as _;
    let device = CudaDevice::open_with(driver, &Selector::Index(0), Options::default()).unwrap();
    let device = Arc::new(device);
    let scratch = plain(&device, DEVICE, 2 * MIB).space;
    let keeper = Holder { fake, device: Arc::clone(&device), scratch, programs: Mutex::default() };
    Source::kept(device, Arc::new(keeper))
}

#[test]
fn every_clause_holds_over_the_software_driver() {
    let (mut passed, mut failed) = (0, Vec::new());
    for clause in clauses::all() {
        let plan = Plan { patience: Duration::from_secs(5), ..Plan::new(source()) };
        match run(clause, &plan).ending {
            Ending::Passed => passed += 1,
            Ending::Skipped(why) => println!("{} skipped: {why}", clause.id),
            Ending::Failed(text) => failed.push(format!("{}: {text}", clause.id)),
        }
    }
    println!("{passed} passed");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(passed > 120, "only {passed} clauses could be tried");
}
