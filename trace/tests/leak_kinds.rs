//! Growth of every kind, generated from seeds, against what it is called.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use terrane_trace::diagnose::{LeakClass, LeakOptions, Verdict, judge_trace};
use terrane_trace::{Op, Trace, TraceBuilder};

const MIB: u64 = 1 << 20;

struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
}

/// A program being recorded.
struct Program {
    builder: TraceBuilder,
    sites: Vec<u64>,
    sizes: Vec<(u64, u32)>,
    time: u64,
    random: Random,
}

impl Program {
    fn new(seed: u64) -> Self {
        let (builder, random) = (TraceBuilder::new(), Random::new(seed));
        Self { builder, sites: Vec::new(), sizes: Vec::new(), time: 0, random }
    }

    fn alloc(&mut self, site: u64, bytes: u64, stream: u32) -> u64 {
        let block = self.sizes.len() as u64;
        self.time += 10;
        self.builder.push(Op::Alloc, self.time, block, bytes, stream).unwrap();
        self.sites.push(site);
        self.sizes.push((bytes, stream));
        block
    }

    fn request(&mut self, block: u64) {
        let (bytes, stream) = self.sizes[block as usize];
        self.time += 1;
        self.builder.push(Op::FreeRequested, self.time, block, bytes, stream).unwrap();
    }

    fn free(&mut self, block: u64) {
        let (bytes, stream) = self.sizes[block as usize];
        self.request(block);
        self.builder.push(Op::FreeCompleted, self.time, block, bytes, stream).unwrap();
    }

    /// Forward and backward over some layers, with temporary blocks and sizes that vary.
    fn train(&mut self, layers: u64, noise: u64) {
        let mut kept = Vec::new();
        for layer in 0..layers {
            let bytes = (4 + layer % 3) * MIB + self.random.below(noise + 1);
            kept.push(self.alloc(100 + layer, bytes, 0));
            let bytes = 2 * MIB + self.random.below(noise + 1);
            let scratch = self.alloc(200, bytes, 0);
            self.free(scratch);
        }
        for block in kept.into_iter().rev() {
            let gradient = self.alloc(201, 3 * MIB, 0);
            self.free(block);
            self.free(gradient);
        }
    }

    fn parameters(&mut self, layers: u64) {
        for layer in 0..layers {
            self.alloc(1 + layer, (6 + layer % 5) * MIB, 0);
        }
    }

    fn judge(self) -> Verdict {
        let trace: Trace = self.builder.finish();
        judge_trace(&trace, &self.sites, LeakOptions::default())
    }
}

const LEAK: u64 = 777;
const CACHE: u64 = 888;

/// One program of a kind; some have several habits at once.
fn program(kind: &str, seed: u64) -> Program {
    let mut p = Program::new(seed);
    let steps = if kind == "few steps" { 3 } else { p.random.between(20, 70) };
    let layers = p.random.between(4, 12);
    let noise = [0, 64 << 10, MIB][p.random.below(3) as usize];
    p.parameters(layers);
    let leak = p.random.between(1, 6) * MIB;
    let mut cache = Vec::new();
    let mut pinned: Vec<(u64, u64)> = Vec::new();
    let mut doubling = p.random.between(1, 2) * MIB;
    let mut grown = None;
    let tooth = p.random.between(3, 6);
    for step in 0..steps {
        p.train(layers, noise);
        if step == 0 {
            // Optimizer state is made in the first step and kept.
            for layer in 0..layers {
                p.alloc(50 + layer, 12 * MIB, 0);
            }
        }
        match kind {
            "keeps a tensor" | "keeps one, with habits" => {
                let varies = p.random.below(MIB / 2);
                p.alloc(LEAK, leak + varies, 0);
            }
            "keeps one now and then" if step % 3 == 0 => _ = p.alloc(LEAK, 3 * leak, 0),
            "doubles" | "doubles, with habits" => {
                let larger = p.alloc(LEAK, doubling, 0);
                if let Some(before) = grown.replace(larger) {
                    p.free(before);
                }
                if step % (steps / 12).max(1) == 0 {
                    doubling = doubling.saturating_mul(2).min(1 << 40);
                }
            }
            "fills a cache and stops" if step < steps * 2 / 5 => _ = p.alloc(CACHE, 9 * MIB, 0),
            "least recently used" => {
                let bytes = 5 * MIB + p.random.below(MIB);
                cache.push(p.alloc(CACHE, bytes, 0));
                if cache.len() > 2 {
                    p.free(cache.remove(0));
                }
            }
            "backlog" => {
                let block = p.alloc(300, 8 * MIB, 1);
                p.request(block);
            }
            "pins segments" => {
                for _ in 0..3 {
                    let size = p.random.between(11, 40) * MIB;
                    let large: Vec<u64> = (0..4).map(|_| p.alloc(301, size, 0)).collect();
                    p.free(large[0]);
                    let bytes = MIB + 4096 * p.random.between(1, 99);
                    let small = p.alloc(LEAK, bytes, 0);
                    pinned.push((step + p.random.between(3, 6), small));
                    for block in &large[1..] {
                        p.free(*block);
                    }
                }
                let due: Vec<u64> =
                    pinned.iter().filter(|pin| pin.0 <= step).map(|pin| pin.1).collect();
                pinned.retain(|pin| pin.0 > step);
                due.into_iter().for_each(|block| p.free(block));
            }
            _ => {}
        }
        if kind.contains("habits") || kind == "sawtooth" {
            cache.push(p.alloc(CACHE, 7 * MIB, 0));
            if step % tooth == tooth - 1 {
                cache.drain(..).for_each(|block| p.free(block));
            }
        }
    }
    p
}

const KINDS: [(&str, LeakClass); 13] = [
    ("keeps a tensor", LeakClass::Accumulating),
    ("keeps one now and then", LeakClass::Accumulating),
    ("keeps one, with habits", LeakClass::Accumulating),
    ("doubles", LeakClass::Exponential),
    ("doubles, with habits", LeakClass::Exponential),
    ("trains", LeakClass::None),
    ("sawtooth", LeakClass::None),
    ("least recently used", LeakClass::None),
    ("fills a cache and stops", LeakClass::Plateau),
    ("backlog", LeakClass::PendingBacklog),
    ("pins segments", LeakClass::Fragmenting),
    ("few steps", LeakClass::Unknown),
    ("trains again", LeakClass::None),
];

/// (kind, what it was called) -> how often, over the seeds.
fn matrix(seeds: std::ops::Range<u64>) -> BTreeMap<(String, String), u64> {
    let mut matrix = BTreeMap::new();
    for (kind, expected) in KINDS {
        for seed in seeds.clone() {
            let verdict = program(kind, seed).judge();
            if verdict.class != expected {
                println!("`{kind}` with seed {seed}: {verdict:?}");
            }
            let called = format!("{:?}", verdict.class);
            *matrix.entry((format!("{expected:?}"), called)).or_insert(0) += 1;
        }
    }
    matrix
}

#[test]
fn nearly_every_kind_of_growth_is_called_by_its_name() {
    let matrix = matrix(1..21);
    let mut right = 0;
    println!("one line each: what it is, what it was called, how often");
    for ((is, called), count) in &matrix {
        println!("{is:16} {called:16} {count}");
        right += if is == called { *count } else { 0 };
        let healthy = ["None", "Plateau", "Unknown"].contains(&is.as_str());
        let alarm = ["Accumulating", "Exponential"].contains(&called.as_str());
        assert!(!(healthy && alarm), "{is} was called {called}");
    }
    let all: u64 = matrix.values().sum();
    assert!(right * 100 >= all * 95, "{right} of {all} are right");
}

#[test]
fn the_site_that_leaks_is_named_with_its_rate() {
    for kind in ["keeps a tensor", "keeps one, with habits", "doubles", "pins segments"] {
        let verdict = program(kind, 3).judge();
        assert_eq!(verdict.site, Some(LEAK), "{kind}: {verdict:?}");
    }
    let verdict = program("keeps a tensor", 5).judge();
    let mib = verdict.bytes_per_step / MIB as f64;
    assert!((1.0..=6.5).contains(&mib), "{verdict:?}");
    assert!(verdict.first_step.unwrap() <= 4, "{verdict:?}");
}
