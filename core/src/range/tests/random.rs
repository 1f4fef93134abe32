//! Random operations on the index and on the model, with weights drawn anew for every swarm.

use super::pair::Pair;
use super::point;
use crate::point::{Points, StreamId};
use crate::range::{Home, SegmentId, State};
use crate::units::Align;

const STREAMS: u32 = 4;
const OPS_IN_SWARM: u64 = 1_000;

/// SplitMix64.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

type Op = fn(&mut Swarm);

/// What is done, and how often when the swarm does not say otherwise.
const OPS: [(Op, u64); 15] = [
    (|s| s.add(false), 1),
    (|s| s.add(true), 1),
    (Swarm::extend, 1),
    (Swarm::remove, 1),
    (Swarm::take, 16),
    (Swarm::take_waiting, 2),
    (Swarm::take_join, 4),
    (Swarm::steal, 2),
    (|s| s.with_taken(|s, at, points| s.pair.free(at, &points)), 12),
    (|s| s.with_taken(Swarm::set_state), 1),
    (|s| s.with_taken(|s, at, points| s.pair.record_use(at, &points)), 4),
    (|s| s.with_taken(Swarm::grow), 2),
    (|s| s.with_taken(Swarm::shrink), 2),
    (|s| s.reap(false), 1),
    (|s| s.reap(true), 2),
];

struct Swarm {
    rng: Rng,
    pair: Pair,
    /// The last value submitted and the last reached, by stream.
    submitted: [u64; STREAMS as usize],
    reached: [u64; STREAMS as usize],
    /// Sizes are multiples of this.
    unit: u64,
}

impl Swarm {
    fn size(&mut self) -> u64 {
        let power = self.rng.below(10);
        (1 + self.rng.below(1 << power)) * self.unit
    }

    fn align(&mut self) -> Align {
        let power = if self.rng.below(2) == 0 { 0 } else { self.rng.below(14) };
        Align::new(1 << power).unwrap()
    }

    fn stream(&mut self) -> StreamId {
        StreamId(self.rng.below(STREAMS.into()) as u32)
    }

    fn state(&mut self) -> State {
        self.rng.pick(&[State::Mapping, State::Live, State::Live, State::Pending, State::Stale])
    }

    fn points(&mut self) -> Points {
        let mut set = Points::NONE;
        for _ in 0..self.rng.pick(&[0, 0, 1, 1, 1, 2, 3]) {
            let stream = self.stream();
            let submitted = &mut self.submitted[stream.0 as usize];
            *submitted += self.rng.below(2);
            set.insert(point(stream.0, *submitted));
        }
        set
    }

    fn segment(&mut self) -> Option<SegmentId> {
        let segments: Vec<_> = self.pair.ranges.segments().collect();
        (!segments.is_empty()).then(|| self.rng.pick(&segments))
    }

    fn add(&mut self, full: bool) {
        if self.pair.model.segments.len() >= 6 {
            return;
        }
        let len = self.size() * 4;
        if full {
            let taken = 1 + self.rng.below(len);
            self.pair.add_full(len, taken);
        } else {
            self.pair.add(len);
        }
    }

    fn extend(&mut self) {
        let more = self.size();
        if let Some(segment) = self.segment().filter(|_| self.pair.ranges.total_free() < 1 << 16) {
            self.pair.extend(segment, more);
        }
    }

    fn remove(&mut self) {
        if let Some(segment) = self.segment() {
            self.pair.remove(segment);
        }
    }

    fn take(&mut self) {
        let (bytes, align, stream, state) =
            (self.size(), self.align(), self.stream(), self.state());
        let home = self.rng.pick(&[Home::Done, Home::Stream(stream), Home::Shared]);
        self.pair.find_and_take(bytes, align, home, state);
    }

    fn take_waiting(&mut self) {
        let (bytes, align, own, state) = (self.size(), self.align(), self.stream(), self.state());
        self.pair.find_waiting(bytes, align, own, state);
    }

    fn take_join(&mut self) {
        let (bytes, align, stream, state) =
            (self.size(), self.align(), self.stream(), self.state());
        let own = self.rng.pick(&[None, Some(stream)]);
        self.pair.find_join(bytes, align, own, state);
    }

    /// Takes any part of any free node.
    fn steal(&mut self) {
        let (nth, from, bytes, state) =
            (self.rng.next(), self.rng.next(), self.size(), self.state());
        self.pair.take_inside(nth as usize, from, bytes, state);
    }

    fn with_taken(&mut self, f: impl FnOnce(&mut Self, usize, Points)) {
        let len = self.pair.taken.len() as u64;
        if len > 0 {
            let at = self.rng.below(len) as usize;
            let points = self.points();
            f(self, at, points);
        }
    }

    fn set_state(&mut self, at: usize, _: Points) {
        let state = self.state();
        self.pair.set_state(at, state);
    }

    fn grow(&mut self, at: usize, _: Points) {
        let more = self.size() - 1;
        self.pair.grow(at, more);
    }

    // By value like its siblings in the table.
    #[allow(clippy::needless_pass_by_value)]
    fn shrink(&mut self, at: usize, points: Points) {
        let new = self.size();
        self.pair.shrink(at, new, &points);
    }

    fn reap(&mut self, one: bool) {
        let only = one.then(|| self.stream());
        for stream in 0..STREAMS {
            if only.is_none_or(|only| only.0 == stream) {
                let at = stream as usize;
                let ahead = self.submitted[at] - self.reached[at];
                self.reached[at] += self.rng.below(ahead + 1);
            }
        }
        self.pair.reap(&self.reached, only);
    }
}

fn swarm(seed: u64, ops: u64) {
    let mut rng = Rng(seed);
    let weights = OPS.map(|(_, weight)| weight * rng.pick(&[0, 1, 1, 2, 8]));
    let unit = rng.pick(&[1, 1, 7, 256]);
    let streams = [1; STREAMS as usize];
    let mut swarm =
        Swarm { rng, pair: Pair::default(), submitted: streams, reached: streams, unit };
    swarm.add(false);
    let sum: u64 = weights.iter().sum::<u64>().max(1);
    for done in 0..ops {
        let mut ticket = swarm.rng.below(sum);
        let chosen = weights.iter().position(|weight| {
            let here = ticket < *weight;
            ticket = ticket.saturating_sub(*weight);
            here
        });
        OPS[chosen.unwrap_or(0)].0(&mut swarm);
        swarm.pair.ranges.check().unwrap();
        if done % 4 == 0 {
            swarm.pair.assert_sound();
        }
    }
    swarm.pair.finish();
}

#[test]
fn random_operations_leave_the_index_equal_to_the_naive_model() {
    let env = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = env("TERRANE_RANGE_SEED").unwrap_or(now.as_nanos() as u64);
    let ops = env("TERRANE_RANGE_OPS").unwrap_or(100_000);
    let mut rng = Rng(seed);
    for at in 0..ops.div_ceil(OPS_IN_SWARM) {
        let seed = if at == 0 { seed } else { rng.next() };
        println!(
            "TERRANE_RANGE_SEED={seed} TERRANE_RANGE_OPS={OPS_IN_SWARM} \
             cargo test -p terrane-core random_operations_leave_the_index"
        );
        swarm(seed, OPS_IN_SWARM);
    }
}
