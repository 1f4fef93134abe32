use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::*;
use crate::device::{
    Access, ClassId, CopyOp, KernelSource, MapOp, MemoryId, Place, Plain, PlainSpec, Region,
    SpaceId, StreamSpec, UnmapOp,
};
use crate::units::MIB;

const DEVICE: ClassId = ClassId(0);
const UPLOAD: ClassId = ClassId(1);
const SOON: Duration = Duration::from_secs(10);
const NONE: Duration = Duration::ZERO;

fn plain(sim: &SimDevice, class: ClassId, bytes: u64) -> Result<Plain, DeviceError> {
    let spec = PlainSpec { class, bytes, exportable: false, priority: 0.5, name: "test" };
    sim.create_plain(&spec)
}

fn stream(sim: &SimDevice) -> StreamId {
    sim.create_stream(StreamSpec::default()).unwrap()
}

fn at(space: SpaceId, offset: u64) -> Place {
    Place { space, offset }
}

fn written(space: SpaceId, offset: u64, bytes: u64) -> Binding {
    Binding { place: at(space, offset), bytes, access: Access::Write }
}

fn map(space: SpaceId, offset: u64, memory: MemoryId, bytes: u64) -> MapOp {
    MapOp { at: at(space, offset), memory, memory_offset: 0, bytes }
}

#[test]
fn calls_cost_what_the_model_says_and_move_the_clock() {
    let sim = Sim::cuda().log(8).open();
    let paging = sim.paging().unwrap();
    paging.create(DEVICE, 1024 * MIB, false).unwrap();
    let stats = sim.calls().of(CallKind::CreateMemory);
    assert_eq!((stats.calls, stats.bytes), (1, 1024 * MIB));
    assert_eq!(stats.total_ns, 38_000);
    assert_eq!(sim.now_ns(), 38_000);
    sim.advance(5);
    assert_eq!(sim.now_ns(), 38_005);
    let log: Vec<CallKind> = sim.calls().log().iter().map(|call| call.kind).collect();
    assert_eq!(log, [CallKind::CreateMemory]);
    assert_eq!(sim.calls().count(CallKind::gives_back), 0);
}

#[test]
fn capacity_counts_and_sizes_are_limited() {
    let sim = Sim::slabs().capacity(10 * MIB).max_plain(8 * MIB).max_objects(2).open();
    assert_eq!(
        plain(&sim, DEVICE, 9 * MIB),
        Err(DeviceError::TooLarge { bytes: 9 * MIB, limit: 8 * MIB })
    );
    let first = plain(&sim, DEVICE, 8 * MIB).unwrap();
    assert_eq!(plain(&sim, DEVICE, 4 * MIB), Err(DeviceError::OutOfMemory { bytes: 4 * MIB }));
    sim.set_others(HeapId(0), MIB);
    let heap = sim.heap_use(HeapId(0)).unwrap();
    assert_eq!((heap.total, heap.free, heap.process), (10 * MIB, MIB, Some(8 * MIB)));
    plain(&sim, DEVICE, MIB).unwrap();
    assert_eq!(plain(&sim, DEVICE, 256), Err(DeviceError::TooManyObjects { limit: 2 }));
    sim.release_plain(first.space).unwrap();
    assert!(matches!(sim.release_plain(first.space), Err(DeviceError::InvalidCall(_))));
    assert_eq!(sim.memory_objects(), 1);
    assert_eq!(sim.violations().len(), 1);
}

#[test]
fn work_completes_by_hand_in_stream_order() {
    let sim = Sim::slabs().completion(Completion::ByHand).open();
    let a = stream(&sim);
    let points: Vec<SyncPoint> = (0..3).map(|_| sim.submit(a, 1).unwrap()).collect();
    assert_eq!(sim.mark(a), Ok(points[2]));
    sim.advance(1 << 40);
    assert_eq!(sim.reached(a), Ok(0));
    sim.complete(points[1]);
    assert_eq!(sim.reached(a), Ok(2));
    assert_eq!(sim.wait_any(&[points[2]], NONE), Ok(false));
    sim.complete_all();
    assert_eq!(sim.wait_any(&[points[2]], NONE), Ok(true));
}

#[test]
fn work_that_waits_for_another_stream_completes_after_it() {
    let sim = Sim::slabs().completion(Completion::ByHand).open();
    let (a, b) = (stream(&sim), stream(&sim));
    let first = sim.submit(a, 0).unwrap();
    sim.wait_on_stream(b, &[first]).unwrap();
    let second = sim.submit(b, 0).unwrap();
    sim.complete(second);
    assert_eq!(sim.reached(b), Ok(0));
    sim.complete(first);
    assert_eq!(sim.reached(b), Ok(1));
}

#[test]
fn a_wait_moves_the_virtual_clock_to_the_first_completion() {
    let sim = Sim::slabs().completion(Completion::After(100)).open();
    let (a, b, c) = (stream(&sim), stream(&sim), stream(&sim));
    let slow = sim.submit(a, 1_000).unwrap();
    sim.wait_on_stream(b, &[slow]).unwrap();
    let after = sim.submit(b, 50).unwrap();
    let quick = sim.submit(c, 70).unwrap();
    assert_eq!(sim.wait_any(&[after, quick], SOON), Ok(true));
    assert_eq!(sim.now_ns(), 70);
    assert_eq!(sim.wait_any(&[after], Duration::from_nanos(100)), Ok(false));
    assert_eq!(sim.now_ns(), 170);
    sim.submit(a, 5_000).unwrap();
    assert_eq!(sim.wait_any(&[after], SOON), Ok(true));
    assert_eq!(sim.now_ns(), 1_050);
    assert_eq!(sim.wait_any(&[], Duration::from_nanos(50)), Ok(false));
    assert_eq!(sim.now_ns(), 1_100);
}

#[test]
fn a_wait_sleeps_until_another_thread_completes_the_work() {
    let sim = Sim::slabs().completion(Completion::ByHand).open();
    let point = sim.submit(stream(&sim), 0).unwrap();
    let other = sim.clone();
    let helper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        other.complete(point);
    });
    assert_eq!(sim.wait_any(&[point], SOON), Ok(true));
    helper.join().unwrap();
}

#[test]
fn a_foreign_streams_mark_covers_work_that_has_no_point_of_ours() {
    let sim = Sim::slabs().completion(Completion::ByHand).open();
    let foreign = sim.create_foreign_stream();
    assert!(sim.is_foreign(foreign));
    let theirs = sim.submit(foreign, 0).unwrap();
    let mark = sim.mark(foreign).unwrap();
    assert!(mark.value > theirs.value);
    assert_eq!(sim.wait_any(&[mark], NONE), Ok(false));
    sim.complete(theirs);
    assert_eq!(sim.wait_any(&[mark], NONE), Ok(true));
}

#[test]
fn a_retired_stream_takes_no_work_and_its_points_stay_valid() {
    let sim = Sim::slabs().completion(Completion::ByHand).open();
    let a = stream(&sim);
    let point = sim.submit(a, 0).unwrap();
    sim.retire_stream(a).unwrap();
    assert_eq!(sim.submit(a, 0), Err(DeviceError::UnknownStream));
    assert_eq!(sim.wait_any(&[point], NONE), Ok(false));
    sim.complete(point);
    assert_eq!(sim.reached(a), Ok(point.value));
    assert!(stream(&sim) > a);
}

#[test]
fn every_rule_of_mapping_is_checked_and_a_failed_map_changes_nothing() {
    let sim = Sim::cuda().open();
    let paging = sim.paging().unwrap();
    let space = paging.reserve(DEVICE, 8 * MIB).unwrap().space;
    let small = paging.create(DEVICE, 2 * MIB, false).unwrap();
    let large = paging.create(DEVICE, 4 * MIB, false).unwrap();
    let invalid = |ops: &[MapOp]| {
        let before = sim.mappings();
        assert!(matches!(paging.map(ops, &[]), Err(DeviceError::InvalidCall(_))), "{ops:?}");
        assert_eq!(sim.mappings(), before);
    };
    paging.map(&[map(space, 2 * MIB, small, 2 * MIB)], &[]).unwrap();
    invalid(&[map(space, 0, large, 4 * MIB)]); // overlaps
    invalid(&[map(space, 4 * MIB, large, 2 * MIB)]); // not the whole object
    invalid(&[map(space, 6 * MIB, large, 4 * MIB)]); // beyond the space
    invalid(&[map(space, 4096, small, 2 * MIB)]); // misaligned
    invalid(&[map(space, 4 * MIB, large, 4 * MIB), map(space, 0, MemoryId(9_999), 2 * MIB)]);
    paging.map(&[map(space, 4 * MIB, small, 2 * MIB)], &[]).unwrap(); // a second place
    for wrong in [(0, 2), (2, 4), (3, 1)] {
        let op = UnmapOp { at: at(space, wrong.0 * MIB), bytes: wrong.1 * MIB };
        assert!(matches!(paging.unmap(&[op], &[]), Err(DeviceError::InvalidCall(_))));
    }
    assert!(matches!(paging.release(small), Err(DeviceError::InvalidCall(_))));
    assert!(matches!(paging.unreserve(space), Err(DeviceError::InvalidCall(_))));
    let both = [2, 4].map(|mib| UnmapOp { at: at(space, mib * MIB), bytes: 2 * MIB });
    paging.unmap(&both, &[]).unwrap();
    paging.release(small).unwrap();
    paging.release(large).unwrap();
    paging.unreserve(space).unwrap();
    assert_eq!(sim.heap_use(HeapId(0)).unwrap().process, Some(0));
    assert_eq!(sim.violations().len() as u64, 5 + 3 + 2);
}

#[test]
fn unordered_work_on_the_same_bytes_is_a_race_also_through_two_mappings() {
    let sim = Sim::cuda().completion(Completion::ByHand).open();
    let paging = sim.paging().unwrap();
    let space = paging.reserve(DEVICE, 4 * MIB).unwrap().space;
    let page = paging.create(DEVICE, 2 * MIB, false).unwrap();
    paging.map(&[map(space, 0, page, 2 * MIB), map(space, 2 * MIB, page, 2 * MIB)], &[]).unwrap();
    let (a, b, c) = (stream(&sim), stream(&sim), stream(&sim));
    let first = sim.submit_using(a, 0, &[written(space, 256, 256)]).unwrap();
    sim.wait_on_stream(b, &[first]).unwrap();
    let ordered = sim.submit_using(b, 0, &[written(space, 2 * MIB + 256, 256)]).unwrap();
    // Ordered behind the first through a wait for the second.
    sim.wait_on_stream(c, &[ordered]).unwrap();
    sim.submit_using(c, 0, &[written(space, 0, 512)]).unwrap();
    assert_eq!(sim.violations(), []);
    let late = stream(&sim);
    let second = sim.submit_using(late, 0, &[written(space, 2 * MIB + 511, 1)]).unwrap();
    let race = Violation::Race { first, second, memory: page, offset: 511 };
    assert_eq!(sim.violations(), [race]);
    sim.complete_all();
    sim.submit_using(late, 0, &[written(space, 0, 512)]).unwrap();
    assert_eq!(sim.violations().len(), 1);
}

#[test]
fn of_two_mappings_of_a_page_the_one_that_no_work_uses_may_go() {
    let sim = Sim::cuda().completion(Completion::ByHand).open();
    let paging = sim.paging().unwrap();
    let space = paging.reserve(DEVICE, 4 * MIB).unwrap().space;
    let page = paging.create(DEVICE, 2 * MIB, false).unwrap();
    paging.map(&[map(space, 0, page, 2 * MIB), map(space, 2 * MIB, page, 2 * MIB)], &[]).unwrap();
    let a = stream(&sim);
    let work = sim.submit_using(a, 0, &[written(space, 2 * MIB, 256)]).unwrap();
    let gone = |offset| UnmapOp { at: at(space, offset), bytes: 2 * MIB };
    paging.unmap(&[gone(0)], &[]).unwrap();
    assert_eq!(sim.violations(), []);
    assert!(matches!(paging.unmap(&[gone(2 * MIB)], &[]), Err(DeviceError::InvalidCall(_))));
    let call = CallKind::Unmap;
    assert_eq!(sim.violations()[0], Violation::ReleasedInUse { call, work });
    sim.complete_all();
    paging.unmap(&[gone(2 * MIB)], &[]).unwrap();
}

#[test]
fn memory_given_back_behind_an_ordered_unmap_stays_until_that_is_done() {
    let sim = Sim::vulkan().completion(Completion::ByHand).open();
    let paging = sim.paging().unwrap();
    let space = paging.reserve(DEVICE, MIB).unwrap().space;
    let page = paging.create(DEVICE, 65_536, false).unwrap();
    paging.map(&[map(space, 0, page, 65_536)], &[]).unwrap();
    sim.complete_all();
    let a = stream(&sim);
    let others = sim.submit(a, 0).unwrap();
    assert!(matches!(paging.release(page), Err(DeviceError::InvalidCall(_))), "it is mapped");
    let count = sim.violations().len();
    paging.unmap(&[UnmapOp { at: at(space, 0), bytes: 65_536 }], &[others]).unwrap();
    paging.release(page).unwrap();
    assert!(paging.release(page).is_err(), "given back twice");
    assert_eq!(sim.memory_objects(), 1);
    sim.complete_all();
    assert_eq!((sim.memory_objects(), sim.mappings()), (0, 0));
    assert_eq!(sim.violations().len(), count + 1, "but for the second time");
}

#[test]
fn an_unmap_behind_work_is_behind_all_that_this_waited_for() {
    let sim = Sim::vulkan().completion(Completion::ByHand).open();
    let paging = sim.paging().unwrap();
    let space = paging.reserve(DEVICE, MIB).unwrap().space;
    let page = paging.create(DEVICE, 65_536, false).unwrap();
    paging.map(&[map(space, 0, page, 65_536)], &[]).unwrap();
    sim.complete_all();
    let (a, b) = (stream(&sim), stream(&sim));
    let user = sim.submit_using(a, 0, &[written(space, 0, 256)]).unwrap();
    let careless = sim.submit(b, 0).unwrap();
    let unmap = |after| paging.unmap(&[UnmapOp { at: at(space, 0), bytes: 65_536 }], &[after]);
    assert!(unmap(careless).is_err(), "nothing orders it behind the use");
    let count = sim.violations().len();
    sim.wait_on_stream(b, &[user]).unwrap();
    let behind = sim.submit(b, 0).unwrap();
    unmap(behind).unwrap();
    sim.complete_all();
    assert_eq!((sim.violations().len(), sim.mappings()), (count, 0));
}

#[test]
fn memory_in_use_can_not_be_given_back_and_unmapped_ranges_can_not_be_used() {
    let sim = Sim::cuda().completion(Completion::ByHand).open();
    let paging = sim.paging().unwrap();
    let a = stream(&sim);
    let segment = plain(&sim, DEVICE, 4096).unwrap().space;
    let work = sim.submit_using(a, 0, &[written(segment, 0, 16)]).unwrap();
    assert!(matches!(sim.release_plain(segment), Err(DeviceError::InvalidCall(_))));
    let call = CallKind::ReleasePlain;
    assert_eq!(sim.violations()[0], Violation::ReleasedInUse { call, work });
    let space = paging.reserve(DEVICE, 2 * MIB).unwrap().space;
    let lost = sim.submit_using(a, 0, &[written(space, 64, 8)]).unwrap();
    let unmapped = Violation::Unmapped { place: at(space, 64), bytes: 8, work: lost };
    assert_eq!(sim.violations().last(), Some(&unmapped));
    let never = SyncPoint { stream: a, value: 99 };
    assert!(sim.wait_any(&[never], NONE).is_err());
    assert!(sim.violations().contains(&Violation::NeverSubmitted { point: never }));
    sim.complete_all();
    sim.release_plain(segment).unwrap();
}

#[test]
fn binds_of_a_stream_ordered_device_take_effect_in_their_turn() {
    let sim = Sim::vulkan().bytes(true).completion(Completion::ByHand).open();
    let paging = sim.paging().unwrap();
    let a = stream(&sim);
    let space = paging.reserve(DEVICE, MIB).unwrap().space;
    let memory = paging.create(DEVICE, MIB, false).unwrap();
    let op = MapOp { memory_offset: 65_536, ..map(space, 0, memory, 65_536) };
    let bound = paging.map(&[op], &[]).unwrap().unwrap();
    // Not behind the bind: runs into nothing.
    let early = sim.fill(a, at(space, 0), 16, 7).unwrap();
    sim.complete(early);
    assert_eq!(
        sim.violations(),
        [Violation::Unmapped { place: at(space, 0), bytes: 16, work: early }]
    );
    sim.wait_on_stream(a, &[bound]).unwrap();
    let fill = sim.fill(a, at(space, 0), 16, 7).unwrap();
    let read = sim.read(a, at(space, 0), 8).unwrap();
    let gone = paging.unmap(&[UnmapOp { at: at(space, 0), bytes: 65_536 }], &[read.point]).unwrap();
    sim.complete_all();
    assert_eq!(sim.take_read(read).unwrap(), [7, 0, 0, 0, 7, 0, 0, 0]);
    assert_eq!(sim.wait_any(&[gone.unwrap()], NONE), Ok(true));
    assert_eq!(sim.violations().len(), 1);
    paging.release(memory).unwrap();
    assert!(fill.value > early.value);
}

#[test]
fn a_reader_that_does_not_wait_for_its_writer_sees_old_bytes() {
    let sim = Sim::slabs().bytes(true).completion(Completion::Modelled).open();
    let (a, b) = (stream(&sim), stream(&sim));
    let space = plain(&sim, DEVICE, 4096).unwrap().space;
    sim.write(a, at(space, 0), &[1; 8]).unwrap();
    sim.set_completion(a, Completion::After(1_000)).unwrap();
    sim.copy(a, &[CopyOp { from: at(space, 0), to: at(space, 64), bytes: 8 }]).unwrap();
    let careless = sim.read(b, at(space, 64), 8).unwrap();
    assert!(matches!(sim.violations()[0], Violation::Race { .. }));
    sim.wait_on_stream(b, &[sim.mark(a).unwrap()]).unwrap();
    let careful = sim.read(b, at(space, 64), 8).unwrap();
    assert!(sim.take_read(careful).is_err());
    assert_eq!(sim.wait_any(&[careful.point], SOON), Ok(true));
    assert_eq!(sim.take_read(careless).unwrap(), [store::UNWRITTEN; 8]);
    assert_eq!(sim.take_read(careful).unwrap(), [1; 8]);
    assert!(sim.take_read(careful).is_err());
}

#[test]
fn kernels_run_on_kept_bytes_and_a_panicking_one_poisons_its_stream() {
    let sim = Sim::slabs().bytes(true).open();
    let compute = sim.compute().unwrap();
    let a = stream(&sim);
    let space = plain(&sim, DEVICE, MIB).unwrap().space;
    let region = Region { place: at(space, 16), bytes: 1000, seed: 42 };
    compute.fill_pattern(a, &[region]).unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&runs);
    let flip = KernelSource::Host(HostKernel(Arc::new(move |group| {
        seen.fetch_add(1, Ordering::Relaxed);
        let view = group.bindings[0];
        assert!(!view.write(view.len(), &[0]), "beyond the binding");
        assert!(!view.write(u64::MAX, &[0]), "beyond the address space");
        view.add_u32(64 * u64::from(group.group[0]), 1).unwrap();
    })));
    let flip = compute.load(&flip).unwrap();
    compute.dispatch(a, flip, &[written(space, 16, 1000)], &[], [3, 1, 1]).unwrap();
    let verify = compute.verify(a, &[region]).unwrap();
    assert_eq!(compute.take_report(verify).unwrap(), [3]);
    assert_eq!(runs.load(Ordering::Relaxed), 3);
    let moved = CopyOp { from: at(space, 16), to: at(space, 32_768), bytes: 1008 };
    compute.gather(a, &[moved]).unwrap();
    let both = [region, Region { place: at(space, 32_768), ..region }];
    let sums = compute.take_report(compute.checksum(a, &both).unwrap()).unwrap();
    assert_eq!(sums[0], sums[1]);
    assert_eq!(compute.dispatches(), 5);

    let bad = compute.load(&KernelSource::Host(HostKernel(Arc::new(|_| panic!("test"))))).unwrap();
    let point = compute.dispatch(a, bad, &[], &[], [1; 3]).unwrap();
    assert_eq!(sim.wait_any(&[point], NONE), Ok(true));
    assert_eq!(sim.fill(a, at(space, 0), 4, 0), Err(DeviceError::StreamPoisoned));
}

#[test]
fn the_host_sees_upload_memory_by_view_and_by_pointer() {
    let sim = Sim::slabs().bytes(true).open();
    let access = sim.host_access().unwrap();
    let space = plain(&sim, UPLOAD, 4096).unwrap().space;
    access.view(at(space, 8), 4).unwrap().bytes_mut().copy_from_slice(b"abcd");
    assert_eq!(access.view(at(space, 6), 8).unwrap().bytes()[2..6], *b"abcd");
    assert!(access.pointer(at(space, 4095)).is_ok());
    assert!(access.pointer(at(space, 4096)).is_err());
    let hidden = plain(&sim, DEVICE, 4096).unwrap().space;
    let none = Err(DeviceError::Unsupported(crate::device::Feature::HostMapping));
    assert_eq!(access.view(at(hidden, 0), 4).map(drop), none);
    assert!(Sim::slabs().open().host_access().is_none());
}

#[test]
fn a_capture_forbids_asking_waiting_and_giving_back_and_its_work_never_runs() {
    let sim = Sim::cuda().bytes(true).open();
    let (a, b) = (stream(&sim), stream(&sim));
    let segment = plain(&sim, DEVICE, 4096).unwrap().space;
    sim.fill(a, at(segment, 0), 8, 5).unwrap();
    let capture = sim.begin_capture(a).unwrap();
    let recorded = sim.fill(a, at(segment, 0), 8, 9).unwrap();
    assert!(sim.is_capturing());
    sim.wait_on_stream(b, &[recorded]).unwrap();
    assert_eq!(sim.capture_of(b), Some(capture));
    assert_eq!(sim.reached(b), Err(DeviceError::Capturing));
    assert_eq!(sim.wait_any(&[recorded], SOON), Err(DeviceError::Capturing));
    assert_eq!(sim.release_plain(segment), Err(DeviceError::Capturing));
    assert_eq!(sim.violations().len(), 3);
    sim.end_capture(capture).unwrap();
    assert_eq!(sim.capture_of(b), None);
    let read = sim.read(a, at(segment, 0), 4).unwrap();
    assert_eq!(sim.take_read(read).unwrap(), [5, 0, 0, 0]);
    sim.release_plain(segment).unwrap();
}

#[test]
fn after_the_device_is_lost_everything_says_so_and_releasing_is_allowed() {
    let sim = Sim::cuda().completion(Completion::ByHand).open();
    let a = stream(&sim);
    let segment = plain(&sim, DEVICE, 4096).unwrap().space;
    let point = sim.submit(a, 0).unwrap();
    let other = sim.clone();
    let waiter = std::thread::spawn(move || other.wait_any(&[point], SOON));
    std::thread::sleep(Duration::from_millis(10));
    sim.lose();
    assert_eq!(waiter.join().unwrap(), Err(DeviceError::Lost));
    assert_eq!(plain(&sim, DEVICE, 4096), Err(DeviceError::Lost));
    assert_eq!(sim.mark(a), Err(DeviceError::Lost));
    assert_eq!(sim.reached(a), Err(DeviceError::Lost));
    assert_eq!(sim.release_plain(segment), Ok(()));
    assert_eq!(sim.paging().unwrap().release(MemoryId(1)), Ok(()));
    assert_eq!(sim.violations(), []);
}

#[test]
fn the_model_is_a_device_for_many_threads() {
    fn shared<T: Send + Sync + 'static>(_: &T) {}
    let sim = Sim::slabs().open();
    shared(&sim);
    let device: Arc<dyn Device> = sim.shared();
    assert_eq!(device.info().backend, "sim");
}
