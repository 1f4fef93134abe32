//! The same index done naively: a list of parts per segment, searched from end to end.

use std::collections::BTreeMap;

use crate::point::{Points, StreamId, SyncPoint};
use crate::range::{Fit, Home, Ranges, SegmentId, State};
use crate::units::Align;

#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub offset: u64,
    pub bytes: u64,
    pub state: State,
    pub points: Points,
}

impl Part {
    pub fn free(offset: u64, bytes: u64, points: Points) -> Self {
        Self { offset, bytes, state: State::Free, points }
    }

    fn home(&self) -> Option<Home> {
        (self.state == State::Free).then(|| Home::of(&self.points))
    }

    fn end(&self) -> u64 {
        self.offset + self.bytes
    }
}

/// Where a join is and what it costs: waits, bytes of its nodes, segment, offset of its first
/// node; then the place.
pub type NaiveJoin = (u32, u64, SegmentId, u64, u64);

#[derive(Default)]
pub struct Model {
    pub segments: BTreeMap<SegmentId, Vec<Part>>,
}

impl Model {
    pub fn parts(&self) -> impl Iterator<Item = (SegmentId, &Part)> {
        self.segments.iter().flat_map(|(id, parts)| parts.iter().map(|part| (*id, part)))
    }

    pub fn part(&mut self, segment: SegmentId, offset: u64) -> &mut Part {
        let parts = self.segments.get_mut(&segment).unwrap();
        parts.iter_mut().find(|part| part.offset == offset).unwrap()
    }

    /// Gives `[offset, offset + bytes)`, free parts at present, to one taken part.
    pub fn take(&mut self, segment: SegmentId, offset: u64, bytes: u64, state: State) -> Points {
        let mut waits = Points::NONE;
        let parts = self.segments.get_mut(&segment).unwrap();
        let mut after = Vec::new();
        for part in parts.drain(..) {
            let (from, to) = (part.offset.max(offset), part.end().min(offset + bytes));
            if from >= to {
                after.push(part);
                continue;
            }
            assert_eq!(part.state, State::Free);
            waits.merge(&part.points);
            if part.offset < from {
                after.push(Part::free(part.offset, from - part.offset, part.points.clone()));
            }
            if from == offset {
                after.push(Part { offset, bytes, state, points: Points::NONE });
            }
            if to < part.end() {
                after.push(Part::free(to, part.end() - to, part.points.clone()));
            }
        }
        *parts = after;
        waits
    }

    /// Merges neighbours until nothing is left to merge.
    pub fn coalesce(&mut self) {
        for parts in self.segments.values_mut() {
            let mut at = 1;
            while at < parts.len() {
                if parts[at].home().is_some() && parts[at].home() == parts[at - 1].home() {
                    let gone = parts.remove(at);
                    parts[at - 1].bytes += gone.bytes;
                    parts[at - 1].points.merge(&gone.points);
                } else {
                    at += 1;
                }
            }
        }
    }

    pub fn free(&mut self, segment: SegmentId, offset: u64, points: &Points) {
        let part = self.part(segment, offset);
        part.state = State::Free;
        part.points.merge(points);
        self.coalesce();
    }

    pub fn reap(&mut self, mut reached: impl FnMut(SyncPoint) -> bool) -> u64 {
        let before = self.home_free(Home::Done);
        for part in self.segments.values_mut().flatten().filter(|part| part.home().is_some()) {
            part.points.retain(|point| !reached(*point));
        }
        self.coalesce();
        self.home_free(Home::Done) - before
    }

    pub fn home_free(&self, home: Home) -> u64 {
        let of_home = self.parts().filter(|(_, part)| part.home() == Some(home));
        of_home.map(|(_, part)| part.bytes).sum()
    }

    /// The homes of the free parts.
    pub fn homes(&self) -> impl Iterator<Item = Home> {
        self.parts().filter_map(|(_, part)| part.home())
    }

    /// All places for a request in one home, best first.
    pub fn fits(&self, bytes: u64, align: Align, home: Home) -> Vec<(u64, SegmentId, u64)> {
        let mut fits: Vec<_> = self
            .parts()
            .filter(|(_, part)| part.home() == Some(home))
            .filter(|(_, part)| align.padding(part.offset) + bytes <= part.bytes)
            .map(|(segment, part)| (part.bytes, segment, part.offset))
            .collect();
        fits.sort_unstable();
        fits
    }

    /// The cheapest join.
    pub fn join(&self, bytes: u64, align: Align, own: Option<StreamId>) -> Option<NaiveJoin> {
        let mut best: Option<NaiveJoin> = None;
        for (segment, parts) in &self.segments {
            for first in 0..parts.len() {
                let offset = align.round_up(parts[first].offset).unwrap();
                let mut points = Points::NONE;
                for last in first..parts.len() {
                    if parts[last].home().is_none() || offset >= parts[first].end() {
                        break;
                    }
                    points.merge(&parts[last].points);
                    if parts[last].end() >= offset + bytes {
                        let waits = points.iter().filter(|p| Some(p.stream) != own).count() as u32;
                        let from = parts[first].offset;
                        let cost = (waits, parts[last].end() - from, *segment, from, offset);
                        if last > first && best.is_none_or(|best| cost < best) {
                            best = Some(cost);
                        }
                        break;
                    }
                }
            }
        }
        best
    }

    /// How often two or more free parts follow each other.
    fn runs(&self) -> usize {
        let free = |part: &Part| part.state == State::Free;
        let runs = self.segments.values().flat_map(|parts| parts.split(move |part| !free(part)));
        runs.filter(|run| run.len() > 1).count()
    }

    /// The most bytes in adjacent free parts, and in one.
    pub fn largest(&self) -> (u64, u64) {
        let (mut run, mut one) = (0, 0);
        for parts in self.segments.values() {
            let mut here = 0;
            for part in parts {
                here = if part.state == State::Free { here + part.bytes } else { 0 };
                run = run.max(here);
                one = one.max(if part.state == State::Free { part.bytes } else { 0 });
            }
        }
        (run, one)
    }

    /// Asserts that the index says the same.
    pub fn assert_same(&self, ranges: &Ranges) {
        assert!(ranges.segments().eq(self.segments.keys().copied()));
        for (segment, parts) in &self.segments {
            let view = ranges.iter(*segment).map(|node| Part {
                offset: node.offset,
                bytes: node.bytes,
                state: node.state,
                points: node.points.clone(),
            });
            let view: Vec<_> = view.collect();
            assert_eq!(&view, parts, "{segment:?}");
            let free = parts.iter().filter(|part| part.state == State::Free);
            let free: u64 = free.map(|part| part.bytes).sum();
            assert_eq!(ranges.segment_free(*segment), free, "{segment:?}");
            assert_eq!(ranges.is_wholly_free(*segment), free == ranges.segment_len(*segment));
        }
        let free = self.parts().filter(|(_, part)| part.state == State::Free);
        let free: u64 = free.map(|(_, part)| part.bytes).sum();
        assert_eq!(ranges.total_free(), free);
        assert_eq!(ranges.home_free(Home::Done), self.home_free(Home::Done));
        assert_eq!(ranges.runs().count(), self.runs(), "a run is seen twice or not at all");
        assert_eq!((ranges.largest_run(), ranges.largest_free()), self.largest());
    }

    /// Asserts that what `find` gave is right: there if and only if something fits, and the best
    /// where there are few to choose from.
    pub fn assert_found(&self, ranges: &Ranges, found: Option<Fit>, want: (u64, Align, Home)) {
        let (bytes, align, home) = want;
        let fits = self.fits(bytes, align, home);
        let Some(fit) = found else { return assert!(fits.is_empty(), "{want:?}: {fits:?}") };
        let node = ranges.view(fit.node);
        let rank = (node.bytes, ranges.segment(fit.node), node.offset);
        assert!(fits.contains(&rank), "{want:?}: {fit:?} is not among {fits:?}");
        assert_eq!(fit.bytes, bytes);
        assert_eq!(fit.offset, node.offset + align.padding(node.offset));
        let homed = self.parts().filter(|(_, part)| part.home() == Some(home)).count();
        if homed <= 8 {
            assert_eq!(rank.0, fits[0].0, "{want:?}: not the best fit of {fits:?}");
        }
        if homed <= 8 && rank.0 > bytes {
            assert_eq!(rank, fits[0], "{want:?}: not the lowest of {fits:?}");
        }
    }
}
