//! What is there, folded from events.

use std::collections::{BTreeMap, BTreeSet};
use terrane_core::event::{Event, EventKind};

/// A block that is live, or freed and still in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBlock {
    /// The event that made it, at its place and size now.
    pub made: Event,
    /// True when it was freed and its completion is still to come.
    pub pending: bool,
}

/// A segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentState {
    /// Bytes.
    pub bytes: u64,
    /// Memory class.
    pub class: u8,
}

/// Everything that is there at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeapState {
    /// Number of the last event folded.
    pub sequence: u64,
    /// Its time, nanoseconds of the allocator's clock.
    pub time_ns: u64,
    /// By handle.
    pub blocks: BTreeMap<u64, LiveBlock>,
    /// By the number of their space.
    pub segments: BTreeMap<u64, SegmentState>,
    /// Memory objects for pages: bytes by number.
    pub objects: BTreeMap<u64, u64>,
    /// Pages that are mapped, each once: (memory object, bytes) by (class, offset). Where a page
    /// was stolen, its old place is out at once, though the old mapping may stand a while.
    pub pages: BTreeMap<(u8, u64), (u64, u64)>,
    /// The limit of the allocator's first heap, if it has one.
    pub limit: Option<u64>,
    /// Freed blocks, by class, in the order of their frees: completions of several at once say
    /// only how many bytes.
    pending: BTreeMap<u8, BTreeMap<u64, u64>>,
    /// Where they lie: handle, class, and which free of all it was.
    freed: BTreeMap<u64, (u64, u8, u64)>,
    frees: u64,
    /// Places of `pages` by memory object.
    places: BTreeMap<u64, BTreeSet<(u8, u64)>>,
}

impl HeapState {
    /// Nothing, as of after the event with this number.
    #[must_use]
    pub fn empty_after(sequence: u64) -> Self {
        Self { sequence, ..Self::default() }
    }

    /// Bytes of segments and of memory objects for pages.
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        let segments = self.segments.values().map(|segment| segment.bytes);
        segments.chain(self.objects.values().copied()).fold(0, u64::saturating_add)
    }

    /// Takes one event in. `completed` is told of every block whose free completes.
    pub fn apply(&mut self, event: &Event, completed: &mut dyn FnMut(u64)) {
        self.sequence = event.sequence;
        self.time_ns = self.time_ns.max(event.time_ns);
        let is = |kind| event.is(kind);
        if is(EventKind::Alloc) {
            for handle in self.overlaid(event) {
                self.forget(handle);
                completed(handle);
            }
            self.blocks.insert(event.handle, LiveBlock { made: *event, pending: false });
        } else if is(EventKind::FreeRequested) {
            self.free(event);
        } else if is(EventKind::FreeCompleted) {
            self.complete(event, completed);
        } else if is(EventKind::Resized) {
            if let Some(block) = self.blocks.get_mut(&event.handle) {
                block.made = block.made.a(event.a).b(event.b);
            }
        } else if is(EventKind::Stack) {
            if let Some(block) = self.blocks.get_mut(&event.handle) {
                block.made = block.made.on(block.made.stream(), event.a as u32);
            }
        } else if is(EventKind::Hold) {
            if let Some(block) = self.blocks.get_mut(&event.handle) {
                block.made = block.made.holding(held(event));
            }
        } else if is(EventKind::MoveSubmitted) {
            if let Some(block) = self.blocks.get_mut(&event.handle) {
                block.made = moved(block.made, event);
            }
        } else if is(EventKind::SegmentEnd) {
            self.segments.insert(event.a, SegmentState { bytes: event.b, class: event.class() });
        } else if is(EventKind::SegmentReleased) {
            self.segments.remove(&event.a);
        } else if is(EventKind::PageCreated) {
            self.objects.insert(event.a, event.b);
        } else if is(EventKind::PageReleased) {
            self.objects.remove(&event.a);
            for place in self.places.remove(&event.a).unwrap_or_default() {
                self.pages.remove(&place);
            }
        } else if is(EventKind::PageMapped) || is(EventKind::PageStolen) {
            if let Some(old) = self.stolen_from(event) {
                self.unmap(old);
            }
            let place = (event.class(), event.c);
            self.unmap(place);
            self.pages.insert(place, (event.a, event.b));
            self.places.entry(event.a).or_default().insert(place);
        } else if is(EventKind::PageUnmapped) {
            let place = (event.class(), event.c);
            if self.pages.get(&place).is_some_and(|page| page.0 == event.a) {
                self.unmap(place);
            }
        } else if is(EventKind::LimitSet) && event.a == 0 {
            self.limit = Some(event.b);
        }
    }

    /// Freed blocks whose bytes an allocation takes behind a wait, before their completion is told:
    /// it never will be.
    #[must_use]
    pub fn overlaid(&self, event: &Event) -> Vec<u64> {
        if self.freed.is_empty() || !event.is(EventKind::Alloc) {
            return Vec::new();
        }
        let start = self.base_of(event).wrapping_add(event.c);
        let before = self.freed.range(..start.saturating_add(event.b)).rev();
        let ends_after = |(at, (handle, ..)): &(&u64, &(u64, u8, u64))| {
            let bytes = self.blocks.get(handle).map_or(0, |block| block.made.b);
            at.saturating_add(bytes) > start
        };
        before.take_while(ends_after).map(|(_, (handle, ..))| *handle).collect()
    }

    fn place_of(&self, made: &Event) -> u64 {
        self.base_of(made).wrapping_add(made.c)
    }

    fn free(&mut self, event: &Event) {
        let Some(block) = self.blocks.get_mut(&event.handle) else { return };
        if std::mem::replace(&mut block.pending, true) {
            return;
        }
        let made = block.made;
        self.frees += 1;
        let freed = (event.handle, event.class(), self.frees);
        self.pending.entry(event.class()).or_default().insert(self.frees, event.handle);
        self.freed.insert(self.place_of(&made), freed);
    }

    /// Takes a block out, and out of those that were freed.
    fn forget(&mut self, handle: u64) -> Option<LiveBlock> {
        let block = self.blocks.remove(&handle)?;
        if block.pending {
            let at = self.place_of(&block.made);
            let here = self.freed.get(&at).filter(|freed| freed.0 == handle).map(|_| at);
            // Its space is named otherwise by now, or a file contradicts itself.
            let other = || Some(*self.freed.iter().find(|(_, freed)| freed.0 == handle)?.0);
            if let Some((_, class, number)) =
                here.or_else(other).and_then(|at| self.freed.remove(&at))
                && let Some(pending) = self.pending.get_mut(&class)
            {
                pending.remove(&number);
            }
        }
        Some(block)
    }

    /// Where a page lies that this event maps elsewhere.
    #[must_use]
    pub fn stolen_from(&self, event: &Event) -> Option<(u8, u64)> {
        if !event.is(EventKind::PageStolen) {
            return None;
        }
        let (place, page) = ((event.class(), event.c), (event.a, event.b));
        if let Some(at) = event.handle.checked_sub(1) {
            let old = (event.class(), at);
            return (self.pages.get(&old) == Some(&page)).then_some(old);
        }
        // Not told: a page of that object and size, which is the one where pages are whole objects.
        let mut others = self.places.get(&event.a)?.iter().filter(|other| **other != place);
        others.find(|other| self.pages.get(other) == Some(&page)).copied()
    }

    /// The places at which pages of a memory object are mapped, and their bytes.
    pub fn pages_of(&self, object: u64) -> impl Iterator<Item = ((u8, u64), u64)> + '_ {
        let places = self.places.get(&object).into_iter().flatten();
        places.filter_map(|place| Some((*place, self.pages.get(place)?.1)))
    }

    fn unmap(&mut self, place: (u8, u64)) {
        if let Some((object, _)) = self.pages.remove(&place)
            && let Some(places) = self.places.get_mut(&object)
        {
            places.remove(&place);
        }
    }

    /// The first byte of the space that the place of an event is in. A file has offsets and no
    /// addresses, so spaces lie 2^40 bytes apart; those that are backed page by page are told
    /// apart by class.
    #[must_use]
    pub fn base_of(&self, event: &Event) -> u64 {
        let space = u64::from(event.space());
        let is_plain = self.segments.keys().any(|key| key & 0xffff == space);
        if is_plain { Self::plain_base(space) } else { Self::paged_base(event.class()) }
    }

    /// The first byte of a plain segment.
    #[must_use]
    pub fn plain_base(space: u64) -> u64 {
        ((space & 0xffff) + 1) << 40
    }

    /// The first byte of the space of a class that is backed page by page.
    #[must_use]
    pub fn paged_base(class: u8) -> u64 {
        (0x2_0000 | u64::from(class)) << 40
    }

    fn complete(&mut self, event: &Event, completed: &mut dyn FnMut(u64)) {
        if event.handle != 0 {
            if self.forget(event.handle).is_some() {
                completed(event.handle);
            }
            return;
        }
        let mut left = event.b;
        let pending = self.pending.get(&event.class()).into_iter().flat_map(|it| it.values());
        let fits = |handle: &&u64| {
            let bytes = self.blocks.get(handle).map_or(0, |block| block.made.b);
            let fits = bytes <= left;
            left -= if fits { bytes } else { 0 };
            fits
        };
        let done: Vec<u64> = pending.filter(fits).copied().collect();
        for handle in done {
            if self.forget(handle).is_some() {
                completed(handle);
            }
        }
    }

    /// Events that make this state out of nothing: a keyframe.
    #[must_use]
    pub fn to_events(&self) -> Vec<Event> {
        let time = |mut event: Event| {
            event.time_ns = self.time_ns;
            event
        };
        let mut events = Vec::new();
        events.extend(self.limit.map(|bytes| time(Event::new(EventKind::LimitSet).b(bytes))));
        for (&space, segment) in &self.segments {
            let event = Event::new(EventKind::SegmentEnd).a(space).b(segment.bytes);
            events.push(time(event.of(segment.class, 0)));
        }
        for (&object, &bytes) in &self.objects {
            events.push(time(Event::new(EventKind::PageCreated).a(object).b(bytes)));
        }
        for (&(class, at), &(object, bytes)) in &self.pages {
            let event = Event::new(EventKind::PageMapped).a(object).b(bytes).c(at);
            events.push(time(event.of(class, 0)));
        }
        events.extend(self.blocks.values().map(|block| block.made));
        for handle in self.pending.values().flat_map(BTreeMap::values) {
            if let Some(LiveBlock { made, pending: true }) = self.blocks.get(handle) {
                let event = Event::new(EventKind::FreeRequested).handle(*handle).a(made.a);
                let event = event.b(made.b).of(made.class(), made.tag());
                events.push(time(event.on(made.stream(), made.site())));
            }
        }
        events.iter_mut().for_each(|event| event.sequence = self.sequence);
        events
    }
}

/// What holds a block, as the event that makes one would say it.
pub(crate) fn held(event: &Event) -> u8 {
    u8::try_from(event.a).unwrap_or(u8::MAX).saturating_add(1)
}

/// The event that made a block, at the place that a move gave it.
pub(crate) fn moved(made: Event, to: &Event) -> Event {
    let mut words = made.to_words();
    // Space and class, as `Event::within` and `Event::of` pack them.
    words[2] = words[2] & 0x0000_ffff_ff00_ffff | u64::from(to.class()) << 16;
    Event::from_words(words).within(to.a).c(to.c)
}
