//! Free nodes of one home, in bins by size.
//!
//! A bin holds the sizes of one of 32 equal steps between two powers of two, so the largest size
//! in a bin is at most 1/32 (3.2 %) above the smallest; below 32 bytes each size has its own. The
//! bins of one power of two are a *row* with a bitmap of the bins that hold anything, and a second
//! bitmap tells which rows there are: the next bin that holds anything is two bit scans away.
//!
//! A bin is a list. An insertion looks at the first [`ORDERED`] entries and puts the new one in
//! order among them (smaller first, then lower segment and offset); beyond them the newest is
//! first. So small, low holes gather at the front, where a bounded search looks.

use super::check::Problem;
use super::node::{NodeId, Slab};

/// Rows there can be: one for sizes below 32, then one for each power of two from 2^5 to 2^63.
const ROWS: usize = 60;
/// Entries of a bin that an insertion puts in order.
pub(super) const ORDERED: u32 = 4;
const NO_ROW: u32 = u32::MAX;

/// The number of a bin, in order of size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bin(u16);

impl Bin {
    pub const FIRST: Self = Self(0);
    /// After the last one.
    pub const END: Self = Self((ROWS as u16) << 5);

    /// The bin that holds nodes of this size.
    #[inline]
    pub const fn of(bytes: u64) -> Self {
        if bytes < 32 {
            return Self(bytes as u16);
        }
        let power = 63 - bytes.leading_zeros();
        let step = (bytes >> (power - 5)) as u16 & 31;
        Self(((power - 4) as u16) << 5 | step)
    }

    /// The next bin by number; after the last one, a bin that holds nothing.
    pub const fn after(self) -> Self {
        Self(self.0 + 1)
    }

    const fn row(self) -> usize {
        (self.0 >> 5) as usize
    }

    const fn column(self) -> u32 {
        self.0 as u32 & 31
    }
}

#[derive(Clone)]
pub(super) struct Row {
    /// Bit `i`: bin `i` holds something. Heads of the other bins mean nothing.
    pub bits: u32,
    pub heads: [NodeId; 32],
}

/// The rows of all homes: a home of a few sizes costs a few rows.
#[derive(Default)]
pub(super) struct Rows {
    pub rows: Vec<Row>,
    vacant: Vec<u32>,
}

impl Rows {
    pub fn open(&mut self) -> u32 {
        if let Some(row) = self.vacant.pop() {
            return row;
        }
        self.rows.push(Row { bits: 0, heads: [NodeId::NONE; 32] });
        (self.rows.len() - 1) as u32
    }

    /// Rows that hold something.
    pub fn in_use(&self) -> usize {
        self.rows.len() - self.vacant.len()
    }
}

#[derive(Clone)]
pub(super) struct Bins {
    /// Bit `i`: row `i` holds something. Row numbers of the others mean nothing.
    pub first: u64,
    rows: [u32; ROWS],
    /// Entries in all bins.
    pub nodes: u32,
    /// Sum of their bytes.
    pub bytes: u64,
    /// Of a home of one stream: no entry's sync point has a lower value (there may be none with
    /// this value any more), so while this one is not reached none is.
    pub lowest: u64,
    /// The lowest value that came in since the last walk over a home of one stream began.
    pub fresh: u64,
}

impl Default for Bins {
    fn default() -> Self {
        Self {
            first: 0,
            rows: [NO_ROW; ROWS],
            nodes: 0,
            bytes: 0,
            lowest: u64::MAX,
            fresh: u64::MAX,
        }
    }
}

impl Bins {
    /// Puts a free node into its bin.
    pub fn insert(&mut self, id: NodeId, nodes: &mut Slab, rows: &mut Rows) {
        let node = &nodes[id];
        let rank = node.rank();
        if let [point] = node.points.as_slice() {
            self.lowest = self.lowest.min(point.value);
            self.fresh = self.fresh.min(point.value);
        }
        self.nodes += 1;
        self.bytes += rank.0;
        let head = self.slot(Bin::of(rank.0), rows);
        let (mut back, mut forward) = (NodeId::NONE, *head);
        for _ in 0..ORDERED {
            if forward == NodeId::NONE {
                break;
            }
            let next = &nodes[forward];
            if next.rank() > rank {
                break;
            }
            (back, forward) = (forward, next.forward);
        }
        let node = &mut nodes[id];
        (node.back, node.forward) = (back.0, forward);
        if forward != NodeId::NONE {
            nodes[forward].back = id.0;
        }
        match back.some() {
            Some(back) => nodes[back].forward = id,
            None => *head = id,
        }
    }

    /// Takes a free node out of its bin; its size must still be the one it went in with.
    pub fn remove(&mut self, id: NodeId, nodes: &mut Slab, rows: &mut Rows) {
        let node = &nodes[id];
        let (back, forward, bytes) = (NodeId(node.back), node.forward, node.bytes);
        self.nodes -= 1;
        self.bytes -= bytes;
        if forward != NodeId::NONE {
            nodes[forward].back = back.0;
        }
        match back.some() {
            Some(back) => nodes[back].forward = forward,
            None => self.set_head(Bin::of(bytes), forward, rows),
        }
    }

    /// The first entry of a bin, or [`NodeId::NONE`].
    #[inline]
    pub fn head(&self, bin: Bin, rows: &Rows) -> NodeId {
        if self.first >> bin.row() & 1 == 0 {
            return NodeId::NONE;
        }
        let row = &rows.rows[self.rows[bin.row()] as usize];
        if row.bits >> bin.column() & 1 == 0 {
            return NodeId::NONE;
        }
        row.heads[bin.column() as usize]
    }

    /// The head of a bin that is about to hold something.
    fn slot<'a>(&mut self, bin: Bin, rows: &'a mut Rows) -> &'a mut NodeId {
        let at = bin.row();
        if self.first >> at & 1 == 0 {
            self.first |= 1 << at;
            self.rows[at] = rows.open();
        }
        let row = &mut rows.rows[self.rows[at] as usize];
        let head = &mut row.heads[bin.column() as usize];
        if row.bits >> bin.column() & 1 == 0 {
            row.bits |= 1 << bin.column();
            *head = NodeId::NONE;
        }
        head
    }

    /// Sets the head of a bin that holds something until now.
    fn set_head(&mut self, bin: Bin, head: NodeId, rows: &mut Rows) {
        let at = bin.row();
        let row = &mut rows.rows[self.rows[at] as usize];
        if head != NodeId::NONE {
            row.heads[bin.column() as usize] = head;
            return;
        }
        row.bits &= !(1 << bin.column());
        if row.bits == 0 {
            self.first &= !(1 << at);
            rows.vacant.push(self.rows[at]);
        }
    }

    /// The first bin from `from` on that holds something.
    #[inline]
    pub fn next_from(&self, from: Bin, rows: &Rows) -> Option<Bin> {
        let mut at = from.row();
        if at >= ROWS {
            return None;
        }
        if self.first >> at & 1 == 1 {
            let bits = rows.rows[self.rows[at] as usize].bits & u32::MAX << from.column();
            if bits != 0 {
                return Some(Bin((at as u16) << 5 | bits.trailing_zeros() as u16));
            }
        }
        at += 1;
        let higher = self.first & u64::MAX << at;
        if higher == 0 {
            return None;
        }
        let at = higher.trailing_zeros();
        let bits = rows.rows[self.rows[at as usize] as usize].bits;
        Some(Bin((at as u16) << 5 | bits.trailing_zeros() as u16))
    }

    /// The first bin after `bin` that holds something.
    pub fn next_after(&self, bin: Bin, rows: &Rows) -> Option<Bin> {
        self.next_from(bin.after(), rows)
    }

    /// The bin of the largest sizes that holds something.
    pub fn last(&self, rows: &Rows) -> Option<Bin> {
        let at = self.first.checked_ilog2()?;
        let column = rows.rows[self.rows[at as usize] as usize].bits.checked_ilog2()?;
        Some(Bin((at as u16) << 5 | column as u16))
    }

    /// Entries of one bin, in its order.
    pub fn entries<'a>(
        &self,
        bin: Bin,
        nodes: &'a Slab,
        rows: &Rows,
    ) -> impl Iterator<Item = NodeId> + use<'a> {
        let mut at = self.head(bin, rows).some();
        std::iter::from_fn(move || {
            let id = at?;
            at = nodes[id].forward.some();
            Some(id)
        })
    }

    /// Entries of all bins, by bin.
    pub fn all<'a>(&'a self, nodes: &'a Slab, rows: &'a Rows) -> impl Iterator<Item = NodeId> + 'a {
        std::iter::successors(self.next_from(Bin::FIRST, rows), |bin| self.next_after(*bin, rows))
            .flat_map(move |bin| self.entries(bin, nodes, rows))
    }

    /// Whether the bitmaps mark exactly what is not empty; the number of rows that are marked.
    pub fn check_bitmaps(&self, rows: &Rows) -> Result<usize, Problem> {
        let mut marked = 0;
        for at in (0..ROWS).filter(|at| self.first >> at & 1 == 1) {
            marked += 1;
            let row = rows.rows.get(self.rows[at] as usize).ok_or(Problem::Bitmap)?;
            let empty = |i: usize| row.bits >> i & 1 == 1 && row.heads[i] == NodeId::NONE;
            if row.bits == 0 || rows.vacant.contains(&self.rows[at]) || (0..32).any(empty) {
                return Err(Problem::Bitmap);
            }
        }
        Ok(marked)
    }

    /// The largest entry's size among the first `most` of the last bin, which differ by 3 %.
    pub fn largest(&self, nodes: &Slab, rows: &Rows, most: usize) -> u64 {
        let Some(bin) = self.last(rows) else { return 0 };
        self.entries(bin, nodes, rows).take(most).map(|id| nodes[id].bytes).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_ordered_by_size_and_three_percent_wide() {
        let mut last = Bin::of(0);
        for bytes in 1..1_u64 << 16 {
            let bin = Bin::of(bytes);
            assert!(bin >= last && bin.0 - last.0 <= 1, "{bytes}");
            last = bin;
        }
        for power in 5..64 {
            let low = 1_u64 << power;
            let step = low / 32;
            assert_eq!(Bin::of(low), Bin::of(low + step - 1));
            assert!(Bin::of(low - 1) < Bin::of(low));
            if step > 0 {
                assert!(Bin::of(low + step) > Bin::of(low));
            }
        }
        assert_eq!(Bin::of(u64::MAX).row(), ROWS - 1);
    }
}
