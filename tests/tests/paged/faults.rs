//! Case 8: every device call fails once, for each kind and each time that it is made.

use std::sync::Arc;
use std::time::Duration;

use terrane_core::device::calls::CallKind;
use terrane_core::device::sim::Sim;
use terrane_core::device::wrap::{Faults, Faulty};
use terrane_core::device::{Device, StreamSpec};
use terrane_core::{
    Allocator, Config, Contents, Error, Handle, Limit, MemoryKind, Request, Selection,
};

const MIB: u64 = 1 << 20;

/// Sizes in MiB: many steals and exchanges under the limit, blocks of both zones.
const SIZES: [u64; 12] = [20, 3, 40, 1, 24, 17, 5, 33, 2, 50, 9, 18];

/// A scripted run: blocks come and go under a limit that forces stealing. Gives the errors.
fn script(alloc: &Allocator, stream: terrane_core::device::StreamId) -> Vec<Error> {
    let mut live: Vec<Handle> = Vec::new();
    let mut errors = Vec::new();
    for round in 0..48_usize {
        let bytes = SIZES[round % SIZES.len()] * MIB + (round as u64 % 5) * 4096;
        match alloc.alloc(&Request::new(bytes, stream)) {
            Ok(got) => live.push(got.handle),
            Err(error) => errors.push(error),
        }
        if live.len() > 4 {
            let at = (round * 7) % live.len();
            alloc.free(live.swap_remove(at)).unwrap();
        }
        if round % 16 == 7 {
            let all = Selection::Kind(MemoryKind::Device);
            // Copying to the host and back takes longest: once.
            let contents = if round == 7 { Contents::Keep } else { Contents::Discard };
            errors.extend(alloc.pause(all, contents, Duration::from_secs(30)).err());
            alloc.check().unwrap_or_else(|broken| panic!("round {round}, paused: {broken}"));
            errors.extend(alloc.resume(all).err());
        }
        if round % 16 == 15 {
            errors.extend(alloc.trim(100 * MIB).err());
        }
        alloc.check().unwrap_or_else(|broken| panic!("round {round}: {broken}"));
    }
    live.into_iter().for_each(|handle| alloc.free(handle).unwrap());
    errors
}

fn run(faults: Faults) -> (Vec<Error>, u64, u64) {
    let sim = Sim::cuda().open();
    let faulty = Faulty::new(sim.shared(), Faults::none());
    let mut config = Config::for_device(faulty.caps());
    config.limits = vec![Limit::Bytes(192 * MIB)];
    config.pages.stale_max = 16;
    let device: Arc<dyn Device> = faulty.clone();
    let alloc = Allocator::with_config(device, config).unwrap();
    let stream = faulty.create_stream(StreamSpec::default()).unwrap();
    faulty.set_faults(faults);
    let errors = script(&alloc, stream);
    let injected = faulty.injected();
    faulty.set_faults(Faults::none());
    // The same requests succeed once the fault is gone.
    let later = script(&alloc, stream);
    assert_eq!(later, [], "after the fault was gone");
    assert!(alloc.stats().pages_stolen > 0, "the script has to steal");
    alloc.release_cached().unwrap();
    assert_eq!(alloc.stats().reserved.current, 0, "reserved after everything was released");
    drop(alloc);
    assert_eq!(sim.violations(), []);
    let calls = faulty.calls_seen();
    (errors, injected, calls)
}

#[test]
fn case_08_a_fault_at_any_step_of_paging_leaves_the_state_sound() {
    let kinds = [
        CallKind::Reserve,
        CallKind::CreateMemory,
        CallKind::Map,
        CallKind::Unmap,
        CallKind::ReleaseMemory,
        CallKind::CreatePlain,
        CallKind::Read,
        CallKind::Write,
    ];
    for kind in kinds {
        let mut reached = 0;
        for nth in 1.. {
            println!("{} {nth}", kind.name());
            let (errors, injected, _) = run(Faults::none().nth(kind, nth));
            if injected == 0 {
                break;
            }
            reached += 1;
            for error in errors {
                assert!(!error.to_string().is_empty(), "{kind:?} {nth}: {error:?}");
            }
        }
        println!("{}: failed at each of {reached} times", kind.name());
        let expected = kind != CallKind::CreatePlain;
        assert_eq!(reached > 0, expected, "{kind:?}");
    }
}

#[test]
fn case_08_a_device_lost_at_any_call_ends_in_typed_errors_and_a_clean_drop() {
    let (_, _, calls) = run(Faults::none());
    let mut lost = 0;
    for nth in (1..calls).step_by(7) {
        let sim = Sim::cuda().open();
        let faulty = Faulty::new(sim.shared(), Faults::none().lose_at(nth));
        let mut config = Config::for_device(faulty.caps());
        config.limits = vec![Limit::Bytes(192 * MIB)];
        let device: Arc<dyn Device> = faulty.clone();
        let Ok(alloc) = Allocator::with_config(device, config) else { continue };
        let Ok(stream) = faulty.create_stream(StreamSpec::default()) else { continue };
        let errors = script(&alloc, stream);
        lost += u64::from(errors.iter().any(|error| matches!(error, Error::Device(_))));
        drop(alloc);
    }
    assert!(lost > 0, "no loss was told");
}
