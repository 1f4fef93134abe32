//! What each stream holds over the events, at any zoom.
//!
//! As for the sums over all streams, values are kept every so many events, and of each stretch what
//! a chart shows of it. Columns that are wider are made of whole stretches, narrower ones of
//! events: a picture costs what it has columns, not what the run has events.

use std::collections::HashSet;

use super::{EventOp, Recording};

/// Live and pending bytes; of a stretch, the most bytes in all and the most of them pending.
pub type Amount = (u64, u64);

/// Streams that have a lane, at most.
const LANES: usize = 64;
/// Events of the shortest stretches, where streams are few.
const STRIDE: usize = 64;
/// Streams that are few.
const FEW: usize = 8;
/// A level has one stretch for so many of the level below.
const COARSER: usize = 16;
/// Levels of stretches.
const LEVELS: usize = 3;
/// Columns of more stretches than this are made of whole ones.
const WIDE: usize = 2;

/// What each stream holds over the events.
#[derive(Debug)]
pub struct Held {
    /// Events of a stretch of the finest level.
    stride: usize,
    /// Streams with blocks or work, as many as have a lane.
    pub streams: Vec<OfStream>,
    /// Place in `streams`, by stream.
    place: Vec<usize>,
}

/// What one stream holds.
#[derive(Debug, Default)]
pub struct OfStream {
    /// Its number.
    pub stream: u32,
    /// Its blocks in the whole run.
    pub blocks: u64,
    /// Live and pending bytes at most.
    pub most: u64,
    /// Of each level the stretches in which anything happens.
    levels: [Vec<Stretch>; LEVELS],
    end: Amount,
}

#[derive(Clone, Copy, Debug)]
struct Stretch {
    number: u32,
    /// What is held before its first event.
    start: Amount,
    /// What a chart shows of it.
    shown: Amount,
}

impl Held {
    /// Counts over all events.
    pub fn of(recording: &Recording) -> Self {
        let streams = lanes(recording);
        let stride = STRIDE * streams.len().div_ceil(FEW).next_power_of_two();
        Self::with_stride(recording, streams, stride)
    }

    fn with_stride(recording: &Recording, streams: Vec<OfStream>, stride: usize) -> Self {
        let mut place = vec![usize::MAX; recording.streams.len()];
        for (number, of) in streams.iter().enumerate() {
            place[of.stream as usize] = number;
        }
        let mut held = Self { stride, streams: Vec::new(), place };
        let mut made = streams;
        let mut walk = Walk::new(recording, &held.place, made.len());
        while walk.at < recording.events.len() {
            let number = walk.at / stride;
            let Some((lane, before, waits)) = walk.step() else { continue };
            let of = &mut made[lane];
            let stretches = &mut of.levels[0];
            if stretches.last().is_none_or(|last| last.number as usize != number) {
                let shown = settled(recording, &held.place, number * stride, lane, before);
                stretches.push(Stretch { number: number as u32, start: before, shown });
            }
            let now = walk.now[lane];
            of.most = of.most.max(now.0 + now.1);
            if let Some(last) = stretches.last_mut().filter(|_| waits) {
                extend(&mut last.shown, now);
            }
        }
        for (of, now) in made.iter_mut().zip(&walk.now) {
            of.end = *now;
            for level in 1..LEVELS {
                of.levels[level] = coarser(&of.levels[level - 1]);
            }
        }
        held.streams = made;
        held
    }

    /// What is to be shown of each stream between neighbouring moments of `edges`, which ascend;
    /// nothing behind the last event.
    pub fn columns(&self, recording: &Recording, edges: &[u32]) -> Vec<Vec<Amount>> {
        let end = recording.events.len();
        let none = vec![(0, 0); edges.len().saturating_sub(1)];
        let mut columns = vec![none; self.streams.len()];
        let mut walk: Option<Walk<'_>> = None;
        for (column, edge) in edges.windows(2).enumerate() {
            let (from, to) = (edge[0] as usize, (edge[1] as usize).min(end));
            if from >= end {
                break;
            }
            if let Some(level) = self.level(to - from.min(to)) {
                let stride = self.stride * COARSER.pow(level as u32);
                for (of, columns) in self.streams.iter().zip(&mut columns) {
                    columns[column] = of.over(level, from / stride, to / stride);
                }
                continue;
            }
            let here = walk.take().filter(|walk| walk.at == from);
            let mut here = here.unwrap_or_else(|| self.walk_at(recording, from));
            for (lane, columns) in columns.iter_mut().enumerate() {
                columns[column] = settled(recording, &self.place, from, lane, here.now[lane]);
            }
            while here.at < to {
                if let Some((lane, _, true)) = here.step() {
                    extend(&mut columns[lane][column], here.now[lane]);
                }
            }
            walk = Some(here);
        }
        columns
    }

    /// The coarsest level whose stretches are short enough for a column of so many events.
    fn level(&self, events: usize) -> Option<usize> {
        (0..LEVELS).rfind(|level| events > WIDE * self.stride * COARSER.pow(*level as u32))
    }

    /// What is held after so many events, ready to go on.
    fn walk_at<'a>(&'a self, recording: &'a Recording, at: usize) -> Walk<'a> {
        let mut walk = Walk::new(recording, &self.place, self.streams.len());
        let number = at / self.stride;
        walk.at = number * self.stride;
        for (now, of) in walk.now.iter_mut().zip(&self.streams) {
            let next = of.levels[0].partition_point(|it| (it.number as usize) < number);
            *now = of.levels[0].get(next).map_or(of.end, |next| next.start);
        }
        while walk.at < at {
            walk.step();
        }
        walk
    }
}

impl OfStream {
    /// What is to be shown of the stretches from one to before another.
    fn over(&self, level: usize, first: usize, after: usize) -> Amount {
        let stretches = &self.levels[level];
        let from = stretches.partition_point(|it| (it.number as usize) < first);
        let Some(next) = stretches.get(from) else { return self.end };
        let mut shown = if next.number as usize == first { next.shown } else { next.start };
        for it in stretches[from..].iter().take_while(|it| (it.number as usize) < after) {
            extend(&mut shown, it.shown);
        }
        shown
    }
}

/// Streams with blocks or work, the first of them.
fn lanes(recording: &Recording) -> Vec<OfStream> {
    let mut blocks = vec![0_u64; recording.streams.len()];
    for block in &recording.blocks {
        if let Some(blocks) = blocks.get_mut(block.stream as usize) {
            *blocks += 1;
        }
    }
    let waits = recording.waits.iter().map(|wait| wait.behind);
    let works: HashSet<u32> = recording.work.iter().map(|work| work.stream).chain(waits).collect();
    let of = |(stream, blocks): (u32, u64)| OfStream { stream, blocks, ..OfStream::default() };
    let all = (0..).zip(blocks).filter(|(stream, blocks)| *blocks > 0 || works.contains(stream));
    all.take(LANES).map(of).collect()
}

fn coarser(fine: &[Stretch]) -> Vec<Stretch> {
    let mut all: Vec<Stretch> = Vec::new();
    for it in fine {
        let number = it.number / COARSER as u32;
        match all.last_mut() {
            Some(last) if last.number == number => extend(&mut last.shown, it.shown),
            _ => all.push(Stretch { number, ..*it }),
        }
    }
    all
}

/// Takes in what is held at a moment, or of a stretch; in whatever order, it comes to the same.
fn extend(shown: &mut Amount, now: Amount) {
    let all = (shown.0 + shown.1).max(now.0 + now.1);
    let pending = shown.1.max(now.1);
    *shown = (all - pending, pending);
}

/// What a stream holds after `at` events, without a free that completes with the next one: that is
/// no time of waiting.
fn settled(
    recording: &Recording,
    place: &[usize],
    at: usize,
    lane: usize,
    (live, pending): Amount,
) -> Amount {
    let before = at.checked_sub(1).filter(|before| completes_next(recording, *before));
    let block = before.map(|before| &recording.blocks[recording.events[before].block as usize]);
    match block.filter(|block| place.get(block.stream as usize) == Some(&lane)) {
        Some(block) => (live, pending.saturating_sub(block.requested)),
        None => (live, pending),
    }
}

/// Whether an event is a free that completes with the next event.
fn completes_next(recording: &Recording, index: usize) -> bool {
    let event = &recording.events[index];
    let next = recording.events.get(index + 1);
    event.op == EventOp::Freed
        && next.is_some_and(|next| next.block == event.block && next.op == EventOp::Done)
}

struct Walk<'a> {
    recording: &'a Recording,
    place: &'a [usize],
    at: usize,
    now: Vec<Amount>,
}

impl<'a> Walk<'a> {
    fn new(recording: &'a Recording, place: &'a [usize], lanes: usize) -> Self {
        Self { recording, place, at: 0, now: vec![(0, 0); lanes] }
    }

    /// Takes the next event in: its lane, what that held before, and whether what it holds now is
    /// to be shown.
    fn step(&mut self) -> Option<(usize, Amount, bool)> {
        let index = self.at;
        self.at += 1;
        let event = self.recording.events.get(index)?;
        let block = self.recording.blocks.get(event.block as usize)?;
        let lane = *self.place.get(block.stream as usize)?;
        let now = self.now.get_mut(lane)?;
        let before = *now;
        match event.op {
            EventOp::Alloc => now.0 += block.requested,
            EventOp::Freed => {
                *now = (now.0.saturating_sub(block.requested), now.1 + block.requested);
            }
            EventOp::Done => now.1 = now.1.saturating_sub(block.requested),
        }
        Some((lane, before, !completes_next(self.recording, index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::model::{BlockRow, EventRow};

    /// Blocks of three streams that come and go; the last stream has few. Half the frees complete
    /// at once.
    fn recording(count: u32) -> Recording {
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
            (seed >> 33) % below
        };
        let (mut blocks, mut events, mut live) = (Vec::new(), Vec::new(), Vec::new());
        let mut waiting = Vec::new();
        while (events.len() as u32) < count {
            let mut event = |block, op| events.push(EventRow { time_us: 0, block, op });
            match random(4) {
                0 | 1 => {
                    let block = blocks.len() as u32;
                    let stream = if random(50) == 0 { 2 } else { random(2) as u32 };
                    blocks.push(row(1 + random(1000), stream));
                    live.push(block);
                    event(block, EventOp::Alloc);
                }
                2 if !live.is_empty() => {
                    let block = live.swap_remove(random(live.len() as u64) as usize);
                    event(block, EventOp::Freed);
                    match random(2) {
                        0 => event(block, EventOp::Done),
                        _ => waiting.push(block),
                    }
                }
                3 if !waiting.is_empty() => {
                    let block = waiting.swap_remove(random(waiting.len() as u64) as usize);
                    event(block, EventOp::Done);
                }
                _ => {}
            }
        }
        let mut recording = Recording::for_tests(Vec::new(), Vec::new());
        recording.streams = (0..4).map(|stream| format!("stream {stream}")).collect();
        (recording.blocks, recording.events) = (blocks, events);
        recording
    }

    fn row(requested: u64, stream: u32) -> BlockRow {
        BlockRow { stream, ..BlockRow::kept(0, requested) }
    }

    /// What a stream holds after each number of events, a free that completes at once left out.
    fn plainly(recording: &Recording, stream: u32) -> Vec<Amount> {
        let mut now = (0, 0);
        let mut all = vec![now];
        for (index, event) in recording.events.iter().enumerate() {
            let block = &recording.blocks[event.block as usize];
            if block.stream == stream {
                match event.op {
                    EventOp::Alloc => now.0 += block.requested,
                    EventOp::Freed => now = (now.0 - block.requested, now.1 + block.requested),
                    EventOp::Done => now.1 -= block.requested,
                }
            }
            let at_once = block.stream == stream && completes_next(recording, index);
            all.push(if at_once { (now.0, now.1 - block.requested) } else { now });
        }
        all
    }

    fn most(all: &[Amount]) -> Amount {
        let pending = all.iter().map(|now| now.1).max().unwrap_or(0);
        (all.iter().map(|now| now.0 + now.1).max().unwrap_or(0) - pending, pending)
    }

    #[test]
    fn columns_show_what_a_plain_walk_over_all_events_shows() {
        let recording = recording(5000);
        for stride in [1, 3, 8] {
            let held = Held::with_stride(&recording, lanes(&recording), stride);
            let streams: Vec<u32> = held.streams.iter().map(|of| of.stream).collect();
            assert_eq!(streams, [0, 1, 2], "the last one has no block");
            for wide in [1, 2, 5, 9, 40, 300, 2000] {
                for first in [0, 1, 777] {
                    let edges: Vec<u32> = (0..9).map(|n| (first + n * wide).min(5000)).collect();
                    check(&recording, &held, &edges);
                }
            }
            check(&recording, &held, &[0, 0, 4, 4, 5, 3000, 3001, 4999, 5000, 5000, 5000]);
        }
    }

    /// Compares with stretches that are as long as those that a column of this width is made of.
    fn check(recording: &Recording, held: &Held, edges: &[u32]) {
        let columns = held.columns(recording, edges);
        for (of, columns) in held.streams.iter().zip(columns) {
            let plain = plainly(recording, of.stream);
            for (edge, shown) in edges.windows(2).zip(columns) {
                let (mut from, mut to) = (edge[0] as usize, edge[1] as usize);
                if from >= recording.events.len() {
                    assert_eq!(shown, (0, 0), "{edge:?}");
                    continue;
                }
                if let Some(level) = held.level(to - from) {
                    let stride = held.stride * COARSER.pow(level as u32);
                    (from, to) = (from / stride * stride, to / stride * stride);
                }
                assert_eq!(shown, most(&plain[from..=to]), "stream {}, {edge:?}", of.stream);
            }
        }
    }

    #[test]
    fn a_recording_without_streams_or_events_has_no_lanes() {
        let recording = Recording::for_tests(Vec::new(), Vec::new());
        let held = Held::of(&recording);
        assert!(held.streams.is_empty() && held.columns(&recording, &[0, 0]).is_empty());
    }
}
