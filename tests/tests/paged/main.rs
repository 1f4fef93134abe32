//! Memory served page by page, behind the allocator: cases from users' reports, contents after
//! every remap, faults at every device call. On the models, on the CPU device and on Vulkan where
//! there is a driver.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod contents;
mod faults;
mod passes;
mod pausing;

use std::sync::Arc;

use terrane_core::device::calls::CallKind;
use terrane_core::device::sim::Sim;
use terrane_core::device::wrap::Logged;
use terrane_core::device::{Device, StreamId, StreamSpec};
use terrane_core::{Allocator, Config, Handle, Limit, MemoryKind, Request, Wait};

const MIB: u64 = 1 << 20;

/// The devices that page, each with a name.
fn devices() -> Vec<(&'static str, Arc<dyn Device>)> {
    let mut devices = vec![
        ("sim:cuda", Sim::cuda().open().shared()),
        ("sim:vulkan", Sim::vulkan().open().shared()),
        ("host", terrane::open(&terrane::Choice::Host).unwrap().device),
    ];
    match terrane::open(&terrane::Choice::Vulkan(String::new())) {
        Ok(opened) if opened.device.caps().paging.is_some() => {
            devices.push(("vulkan", opened.device));
        }
        Ok(opened) => println!("skipped: {} can not page", opened.device.info().name),
        Err(error) => println!("skipped: {error}"),
    }
    match terrane::open(&terrane::Choice::Cuda(String::new())) {
        Ok(opened) => devices.push(("cuda", opened.device)),
        Err(error) => println!("skipped: {error}"),
    }
    devices
}

struct Rig {
    alloc: Allocator,
    calls: Arc<Logged>,
    granule: u64,
}

impl Rig {
    fn new(device: Arc<dyn Device>, configure: impl FnOnce(&mut Config)) -> Self {
        let calls = Logged::new(device, 0);
        let mut config = Config::for_device(calls.caps());
        config.paging = true;
        configure(&mut config);
        let granule = calls.caps().paging.unwrap().granularity;
        let alloc = Allocator::with_config(calls.clone(), config).unwrap();
        Self { alloc, calls, granule }
    }

    fn stream(&self) -> StreamId {
        self.calls.create_stream(StreamSpec::default()).unwrap()
    }

    fn get(&self, bytes: u64, stream: StreamId) -> Handle {
        self.alloc.alloc(&Request::new(bytes, stream).wait(Wait::OnStream)).unwrap().handle
    }

    /// Calls so far that make, map, unmap or release memory.
    fn memory_calls(&self) -> u64 {
        let calls = self.calls.calls();
        let kinds = [
            CallKind::CreatePlain,
            CallKind::ReleasePlain,
            CallKind::CreateMemory,
            CallKind::ReleaseMemory,
            CallKind::Map,
            CallKind::Unmap,
        ];
        kinds.iter().map(|&kind| calls.of(kind).calls).sum()
    }
}

fn limited(bytes: u64) -> impl FnOnce(&mut Config) {
    move |config| config.limits = vec![Limit::Bytes(bytes)]
}

#[test]
fn case_07_a_big_block_fits_again_after_splinters() {
    for (name, device) in devices() {
        // At full size on the models, a hundredth on devices with real memory.
        let small = match name {
            "sim:cuda" => 1,
            // No block is larger than 4 GiB there.
            "sim:vulkan" => 4,
            _ => 100,
        };
        let mib = |tenths: u64| tenths * MIB / 10 / small;
        let rig = Rig::new(device, limited(16 * 1024 * MIB / small));
        let s0 = rig.stream();
        let big = mib(116 * 1024);
        rig.alloc.free(rig.get(big, s0)).unwrap();
        let mut kept = Vec::new();
        for round in 0..40_usize {
            let handle = rig.get(mib([165, 114, 182][round % 3]), s0);
            if round % 10 == 9 {
                kept.push(handle);
            } else {
                rig.alloc.free(handle).unwrap();
            }
        }
        let again = rig.get(big, s0);
        rig.alloc.check().unwrap_or_else(|broken| panic!("{name}: {broken}"));
        rig.alloc.free(again).unwrap();
        kept.into_iter().for_each(|handle| rig.alloc.free(handle).unwrap());
        rig.alloc.release_cached().unwrap();
        assert_eq!(rig.alloc.stats().reserved.current, 0, "{name}");
    }
}

#[test]
fn case_11_a_page_locked_request_of_a_little_over_4_gib_takes_little_more() {
    let sim = Sim::cuda().caps(|caps| {
        caps.heaps.iter_mut().for_each(|heap| heap.total = heap.total.max(64 << 30));
    });
    let rig = Rig::new(sim.open().shared(), |_| {});
    let s0 = rig.stream();
    let asked = (4 << 30) + 1;
    let request = Request::new(asked, s0).kind(MemoryKind::Upload);
    let got = rig.alloc.alloc(&request).unwrap();
    let reserved = rig.alloc.stats().reserved.current;
    assert!(reserved <= (4 << 30) + rig.granule, "{reserved} reserved for {asked}");
    rig.alloc.free(got.handle).unwrap();
}

#[test]
fn case_13_a_checkerboard_of_pages_gives_a_large_block_by_stealing() {
    for (name, device) in devices() {
        let unit = device.caps().paging.unwrap().granularity.max(64 << 10);
        let rig = Rig::new(device, limited(64 * unit));
        let s0 = rig.stream();
        let blocks: Vec<_> = (0..64).map(|_| rig.get(unit, s0)).collect();
        for &handle in blocks.iter().step_by(2) {
            rig.alloc.free(handle).unwrap();
        }
        let large = rig.get(16 * unit, s0);
        let stats = rig.alloc.stats();
        assert!(stats.pages_stolen > 0, "{name}: nothing was stolen");
        assert!(stats.reserved.peak <= 64 * unit, "{name}: {} reserved", stats.reserved.peak);
        rig.alloc.check().unwrap_or_else(|broken| panic!("{name}: {broken}"));
        rig.alloc.free(large).unwrap();
    }
}

#[test]
fn after_warming_up_requests_within_it_make_no_driver_call() {
    for (name, device) in devices() {
        let rig = Rig::new(device, |_| {});
        let s0 = rig.stream();
        rig.alloc.warm(64 * MIB).unwrap();
        assert!(rig.alloc.stats().reserved.current >= 64 * MIB, "{name}");
        rig.alloc.release_cached().unwrap();
        assert_eq!(rig.alloc.stats().reserved.current, 0, "{name}: what is warm can be trimmed");
        rig.alloc.warm(64 * MIB).unwrap();
        // A device that maps in its own order has to be done with that.
        while rig.alloc.stats().pending > 0 {
            rig.alloc.maintain().unwrap();
        }
        let before = rig.memory_calls();
        let mut live = Vec::new();
        for round in 0..200_u64 {
            live.push(rig.get(1 + (round * 7919) % (300 << 10), s0));
            if live.len() > 100 {
                rig.alloc.free(live.swap_remove(round as usize % 50)).unwrap();
            }
        }
        assert_eq!(rig.memory_calls() - before, 0, "{name}: calls after warming up");
        rig.alloc.check().unwrap_or_else(|broken| panic!("{name}: {broken}"));
    }
}

#[test]
fn a_block_grows_in_place_by_mapping_more_behind_it() {
    for (name, device) in devices() {
        let rig = Rig::new(device, |_| {});
        let s0 = rig.stream();
        let first = rig.get(24 * MIB, s0);
        let place = rig.alloc.info(first).unwrap().place;
        rig.alloc.grow(first, 60 * MIB).unwrap();
        let info = rig.alloc.info(first).unwrap();
        assert_eq!((info.place, info.allocated), (place, 60 * MIB), "{name}");
        assert!(rig.alloc.stats().reserved.current >= 60 * MIB, "{name}: backed by memory");
        rig.alloc.check().unwrap_or_else(|broken| panic!("{name}: {broken}"));
        let wall = rig.get(24 * MIB, s0);
        let beyond = rig.alloc.grow(first, 200 * MIB);
        let info = rig.alloc.info(first).unwrap();
        match beyond {
            Ok(_) => assert_eq!((info.place, info.allocated), (place, 200 * MIB), "{name}"),
            Err(error) => {
                assert_eq!(error, terrane_core::Error::NoRoomToGrow, "{name}");
                assert_eq!(info.allocated, 60 * MIB, "{name}: nothing has changed");
            }
        }
        rig.alloc.check().unwrap_or_else(|broken| panic!("{name}: {broken}"));
        rig.alloc.free(first).unwrap();
        rig.alloc.free(wall).unwrap();
    }
}

#[test]
fn what_a_limit_leaves_is_reached_and_not_passed() {
    for (name, device) in devices() {
        let granule = device.caps().paging.unwrap().granularity;
        let limit = (40 * MIB).next_multiple_of(granule);
        let rig = Rig::new(device, limited(limit));
        let s0 = rig.stream();
        let mut live = Vec::new();
        while let Ok(got) = rig.alloc.alloc(&Request::new(granule, s0).wait(Wait::Never)) {
            live.push(got.handle);
        }
        assert_eq!(live.len() as u64, limit / granule, "{name}: blocks of one page each");
        assert_eq!(rig.alloc.stats().reserved.current, limit, "{name}");
        live.into_iter().for_each(|handle| rig.alloc.free(handle).unwrap());
        let all = rig.get(limit, s0);
        assert!(rig.alloc.stats().reserved.peak <= limit, "{name}");
        rig.alloc.free(all).unwrap();
    }
}
