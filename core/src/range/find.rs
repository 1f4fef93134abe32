//! Finding a free node for a request.
//!
//! The search starts in the request's own bin, where nodes may be too small, and takes the best
//! of the first [`OWN`] entries that fit, or the first that fits without a rest; then the best of
//! the first [`NEXT`] entries of the next bin that holds anything, and so on. *Best* is the
//! smallest, then the lowest segment, then the lowest offset; of nodes that fit without a rest it
//! is the first in the bin's own order, which tends to the lowest. So the same history always
//! gives the same answer. Only when all that fails are the bins that may hold both too
//! small and large enough nodes (one or two, more where the alignment is coarse) looked through
//! to the end, because what follows a miss is far dearer: a search fails only if nothing fits.

use crate::point::StreamId;
use crate::units::Align;

use super::Ranges;
use super::bins::{Bin, Bins};
use super::node::{Home, NodeId};

/// Entries looked at in the request's own bin.
const OWN: u32 = 16;
/// Entries looked at in a further bin.
const NEXT: u32 = 8;
/// Bins looked at before the search jumps to one where everything fits.
const STEPS: u32 = 8;

/// A place for a request: `bytes` at `offset` of a free node's segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// The free node.
    pub node: NodeId,
    /// Where in the segment, aligned as asked; at or after the start of the node.
    pub offset: u64,
    /// How much is to be taken; at most what the node has from there on.
    pub bytes: u64,
}

/// What is looked for.
#[derive(Clone, Copy)]
struct Want {
    bytes: u64,
    align: Align,
}

impl Ranges {
    /// A free node of this home with `bytes` (not 0) at an offset that is a multiple of `align`:
    /// the best fit within the bounds that the module states. `None` if and only if there is no
    /// such node.
    pub fn find(&self, bytes: u64, align: Align, home: Home) -> Option<Fit> {
        debug_assert!(bytes > 0, "a request of no bytes");
        let bins = self.homes.get(home)?;
        // What the search would give, without its set-up: most requests repeat a size.
        let head = bins.head(Bin::of(bytes), &self.homes.rows);
        if let Some(head) = head.some() {
            let node = &self.nodes[head];
            if node.bytes == bytes && align.divides(node.offset) {
                return Some(Fit { node: head, offset: node.offset, bytes });
            }
        }
        self.find_in(bins, Want { bytes, align })
    }

    /// A free node that some other stream's work is still ahead of: the smallest that fits of the
    /// best of each stream but `own` (ties by stream), else the best shared one. O(streams with
    /// free nodes).
    pub fn find_waiting(&self, bytes: u64, align: Align, own: Option<StreamId>) -> Option<Fit> {
        debug_assert!(bytes > 0, "a request of no bytes");
        let want = Want { bytes, align };
        self.homes
            .streams()
            .filter(|(stream, _)| Some(*stream) != own)
            .filter_map(|(_, bins)| self.find_in(bins, want))
            .min_by_key(|fit| self.nodes[fit.node].bytes)
            .or_else(|| self.find_in(&self.homes.shared, want))
    }

    fn find_in(&self, bins: &Bins, want: Want) -> Option<Fit> {
        let rows = &self.homes.rows;
        let own = Bin::of(want.bytes);
        // In every later bin a node has room for the request at any alignment.
        let sure = Bin::of(want.bytes.saturating_add(want.align.get() - 1));
        let mut next = bins.next_from(own, rows);
        let mut steps = 0;
        while let Some(bin) = next {
            let limit = if bin == own { OWN } else { NEXT };
            if let Some(fit) = self.best_of(bins, bin, want, limit) {
                return Some(fit);
            }
            steps += 1;
            next = if steps < STEPS || bin >= sure {
                bins.next_after(bin, rows)
            } else {
                bins.next_after(sure, rows)
            };
        }
        let mut next = bins.next_from(own, rows);
        while let Some(bin) = next.filter(|bin| *bin <= sure) {
            if let Some(fit) = self.best_of(bins, bin, want, u32::MAX) {
                return Some(fit);
            }
            next = bins.next_after(bin, rows);
        }
        None
    }

    /// The best of the first `limit` entries of a bin that fit.
    fn best_of(&self, bins: &Bins, bin: Bin, want: Want, limit: u32) -> Option<Fit> {
        let mut at = bins.head(bin, &self.homes.rows);
        let mut best = None;
        let mut best_rank = None;
        let mut seen = 0;
        while at != NodeId::NONE && seen < limit {
            let node = &self.nodes[at];
            let padding = want.align.padding(node.offset);
            if node.bytes >= want.bytes && node.bytes - want.bytes >= padding {
                if best_rank.is_none_or(|best| node.rank() < best) {
                    best_rank = Some(node.rank());
                    let offset = node.offset + padding;
                    best = Some(Fit { node: at, offset, bytes: want.bytes });
                }
                if node.bytes == want.bytes {
                    break;
                }
            }
            at = node.forward;
            seen += 1;
        }
        best
    }
}
