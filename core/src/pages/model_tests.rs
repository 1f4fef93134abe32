//! A naive model beside the real thing: random requests, frees, failures, waits, drops, trims.
//!
//! The model knows memory by object and byte. It says who used a byte last and behind which
//! points, so that handing one out too early is seen however often its page has moved.

use std::collections::HashMap;

use super::tests::{Rig, point, request};
use super::*;

const MIB: u64 = 1 << 20;

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// A stretch of an object.
type Piece = (ObjectId, u64, u64);

#[derive(Clone)]
struct ModelBlock {
    id: BlockId,
    stream: u32,
    pieces: Vec<Piece>,
    at: u64,
    bytes: u64,
    /// What it was given, to be passed on.
    inherited: Points,
}

#[derive(Default)]
struct Model {
    blocks: Vec<ModelBlock>,
    /// Bytes that were used, and what has to be reached before another stream may.
    past: Vec<(Piece, Points)>,
    /// Mappings as the device has them: first byte to backing.
    mapped: HashMap<u64, Backing>,
    reached: HashMap<u32, u64>,
}

fn overlaps(a: &Piece, b: &Piece) -> bool {
    a.0 == b.0 && a.1 < b.1 + b.2 && b.1 < a.1 + a.2
}

impl Model {
    /// The memory under a range, from the mappings alone.
    fn pieces(&self, at: u64, bytes: u64) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let end = at + bytes;
        for (&from, backing) in &self.mapped {
            let (low, high) = (from.max(at), (from + backing.bytes).min(end));
            if low < high {
                pieces.push((backing.object, backing.offset + low - from, high - low));
            }
        }
        pieces
    }

    fn pending(&self, points: &Points) -> Points {
        let mut left = points.clone();
        left.retain(|p| self.reached.get(&{ p.stream }.0).is_none_or(|&value| value < p.value));
        left
    }

    fn admit(&mut self, id: BlockId, plan: &Plan, stream: u32) {
        let pieces = self.pieces(plan.at, plan.bytes);
        let backed: u64 = pieces.iter().map(|piece| piece.2).sum();
        assert_eq!(backed, plan.bytes, "every byte is backed exactly once: {plan:?}");
        for other in &self.blocks {
            for piece in &pieces {
                let shared = other.pieces.iter().any(|taken| overlaps(piece, taken));
                assert!(!shared, "{plan:?} shares memory with {:?}", other.id);
            }
            let apart = plan.at + plan.bytes <= other.at || other.at + other.bytes <= plan.at;
            assert!(apart, "{plan:?} overlaps {:?}", other.id);
        }
        let mut owed = Points::NONE;
        for (piece, points) in &self.past {
            if pieces.iter().any(|mine| overlaps(piece, mine)) {
                owed.merge(&self.pending(points));
            }
        }
        for need in owed.without(StreamId(stream)).iter() {
            let given = plan.waits.iter().find(|wait| wait.stream == need.stream);
            assert!(given.is_some_and(|wait| wait.value >= need.value), "{need:?} in {plan:?}");
        }
        let block =
            ModelBlock { id, stream, pieces, at: plan.at, bytes: plan.bytes, inherited: owed };
        self.blocks.push(block);
    }

    fn retire(&mut self, block: &ModelBlock, points: &Points) {
        let mut left = block.inherited.clone();
        left.merge(points);
        for piece in &block.pieces {
            self.past.push((*piece, left.clone()));
        }
        if self.past.len() > 512 {
            let mut past = std::mem::take(&mut self.past);
            past.retain(|(_, points)| !self.pending(points).is_empty());
            self.past = past;
        }
    }
}

struct Run {
    rig: Rig,
    model: Model,
    rng: Rng,
    submitted: [u64; 4],
    may_steal: bool,
    limit: u64,
    seen: Seen,
}

/// How often what the test is about has happened.
#[derive(Default)]
struct Seen {
    steals: u64,
    exchanges: u64,
    waits: u64,
    rollbacks: u64,
    drops: u64,
    departures: u64,
}

impl Seen {
    const fn add(&mut self, other: &Self) {
        self.steals += other.steals;
        self.exchanges += other.exchanges;
        self.waits += other.waits;
        self.rollbacks += other.rollbacks;
        self.drops += other.drops;
        self.departures += other.departures;
    }
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let may_steal = rng.below(4) > 0;
        let policy = Policy {
            large: [0, 4 * MIB, 16 * MIB][rng.below(3) as usize],
            large_page: [2 * MIB, 8 * MIB, 16 * MIB][rng.below(3) as usize],
            grading: rng.below(10),
            stale_max: if may_steal { 8 } else { 0 },
            ..Policy::default()
        };
        let limit = (100 + rng.below(300)) * MIB;
        let rig = Rig::new(policy);
        Self {
            rig,
            model: Model::default(),
            rng,
            submitted: [0; 4],
            may_steal,
            limit,
            seen: Seen::default(),
        }
    }

    fn alloc(&mut self) {
        let stream = self.rng.below(4) as u32;
        let scale = 1_u64 << (8 + self.rng.below(17));
        let bytes = 1 + self.rng.below(2 * scale);
        let align = Align::new(1 << self.rng.below(13)).unwrap();
        let may_wait = self.rng.below(2) == 0;
        let request = Request { align, may_wait, ..request(bytes, stream) };
        let used = self.rig.pages.usage().reserved;
        let room = self.rig.pages.room(bytes, self.limit.saturating_sub(used));
        let Ok(plan) = self.rig.pages.find(&request, 0, room) else { return };
        assert!(align.divides(plan.at));
        assert!(may_wait || plan.waits.is_empty(), "{plan:?}");
        let fails = self.rng.below(8) == 0;
        let before = (fails && self.rng.below(16) == 0).then(|| self.rig.picture());
        let made = self.rig.backings(&plan);
        let reservation = self.rig.pages.reserve(plan.clone()).unwrap();
        if fails {
            self.seen.rollbacks += 1;
            self.rig.pages.rollback(reservation);
            if let Some(before) = before {
                assert_eq!(self.rig.picture(), before, "after {plan:?}");
            }
            return;
        }
        self.seen.waits += u64::from(!plan.waits.is_empty());
        self.map(&plan, &made);
        let id = reservation.block();
        let stale = self.unmap_released(&plan);
        self.rig.pages.commit(reservation, &made, 0, &Points::NONE).unwrap();
        for stale in &stale {
            self.rig.pages.unmapped(stale).unwrap();
        }
        assert!(self.rig.pages.usage().reserved <= self.limit);
        self.model.admit(id, &plan, stream);
    }

    fn map(&mut self, plan: &Plan, made: &[Backing]) {
        let mut made = made.iter();
        for step in &plan.steps {
            match *step {
                Step::Create { at, .. } => {
                    assert!(self.model.mapped.insert(at, *made.next().unwrap()).is_none());
                }
                Step::Steal { at, backing, .. } => {
                    assert!(self.may_steal);
                    self.seen.steals += 1;
                    assert!(self.model.mapped.insert(at, backing).is_none());
                }
                Step::Release { at, .. } => {
                    self.seen.exchanges += 1;
                    assert!(self.model.mapped.remove(&at).is_some());
                }
            }
        }
    }

    fn free(&mut self) {
        if self.model.blocks.is_empty() {
            return;
        }
        let at = self.rng.below(self.model.blocks.len() as u64) as usize;
        let block = self.model.blocks.swap_remove(at);
        let mut points = Points::NONE;
        for _ in 0..self.rng.below(3) {
            let other = self.rng.below(4) as u32;
            let stream = if self.rng.below(2) == 0 { block.stream } else { other };
            self.submitted[stream as usize] += 1;
            points.insert(point(stream, self.submitted[stream as usize]));
        }
        self.rig.pages.free(block.id, &points, 0).unwrap();
        assert!(self.rig.pages.free(block.id, &Points::NONE, 0).is_err(), "freed twice");
        self.model.retire(&block, &points);
    }

    fn settle(&mut self) {
        let stream = self.rng.below(4);
        let upto = self.submitted[stream as usize];
        let known = self.model.reached.entry(stream as u32).or_insert(0);
        *known += self.rng.below(upto - *known + 1);
        let value = *known;
        self.rig.pages.settle(point(stream as u32, value));
    }

    /// Unmaps what a plan gives back wherever else it is still mapped.
    fn unmap_released(&mut self, plan: &Plan) -> Vec<StaleMapping> {
        let released = plan.steps.iter().filter_map(|step| match step {
            Step::Release { page, .. } => Some(*page),
            _ => None,
        });
        let mut all = Vec::new();
        for page in released {
            all.extend(self.rig.pages.stale_of(page));
        }
        for stale in &all {
            assert!(self.model.pending(&stale.after).is_empty(), "{stale:?} is still in use");
            assert!(self.model.mapped.remove(&stale.at).is_some());
        }
        all
    }

    fn drop_stale(&mut self) {
        for stale in self.rig.pages.drop_stale(4) {
            if self.model.pending(&stale.after).is_empty() {
                self.rig.pages.unmapped(&stale).unwrap();
                self.seen.drops += 1;
                let gone = self.model.mapped.remove(&stale.at).unwrap();
                assert_eq!(gone.bytes, stale.bytes);
            } else {
                assert!(self.rig.pages.unmapped(&stale).is_err());
                self.rig.pages.still_mapped(stale);
            }
        }
    }

    fn trim(&mut self) {
        let bytes = self.rng.below(20 * MIB);
        for going in self.rig.pages.trim(bytes, u64::MAX) {
            if self.rng.below(3) == 0 {
                self.rig.pages.depart_failed(going);
            } else {
                assert_eq!(self.model.mapped.remove(&going.at), Some(going.backing));
                for stale in &going.stale {
                    assert!(self.model.mapped.remove(&stale.at).is_some());
                }
                self.rig.pages.depart_done(going).unwrap();
                self.seen.departures += 1;
            }
        }
    }

    fn step(&mut self) {
        let full = self.model.blocks.len() >= 256;
        match self.rng.below(100) {
            0..46 if !full => self.alloc(),
            46..88 => self.free(),
            88..94 => self.settle(),
            94..99 => self.drop_stale(),
            _ => self.trim(),
        }
    }
}

fn run(seed: u64, steps: u64, every: u64) -> Seen {
    let mut run = Run::new(seed);
    for step in 0..steps {
        run.step();
        if step % every == 0
            && let Err(broken) = run.rig.pages.check()
        {
            panic!("step {step}: {broken}");
        }
    }
    run.rig.pages.check().unwrap();
    run.seen
}

/// `TERRANE_PAGES_OPS` operations (10^6 unless it says otherwise, a tenth in debug builds) from
/// `TERRANE_PAGES_SEED`.
#[test]
fn the_pages_agree_with_a_naive_model() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let usual = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    let ops = number("TERRANE_PAGES_OPS").unwrap_or(usual);
    let seed = number("TERRANE_PAGES_SEED").unwrap_or(1);
    println!(
        "TERRANE_PAGES_SEED={seed} TERRANE_PAGES_OPS={ops} cargo test --release -p terrane-core \
         the_pages_agree_with_a_naive_model"
    );
    let (rounds, each, mut seen) = (ops / 5_000, 5_000, Seen::default());
    for round in 0..rounds {
        println!("round {round}");
        seen.add(&run(seed.wrapping_add(round), each, 97));
    }
    let Seen { steals, exchanges, waits, rollbacks, drops, departures } = seen;
    println!(
        "{steals} steals, {exchanges} exchanges, {waits} waits, {rollbacks} rollbacks, {drops} \
         drops, {departures} departures"
    );
    let all = [steals, exchanges, waits, rollbacks, drops, departures];
    assert!(rounds < 20 || all.iter().all(|&count| count > 0), "something was never tried");
}
