//! A recording that grows while somebody watches: what is new, gone or elsewhere from one look at
//! the heap to the next.

use std::collections::HashMap;
use std::path::PathBuf;

use super::{
    Addresses, BlockRow, EventOp, EventRow, Hold, Move, NEVER, PassNote, Places, PoolKind,
    Recording, SegmentRow, Series,
};
use crate::source::Watched;
use terrane_core::event::MoveKind;

/// What was seen so far.
pub struct Watch {
    name: String,
    events: Vec<EventRow>,
    blocks: Vec<BlockRow>,
    segments: Vec<SegmentRow>,
    moves: Vec<Move>,
    passes: Vec<PassNote>,
    sites: Places,
    streams: u32,
    /// Live blocks by handle: index into `blocks`, and the look that saw it last.
    live: HashMap<u64, (u32, u64)>,
    /// Segments by number: index into `segments`, and the look that saw it last.
    spaces: HashMap<u64, (u32, u64)>,
    looks: u64,
}

/// Events that a move takes here: it is at its new place, and gone from its old one.
const EVENTS: u32 = 3;

/// Segments are shown this far apart: they have numbers, not addresses that can be compared.
const APART: u64 = 1 << 40;

impl Watch {
    /// Nothing seen yet.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            events: Vec::new(),
            blocks: Vec::new(),
            segments: Vec::new(),
            moves: Vec::new(),
            passes: Vec::new(),
            sites: Places::default(),
            streams: 0,
            live: HashMap::new(),
            spaces: HashMap::new(),
            looks: 0,
        }
    }

    /// Takes in how the heap is now.
    pub fn look(&mut self, look: &Watched) {
        self.looks += 1;
        let at = self.events.len() as u32;
        for segment in &look.segments {
            self.segment(at, segment.number, segment.bytes);
        }
        for block in &look.blocks {
            self.block(look.time_us, block);
        }
        self.vanished(look.time_us);
        if let Some(pass) = &look.pass {
            let at = self.events.len() as u32;
            self.passes.push(PassNote { at, ..pass.clone() });
        }
        self.streams = self.streams.max(look.streams);
    }

    fn segment(&mut self, at: u32, number: u64, bytes: u64) {
        let known = self.spaces.get(&number).copied();
        if let Some((index, _)) = known
            && self.segments[index as usize].bytes == bytes
        {
            self.spaces.insert(number, (index, self.looks));
            return;
        }
        if let Some((index, _)) = known {
            self.segments[index as usize].gone = at;
        }
        self.spaces.insert(number, (self.segments.len() as u32, self.looks));
        self.segments.push(SegmentRow {
            address: number.wrapping_add(1).wrapping_mul(APART),
            bytes,
            born: at,
            gone: NEVER,
            stream: 0,
            pool: PoolKind::Unknown,
            object: None,
        });
    }

    fn block(&mut self, time_us: u64, seen: &crate::source::WatchedBlock) {
        let address = seen.segment.wrapping_add(1).wrapping_mul(APART).wrapping_add(seen.offset);
        if let Some((index, last)) = self.live.get_mut(&seen.handle) {
            *last = self.looks;
            let old = *index;
            if self.blocks[old as usize].address == address {
                return;
            }
            // It moved: a new row takes over, and the old one ends.
            let new = self.add(time_us, seen, address);
            self.end(time_us, old);
            let at = self.events.len() as u32;
            let before = at.saturating_sub(EVENTS);
            let by = MoveKind::Untold;
            self.moves.push(Move { at, before, from: old, to: new, by });
            self.live.insert(seen.handle, (new, self.looks));
            return;
        }
        let new = self.add(time_us, seen, address);
        self.live.insert(seen.handle, (new, self.looks));
    }

    fn add(&mut self, time_us: u64, seen: &crate::source::WatchedBlock, address: u64) -> u32 {
        let number = self.blocks.len() as u32;
        self.events.push(EventRow { time_us, block: number, op: EventOp::Alloc });
        let site = self.sites.site(&seen.site);
        self.blocks.push(BlockRow {
            address,
            bytes: seen.bytes,
            requested: seen.requested,
            born: self.events.len() as u32,
            freed: NEVER,
            gone: NEVER,
            stream: seen.stream,
            site,
            stack: NEVER,
            tag: 0,
            hold: Hold::Unknown,
            kind: 0,
        });
        number
    }

    fn end(&mut self, time_us: u64, block: u32) {
        for op in [EventOp::Freed, EventOp::Done] {
            self.events.push(EventRow { time_us, block, op });
        }
        let moment = self.events.len() as u32;
        let row = &mut self.blocks[block as usize];
        (row.freed, row.gone) = (moment - 1, moment);
    }

    fn vanished(&mut self, time_us: u64) {
        let now = self.looks;
        let mut gone: Vec<(u64, u32)> = self
            .live
            .iter()
            .filter(|(_, (_, last))| *last != now)
            .map(|(handle, (index, _))| (*handle, *index))
            .collect();
        gone.sort_unstable_by_key(|(_, index)| *index);
        for (handle, index) in gone {
            self.live.remove(&handle);
            self.end(time_us, index);
        }
        let at = self.events.len() as u32;
        let segments = &mut self.segments;
        self.spaces.retain(|_, (index, last)| {
            if *last != now {
                segments[*index as usize].gone = at;
            }
            *last == now
        });
    }

    /// What was seen so far, as a recording.
    pub fn recording(&self) -> Recording {
        Recording {
            name: self.name.clone(),
            path: PathBuf::new(),
            kind: "run in this window",
            addresses: Addresses::Own,
            events: self.events.clone(),
            blocks: self.blocks.clone(),
            segments: self.segments.clone(),
            failures: Vec::new(),
            moves: self.moves.clone(),
            passes: self.passes.clone(),
            waits: Vec::new(),
            gaps: Vec::new(),
            work: Vec::new(),
            holds: Vec::new(),
            pending: Vec::new(),
            stale: Vec::new(),
            tags: Vec::new(),
            kinds: Vec::new(),
            limits: Vec::new(),
            is_live: true,
            streams: (0..self.streams.max(1)).map(|stream| format!("stream {stream}")).collect(),
            places: Places::of_sites(self.sites.sites.clone()),
            series: Series::of(&self.events, &self.blocks, &self.segments),
            notes: vec![
                "The heap was looked at some hundred times in the run; blocks that came and went \
                 between two looks are not shown. Addresses are made of the segment's number and \
                 the offset in it."
                    .to_owned(),
            ],
            facts: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{WatchedBlock, WatchedSegment};

    fn look(time_us: u64, blocks: &[(u64, u64)]) -> Watched {
        let block = |(handle, offset): &(u64, u64)| WatchedBlock {
            handle: *handle,
            segment: 0,
            offset: *offset,
            bytes: 1024,
            requested: 1000,
            stream: 0,
            site: "a.rs:1".to_owned(),
        };
        Watched {
            done: 0.5,
            time_us,
            segments: vec![WatchedSegment { number: 0, bytes: 1 << 20 }],
            blocks: blocks.iter().map(block).collect(),
            streams: 1,
            pass: None,
        }
    }

    #[test]
    fn what_is_new_gone_or_elsewhere_becomes_events_and_moves() {
        let mut watch = Watch::new("x");
        watch.look(&look(1, &[(7, 0), (8, 4096)]));
        watch.look(&look(2, &[(8, 0)]));
        let recording = watch.recording();
        assert_eq!(recording.blocks.len(), 3);
        assert_eq!(recording.moves.len(), 1);
        let (from, to) = (recording.moves[0].from, recording.moves[0].to);
        assert_eq!(recording.blocks[from as usize].address - APART, 4096);
        assert_eq!(recording.blocks[to as usize].address - APART, 0);
        let moment = super::super::Moment::of(&recording, recording.end());
        assert_eq!((moment.live_blocks, moment.reserved), (1, 1 << 20));
        assert_eq!(recording.series.most[0], 3000, "a moved block counts twice while it moves");
    }
}
