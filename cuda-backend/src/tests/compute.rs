use std::sync::Arc;
use std::time::Duration;

use terrane_core::device::{
    Access, Binding, Compute, CopyOp, Device, DeviceError, Feature, KernelSource, Region,
    UnsafeKernelSource, pattern,
};

use super::{
    CudaDevice, DEVICE, KIB, MIB, Options, Selector, at, contents, open, plain, raw, stream,
};
use crate::driver::Driver;
use crate::driver::fake::FakeDriver;
use crate::kernels::{BUILTIN_PTX, DEMO_PTX, matmul, sum, vector_add};

fn report(device: &CudaDevice, ticket: terrane_core::device::Ticket) -> Vec<u64> {
    assert!(device.wait_any(&[ticket.point], Duration::from_secs(1)).unwrap());
    device.take_report(ticket).unwrap()
}

#[test]
fn the_ptx_suits_every_driver_from_525_and_every_device_from_turing() {
    for (ptx, source, entries) in [
        (
            BUILTIN_PTX,
            include_str!("../../kernels/builtin.cu"),
            &["terrane_fill_pattern", "terrane_verify", "terrane_checksum", "terrane_gather"][..],
        ),
        (
            DEMO_PTX,
            include_str!("../../kernels/demo.cu"),
            &["terrane_vector_add", "terrane_matmul", "terrane_sum"][..],
        ),
    ] {
        let line = |start: &str| ptx.lines().find(|line| line.starts_with(start)).unwrap();
        assert_eq!(line(".version"), ".version 8.0");
        assert_eq!(line(".target"), ".target sm_75");
        for entry in entries {
            assert!(ptx.contains(&format!(".entry {entry}(")), "{entry}");
            assert!(source.contains(entry), "{entry}");
        }
    }
}

#[test]
fn patterns_are_filled_and_verified_whatever_the_sizes() {
    let (_, device) = open();
    let (own, segment) = (stream(&device), plain(&device, DEVICE, 8 * MIB));
    let mut offset = 0;
    let regions: Vec<_> = [4, 32 * KIB, 0, 32 * KIB + 4, 100 * KIB, MIB + 12, 0]
        .into_iter()
        .zip(1_u64..)
        .map(|(bytes, seed)| {
            let region = Region { place: at(segment.space, offset), bytes, seed: seed << 30 };
            offset += bytes + 16;
            region
        })
        .collect();
    device.fill_pattern(own, &regions).unwrap();
    let ticket = device.verify(own, &regions).unwrap();
    assert_eq!(report(&device, ticket), vec![0; regions.len()]);
    // Three words spoilt in one region, one of them the last.
    let spoilt = regions[4];
    for word in [0, 9000, spoilt.bytes / 4 - 1] {
        let place = at(segment.space, spoilt.place.offset + word * 4);
        let value = pattern::word(spoilt.seed, word) ^ 1;
        device.fill(own, place, 4, value).unwrap();
    }
    let ticket = device.verify(own, &regions).unwrap();
    assert_eq!(report(&device, ticket), [0, 0, 0, 0, 3, 0, 0]);
    let ticket = device.checksum(own, &regions[..4]).unwrap();
    let expected: Vec<_> = regions[..4]
        .iter()
        .map(|region| {
            pattern::checksum((0..region.bytes / 4).map(|i| pattern::word(region.seed, i)))
        })
        .collect();
    assert_eq!(report(&device, ticket), expected);
    assert_eq!(device.dispatches(), 4);
}

#[test]
fn a_gather_is_one_launch_and_equals_a_copy() {
    let (fake, device) = open();
    let (own, segment) = (stream(&device), plain(&device, DEVICE, 8 * MIB));
    let source = Region { place: at(segment.space, 0), bytes: 2 * MIB, seed: 3 };
    device.fill_pattern(own, &[source]).unwrap();
    let sizes = [16, 32 * KIB, 48 * KIB, 0, 512 * KIB + 16];
    let mut offset = 0;
    let ops: Vec<_> = sizes
        .into_iter()
        .map(|bytes| {
            let from = at(segment.space, offset);
            let op = CopyOp { from, to: at(segment.space, 4 * MIB + offset), bytes };
            offset += bytes + 32;
            op
        })
        .collect();
    let before = fake.calls("cuLaunchKernel");
    device.gather(own, &ops).unwrap();
    assert_eq!(fake.calls("cuLaunchKernel") - before, 1);
    for op in &ops {
        let moved = contents(&device, own, op.to, op.bytes);
        assert_eq!(moved, contents(&device, own, op.from, op.bytes));
    }
    let gap = contents(&device, own, at(segment.space, 4 * MIB + 16), 32);
    assert_eq!(gap, [0xA5; 32], "nothing between the ranges is touched");
    let odd = CopyOp { bytes: 8, ..ops[0] };
    assert!(device.gather(own, &[odd]).is_err());
    device.gather(own, &[]).unwrap();
}

#[test]
fn a_report_waits_for_its_work_and_is_no_read() {
    let (fake, device) = open();
    let (own, segment) = (stream(&device), plain(&device, DEVICE, 2 * MIB));
    let region = Region { place: at(segment.space, 0), bytes: 64, seed: 1 };
    fake.hold(raw(&device, own));
    let ticket = device.verify(own, &[region]).unwrap();
    assert!(device.take_report(ticket).is_err());
    fake.release_all();
    assert!(device.take_read(ticket).is_err());
    assert_eq!(report(&device, ticket), [16]);
    assert!(device.take_report(ticket).is_err());
    let ticket = device.verify(own, &[]).unwrap();
    assert!(report(&device, ticket).is_empty());
}

#[test]
fn a_users_kernel_runs_over_its_bindings() {
    let (_, device) = open();
    let (own, segment) = (stream(&device), plain(&device, DEVICE, 2 * MIB));
    let floats = |value: f32| value.to_le_bytes().repeat(300);
    device.write(own, at(segment.space, 0), &floats(1.5)).unwrap();
    device.write(own, at(segment.space, 2048), &floats(2.25)).unwrap();
    // SAFETY: vector_add stays inside its bindings: 300 floats each, and n is 300.
    let kernel = unsafe { device.load_unchecked(&vector_add()) }.unwrap();
    let bind = |offset, access| Binding { place: at(segment.space, offset), bytes: 1200, access };
    let bindings = [bind(0, Access::Read), bind(2048, Access::Read), bind(4096, Access::Write)];
    let push = 300_u32.to_le_bytes();
    let point = device.dispatch(own, kernel, &bindings, &push, [2, 1, 1]).unwrap();
    assert!(device.wait_any(&[point], Duration::from_secs(1)).unwrap());
    assert_eq!(contents(&device, own, at(segment.space, 4096), 1200), floats(3.75));

    let refuse = |bindings: &[Binding], push: &[u8], groups| {
        device.dispatch(own, kernel, bindings, push, groups).unwrap_err()
    };
    let many = vec![bindings[0]; device.caps().max_bindings as usize + 1];
    assert!(matches!(refuse(&many, &push, [1; 3]), DeviceError::InvalidCall(_)));
    assert!(matches!(refuse(&bindings, &[0; 4096], [1; 3]), DeviceError::InvalidCall(_)));
    let longer = refuse(&bindings, &[0; 8], [1; 3]);
    assert!(matches!(longer, DeviceError::InvalidCall(_)), "a parameter too many: {longer:?}");
    assert!(matches!(refuse(&bindings, &push, [1, 70_000, 1]), DeviceError::InvalidCall(_)));
    let unaligned = Binding { place: at(segment.space, 4), ..bindings[0] };
    assert!(matches!(refuse(&[unaligned], &push, [1; 3]), DeviceError::InvalidCall(_)));
    let outside = Binding { bytes: segment.bytes + 16, ..bindings[0] };
    assert!(matches!(refuse(&[outside], &push, [1; 3]), DeviceError::InvalidCall(_)));
    let large = Binding { bytes: u64::MAX, ..bindings[0] };
    assert!(matches!(refuse(&[large], &push, [1; 3]), DeviceError::TooLarge { .. }));
}

#[test]
fn a_kernel_is_unloaded_after_its_last_work() {
    let (fake, device) = open();
    let (own, segment) = (stream(&device), plain(&device, DEVICE, 2 * MIB));
    // SAFETY: with n = 0 the kernel touches nothing.
    let kernel = unsafe { device.load_unchecked(&vector_add()) }.unwrap();
    fake.hold(raw(&device, own));
    let binding = Binding { place: at(segment.space, 0), bytes: 4, access: Access::Read };
    device.dispatch(own, kernel, &[binding; 3], &[0; 4], [1, 1, 1]).unwrap();
    device.unload(kernel).unwrap();
    assert_eq!(fake.calls("cuModuleUnload"), 0);
    assert!(device.unload(kernel).is_err());
    assert!(device.dispatch(own, kernel, &[binding; 3], &[0; 4], [1, 1, 1]).is_err());
    fake.release_all();
    // SAFETY: loaded only.
    let other = unsafe { device.load_unchecked(&matmul()) }.unwrap();
    assert_eq!(fake.calls("cuModuleUnload"), 1);
    device.unload(other).unwrap();
    assert_eq!(fake.calls("cuModuleUnload"), 2);
}

#[test]
fn images_that_do_not_load_are_refused() {
    let (fake, device) = open();
    let broken = |image: &[u8], entry: &str, threads| UnsafeKernelSource::Cuda {
        image: image.into(),
        entry: entry.into(),
        threads,
        shared_bytes: 0,
    };
    for (source, what) in [
        (broken(b"not ptx", "x", [1; 3]), "image"),
        (broken(DEMO_PTX.as_bytes(), "missing", [1; 3]), "entry"),
        (broken(DEMO_PTX.as_bytes(), "terrane_sum", [0, 1, 1]), "no threads"),
        (broken(DEMO_PTX.as_bytes(), "terrane_sum", [u32::MAX; 3]), "too many threads"),
    ] {
        // SAFETY: none of them loads.
        let refused = unsafe { device.load_unchecked(&source) };
        assert!(matches!(refused, Err(DeviceError::InvalidCall(_))), "{what}: {refused:?}");
    }
    assert_eq!(fake.calls("cuModuleUnload"), 1, "the module without the entry went back");
    let wgsl = KernelSource::Wgsl { text: "".into(), entry: "main".into() };
    assert_eq!(device.load(&wgsl), Err(DeviceError::Unsupported(Feature::KernelLanguage)));
    // SAFETY: loaded only.
    assert!(unsafe { device.load_unchecked(&sum()) }.is_ok());
}

#[test]
fn calibration_gives_a_cost_to_every_call() {
    let fake = Arc::new(FakeDriver::default());
    fake.state().memory.capacity = 1 << 30;
    let driver: Arc<dyn Driver> = Arc::clone(&fake) as _;
    let options = Options { calibrate: true, ..Options::default() };
    let device = CudaDevice::open_with(driver, &Selector::Index(0), options).unwrap();
    let costs = device.caps().costs;
    for line in [costs.plain_create, costs.page_create, costs.page_map, costs.copy, costs.gather] {
        assert!(line.ns(64 * MIB) > 0.0, "{costs:?}");
    }
    let kept = fake.state().memory.used;
    assert!(kept <= MIB, "only scratch memory stays: {kept}");
}
