//! What a picture shows: recorded facts, without any idea of pixels.

/// The heap at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeapMap {
    /// Segments in order.
    pub segments: Vec<Segment>,
}

/// A contiguous range of addresses backed by memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Its length in bytes.
    pub bytes: u64,
    /// Its parts in order of address, without gaps.
    pub parts: Vec<Part>,
}

/// A part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First byte in the segment.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// What it is.
    pub state: State,
}

/// What a part of a segment is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A block.
    Live {
        /// Bytes asked for.
        requested: u64,
        /// The stream that its use is ordered on.
        stream: u32,
    },
    /// A hole that anybody may use.
    Free,
    /// Freed, and work may still use it.
    Pending,
}

impl HeapMap {
    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Bytes of the parts that `which` chooses.
    pub fn bytes_of(&self, which: impl Fn(State) -> bool) -> u64 {
        let parts = self.segments.iter().flat_map(|segment| &segment.parts);
        parts.filter(|part| which(part.state)).map(|part| part.bytes).sum()
    }

    /// Live blocks.
    pub fn blocks(&self) -> usize {
        let parts = self.segments.iter().flat_map(|segment| &segment.parts);
        parts.filter(|part| matches!(part.state, State::Live { .. })).count()
    }

    /// The largest hole in bytes.
    pub fn largest_free(&self) -> u64 {
        let parts = self.segments.iter().flat_map(|segment| &segment.parts);
        let free = parts.filter(|part| part.state == State::Free);
        free.map(|part| part.bytes).max().unwrap_or(0)
    }
}

/// How the figures went over the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    /// Samples in order of time.
    pub samples: Vec<Sample>,
    /// The sample at which the map was taken.
    pub marked: usize,
}

/// Figures at one moment, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Milliseconds of recorded time.
    pub time_ms: f64,
    /// Asked for by live blocks.
    pub requested: u64,
    /// Live after rounding, and freed but still in use.
    pub active: u64,
    /// Memory objects.
    pub reserved: u64,
}

/// A picture's contents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// What is shown.
    pub title: String,
    /// Where and when.
    pub subtitle: String,
    /// The heap at the moment shown.
    pub map: HeapMap,
    /// The run around that moment.
    pub timeline: Timeline,
}
