//! All that is known about one block.

use super::sites::{Names, SiteBy};
use super::timeline::timeline;
use crate::model::SegmentOp;
use crate::snapshot::{History, Snapshot};
use serde::Serialize;
use std::collections::HashMap;

/// A moment in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct When {
    /// Event of the trace.
    pub event: u64,
    /// Microseconds since the start of the history.
    pub time_us: u64,
}

/// One block's life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Why {
    /// Number of the block in the trace.
    pub block: u32,
    /// Its address; 0 where the file has none.
    pub address: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Stream that owns it.
    pub stream: u32,
    /// The program's own line, if it was recorded.
    pub site: Option<String>,
    /// The whole stack, innermost first; empty where none was recorded.
    pub stack: Vec<String>,
    /// True for a block from before the history begins: then its stack and time are not known.
    pub from_earlier: bool,
    /// Its allocation.
    pub allocated: When,
    /// Bytes of the segment that was made for it; `None` when it went into one that was there,
    /// or the file does not say.
    pub new_segment: Option<u64>,
    /// The request to free it; `None` when it lived to the end.
    pub free_requested: Option<When>,
    /// The completion of that free.
    pub free_completed: Option<When>,
    /// True when it was live at the moment of the largest active bytes.
    pub live_at_peak: bool,
    /// Blocks of the same site that were live at its allocation, itself included.
    pub site_blocks: u64,
    /// Their bytes.
    pub site_bytes: u64,
    /// At the dump: its segment's bytes, and how much of them is live. `None` where it is not
    /// live at the dump or the file has no segments.
    pub segment: Option<Held>,
    /// Earlier and later blocks at the same address; 0 where there are no addresses.
    pub others_at_address: u64,
}

/// A segment that a block is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    /// First address.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes of live blocks in it.
    pub live_bytes: u64,
    /// Number of live blocks in it.
    pub live_blocks: u64,
}

/// The block that a person means by a number or an address, among those that are `chosen`: the
/// last one that had the address or contained it, or the one with that number.
#[must_use]
pub fn find_block(history: &History, text: &str, chosen: impl Fn(usize) -> bool) -> Option<u32> {
    if let Some(digits) = text.strip_prefix("0x") {
        let address = u64::from_str_radix(digits, 16).ok()?;
        let lifetimes = history.trace.lifetimes();
        let holds = |(block, life): (usize, &crate::Lifetime)| {
            let start = history.blocks.get(block)?.address;
            let inside = start > 0 && address >= start && address - start < life.bytes;
            (inside && chosen(block)).then_some(block)
        };
        let found = lifetimes.iter().enumerate().filter_map(holds).next_back()?;
        return u32::try_from(found).ok();
    }
    let exists = |block: &u32| *block < history.trace.block_count() && chosen(*block as usize);
    text.parse().ok().filter(exists)
}

/// All that is known about a block; `None` for a number that no block has.
#[must_use]
pub fn why(snapshot: &Snapshot, history: &History, block: u32) -> Option<Why> {
    let lifetimes = history.trace.lifetimes();
    let life = *lifetimes.get(block as usize)?;
    let origin = *history.blocks.get(block as usize)?;
    let events = history.trace.events();
    let when = |event: usize| When { event: event as u64, time_us: events[event].time_us };
    let peak = timeline(snapshot, history, 1).peak.event as usize;
    let same = |other: usize| {
        history.blocks.get(other).is_some_and(|o| o.stack == origin.stack)
            && (origin.stack.is_some() || lifetimes[other].bytes == life.bytes)
    };
    let live_at = |other: &crate::Lifetime, event: usize| {
        other.alloc <= event && other.completed.is_none_or(|end| end > event)
    };
    let siblings: Vec<usize> = (0..lifetimes.len())
        .filter(|other| live_at(&lifetimes[*other], life.alloc) && same(*other))
        .collect();
    let made = history.segments.iter().find(|change| {
        let grows = matches!(change.event.op, SegmentOp::Alloc | SegmentOp::Map);
        let end = change.event.address.saturating_add(change.event.bytes);
        grows
            && change.before_event == life.alloc
            && (change.event.address..end).contains(&origin.address)
    });
    let mut names = Names { snapshot, by: SiteBy::User, known: HashMap::new() };
    let others = history.blocks.iter().filter(|o| o.address == origin.address).count() as u64;
    Some(Why {
        block,
        address: origin.address,
        bytes: life.bytes,
        stream: life.stream,
        site: origin.stack.map(|stack| names.of(stack).to_owned()),
        stack: origin.stack.map_or_else(Vec::new, |stack| snapshot.stack_lines(stack)),
        from_earlier: u64::from(block) < history.gaps.earlier_blocks,
        allocated: when(life.alloc),
        new_segment: made.map(|change| change.event.bytes),
        free_requested: life.requested.map(when),
        free_completed: life.completed.map(when),
        live_at_peak: peak > 0 && live_at(&life, peak - 1),
        site_blocks: siblings.len() as u64,
        site_bytes: siblings.iter().map(|other| lifetimes[*other].bytes).sum(),
        segment: if life.completed.is_none() { held(snapshot, origin.address) } else { None },
        others_at_address: if origin.address == 0 { 0 } else { others - 1 },
    })
}

fn held(snapshot: &Snapshot, address: u64) -> Option<Held> {
    let inside = |segment: &&crate::snapshot::Segment| {
        let end = segment.address.saturating_add(segment.total_bytes);
        address > 0 && (segment.address..end).contains(&address)
    };
    let segment = snapshot.segments.iter().find(inside)?;
    let live =
        || segment.blocks.iter().filter(|b| b.state == crate::snapshot::BlockState::Allocated);
    Some(Held {
        address: segment.address,
        bytes: segment.total_bytes,
        live_bytes: live().map(|block| block.bytes).sum(),
        live_blocks: live().count() as u64,
    })
}
