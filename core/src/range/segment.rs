//! Segments: adding, growing, removing.

use std::fmt;

use crate::point::Points;

use super::Ranges;
use super::node::{NO_OWNER, Node, NodeId, State};

/// The name of a segment: an index, reused after the segment is removed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub(super) u32);

impl SegmentId {
    /// The index: dense from 0, so that it can number a side table.
    pub const fn index(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "G{}", self.0)
    }
}

/// The segment can not be removed: something in it is taken, or its free parts wait for different
/// streams and have not come together. Free or reap, then ask again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the segment is not one free node: free what is in it, or reap, and ask again")]
pub struct NotFree;

pub(super) struct Segment {
    pub first: NodeId,
    pub last: NodeId,
    pub len: u64,
    pub free: u64,
    /// Whether the id names a segment now.
    pub present: bool,
}

impl Ranges {
    /// Adds a segment of `len` bytes (not 0), all of it free and done.
    pub fn add_segment(&mut self, len: u64) -> SegmentId {
        debug_assert!(len > 0, "an empty segment");
        let segment = self.open_segment(len);
        if len > 0 {
            let node = self.append(segment, len);
            self.settle(node);
            self.segments[segment.0 as usize].free = len;
            self.free += len;
        }
        segment
    }

    /// Adds a segment of `len` bytes whose first `taken` bytes (1 to `len`) are one node in state
    /// [`State::Mapping`]; the rest is free and done.
    pub fn add_segment_full(&mut self, len: u64, taken: u64) -> (SegmentId, NodeId) {
        debug_assert!(0 < taken && taken <= len, "{taken} of {len} bytes taken");
        let taken = taken.min(len);
        let segment = self.open_segment(len);
        let node = self.append(segment, taken);
        if taken < len {
            let rest = self.append(segment, len - taken);
            self.settle(rest);
            self.segments[segment.0 as usize].free = len - taken;
            self.free += len - taken;
        }
        (segment, node)
    }

    /// Makes a segment longer: `more` bytes at its end become free and done.
    ///
    /// Returns whether it fits: `false`, and nothing changes, if the length would overflow.
    pub fn extend_segment(&mut self, segment: SegmentId, more: u64) -> bool {
        let at = segment.0 as usize;
        let Some(len) = self.segments[at].len.checked_add(more) else { return false };
        if more > 0 {
            let node = self.append(segment, more);
            self.segments[at].len = len;
            self.segments[at].free += more;
            self.free += more;
            self.settle(node);
        }
        true
    }

    /// Removes a segment that is one free node, and gives the points that node waits for.
    ///
    /// # Errors
    /// [`NotFree`] when it is anything else; then nothing changes.
    pub fn remove_segment(&mut self, segment: SegmentId) -> Result<Points, NotFree> {
        let at = segment.0 as usize;
        let Segment { first, last, len, present, .. } = self.segments[at];
        debug_assert!(present, "{segment:?} is gone");
        if !present || first != last {
            return Err(NotFree);
        }
        let mut points = Points::NONE;
        if let Some(node) = first.some() {
            if !self.nodes[node].is_free() {
                return Err(NotFree);
            }
            self.unlink(node);
            points = std::mem::take(&mut self.nodes[node].points);
            self.nodes.remove(node);
        }
        self.free -= len;
        self.segments[at] = Segment { present: false, ..Segment::EMPTY };
        self.vacant_segments.push(segment);
        Ok(points)
    }

    fn open_segment(&mut self, len: u64) -> SegmentId {
        let entry = Segment { len, ..Segment::EMPTY };
        if let Some(segment) = self.vacant_segments.pop() {
            self.segments[segment.0 as usize] = entry;
            return segment;
        }
        self.segments.push(entry);
        SegmentId((self.segments.len() - 1) as u32)
    }

    /// A new node at the end of a segment, in state mapping, counted nowhere yet.
    pub(super) fn append(&mut self, segment: SegmentId, bytes: u64) -> NodeId {
        let last = self.segments[segment.0 as usize].last;
        let offset = last.some().map_or(0, |last| self.nodes[last].end());
        let node = self.nodes.insert(Node {
            offset,
            bytes,
            points: Points::NONE,
            prev: last,
            next: NodeId::NONE,
            segment,
            back: NO_OWNER,
            forward: NodeId::NONE,
            state: State::Mapping,
        });
        let entry = &mut self.segments[segment.0 as usize];
        entry.last = node;
        match last.some() {
            Some(last) => self.nodes[last].next = node,
            None => entry.first = node,
        }
        node
    }
}

impl Segment {
    const EMPTY: Self =
        Self { first: NodeId::NONE, last: NodeId::NONE, len: 0, free: 0, present: true };
}
