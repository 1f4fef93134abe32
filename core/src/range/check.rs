//! The full walk that checks every invariant of the index.

use super::bins::{Bin, Bins};
use super::node::{Home, NodeId};
use super::{Ranges, SegmentId};

/// An invariant that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Each node's neighbours name it as theirs; the first and last node of a segment have none
    /// beyond, and all nodes of a chain name its segment.
    #[error("INV-RANGE-1: neighbours, ends or segment of a node disagree")]
    Links,
    /// The nodes of a segment tile it from 0 to its length, none of them empty.
    #[error("INV-RANGE-2: the nodes do not tile the segment")]
    Tiling,
    /// Adjacent free nodes differ in home.
    #[error("INV-RANGE-3: adjacent free nodes of the same home are not coalesced")]
    Coalescing,
    /// A segment's free bytes are the sum of its free nodes.
    #[error("INV-RANGE-4: the free bytes of a segment are not the sum of its free nodes")]
    SegmentFree,
    /// The total is the sum over segments.
    #[error("INV-RANGE-5: the free bytes in all are not the sum over segments")]
    TotalFree,
    /// Each entry of a bin is a free node of that size and home, and lists are doubly linked.
    #[error("INV-RANGE-6: a bin holds what it should not, or its list is broken")]
    BinEntry,
    /// The bins hold every free node, and their counts of nodes and bytes are the sums.
    #[error("INV-RANGE-7: the bins do not hold exactly the free nodes, or miscount them")]
    BinCount,
    /// Exactly the rows and bins that hold anything are marked, and no row belongs to nobody.
    #[error("INV-RANGE-8: the bitmaps do not mark exactly what is not empty")]
    Bitmap,
    /// Bins of streams are in order, and there are none for a stream without free nodes.
    #[error("INV-RANGE-9: the homes of streams are out of order, or one is empty")]
    Homes,
    /// No free node of a stream's home has a point below the lower bound kept for it.
    #[error("INV-RANGE-10: a free node's point is below the lower bound of its home")]
    Lowest,
    /// The count of boundaries is the number of pairs of adjacent free nodes.
    #[error("INV-RANGE-11: the pairs of adjacent free nodes are miscounted")]
    Boundaries,
    /// Every slot of the slab is in one segment or vacant.
    #[error("INV-RANGE-12: a slot is neither in a segment nor vacant, or both")]
    Slots,
}

/// An invariant that does not hold, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} (node {node:?}, segment {segment:?})")]
pub struct Violation {
    /// What is wrong.
    pub problem: Problem,
    /// The node where it showed, if it is about one.
    pub node: Option<NodeId>,
    /// The segment where it showed, if it is about one.
    pub segment: Option<SegmentId>,
}

impl From<Problem> for Violation {
    fn from(problem: Problem) -> Self {
        Self { problem, node: None, segment: None }
    }
}

/// What the walk over the segments has counted.
#[derive(Default)]
struct Sums {
    nodes: usize,
    free_nodes: usize,
    free: u64,
    boundaries: u32,
}

impl Ranges {
    /// Walks everything and checks every invariant. O(nodes + 60 per home).
    ///
    /// # Errors
    /// The first [`Violation`] found: a bug in this crate, or ids misused.
    pub fn check(&self) -> Result<(), Violation> {
        let mut sums = Sums::default();
        for segment in self.segments() {
            self.check_segment(segment, &mut sums)?;
        }
        ensure(sums.free == self.free, Problem::TotalFree)?;
        ensure(sums.boundaries == self.boundaries, Problem::Boundaries)?;
        self.check_slots(&sums)?;
        self.check_homes(&sums)
    }

    fn check_segment(&self, id: SegmentId, sums: &mut Sums) -> Result<(), Violation> {
        let at = |problem, node| Violation { problem, node, segment: Some(id) };
        let segment = &self.segments[id.0 as usize];
        let (mut prev, mut here, mut end, mut free) = (NodeId::NONE, segment.first, 0_u64, 0);
        while let Some(name) = here.some() {
            let wrong = |problem| at(problem, Some(name));
            let Some(node) = self.nodes.get(name) else { return Err(wrong(Problem::Links)) };
            // More nodes than there are in all: the chain runs in a circle.
            if node.prev != prev || node.segment != id || sums.nodes > self.nodes.slots() {
                return Err(wrong(Problem::Links));
            }
            if node.offset != end
                || node.bytes == 0
                || node.offset.checked_add(node.bytes).is_none()
            {
                return Err(wrong(Problem::Tiling));
            }
            if node.is_free() {
                if let Some(before) = prev.some().filter(|prev| self.nodes[*prev].is_free()) {
                    if self.nodes[before].home() == node.home() {
                        return Err(wrong(Problem::Coalescing));
                    }
                    sums.boundaries += 1;
                }
                sums.free_nodes += 1;
                free += node.bytes;
            }
            sums.nodes += 1;
            end = node.end();
            (prev, here) = (name, node.next);
        }
        ensure(segment.last == prev, at(Problem::Links, prev.some()))?;
        ensure(end == segment.len, at(Problem::Tiling, prev.some()))?;
        ensure(free == segment.free, at(Problem::SegmentFree, None))?;
        sums.free += free;
        Ok(())
    }

    fn check_slots(&self, sums: &Sums) -> Result<(), Violation> {
        let mut vacant = 0;
        let mut here = self.nodes.first_vacant();
        while let Some(slot) = here {
            vacant += 1;
            let node = self.nodes.get(slot).filter(|node| node.bytes == 0);
            let Some(node) = node.filter(|_| vacant <= self.nodes.slots()) else {
                return Err(Problem::Slots.into());
            };
            here = node.next.some();
        }
        let used = self.nodes.len() as usize;
        ensure(sums.nodes == used && used + vacant == self.nodes.slots(), Problem::Slots)
    }

    fn check_homes(&self, sums: &Sums) -> Result<(), Violation> {
        let (mut nodes, mut rows) = (0, 0);
        for (home, bins) in self.homes.all() {
            rows += bins.check_bitmaps(&self.homes.rows)?;
            nodes += self.check_bins(home, bins)?;
        }
        ensure(nodes == sums.free_nodes, Problem::BinCount)?;
        ensure(rows == self.homes.rows.in_use(), Problem::Bitmap)?;
        let streams: Vec<_> = self.homes.streams().map(|(stream, _)| stream).collect();
        let ordered = streams.is_sorted_by(|a, b| a < b);
        ensure(ordered && self.homes.streams().all(|(_, bins)| bins.nodes > 0), Problem::Homes)
    }

    /// The entries of one home, counted.
    fn check_bins(&self, home: Home, bins: &Bins) -> Result<usize, Violation> {
        let rows = &self.homes.rows;
        let (mut count, mut bytes) = (0_usize, 0_u64);
        let mut next = bins.next_from(Bin::FIRST, rows);
        while let Some(bin) = next {
            let (mut back, mut here) = (NodeId::NONE, bins.head(bin, rows));
            while let Some(name) = here.some() {
                let wrong = |problem| Violation { problem, node: Some(name), segment: None };
                let node = self.nodes.get(name).filter(|node| {
                    node.is_free()
                        && node.home() == home
                        && Bin::of(node.bytes) == bin
                        && node.back == back.0
                });
                let Some(node) = node else { return Err(wrong(Problem::BinEntry)) };
                if let ([point], Home::Stream(_)) = (node.points.as_slice(), home) {
                    ensure(point.value >= bins.lowest, wrong(Problem::Lowest))?;
                }
                count += 1;
                bytes += node.bytes;
                (back, here) = (name, node.forward);
            }
            next = bins.next_after(bin, rows);
        }
        ensure(count == bins.nodes as usize && bytes == bins.bytes, Problem::BinCount)?;
        Ok(count)
    }
}

fn ensure(holds: bool, otherwise: impl Into<Violation>) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}
