//! Every error of the allocator, made to happen, with what the caller can do next.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use terrane_core::device::sim::{Completion, Sim, SimDevice};
use terrane_core::device::{Device, DeviceError, Feature, HeapId, StreamId, StreamSpec, SyncPoint};
use terrane_core::{Allocator, Config, Error, Handle, Limit, MemoryKind, Request, Slice, Wait};

const MIB: u64 = 1 << 20;

fn open(sim: Sim) -> (SimDevice, Allocator, StreamId) {
    let sim = sim.open();
    let alloc = Allocator::new(sim.shared()).unwrap();
    let stream = sim.create_stream(StreamSpec::default()).unwrap();
    (sim, alloc, stream)
}

fn ask(alloc: &Allocator, bytes: u64, stream: StreamId) -> Result<Handle, Error> {
    alloc.alloc(&Request::new(bytes, stream)).map(|got| got.handle)
}

#[test]
fn a_request_of_nothing_is_refused() {
    let (_, alloc, stream) = open(Sim::slabs());
    assert_eq!(ask(&alloc, 0, stream), Err(Error::ZeroSize));
    assert!(!Error::ZeroSize.is_transient());
}

#[test]
fn an_alignment_that_is_no_power_of_two_is_refused() {
    let (_, alloc, stream) = open(Sim::slabs());
    for align in [0, 3, 48, u64::MAX] {
        let error = alloc.alloc(&Request::new(1, stream).align(align)).unwrap_err();
        assert_eq!(error, Error::BadAlign { align });
    }
}

#[test]
fn more_than_the_device_can_give_in_one_block_is_refused() {
    let (_, alloc, stream) = open(Sim::slabs().max_plain(64 * MIB));
    for bytes in [64 * MIB + 1, 1 << 40, u64::MAX - 5, u64::MAX] {
        let error = ask(&alloc, bytes, stream).unwrap_err();
        assert_eq!(error, Error::OverDeviceLimit { asked: bytes, limit: 64 * MIB });
    }
    let align = alloc.device().caps().plain_base_align.get() * 2;
    let error = alloc.alloc(&Request::new(1, stream).align(align)).unwrap_err();
    assert!(matches!(error, Error::OverDeviceLimit { .. }), "{error:?}");
}

#[test]
fn a_limit_of_the_users_is_told_from_a_device_that_is_full() {
    let sim = Sim::slabs().capacity(256 * MIB).open();
    let config = Config::for_device(sim.caps()).limit(Limit::Bytes(64 * MIB));
    let alloc = Allocator::with_config(sim.shared(), config).unwrap();
    let stream = sim.create_stream(StreamSpec::default()).unwrap();
    let _held = ask(&alloc, 40 * MIB, stream).unwrap();
    let error = ask(&alloc, 40 * MIB, stream).unwrap_err();
    assert!(
        matches!(error, Error::OverUserLimit { asked, used, limit }
            if asked == 40 * MIB && used == 40 * MIB && limit == 64 * MIB),
        "{error:?}"
    );
    alloc.set_limit(HeapId(0), u64::MAX);
    let _more = ask(&alloc, 40 * MIB, stream).unwrap();
    let error = ask(&alloc, 200 * MIB, stream).unwrap_err();
    let Error::OutOfMemory(shortage) = error else { panic!("{error:?}") };
    assert_eq!((shortage.asked, shortage.reserved), (200 * MIB, 80 * MIB));
    assert!(error.is_transient());
}

#[test]
fn a_tag_has_a_limit_of_its_own() {
    let (_, alloc, stream) = open(Sim::slabs());
    let tag = alloc.tag("weights").unwrap();
    alloc.set_tag_limit(tag, Some(10 * MIB)).unwrap();
    let request = Request::new(6 * MIB, stream).tag(tag);
    let first = alloc.alloc(&request).unwrap();
    let error = alloc.alloc(&request).unwrap_err();
    assert_eq!(error, Error::OverUserLimit { asked: 6 * MIB, used: 6 * MIB, limit: 10 * MIB });
    assert_eq!(
        alloc.grow(first.handle, 11 * MIB).unwrap_err(),
        Error::OverUserLimit { asked: 5 * MIB, used: 6 * MIB, limit: 10 * MIB }
    );
    assert!(ask(&alloc, 6 * MIB, stream).is_ok(), "other memory does not count");
    alloc.check().unwrap();
}

#[test]
fn a_kind_that_the_device_lacks_is_named() {
    let sim = Sim::slabs().caps(|caps| caps.classes.retain(|c| c.kind == MemoryKind::Device));
    let (_, alloc, stream) = open(sim);
    let error = alloc.alloc(&Request::new(1, stream).kind(MemoryKind::Upload)).unwrap_err();
    assert_eq!(error, Error::NoSuchKind(MemoryKind::Upload));
}

#[test]
fn a_range_outside_its_block_and_a_binding_over_the_limit_are_refused() {
    let sim = Sim::slabs().bytes(true).caps(|caps| caps.max_binding_bytes = MIB);
    let (_, alloc, stream) = open(sim);
    let block = ask(&alloc, 2 * MIB, stream).unwrap();
    let small = ask(&alloc, 4096, stream).unwrap();
    for (offset, bytes) in [(4096, 1), (0, 4097), (u64::MAX, 4), (4, u64::MAX - 1)] {
        let slice = Slice::read(small).part(offset, bytes);
        let error = alloc.copy(stream, slice, Slice::write(block)).unwrap_err();
        assert!(matches!(error, Error::OutOfRange { block: 4096, .. }), "{error:?}");
    }
    let kernel = terrane_core::device::KernelId(1);
    let error = alloc.dispatch(stream, kernel, &[Slice::read(block)], &[], [1, 1, 1]).unwrap_err();
    assert_eq!(error, Error::BindingTooLarge { bytes: 2 * MIB, limit: MIB });
    assert_eq!(alloc.info(block).unwrap().holds, 0, "a failed dispatch let go of its blocks");
}

#[test]
fn growing_into_a_neighbour_is_refused_and_changes_nothing() {
    let (_, alloc, stream) = open(Sim::slabs());
    let first = ask(&alloc, 600_000, stream).unwrap();
    let second = ask(&alloc, 600_000, stream).unwrap();
    assert_eq!(alloc.grow(first, 700_000), Err(Error::NoRoomToGrow));
    assert_eq!(alloc.info(first).unwrap().requested, 600_000);
    alloc.free(second).unwrap();
    assert!(alloc.grow(first, 700_000).unwrap().is_empty());
    assert_eq!(alloc.info(first).unwrap().requested, 700_000);
    alloc.check().unwrap();
}

#[test]
fn a_block_that_the_host_sees_can_not_be_used_by_work_and_the_other_way_round() {
    let (_, alloc, stream) = open(Sim::slabs().bytes(true));
    let request = Request::new(4096, stream).kind(MemoryKind::Upload);
    let block = alloc.alloc(&request).unwrap().handle;
    let mapped = alloc.map(block, Duration::ZERO).unwrap();
    assert_eq!(alloc.submit(stream).resolve(block).unwrap_err(), Error::Held);
    assert_eq!(alloc.map(block, Duration::ZERO).err(), Some(Error::Held));
    drop(mapped);
    let mut submission = alloc.submit(stream);
    submission.resolve(block).unwrap();
    assert_eq!(alloc.map(block, Duration::ZERO).err(), Some(Error::Held));
    submission.close().unwrap();
    assert!(alloc.map(block, Duration::ZERO).is_ok());
}

#[test]
fn a_mapping_waits_for_the_last_use_and_says_when_the_time_is_over() {
    let (sim, alloc, stream) = open(Sim::slabs().bytes(true).completion(Completion::ByHand));
    let request = Request::new(4096, stream).kind(MemoryKind::Readback);
    let block = alloc.alloc(&request).unwrap().handle;
    let point = alloc.write(stream, block, 0, &[7; 16]).unwrap();
    let error = alloc.map(block, Duration::from_millis(5)).err();
    assert_eq!(error, Some(Error::TimedOut { asked: 4096 }));
    assert_eq!(alloc.info(block).unwrap().holds, 0);
    sim.complete(point);
    assert_eq!(alloc.map(block, Duration::from_secs(5)).unwrap()[..16], [7; 16]);
}

#[test]
fn a_hook_that_makes_room_serves_the_request_and_one_that_panics_fails_only_it() {
    let (_, alloc, stream) = open(Sim::slabs().capacity(64 * MIB));
    let held = std::sync::Mutex::new(vec![ask(&alloc, 40 * MIB, stream).unwrap()]);
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    alloc.on_pressure(move |alloc, shortage| {
        assert_eq!(shortage.asked, 50 * MIB);
        count.fetch_add(1, Ordering::Relaxed);
        alloc.trim(0).unwrap();
        let freed = held.lock().unwrap().pop().map(|handle| alloc.free(handle).unwrap());
        freed.is_some()
    });
    let got = ask(&alloc, 50 * MIB, stream).unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    alloc.on_pressure(|_, _| panic!("a hook of the test's"));
    let error = ask(&alloc, 50 * MIB, stream).unwrap_err();
    assert_eq!(error, Error::HookPanicked);
    alloc.free(got).unwrap();
    alloc.check().unwrap();
    assert!(ask(&alloc, 50 * MIB, stream).is_ok());
}

#[test]
fn a_hook_that_allocates_asks_no_hook_again() {
    let (_, alloc, stream) = open(Sim::slabs().capacity(64 * MIB));
    let _held = ask(&alloc, 40 * MIB, stream).unwrap();
    alloc.on_pressure(move |alloc, _| {
        let inner = alloc.alloc(&Request::new(50 << 20, stream));
        assert!(matches!(inner, Err(Error::OutOfMemory(_))), "{inner:?}");
        false
    });
    assert!(matches!(ask(&alloc, 50 * MIB, stream), Err(Error::OutOfMemory(_))));
}

#[test]
fn a_lost_device_says_so_and_dropping_everything_is_clean() {
    let (sim, alloc, stream) = open(Sim::slabs().completion(Completion::ByHand));
    let buffer = alloc.buffer(&Request::new(MIB, stream)).unwrap();
    let point = alloc.device().fill(stream, buffer.pin().unwrap().at().place, 4096, 0).unwrap();
    alloc.record_use_until(buffer.handle(), point).unwrap();
    sim.lose();
    let error = ask(&alloc, 64 * MIB, stream).unwrap_err();
    assert_eq!(error, Error::Device(DeviceError::Lost));
    assert!(!error.is_transient());
    let started = std::time::Instant::now();
    drop(buffer);
    drop(alloc);
    assert!(started.elapsed() < Duration::from_secs(5), "dropping waited for a lost device");
}

#[test]
fn a_stream_that_never_was_is_told() {
    let (_, alloc, stream) = open(Sim::slabs());
    let block = ask(&alloc, 4096, stream).unwrap();
    let nobody = StreamId(4_000_000);
    let unknown = Err(Error::Device(DeviceError::UnknownStream));
    assert_eq!(alloc.record_use(block, nobody), unknown);
    assert_eq!(alloc.free_on(block, nobody), unknown);
    assert_eq!(alloc.info(block).unwrap().requested, 4096, "a failed free changed nothing");
}

#[test]
fn what_a_device_lacks_is_unsupported() {
    let (_, alloc, stream) = open(Sim::slabs().caps(|caps| caps.views = false));
    let block = ask(&alloc, 4096, stream).unwrap();
    let unsupported = |feature| Some(Error::Device(DeviceError::Unsupported(feature)));
    assert_eq!(alloc.view(block).err(), unsupported(Feature::Views));
    let kernel = terrane_core::device::KernelId(1);
    let error = alloc.dispatch(stream, kernel, &[], &[], [1, 1, 1]).err();
    assert_eq!(error, unsupported(Feature::Compute));
}

#[test]
fn a_wait_of_the_callers_ends_with_its_time() {
    let (sim, alloc, stream) = open(Sim::slabs().completion(Completion::ByHand));
    let point = sim.submit(stream, 1).unwrap();
    let error = alloc.wait(point, Duration::from_millis(2)).unwrap_err();
    assert_eq!(error, Error::TimedOut { asked: 0 });
    let never = SyncPoint { stream, value: 0 };
    assert_eq!(alloc.wait(never, Duration::ZERO), Ok(()));
    sim.complete_all();
    assert_eq!(alloc.wait(point, Duration::from_secs(5)), Ok(()));
}

#[test]
fn handles_run_out_of_generations_without_ever_repeating() {
    let sim = Sim::slabs().open();
    let mut config = Config::for_device(sim.caps());
    config.first_generation = u32::MAX - 3;
    let alloc = Allocator::with_config(sim.shared(), config).unwrap();
    let stream = sim.create_stream(StreamSpec::default()).unwrap();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..20 {
        let got = alloc.alloc(&Request::new(256, stream).wait(Wait::Never)).unwrap();
        assert!(seen.insert(got.handle.number()));
        alloc.free(got.handle).unwrap();
    }
}

#[test]
fn events_are_numbered_over_the_end_of_64_bits_without_a_panic() {
    let sim = Sim::slabs().open();
    let mut config = Config::for_device(sim.caps());
    config.first_sequence = u64::MAX - 5;
    let alloc = Allocator::with_config(sim.shared(), config).unwrap();
    let stream = sim.create_stream(StreamSpec::default()).unwrap();
    for _ in 0..20 {
        let got = alloc.alloc(&Request::new(256, stream)).unwrap();
        alloc.free(got.handle).unwrap();
    }
    let mut events = Vec::new();
    let drained = alloc.drain_events(&mut events, usize::MAX);
    assert_eq!((drained.dropped, drained.more), (0, false));
    let mut expected = u64::MAX - 5;
    for event in &events {
        expected = expected.wrapping_add(1);
        assert_eq!(event.sequence, expected);
    }
    assert!(expected < 1000, "the numbers began anew: {expected}");
    alloc.check().unwrap();
}

#[test]
fn memory_beside_the_allocator_counts_against_its_limit() {
    let (_, alloc, stream) = open(Sim::slabs());
    alloc.set_limit(HeapId(0), 64 * MIB);
    let budget = alloc.budget();
    budget.charge(HeapId(0), 40 * MIB).unwrap();
    assert!(matches!(budget.charge(HeapId(0), 40 * MIB), Err(Error::OverUserLimit { .. })));
    assert!(matches!(ask(&alloc, 40 * MIB, stream), Err(Error::OverUserLimit { .. })));
    budget.refund(HeapId(0), 40 * MIB);
    assert!(ask(&alloc, 40 * MIB, stream).is_ok());
    drop(alloc);
    assert_eq!(budget.charge(HeapId(0), u64::MAX), Ok(()), "nobody is left to object");
}
