//! Operations on the index and on the model, drawn from random numbers or from bytes.

use super::pair::Pair;
use super::point;
use crate::point::{Points, StreamId};
use crate::range::{Home, SegmentId, State};
use crate::units::Align;

const STREAMS: u32 = 4;

/// Where choices come from.
pub enum Draw {
    /// SplitMix64.
    Seed(u64),
    /// One to eight bytes for each choice; 0 once there are none left.
    Bytes(std::vec::IntoIter<u8>),
}

impl Draw {
    pub fn next(&mut self) -> u64 {
        match self {
            Self::Seed(state) => {
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut z = *state;
                z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
                z ^ z >> 31
            }
            Self::Bytes(bytes) => bytes.take(8).fold(0, |sum, byte| sum << 8 | u64::from(byte)),
        }
    }

    pub fn below(&mut self, end: u64) -> u64 {
        match self {
            Self::Bytes(bytes) if end <= 1 << 16 => {
                let few = if end <= 1 << 8 { 1 } else { 2 };
                bytes.take(few).fold(0, |sum, byte| sum << 8 | u64::from(byte)) % end
            }
            _ => self.next() % end,
        }
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Whether all bytes are used up.
    pub fn is_over(&self) -> bool {
        matches!(self, Self::Bytes(bytes) if bytes.as_slice().is_empty())
    }
}

pub type Op = fn(&mut Swarm);

/// What is done, and how often when the swarm does not say otherwise.
pub const OPS: [(Op, u64); 15] = [
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

pub struct Swarm {
    pub draw: Draw,
    pub pair: Pair,
    /// The last value submitted and the last reached, by stream.
    submitted: [u64; STREAMS as usize],
    reached: [u64; STREAMS as usize],
    /// Sizes are multiples of this.
    unit: u64,
}

impl Swarm {
    /// One segment, sizes in multiples of `unit`.
    pub fn new(draw: Draw, unit: u64) -> Self {
        let streams = [1; STREAMS as usize];
        let pair = Pair::default();
        let mut swarm = Self { draw, pair, submitted: streams, reached: streams, unit };
        swarm.add(false);
        swarm
    }

    fn size(&mut self) -> u64 {
        let power = self.draw.below(10);
        (1 + self.draw.below(1 << power)) * self.unit
    }

    fn align(&mut self) -> Align {
        let power = if self.draw.below(2) == 0 { 0 } else { self.draw.below(14) };
        Align::new(1 << power).unwrap()
    }

    fn stream(&mut self) -> StreamId {
        StreamId(self.draw.below(STREAMS.into()) as u32)
    }

    fn state(&mut self) -> State {
        self.draw.pick(&[State::Mapping, State::Live, State::Live, State::Pending, State::Stale])
    }

    fn points(&mut self) -> Points {
        let mut set = Points::NONE;
        for _ in 0..self.draw.pick(&[0, 0, 1, 1, 1, 2, 3]) {
            let stream = self.stream();
            let submitted = &mut self.submitted[stream.0 as usize];
            *submitted += self.draw.below(2);
            set.insert(point(stream.0, *submitted));
        }
        set
    }

    fn segment(&mut self) -> Option<SegmentId> {
        let segments: Vec<_> = self.pair.ranges.segments().collect();
        (!segments.is_empty()).then(|| self.draw.pick(&segments))
    }

    fn add(&mut self, full: bool) {
        if self.pair.model.segments.len() >= 6 {
            return;
        }
        let len = self.size() * 4;
        if full {
            let taken = 1 + self.draw.below(len);
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
        let home = self.draw.pick(&[Home::Done, Home::Stream(stream), Home::Shared]);
        self.pair.find_and_take(bytes, align, home, state);
    }

    fn take_waiting(&mut self) {
        let (bytes, align, own, state) = (self.size(), self.align(), self.stream(), self.state());
        self.pair.find_waiting(bytes, align, own, state);
    }

    fn take_join(&mut self) {
        let (bytes, align, stream, state) =
            (self.size(), self.align(), self.stream(), self.state());
        let own = self.draw.pick(&[None, Some(stream)]);
        self.pair.find_join(bytes, align, own, state);
    }

    /// Takes any part of any free node.
    fn steal(&mut self) {
        let (nth, from, bytes, state) =
            (self.draw.next(), self.draw.next(), self.size(), self.state());
        self.pair.take_inside(nth as usize, from, bytes, state);
    }

    fn with_taken(&mut self, f: impl FnOnce(&mut Self, usize, Points)) {
        let len = self.pair.taken.len() as u64;
        if len > 0 {
            let at = self.draw.below(len) as usize;
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
                self.reached[at] += self.draw.below(ahead + 1);
            }
        }
        self.pair.reap(&self.reached, only);
    }
}

/// Whatever operations the bytes say, on both; they are the same after each.
pub fn driven(bytes: &[u8]) {
    let mut draw = Draw::Bytes(Vec::from(bytes).into_iter());
    let unit = draw.pick(&[1, 7, 256]);
    let mut swarm = Swarm::new(draw, unit);
    while !swarm.draw.is_over() {
        let op = swarm.draw.below(OPS.len() as u64) as usize;
        OPS[op].0(&mut swarm);
        swarm.pair.assert_sound();
    }
    swarm.pair.finish();
}
