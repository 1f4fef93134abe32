//! Bytes over the events, at any zoom.
//!
//! Exact values are kept every [`STRIDE`] events; between them a walk over the events gives every
//! value, so no peak is lost however far out one looks: each column of a chart has its own maximum.

use super::{BlockRow, EventOp, EventRow, SegmentRow};

/// Events between two kept values.
const STRIDE: usize = 64;

/// Columns of more strides than this are made of whole strides.
const WIDE: usize = 2;

/// Requested, active and reserved bytes.
pub type Bytes = [u64; 3];

/// What one column of a chart shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Largest requested, active and reserved bytes.
    pub max: Bytes,
    /// The moment of the largest active bytes.
    pub at: u32,
}

/// Bytes over the events.
#[derive(Debug, Default)]
pub struct Series {
    /// Values before every [`STRIDE`]th event.
    starts: Vec<Bytes>,
    /// The column of each stride.
    strides: Vec<Column>,
    /// Changes of the reserved bytes: (moment, bytes).
    reserved: Vec<(u32, i64)>,
    /// The moment of the largest active bytes.
    pub peak: u32,
    /// Largest requested, active and reserved bytes.
    pub most: Bytes,
}

impl Series {
    /// Counts over all events.
    pub fn of(events: &[EventRow], blocks: &[BlockRow], segments: &[SegmentRow]) -> Self {
        let mut series = Self { reserved: changes(segments), ..Self::default() };
        let mut walk = Walk::begin(&series.reserved, blocks);
        let mut column = Column { max: walk.now, at: 0 };
        series.most = walk.now;
        series.peak = 0;
        for (index, event) in events.iter().enumerate() {
            if index.is_multiple_of(STRIDE) {
                if index > 0 {
                    series.strides.push(column);
                }
                series.starts.push(walk.now);
                column = Column { max: walk.now, at: index as u32 };
            }
            walk.step(event, &series.reserved, blocks);
            if walk.now[1] > series.most[1] {
                series.peak = walk.at;
            }
            merge(&mut series.most, walk.now);
            extend(&mut column, walk.now, walk.at);
        }
        series.strides.push(column);
        if series.starts.is_empty() {
            series.starts.push(walk.now);
        }
        series
    }

    /// The values at a moment.
    pub fn at(&self, moment: u32, events: &[EventRow], blocks: &[BlockRow]) -> Bytes {
        let stride = (moment as usize / STRIDE).min(self.starts.len().saturating_sub(1));
        let mut walk = self.resume(stride, blocks);
        for event in
            &events[(stride * STRIDE).min(events.len())..(moment as usize).min(events.len())]
        {
            walk.step(event, &self.reserved, blocks);
        }
        walk.now
    }

    fn resume(&self, stride: usize, blocks: &[BlockRow]) -> Walk {
        let mut walk = Walk::begin(&[], &[]);
        walk.at = (stride * STRIDE) as u32;
        walk.now = self.starts.get(stride).copied().unwrap_or_default();
        walk.next = self.reserved.partition_point(|change| change.0 <= walk.at);
        let _ = blocks;
        walk
    }

    /// The columns between neighbouring moments of `edges`, which ascend.
    pub fn columns(&self, edges: &[u32], events: &[EventRow], blocks: &[BlockRow]) -> Vec<Column> {
        edges.windows(2).map(|edge| self.column(edge[0], edge[1], events, blocks)).collect()
    }

    fn column(&self, from: u32, to: u32, events: &[EventRow], blocks: &[BlockRow]) -> Column {
        if (to - from) as usize > WIDE * STRIDE {
            // To the stride is exact enough for a column this wide; no peak is lost.
            let strides = from as usize / STRIDE..(to as usize / STRIDE).min(self.strides.len());
            let mut column = self.strides.get(strides.start).copied().unwrap_or_default();
            for stride in &self.strides[strides] {
                extend(&mut column, stride.max, stride.at);
            }
            return column;
        }
        let start = self.at(from, events, blocks);
        let mut column = Column { max: start, at: from };
        let (first, last) = ((from as usize).div_ceil(STRIDE), to as usize / STRIDE);
        let exact = |column: &mut Column, from: usize, to: usize| {
            let mut walk = self.resume(from / STRIDE, blocks);
            let end = to.min(events.len());
            for (index, event) in events.iter().enumerate().take(end).skip(from / STRIDE * STRIDE) {
                walk.step(event, &self.reserved, blocks);
                if index >= from {
                    extend(column, walk.now, walk.at);
                }
            }
        };
        if first >= last {
            exact(&mut column, from as usize, to as usize);
            return column;
        }
        exact(&mut column, from as usize, first * STRIDE);
        for stride in self.strides.get(first..last.min(self.strides.len())).unwrap_or_default() {
            extend(&mut column, stride.max, stride.at);
        }
        exact(&mut column, last * STRIDE, to as usize);
        column
    }
}

/// When reserved bytes change, and by how much.
fn changes(segments: &[SegmentRow]) -> Vec<(u32, i64)> {
    let mut changes = Vec::with_capacity(segments.len() * 2);
    for segment in segments {
        let bytes = i64::try_from(segment.bytes).unwrap_or(i64::MAX);
        changes.push((segment.born, bytes));
        if segment.gone != super::NEVER {
            changes.push((segment.gone, -bytes));
        }
    }
    changes.sort_by_key(|change| change.0);
    changes
}

struct Walk {
    at: u32,
    now: Bytes,
    next: usize,
}

impl Walk {
    fn begin(reserved: &[(u32, i64)], blocks: &[BlockRow]) -> Self {
        let mut walk = Self { at: 0, now: [0; 3], next: 0 };
        walk.reserve(reserved);
        for block in blocks.iter().take_while(|block| block.born == 0) {
            walk.now[0] += block.requested;
            walk.now[1] += block.requested;
        }
        walk
    }

    fn reserve(&mut self, reserved: &[(u32, i64)]) {
        while let Some((_, bytes)) = reserved.get(self.next).filter(|change| change.0 <= self.at) {
            self.now[2] = self.now[2].saturating_add_signed(*bytes);
            self.next += 1;
        }
    }

    fn step(&mut self, event: &EventRow, reserved: &[(u32, i64)], blocks: &[BlockRow]) {
        self.at += 1;
        self.reserve(reserved);
        let bytes = blocks.get(event.block as usize).map_or(0, |block| block.requested);
        match event.op {
            EventOp::Alloc => {
                self.now[0] += bytes;
                self.now[1] += bytes;
            }
            EventOp::Freed => self.now[0] = self.now[0].saturating_sub(bytes),
            EventOp::Done => self.now[1] = self.now[1].saturating_sub(bytes),
        }
    }
}

fn merge(most: &mut Bytes, now: Bytes) {
    for (most, now) in most.iter_mut().zip(now) {
        *most = (*most).max(now);
    }
}

fn extend(column: &mut Column, now: Bytes, at: u32) {
    if now[1] > column.max[1] {
        column.at = at;
    }
    merge(&mut column.max, now);
}
