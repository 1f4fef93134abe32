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
use terrane_core::{Allocator, Config, Error, Handle, Request};

/// Blocks that are live while sizes are mixed.
const LIVE: usize = 256;

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
}

struct Rig {
    alloc: Allocator,
    stream: StreamId,
}

impl Rig {
    fn new(paged: bool) -> Result<Self, Error> {
        let sim = if paged { Sim::cuda() } else { Sim::slabs() };
        let sim = sim.open();
        let stream = sim.create_stream(StreamSpec::default())?;
        let mut config = Config::for_device(sim.caps());
        config.paging = paged;
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
    println!("ns a pair        one size   mixed");
    for (name, paged) in [("plain segments", false), ("paged segments", true)] {
        let rig = Rig::new(paged)?;
        let (cached, mixed) = (rig.cached(count)?, rig.mixed(count)?);
        println!("{name}   {cached:8.1}{mixed:8.1}");
        rig.alloc.check()?;
    }
    Ok(())
}
