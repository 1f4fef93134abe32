//! Tables of mappings: which bytes of which memory object lie at a place.

use std::collections::BTreeMap;

use crate::device::Place;

/// A piece of a memory object and the place that it was named by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) memory: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) at: Place,
}

impl Piece {
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.memory == other.memory
            && self.offset < other.offset + other.bytes
            && other.offset < self.offset + self.bytes
    }

    /// Whether both were named by some of the same addresses: bytes that are mapped twice are
    /// the same by [`overlaps`](Self::overlaps), not by this.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.at.space == other.at.space
            && self.at.offset < other.at.offset + other.bytes
            && other.at.offset < self.at.offset + self.bytes
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Mapping {
    pub(crate) bytes: u64,
    pub(crate) memory: u64,
    pub(crate) memory_offset: u64,
}

pub(crate) type Mappings = BTreeMap<u64, Mapping>;

/// Mappings that overlap a range, in order; the range does not wrap.
pub(crate) fn covering(
    mappings: &Mappings,
    offset: u64,
    bytes: u64,
) -> impl Iterator<Item = (u64, Mapping)> + '_ {
    let first = mappings
        .range(..=offset)
        .next_back()
        .filter(|(start, mapping)| *start + mapping.bytes > offset)
        .map_or(offset, |(start, _)| *start);
    mappings.range(first..offset + bytes).map(|(start, mapping)| (*start, *mapping))
}

/// What lies under a range, or `None` where some of it is not mapped.
pub(crate) fn pieces(mappings: &Mappings, place: Place, bytes: u64) -> Option<Vec<Piece>> {
    let end = place.offset.checked_add(bytes)?;
    let mut at = place.offset;
    let mut found = Vec::new();
    for (start, mapping) in covering(mappings, place.offset, bytes) {
        if start > at {
            return None;
        }
        let until = end.min(start + mapping.bytes);
        found.push(Piece {
            memory: mapping.memory,
            offset: mapping.memory_offset + (at - start),
            bytes: until - at,
            at: Place { space: place.space, offset: at },
        });
        at = until;
    }
    (at == end).then_some(found)
}
