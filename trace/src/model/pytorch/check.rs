//! The whole heap walked and compared with its sets; random programs with that after each step.

use super::heap::{Class, NONE, State};
use super::*;
use std::collections::HashSet;

/// Every rule that must hold between two calls.
///
/// - neighbours link both ways, touch, and share stream and class
/// - two neighbours are never both free, nor both unmapped
/// - each free or unmapped block is in exactly its set, each set holds nothing else
/// - the bytes of all mapped blocks are the bytes reserved
fn check(pytorch: &Pytorch) {
    let heap = &pytorch.heap;
    let mut in_sets = HashSet::new();
    for class in [Class::Small, Class::Large] {
        for &(stream, size, address, index) in &heap.pool(class).free {
            let block = heap.get(index);
            assert_eq!((block.stream, block.size, block.address), (stream, size, address));
            assert_eq!((block.state, block.class), (State::Free, class));
            assert!(in_sets.insert(index));
        }
        for &(stream, address, index) in &heap.pool(class).unmapped {
            let block = heap.get(index);
            assert_eq!((block.stream, block.address), (stream, address));
            assert_eq!((block.state, block.class), (State::Unmapped, class));
            assert!(in_sets.insert(index));
        }
    }
    let mut mapped = 0;
    for index in heap.indices_in_use() {
        let block = heap.get(index);
        assert_eq!(block.state != State::Taken, in_sets.contains(&index), "{block:?}");
        if block.state != State::Unmapped {
            mapped += block.size;
        }
        if block.next != NONE {
            let next = heap.get(block.next);
            assert_eq!(next.prev, index);
            assert_eq!(next.address, block.address + block.size);
            assert_eq!((next.stream, next.class), (block.stream, block.class));
            assert!(block.state != next.state || block.state == State::Taken, "{block:?} {next:?}");
        }
    }
    assert_eq!(mapped, pytorch.reserved());
}

/// A small generator with a fixed sequence for each seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn random_program(seed: u64, config: &PytorchConfig) {
    let mut random = Random(seed);
    let capacity = (40 + random.below(400)) * MIB;
    let mut pytorch = Pytorch::new(config.clone(), Some(capacity));
    let (mut live, mut pending, mut next) = (Vec::new(), Vec::new(), 0u32);
    for _ in 0..600 {
        match random.below(5) {
            0..=1 => {
                let magnitude = 1 + random.below(26);
                let bytes = 1 + random.below(1 << magnitude);
                let stream = random.below(3) as u32;
                if pytorch.alloc(Request { block: next, bytes, stream }) {
                    live.push(next);
                }
                next += 1;
            }
            2..=3 if !live.is_empty() => {
                let block = live.swap_remove(random.below(live.len() as u64) as usize);
                pytorch.free_requested(block);
                pending.push(block);
            }
            _ if !pending.is_empty() => {
                let at = random.below(pending.len() as u64) as usize;
                pytorch.free_completed(pending.swap_remove(at));
            }
            _ => {}
        }
        assert!(pytorch.reserved() <= capacity);
        check(&pytorch);
    }
}

#[test]
fn random_programs_keep_the_heap_consistent_under_every_setting() {
    let settings = [
        "",
        "expandable_segments:True",
        "max_split_size_mb:20",
        "max_split_size_mb:32,garbage_collection_threshold:0.5,per_process_memory_fraction:0.9",
        "roundup_power2_divisions:[1:8,16:4,>:2]",
        "expandable_segments:True,garbage_collection_threshold:0.3,per_process_memory_fraction:0.5",
        "large_segment_size_mb:64,max_split_size_mb:20",
    ];
    for conf in settings {
        let config = PytorchConfig::from_conf(conf).unwrap();
        for seed in 1..60 {
            println!("seed {seed}, settings `{conf}`: random_program({seed}, ..) runs it again");
            random_program(seed, &config);
        }
    }
}
