//! A driver that lies: about sizes, alignments, capabilities, completion. The allocator above it
//! ends every call with an answer or a typed error; it does not panic, and it does not spin.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use terrane_core::compact::{Goal, Limits};
use terrane_core::device::calls::CallKind;
use terrane_core::device::sim::{Completion, Sim, SimDevice};
use terrane_core::device::wrap::{Common, Faults, Faulty, Paced};
use terrane_core::device::{Device, StreamId, StreamSpec};
use terrane_core::error::DeviceError;
use terrane_core::point::Points;
use terrane_core::{
    Allocator, Config, Contents, Error, Handle, Limit, MemoryKind, Request, Selection, Wait,
};
use terrane_tests::probe::{Flaw, Probe};
use terrane_tests::{Random, mutants};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Calls of the device after which it counts as lost, so that a test of an allocator that spins
/// ends: many times what the script below needs on a sound device, waits by the millisecond of a
/// device that never gets anywhere included.
const MOST_CALLS: u64 = 400_000;
/// How long a request waits on the host, on the device's clock.
const TIME: Duration = Duration::from_millis(20);

type Model = fn() -> Sim;

/// The lies that a device can tell: those before the allocator's own flaws.
fn lies() -> impl Iterator<Item = Flaw> {
    Flaw::ALL.iter().copied().take_while(|flaw| *flaw < Flaw::BlockTooSmall)
}

/// A device with a flaw, lost after so many calls that they can only come from a spin.
struct Liar {
    device: Arc<dyn Device>,
    calls: Arc<AtomicU64>,
}

impl Liar {
    fn new(sim: &SimDevice, flaw: Flaw) -> Self {
        let calls = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&calls);
        let faults = Faults::none().matching(move |_| {
            let at = counted.fetch_add(1, Ordering::Relaxed);
            (at > MOST_CALLS).then_some(DeviceError::Lost)
        });
        let device = Faulty::new(Probe::new(sim.shared(), flaw), faults);
        Self { device, calls }
    }

    fn has_spun(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > MOST_CALLS
    }
}

/// A bit of everything that an allocator does. Errors are answers.
fn script(device: &Arc<dyn Device>, seed: u64) -> Result<(), Error> {
    let mut config = Config::for_device(device.caps());
    config = config.limit(Limit::Bytes(64 * MIB));
    config.paging = device.caps().paging.is_some();
    let alloc = Allocator::with_config(Arc::clone(device), config)?;
    let streams: Vec<StreamId> =
        (0..3).filter_map(|_| device.create_stream(StreamSpec::default()).ok()).collect();
    if streams.is_empty() {
        return Ok(());
    }
    let mut random = Random::new(seed);
    let mut live: Vec<Handle> = Vec::new();
    for step in 0..150 {
        let stream = streams[random.below(streams.len() as u64) as usize];
        let bytes = 4 + random.below(4 * MIB);
        let wait = match random.below(3) {
            0 => Wait::Never,
            1 => Wait::OnHost(TIME),
            _ => Wait::OnStream,
        };
        if let Ok(got) = alloc.alloc(&Request::new(bytes, stream).wait(wait)) {
            live.push(got.handle);
            let _ = alloc.write(stream, got.handle, 0, &[7; 4]);
        }
        if live.len() > 6 {
            let at = random.below(live.len() as u64) as usize;
            let _ = alloc.free(live.swap_remove(at));
        }
        match step % 50 {
            20 => drop(alloc.compact(Goal::Contiguous { bytes: 8 * MIB, align: 1 }, Limits::NONE)),
            30 => drop(alloc.pause(Selection::Kind(MemoryKind::Device), Contents::Keep, TIME)),
            31 => drop(alloc.resume(Selection::Kind(MemoryKind::Device))),
            40 => drop(alloc.trim(0)),
            _ => {}
        }
    }
    for handle in live {
        let _ = alloc.free(handle);
    }
    let _ = alloc.maintain();
    drop(alloc);
    Ok(())
}

#[test]
fn no_lie_of_a_device_makes_the_allocator_panic_or_spin() {
    let models = [("cuda", Sim::cuda as Model), ("vulkan", Sim::vulkan), ("slabs", Sim::slabs)];
    let mut wrong = Vec::new();
    let mut refused = 0;
    for flaw in lies() {
        for (name, model) in models {
            let sim = model().capacity(64 * MIB).bytes(true).open();
            let liar = Liar::new(&sim, flaw);
            let outcome = catch_unwind(AssertUnwindSafe(|| script(&liar.device, 1)));
            match outcome {
                Err(_) => wrong.push(format!("{flaw:?} on {name}: a panic")),
                Ok(_) if liar.has_spun() => wrong.push(format!("{flaw:?} on {name}: a spin")),
                Ok(answer) => refused += u32::from(answer.is_err()),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(refused > 0, "some lies are about capabilities, and seen at once");
    assert!(mutants::table().unwrap().len() > 150, "every lie is also one that a clause notices");
}

#[test]
fn sizes_and_alignments_that_can_not_be_are_typed_errors_and_nothing_is_kept() {
    for flaw in [Flaw::PlainTooSmall, Flaw::BaseUnaligned] {
        let sim = Sim::slabs().open();
        let device = Probe::new(sim.shared(), flaw);
        let alloc = Allocator::new(device.clone()).unwrap();
        let stream = device.create_stream(StreamSpec::default()).unwrap();
        let error = alloc.alloc(&Request::new(MIB, stream)).unwrap_err();
        assert!(matches!(error, Error::Device(DeviceError::Contract(_))), "{flaw:?}: {error}");
        assert!(!error.is_transient());
        assert_eq!((sim.memory_objects(), alloc.stats().reserved.current), (0, 0), "{flaw:?}");
        alloc.check().unwrap();
    }
    for flaw in [Flaw::HeapMissing, Flaw::OddGranularity] {
        let device = Probe::new(Sim::cuda().open().shared(), flaw);
        let error = Allocator::new(device).err().unwrap();
        assert!(matches!(error, Error::Device(DeviceError::Contract(_))), "{flaw:?}: {error}");
    }
}

/// Memory behind work that is not done is not handed out without its wait, whatever a wait on the
/// host is told.
#[test]
fn a_device_that_wakes_too_early_gets_no_memory_handed_out_before_its_point() {
    for flaw in [Flaw::WaitAnySaysYes, Flaw::WaitAnyReturnsEarly, Flaw::ReachedFallsBack] {
        let sim = Sim::slabs().open();
        let liar = Liar::new(&sim, flaw);
        let config = Config::for_device(liar.device.caps()).limit(Limit::Bytes(MIB));
        let alloc = Allocator::with_config(Arc::clone(&liar.device), config).unwrap();
        let streams = [(); 2].map(|()| sim.create_stream(StreamSpec::default()).unwrap());
        sim.set_completion(streams[1], Completion::ByHand).unwrap();
        let whole = Request::new(MIB, streams[0]);
        let block = alloc.alloc(&whole).unwrap().handle;
        let point = sim.submit(streams[1], 0).unwrap();
        alloc.free_after(block, &Points::one(point)).unwrap();
        for wait in [Wait::OnHost(TIME), Wait::Never] {
            let error = alloc.alloc(&whole.wait(wait)).unwrap_err();
            let expected = matches!(error, Error::TimedOut { .. } | Error::WouldWait { .. });
            assert!(expected, "{flaw:?}: {error}");
        }
        let behind = alloc.alloc(&whole).unwrap();
        assert_eq!(behind.waits, Points::one(point), "{flaw:?}");
        sim.complete_all();
        assert!(!liar.has_spun(), "{flaw:?}");
    }
}

/// A device whose clock stands still while somebody waits, as that of a model at which nothing
/// happens does: waits end all the same.
#[test]
fn waits_end_on_a_clock_that_stands_still() {
    let sim = Sim::vulkan().open();
    let device = Paced::new(sim.shared(), Common::Slabs).unwrap();
    let config = Config::for_device(device.caps()).limit(Limit::Bytes(2 * MIB));
    let alloc = Allocator::with_config(device.clone(), config).unwrap();
    let stream = device.create_stream(StreamSpec::default()).unwrap();
    let lane = device.create_by_hand().unwrap();
    let whole = Request::new(2 * MIB, stream);
    let block = alloc.alloc(&whole).unwrap().handle;
    let mut submission = alloc.submit(lane);
    let place = submission.resolve(block).unwrap().place;
    let point = device.fill(lane, place, 4 * KIB, 0).unwrap();
    submission.close_at(point);
    alloc.free(block).unwrap();
    let before = device.now_ns();
    let error = alloc.alloc(&whole.wait(Wait::OnHost(TIME))).unwrap_err();
    assert_eq!(error, Error::TimedOut { asked: 2 * MIB });
    assert_eq!(alloc.wait(point, TIME), Err(Error::TimedOut { asked: 0 }));
    assert_eq!(device.now_ns(), before, "the clock did stand still");
    device.complete(point).unwrap();
    assert_eq!(alloc.wait(point, TIME), Ok(()));
    assert!(alloc.alloc(&whole).unwrap().waits.is_empty());
    assert!(sim.calls().of(CallKind::WaitAny).calls < 1000, "no spin");
}
