//! The allocator's state as the picture's model.

use terrane_core::{Allocator, BlockView};

use crate::model::{Part, Segment, State};

/// All segments, in order of their making.
pub fn segments(alloc: &Allocator) -> Vec<Segment> {
    let snapshot = alloc.snapshot();
    let mut segments: Vec<_> = snapshot.segments.into_iter().collect();
    segments.sort_by_key(|segment| segment.space);
    let segment = |info: terrane_core::SegmentInfo| Segment {
        bytes: info.bytes,
        parts: info.parts.iter().map(part).collect(),
    };
    segments.into_iter().map(segment).collect()
}

fn part(view: &BlockView) -> Part {
    let state = match &view.block {
        Some(block) => State::Live { requested: block.requested, stream: block.stream.0 },
        None if view.pending.is_empty() => State::Free,
        None => State::Pending,
    };
    Part { offset: view.offset, bytes: view.bytes, state }
}
