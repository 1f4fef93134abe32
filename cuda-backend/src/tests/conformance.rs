//! Every clause of the conformance suite, with the software driver under the backend.

use std::sync::Arc;
use std::time::Duration;

use terrane_core::device::{Device, DeviceError, SpaceId, StreamId, SyncPoint};
use terrane_tests::{Ending, Held, Keeper, Plan, Source, clauses, run};

use super::{CudaDevice, DEVICE, FakeDriver, MIB, at, plain, raw};
use crate::driver::{Driver, RawStream};
use crate::{Options, Selector};

/// Holds streams in the software driver.
struct Holder {
    fake: Arc<FakeDriver>,
    device: Arc<CudaDevice>,
    scratch: SpaceId,
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

/// A new driver for every clause: one that faults breaks no other.
fn source() -> Source {
    let fake = Arc::new(FakeDriver::default());
    fake.state().memory.capacity = 256 * MIB;
    let driver: Arc<dyn Driver> = Arc::clone(&fake) as _;
    let device = CudaDevice::open_with(driver, &Selector::Index(0), Options::default()).unwrap();
    let device = Arc::new(device);
    let scratch = plain(&device, DEVICE, 2 * MIB).space;
    let keeper = Holder { fake, device: Arc::clone(&device), scratch };
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
