use std::os::fd::AsFd;
use std::sync::Arc;

use terrane_core::device::{Device, DeviceError, Feature, MapOp, Paging, PlainSpec};

use super::{CudaDevice, DEVICE, MIB, Options, Selector, at, contents, open, spec, stream};
use crate::driver::fake::PAGE;
use crate::driver::{Dev, Driver};

#[test]
fn exported_memory_is_the_same_memory_when_imported() {
    let (_, device) = open();
    let own = stream(&device);
    let memory = Paging::create(&device, DEVICE, PAGE, true).unwrap();
    let descriptor = device.export_memory(memory).unwrap();
    let imported = device.import_memory(descriptor.as_fd(), PAGE).unwrap();
    let space = device.reserve(DEVICE, 2 * PAGE).unwrap().space;
    let op =
        |page, memory| MapOp { at: at(space, page * PAGE), memory, memory_offset: 0, bytes: PAGE };
    device.map(&[op(0, memory), op(1, imported)], &[]).unwrap();
    device.fill(own, at(space, 0), PAGE, 6).unwrap();
    assert_eq!(contents(&device, own, at(space, PAGE), 4), [6, 0, 0, 0]);
    assert!(device.import_memory(descriptor.as_fd(), PAGE + 1).is_err());
}

#[test]
fn a_descriptor_that_is_standard_input_reaches_the_driver_under_another_number() {
    let (fake, device) = open();
    // The software driver exported nothing there, so it refuses; the real one refuses number 0.
    assert!(device.import_memory(std::io::stdin().as_fd(), PAGE).is_err());
    let asked = fake.state().memory.asked_to_import.clone();
    assert!(matches!(asked[..], [number] if number > 2), "{asked:?}");
}

#[test]
fn only_exportable_memory_is_exported() {
    let (_, device) = open();
    let refused = Some(DeviceError::Unsupported(Feature::Export));
    let memory = Paging::create(&device, DEVICE, PAGE, false).unwrap();
    assert_eq!(device.export_memory(memory).err(), refused);
    let plain = device.create_plain(&spec(DEVICE, 2 * MIB)).unwrap();
    assert_eq!(device.export_plain(plain.space).err(), refused);
    let wanted = PlainSpec { exportable: true, ..spec(DEVICE, 2 * MIB) };
    let plain = device.create_plain(&wanted).unwrap();
    assert!(device.export_plain(plain.space).is_ok());
    let wanted = PlainSpec { class: super::UPLOAD, ..wanted };
    assert_eq!(device.create_plain(&wanted).err(), refused);
}

#[test]
fn a_peer_reaches_what_is_mapped_and_what_will_be() {
    let (fake, device) = open();
    let driver: Arc<dyn Driver> = Arc::clone(&fake) as _;
    let peer = CudaDevice::open_with(driver, &Selector::Index(1), Options::default()).unwrap();
    let space = device.reserve(DEVICE, 2 * PAGE).unwrap();
    let base = space.address.unwrap();
    let map = |page: u64| {
        let memory = Paging::create(&device, DEVICE, PAGE, false).unwrap();
        let at = at(space.space, page * PAGE);
        device.map(&[MapOp { at, memory, memory_offset: 0, bytes: PAGE }], &[]).unwrap();
    };
    map(0);
    device.allow_peer(&peer).unwrap();
    device.allow_peer(&peer).unwrap();
    map(1);
    for page in [0, 1] {
        assert_eq!(fake.state().memory.access_of(base + page * PAGE), [Dev(0), Dev(1)]);
    }
    assert!(matches!(device.allow_peer(&device), Err(DeviceError::InvalidCall(_))));
}
