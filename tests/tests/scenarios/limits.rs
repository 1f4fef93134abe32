//! Cases 9, 15, 16 and 20: limits, shortage of objects, fallbacks, and what stays.

use terrane_core::device::calls::CallKind;
use terrane_core::device::{Class, Heap, HeapId};
use terrane_core::{Growth, MemoryKind, Prefer, Reuse, Scrub};

use super::*;

#[test]
fn case_09_the_limit_holds_under_every_policy() {
    let growths = [Growth::Fine, Growth::Proportional { min_bytes: 16 * U, max_bytes: 256 * U }];
    for growth in growths {
        for prefer in [Prefer::NewMemory, Prefer::Waiting] {
            for reuse in [Reuse::AsSoonAsDone, Reuse::DeclaredOrderOnly] {
                for scrub in [Scrub::Never, Scrub::AcrossTags] {
                    fill_half_and_again(|config| {
                        config.growth = growth;
                        config.prefer = prefer;
                        config.reuse = reuse;
                        config.scrub = scrub;
                        config.release_threshold = 0;
                        config.max_idle_ms = Some(0);
                    });
                }
            }
        }
    }
}

fn fill_half_and_again(configure: impl FnOnce(&mut Config)) {
    let limit = 512 * U;
    let rig = Rig::with(Sim::slabs().capacity(2 * limit), |config| {
        configure(config);
        config.limits = vec![Limit::OfTotal(0.5)];
    });
    let s0 = rig.stream();
    let fill = || {
        let mut got = Vec::new();
        while let Ok(allocation) = rig.ask(8 * U, s0, Wait::OnStream) {
            got.push(allocation.handle);
            assert!(rig.reserved() <= limit);
        }
        got
    };
    let blocks = fill();
    assert!(blocks.len() >= 60, "only {} blocks of 8 MiB fit in 512 MiB", blocks.len());
    let half = blocks.len() / 2;
    for &block in &blocks[..half] {
        rig.alloc.free(block).unwrap();
    }
    rig.alloc.maintain().unwrap();
    assert!(fill().len() >= half);
    assert!(rig.reserved() <= limit);
    rig.assert_sound();
}

#[test]
fn case_15_few_memory_objects_hold_many_blocks_and_the_next_one_is_a_count_error() {
    let rig = Rig::with(Sim::slabs().capacity(16 << 30).max_objects(16), |_| {});
    let s0 = rig.stream();
    for _ in 0..10_000 {
        rig.get(U, s0);
    }
    assert!(rig.alloc.stats().memory_objects.current <= 16);
    let mut error = None;
    for _ in 0..17 {
        let request = Request::new(U, s0).dedicated(true).wait(Wait::Never);
        error = rig.alloc.alloc(&request).err();
        if error.is_some() {
            break;
        }
    }
    assert_eq!(error, Some(Error::TooManyObjects { limit: 16 }));
    rig.assert_sound();
}

#[test]
fn case_16_a_segment_that_does_not_fit_is_tried_smaller_then_elsewhere_then_refused() {
    let heaps = vec![
        Heap { total: 100 * U, device_local: true },
        Heap { total: 60 * U, device_local: false },
    ];
    let class = |heap| Class {
        kind: MemoryKind::Device,
        heap: HeapId(heap),
        host_visible: heap == 1,
        coherent: true,
        native: u32::from(heap),
    };
    let sim = Sim::slabs().heaps(heaps, vec![class(0), class(1)]);
    let rig = Rig::with(sim, |config| {
        config.growth = Growth::Proportional { min_bytes: 64 * U, max_bytes: 256 * U };
    });
    let s0 = rig.stream();
    let class_of = |handle| {
        let space = rig.alloc.info(handle).unwrap().place.space;
        let snapshot = rig.alloc.snapshot();
        snapshot.segments.iter().find(|segment| segment.space == space).unwrap().class.0
    };
    let first = rig.get(60 * U, s0);
    // 36 MiB are left beside the segment of 64: a smaller segment, then only the block's size.
    let second = rig.get(33 * U, s0);
    assert_eq!((class_of(first), class_of(second)), (0, 0));
    let third = rig.get(40 * U, s0);
    assert_eq!(class_of(third), 1, "the next class of the kind");
    let error = rig.ask(40 * U, s0, Wait::OnStream).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(_)), "{error:?}");
    rig.assert_sound();
}

#[test]
fn case_16_without_falling_back_the_first_class_is_the_last() {
    let heaps = vec![
        Heap { total: 10 * U, device_local: true },
        Heap { total: 60 * U, device_local: false },
    ];
    let class = |heap| Class {
        kind: MemoryKind::Device,
        heap: HeapId(heap),
        host_visible: false,
        coherent: true,
        native: 0,
    };
    let sim = Sim::slabs().heaps(heaps, vec![class(0), class(1)]);
    let rig = Rig::with(sim, |config| config.fall_back = false);
    let s0 = rig.stream();
    let error = rig.ask(20 * U, s0, Wait::OnStream).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(_)), "{error:?}");
}

#[test]
fn case_20_after_the_last_free_and_a_trim_nothing_stays() {
    let rig = Rig::new(1 << 30);
    let (s0, s1) = (rig.stream(), rig.stream());
    let blocks: Vec<_> = (1..40).map(|n| rig.get(n * 300_000, s0)).collect();
    let points: Vec<_> = blocks.iter().map(|&block| rig.work(block, s1)).collect();
    blocks.iter().for_each(|&block| rig.alloc.free(block).unwrap());
    points.into_iter().for_each(|point| rig.sim.complete(point));
    rig.sim.advance(1_000_000_000);
    rig.alloc.trim(0).unwrap();
    assert_eq!((rig.reserved(), rig.sim.memory_objects()), (0, 0));
    assert!(rig.calls(CallKind::WaitAny) == 0, "a trim waited");
    rig.assert_sound();
}

#[test]
fn case_20_the_configured_minimum_stays() {
    let rig = Rig::with(Sim::slabs(), |config| config.min_reserved = 90 * U);
    let s0 = rig.stream();
    let blocks: Vec<_> = (0..10).map(|_| rig.get(36 * U, s0)).collect();
    blocks.iter().for_each(|&block| rig.alloc.free(block).unwrap());
    rig.alloc.trim(0).unwrap();
    assert!((72 * U..=108 * U).contains(&rig.reserved()), "{}", rig.reserved());
}
