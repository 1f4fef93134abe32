//! Where a recorder gets events from.

use super::recorder::Feed;
use super::state::HeapState;
#[cfg(feature = "live")]
use super::texts::Status;
use super::texts::{Text, TextKind};
use super::writer::CHUNK_EVENTS;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use terrane_core::device::{DeviceError, HeapId};
use terrane_core::event::{Event, EventKind, RecorderMode};
use terrane_core::point::StreamId;
use terrane_core::{Allocator, PartState};

/// Where a worker gets events.
pub(super) trait Source: Send + 'static {
    /// The state before the first event.
    fn state(&self) -> HeapState;
    /// Appends new events and names. Gives the events lost so far and, when some were lost since
    /// the last call, the whole state.
    fn pull(&mut self, events: &mut Vec<Event>, texts: &mut Vec<Text>) -> Pulled;
    /// Whether the device can no longer be used.
    fn is_lost(&self) -> bool {
        false
    }
    /// The figures now; `None` where nobody can be asked.
    #[cfg(feature = "live")]
    fn status(&self) -> Option<Status>;
}

pub(super) struct Pulled {
    pub dropped: u64,
    pub state: Option<HeapState>,
}

/// An allocator's ring.
pub(super) struct RingSource {
    alloc: Allocator,
    /// The state before the first event.
    start: HeapState,
    /// Number of the last event that a state or an event told of.
    known: u64,
    early: EarlySites,
    dropped: u64,
    /// A stream that was used lately.
    stream: Option<StreamId>,
    #[cfg(feature = "stacks")]
    stacks: Option<Arc<super::stacks::Stacks>>,
}

/// Events kept in the allocator's ring until they are written: 16 MiB.
const RING_EVENTS: u32 = 1 << 18;
/// Slices of the ring that are taken at most when it has to be emptied.
const SLICES_MAX: usize = 8;

impl RingSource {
    pub fn new(alloc: &Allocator) -> Self {
        alloc.set_recorder(RecorderMode::Stream { capacity: RING_EVENTS });
        let alloc = alloc.clone();
        let mut early = EarlySites::default();
        let start = full_state(&alloc, &mut early);
        let known = start.sequence;
        Self {
            alloc,
            start,
            known,
            early,
            dropped: 0,
            stream: None,
            #[cfg(feature = "stacks")]
            stacks: None,
        }
    }

    /// Has the stack of every `every`-th request taken.
    #[cfg(feature = "stacks")]
    pub fn with_stacks(mut self, every: u32) -> Self {
        let stacks = Arc::new(super::stacks::Stacks::new());
        let taker = Arc::clone(&stacks);
        self.alloc.sample_stacks(every, move || taker.take());
        self.stacks = Some(stacks);
        self
    }

    /// Takes what is in the ring after events were lost: what came before the gap is good, what
    /// came after it is in the state that is taken now.
    fn resume(&mut self, events: &mut Vec<Event>, before: usize) -> HeapState {
        for _ in 0..SLICES_MAX {
            let drained = self.alloc.drain_events(events, CHUNK_EVENTS);
            self.dropped = drained.dropped;
            if !drained.more {
                break;
            }
        }
        let known = self.known;
        let expected = (1_u64..).map(|at| known.wrapping_add(at));
        let own = events[before..].iter().zip(expected);
        let whole = own.take_while(|(event, number)| event.sequence == *number).count();
        events.truncate(before + whole);
        let state = full_state(&self.alloc, &mut self.early);
        self.known = state.sequence;
        state
    }
}

/// Whether a number of an event comes after another. Over the end of 2^64 they begin anew.
const fn is_after(number: u64, other: u64) -> bool {
    number.wrapping_sub(other) as i64 > 0
}

impl Source for RingSource {
    fn state(&self) -> HeapState {
        self.start.clone()
    }

    fn pull(&mut self, events: &mut Vec<Event>, texts: &mut Vec<Text>) -> Pulled {
        let before = events.len();
        let drained = self.alloc.drain_events(events, CHUNK_EVENTS);
        // What a state already holds may have been told too, between two locks.
        let known = self.known;
        let stale =
            events[before..].iter().take_while(|event| !is_after(event.sequence, known)).count();
        events.drain(before..before + stale);
        let lost = drained.dropped > std::mem::replace(&mut self.dropped, drained.dropped);
        let state = lost.then(|| self.resume(events, before));
        let newer = events.last().filter(|last| is_after(last.sequence, known));
        if let (None, Some(last)) = (&state, newer) {
            self.known = last.sequence;
        }
        let sites: HashSet<u32> = events[before..].iter().map(Event::site).collect();
        for number in sites.into_iter().filter(|number| *number != 0) {
            texts.push(Text { kind: TextKind::Site, number, text: self.alloc.site_text(number) });
        }
        let tags: Vec<u16> = events[before..].iter().map(Event::tag).collect();
        self.early.name_tags(&self.alloc, tags);
        texts.append(&mut self.early.new);
        #[cfg(feature = "stacks")]
        if let Some(stacks) = &self.stacks {
            stacks.name_new(texts);
        }
        if let Some(event) = events.iter().rev().find(|event| event.is(EventKind::Alloc)) {
            self.stream = Some(StreamId(event.stream()));
        }
        Pulled { dropped: self.dropped, state }
    }

    /// Asks for one stream's progress, which a device that works tells at once.
    fn is_lost(&self) -> bool {
        let device = self.alloc.device();
        let Some(stream) = self.stream.filter(|_| !device.is_capturing()) else { return false };
        device.reached(stream) == Err(DeviceError::Lost)
    }

    #[cfg(feature = "live")]
    fn status(&self) -> Option<Status> {
        let stats = self.alloc.stats();
        let device = self.alloc.device();
        let heap = device.heap_use(HeapId(0)).ok();
        let total = device.caps().heaps.first().map_or(0, |heap| heap.total);
        Some(Status {
            requested: stats.total.requested.current,
            allocated: stats.total.allocated.current,
            active: stats.active.current,
            reserved: stats.reserved.current,
            free: stats.free,
            largest_free: stats.largest_free,
            pending: stats.pending,
            blocks: stats.total.blocks.current,
            out_of_memory: stats.out_of_memory,
            heap_total: total,
            heap_free: heap.map(|heap| heap.free),
        })
    }
}

#[cfg(feature = "stacks")]
impl Drop for RingSource {
    fn drop(&mut self) {
        if self.stacks.is_some() {
            self.alloc.sample_stacks(0, || (0, 0));
        }
    }
}

/// Names to be told. Sites of blocks that were there when a full state was taken: the allocator
/// tells their texts, not their numbers. And tags, each once.
#[derive(Default)]
struct EarlySites {
    numbers: HashMap<String, u32>,
    /// Tags that were named.
    tags: HashSet<u16>,
    new: Vec<Text>,
}

impl EarlySites {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = EARLY + self.numbers.len() as u32;
        self.numbers.insert(text.to_owned(), number);
        self.new.push(Text { kind: TextKind::Site, number, text: text.to_owned() });
        number
    }
}

impl EarlySites {
    /// Names the tags that were not named yet.
    fn name_tags(&mut self, alloc: &Allocator, tags: impl IntoIterator<Item = u16>) {
        for number in tags {
            if number != 0 && self.tags.insert(number) {
                let (kind, text) = (TextKind::Tag, alloc.tag_text(number));
                self.new.push(Text { kind, number: u32::from(number), text });
            }
        }
    }
}

/// Numbers for sites of blocks that were there before recording began; the allocator's own
/// numbers never come near.
const EARLY: u32 = 1 << 31;
/// Numbers for memory objects of that time: an allocator tells which ranges have memory, not
/// whose.
const EARLY_OBJECTS: u64 = 1 << 63;

/// The allocator's blocks and segments as a state.
fn full_state(alloc: &Allocator, early: &mut EarlySites) -> HeapState {
    let snapshot = alloc.snapshot();
    let mut state = HeapState::default();
    let mut objects = EARLY_OBJECTS;
    for segment in &snapshot.segments {
        let class = segment.class.0;
        let mut add = |event: Event| state.apply(&event.of(class, 0), &mut |_| {});
        if segment.paged {
            for part in &segment.parts {
                if matches!(part.state, PartState::Live | PartState::Free) {
                    let at = segment.base + part.offset;
                    add(Event::new(EventKind::PageCreated).a(objects).b(part.bytes));
                    add(Event::new(EventKind::PageMapped).a(objects).b(part.bytes).c(at));
                    objects += 1;
                }
            }
        } else {
            add(Event::new(EventKind::SegmentEnd).a(segment.space.0).b(segment.bytes));
        }
        for part in &segment.parts {
            let Some(block) = &part.block else { continue };
            let site = early.number(&block.site);
            early.name_tags(alloc, [block.tag.number()]);
            let event = Event::new(EventKind::Alloc).handle(block.handle.number());
            let event = event.a(block.requested).b(part.bytes).c(segment.base + part.offset);
            let event = event.within(segment.space.0).of(class, block.tag.number());
            state.apply(&event.on(block.stream.0, site), &mut |_| {});
        }
    }
    state.sequence = snapshot.sequence;
    state.limit = Some(alloc.limit(HeapId(0))).filter(|limit| *limit < u64::MAX);
    state
}

/// What is fed by hand.
pub(super) struct FeedSource {
    pub feed: Arc<Feed>,
}

impl Source for FeedSource {
    fn state(&self) -> HeapState {
        HeapState::default()
    }

    fn pull(&mut self, events: &mut Vec<Event>, texts: &mut Vec<Text>) -> Pulled {
        let dropped = self.feed.take(events, texts);
        // Nobody can be asked for the state of an allocator that is not ours.
        Pulled { dropped, state: None }
    }

    #[cfg(feature = "live")]
    fn status(&self) -> Option<Status> {
        None
    }
}
