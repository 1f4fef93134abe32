//! What the tests share: a device with validation on, or a word on why there is none.
#![allow(dead_code)] // each test program uses its part
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a failed test panics

use std::time::Duration;

use terrane_core::device::{
    ClassId, Device, MemoryKind, Place, Plain, PlainSpec, SpaceId, StreamId, StreamSpec, SyncPoint,
};
use terrane_vulkan::{OpenError, OpenOptions, Selector, VulkanDevice, open};

/// A device opened for a test; after the test its validation messages have to be none.
pub struct Bench(pub VulkanDevice, Expect);

/// What the layer is expected to say.
#[derive(Default)]
pub struct Expect {
    validation: bool,
    messages: std::cell::Cell<bool>,
}

/// The device named by TERRANE_VULKAN, or the best; `None`, with a word on why, where there is no
/// driver. TERRANE_REQUIRE_VULKAN=1 makes that a failure.
pub fn bench() -> Option<Bench> {
    bench_with(quick())
}

/// Options without the measurements that most tests do not need.
pub fn quick() -> OpenOptions {
    OpenOptions { skip_calibration: true, ..Default::default() }
}

pub fn bench_with(mut options: OpenOptions) -> Option<Bench> {
    let name = std::env::var("TERRANE_VULKAN").unwrap_or_default();
    let selector = Selector::parse(&name);
    options.validation = true;
    let result = match open(&selector, &options) {
        Err(OpenError::NoValidation) => {
            println!("no validation layer: running without (install vulkan-validationlayers)");
            options.validation = false;
            open(&selector, &options)
        }
        other => other,
    };
    match result {
        Ok(device) => {
            println!("running on {} ({})", device.info().name, device.info().driver);
            let expect = Expect { validation: options.validation, ..Default::default() };
            Some(Bench(device, expect))
        }
        Err(
            error @ (OpenError::NoLoader
            | OpenError::NoDriver
            | OpenError::NoInstance { .. }
            | OpenError::NoSuchDevice { .. }),
        ) if std::env::var_os("TERRANE_REQUIRE_VULKAN").is_none() => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("the device does not open: {error}"),
    }
}

impl std::ops::Deref for Bench {
    type Target = VulkanDevice;

    fn deref(&self) -> &VulkanDevice {
        &self.0
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.1.messages.get() {
            assert_eq!(self.0.validation_messages(), [""; 0], "the validation layer speaks");
        }
    }
}

impl Bench {
    /// A bench over a device that was opened otherwise.
    pub fn over(device: VulkanDevice) -> Self {
        Self(device, Expect::default())
    }

    pub fn has_validation(&self) -> bool {
        self.1.validation
    }

    /// The test makes the layer speak on purpose.
    pub fn expect_messages(&self) {
        self.1.messages.set(true);
    }

    pub fn class(&self, kind: MemoryKind) -> ClassId {
        self.caps().classes_of(kind).next().expect("a class for each kind")
    }

    pub fn plain(&self, kind: MemoryKind, bytes: u64) -> Plain {
        let granularity = self.caps().plain_granularity;
        let bytes = bytes.next_multiple_of(granularity);
        let class = self.class(kind);
        let spec = PlainSpec { class, bytes, exportable: false, priority: 0.5, name: "test" };
        self.create_plain(&spec).expect("memory")
    }

    pub fn stream(&self) -> StreamId {
        self.create_stream(StreamSpec::default()).expect("a stream")
    }

    pub fn wait(&self, point: SyncPoint) {
        let done = self.wait_any(&[point], Duration::from_secs(60)).expect("the wait works");
        assert!(done, "work is done within a minute");
    }

    pub fn fetch(&self, stream: StreamId, place: Place, bytes: u64) -> Vec<u8> {
        let ticket = self.read(stream, place, bytes).expect("the read is submitted");
        self.wait(ticket.point);
        self.take_read(ticket).expect("the bytes have come")
    }

    pub fn fetch_words(&self, stream: StreamId, place: Place, words: u64) -> Vec<u32> {
        let bytes = self.fetch(stream, place, words * 4);
        bytes.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect()
    }
}

pub fn at(space: SpaceId, offset: u64) -> Place {
    Place { space, offset }
}
