//! A process that forked after it opened a device: in the child every use is a typed error, nothing
//! hangs, and the parent goes on.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]
#![allow(unsafe_code, reason = "nothing safe forks")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use terrane::Choice;
use terrane_core::compact::{Goal, Limits};
use terrane_core::device::{ClassId, Device, PlainSpec, StreamId, StreamSpec};
use terrane_core::error::DeviceError;
use terrane_core::{Allocator, Error, Handle, Request};

const MIB: u64 = 1 << 20;
const SOON: Duration = Duration::from_secs(30);
const FORKED: DeviceError = DeviceError::AfterFork;

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(code: i32) -> !;
}

struct Parent {
    device: Arc<dyn Device>,
    alloc: Allocator,
    stream: StreamId,
    block: Handle,
}

impl Parent {
    fn new(choice: &Choice) -> Option<Self> {
        let device = match terrane::open(choice) {
            Ok(opened) => opened.device,
            Err(error) if std::env::var_os("TERRANE_REQUIRE_VULKAN").is_some() => panic!("{error}"),
            Err(error) => {
                println!("skipped: {error}");
                return None;
            }
        };
        let alloc = Allocator::new(Arc::clone(&device)).unwrap();
        let stream = device.create_stream(StreamSpec::default()).unwrap();
        let block = alloc.alloc(&Request::new(MIB, stream)).unwrap().handle;
        Some(Self { device, alloc, stream, block })
    }

    /// What the device answers in the child; the number of the first wrong answer, or 0.
    fn device_is_told(&self) -> i32 {
        let Self { device, alloc, stream, block } = self;
        let place = alloc.info(*block).unwrap().place;
        let spec = PlainSpec {
            class: ClassId(0),
            bytes: 2 * MIB,
            exportable: false,
            priority: 0.5,
            name: "after the fork",
        };
        let told = [
            device.fill(*stream, place, 4, 0).err(),
            device.write(*stream, place, &[0; 4]).err(),
            device.read(*stream, place, 4).err(),
            device.reached(*stream).err(),
            device.wait_any(&[], Duration::ZERO).err(),
            device.create_plain(&spec).err(),
            device.create_stream(StreamSpec::default()).err(),
        ];
        first_wrong(1, &told.map(|error| error == Some(FORKED)))
    }

    /// What the allocator answers in the child.
    fn allocator_is_told(&self) -> i32 {
        let Self { alloc, stream, block, .. } = self;
        let is_told = |error: Option<Error>| error == Some(Error::Device(FORKED));
        let large = Request::new(64 * MIB, *stream);
        let goal = Goal::Contiguous { bytes: 2 * MIB, align: 1 };
        let told = [
            is_told(alloc.write(*stream, *block, 0, &[1; 4]).err()),
            is_told(alloc.alloc(&large).err()),
            is_told(alloc.record_use(*block, *stream).err()) || alloc.info(*block).is_ok(),
            // What asks no device may answer; what does is told.
            alloc.compact(goal, Limits::NONE).err().is_none_or(|error| is_told(Some(error))),
            alloc.trim(0).err().is_none_or(|error| is_told(Some(error))),
            alloc.free(*block).err().is_none_or(|error| is_told(Some(error))),
            alloc.check().is_ok(),
        ];
        first_wrong(101, &told)
    }
}

fn first_wrong(from: i32, right: &[bool]) -> i32 {
    right.iter().position(|right| !right).map_or(0, |at| from + at as i32)
}

/// One test at a time: what another thread holds at the fork is held in the child for ever.
static ALONE: Mutex<()> = Mutex::new(());

fn after_a_fork(choice: &Choice) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(parent) = Parent::new(choice) else { return };
    // SAFETY: no other thread of this program holds a lock that the child takes: the device's own
    // threads serve streams, and nothing is on them.
    let child = unsafe { fork() };
    if child == 0 {
        let mut wrong = parent.device_is_told();
        if wrong == 0 {
            wrong = parent.allocator_is_told();
        }
        // Giving back must not hang either.
        drop(parent);
        // SAFETY: ends the process without running what belongs to the parent.
        unsafe { _exit(wrong) };
    }
    let mut status = -1;
    // SAFETY: the child made above; the status outlives the call.
    assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status & 0x7f, 0, "the child was killed: {status:#x}");
    assert_eq!(status >> 8, 0, "the answer with this number was wrong");
    let Parent { alloc, stream, block, .. } = &parent;
    let point = alloc.write(*stream, *block, 0, &[1; 4]).unwrap();
    alloc.wait(point, SOON).unwrap();
    alloc.free(*block).unwrap();
    alloc.check().unwrap();
}

#[test]
fn after_a_fork_every_use_of_the_cpu_device_is_a_typed_error_in_the_child() {
    after_a_fork(&Choice::Host);
}

#[test]
fn after_a_fork_every_use_of_a_vulkan_device_is_a_typed_error_in_the_child() {
    after_a_fork(&Choice::Vulkan(std::env::var("TERRANE_VULKAN").unwrap_or_default()));
}
