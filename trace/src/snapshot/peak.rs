//! The moment of a history at which most bytes were in use, without putting the history together.

use super::{Action, Block, BlockState, Note, Segment, Snapshot, TraceEntry};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// PyTorch rounds every request up to a multiple of this.
const ROUNDING: u64 = 512;

impl Snapshot {
    /// The segments and blocks of a device at the moment at which its history had most bytes in
    /// use; `None` without history. Blocks are as large as they were asked for, rounded as PyTorch
    /// rounds.
    ///
    /// O(n) in the entries, and a fraction of what [`history`](Self::history) takes.
    #[must_use]
    pub fn at_peak(&self, device: usize) -> Option<Self> {
        let entries = self.device_traces.get(device).filter(|trace| !trace.is_empty())?;
        let end = peak_of(entries);
        let mut blocks = self.blocks_after(device, entries, end);
        blocks.sort_unstable_by_key(|(block, _)| block.address);
        let ranges = self.ranges_after(device, entries, end);
        let mut segments: Vec<Segment> = ranges.finish(i64::try_from(device).ok()?);
        fill(&mut segments, &blocks);
        let at = u64::try_from(end).ok()?;
        Some(Self {
            segments,
            stacks: self.stacks.clone(),
            strings: self.strings.clone(),
            streams: self.streams.clone(),
            settings: self.settings.clone(),
            notes: vec![Note::PeakOnly { entries: at }],
            ..Self::default()
        })
    }

    /// The blocks that are there after the first `end` entries, with their streams.
    fn blocks_after(&self, device: usize, entries: &[TraceEntry], end: usize) -> Vec<(Block, u32)> {
        let mut live = self.earlier_live(device, entries);
        for entry in &entries[..end] {
            match entry.action {
                Action::Alloc => _ = live.insert(entry.address, of(entry)),
                Action::FreeRequested => {
                    if let Some((block, _)) = live.get_mut(&entry.address) {
                        block.state = BlockState::PendingFree;
                    }
                }
                Action::FreeCompleted => _ = live.remove(&entry.address),
                _ => {}
            }
        }
        live.into_values().collect()
    }

    /// Blocks that the history frees, or that live at the dump, and that it never allocates.
    fn earlier_live(&self, device: usize, entries: &[TraceEntry]) -> FxHashMap<u64, (Block, u32)> {
        let mut first = FxHashMap::default();
        for entry in entries {
            let is_block = matches!(
                entry.action,
                Action::Alloc | Action::FreeRequested | Action::FreeCompleted
            );
            if is_block {
                first.entry(entry.address).or_insert(entry);
            }
        }
        let freed = first.iter().filter(|(_, entry)| entry.action != Action::Alloc);
        let mut before: FxHashMap<u64, (Block, u32)> = freed
            .map(|(&address, entry)| (address, of(&TraceEntry { stack: None, ..**entry })))
            .collect();
        for segment in self.segments_of(device) {
            for block in segment.blocks.iter().filter(|b| b.state != BlockState::Inactive) {
                if !first.contains_key(&block.address) {
                    let block = Block { state: BlockState::Allocated, ..*block };
                    before.insert(block.address, (block, segment.stream));
                }
            }
        }
        before
    }

    fn segments_of(&self, device: usize) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(move |s| usize::try_from(s.device) == Ok(device))
    }

    /// The segments after the first `end` entries: those at the dump, with what came later undone.
    fn ranges_after(&self, device: usize, entries: &[TraceEntry], end: usize) -> Ranges {
        let mut ranges = Ranges::default();
        for segment in self.segments_of(device) {
            let range = Range {
                end: segment.address.saturating_add(segment.total_bytes),
                like: Segment { blocks: Vec::new(), ..segment.clone() },
            };
            ranges.0.insert(segment.address, range);
        }
        for entry in entries[end..].iter().rev() {
            match entry.action {
                Action::SegmentAlloc | Action::SegmentMap => ranges.remove(entry),
                Action::SegmentFree | Action::SegmentUnmap => ranges.insert(entry),
                _ => {}
            }
        }
        ranges
    }
}

/// How many entries there are up to the moment at which most bytes were in use, the first of
/// several such moments.
fn peak_of(entries: &[TraceEntry]) -> usize {
    let mut live: FxHashMap<u64, u64> = FxHashMap::default();
    // Blocks from before the history make the sum fall below where it began.
    let (mut sum, mut most, mut peak) = (0_i128, 0_i128, 0);
    for (at, entry) in entries.iter().enumerate() {
        let bytes = i128::from(entry.bytes.max(1));
        match entry.action {
            Action::Alloc => {
                let before = live.insert(entry.address, entry.bytes.max(1));
                sum += bytes - before.map_or(0, i128::from);
            }
            Action::FreeCompleted => {
                sum -= live.remove(&entry.address).map_or(bytes, i128::from);
            }
            _ => {}
        }
        if sum > most {
            (most, peak) = (sum, at + 1);
        }
    }
    peak
}

/// The block that an entry tells of, and its stream.
fn of(entry: &TraceEntry) -> (Block, u32) {
    let bytes = entry.bytes.max(1);
    let block = Block {
        address: entry.address,
        bytes: bytes.checked_next_multiple_of(ROUNDING).unwrap_or(bytes),
        requested_bytes: Some(entry.bytes),
        state: BlockState::Allocated,
        stack: entry.stack,
    };
    (block, entry.stream)
}

/// Puts blocks, ascending, into the segments that they lie in, and what is between them.
fn fill(segments: &mut [Segment], blocks: &[(Block, u32)]) {
    let mut blocks = blocks.iter().peekable();
    for segment in segments {
        let end = segment.address.saturating_add(segment.total_bytes);
        while blocks.next_if(|next| next.0.address < segment.address).is_some() {}
        let mut at = segment.address;
        while let Some((block, _)) = blocks.next_if(|next| next.0.address < end) {
            if block.address < at {
                continue;
            }
            segment.blocks.extend(hole(at, block.address));
            let pending = block.state == BlockState::PendingFree;
            segment.active_bytes += block.bytes;
            segment.allocated_bytes += if pending { 0 } else { block.bytes };
            at = block.address.saturating_add(block.bytes);
            segment.blocks.push(*block);
        }
        segment.blocks.extend(hole(at, end));
    }
}

fn hole(from: u64, to: u64) -> Option<Block> {
    let bytes = to.checked_sub(from).filter(|bytes| *bytes > 0)?;
    let state = BlockState::Inactive;
    Some(Block { address: from, bytes, requested_bytes: None, state, stack: None })
}

/// Memory that was obtained from the driver, by first address.
#[derive(Default)]
struct Ranges(BTreeMap<u64, Range>);

struct Range {
    end: u64,
    like: Segment,
}

impl Ranges {
    /// Takes out what an entry obtained.
    fn remove(&mut self, entry: &TraceEntry) {
        let (from, to) = (entry.address, entry.address.saturating_add(entry.bytes));
        let touched: Vec<u64> = self
            .0
            .range(..to)
            .rev()
            .map(|(start, _)| *start)
            .take_while(|start| self.0[start].end > from)
            .collect();
        for start in touched {
            let Some(Range { end, like }) = self.0.remove(&start) else { continue };
            if start < from {
                self.0.insert(start, Range { end: from, like: like.clone() });
            }
            if end > to {
                self.0.insert(to, Range { end, like });
            }
        }
    }

    /// Puts back what an entry gave back.
    fn insert(&mut self, entry: &TraceEntry) {
        self.remove(entry);
        let expandable = entry.action == Action::SegmentUnmap;
        let like = Segment { stream: entry.stream, expandable, ..Segment::default() };
        let end = entry.address.saturating_add(entry.bytes);
        if end > entry.address {
            self.0.insert(entry.address, Range { end, like });
        }
    }

    /// The segments, empty. What was mapped into one expandable segment in turn is one again, since
    /// blocks lie across.
    fn finish(self, device: i64) -> Vec<Segment> {
        let mut segments: Vec<Segment> = Vec::with_capacity(self.0.len());
        for (address, Range { end, like }) in self.0 {
            let goes_on = |last: &&mut Segment| {
                let touches = last.address.saturating_add(last.total_bytes) == address;
                touches && last.expandable && like.expandable && last.stream == like.stream
            };
            match segments.last_mut().filter(goes_on) {
                Some(last) => last.total_bytes += end - address,
                None => segments.push(Segment {
                    device,
                    address,
                    total_bytes: end - address,
                    allocated_bytes: 0,
                    active_bytes: 0,
                    requested_bytes: None,
                    ..like
                }),
            }
        }
        segments
    }
}
