//! Histories of PyTorch's allocator that begin anywhere, put together, and the moment of their
//! peak, worked out from the dump backwards, against a plain walk forwards.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::ops::Range;

use terrane_trace::Op;
use terrane_trace::diagnose::timeline_each;
use terrane_trace::snapshot::{Action, Block, BlockState, Note, Segment, Snapshot, TraceEntry};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 2 * MIB;
const STREAMS: usize = 2;
/// Pages that the expandable segment of a stream can have.
const PAGES: usize = 12;

#[derive(Clone, Debug, PartialEq)]
struct Live {
    bytes: u64,
    stream: usize,
    /// The entry that asked for its free.
    requested: Option<usize>,
}

impl Live {
    fn rounded(&self) -> u64 {
        self.bytes.next_multiple_of(512)
    }
}

/// What PyTorch would have in memory.
#[derive(Clone, Debug, Default)]
struct Heap {
    blocks: BTreeMap<u64, Live>,
    /// Bytes and stream.
    plain: BTreeMap<u64, (u64, usize)>,
    mapped: [[bool; PAGES]; STREAMS],
}

fn base(stream: usize) -> u64 {
    (1 + stream as u64) << 40
}

impl Heap {
    /// Plain segments and runs of mapped pages: first address, bytes, stream, expandable.
    fn segments(&self) -> Vec<(u64, u64, usize, bool)> {
        let plain = self.plain.iter().map(|(&at, &(bytes, stream))| (at, bytes, stream, false));
        let mut segments: Vec<_> = plain.collect();
        for (stream, pages) in self.mapped.iter().enumerate() {
            for page in (0..PAGES).filter(|&page| pages[page]) {
                let at = base(stream) + page as u64 * PAGE;
                match segments.last_mut() {
                    Some((start, bytes, ..)) if *start + *bytes == at => *bytes += PAGE,
                    _ => segments.push((at, PAGE, stream, true)),
                }
            }
        }
        segments
    }

    fn is_free(&self, range: &Range<u64>) -> bool {
        let before = self.blocks.range(..range.end).next_back();
        before.is_none_or(|(at, block)| at + block.rounded() <= range.start)
    }

    fn active(&self) -> u64 {
        self.blocks.values().map(|block| block.bytes).sum()
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) as usize % limit.max(1)
    }
}

fn entry(action: Action, address: u64, bytes: u64, stream: usize) -> TraceEntry {
    TraceEntry {
        address,
        bytes,
        time_us: 1,
        stream: stream as u32,
        stack: None,
        compile_context: None,
        metadata: None,
        action,
    }
}

/// One step that PyTorch could have made, if the dice find one.
fn step(heap: &mut Heap, random: &mut Random, number: usize) -> Option<TraceEntry> {
    let stream = random.below(STREAMS);
    match random.below(10) {
        0 => {
            let (at, bytes) = (number as u64 * 64 * MIB, [2, 20][random.below(2)] * MIB);
            heap.plain.insert(at, (bytes, stream));
            Some(entry(Action::SegmentAlloc, at, bytes, stream))
        }
        1 => {
            let empty = |at: u64, bytes: u64| heap.is_free(&(at..at + bytes));
            let mut segments = heap.plain.iter().filter(|(at, (bytes, _))| empty(**at, *bytes));
            let (&at, &(bytes, stream)) = segments.next()?;
            heap.plain.remove(&at);
            Some(entry(Action::SegmentFree, at, bytes, stream))
        }
        2 | 3 => {
            let (from, map) = (random.below(PAGES), random.below(3) > 0);
            let free = |page: usize| {
                let at = base(stream) + page as u64 * PAGE;
                heap.mapped[stream][page] != map && heap.is_free(&(at..at + PAGE))
            };
            let count = (from..PAGES).take(1 + random.below(4)).take_while(|&p| free(p)).count();
            heap.mapped[stream][from..from + count].fill(map);
            let action = if map { Action::SegmentMap } else { Action::SegmentUnmap };
            let at = base(stream) + from as u64 * PAGE;
            (count > 0).then(|| entry(action, at, count as u64 * PAGE, stream))
        }
        4..=7 => {
            let segments = heap.segments();
            let (start, length, stream, _) = *segments.get(random.below(segments.len()))?;
            let bytes = (1 + random.below(5 * MIB as usize)) as u64;
            let at = start + random.below(length as usize / 512) as u64 * 512;
            let block = Live { bytes, stream, requested: None };
            let range = at..at + block.rounded();
            let fits = range.end <= start + length && heap.is_free(&range);
            fits.then(|| _ = heap.blocks.insert(at, block));
            fits.then(|| entry(Action::Alloc, at, bytes, stream))
        }
        _ => {
            let (&at, _) = heap.blocks.iter().nth(random.below(heap.blocks.len()))?;
            let Live { bytes, stream, requested } = heap.blocks[&at].clone();
            let action = match requested {
                None => Action::FreeRequested,
                Some(_) => Action::FreeCompleted,
            };
            match requested {
                None => heap.blocks.get_mut(&at)?.requested = Some(number),
                Some(_) => _ = heap.blocks.remove(&at),
            }
            Some(entry(action, at, bytes, stream))
        }
    }
}

/// The dump of a heap, with the given history.
fn dump(heap: &Heap, history: &[TraceEntry]) -> Snapshot {
    let segment = |(address, total_bytes, stream, expandable)| Segment {
        address,
        total_bytes,
        stream: stream as u32,
        expandable,
        blocks: heap
            .blocks
            .range(address..address + total_bytes)
            .map(|(&address, block)| Block {
                address,
                bytes: block.rounded(),
                requested_bytes: Some(block.bytes),
                state: match block.requested {
                    None => BlockState::Allocated,
                    Some(_) => BlockState::PendingFree,
                },
                stack: None,
            })
            .collect(),
        ..Segment::default()
    };
    Snapshot {
        segments: heap.segments().into_iter().map(segment).collect(),
        device_traces: vec![history.to_vec()],
        streams: vec![0, 1],
        ..Snapshot::default()
    }
}

/// Compares what a snapshot shows of its peak with the heap as it was then.
fn compare(moment: &Snapshot, heap: &Heap, from: usize, at: usize, told: &str) {
    assert_eq!(moment.notes, [Note::PeakOnly { entries: (at - from) as u64 }], "{told}");
    let shown = moment.segments.iter();
    let shown = shown.map(|s| (s.address, s.total_bytes, s.stream as usize, s.expandable));
    assert_eq!(shown.collect::<Vec<_>>(), heap.segments(), "{told}");
    let mut live = BTreeMap::new();
    for segment in &moment.segments {
        let (mut end, mut active, mut allocated) = (segment.address, 0, 0);
        for block in &segment.blocks {
            assert_eq!(block.address, end, "{told}: a gap or an overlap");
            end += block.bytes;
            active += if block.state == BlockState::Inactive { 0 } else { block.bytes };
            allocated += if block.state == BlockState::Allocated { block.bytes } else { 0 };
            if block.state != BlockState::Inactive {
                let pending = block.state == BlockState::PendingFree;
                live.insert(block.address, (block.requested_bytes.unwrap(), pending));
            }
        }
        assert_eq!(end, segment.address + segment.total_bytes, "{told}");
        assert_eq!((active, allocated), (segment.active_bytes, segment.allocated_bytes), "{told}");
    }
    // What was asked for before the history begins is not known.
    let is_pending = |block: &Live| block.requested.is_some_and(|entry| entry >= from);
    let blocks = heap.blocks.iter().map(|(&at, block)| (at, (block.bytes, is_pending(block))));
    assert_eq!(live, blocks.collect(), "{told}");
}

/// A random history, the heap before it and after each entry of it.
fn random_history(random: &mut Random, entries: usize) -> (Vec<TraceEntry>, Vec<Heap>) {
    let mut heap = Heap::default();
    let (mut heaps, mut made) = (vec![heap.clone()], Vec::new());
    while made.len() < entries {
        if let Some(entry) = step(&mut heap, random, made.len()) {
            made.push(entry);
            heaps.push(heap.clone());
        }
    }
    (made, heaps)
}

/// What a trace says after each event is what the heap was after its entry.
fn compare_history(snapshot: &Snapshot, heaps: &[Heap], told: &str) {
    let history = snapshot.history(0).unwrap().unwrap();
    let gaps = history.gaps;
    let earlier = (gaps.earlier_blocks, gaps.earlier_bytes);
    assert_eq!(earlier, (heaps[0].blocks.len() as u64, heaps[0].active()), "{told}");
    assert_eq!(gaps.frees_missing, 0, "{told}");
    // Frees whose request came before the history, and whose completion is in it.
    let freed = |(at, block): &(&u64, &Live)| {
        let here = |heap: &Heap| heap.blocks.get(at) == Some(*block);
        block.requested.is_some() && !heaps.iter().all(here)
    };
    let requests_missing = heaps[0].blocks.iter().filter(freed).count() as u64;
    assert_eq!(gaps.requests_missing, requests_missing, "{told}");
    let mut live = BTreeMap::new();
    let reserved = timeline_each(snapshot, &history).map(|point| point.reserved);
    let events = history.trace.iter().zip(&history.entries).zip(reserved);
    for ((event, &entry), reserved) in events {
        let address = history.blocks[event.block as usize].address;
        match event.op {
            Op::Alloc => _ = live.insert(address, event.bytes),
            Op::FreeRequested => {}
            Op::FreeCompleted => _ = live.remove(&address),
        }
        let Some(heap) = heaps.get(entry as usize + 1) else { continue };
        let there = heap.blocks.iter().map(|(&at, block)| (at, block.bytes));
        assert_eq!(live, there.collect(), "{told}, entry {entry}");
        let all: u64 = heap.segments().iter().map(|segment| segment.1).sum();
        assert_eq!(reserved, all, "{told}, entry {entry}");
    }
}

#[test]
fn random_histories_are_put_together_wherever_they_begin() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let (entries, heaps) = random_history(&mut random, 120);
        let from = random.below(60);
        let snapshot = dump(heaps.last().unwrap(), &entries[from..]);
        compare_history(&snapshot, &heaps[from..], &format!("seed {seed}"));
    }
}

#[test]
fn a_block_whose_free_is_not_in_the_history_ends_where_its_address_is_used_again() {
    let events = [
        entry(Action::Alloc, 4096, 1000, 0),
        entry(Action::Alloc, 8192, 500, 1),
        entry(Action::FreeRequested, 8192, 500, 1),
        entry(Action::Alloc, 4096, 700, 0),
        entry(Action::Alloc, 8192, 600, 0),
        entry(Action::FreeCompleted, 4096, 700, 0),
    ];
    let history = dump(&Heap::default(), &events).history(0).unwrap().unwrap();
    let shown = history.trace.iter().zip(&history.entries);
    let shown: Vec<(Op, u64, u32)> = shown.map(|(it, at)| (it.op, it.bytes, *at)).collect();
    let (made, asked, done, none) = (Op::Alloc, Op::FreeRequested, Op::FreeCompleted, u32::MAX);
    let expected = [
        (made, 1000, 0),
        (made, 500, 1),
        (asked, 500, 2),
        (asked, 1000, none),
        (done, 1000, none),
        (made, 700, 3),
        (done, 500, none),
        (made, 600, 4),
        (asked, 700, none),
        (done, 700, 5),
    ];
    assert_eq!(shown, expected);
    assert_eq!((history.gaps.frees_missing, history.gaps.requests_missing), (2, 1));
}

#[test]
fn the_peak_of_random_histories_is_what_a_walk_forwards_finds_wherever_they_begin() {
    let mut undone = [0; 4];
    for seed in 0..300 {
        let mut random = Random(seed);
        let (entries, heaps) = random_history(&mut random, 120);
        let from = random.below(60);
        let snapshot = dump(heaps.last().unwrap(), &entries[from..]);
        let first_most = |best: usize, at: usize| {
            if heaps[at].active() > heaps[best].active() { at } else { best }
        };
        let peak = (from..heaps.len()).reduce(first_most).unwrap();
        let moment = snapshot.at_peak(0).unwrap();
        compare(&moment, &heaps[peak], from, peak, &format!("seed {seed}"));
        for entry in &entries[peak..] {
            match entry.action {
                Action::SegmentAlloc => undone[0] += 1,
                Action::SegmentFree => undone[1] += 1,
                Action::SegmentMap => undone[2] += 1,
                Action::SegmentUnmap => undone[3] += 1,
                _ => {}
            }
        }
    }
    assert!(undone.iter().all(|count| *count > 50), "{undone:?} of each kind undone");
}

#[test]
fn a_device_without_history_has_no_peak() {
    let heap = Heap::default();
    assert!(dump(&heap, &[]).at_peak(0).is_none());
    let one = entry(Action::Alloc, 0, 1, 0);
    assert!(dump(&heap, &[one]).at_peak(1).is_none());
}
