//! Where a recorder gets events from.

use super::early_names::EarlySites;
use super::recorder::Feed;
use super::state::HeapState;
#[cfg(feature = "live")]
use super::texts::Status;
use super::texts::Text;
use super::writer::CHUNK_EVENTS;
use std::sync::Arc;
use terrane_core::Allocator;
use terrane_core::device::{DeviceError, HeapId};
use terrane_core::event::{Event, EventKind, RecorderMode};
use terrane_core::pages::MappedPage;
use terrane_core::point::StreamId;

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
    /// Events that the ring has lost so far, and those of them that were none of this source's.
    dropped: u64,
    dropped_before: u64,
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
        // What a flight recorder has overwritten.
        let dropped = alloc.drain_events(&mut Vec::new(), 0).dropped;
        let mut early = EarlySites::default();
        let start = full_state(&alloc, &mut early);
        let known = start.sequence;
        Self {
            alloc,
            start,
            known,
            early,
            dropped,
            dropped_before: dropped,
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
        let dropped = drained.dropped > std::mem::replace(&mut self.dropped, drained.dropped);
        // Nobody counts those that were kept when the recorder's mode was set.
        let next = events.get(before).map(|event| event.sequence);
        let lost = dropped || next.is_some_and(|next| next != known.wrapping_add(1));
        let state = lost.then(|| self.resume(events, before));
        let newer = events.last().filter(|last| is_after(last.sequence, known));
        if let (None, Some(last)) = (&state, newer) {
            self.known = last.sequence;
        }
        self.early.name_sites(&self.alloc, events[before..].iter().map(Event::site));
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
        Pulled { dropped: self.dropped - self.dropped_before, state }
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

/// The allocator's blocks and segments as a state.
fn full_state(alloc: &Allocator, early: &mut EarlySites) -> HeapState {
    let snapshot = alloc.snapshot();
    let mut state = HeapState::default();
    for segment in &snapshot.segments {
        let class = segment.class.0;
        let mut add = |event: Event| state.apply(&event.of(class, 0), &mut |_| {});
        if segment.paged {
            for MappedPage { at, backing } in &segment.pages {
                let object = backing.object.0;
                add(Event::new(EventKind::PageCreated).a(object).b(backing.object_bytes));
                add(Event::new(EventKind::PageMapped).a(object).b(backing.bytes).c(*at));
            }
        } else {
            add(Event::new(EventKind::SegmentEnd).a(segment.space.0).b(segment.bytes));
        }
        for part in &segment.parts {
            let Some(block) = &part.block else { continue };
            let site = early.number(&block.site);
            early.name_tags(alloc, [block.tag.number()]);
            let event = Event::new(EventKind::Alloc).handle(block.handle.number());
            // As the events tell it: a paused block has no bytes.
            let (requested, bytes) =
                if block.paused { (0, 0) } else { (block.requested, part.bytes) };
            let event = event.a(requested).b(bytes).c(segment.base + part.offset);
            let event = event.within(segment.space.0).of(class, block.tag.number());
            let event = event.holding(1 + block.held_by.map_or(0, |why| why as u8));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SegmentOp;
    use crate::recording::Follow;
    use crate::snapshot::{History, SegmentChange};
    use std::collections::BTreeMap;
    use std::time::Duration;
    use terrane_core::compact::{Goal, Limits, Why};
    use terrane_core::device::sim::{Sim, SimDevice};
    use terrane_core::device::{Device, StreamSpec};
    use terrane_core::point::Points;
    use terrane_core::{Config, Contents, Handle, Pin, Request, Selection};

    struct Busy {
        sim: SimDevice,
        alloc: Allocator,
        streams: [StreamId; 2],
        live: Vec<Handle>,
        guards: Vec<Pin>,
        seed: u64,
    }

    impl Busy {
        fn new(sim: Sim, seed: u64) -> Self {
            let sim = sim.open();
            let mut config = Config::for_device(sim.caps());
            config.paging = sim.caps().paging.is_some();
            let alloc = Allocator::with_config(sim.shared(), config).unwrap();
            let streams = [(); 2].map(|()| sim.create_stream(StreamSpec::default()).unwrap());
            Self { sim, alloc, streams, live: Vec::new(), guards: Vec::new(), seed }
        }

        fn random(&mut self, below: u64) -> u64 {
            self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.seed >> 33) % below
        }

        fn any(&mut self) -> Handle {
            let at = self.random(self.live.len() as u64) as usize;
            self.live[at]
        }

        fn grow(&mut self) {
            let stream = self.streams[self.random(2) as usize];
            let bytes = 1 + (self.random(1 << 12) << self.random(13));
            let request = match self.random(8) {
                0 => Request::new(bytes, stream).movable(false),
                1 => Request::new(bytes, stream).raw_handle(true),
                _ => Request::new(bytes, stream),
            };
            self.live.push(self.alloc.alloc(&request).unwrap().handle);
        }

        fn step(&mut self) {
            let stream = self.streams[self.random(2) as usize];
            match self.random(100) {
                0 => _ = self.alloc.trim(0).unwrap(),
                1 => {
                    let goal = Goal::Fragmentation { below: 0.0 };
                    self.alloc.compact(goal, Limits::NONE).unwrap();
                }
                2 => {
                    let bytes = (1 << 30) + self.random(1 << 30);
                    self.alloc.set_limit(HeapId(0), bytes);
                }
                3..=60 if self.live.len() < 30 => self.grow(),
                _ if self.live.is_empty() => {}
                61..=64 => {
                    let handle = self.any();
                    // Where there is no room behind it, or it is paused, it stays as it is.
                    let bytes = self.alloc.info(handle).unwrap().requested + self.random(1 << 16);
                    let _ = self.alloc.grow(handle, bytes);
                }
                65..=68 => {
                    let what = Selection::Block(self.any());
                    self.alloc.pause(what, Contents::Discard, Duration::from_secs(9)).unwrap();
                }
                69..=72 => {
                    let what = Selection::Block(self.any());
                    self.alloc.resume(what).unwrap();
                }
                73..=76 if self.guards.len() < 4 => {
                    // A block that is paused has no place to hold.
                    let handle = self.any();
                    self.guards.extend(self.alloc.pin(handle));
                }
                77..=79 if !self.guards.is_empty() => {
                    let at = self.random(self.guards.len() as u64) as usize;
                    drop(self.guards.swap_remove(at));
                }
                at if at % 2 == 0 => {
                    let at = self.random(self.live.len() as u64) as usize;
                    self.alloc.free(self.live.swap_remove(at)).unwrap();
                }
                _ => {
                    let at = self.random(self.live.len() as u64) as usize;
                    let point = self.sim.submit(stream, 1000).unwrap();
                    let handle = self.live.swap_remove(at);
                    self.alloc.free_after(handle, &Points::one(point)).unwrap();
                    self.sim.advance(500);
                }
            }
        }
    }

    /// Blocks by handle: bytes, place and hold; and the memory, side by side ranges joined.
    type Shown = (BTreeMap<u64, [u64; 4]>, Vec<(u64, u64)>, u64);

    fn shown(state: &HeapState) -> Shown {
        let live = state.blocks.iter().filter(|(_, block)| !block.pending);
        let show = |made: &Event| {
            let place = state.base_of(made).wrapping_add(made.c);
            [made.a, made.b, place, u64::from(made.hold_code())]
        };
        let live = live.map(|(&handle, block)| (handle, show(&block.made))).collect();
        let plain = state.segments.iter();
        let plain = plain.map(|(&space, it)| (HeapState::plain_base(space), it.bytes));
        let paged = state.pages.iter();
        let paged =
            paged.map(|(&(class, at), &(_, bytes))| (HeapState::paged_base(class) + at, bytes));
        let mut memory: Vec<(u64, u64)> = Vec::new();
        for (at, bytes) in plain.chain(paged) {
            match memory.last_mut() {
                Some((start, length)) if *start + *length == at => *length += bytes,
                _ => memory.push((at, bytes)),
            }
        }
        (live, memory, state.reserved_bytes())
    }

    /// What a worker has folded after a pull.
    fn fold(source: &mut RingSource, state: &mut HeapState, follow: &mut Follow) -> bool {
        let (mut events, mut texts) = (Vec::new(), Vec::new());
        let pulled = source.pull(&mut events, &mut texts);
        let mut numbers = events.iter().map(|event| event.sequence);
        assert!(numbers.all(|number| number > state.sequence), "told twice");
        events.iter().for_each(|event| state.apply(event, &mut |_| {}));
        follow.events(&events).unwrap();
        let lost = pulled.state.is_some();
        if let Some(whole) = pulled.state {
            follow.state(&whole).unwrap();
            *state = whole;
        }
        lost
    }

    /// What a history shows at its end: live blocks, and bytes of memory that came and did not go.
    fn at_end(history: &History) -> (Vec<(u64, u64)>, u64) {
        let mut places: Vec<u64> = history.blocks.iter().map(|block| block.address).collect();
        for moved in history.happenings.iter().filter(|it| it.what.is_move()) {
            if let Some(block) = moved.block {
                places[block as usize] = moved.address;
            }
        }
        let lives = history.trace.lifetimes();
        let live = lives.iter().zip(places).filter(|(life, _)| life.requested.is_none());
        let mut blocks: Vec<(u64, u64)> = live.map(|(life, place)| (place, life.bytes)).collect();
        blocks.sort_unstable();
        let change = |change: &SegmentChange| match change.event.op {
            SegmentOp::Alloc | SegmentOp::Map => change.event.bytes as i64,
            SegmentOp::Free | SegmentOp::Unmap => -(change.event.bytes as i64),
        };
        (blocks, history.segments.iter().map(change).sum::<i64>() as u64)
    }

    #[test]
    fn what_is_folded_from_events_and_full_states_is_what_the_allocator_has() {
        for (name, sim) in
            [("slabs", Sim::slabs()), ("cuda", Sim::cuda()), ("vulkan", Sim::vulkan())]
        {
            let (mut gaps, mut stolen, mut moves) = (0, 0, 0);
            let mut holds = std::collections::BTreeSet::new();
            for seed in 0..20 {
                let mut busy = Busy::new(sim.clone(), seed);
                (0..200).for_each(|_| busy.step());
                let mut source = RingSource::new(&busy.alloc);
                let mut state = source.state();
                let mut follow = Follow::new();
                follow.state(&state).unwrap();
                busy.alloc.set_recorder(RecorderMode::Stream { capacity: 32 });
                for round in 0..40 {
                    (0..1 + busy.random(30)).for_each(|_| busy.step());
                    if busy.random(8) == 0 {
                        // Somebody else's call gives up what was kept; what follows shows it.
                        busy.alloc.set_recorder(RecorderMode::Stream { capacity: 32 });
                        busy.grow();
                    }
                    gaps += usize::from(fold(&mut source, &mut state, &mut follow));
                    let told = format!("{name}, seed {seed}, round {round}");
                    let now = full_state(&busy.alloc, &mut EarlySites::default());
                    assert_eq!(shown(&state), shown(&now), "{told}");
                    let reserved = busy.alloc.stats().reserved.current;
                    assert_eq!(state.reserved_bytes(), reserved, "{told}");
                }
                let stats = busy.alloc.stats();
                (stolen, moves) = (stolen + stats.pages_stolen, moves + stats.moves.committed);
                let (live, memory, _) = shown(&state);
                holds.extend(live.values().map(|it| it[3]));
                let mut live: Vec<(u64, u64)> =
                    live.values().map(|it| (it[2], it[0].max(1))).collect();
                live.sort_unstable();
                let mapped = memory.iter().map(|(_, bytes)| bytes).sum();
                let recording = follow.into_recording();
                assert_eq!(at_end(&recording.histories[0]), (live, mapped), "{name}, seed {seed}");
                assert_eq!(recording.snapshot.reserved_bytes(0), mapped, "{name}, seed {seed}");
            }
            assert!(gaps > 100, "{name}: {gaps} gaps");
            let told =
                [None, Some(Why::Asked), Some(Why::Held), Some(Why::RawHandle), Some(Why::Freed)];
            let told = told.map(|why| 1 + why.map_or(0, |why| why as u64));
            assert!(told.iter().all(|code| holds.contains(code)), "{name}: {holds:?}");
            assert!(name != "slabs" || moves > 100, "{name}: {moves} moves");
            assert!(name == "slabs" || stolen > 100, "{name}: {stolen} pages stolen");
        }
    }
}
