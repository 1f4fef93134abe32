//! How many events per second the paged space serves with many live blocks:
//! `cargo run --release -p terrane-core --example pages_rate -- [live blocks] [events]`.
//!
//! Blocks are freed at random and replaced by others of 512 B to 512 KiB, nothing is pending and
//! nothing is stolen: what is measured is the search and the bookkeeping, not the driver.

use std::time::Instant;
use terrane_core::pages::{Backing, BlockId, ObjectId, Pages, PagesError, Policy, Request, Step};
use terrane_core::point::{Points, StreamId};
use terrane_core::units::{Align, MIB};

struct Rng(u64);

impl Rng {
    const fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn alloc(pages: &mut Pages, bytes: u64, objects: &mut u64) -> Result<BlockId, PagesError> {
    let request = Request { bytes, align: Align::ONE, stream: StreamId(0), may_wait: false };
    let plan = pages.find(&request, 0, pages.room(bytes, u64::MAX))?;
    let mut made = Vec::new();
    for step in &plan.steps {
        if let Step::Create { bytes, .. } = *step {
            *objects += 1;
            let object = ObjectId(*objects);
            made.push(Backing { object, object_bytes: bytes, offset: 0, bytes });
        }
    }
    let reservation = pages.reserve(plan)?;
    let block = reservation.block();
    pages.commit(reservation, &made, 0, &Points::NONE).map_err(|(error, _)| error)?;
    for stale in pages.drop_stale(usize::MAX) {
        pages.unmapped(&stale)?;
    }
    Ok(block)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let live: usize = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let events: u64 = arguments.next().map_or(Ok(2_000_000), |text| text.parse())?;
    let granule = Align::new(2 * MIB).ok_or("no alignment")?;
    let mut pages = Pages::new(granule, 1 << 42, Policy::default())?;
    let (mut rng, mut objects, mut blocks) = (Rng(7), 0, Vec::with_capacity(live));
    let size = |rng: &mut Rng| {
        let most = 1 << rng.below(11);
        512 * (1 + rng.below(most))
    };
    while blocks.len() < live {
        let bytes = size(&mut rng);
        blocks.push(alloc(&mut pages, bytes, &mut objects)?);
    }
    let start = Instant::now();
    for _ in 0..events / 2 {
        let at = rng.below(live as u64) as usize;
        pages.free(blocks[at], &Points::NONE, 0)?;
        let bytes = size(&mut rng);
        blocks[at] = alloc(&mut pages, bytes, &mut objects)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let usage = pages.usage();
    println!(
        "{live} live blocks on {} pages, {} bytes reserved beyond them: {:.2} million events/s",
        usage.pages,
        usage.reserved - usage.live,
        events as f64 / seconds / 1e6
    );
    pages.check()?;
    Ok(())
}
