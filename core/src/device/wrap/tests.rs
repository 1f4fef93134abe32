use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::device::calls::CallKind;
use crate::device::sim::{Sim, SimDevice};
use crate::device::{
    ClassId, Device, HeapId, MapOp, Place, PlainSpec, Region, StreamSpec, UnmapOp,
};
use crate::units::MIB;

const CLASS: ClassId = ClassId(0);

fn plain(device: &dyn Device, bytes: u64) -> Result<SpaceId, DeviceError> {
    let spec = PlainSpec { class: CLASS, bytes, exportable: false, priority: 0.5, name: "test" };
    device.create_plain(&spec).map(|plain| plain.space)
}

fn faulty(faults: Faults) -> (SimDevice, Arc<Faulty>) {
    let sim = Sim::cuda().bytes(true).open();
    let device = Faulty::new(sim.shared(), faults);
    (sim, device)
}

#[test]
fn the_nth_call_of_a_kind_fails_and_the_device_inside_is_not_asked() {
    let faults = Faults::none().nth(CallKind::CreatePlain, 2).nth(CallKind::Reserve, 1);
    let (sim, device) = faulty(faults);
    let first = plain(&*device, MIB).unwrap();
    assert_eq!(plain(&*device, MIB), Err(DeviceError::OutOfMemory { bytes: MIB }));
    plain(&*device, MIB).unwrap();
    let reserve = || device.paging().unwrap().reserve(CLASS, 2 * MIB);
    assert_eq!(reserve(), Err(DeviceError::OutOfAddressSpace { bytes: 2 * MIB }));
    assert!(reserve().is_ok());
    assert_eq!((device.injected(), sim.memory_objects()), (2, 2));
    assert_eq!(sim.calls().of(CallKind::CreatePlain).calls, 2);
    device.fail_next(CallKind::ReleasePlain, 2);
    let refused = Err(DeviceError::Driver { call: "release plain", code: -1 });
    assert_eq!([(); 2].map(|()| device.release_plain(first)), [refused; 2]);
    assert_eq!(device.release_plain(first), Ok(()));
}

#[test]
fn a_rule_sees_the_call_and_chooses_the_error() {
    let faults = Faults::none().matching(|ask| {
        (ask.kind == CallKind::Map && ask.items > 1).then_some(DeviceError::Capturing)
    });
    let (sim, device) = faulty(faults);
    let paging = device.paging().unwrap();
    let space = paging.reserve(CLASS, 8 * MIB).unwrap().space;
    let memory = paging.create(CLASS, 2 * MIB, false).unwrap();
    let op = |mib: u64| {
        let at = Place { space, offset: mib * MIB };
        MapOp { at, memory, memory_offset: 0, bytes: 2 * MIB }
    };
    assert_eq!(paging.map(&[op(0), op(2)], &[]), Err(DeviceError::Capturing));
    assert_eq!(sim.mappings(), 0);
    paging.map(&[op(0)], &[]).unwrap();
    device.set_faults(Faults::none());
    paging.map(&[op(2), op(4)], &[]).unwrap();
    assert_eq!(sim.mappings(), 3);
}

#[test]
fn random_faults_are_the_same_for_the_same_seed() {
    let run = |seed| {
        let (_, device) = faulty(Faults::none().one_in(4, seed, CallKind::gets));
        (0..200).map(|_| plain(&*device, MIB).is_err()).collect::<Vec<bool>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let failed = run(3).iter().filter(|failed| **failed).count();
    assert!((20..80).contains(&failed), "{failed}");
}

#[test]
fn a_lost_device_answers_lost_and_lets_things_be_given_back() {
    let (sim, device) = faulty(Faults::none().lose_at(4));
    let space = plain(&*device, MIB).unwrap();
    let stream = device.create_stream(StreamSpec::default()).unwrap();
    let mark = device.mark(stream).unwrap();
    assert_eq!(device.reached(stream), Err(DeviceError::Lost));
    assert_eq!(device.wait_any(&[mark], Duration::ZERO), Err(DeviceError::Lost));
    assert_eq!(plain(&*device, MIB), Err(DeviceError::Lost));
    assert_eq!(device.release_plain(space), Ok(()));
    let unmap = UnmapOp { at: Place { space, offset: 0 }, bytes: MIB };
    assert_eq!(device.paging().unwrap().unmap(&[unmap], &[]), Ok(None));
    assert_eq!(device.retire_stream(stream), Ok(()));
    assert_eq!(sim.memory_objects(), 1);
}

#[test]
fn calls_are_counted_and_timed_by_the_clock_of_the_device_inside() {
    let sim = Sim::cuda().open();
    let device = Logged::new(sim.shared(), 3);
    let paging = device.paging().unwrap();
    let memory = paging.create(CLASS, 1024 * MIB, false).unwrap();
    paging.create(CLASS, 2 * MIB, false).unwrap();
    assert!(paging.create(CLASS, 1, false).is_err());
    paging.release(memory).unwrap();
    let calls = device.calls();
    let made = calls.of(CallKind::CreateMemory);
    assert_eq!((made.calls, made.failed, made.bytes), (3, 1, 1026 * MIB));
    assert_eq!(made.longest_ns, 38_000);
    assert_eq!(calls.of(CallKind::CreateMemory), sim.calls().of(CallKind::CreateMemory));
    assert_eq!(calls.count(CallKind::gives_back), 1);
    let log: Vec<CallKind> = calls.log().iter().map(|call| call.kind).collect();
    assert_eq!(log, [CallKind::CreateMemory; 3]);
    let table = calls.to_string();
    assert!(table.lines().any(|line| line.starts_with("create memory") && line.contains('3')));
    assert_eq!(table.lines().count(), 3, "{table}");
    device.clear_calls();
    assert_eq!(device.calls().count(|_| true), 0);
}

#[test]
fn a_limited_device_gives_out_no_more_than_its_limits() {
    let limits = Limits { bytes: Some(10 * MIB), objects: Some(3) };
    let device = Limited::new(Sim::cuda().open().shared(), limits);
    assert_eq!(device.caps().heaps[0].total, 10 * MIB);
    assert_eq!(device.caps().max_memory_objects, 3);
    let first = plain(&*device, 4 * MIB).unwrap();
    let paging = device.paging().unwrap();
    let page = paging.create(CLASS, 4 * MIB, false).unwrap();
    assert_eq!(plain(&*device, 4 * MIB), Err(DeviceError::OutOfMemory { bytes: 4 * MIB }));
    assert_eq!(
        plain(&*device, 11 * MIB),
        Err(DeviceError::TooLarge { bytes: 11 * MIB, limit: 10 * MIB })
    );
    assert!(plain(&*device, 1).is_err(), "refused by the device inside, and not counted");
    assert_eq!((device.used_bytes(), device.heap_use(HeapId(0)).unwrap().free), (8 * MIB, 2 * MIB));
    plain(&*device, MIB).unwrap();
    assert_eq!(plain(&*device, MIB), Err(DeviceError::TooManyObjects { limit: 3 }));
    device.release_plain(first).unwrap();
    paging.release(page).unwrap();
    assert!(paging.release(page).is_err());
    assert_eq!(device.used_bytes(), MIB);
    plain(&*device, 9 * MIB).unwrap();
}

#[test]
fn two_threads_never_pass_a_limit_together() {
    let limits = Limits { bytes: Some(64 * MIB), objects: None };
    let device = Limited::new(Sim::slabs().open().shared(), limits);
    let made: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..64).filter(|_| plain(&*device, MIB).is_ok()).count()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((made, device.used_bytes()), (64, 64 * MIB));
}

#[test]
fn wrappers_around_wrappers_pass_every_power_on() {
    let sim = Sim::cuda().bytes(true).open();
    let limited = Limited::new(sim.shared(), Limits::default());
    let device = Logged::new(Faulty::new(limited, Faults::none()), 0);
    let stream = device.create_stream(StreamSpec::default()).unwrap();
    let space = plain(&*device, MIB).unwrap();
    let region = Region { place: Place { space, offset: 0 }, bytes: MIB, seed: 3 };
    let compute = device.compute().unwrap();
    compute.fill_pattern(stream, &[region]).unwrap();
    let verify = compute.verify(stream, &[region]).unwrap();
    assert_eq!(compute.take_report(verify), Ok(vec![0]));
    assert_eq!((compute.dispatches(), device.inner().info().backend), (2, "sim"));
    assert_eq!(device.calls().of(CallKind::Verify).bytes, MIB);
    assert!(device.host_access().is_some() && device.paging().is_some());
    let none = Logged::new(Sim::slabs().open().shared(), 0);
    assert!(none.compute().is_none() && none.paging().is_none() && none.host_access().is_none());
}

#[test]
fn a_paced_device_shows_work_as_done_when_it_is_told_and_never_before_it_is() {
    let sim = Sim::vulkan().completion(crate::device::sim::Completion::ByHand).open();
    let device = Paced::new(sim.shared(), Common::Pages).unwrap();
    let space = plain(&*device, 2 * MIB).unwrap();
    let at = Place { space, offset: 0 };
    let lane = device.create_by_hand().unwrap();
    let point = device.fill(lane, at, 4, 0).unwrap();
    sim.complete_all();
    assert_eq!(device.reached(lane), Ok(0), "it is done, and nobody has said so");
    assert_eq!(device.wait_any(&[point], Duration::from_millis(1)), Ok(false));
    // Work behind it is shown as done with it, though the device ended it long ago.
    let other = device.create_stream(StreamSpec::default()).unwrap();
    sim.set_completion(other, crate::device::sim::Completion::Immediate).unwrap();
    let before = device.fill(other, at, 4, 0).unwrap();
    device.wait_on_stream(other, &[point]).unwrap();
    let behind = device.fill(other, at, 4, 0).unwrap();
    assert_eq!((sim.reached(other), device.reached(other)), (Ok(behind.value), Ok(before.value)));
    device.complete(point).unwrap();
    assert_eq!((device.reached(lane), device.reached(other)), (Ok(point.value), Ok(behind.value)));
    assert_eq!(device.complete(behind), Err(DeviceError::UnknownStream), "not by hand");
}

#[test]
fn a_paced_device_shows_no_address_since_it_says_that_it_has_none() {
    let sim = Sim::cuda().open();
    let device = Paced::new(sim.shared(), Common::Pages).unwrap();
    let reserve = |device: &dyn Device| device.paging().unwrap().reserve(CLASS, 8 * MIB).unwrap();
    // An address is a multiple of the device's own pages, here and there smaller than those shown.
    assert_eq!((reserve(&*device).address, device.caps().addresses), (None, false));
    assert!(reserve(&sim).address.is_some());
}

#[test]
fn all_devices_are_shown_with_the_same_capabilities_or_refused_with_the_reason() {
    let shown = |sim: Sim, common| {
        let device = Paced::new(sim.open().shared(), common)?;
        // Of the device's own stay numbers that only it understands, and what it can compute.
        Ok::<_, DeviceError>((device.caps().paging, device.caps().heaps.clone()))
    };
    for common in [Common::Slabs, Common::Pages] {
        assert_eq!(shown(Sim::cuda(), common), shown(Sim::vulkan(), common));
        assert_eq!(common.name().parse(), Ok(common));
    }
    let small = shown(Sim::cuda().capacity(MIB), Common::Slabs).unwrap_err();
    assert!(small.to_string().contains("2 GiB"), "{small}");
    let unpaged = shown(Sim::slabs(), Common::Pages).unwrap_err();
    assert_eq!(unpaged, DeviceError::Unsupported(crate::error::Feature::Paging));
    let coarse = shown(Sim::cuda().granularity(4 * MIB), Common::Pages).unwrap_err();
    assert!(coarse.to_string().contains("pages"), "{coarse}");
}
