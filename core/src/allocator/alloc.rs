//! The way of a request: Request -> Layout -> found -> taken -> Allocation.

use std::panic::Location;
use std::sync::Arc;

use crate::device::ClassId;
use crate::error::{DeviceError, Error, Feature};
use crate::event::{Event, EventKind, Why};
use crate::id::Key;
use crate::point::Points;
use crate::pool::{Grabbed, PoolKey, Room, Spot};
use crate::request::{Layout, Request, Tag};
use crate::units::Align;

use super::config::{Keep, allowed_classes};
use super::handle::{Allocation, Handle};
use super::holding::code_of_new;
use super::lock::Locked;
use super::shelf::Like;
use super::state::{Block, State, flag, kind_index};
use super::{Allocator, Inner};

/// Kept blocks of less than this part of a request are put back last to make room for it.
const SMALL_BESIDE: u64 = 16;

/// A request on its way, with what was worked out about it.
pub(crate) struct Asked<'a> {
    pub request: &'a Request<'a>,
    pub layout: Layout,
    pub site: &'static Location<'static>,
    /// The private pool of the graph being captured on the request's stream.
    pub graph: Option<u32>,
    /// The classes, by bit, that paging serves it in.
    pub paged: u32,
    /// Requests up to this size have segments of their own.
    pub small_max: u64,
}

/// A range taken for a request, not yet a block.
pub(crate) struct Taken {
    pub pool: u16,
    pub range: Grabbed,
    pub why: Why,
}

impl Allocator {
    /// Asks for one block.
    ///
    /// The call makes no driver call when a hole fits. Otherwise it tries, each at most once and
    /// as far as the request allows: completed frees, new memory, giving back what other pools do
    /// not use, waiting for just enough work, and the hooks.
    ///
    /// # Errors
    /// Every variant of [`Error`] says what to do next. Nothing is held after an error.
    #[track_caller]
    pub fn alloc(&self, request: &Request<'_>) -> Result<Allocation, Error> {
        if self.inner.samples_stacks() {
            return self.inner.alloc_and_sample(request, Location::caller());
        }
        self.inner.alloc(request, Location::caller())
    }

    /// [`alloc`](Self::alloc) as an owned block, freed in stream order when dropped.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    #[track_caller]
    pub fn buffer(&self, request: &Request<'_>) -> Result<super::Buffer, Error> {
        let allocation = self.alloc(request)?;
        Ok(super::Buffer::new(self.clone(), &allocation))
    }
}

impl Inner {
    /// A request whose call stack may be taken.
    #[cold]
    fn alloc_and_sample(
        self: &Arc<Self>,
        request: &Request<'_>,
        site: &'static Location<'static>,
    ) -> Result<Allocation, Error> {
        let made = self.alloc(request, site)?;
        self.sample_stack(&made);
        Ok(made)
    }

    // A part of the functions that call it: moving the result would cost more than making it.
    #[inline(always)]
    fn alloc(
        self: &Arc<Self>,
        request: &Request<'_>,
        site: &'static Location<'static>,
    ) -> Result<Allocation, Error> {
        if self.checked {
            return self.alloc_checked(request, site);
        }
        let graph = self.graph_of(request.stream)?;
        let mut state = self.lock_shelved();
        state.clock.tick(&*self.device);
        if graph.is_some() || !self.is_shelvable(request) {
            return self.alloc_unshelved(state, request, site, graph, None);
        }
        let like = Like::of(request);
        match state.take_shelved(&like, request, site) {
            Some((key, bytes)) => {
                drop(state);
                let handle = Handle { key, allocator: self.id };
                Ok(Allocation { handle, bytes, waits: Points::NONE })
            }
            None => self.alloc_unshelved(state, request, site, graph, Some(like)),
        }
    }

    /// Whether a request may be served by a block that is kept as it was freed.
    #[inline(always)]
    fn is_shelvable(&self, request: &Request<'_>) -> bool {
        self.config.keep != Keep::Nothing && !request.dedicated && !self.is_to_clear(request)
    }

    /// Serves a request for which nothing is kept.
    #[inline(never)]
    fn alloc_unshelved(
        self: &Arc<Self>,
        mut state: Locked<'_>,
        request: &Request<'_>,
        site: &'static Location<'static>,
        graph: Option<u32>,
        like: Option<Like>,
    ) -> Result<Allocation, Error> {
        let asked = self.ask(request, site, graph)?;
        state.check_tag_limit(request.tag, asked.layout.bytes)?;
        self.serve(state, &asked, like)
    }

    /// Serves a request by a hole that the stream may use at once, else by the remedies.
    pub(super) fn serve(
        self: &Arc<Self>,
        mut state: Locked<'_>,
        asked: &Asked<'_>,
        like: Option<Like>,
    ) -> Result<Allocation, Error> {
        if !asked.request.dedicated {
            state.open_index();
            let mut taken = self.take_ready(&mut state, asked);
            // What is small beside the request hardly makes room for it, and is missed soon.
            for least in [asked.layout.bytes / SMALL_BESIDE, 0] {
                if taken.is_none() && state.put_back_from(least) {
                    taken = self.take_ready(&mut state, asked);
                }
            }
            if let Some(taken) = taken {
                let made = self.commit(&mut state, asked, taken);
                if let Ok(allocation) = &made {
                    self.learn(&mut state, like, asked, allocation);
                }
                drop(state);
                return self.finish(asked, made);
            }
        }
        drop(state);
        let made = self.climb(asked);
        self.finish(asked, made)
    }

    /// Has the shelf learn what a request got from a hole.
    fn learn(&self, state: &mut State, like: Option<Like>, asked: &Asked<'_>, made: &Allocation) {
        let name = made.handle.key;
        match like.and_then(|like| self.bin_of(state, like, asked, made)) {
            Some(bin) => state.shelf.note(name, bin),
            None => state.close_order(),
        }
    }

    /// The bin, learnt now if it is new, of the block that a request has got. None keeps blocks
    /// whose frees take more than a look, or of another class than the request's first.
    fn bin_of(
        &self,
        state: &mut State,
        like: Like,
        asked: &Asked<'_>,
        made: &Allocation,
    ) -> Option<usize> {
        let &block = state.blocks.get(made.handle.key).ok()?;
        let pool = &state.pools[usize::from(block.pool)];
        let first = ClassId(self.allowed(asked.request).trailing_zeros() as u8);
        if pool.key != asked.key(first) || block.has(flag::FOREIGN | flag::HAS_WAITS) {
            return None;
        }
        let (class, kind) = (first.0, pool.kind);
        state.shelf.learn(like, &block, made.bytes, class, kind)
    }

    /// Works out what a request comes to.
    #[inline(always)]
    pub(super) fn ask<'a>(
        &self,
        request: &'a Request<'a>,
        site: &'static Location<'static>,
        graph: Option<u32>,
    ) -> Result<Asked<'a>, Error> {
        let paged = self.paged_classes(request.dedicated, request.exportable, graph.is_some());
        let layout = self.layout(request, paged)?;
        Ok(Asked { request, layout, site, graph, paged, small_max: self.config.small_max })
    }

    #[inline(always)]
    fn layout(&self, request: &Request<'_>, paged: u32) -> Result<Layout, Error> {
        let caps = self.caps();
        if self.classes[kind_index(request.kind)] == 0 {
            return Err(Error::NoSuchKind(request.kind));
        }
        if request.usage & !caps.usages != 0 {
            return Err(DeviceError::Unsupported(Feature::Usage).into());
        }
        let longest = if request.bytes <= caps.max_plain_bytes {
            caps.max_plain_bytes
        } else {
            self.longest(request, paged)
        };
        let mut layout = request.layout(caps.binding_align, longest)?;
        if request.dedicated
            && let Some(granularity) = Align::new(caps.plain_granularity)
        {
            // A rest would be a hole for others.
            layout.bytes = granularity.round_up(layout.bytes).unwrap_or(layout.bytes);
        }
        if layout.align > caps.plain_base_align {
            let (asked, limit) = (layout.align.get(), caps.plain_base_align.get());
            return Err(Error::OverDeviceLimit { asked, limit });
        }
        Ok(layout)
    }

    /// The longest block that a request for more than a plain segment may have.
    fn longest(&self, request: &Request<'_>, paged: u32) -> u64 {
        let caps = self.caps();
        let mut allowed = allowed_classes(caps, &self.config, request);
        let pageable = allowed.find(|class| class.0 < 32 && paged >> class.0 & 1 == 1);
        let heap = pageable.and_then(|id| caps.heaps.get(usize::from(caps.class(id)?.heap.0)));
        match (caps.paging, heap) {
            (Some(paging), Some(heap)) => {
                paging.max_space_bytes.min(heap.total).max(caps.max_plain_bytes)
            }
            _ => caps.max_plain_bytes,
        }
    }

    /// The classes that a request may use, by bit, the first one lowest.
    #[inline(always)]
    const fn allowed(&self, request: &Request<'_>) -> u32 {
        let bits = self.classes[kind_index(request.kind)] & request.classes;
        if self.config.fall_back { bits } else { bits & bits.wrapping_neg() }
    }

    /// Takes a hole that needs no wait, in the first class that has one.
    pub(super) fn take_ready(&self, state: &mut State, asked: &Asked<'_>) -> Option<Taken> {
        let mut classes = self.allowed(asked.request);
        while classes != 0 {
            let class = ClassId(classes.trailing_zeros() as u8);
            classes &= classes - 1;
            let Some(&number) = state.by_key.get(&asked.key(class)) else { continue };
            if let Some(taken) = state.take_page_hole(number, asked) {
                return Some(taken);
            }
            let pool = &mut state.pools[usize::from(number)];
            let Some(ready) = pool.find_ready(asked.layout, asked.request.stream) else { continue };
            let range = pool.take(Room::Hole(ready.fit));
            let why = if ready.own { Why::OwnHole } else { Why::CompletedHole };
            return Some(Taken { pool: number, range, why });
        }
        None
    }

    /// Makes a block of a taken range.
    pub(super) fn commit(
        &self,
        state: &mut State,
        asked: &Asked<'_>,
        taken: Taken,
    ) -> Result<Allocation, Error> {
        let Taken { pool, range: Grabbed { spot, points, pending }, why } = taken;
        if pending > 0 {
            // They are active already, and are counted once more as the block's.
            state.count_done(state.pools[usize::from(pool)].kind, pending);
        }
        let waits = points.without(asked.request.stream);
        let key = self.register(state, asked, (pool, spot, why), &waits);
        Ok(self.allocation(key.ok_or(Error::TableFull)?, asked, waits))
    }

    #[inline(always)]
    const fn allocation(&self, key: Key, asked: &Asked<'_>, waits: Points) -> Allocation {
        let handle = Handle { key, allocator: self.id };
        Allocation { handle, bytes: asked.layout.bytes, waits }
    }

    /// Gives a taken range a handle, counts the block, writes the event. `None` when the table of
    /// blocks is full; the range is free again then.
    // A part of its callers: on the way that most requests take, moving the result from function
    // to function would cost more than making it.
    #[inline(always)]
    fn register(
        &self,
        state: &mut State,
        asked: &Asked<'_>,
        taken: (u16, Spot, Why),
        waits: &Points,
    ) -> Option<Key> {
        let (number, spot, why) = taken;
        let request = asked.request;
        let bytes = asked.layout.bytes;
        let foreign = state.foreign.is_foreign(request.stream, &*self.device);
        let pad = u32::try_from(bytes - request.bytes).unwrap_or(u32::MAX);
        let (name, site) = (state.name(request.name), state.site(asked.site));
        let (born_ms, holds) = (state.clock.ms(), 0);
        let flags = initial_flags(request, waits, foreign) | align_flag(asked.layout.align);
        let (stream, pool, tag) = (request.stream, number, request.tag);
        let key = state.blocks.insert_with(|| Block {
            spot,
            pad,
            born_ms,
            name,
            site,
            stream,
            pool,
            tag,
            holds,
            flags,
        });
        let Some(key) = key else {
            let now = state.now();
            state.pools[usize::from(number)].free(spot, Points::NONE, now);
            return None;
        };
        let pool = &mut state.pools[usize::from(number)];
        let (kind, class) = (pool.kind, pool.key.class.0);
        let place = pool.own(spot, key.index());
        if !waits.is_empty() {
            state.waits.insert(key.index(), waits.clone());
            state.counters.waits += 1;
        }
        state.count_alloc(kind, request.tag, request.bytes, bytes);
        let event = Event::new(EventKind::Alloc).handle(key.to_bits());
        let event = event.a(request.bytes).b(bytes).c(place.offset).within(place.space.0);
        let event = event.why(why).of(class, request.tag.0);
        let event = event.holding(code_of_new(request, asked.graph.is_some()));
        state.event(event.on(request.stream.0, site));
        Some(key)
    }
}

impl Asked<'_> {
    /// Whether paging serves the request in a class.
    pub(super) const fn is_paged(&self, class: ClassId) -> bool {
        class.0 < 32 && self.paged >> class.0 & 1 == 1
    }

    /// The pool of a class that the request belongs to.
    pub(super) fn key(&self, class: ClassId) -> PoolKey {
        PoolKey {
            class,
            // A paged space keeps small and large blocks apart by itself.
            small: self.layout.bytes <= self.small_max && !self.is_paged(class),
            exportable: self.request.exportable,
            graph: self.graph,
        }
    }
}

/// The alignment as a block keeps it in its flags.
const fn align_flag(align: Align) -> u16 {
    let power = align.get().trailing_zeros();
    (if power < 15 { power as u16 } else { 15 }) << flag::ALIGN_SHIFT
}

fn initial_flags(request: &Request<'_>, waits: &Points, foreign: bool) -> u16 {
    let movable = request.movable && !request.exportable && !request.dedicated;
    let foreign = if foreign { flag::FOREIGN } else { 0 };
    foreign
        | (if movable { flag::MOVABLE } else { 0 })
        | (if request.raw_handle { flag::RAW } else { 0 })
        | if waits.is_empty() { 0 } else { flag::HAS_WAITS }
}

impl State {
    /// Takes a hole of a pool's paged space that needs no wait.
    fn take_page_hole(&mut self, number: u16, asked: &Asked<'_>) -> Option<Taken> {
        let now = self.clock.ns();
        let pool = &mut self.pools[usize::from(number)];
        let left = self.budget.left(pool.heap);
        let paged = pool.paged.as_mut()?;
        let stream = asked.request.stream;
        let range = paged.serve(asked.layout, stream, now, left)?;
        let own = range.points.single_stream() == Some(stream);
        let why = if own { Why::OwnHole } else { Why::CompletedHole };
        Some(Taken { pool: number, range, why })
    }

    /// Whether `bytes` more stay within a tag's limit.
    #[inline]
    pub(super) fn check_tag_limit(&mut self, tag: Tag, bytes: u64) -> Result<(), Error> {
        let number = usize::from(tag.0);
        let limit = self.counters.tags.get(number).ok_or(Error::ForeignHandle)?.limit;
        let Some(limit) = limit else { return Ok(()) };
        self.settle();
        let used = self.counters.tags[number].tally.allocated();
        if used.saturating_add(bytes) > limit {
            return Err(Error::OverUserLimit { asked: bytes, used, limit });
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() { 0 } else { self.number_name(name) }
    }

    #[inline(never)]
    fn number_name(&mut self, name: &str) -> u32 {
        let (number, new) = self.names.number(name);
        if new {
            let event = Event::new(EventKind::Name).a(u64::from(number));
            self.event(event);
        }
        number
    }

    #[inline(always)]
    pub(super) fn site(&mut self, site: &'static Location<'static>) -> u32 {
        match self.sites.known(site) {
            Some(number) => number,
            None => self.number_site(site),
        }
    }

    #[inline(never)]
    fn number_site(&mut self, site: &'static Location<'static>) -> u32 {
        let (number, new) = self.sites.number(site);
        if new {
            let event = Event::new(EventKind::Site).a(u64::from(number));
            self.event(event);
        }
        number
    }
}
