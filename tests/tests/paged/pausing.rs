//! Blocks paused and resumed by several threads while others use, free and allocate.

use std::time::Duration;

use terrane_core::{Contents, Error, Request, Selection};

use super::{Rig, devices};

/// Operations of each thread.
const ROUNDS: u64 = 400;

/// A pseudo-random sequence of a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// What may be answered while somebody else pauses, resumes or uses the block.
fn is_expected(error: Error) -> bool {
    matches!(error, Error::Paused | Error::Held)
}

fn play(rig: &Rig, seed: u64) {
    let mut random = Random(seed);
    let stream = rig.stream();
    let tags = [rig.alloc.tag("even").unwrap(), rig.alloc.tag("odd").unwrap()];
    let mut live = Vec::new();
    for round in 0..ROUNDS {
        let tag = tags[random.below(2) as usize];
        match random.below(10) {
            0..=3 => {
                let bytes = rig.granule * (1 + random.below(6)) + random.below(4096);
                let request = Request::new(bytes, stream).tag(tag);
                live.push(rig.alloc.alloc(&request).unwrap().handle);
            }
            4 | 5 if !live.is_empty() => {
                let at = random.below(live.len() as u64) as usize;
                rig.alloc.free(live.swap_remove(at)).unwrap();
            }
            6 if !live.is_empty() => {
                let block = live[random.below(live.len() as u64) as usize];
                if let Err(error) = rig.alloc.write(stream, block, 0, &[round as u8; 64]) {
                    assert!(is_expected(error), "{error}");
                }
            }
            7 => {
                let contents =
                    if random.below(2) == 0 { Contents::Keep } else { Contents::Discard };
                let time = Duration::from_secs(30);
                rig.alloc.pause(Selection::Tag(tag), contents, time).unwrap();
            }
            8 => drop(rig.alloc.resume(Selection::Tag(tag)).unwrap()),
            _ => rig.alloc.check().unwrap(),
        }
    }
    live.into_iter().for_each(|block| rig.alloc.free(block).unwrap());
}

#[test]
fn threads_pause_resume_use_and_free_at_once() {
    for (name, device) in devices() {
        let rig = Rig::new(device, |_| {});
        std::thread::scope(|scope| {
            for seed in 1..5 {
                let rig = &rig;
                scope.spawn(move || play(rig, seed));
            }
        });
        rig.alloc.check().unwrap_or_else(|broken| panic!("{name}: {broken}"));
        rig.alloc.release_cached().unwrap();
        let stats = rig.alloc.stats();
        assert_eq!(stats.total.blocks.current, 0, "{name}: blocks");
        assert_eq!(stats.reserved.current, 0, "{name}: reserved bytes");
        assert_eq!(stats.active.current, 0, "{name}: active bytes");
    }
}
