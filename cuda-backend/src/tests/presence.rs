use std::sync::Arc;

use terrane_core::device::{Device, HeapId};

use super::{CudaDevice, FakeDriver, Options, Selector, open};
use crate::driver::Driver;
use crate::{CudaUnavailable, MIN_DRIVER};

fn open_on(
    set: impl FnOnce(&FakeDriver),
    selector: &Selector,
) -> Result<CudaDevice, CudaUnavailable> {
    let fake = Arc::new(FakeDriver::default());
    set(&fake);
    let driver: Arc<dyn Driver> = fake;
    CudaDevice::open_with(driver, selector, Options::default())
}

fn refusal(set: impl FnOnce(&FakeDriver)) -> Option<CudaUnavailable> {
    open_on(set, &Selector::Index(0)).err()
}

#[test]
fn a_machine_without_the_library_gets_a_typed_answer() {
    // Where CUDA is installed there is nothing to refuse: then the list is not empty.
    match crate::devices() {
        Ok(devices) => assert!(!devices.is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let opened = CudaDevice::open(&Selector::Index(u32::MAX), Options::default());
    assert!(opened.is_err());
}

#[test]
fn every_reason_for_no_device_has_its_own_error() {
    use CudaUnavailable as No;
    assert_eq!(refusal(|fake| fake.state().init_code = 999), Some(No::Init { code: 999 }));
    assert_eq!(refusal(|fake| fake.state().init_code = 100), Some(No::NoDevice));
    assert_eq!(refusal(|fake| fake.state().devices = 0), Some(No::NoDevice));
    assert_eq!(
        refusal(|fake| fake.state().version = 11_080),
        Some(No::DriverTooOld { found: 11_080, needed: MIN_DRIVER })
    );
    assert_eq!(
        refusal(|fake| fake.state().capability = (7, 0)),
        Some(No::DeviceTooOld { major: 7, minor: 0 })
    );
    let call = "cuDevicePrimaryCtxRetain";
    assert_eq!(refusal(|fake| fake.fail(call, 0, 2)), Some(No::Driver { call, code: 2 }));
    assert_eq!(
        No::DriverTooOld { found: 11_080, needed: MIN_DRIVER }.to_string(),
        "the driver offers CUDA 11.8, 12.0 is needed: update it"
    );
}

#[test]
fn a_failure_while_opening_releases_the_context() {
    let fake = Arc::new(FakeDriver::default());
    fake.fail("cuEventCreate", 0, 2);
    let driver: Arc<dyn Driver> = Arc::clone(&fake) as _;
    let opened = CudaDevice::open_with(driver, &Selector::Index(0), Options::default());
    assert!(opened.is_err());
    assert_eq!(fake.state().retained, 0);
}

#[test]
fn devices_are_found_by_index_uuid_and_name() {
    for (selector, index) in [
        (Selector::Index(1), 1),
        (Selector::Uuid([2; 16]), 1),
        (Selector::Name("software".into()), 0),
        (Selector::Name("DEVICE 1".into()), 1),
    ] {
        assert_eq!(open_on(|_| {}, &selector).unwrap().info().index, index, "{selector:?}");
    }
    for selector in [Selector::Index(2), Selector::Uuid([9; 16]), Selector::Name("H200".into())] {
        let refused = open_on(|_| {}, &selector).err();
        assert_eq!(refused, Some(CudaUnavailable::NoSuchDevice { count: 2 }));
    }
}

#[test]
fn capabilities_follow_the_device() {
    let (_, device) = open();
    let caps = device.caps();
    assert!(caps.paging.is_some_and(|paging| paging.whole_objects && !paging.stream_ordered));
    assert_eq!(device.paging().is_some(), caps.paging.is_some());
    assert_eq!(device.compute().is_some(), caps.compute);
    let bare = open_on(|fake| fake.state().virtual_memory = false, &Selector::Index(0)).unwrap();
    assert!(bare.caps().paging.is_none() && bare.paging().is_none() && !bare.caps().export);
}

#[test]
fn heap_use_is_the_drivers_and_unknown_heaps_are_refused() {
    let (_, device) = open();
    let before = device.heap_use(HeapId(0)).unwrap();
    let segment = super::plain(&device, super::DEVICE, 2 * super::MIB);
    let after = device.heap_use(HeapId(0)).unwrap();
    assert_eq!(before.free - after.free, segment.bytes);
    assert!(device.heap_use(HeapId(1)).unwrap().total > 0);
    assert!(device.heap_use(HeapId(2)).is_err());
}

#[test]
fn uuids_are_written_as_nvidia_smi_does() {
    let uuid = std::array::from_fn(|i| i as u8 * 17);
    assert_eq!(crate::process::uuid_text(uuid), "GPU-00112233-4455-6677-8899-aabbccddeeff");
}
