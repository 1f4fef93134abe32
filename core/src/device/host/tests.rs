use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::*;
use crate::device::{
    Access, Binding, ClassId, Device, DeviceError, HeapId, KernelId, KernelSource, MapOp, Place,
    PlainSpec, Region, SpaceId, StreamId, StreamSpec, SyncPoint, UnmapOp,
};
use crate::units::MIB;

const CLASS: ClassId = ClassId(0);
const PAGE: u64 = 64 << 10;
const SOON: Duration = Duration::from_secs(30);

fn open(workers: usize) -> Arc<HostDevice> {
    Host::new().limit(256 * MIB).workers(workers).open().unwrap()
}

fn plain(device: &HostDevice, bytes: u64) -> Result<SpaceId, DeviceError> {
    let spec = PlainSpec { class: CLASS, bytes, exportable: false, priority: 0.5, name: "test" };
    device.create_plain(&spec).map(|plain| plain.space)
}

fn stream(device: &HostDevice) -> StreamId {
    device.create_stream(StreamSpec::default()).unwrap()
}

fn at(space: SpaceId, offset: u64) -> Place {
    Place { space, offset }
}

fn kernel(device: &HostDevice, run: impl Fn(&HostGroup<'_>) + Send + Sync + 'static) -> KernelId {
    let source = KernelSource::Host(HostKernel(Arc::new(run)));
    device.compute().unwrap().load(&source).unwrap()
}

fn launch(device: &HostDevice, on: StreamId, kernel: KernelId) -> SyncPoint {
    device.compute().unwrap().dispatch(on, kernel, &[], &[], [1; 3]).unwrap()
}

/// A kernel that runs until the sender is dropped or sends.
fn gate(device: &HostDevice) -> (KernelId, std::sync::mpsc::Sender<()>) {
    let (open, wait) = channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let gate = kernel(device, move |_| {
        let _ = wait.lock().unwrap().recv();
    });
    (gate, open)
}

fn read(device: &HostDevice, on: StreamId, place: Place, bytes: u64) -> Vec<u8> {
    let ticket = device.read(on, place, bytes).unwrap();
    assert_eq!(device.wait_any(&[ticket.point], SOON), Ok(true));
    device.take_read(ticket).unwrap()
}

fn reason<T: fmt::Debug>(result: Result<T, DeviceError>) -> &'static str {
    match result {
        Err(DeviceError::InvalidCall(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn capacity_is_bounded_by_the_machine_and_by_the_builder() {
    let free = Host::new().open().unwrap();
    let total = free.caps().heaps[0].total;
    assert!(total > 0 && total <= os::available_bytes());
    let device = Host::new().limit(4 * MIB).max_objects(2).open().unwrap();
    assert_eq!(device.caps().heaps[0].total, 4 * MIB);
    let first = plain(&device, 3 * MIB).unwrap();
    assert_eq!(plain(&device, 2 * MIB), Err(DeviceError::OutOfMemory { bytes: 2 * MIB }));
    assert_eq!(
        plain(&device, 8 * MIB),
        Err(DeviceError::TooLarge { bytes: 8 * MIB, limit: 4 * MIB })
    );
    let heap = device.heap_use(HeapId(0)).unwrap();
    assert_eq!((heap.process, heap.free), (Some(3 * MIB), MIB));
    let page = device.paging().unwrap().create(CLASS, MIB, false).unwrap();
    assert_eq!(plain(&device, 4096), Err(DeviceError::TooManyObjects { limit: 2 }));
    device.release_plain(first).unwrap();
    device.paging().unwrap().release(page).unwrap();
    assert_eq!(device.heap_use(HeapId(0)).unwrap().process, Some(0));
    plain(&device, 4 * MIB).unwrap();
}

#[test]
fn a_wait_parks_the_stream_and_not_the_only_worker() {
    let device = open(1);
    let (a, b, c) = (stream(&device), stream(&device), stream(&device));
    let space = plain(&device, 4096).unwrap();
    let (gated, open) = gate(&device);
    let first = launch(&device, a, gated);
    device.wait_on_stream(b, &[first]).unwrap();
    let parked = device.fill(b, at(space, 0), 4096, 1).unwrap();
    device.wait_on_stream(c, &[parked]).unwrap();
    let last = device.fill(c, at(space, 0), 4096, 2).unwrap();
    assert_eq!(device.wait_any(&[parked, last], Duration::from_millis(20)), Ok(false));
    open.send(()).unwrap();
    assert_eq!(device.wait_any(&[last], SOON), Ok(true));
    assert_eq!(device.reached(a), Ok(first.value));
    assert_eq!(read(&device, c, at(space, 4088), 8), [2, 0, 0, 0, 2, 0, 0, 0]);
}

#[test]
fn streams_run_beside_each_other_and_waits_are_by_point() {
    let device = open(2);
    let (a, b) = (stream(&device), stream(&device));
    let (gated, open) = gate(&device);
    let held = launch(&device, a, gated);
    let space = plain(&device, 4096).unwrap();
    let beside = device.fill(b, at(space, 0), 64, 9).unwrap();
    assert_eq!(device.wait_any(&[held, beside], SOON), Ok(true));
    assert_eq!((device.reached(a), device.reached(b)), (Ok(0), Ok(1)));
    drop(open);
    assert_eq!(device.wait_any(&[held], SOON), Ok(true));
    let never = SyncPoint { stream: a, value: 9 };
    assert!(device.wait_any(&[never], SOON).is_err());
    let start = Instant::now();
    assert_eq!(device.wait_any(&[], Duration::from_millis(10)), Ok(false));
    assert!(start.elapsed() >= Duration::from_millis(10));
}

#[test]
fn one_page_mapped_at_two_places_is_the_same_memory() {
    let device = open(2);
    let paging = device.paging().unwrap();
    let space = paging.reserve(CLASS, 8 * PAGE).unwrap();
    let memory = paging.create(CLASS, 4 * PAGE, false).unwrap();
    let map = |window: u64, page: u64| MapOp {
        at: at(space.space, window * PAGE),
        memory,
        memory_offset: page * PAGE,
        bytes: PAGE,
    };
    paging.map(&[map(0, 1), map(1, 2), map(5, 1)], &[]).unwrap();
    let a = stream(&device);
    device.fill(a, at(space.space, 0), 2 * PAGE, 0x0101_0101).unwrap();
    assert_eq!(read(&device, a, at(space.space, 5 * PAGE + 12), 4), [1; 4]);
    // The old place goes, the new one keeps the data; then the page moves on.
    let unmap = |window: u64| UnmapOp { at: at(space.space, window * PAGE), bytes: PAGE };
    paging.unmap(&[unmap(0)], &[]).unwrap();
    assert_eq!(reason(device.read(a, at(space.space, 0), 4)), "nothing is mapped in the range");
    paging.map(&[map(0, 3), map(2, 1)], &[]).unwrap();
    assert_eq!(read(&device, a, at(space.space, 2 * PAGE), 4), [1; 4]);
    assert_eq!(read(&device, a, at(space.space, 0), 4), [0; 4]);
    let address = device.host_access().unwrap().pointer(at(space.space, PAGE)).unwrap();
    assert_eq!(address.as_ptr().addr() as u64, space.address.unwrap() + PAGE);
    paging.unmap(&[0, 1, 2, 5].map(unmap), &[]).unwrap();
    paging.unreserve(space.space).unwrap();
    paging.release(memory).unwrap();
    assert_eq!(device.heap_use(HeapId(0)).unwrap().process, Some(0));
}

#[test]
fn reserved_addresses_begin_at_a_multiple_of_the_page() {
    let device = open(1);
    let paging = device.paging().unwrap();
    let mut spaces = Vec::new();
    for pages in 1..40 {
        // Of the system's smaller pages, so that its next free addresses lie anywhere.
        plain(&device, pages * os::page_bytes()).unwrap();
        let reserved = paging.reserve(CLASS, pages * PAGE).unwrap();
        assert!(reserved.address.unwrap().is_multiple_of(PAGE), "{reserved:?}");
        spaces.push(reserved.space);
    }
    for space in spaces {
        paging.unreserve(space).unwrap();
    }
}

#[test]
fn a_failed_map_changes_nothing_and_wrong_calls_are_refused() {
    let device = open(1);
    let paging = device.paging().unwrap();
    let space = paging.reserve(CLASS, 4 * PAGE).unwrap().space;
    let memory = paging.create(CLASS, 2 * PAGE, false).unwrap();
    let map = |offset: u64, memory_offset: u64, bytes: u64| MapOp {
        at: at(space, offset),
        memory,
        memory_offset,
        bytes,
    };
    let bad = [
        map(2 * PAGE, PAGE, 2 * PAGE),     // beyond the memory object
        map(4 * PAGE, 0, PAGE),            // beyond the space
        map(u64::MAX - PAGE + 1, 0, PAGE), // beyond everything
        map(PAGE + 4096, 0, PAGE),         // misaligned
        map(PAGE, 0, 0),
        map(0, PAGE, PAGE), // over what the same call maps
    ];
    for op in bad {
        assert!(matches!(
            paging.map(&[map(0, 0, PAGE), op], &[]),
            Err(DeviceError::InvalidCall(_))
        ));
        let unmap = UnmapOp { at: at(space, 0), bytes: PAGE };
        assert_eq!(reason(paging.unmap(&[unmap], &[])), "the range is no mapping");
    }
    paging.map(&[map(0, 0, 2 * PAGE)], &[]).unwrap();
    let half = UnmapOp { at: at(space, 0), bytes: PAGE };
    assert_eq!(reason(paging.unmap(&[half], &[])), "the range is no mapping");
    assert_eq!(reason(paging.release(memory)), "the memory object is still mapped");
    assert_eq!(reason(paging.unreserve(space)), "something is mapped in the space");
    assert_eq!(reason(device.release_plain(space)), "the space is no plain segment");
    assert_eq!(
        paging.reserve(CLASS, 1 << 50).map(drop),
        Err(DeviceError::TooLarge { bytes: 1 << 50, limit: 1 << 44 })
    );
    let whole = UnmapOp { at: at(space, 0), bytes: 2 * PAGE };
    assert_eq!(reason(paging.unmap(&[whole, whole], &[])), "a mapping is dropped twice");
    paging.unmap(&[whole], &[]).unwrap();
}

#[test]
fn memory_in_use_can_be_neither_unmapped_nor_released() {
    let device = open(2);
    let paging = device.paging().unwrap();
    let a = stream(&device);
    let (segment, space) =
        (plain(&device, 4096).unwrap(), paging.reserve(CLASS, PAGE).unwrap().space);
    let memory = paging.create(CLASS, PAGE, false).unwrap();
    let op = MapOp { at: at(space, 0), memory, memory_offset: 0, bytes: PAGE };
    paging.map(&[op], &[]).unwrap();
    let (gated, open) = gate(&device);
    launch(&device, a, gated);
    device.fill(a, at(space, 0), 64, 1).unwrap();
    let last = device.fill(a, at(segment, 0), 64, 1).unwrap();
    let unmap = [UnmapOp { at: at(space, 0), bytes: PAGE }];
    assert_eq!(reason(paging.unmap(&unmap, &[])), "the mapping is in use");
    assert_eq!(reason(paging.unmap(&unmap, &[last])), "a point of the call is not reached");
    assert_eq!(reason(device.release_plain(segment)), "the segment is in use");
    let access = device.host_access().unwrap();
    assert!(access.view(at(segment, 32), 64).is_err());
    assert!(access.view(at(segment, 64), 64).is_ok());
    drop(open);
    assert_eq!(device.wait_any(&[last], SOON), Ok(true));
    device.release_plain(segment).unwrap();
    paging.unmap(&unmap, &[last]).unwrap();
}

#[test]
fn the_host_sees_bytes_alone_or_not_at_all() {
    let device = open(2);
    let a = stream(&device);
    let segment = plain(&device, 4096).unwrap();
    let access = device.host_access().unwrap();
    let mut view = access.view(at(segment, 16), 8).unwrap();
    view.bytes_mut().copy_from_slice(b"terrane!");
    assert_eq!(
        reason(access.view(at(segment, 20), 1).map(drop)),
        "work or another view uses the range"
    );
    assert_eq!(
        reason(device.fill(a, at(segment, 0), 4096, 0)),
        "the host views bytes of the range"
    );
    assert_eq!(reason(device.release_plain(segment)), "the segment is in use");
    drop(view);
    assert_eq!(read(&device, a, at(segment, 15), 10), *b"\0terrane!\0");
    let kept = access.view(at(segment, 16), 8).unwrap();
    drop(device);
    assert_eq!(kept.bytes(), b"terrane!");
}

#[test]
fn a_panicking_kernel_poisons_its_own_stream_only() {
    let device = open(2);
    let (a, b) = (stream(&device), stream(&device));
    let segment = plain(&device, 4096).unwrap();
    let (gated, open) = gate(&device);
    let bad = kernel(&device, |group| assert!(group.group[0] < 5, "expected by the test"));
    launch(&device, a, gated);
    let compute = device.compute().unwrap();
    compute.dispatch(a, bad, &[], &[], [1000, 1, 1]).unwrap();
    let lost = device.read(a, at(segment, 0), 8).unwrap();
    let verify = compute.verify(a, &[Region { place: at(segment, 0), bytes: 8, seed: 1 }]).unwrap();
    device.wait_on_stream(b, &[verify.point]).unwrap();
    let after = device.fill(b, at(segment, 0), 8, 3).unwrap();
    drop(open);
    assert_eq!(device.wait_any(&[after], SOON), Ok(true));
    assert_eq!(device.fill(a, at(segment, 0), 4, 0), Err(DeviceError::StreamPoisoned));
    assert_eq!(device.take_read(lost), Err(DeviceError::StreamPoisoned));
    assert_eq!(compute.take_report(verify), Err(DeviceError::StreamPoisoned));
    assert_eq!(read(&device, b, at(segment, 0), 4), [3, 0, 0, 0]);
    device.retire_stream(a).unwrap();
    assert_eq!(device.mark(a), Err(DeviceError::UnknownStream));
    assert_eq!(device.reached(a), Ok(verify.point.value));
    device.release_plain(segment).unwrap();
}

#[test]
fn kernels_reach_only_their_bindings_and_all_groups_run_once() {
    let device = open(4);
    let a = stream(&device);
    let segment = plain(&device, 64 << 10).unwrap();
    let count = kernel(&device, |group| {
        let [x, y, z] = group.group.map(u64::from);
        let at = (x + y * 7 + z * 77) * 4;
        assert_eq!(group.bindings[0].add_u32(at, u32::from(group.push[0])), Some(0));
        assert_eq!(group.bindings[0].add_u32(4 * 7 * 11 * 13, 1), None);
        assert!(!group.bindings[1].write(0, &[1]), "a binding that is only read");
        assert!(!group.bindings[1].read(u64::MAX, &mut [0; 2]));
    });
    let bind = |offset, bytes, access| Binding { place: at(segment, offset), bytes, access };
    let bytes = 4 * 7 * 11 * 13;
    let bindings = [bind(0, bytes, Access::Write), bind(16, 64, Access::Read)];
    let compute = device.compute().unwrap();
    device.fill(a, at(segment, 0), 64 << 10, 0).unwrap();
    compute.dispatch(a, count, &bindings, &[5], [7, 11, 13]).unwrap();
    let found = read(&device, a, at(segment, 0), bytes + 4);
    assert!(found[..bytes as usize].chunks(4).all(|word| word == [5, 0, 0, 0]));
    assert_eq!(found[bytes as usize..], [0; 4]);
    let unaligned = [bind(4, 16, Access::Read)];
    assert_eq!(
        reason(compute.dispatch(a, count, &unaligned, &[], [1; 3])),
        "a binding is not aligned"
    );
    compute.unload(count).unwrap();
    assert_eq!(reason(compute.dispatch(a, count, &[], &[], [1; 3])), "no such kernel");
    assert_eq!(compute.dispatches(), 1);
}

#[test]
fn a_large_pattern_is_written_and_every_flipped_word_is_found() {
    let device = open(4);
    let a = stream(&device);
    let segment = plain(&device, 24 * MIB).unwrap();
    let region = Region { place: at(segment, 4), bytes: 20 * MIB - 8, seed: 77 };
    let small = Region { place: at(segment, 20 * MIB), bytes: 12, seed: 78 };
    let compute = device.compute().unwrap();
    compute.fill_pattern(a, &[region, small]).unwrap();
    let words = [1, MIB, 7 * MIB + 12, 20 * MIB - 8];
    for offset in words {
        let old = read(&device, a, at(segment, offset / 4 * 4), 4);
        device.write(a, at(segment, offset / 4 * 4), &[!old[0]]).unwrap();
    }
    let verify = compute.verify(a, &[small, region]).unwrap();
    assert_eq!(device.wait_any(&[verify.point], SOON), Ok(true));
    // The first of the flipped words lies before the region.
    assert_eq!(compute.take_report(verify), Ok(vec![0, words.len() as u64 - 1]));
    assert!(compute.take_report(verify).is_err());
}

#[test]
fn dropping_the_device_ends_it_with_work_queued_and_work_running() {
    let started = Arc::new(AtomicBool::new(false));
    let ran = Arc::new(AtomicU32::new(0));
    for _ in 0..20 {
        let device = open(2);
        let a = stream(&device);
        let (seen, runs) = (Arc::clone(&started), Arc::clone(&ran));
        let slow = kernel(&device, move |_| {
            seen.store(true, Ordering::SeqCst);
            runs.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(2));
        });
        for _ in 0..50 {
            launch(&device, a, slow);
        }
        while !started.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        drop(device);
    }
    assert!(ran.load(Ordering::SeqCst) < 20 * 50);
}

#[test]
fn a_kernel_may_hold_and_drop_the_last_share_of_its_device() {
    let device = open(2);
    let a = stream(&device);
    let (gated, open) = gate(&device);
    launch(&device, a, gated);
    let share = std::sync::Mutex::new(Some(Arc::clone(&device)));
    let (done, ended) = channel();
    let last = kernel(&device, move |_| {
        drop(share.lock().unwrap().take());
        let _ = done.send(());
    });
    launch(&device, a, last);
    drop(device);
    drop(open);
    assert_eq!(ended.recv_timeout(SOON), Ok(()));
}

#[test]
fn many_threads_submit_to_the_same_streams() {
    let device = open(3);
    let streams: Vec<StreamId> = (0..3).map(|_| stream(&device)).collect();
    let segment = plain(&device, MIB).unwrap();
    let add = kernel(&device, |group| {
        group.bindings[0].add_u32(0, 1).unwrap();
    });
    let all = Binding { place: at(segment, 0), bytes: 4096, access: Access::Write };
    device.fill(streams[0], at(segment, 0), 4096, 0).unwrap();
    device.wait_any(&[device.mark(streams[0]).unwrap()], SOON).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for turn in 0..200 {
                    let on = streams[turn % 3];
                    let other = device.mark(streams[(turn + 1) % 3]).unwrap();
                    device.wait_on_stream(on, &[other]).unwrap();
                    let compute = device.compute().unwrap();
                    compute.dispatch(on, add, &[all], &[], [2, 1, 1]).unwrap();
                }
            });
        }
    });
    for &on in &streams {
        let mark = device.mark(on).unwrap();
        assert_eq!(device.wait_any(&[mark], SOON), Ok(true));
    }
    assert_eq!(read(&device, streams[0], at(segment, 0), 4), 1600_u32.to_le_bytes());
}

#[test]
#[allow(unsafe_code)]
fn after_a_fork_the_child_is_told_so_and_does_not_hang() {
    let device = open(2);
    let (a, segment) = (stream(&device), plain(&device, 4096).unwrap());
    // SAFETY: the child calls only functions that take no lock and make no allocation, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let told = device.fill(a, at(segment, 0), 4, 0) == Err(DeviceError::AfterFork)
            && device.reached(a) == Err(DeviceError::AfterFork)
            && device.wait_any(&[], SOON) == Err(DeviceError::AfterFork)
            && plain(&device, 4096) == Err(DeviceError::AfterFork)
            && device.release_plain(segment) == Err(DeviceError::AfterFork);
        drop(device);
        // SAFETY: ends the process without running what belongs to the parent.
        unsafe { libc::_exit(if told { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: `status` is valid for the call.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    let point = device.fill(a, at(segment, 0), 4, 0).unwrap();
    assert_eq!(device.wait_any(&[point], SOON), Ok(true));
}
