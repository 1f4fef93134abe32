//! Sync points and small sets of them.
//!
//! A stream is an ordered lane of work; its submissions are numbered from 1. A [`SyncPoint`]
//! names a submission that has been made: it is *reached* when that submission and everything
//! before it on the stream is done. Points are plain data: comparing, keeping and merging them
//! never touches a device.

use std::fmt;

/// A device-wide stream number, given out by [`Device::create_stream`] and never reused.
///
/// [`Device::create_stream`]: crate::device::Device::create_stream
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S{}", self.0)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {}", self.0)
    }
}

/// A submission on a stream. Value 0 is before all work and always reached.
// Packed to 12 bytes, so that a set of one point is 16: every block carries such a set.
#[repr(C, packed(4))]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SyncPoint {
    /// The stream that the work was submitted to.
    pub stream: StreamId,
    /// The number of the submission on that stream.
    pub value: u64,
}

impl SyncPoint {
    /// The value of a point that no work reaches: what a captured graph may replay over waits for
    /// it, until the graph is released. Below the highest value, which searches use as a bound.
    pub(crate) const NEVER: u64 = u64::MAX - 1;
}

impl fmt::Debug for SyncPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stream, value } = *self;
        write!(f, "{stream:?}@{value}")
    }
}

/// A set of sync points with at most one, the latest, per stream.
///
/// Sets of none and of one point, nearly all there are, allocate nothing; the type is 16 bytes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Points(Repr);

#[derive(Clone, Default, PartialEq, Eq)]
enum Repr {
    #[default]
    None,
    One(SyncPoint),
    /// At least two points, ordered by stream.
    // A boxed Vec, not a boxed slice: a fat pointer would make every set 24 bytes.
    #[allow(clippy::box_collection)]
    Many(Box<Vec<SyncPoint>>),
}

impl Points {
    /// The empty set: nothing to wait for.
    pub const NONE: Self = Self(Repr::None);

    /// The set of one point; a point of value 0 gives the empty set.
    pub const fn one(point: SyncPoint) -> Self {
        if point.value == 0 { Self::NONE } else { Self(Repr::One(point)) }
    }

    /// The points, ordered by stream.
    #[inline]
    pub fn as_slice(&self) -> &[SyncPoint] {
        match &self.0 {
            Repr::None => &[],
            Repr::One(point) => std::slice::from_ref(point),
            Repr::Many(points) => points,
        }
    }

    /// The points, ordered by stream.
    pub fn iter(&self) -> impl Iterator<Item = SyncPoint> + '_ {
        self.as_slice().iter().copied()
    }

    /// Number of streams in the set.
    pub fn len(&self) -> usize {
        self.as_slice().len()
    }

    /// Whether there is nothing to wait for.
    pub const fn is_empty(&self) -> bool {
        matches!(self.0, Repr::None)
    }

    /// The only stream of the set, if there is exactly one.
    pub const fn single_stream(&self) -> Option<StreamId> {
        match &self.0 {
            Repr::One(point) => Some(point.stream),
            _ => None,
        }
    }

    /// Adds a point, keeping the later one of the two where the stream is there already.
    pub fn insert(&mut self, point: SyncPoint) {
        if point.value == 0 {
            return;
        }
        match &mut self.0 {
            Repr::None => self.0 = Repr::One(point),
            Repr::One(mine) if mine.stream == point.stream => {
                mine.value = mine.value.max(point.value);
            }
            Repr::One(mine) => {
                let mut both = vec![*mine, point];
                both.sort_unstable();
                self.0 = Repr::Many(Box::new(both));
            }
            Repr::Many(points) => match points.binary_search_by_key(&point.stream, |p| p.stream) {
                Ok(at) => points[at].value = points[at].value.max(point.value),
                Err(at) => points.insert(at, point),
            },
        }
    }

    /// Adds all points of `other`.
    #[inline]
    pub fn merge(&mut self, other: &Self) {
        if !other.is_empty() {
            self.merge_some(other);
        }
    }

    fn merge_some(&mut self, other: &Self) {
        for point in other.iter() {
            self.insert(point);
        }
    }

    /// Keeps the points for which `keep` is true.
    pub fn retain(&mut self, keep: impl FnMut(&SyncPoint) -> bool) {
        let mut keep = keep;
        match &mut self.0 {
            Repr::None => {}
            Repr::One(point) => {
                if !keep(point) {
                    self.0 = Repr::None;
                }
            }
            Repr::Many(points) => {
                points.retain(keep);
                match points.as_slice() {
                    [] => self.0 = Repr::None,
                    [one] => self.0 = Repr::One(*one),
                    _ => {}
                }
            }
        }
    }

    /// The points that a request on `stream` has to wait for: all but its own stream's.
    #[must_use]
    #[inline]
    pub fn without(&self, stream: StreamId) -> Self {
        match &self.0 {
            Repr::None => return Self::NONE,
            Repr::One(point) if point.stream == stream => return Self::NONE,
            _ => {}
        }
        let mut rest = self.clone();
        rest.retain(|point| point.stream != stream);
        rest
    }
}

impl FromIterator<SyncPoint> for Points {
    fn from_iter<I: IntoIterator<Item = SyncPoint>>(points: I) -> Self {
        let mut set = Self::NONE;
        for point in points {
            set.insert(point);
        }
        set
    }
}

impl fmt::Debug for Points {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.as_slice()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(stream: u32, value: u64) -> SyncPoint {
        SyncPoint { stream: StreamId(stream), value }
    }

    #[test]
    fn a_set_keeps_the_latest_point_of_each_stream() {
        let mut set = Points::one(point(2, 5));
        set.insert(point(2, 3));
        set.insert(point(1, 9));
        set.insert(point(2, 7));
        set.insert(point(3, 0));
        assert_eq!(set.as_slice(), [point(1, 9), point(2, 7)]);
        assert_eq!(set.without(StreamId(1)).as_slice(), [point(2, 7)]);
        set.retain(|_| false);
        assert_eq!(set, Points::NONE);
    }

    #[test]
    fn a_set_is_two_words() {
        assert!(size_of::<Points>() <= 16);
    }
}
