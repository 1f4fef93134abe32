//! Tests against a software driver (`driver::fake`). They show what this crate does with the
//! driver's answers, faults included; they are no proof of anything on CUDA.

mod capture;
mod compute;
mod conformance;
mod faults;
mod memory;
mod paging;
mod placements;
mod presence;
mod share;
mod streams;

use std::sync::Arc;
use std::time::Duration;

use terrane_core::device::{
    ClassId, Device, Place, Plain, PlainSpec, SpaceId, StreamId, StreamSpec, SyncPoint,
};

use crate::driver::Driver;
use crate::driver::fake::FakeDriver;
use crate::{CudaDevice, Options, Selector};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const DEVICE: ClassId = ClassId(0);
const UPLOAD: ClassId = ClassId(1);
const SHARED: ClassId = ClassId(3);

fn open_with(options: Options) -> (Arc<FakeDriver>, CudaDevice) {
    let fake = Arc::new(FakeDriver::default());
    let driver: Arc<dyn Driver> = Arc::clone(&fake) as _;
    (fake, CudaDevice::open_with(driver, &Selector::Index(0), options).unwrap())
}

fn open() -> (Arc<FakeDriver>, CudaDevice) {
    open_with(Options::default())
}

fn spec(class: ClassId, bytes: u64) -> PlainSpec<'static> {
    PlainSpec { class, bytes, exportable: false, priority: 0.5, name: "test" }
}

fn plain(device: &CudaDevice, class: ClassId, bytes: u64) -> Plain {
    device.create_plain(&spec(class, bytes)).unwrap()
}

fn stream(device: &CudaDevice) -> StreamId {
    device.create_stream(StreamSpec::default()).unwrap()
}

fn at(space: SpaceId, offset: u64) -> Place {
    Place { space, offset }
}

fn is_reached(device: &CudaDevice, point: SyncPoint) -> bool {
    device.wait_any(&[point], Duration::ZERO).unwrap()
}

/// The raw handle of one of our own streams, without marking it as shared.
fn raw(device: &CudaDevice, stream: StreamId) -> u64 {
    device.inner.streams.get(stream).unwrap().raw.0
}

/// Bytes of a range, read through the device.
fn contents(device: &CudaDevice, stream: StreamId, place: Place, bytes: u64) -> Vec<u8> {
    let ticket = device.read(stream, place, bytes).unwrap();
    assert!(device.wait_any(&[ticket.point], Duration::from_secs(1)).unwrap());
    device.take_read(ticket).unwrap()
}
