use terrane_core::device::{Compute, Device, DeviceError, HeapId, Paging, StreamSpec};

use super::{DEVICE, MIB, UPLOAD, at, open, plain, spec, stream};
use crate::driver::code;
use crate::driver::fake::PAGE;

#[test]
fn after_a_fault_every_method_answers_lost_and_releasing_does_nothing() {
    let (fake, device) = open();
    let (own, segment) = (stream(&device), plain(&device, DEVICE, 2 * MIB));
    let space = device.reserve(DEVICE, PAGE).unwrap().space;
    let memory = Paging::create(&device, DEVICE, PAGE, false).unwrap();
    // The page is not mapped, so the device faults.
    device.fill(own, at(space, 0), 64, 1).unwrap();
    assert_eq!(device.reached(own), Err(DeviceError::Lost));
    let lost = DeviceError::Lost;
    assert_eq!(device.fill(own, at(segment.space, 0), 64, 1), Err(lost));
    assert_eq!(device.create_plain(&spec(UPLOAD, 2 * MIB)).err(), Some(lost));
    assert_eq!(device.create_stream(StreamSpec::default()), Err(lost));
    assert_eq!(device.heap_use(HeapId(0)), Err(lost));
    assert_eq!(device.gather(own, &[]), Err(lost));
    assert_eq!(Paging::create(&device, DEVICE, PAGE, false), Err(lost));
    assert_eq!(device.release(memory), Ok(()));
    assert_eq!(device.unreserve(space), Ok(()));
    assert_eq!(device.release_plain(segment.space), Ok(()));
    assert_eq!(device.retire_stream(own), Ok(()));
    drop(device);
    assert_eq!(fake.state().broken, Some(code::ILLEGAL_ADDRESS));
}

#[test]
fn a_context_that_somebody_destroyed_is_a_lost_device() {
    let (fake, device) = open();
    let (own, segment) = (stream(&device), plain(&device, DEVICE, 2 * MIB));
    // What cuDevicePrimaryCtxReset does: handles are unknown, calls answer with wrong arguments.
    fake.state().work.forget_events();
    fake.fail("cuMemsetD32Async", 0, code::INVALID_VALUE);
    assert_eq!(device.fill(own, at(segment.space, 0), 64, 1), Err(DeviceError::Lost));
}

#[test]
fn a_wrong_argument_is_no_loss() {
    let (fake, device) = open();
    let (own, segment) = (stream(&device), plain(&device, DEVICE, 2 * MIB));
    fake.fail("cuMemsetD32Async", 0, code::INVALID_VALUE);
    let call = "cuMemsetD32Async";
    let refused = device.fill(own, at(segment.space, 0), 64, 1);
    assert_eq!(refused, Err(DeviceError::Driver { call, code: code::INVALID_VALUE }));
    assert!(device.fill(own, at(segment.space, 0), 64, 1).is_ok());
}

#[test]
fn a_driver_out_of_memory_is_told_apart_from_other_failures() {
    let (fake, device) = open();
    for (class, call) in [(DEVICE, "cuMemAlloc"), (UPLOAD, "cuMemHostAlloc")] {
        fake.fail(call, 0, code::OUT_OF_MEMORY);
        let refused = device.create_plain(&spec(class, 2 * MIB)).err();
        assert_eq!(refused, Some(DeviceError::OutOfMemory { bytes: 2 * MIB }));
        fake.fail(call, 0, 801);
        let refused = device.create_plain(&spec(class, 2 * MIB)).err();
        assert_eq!(refused, Some(DeviceError::Driver { call, code: 801 }));
    }
}

#[test]
fn a_segment_of_its_own_mapping_is_undone_step_by_step() {
    for call in ["cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"] {
        let (fake, device) = open();
        let exportable =
            terrane_core::device::PlainSpec { exportable: true, ..spec(DEVICE, 2 * MIB) };
        fake.fail(call, 0, code::OUT_OF_MEMORY);
        assert!(device.create_plain(&exportable).is_err_and(|error| error.is_shortage()), "{call}");
        assert_eq!(fake.state().memory.leftovers(), 0, "{call}");
        assert!(device.create_plain(&exportable).is_ok());
    }
}
