//! What drivers can answer and this one does not: made to happen.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a failed test panics

mod common;

use std::process::Command;
use std::sync::{Arc, Mutex};

use ash::vk;
use common::{Bench, at, bench, bench_with, quick};
use terrane_core::device::{Device, DeviceError, HeapId, MapOp, MemoryKind, PlainSpec, StreamSpec};
use terrane_core::{Allocator, Config, Error, Growth, Request};
use terrane_vulkan::{Budget, Call, Faults, OpenError, OpenOptions, Part, Parts, Selector, Told};

/// Fails the next call of a kind.
#[derive(Default)]
struct Next(Mutex<Option<(Call, vk::Result)>>);

impl Faults for Next {
    fn fail(&self, call: Call, _bytes: u64) -> Option<vk::Result> {
        let mut next = self.0.lock().unwrap();
        match *next {
            Some((at, result)) if at == call => {
                *next = None;
                Some(result)
            }
            _ => None,
        }
    }
}

impl Next {
    fn set(&self, call: Call, result: vk::Result) {
        *self.0.lock().unwrap() = Some((call, result));
    }

    fn is_spent(&self) -> bool {
        self.0.lock().unwrap().is_none()
    }
}

fn faulty() -> Option<(Bench, Arc<Next>)> {
    let next = Arc::new(Next::default());
    let faults: Arc<dyn Faults> = Arc::clone(&next) as _;
    let device = bench_with(OpenOptions { faults: Some(faults), ..quick() })?;
    Some((device, next))
}

const OUT: vk::Result = vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;

#[test]
fn a_driver_that_refuses_memory_is_answered_with_the_bytes_asked_and_nothing_is_left() {
    let Some((device, next)) = faulty() else { return };
    let class = device.class(MemoryKind::Device);
    let bytes = device.caps().plain_granularity * 4;
    let spec = PlainSpec { class, bytes, exportable: false, priority: 0.5, name: "refused" };
    for (call, result, error) in [
        (Call::AllocateMemory, OUT, DeviceError::OutOfMemory { bytes }),
        (
            Call::AllocateMemory,
            vk::Result::ERROR_TOO_MANY_OBJECTS,
            DeviceError::TooManyObjects { limit: device.caps().max_memory_objects },
        ),
        (
            Call::CreateBuffer,
            vk::Result::ERROR_OUT_OF_HOST_MEMORY,
            DeviceError::OutOfMemory { bytes },
        ),
        (Call::BindBufferMemory, OUT, DeviceError::OutOfMemory { bytes: 0 }),
        (
            Call::AllocateMemory,
            vk::Result::ERROR_UNKNOWN,
            DeviceError::Driver {
                call: "vkAllocateMemory",
                code: vk::Result::ERROR_UNKNOWN.as_raw(),
            },
        ),
    ] {
        next.set(call, result);
        assert_eq!(device.create_plain(&spec), Err(error));
        assert!(next.is_spent());
        assert_eq!(device.memory_objects(), 0);
    }
    device.create_plain(&spec).expect("the next call is made");
}

/// Refuses memory objects above a size.
struct Above(Mutex<u64>);

impl Faults for Above {
    fn fail(&self, call: Call, bytes: u64) -> Option<vk::Result> {
        let limit = *self.0.lock().unwrap();
        (call == Call::AllocateMemory && bytes > limit).then_some(OUT)
    }
}

#[test]
fn a_driver_that_refuses_large_slabs_gives_smaller_ones_then_one_of_the_size_then_an_error() {
    let above = Arc::new(Above(Mutex::new(u64::MAX)));
    let faults: Arc<dyn Faults> = Arc::clone(&above) as _;
    let Some(device) = bench_with(OpenOptions { faults: Some(faults), ..quick() }) else { return };
    let mut config = Config::for_device(device.caps());
    config.growth = Growth::Proportional { min_bytes: 64 << 20, max_bytes: 256 << 20 };
    let alloc = Allocator::with_config(Arc::new(device.0.clone()), config).unwrap();
    let stream = device.stream();
    let ask = |limit: u64, bytes: u64| {
        *above.0.lock().unwrap() = limit;
        let before = alloc.stats().reserved.current;
        let got = alloc.buffer(&Request::new(bytes, stream));
        (alloc.stats().reserved.current - before, got)
    };
    let (slab, _first) = ask(u64::MAX, 1 << 20);
    assert_eq!(slab, 64 << 20);
    let (slab, _second) = ask(40 << 20, 70 << 20);
    assert_eq!((slab, _second.is_err()), (0, true), "nothing of the size is to be had");
    let (slab, third) = ask(96 << 20, 70 << 20);
    assert!(third.is_ok() && (70 << 20..=96 << 20).contains(&slab), "a slab of {slab}");
    let (_, none) = ask(0, 80 << 20);
    assert!(matches!(none, Err(Error::OutOfMemory(_))), "{none:?}");
    *above.0.lock().unwrap() = u64::MAX;
    alloc.buffer(&Request::new(80 << 20, stream)).expect("the driver gives again");
    alloc.check().unwrap();
}

#[test]
fn a_submission_that_the_driver_refuses_leaves_the_stream_as_it_was() {
    let Some((device, next)) = faulty() else { return };
    let plain = device.plain(MemoryKind::Device, 1 << 20);
    let (stream, other) = (device.stream(), device.stream());
    let point = device.fill(other, at(plain.space, 0), 4096, 7).unwrap();
    device.wait_on_stream(stream, &[point]).unwrap();
    let before = device.mark(stream).unwrap();
    for call in [Call::QueueSubmit, Call::RecordCommands, Call::EndCommandBuffer] {
        next.set(call, vk::Result::ERROR_OUT_OF_HOST_MEMORY);
        let refused = device.fill(stream, at(plain.space, 0), 4096, 9);
        assert!(matches!(refused, Err(DeviceError::OutOfMemory { .. })), "{refused:?}");
        assert!(next.is_spent());
        assert_eq!(device.mark(stream).unwrap(), before);
    }
    assert_eq!(device.fetch_words(stream, at(plain.space, 0), 1), [7]);
}

#[test]
fn staging_memory_that_can_not_be_had_fails_the_transfer_alone() {
    let Some((device, next)) = faulty() else { return };
    let plain = device.plain(MemoryKind::Device, 1 << 20);
    let stream = device.stream();
    next.set(Call::AllocateFixed, OUT);
    let refused = device.write(stream, at(plain.space, 0), &[1; 64]);
    assert!(matches!(refused, Err(DeviceError::OutOfMemory { .. })), "{refused:?}");
    device.write(stream, at(plain.space, 0), &[2; 64]).unwrap();
    assert_eq!(device.fetch(stream, at(plain.space, 0), 64), [2; 64]);
    let up = device.plain(MemoryKind::Upload, 1 << 16);
    next.set(Call::MapMemory, vk::Result::ERROR_MEMORY_MAP_FAILED);
    let host = device.host_access().unwrap();
    assert!(matches!(host.pointer(at(up.space, 0)), Err(DeviceError::OutOfMemory { .. })));
    host.pointer(at(up.space, 0)).expect("mapped the second time");
}

#[test]
fn binds_that_the_driver_refuses_leave_nothing_mapped() {
    let Some((device, next)) = faulty() else { return };
    let Some(paging) = device.paging() else { return println!("skipped: no paging") };
    let class = device.class(MemoryKind::Device);
    let page = device.caps().paging.unwrap().granularity.max(64 << 10);
    next.set(Call::CreateBuffer, OUT);
    let refused = paging.reserve(class, 8 * page);
    assert!(matches!(refused, Err(DeviceError::OutOfAddressSpace { .. })), "{refused:?}");
    let space = paging.reserve(class, 8 * page).unwrap().space;
    next.set(Call::AllocateMemory, OUT);
    let refused = paging.create(class, 8 * page, false);
    assert_eq!(refused, Err(DeviceError::OutOfMemory { bytes: 8 * page }));
    let memory = paging.create(class, 8 * page, false).unwrap();
    let ops: Vec<_> = (0..4)
        .map(|i| MapOp { at: at(space, i * page), memory, memory_offset: i * page, bytes: page })
        .collect();
    next.set(Call::QueueBindSparse, OUT);
    let refused = paging.map(&ops, &[]);
    assert_eq!(refused, Err(DeviceError::OutOfMemory { bytes: 4 * page }));
    paging.release(memory).expect("nothing is mapped");
    paging.unreserve(space).expect("nothing is mapped");
}

#[test]
fn a_lost_device_answers_lost_from_then_on_and_takes_things_back() {
    let Some((device, next)) = faulty() else { return };
    let plain = device.plain(MemoryKind::Device, 1 << 20);
    let stream = device.stream();
    next.set(Call::QueueSubmit, vk::Result::ERROR_DEVICE_LOST);
    let place = at(plain.space, 0);
    assert_eq!(device.fill(stream, place, 4, 0), Err(DeviceError::Lost));
    assert_eq!(device.fill(stream, place, 4, 0), Err(DeviceError::Lost));
    assert_eq!(device.mark(stream), Err(DeviceError::Lost));
    assert_eq!(device.reached(stream), Err(DeviceError::Lost));
    assert_eq!(device.create_stream(StreamSpec::default()), Err(DeviceError::Lost));
    assert_eq!(device.heap_use(HeapId(0)).map(|_| ()), Err(DeviceError::Lost));
    assert_eq!(device.compute().unwrap().fill_pattern(stream, &[]), Err(DeviceError::Lost));
    device.release_plain(plain.space).unwrap();
    device.retire_stream(stream).unwrap();
}

#[test]
fn what_is_missing_is_named_with_what_to_do() {
    let Some(_device) = bench() else { return };
    let open = |options: OpenOptions| terrane_vulkan::open(&Selector::Best, &options).err();
    let without = Parts::default().with(Part::TimelineSemaphore);
    let error = open(OpenOptions { without, ..quick() });
    assert_eq!(error, Some(OpenError::NoTimelineSemaphores));
    let extensions = vec![c"VK_TERRANE_no_such_extension"];
    let error = open(OpenOptions { extensions, ..quick() });
    assert_eq!(error, Some(OpenError::ExtensionMissing("VK_TERRANE_no_such_extension")));
    let none = terrane_vulkan::open(&Selector::Name("no such GPU".into()), &quick()).err();
    assert!(matches!(none, Some(OpenError::NoSuchDevice { devices }) if devices > 0));
}

/// A device that says other things of itself.
struct Tells(fn(&mut Told));

impl Faults for Tells {
    fn fail(&self, _call: Call, _bytes: u64) -> Option<vk::Result> {
        None
    }

    fn alter(&self, told: &mut Told) {
        self.0(told);
    }
}

#[test]
fn a_device_that_can_not_serve_is_refused_with_what_it_lacks() {
    let Some(_device) = bench() else { return };
    let open = |change: fn(&mut Told)| {
        let options = OpenOptions { faults: Some(Arc::new(Tells(change))), ..quick() };
        terrane_vulkan::open(&Selector::Best, &options).err()
    };
    let old = open(|told| told.api = vk::make_api_version(0, 1, 1, 230));
    assert_eq!(old, Some(OpenError::TooOld { major: 1, minor: 1 }));
    assert_eq!(open(|told| told.can_compute = false), Some(OpenError::NoQueue));
    assert_eq!(open(|told| told.memory_types = 0), Some(OpenError::NoMemory));
    assert_eq!(open(|_| {}), None);
    for error in [old.unwrap(), OpenError::NoQueue, OpenError::NoMemory] {
        let text = error.to_string();
        assert!(["update", "choose", "has no memory"].iter().any(|w| text.contains(w)), "{text}");
    }
}

/// Runs `child_lists_devices` in a process with other surroundings; what it printed.
fn listed(change: impl FnOnce(&mut Command) -> &mut Command) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_lists_devices", "--nocapture", "--ignored"]);
    let output = change(&mut command).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
#[ignore = "the tests below run it in processes of their own: cargo test -p terrane-vulkan --test failures"]
fn child_lists_devices() {
    println!("answer: {:?}", terrane_vulkan::list().map(|devices| devices.len()));
}

#[test]
fn a_machine_without_a_driver_is_told_to_install_one() {
    if bench().is_none() {
        return;
    }
    let text = listed(|c| c.env("VK_DRIVER_FILES", "/nowhere").env("VK_ICD_FILENAMES", "/nowhere"));
    assert!(text.contains("answer: Err(NoDriver)"), "{text}");
    assert!(OpenError::NoDriver.to_string().contains("install"));
}

#[test]
fn a_machine_without_a_loader_is_told_to_install_it() {
    // An empty file in the loader's place is found first and is no library.
    let folder = std::env::temp_dir().join(format!("terrane-no-loader-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("libvulkan.so.1"), "").unwrap();
    let text = listed(|c| c.env("LD_LIBRARY_PATH", &folder));
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(text.contains("answer: Err(NoLoader)"), "{text}");
    assert!(OpenError::NoLoader.to_string().contains("install"));
}

/// Counts what is charged, and refuses beyond a limit.
struct Counter {
    limit: u64,
    used: Mutex<u64>,
}

impl Budget for Counter {
    fn charge(&self, _heap: HeapId, bytes: u64) -> Result<(), DeviceError> {
        let mut used = self.used.lock().unwrap();
        if *used + bytes > self.limit {
            return Err(DeviceError::OutOfMemory { bytes });
        }
        *used += bytes;
        Ok(())
    }

    fn refund(&self, _heap: HeapId, bytes: u64) {
        let mut used = self.used.lock().unwrap();
        *used = used.checked_sub(bytes).expect("no more is refunded than was charged");
    }
}

#[test]
fn staging_and_images_are_charged_to_the_budget_before_they_are_taken() {
    let Some(device) = bench() else { return };
    let plain = device.plain(MemoryKind::Device, 1 << 20);
    let stream = device.stream();
    let budget = Arc::new(Counter { limit: 16 << 20, used: Mutex::new(0) });
    device.set_budget(Arc::clone(&budget) as _).unwrap();
    let used = || *budget.used.lock().unwrap();
    let point = device.write(stream, at(plain.space, 0), &[3; 4096]).unwrap();
    assert_eq!(used(), 8 << 20);
    let info = vk::ImageCreateInfo::default()
        .image_type(vk::ImageType::TYPE_2D)
        .format(vk::Format::R8G8B8A8_UNORM)
        .extent(vk::Extent3D { width: 256, height: 256, depth: 1 })
        .mip_levels(1)
        .array_layers(1)
        .samples(vk::SampleCountFlags::TYPE_1)
        .usage(vk::ImageUsageFlags::TRANSFER_DST | vk::ImageUsageFlags::SAMPLED);
    // SAFETY: the description is a plain one that every device supports.
    let image = unsafe { device.image(&info, "test image") }.unwrap();
    assert!(image.bytes() >= 256 * 256 * 4 && used() <= 16 << 20);
    let large = vk::Extent3D { width: 4096, height: 4096, depth: 1 };
    // SAFETY: as above.
    let refused = unsafe { device.image(&info.extent(large), "too large") };
    assert!(matches!(refused.err(), Some(DeviceError::OutOfMemory { .. })));
    drop(image);
    device.wait(point);
    let tiny = Arc::new(Counter { limit: 1, used: Mutex::new(0) });
    assert!(device.set_budget(tiny).is_err(), "what is held does not fit");
    assert!(used() > 0);
}

#[test]
fn the_validation_layer_is_awake_and_sees_missing_barriers() {
    let Some(device) = bench() else { return };
    let plain = device.plain(MemoryKind::Device, 1 << 20);
    let stream = device.stream();
    let raw = device.raw(at(plain.space, 0)).unwrap();
    // SAFETY: the buffer lives until the wait. Two fills of one range in no order harm nobody.
    let point = unsafe {
        device.record(stream, |device, commands| {
            device.cmd_fill_buffer(commands, raw.buffer, 0, 4096, 1);
            device.cmd_fill_buffer(commands, raw.buffer, 0, 4096, 2);
        })
    };
    device.wait(point.unwrap());
    let messages = device.validation_messages();
    if device.has_validation() {
        assert!(messages.iter().any(|m| m.contains("WRITE-AFTER-WRITE")), "{messages:?}");
    }
    device.expect_messages();
}
