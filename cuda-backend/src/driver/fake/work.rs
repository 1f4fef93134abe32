//! The software driver's streams and events, and what its "kernels" do.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use terrane_core::device::pattern;

use super::memory::Memory;
use crate::compute::{ENTRY, TILE};
use crate::driver::{RawEvent, RawStream, code};

/// A piece of work on a stream.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Copy { to: u64, from: u64, bytes: u64 },
    Fill { to: u64, word: u32, words: u64 },
    Kernel { name: String, groups: [u32; 3], params: Vec<u8> },
    Record(RawEvent, u64),
    Wait(RawEvent, u64),
}

#[derive(Default)]
pub(crate) struct Work {
    lanes: BTreeMap<RawStream, VecDeque<Step>>,
    ended: BTreeSet<RawStream>,
    held: BTreeSet<RawStream>,
    /// By event: the version recorded last, and the version that is done.
    events: HashMap<RawEvent, (u64, u64)>,
    /// Events behind everything, with the streams that they wait for.
    behind_all: Vec<(RawEvent, u64)>,
}

impl Work {
    pub(crate) fn add_stream(&mut self, stream: RawStream) {
        self.lanes.insert(stream, VecDeque::new());
    }

    pub(crate) fn end_stream(&mut self, stream: RawStream) -> bool {
        self.lanes.contains_key(&stream) && self.ended.insert(stream)
    }

    pub(crate) fn is_stream(&self, stream: RawStream) -> bool {
        stream == RawStream::LEGACY
            || stream == RawStream::PER_THREAD
            || (self.lanes.contains_key(&stream) && !self.ended.contains(&stream))
    }

    pub(crate) fn hold(&mut self, stream: RawStream) {
        self.held.insert(stream);
    }

    pub(crate) fn release(&mut self, stream: RawStream) {
        self.held.remove(&stream);
    }

    pub(crate) fn release_all(&mut self) {
        self.held.clear();
    }

    pub(crate) fn push(&mut self, stream: RawStream, step: Step) {
        self.lanes.entry(stream).or_default().push_back(step);
    }

    pub(crate) fn add_event(&mut self, event: RawEvent) {
        self.events.insert(event, (0, 0));
    }

    pub(crate) fn remove_event(&mut self, event: RawEvent) -> bool {
        self.events.remove(&event).is_some()
    }

    /// Forgets all events, as when the context is destroyed.
    pub(crate) fn forget_events(&mut self) {
        self.events.clear();
    }

    pub(crate) fn record(&mut self, event: RawEvent) -> Option<u64> {
        let (recorded, _) = self.events.get_mut(&event)?;
        *recorded += 1;
        Some(*recorded)
    }

    pub(crate) fn record_behind_all(&mut self, event: RawEvent, version: u64) {
        self.behind_all.push((event, version));
    }

    pub(crate) fn version(&self, event: RawEvent) -> Option<u64> {
        self.events.get(&event).map(|(recorded, _)| *recorded)
    }

    pub(crate) fn is_done(&self, event: RawEvent) -> Option<bool> {
        self.events.get(&event).map(|(recorded, done)| done >= recorded)
    }

    fn has_passed(&self, event: RawEvent, version: u64) -> bool {
        self.events.get(&event).is_none_or(|(_, done)| *done >= version)
    }

    pub(crate) fn complete(&mut self, event: RawEvent, version: u64) {
        if let Some((_, done)) = self.events.get_mut(&event) {
            *done = (*done).max(version);
        }
    }

    /// The next piece of memory work that may run; events and waits are settled on the way.
    pub(crate) fn next_step(&mut self) -> Option<Step> {
        loop {
            let ready = self.lanes.iter().find_map(|(&stream, lane)| {
                let step = lane.front()?;
                let waits =
                    matches!(step, Step::Wait(event, version) if !self.has_passed(*event, *version));
                (!self.held.contains(&stream) && !waits).then_some(stream)
            });
            let Some(stream) = ready else {
                if self.lanes.values().all(VecDeque::is_empty) {
                    for (event, version) in std::mem::take(&mut self.behind_all) {
                        self.complete(event, version);
                    }
                }
                return None;
            };
            match self.lanes.get_mut(&stream)?.pop_front()? {
                Step::Record(event, version) => self.complete(event, version),
                Step::Wait(..) => {}
                step => return Some(step),
            }
        }
    }
}

fn number(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |part| u64::from_le_bytes(part.try_into().unwrap()))
}

/// Runs one piece of work; a code where the device would fault.
pub(crate) fn run(memory: &mut Memory, step: &Step) -> Result<(), i32> {
    match step {
        Step::Copy { to, from, bytes } => {
            let data = memory.load(*from, *bytes)?;
            memory.store(*to, &data)
        }
        Step::Fill { to, word, words } => {
            memory.store(*to, &word.to_le_bytes().repeat(*words as usize))
        }
        Step::Kernel { name, groups, params } => kernel(memory, name, *groups, params),
        Step::Record(..) | Step::Wait(..) => Ok(()),
    }
}

fn kernel(memory: &mut Memory, name: &str, groups: [u32; 3], params: &[u8]) -> Result<(), i32> {
    if name == "terrane_vector_add" {
        return vector_add(memory, groups, params);
    }
    if name == "terrane_suite_add" {
        return suite_add(memory, groups, params);
    }
    let (table, tiles) = (number(params, 0), number(params, 8));
    // The count has 4 bytes; where a result follows, so do 4 that align it.
    let (count, results) = (number(&[&params[16..20], &[0; 4]].concat(), 0), number(params, 24));
    if u64::from(groups[0]) > tiles {
        return Err(code::INVALID_VALUE);
    }
    let table = memory.load(table, count * ENTRY as u64)?;
    let entry = |at: u64, field: usize| number(&table, at as usize * ENTRY + field * 8);
    for tile in 0..tiles {
        // As `find` of builtin.cu: the last entry whose first tile is not after this one.
        let at = (0..count).rev().find(|&at| entry(at, 3) <= tile).ok_or(code::ILLEGAL_ADDRESS)?;
        let offset = (tile - entry(at, 3)) * TILE;
        let bytes = TILE.min(entry(at, 1) - offset);
        let (address, extra) = (entry(at, 0) + offset, entry(at, 2));
        let result = results + at * 8;
        match name {
            "terrane_gather" => {
                let data = memory.load(address, bytes)?;
                memory.store(extra + offset, &data)?;
            }
            "terrane_fill_pattern" => {
                let words = (0..bytes / 4).map(|i| pattern::word(extra, offset / 4 + i));
                let data: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
                memory.store(address, &data)?;
            }
            "terrane_verify" | "terrane_checksum" => {
                let data = memory.load(address, bytes)?;
                let before = number(&memory.load(result, 8)?, 0);
                let after = tally(name, &data, offset / 4, extra, before);
                memory.store(result, &after.to_le_bytes())?;
            }
            _ => return Err(code::NOT_FOUND),
        }
    }
    Ok(())
}

fn tally(name: &str, data: &[u8], first: u64, seed: u64, before: u64) -> u64 {
    let (words, _) = data.as_chunks::<4>();
    let words = (first..).zip(words.iter().map(|word| u32::from_le_bytes(*word)));
    if name == "terrane_verify" {
        return before + words.filter(|&(i, value)| value != pattern::word(seed, i)).count() as u64;
    }
    let (low, high) =
        words.fold((before as u32, (before >> 32) as u32), |(low, high), (i, value)| {
            let (a, b) = pattern::term(value, i);
            (low.wrapping_add(a), high.wrapping_add(b))
        });
    u64::from(high) << 32 | u64::from(low)
}

/// The kernel of the conformance suite: `c[i] = a[i] + b[i] * factor` for the i below `words`.
fn suite_add(memory: &mut Memory, groups: [u32; 3], params: &[u8]) -> Result<(), i32> {
    let (a, b, c) = (number(params, 0), number(params, 8), number(params, 16));
    let both = number(params, 24);
    let (words, factor) = (both as u32, (both >> 32) as u32);
    for i in 0..u64::from(words.min(groups[0] * 64)) {
        let mut load = |at: u64| -> Result<u32, i32> {
            let bytes = memory.load(at + i * 4, 4)?;
            Ok(u32::from_le_bytes(bytes.try_into().map_err(|_| code::INVALID_VALUE)?))
        };
        let sum = load(a)?.wrapping_add(load(b)?.wrapping_mul(factor));
        memory.store(c + i * 4, &sum.to_le_bytes())?;
    }
    Ok(())
}

fn vector_add(memory: &mut Memory, groups: [u32; 3], params: &[u8]) -> Result<(), i32> {
    let (a, b, c) = (number(params, 0), number(params, 8), number(params, 16));
    let n = u32::from_le_bytes(params[24..28].try_into().map_err(|_| code::INVALID_VALUE)?);
    for i in 0..u64::from(n.min(groups[0] * 256)) {
        let mut load = |at: u64| -> Result<f32, i32> {
            let bytes = memory.load(at + i * 4, 4)?;
            Ok(f32::from_le_bytes(bytes.try_into().map_err(|_| code::INVALID_VALUE)?))
        };
        let sum = load(a)? + load(b)?;
        memory.store(c + i * 4, &sum.to_le_bytes())?;
    }
    Ok(())
}
