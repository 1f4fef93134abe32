//! What a request costs on the host, by way and by sizes:
//! `cargo run --release -p terrane-core --example pairs -- [pairs in each round]`.
//!
//! One thread, a modelled device whose calls cost nothing, and nothing pending: what is measured
//! is the allocator itself, with the recorder as it is by default. Each figure is the median of
//! nine rounds, in nanoseconds of one alloc and one free.

use std::time::Instant;

use terrane_core::device::sim::Sim;
use terrane_core::device::{Device, StreamId, StreamSpec};
use terrane_core::units::MIB;
use terrane_core::{Allocator, Config, Error, Handle, Keep, Request};

/// Blocks that are live while sizes are mixed.
const LIVE: usize = 256;
/// Sizes that a program with usual sizes has.
const SIZES: u64 = 64;
/// Blocks that such a program frees and asks for again in a round, in another order each.
const BATCH: usize = 32;

struct Random(u64);

impl Random {
    const fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    /// From 512 B to 16 MiB, each power of two as likely.
    const fn size(&mut self) -> u64 {
        let bits = 9 + self.below(15);
        (1 << bits) + self.below(1 << bits)
    }

    /// One of [`SIZES`] sizes.
    const fn usual(&mut self) -> u64 {
        Self(1 + self.below(SIZES)).size()
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

struct Rig {
    alloc: Allocator,
    stream: StreamId,
}

impl Rig {
    fn new(paged: bool, keep: Keep) -> Result<Self, Error> {
        let sim = if paged { Sim::cuda() } else { Sim::slabs() };
        let sim = sim.open();
        let stream = sim.create_stream(StreamSpec::default())?;
        let mut config = Config::for_device(sim.caps());
        (config.paging, config.keep) = (paged, keep);
        Ok(Self { alloc: Allocator::with_config(sim.shared(), config)?, stream })
    }

    fn get(&self, bytes: u64) -> Result<Handle, Error> {
        Ok(self.alloc.alloc(&Request::new(bytes, self.stream))?.handle)
    }

    /// One size over and over.
    fn cached(&self, count: u32) -> Result<f64, Error> {
        let round = || {
            let start = Instant::now();
            for _ in 0..count {
                let block = self.get(MIB)?;
                self.alloc.free(block)?;
            }
            Ok(start.elapsed().as_nanos() as f64 / f64::from(count))
        };
        median((0..9).map(|_| round()))
    }

    /// Blocks of mixed sizes freed and asked for again, each in any order.
    fn usual(&self, count: u32) -> Result<f64, Error> {
        let mut random = Random(5);
        let sizes: Vec<u64> = (0..LIVE).map(|_| random.usual()).collect();
        let live = sizes.into_iter().map(|bytes| Ok::<_, Error>((bytes, self.get(bytes)?)));
        let mut live = live.collect::<Result<Vec<(u64, Handle)>, _>>()?;
        let mut batch = Vec::with_capacity(BATCH);
        let mut round = || {
            let start = Instant::now();
            for _ in 0..count / BATCH as u32 {
                let from = random.below((LIVE - BATCH) as u64) as usize;
                for (bytes, block) in live.drain(from..from + BATCH) {
                    self.alloc.free(block)?;
                    batch.push(bytes);
                }
                random.shuffle(&mut batch);
                for bytes in batch.drain(..) {
                    live.push((bytes, self.get(bytes)?));
                }
            }
            Ok(start.elapsed().as_nanos() as f64 / f64::from(count))
        };
        for _ in 0..3 {
            round()?;
        }
        let time = median((0..9).map(|_| round()));
        live.into_iter().try_for_each(|(_, block)| self.alloc.free(block))?;
        time
    }

    /// A block of some size in the place of one of some other.
    fn mixed(&self, count: u32) -> Result<f64, Error> {
        let mut random = Random(5);
        let live: Result<Vec<_>, _> = (0..LIVE).map(|_| self.get(random.size())).collect();
        let mut live = live?;
        let mut round = || {
            let start = Instant::now();
            for _ in 0..count {
                let at = random.below(LIVE as u64) as usize;
                self.alloc.free(live[at])?;
                live[at] = self.get(random.size())?;
            }
            Ok(start.elapsed().as_nanos() as f64 / f64::from(count))
        };
        // The first three fill the caches.
        for _ in 0..3 {
            round()?;
        }
        let time = median((0..9).map(|_| round()));
        live.into_iter().try_for_each(|block| self.alloc.free(block))?;
        time
    }
}

fn median(rounds: impl Iterator<Item = Result<f64, Error>>) -> Result<f64, Error> {
    let mut rounds = rounds.collect::<Result<Vec<_>, _>>()?;
    rounds.sort_by(f64::total_cmp);
    Ok(rounds[rounds.len() / 2])
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count = std::env::args().nth(1).map_or(Ok(200_000), |text| text.parse())?;
    println!("ns a pair                     one size  {SIZES} sizes  never the same");
    for (name, paged) in [("plain segments", false), ("paged segments", true)] {
        for keep in [Keep::Nothing, Keep::InOrder, Keep::BySize] {
            let rig = Rig::new(paged, keep)?;
            let (cached, usual, mixed) = (rig.cached(count)?, rig.usual(count)?, rig.mixed(count)?);
            let keep = format!("{keep:?}");
            println!("{name}, {keep:10}  {cached:10.1}  {usual:8.1}  {mixed:14.1}");
            rig.alloc.check()?;
        }
    }
    Ok(())
}
