//! Random operations on the index and on the model, with weights drawn anew for every swarm.

use super::model::{Model, Part};
use super::{point, points};
use crate::point::{Points, StreamId};
use crate::range::{Fit, Home, NO_OWNER, NodeId, Ranges, SegmentId, State};
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

#[derive(Clone, Copy, Debug)]
enum Op {
    AddSegment,
    AddFull,
    Extend,
    RemoveSegment,
    Take,
    TakeWaiting,
    TakeJoin,
    Steal,
    Free,
    SetState,
    Use,
    Grow,
    Shrink,
    Reap,
    ReapStream,
}

const OPS: [(Op, u64); 15] = [
    (Op::AddSegment, 1),
    (Op::AddFull, 1),
    (Op::Extend, 1),
    (Op::RemoveSegment, 1),
    (Op::Take, 16),
    (Op::TakeWaiting, 2),
    (Op::TakeJoin, 4),
    (Op::Steal, 2),
    (Op::Free, 12),
    (Op::SetState, 1),
    (Op::Use, 4),
    (Op::Grow, 2),
    (Op::Shrink, 2),
    (Op::Reap, 1),
    (Op::ReapStream, 2),
];

struct Swarm {
    rng: Rng,
    ranges: Ranges,
    model: Model,
    /// Taken nodes and where the model has them.
    taken: Vec<(NodeId, SegmentId, u64, u32)>,
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

    fn home(&mut self) -> Home {
        match self.rng.below(6) {
            0..3 => Home::Done,
            3..5 => Home::Stream(StreamId(self.rng.below(STREAMS.into()) as u32)),
            _ => Home::Shared,
        }
    }

    fn state(&mut self) -> State {
        self.rng.pick(&[State::Mapping, State::Live, State::Live, State::Pending, State::Stale])
    }

    fn some_points(&mut self) -> Points {
        let mut set = Points::NONE;
        for _ in 0..self.rng.pick(&[0, 0, 1, 1, 1, 2, 3]) {
            let stream = self.rng.below(STREAMS.into()) as usize;
            self.submitted[stream] += self.rng.below(2);
            set.insert(point(stream as u32, self.submitted[stream]));
        }
        set
    }

    fn some_segment(&mut self) -> Option<SegmentId> {
        let segments: Vec<_> = self.ranges.segments().collect();
        (!segments.is_empty()).then(|| self.rng.pick(&segments))
    }

    fn own(&mut self, node: NodeId, segment: SegmentId, offset: u64) {
        let owner = self.rng.next() as u32;
        assert_eq!(self.ranges.owner(node), NO_OWNER);
        self.ranges.set_owner(node, owner);
        self.taken.push((node, segment, offset, owner));
    }

    fn take(&mut self, fit: Fit) {
        let state = self.state();
        let segment = self.ranges.segment(fit.node);
        let (node, waits) = self.ranges.take(fit, state);
        assert_eq!(waits, self.model.take(segment, fit.offset, fit.bytes, state));
        self.own(node, segment, fit.offset);
    }

    fn add(&mut self, full: bool) {
        if self.model.segments.len() >= 6 {
            return;
        }
        let len = self.size() * 4;
        if full {
            let taken = (1 + self.rng.below(len / self.unit)) * self.unit;
            let (segment, node) = self.ranges.add_segment_full(len, taken);
            let rest = Part::free(taken, len - taken, Points::NONE);
            let head = Part { state: State::Mapping, ..Part::free(0, taken, Points::NONE) };
            let parts = [head, rest].into_iter().filter(|part| part.bytes > 0).collect();
            assert!(self.model.segments.insert(segment, parts).is_none());
            self.own(node, segment, 0);
        } else {
            let segment = self.ranges.add_segment(len);
            let parts = vec![Part::free(0, len, Points::NONE)];
            assert!(self.model.segments.insert(segment, parts).is_none());
        }
    }

    fn extend(&mut self) {
        let Some(segment) = self.some_segment() else { return };
        let (len, more) = (self.ranges.segment_len(segment), self.size());
        if len > 1 << 16 {
            return;
        }
        assert!(self.ranges.extend_segment(segment, more));
        let parts = self.model.segments.get_mut(&segment).unwrap();
        parts.push(Part::free(len, more, Points::NONE));
        self.model.coalesce();
    }

    fn remove_segment(&mut self) {
        let Some(segment) = self.some_segment() else { return };
        let parts = &self.model.segments[&segment];
        let removable = parts.len() == 1 && parts[0].state == State::Free;
        let result = self.ranges.remove_segment(segment);
        assert_eq!(result.clone().ok(), removable.then(|| parts[0].points.clone()));
        if removable {
            self.model.segments.remove(&segment);
        }
    }

    fn find_and_take(&mut self) {
        let (bytes, align, home) = (self.size(), self.align(), self.home());
        let found = self.ranges.find(bytes, align, home);
        self.model.assert_found(&self.ranges, found, (bytes, align, home));
        if let Some(fit) = found {
            self.take(fit);
        }
    }

    fn find_waiting(&mut self) {
        let (bytes, align) = (self.size(), self.align());
        let own = Some(StreamId(self.rng.below(STREAMS.into()) as u32));
        let found = self.ranges.find_waiting(bytes, align, own);
        let others = (0..STREAMS).map(StreamId).filter(|stream| Some(*stream) != own);
        let mut homes: Vec<_> = others.map(Home::Stream).collect();
        homes.push(Home::Shared);
        homes.retain(|home| !self.model.fits(bytes, align, *home).is_empty());
        assert_eq!(found.is_some(), !homes.is_empty());
        if let Some(fit) = found {
            let home = Home::of(self.ranges.points(fit.node));
            assert!(homes.contains(&home), "{home:?} has no fit or was not asked for");
            assert!(home != Home::Shared || homes.len() == 1, "shared before {homes:?}");
            self.take(fit);
        }
    }

    fn find_join(&mut self) {
        let (bytes, align) = (self.size(), self.align());
        let own = [None, Some(StreamId(0))][self.rng.below(2) as usize];
        let found = self.ranges.find_join_for(bytes, align, own);
        let naive = self.model.join(bytes, align, own);
        let cost = found.as_ref().map(|join| {
            let (first, last) = (self.ranges.view(join.first), self.ranges.view(join.last));
            let span = last.offset + last.bytes - first.offset;
            (join.waits, span, self.ranges.segment(join.first), first.offset, join.offset)
        });
        assert_eq!(cost, naive);
        if let Some(join) = found {
            let (segment, offset) = (self.ranges.segment(join.first), join.offset);
            let state = self.state();
            let (node, waits) = self.ranges.take_join(join, state);
            assert_eq!(waits, self.model.take(segment, offset, bytes, state));
            self.own(node, segment, offset);
        }
    }

    /// Takes any part of any free node.
    fn steal(&mut self) {
        let free = self.ranges.segments().flat_map(|segment| self.ranges.iter(segment));
        let free: Vec<_> = free.filter(|node| node.state == State::Free).collect();
        if free.is_empty() {
            return;
        }
        let node = self.rng.pick(&free);
        let from = self.rng.below(node.bytes);
        let bytes = 1 + self.rng.below(node.bytes - from);
        let fit = Fit { node: node.id, offset: node.offset + from, bytes };
        self.take(fit);
    }

    fn with_taken(&mut self, f: impl FnOnce(&mut Self, usize)) {
        if !self.taken.is_empty() {
            let at = self.rng.below(self.taken.len() as u64) as usize;
            let (node, _, _, owner) = self.taken[at];
            assert_eq!(self.ranges.owner(node), owner, "somebody else's user word");
            f(self, at);
        }
    }

    fn free(&mut self, at: usize) {
        let (node, segment, offset, _) = self.taken.swap_remove(at);
        let points = self.some_points();
        let free = self.ranges.free(node, points.clone());
        self.model.free(segment, offset, &points);
        let view = self.ranges.view(free);
        assert!(view.offset <= offset && offset < view.offset + view.bytes);
    }

    fn change_state(&mut self, at: usize) {
        let (node, segment, offset, _) = self.taken[at];
        let state = self.state();
        self.ranges.set_state(node, state);
        self.model.part(segment, offset).state = state;
    }

    fn record_use(&mut self, at: usize) {
        let (node, segment, offset, _) = self.taken[at];
        let points = self.some_points();
        self.ranges.points_mut(node).merge(&points);
        self.model.part(segment, offset).points.merge(&points);
    }

    fn grow(&mut self, at: usize) {
        let (node, segment, offset, _) = self.taken[at];
        let old = self.ranges.bytes(node);
        let new = old + self.size();
        let parts = &self.model.segments[&segment];
        let after = parts.iter().skip_while(|part| part.offset <= offset);
        let room: u64 =
            after.take_while(|part| part.state == State::Free).map(|part| part.bytes).sum();
        let before = self.ranges.growth(node, new);
        let waits = self.ranges.grow_in_place(node, new);
        assert_eq!(before, waits);
        assert_eq!(waits.is_some(), room >= new - old);
        if let Some(waits) = waits {
            let naive = self.model.take(segment, offset + old, new - old, State::Live);
            assert_eq!(waits, naive);
            let parts = self.model.segments.get_mut(&segment).unwrap();
            parts.retain(|part| part.offset != offset + old);
            self.model.part(segment, offset).bytes = new;
        }
    }

    fn shrink(&mut self, at: usize) {
        let (node, segment, offset, _) = self.taken[at];
        let old = self.ranges.bytes(node);
        let new = 1 + self.rng.below(old);
        let points = self.some_points();
        self.ranges.shrink(node, new, points.clone());
        if new < old {
            let part = self.model.part(segment, offset);
            part.bytes = new;
            let mut tail = Part::free(offset + new, old - new, part.points.clone());
            tail.points.merge(&points);
            let parts = self.model.segments.get_mut(&segment).unwrap();
            let at = parts.iter().position(|part| part.offset == offset).unwrap();
            parts.insert(at + 1, tail);
            self.model.coalesce();
        }
    }

    fn reap(&mut self) {
        for stream in 0..STREAMS as usize {
            let ahead = self.submitted[stream] - self.reached[stream];
            self.reached[stream] += self.rng.below(ahead + 1);
        }
        let reached = self.reached;
        let done = self.ranges.reap(&mut |p| p.value <= reached[p.stream.0 as usize]);
        assert_eq!(done, self.model.reap(|p| p.value <= reached[p.stream.0 as usize]));
    }

    fn reap_stream(&mut self) {
        let stream = self.rng.below(STREAMS.into()) as usize;
        let ahead = self.submitted[stream] - self.reached[stream];
        self.reached[stream] += self.rng.below(ahead + 1);
        let (stream, value) = (StreamId(stream as u32), self.reached[stream]);
        let done = self.ranges.reap_stream(stream, value);
        assert_eq!(done, self.model.reap(|p| p.stream == stream && p.value <= value));
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::AddSegment => self.add(false),
            Op::AddFull => self.add(true),
            Op::Extend => self.extend(),
            Op::RemoveSegment => self.remove_segment(),
            Op::Take => self.find_and_take(),
            Op::TakeWaiting => self.find_waiting(),
            Op::TakeJoin => self.find_join(),
            Op::Steal => self.steal(),
            Op::Free => self.with_taken(Self::free),
            Op::SetState => self.with_taken(Self::change_state),
            Op::Use => self.with_taken(Self::record_use),
            Op::Grow => self.with_taken(Self::grow),
            Op::Shrink => self.with_taken(Self::shrink),
            Op::Reap => self.reap(),
            Op::ReapStream => self.reap_stream(),
        }
    }

    fn finish(&mut self) {
        while !self.taken.is_empty() {
            self.free(0);
        }
        self.ranges.reap(&mut |_| true);
        self.model.reap(|_| true);
        self.model.assert_same(&self.ranges);
        self.ranges.check().unwrap();
        assert_eq!(self.ranges.nodes(), self.model.segments.len());
        for segment in self.ranges.segments().collect::<Vec<_>>() {
            assert_eq!(self.ranges.remove_segment(segment), Ok(points([])));
        }
        assert_eq!((self.ranges.nodes(), self.ranges.total_free()), (0, 0));
        self.ranges.check().unwrap();
    }
}

fn swarm(seed: u64, ops: u64) {
    let mut rng = Rng(seed);
    let weights = OPS.map(|(_, weight)| weight * rng.pick(&[0, 1, 1, 2, 8]));
    let unit = rng.pick(&[1, 1, 7, 256]);
    let mut swarm = Swarm {
        rng,
        ranges: Ranges::new(),
        model: Model::default(),
        taken: Vec::new(),
        submitted: [1; STREAMS as usize],
        reached: [0; STREAMS as usize],
        unit,
    };
    swarm.add(false);
    let sum: u64 = weights.iter().sum::<u64>().max(1);
    for done in 0..ops {
        let mut ticket = swarm.rng.below(sum);
        let chosen = weights.iter().position(|weight| {
            let here = ticket < *weight;
            ticket = ticket.saturating_sub(*weight);
            here
        });
        swarm.step(OPS[chosen.unwrap_or(0)].0);
        swarm.ranges.check().unwrap();
        if done % 4 == 0 {
            swarm.model.assert_same(&swarm.ranges);
        }
    }
    swarm.finish();
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
