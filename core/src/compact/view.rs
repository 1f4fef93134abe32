//! What a plan is made from: plain data about one pool.

use super::report::Why;

/// The segments of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolView {
    /// In the pool's order.
    pub segments: Vec<SegmentView>,
}

/// One segment, tiled by its parts in order of address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentView {
    /// The pool's number for it.
    pub id: u32,
    /// Bytes.
    pub bytes: u64,
    /// Its parts; no two free ones are neighbours.
    pub parts: Vec<Part>,
}

/// A part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First byte in the segment.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// What is there.
    pub what: What,
}

/// What a part of a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Free, perhaps still behind work that a copy can wait for.
    Free,
    /// A block that may move.
    Movable {
        /// Its slot.
        owner: u32,
        /// What its offset has to stay a multiple of.
        align: u64,
    },
    /// A block that may not.
    Fixed {
        /// Its slot.
        owner: u32,
        /// Why not.
        why: Why,
    },
    /// Neither block nor free: the place of another move.
    Busy,
}

impl Part {
    /// The end, in bytes from the start of the segment.
    pub const fn end(&self) -> u64 {
        self.offset + self.bytes
    }

    /// Whether it is free.
    pub const fn is_free(&self) -> bool {
        matches!(self.what, What::Free)
    }

    /// Whether a block is there that may move.
    pub const fn is_movable(&self) -> bool {
        matches!(self.what, What::Movable { .. })
    }

    /// Bytes that are free.
    pub const fn free(&self) -> u64 {
        if self.is_free() { self.bytes } else { 0 }
    }

    /// Bytes of a block that may move.
    pub const fn movable(&self) -> u64 {
        if self.is_movable() { self.bytes } else { 0 }
    }

    /// Room after rounding its start up to `align`.
    pub const fn room(&self, align: u64) -> u64 {
        let padding = self.offset.wrapping_neg() & (align - 1);
        if self.is_free() { self.bytes.saturating_sub(padding) } else { 0 }
    }
}

impl SegmentView {
    /// A segment with these taken parts, in any order; everything else is free. Parts that
    /// overlap or reach over the end, as a view taken while the pool changes can have, are cut.
    pub fn new(id: u32, bytes: u64, mut taken: Vec<Part>) -> Self {
        taken.sort_unstable_by_key(|part| part.offset);
        let mut parts: Vec<Part> = Vec::with_capacity(taken.len() * 2 + 1);
        let mut at = 0;
        for part in taken {
            let (offset, end) = (part.offset.max(at), part.end().min(bytes));
            if end <= offset {
                continue;
            }
            if offset > at {
                parts.push(Part { offset: at, bytes: offset - at, what: What::Free });
            }
            // A part that was cut is no block as a whole.
            let whole = offset == part.offset && end == part.end();
            let what = if whole { part.what } else { What::Busy };
            parts.push(Part { offset, bytes: end - offset, what });
            at = end;
        }
        if at < bytes {
            parts.push(Part { offset: at, bytes: bytes - at, what: What::Free });
        }
        Self { id, bytes, parts }
    }

    /// Whether nothing in it is taken.
    pub fn is_wholly_free(&self) -> bool {
        self.parts.iter().all(Part::is_free)
    }

    /// Free bytes.
    pub fn free(&self) -> u64 {
        self.parts.iter().map(Part::free).sum()
    }

    /// The largest free part in bytes.
    pub fn largest_free(&self) -> u64 {
        self.parts.iter().map(Part::free).max().unwrap_or(0)
    }
}

impl PoolView {
    /// Free bytes of the segments in use, and the largest free range in them: what external
    /// fragmentation is made of.
    pub fn free_in_use(&self) -> (u64, u64) {
        let used = self.segments.iter().filter(|segment| !segment.is_wholly_free());
        used.fold((0, 0), |(free, largest), segment| {
            (free + segment.free(), largest.max(segment.largest_free()))
        })
    }

    /// 1 - largest free range / free bytes, over the segments in use; 0 where nothing is free.
    pub fn fragmentation(&self) -> f64 {
        let (free, largest) = self.free_in_use();
        if free == 0 { 0.0 } else { 1.0 - largest as f64 / free as f64 }
    }

    /// The highest segment in use and the end of its last part that is not free: what a plan
    /// never raises. `None` when nothing is taken.
    pub fn top(&self) -> Option<(usize, u64)> {
        self.segments.iter().enumerate().rev().find_map(|(at, segment)| {
            let last = segment.parts.iter().rfind(|part| !part.is_free())?;
            Some((at, last.end()))
        })
    }
}
