use terrane_core::device::{Device, DeviceError, MapOp, MemoryId, Paging, SpaceId, UnmapOp};

use super::{DEVICE, UPLOAD, at, contents, open, raw, stream};
use crate::driver::fake::PAGE;

fn op(space: SpaceId, page: u64, memory: MemoryId) -> MapOp {
    MapOp { at: at(space, page * PAGE), memory, memory_offset: 0, bytes: PAGE }
}

fn off(space: SpaceId, page: u64) -> UnmapOp {
    UnmapOp { at: at(space, page * PAGE), bytes: PAGE }
}

fn create(device: &crate::CudaDevice) -> MemoryId {
    Paging::create(device, DEVICE, PAGE, false).unwrap()
}

#[test]
fn a_page_keeps_its_bytes_when_it_is_mapped_elsewhere() {
    let (_, device) = open();
    let (own, space) = (stream(&device), device.reserve(DEVICE, 4 * PAGE).unwrap().space);
    let memory = create(&device);
    assert_eq!(device.map(&[op(space, 0, memory)], &[]), Ok(None));
    device.fill(own, at(space, 0), PAGE, 42).unwrap();
    // Mapped twice: what is written through one is read through the other.
    device.map(&[op(space, 2, memory)], &[]).unwrap();
    assert_eq!(contents(&device, own, at(space, 2 * PAGE), 4), [42, 0, 0, 0]);
    let point = device.fill(own, at(space, 2 * PAGE), PAGE, 43).unwrap();
    device.unmap(&[off(space, 0)], &[point]).unwrap();
    assert_eq!(contents(&device, own, at(space, 2 * PAGE), 4), [43, 0, 0, 0]);
}

#[test]
fn a_batch_that_fails_midway_leaves_the_mappings_as_they_were() {
    for call in ["cuMemMap", "cuMemSetAccess"] {
        let (fake, device) = open();
        let space = device.reserve(DEVICE, 8 * PAGE).unwrap().space;
        let memories: Vec<_> = (0..4).map(|_| create(&device)).collect();
        let ops: Vec<_> = (0..).zip(&memories).map(|(i, &memory)| op(space, i, memory)).collect();
        fake.fail(call, 2, 2);
        assert_eq!(device.map(&ops, &[]), Err(DeviceError::OutOfMemory { bytes: PAGE }), "{call}");
        assert_eq!(fake.state().memory.mapped(), 0);
        assert_eq!(device.map(&ops, &[]), Ok(None));
        assert_eq!(fake.state().memory.mapped(), 4);
        fake.fail("cuMemUnmap", 2, 1);
        let offs: Vec<_> = (0..4).map(|i| off(space, i)).collect();
        assert!(device.unmap(&offs, &[]).is_err());
        assert_eq!(fake.state().memory.mapped(), 4, "mapped again after {call}");
        assert_eq!(device.unmap(&offs, &[]), Ok(None));
        for memory in memories {
            device.release(memory).unwrap();
        }
        device.unreserve(space).unwrap();
        assert_eq!(fake.state().memory.leftovers(), 0);
    }
}

#[test]
fn calls_that_break_the_contract_are_refused_and_change_nothing() {
    let (fake, device) = open();
    let (own, space) = (stream(&device), device.reserve(DEVICE, 4 * PAGE).unwrap().space);
    let (memory, other) = (create(&device), create(&device));
    device.map(&[op(space, 1, memory)], &[]).unwrap();
    let refused = |result: Result<Option<_>, DeviceError>| {
        assert!(matches!(result, Err(DeviceError::InvalidCall(_))), "{result:?}");
        assert_eq!(fake.state().memory.mapped(), 1);
    };
    refused(device.map(&[op(space, 1, other)], &[]));
    refused(device.map(&[op(space, 2, other), op(space, 2, other)], &[]));
    refused(device.map(&[op(space, 4, other)], &[]));
    refused(device.map(&[MapOp { memory_offset: PAGE, ..op(space, 2, other) }], &[]));
    refused(device.map(&[MapOp { bytes: 2 * PAGE, ..op(space, 2, other) }], &[]));
    refused(device.map(&[MapOp { at: at(space, 8), ..op(space, 2, other) }], &[]));
    refused(device.map(&[op(SpaceId(99), 2, other)], &[]));
    refused(device.map(&[op(space, 2, MemoryId(99))], &[]));
    refused(device.unmap(&[off(space, 0)], &[]));
    refused(device.unmap(&[UnmapOp { bytes: 2 * PAGE, ..off(space, 1) }], &[]));
    refused(device.unmap(&[off(space, 1), off(space, 1)], &[]));
    fake.hold(raw(&device, own));
    let point = device.fill(own, at(space, PAGE), 64, 1).unwrap();
    refused(device.unmap(&[off(space, 1)], &[point]));
    assert!(device.release(memory).is_err() && device.unreserve(space).is_err());
    assert!(Paging::create(&device, DEVICE, PAGE + 1, false).is_err());
    assert!(Paging::create(&device, UPLOAD, PAGE, false).is_err());
    assert!(device.reserve(DEVICE, 0).is_err());
    let limit = device.caps().paging.unwrap().max_space_bytes;
    let refused = device.reserve(DEVICE, limit + PAGE).err();
    assert_eq!(refused, Some(DeviceError::TooLarge { bytes: limit + PAGE, limit }));
}

#[test]
fn shortages_have_their_own_errors() {
    let (fake, device) = open();
    fake.fail("cuMemCreate", 0, 2);
    let refused = Paging::create(&device, DEVICE, PAGE, false);
    assert_eq!(refused, Err(DeviceError::OutOfMemory { bytes: PAGE }));
    fake.fail("cuMemAddressReserve", 0, 2);
    let refused = device.reserve(DEVICE, PAGE).err();
    assert_eq!(refused, Some(DeviceError::OutOfAddressSpace { bytes: PAGE }));
}

#[test]
fn a_dropped_device_unmaps_and_releases_its_pages() {
    let (fake, device) = open();
    let space = device.reserve(DEVICE, 4 * PAGE).unwrap().space;
    let memory = create(&device);
    device.map(&[op(space, 0, memory), op(space, 3, memory)], &[]).unwrap();
    drop(device);
    assert_eq!(fake.state().memory.leftovers(), 0);
}
