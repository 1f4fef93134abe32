//! The index and the model side by side: every operation is done on both and compared.

use super::model::{Model, Part};
use crate::point::{Points, StreamId};
use crate::range::{Fit, Home, NO_OWNER, NodeId, Ranges, SegmentId, State};
use crate::units::Align;

/// A taken node, and where the model has it.
#[derive(Clone, Copy)]
pub struct Taken {
    node: NodeId,
    segment: SegmentId,
    offset: u64,
    owner: u32,
}

#[derive(Default)]
pub struct Pair {
    pub ranges: Ranges,
    pub model: Model,
    pub taken: Vec<Taken>,
    /// The last user word given.
    owner: u32,
}

impl Pair {
    pub fn add(&mut self, len: u64) {
        let segment = self.ranges.add_segment(len);
        let parts = vec![Part::free(0, len, Points::NONE)];
        assert!(self.model.segments.insert(segment, parts).is_none());
    }

    pub fn add_full(&mut self, len: u64, taken: u64) {
        let (segment, node) = self.ranges.add_segment_full(len, taken);
        let rest = Part::free(taken, len - taken, Points::NONE);
        let head = Part { state: State::Mapping, ..Part::free(0, taken, Points::NONE) };
        let parts = [head, rest].into_iter().filter(|part| part.bytes > 0).collect();
        assert!(self.model.segments.insert(segment, parts).is_none());
        self.own(node, segment, 0);
    }

    pub fn extend(&mut self, segment: SegmentId, more: u64) {
        let len = self.ranges.segment_len(segment);
        assert!(self.ranges.extend_segment(segment, more));
        let parts = self.model.segments.get_mut(&segment).unwrap();
        parts.push(Part::free(len, more, Points::NONE));
        self.model.coalesce();
    }

    pub fn remove(&mut self, segment: SegmentId) {
        let parts = &self.model.segments[&segment];
        let removable = parts.len() == 1 && parts[0].state == State::Free;
        let result = self.ranges.remove_segment(segment);
        assert_eq!(result.ok(), removable.then(|| parts[0].points.clone()));
        if removable {
            self.model.segments.remove(&segment);
        }
    }

    /// Gives a taken node a user word that nobody else has.
    fn own(&mut self, node: NodeId, segment: SegmentId, offset: u64) {
        self.owner += 1;
        assert_eq!(self.ranges.owner(node), NO_OWNER);
        assert!(self.ranges.points(node).is_empty());
        self.ranges.set_owner(node, self.owner);
        self.taken.push(Taken { node, segment, offset, owner: self.owner });
    }

    /// Picks a taken node, whose user word must be the one it was given.
    fn at(&self, at: usize) -> Taken {
        let taken = self.taken[at];
        assert_eq!(self.ranges.owner(taken.node), taken.owner, "somebody else's user word");
        taken
    }

    pub fn take(&mut self, fit: Fit, state: State) {
        let segment = self.ranges.segment(fit.node);
        let (node, waits) = self.ranges.take(fit, state);
        assert_eq!(waits, self.model.take(segment, fit.offset, fit.bytes, state));
        self.own(node, segment, fit.offset);
    }

    /// Takes the `nth` free node from `from` on, `bytes` long or as much as there is.
    pub fn take_inside(&mut self, nth: usize, from: u64, bytes: u64, state: State) -> bool {
        let all = self.ranges.segments().flat_map(|segment| self.ranges.iter(segment));
        let free: Vec<_> = all.filter(|node| node.state == State::Free).collect();
        let Some(node) = free.get(nth % free.len().max(1)) else { return false };
        let from = from % node.bytes;
        let bytes = bytes.clamp(1, node.bytes - from);
        let fit = Fit { node: node.id, offset: node.offset + from, bytes };
        self.take(fit, state);
        true
    }

    pub fn find_and_take(&mut self, bytes: u64, align: Align, home: Home, state: State) -> bool {
        let found = self.ranges.find(bytes, align, home);
        self.model.assert_found(&self.ranges, found, (bytes, align, home));
        if let Some(fit) = found {
            self.take(fit, state);
        }
        found.is_some()
    }

    pub fn find_waiting(&mut self, bytes: u64, align: Align, own: StreamId, state: State) -> bool {
        let found = self.ranges.find_waiting(bytes, align, Some(own));
        let homes = self.model.homes();
        let homes = homes.filter(|home| *home != Home::Done && *home != Home::Stream(own));
        let fitting = homes.filter(|home| !self.model.fits(bytes, align, *home).is_empty());
        let fitting: Vec<_> = fitting.collect();
        assert_eq!(found.is_some(), !fitting.is_empty());
        if let Some(fit) = found {
            let home = Home::of(self.ranges.points(fit.node));
            assert!(fitting.contains(&home), "{home:?} has no fit or was not asked for");
            let shared = home == Home::Shared;
            assert!(!shared || fitting.iter().all(|home| *home == Home::Shared), "{fitting:?}");
            self.take(fit, state);
        }
        found.is_some()
    }

    pub fn find_join(
        &mut self,
        bytes: u64,
        align: Align,
        own: Option<StreamId>,
        state: State,
    ) -> bool {
        let found = self.ranges.find_join_for(bytes, align, own);
        let cost = found.as_ref().map(|join| {
            let (first, last) = (self.ranges.view(join.first), self.ranges.view(join.last));
            let span = last.offset + last.bytes - first.offset;
            (join.waits, span, self.ranges.segment(join.first), first.offset, join.offset)
        });
        assert_eq!(cost, self.model.join(bytes, align, own));
        let Some(join) = found else { return false };
        let (segment, offset) = (self.ranges.segment(join.first), join.offset);
        let (node, waits) = self.ranges.take_join(join, state);
        assert_eq!(waits, self.model.take(segment, offset, bytes, state));
        self.own(node, segment, offset);
        true
    }

    pub fn free(&mut self, at: usize, points: &Points) {
        let Taken { node, segment, offset, .. } = self.at(at);
        self.taken.swap_remove(at);
        let free = self.ranges.free(node, points.clone());
        self.model.free(segment, offset, points);
        let view = self.ranges.view(free);
        assert!(view.offset <= offset && offset < view.offset + view.bytes);
    }

    pub fn set_state(&mut self, at: usize, state: State) {
        let Taken { node, segment, offset, .. } = self.at(at);
        self.ranges.set_state(node, state);
        self.model.part(segment, offset).state = state;
    }

    pub fn record_use(&mut self, at: usize, points: &Points) {
        let Taken { node, segment, offset, .. } = self.at(at);
        self.ranges.points_mut(node).merge(points);
        self.model.part(segment, offset).points.merge(points);
    }

    pub fn grow(&mut self, at: usize, more: u64) -> bool {
        let Taken { node, segment, offset, .. } = self.at(at);
        let old = self.ranges.bytes(node);
        let parts = &self.model.segments[&segment];
        let after = parts.iter().skip_while(|part| part.offset <= offset);
        let free = after.take_while(|part| part.state == State::Free);
        let room: u64 = free.map(|part| part.bytes).sum();
        let before = self.ranges.growth(node, old + more);
        let waits = self.ranges.grow_in_place(node, old + more);
        assert_eq!(before, waits);
        assert_eq!(waits.is_some(), room >= more);
        let Some(waits) = waits else { return false };
        if more > 0 {
            assert_eq!(waits, self.model.take(segment, offset + old, more, State::Live));
            let parts = self.model.segments.get_mut(&segment).unwrap();
            parts.retain(|part| part.offset != offset + old);
            self.model.part(segment, offset).bytes += more;
        }
        true
    }

    pub fn shrink(&mut self, at: usize, new: u64, points: &Points) {
        let Taken { node, segment, offset, .. } = self.at(at);
        let old = self.ranges.bytes(node);
        self.ranges.shrink(node, new, points.clone());
        if new < old {
            let part = self.model.part(segment, offset);
            part.bytes = new;
            let mut tail = Part::free(offset + new, old - new, part.points.clone());
            tail.points.merge(points);
            let parts = self.model.segments.get_mut(&segment).unwrap();
            let at = parts.iter().position(|part| part.offset == offset).unwrap();
            parts.insert(at + 1, tail);
            self.model.coalesce();
        }
    }

    /// Reaps all streams up to the values given, or the one stream.
    pub fn reap(&mut self, reached: &[u64], only: Option<StreamId>) {
        let all = |point: crate::point::SyncPoint| {
            only.is_none_or(|only| only == point.stream)
                && point.value <= reached[point.stream.0 as usize]
        };
        let done = match only {
            Some(stream) => self.ranges.reap_stream(stream, reached[stream.0 as usize]),
            None => self.ranges.reap(&mut { all }),
        };
        assert_eq!(done, self.model.reap(all));
    }

    pub fn assert_sound(&self) {
        self.ranges.check().unwrap();
        self.model.assert_same(&self.ranges);
    }

    /// Frees and removes everything, after which nothing may be left.
    pub fn finish(&mut self) {
        while !self.taken.is_empty() {
            self.free(self.taken.len() / 2, &Points::NONE);
        }
        self.ranges.reap(&mut |_| true);
        self.model.reap(|_| true);
        self.assert_sound();
        assert_eq!(self.ranges.nodes(), self.model.segments.len());
        for segment in self.ranges.segments().collect::<Vec<_>>() {
            self.remove(segment);
        }
        assert_eq!((self.ranges.nodes(), self.ranges.total_free()), (0, 0));
        self.assert_sound();
    }
}
