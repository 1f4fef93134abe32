//! Reserving: the planned places are really taken, so that nobody else can have them.

use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::compact::{Chain, Leg, Move, PoolView, Slide, What, Why};
use crate::device::View;
use crate::event::{Event, EventKind};
use crate::id::Key;
use crate::point::Points;
use crate::pool::{Behind, Grabbed, Spot};
use crate::range::SegmentId;

use super::super::Inner;
use super::super::state::{State, flag};
use super::offer::Answer;
use super::remap::Ends;

/// Places taken while the lock is held.
const SLICE: usize = 16;

/// Where a plan was made: a view, and the pool's segments in its order.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    pub view: &'a PoolView,
    pub segments: &'a [SegmentId],
}

/// Reserved moves that are submitted together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub apart: Vec<Apart>,
    pub chain: Option<Slides>,
}

/// A block and the place reserved for it.
#[derive(Debug)]
pub(super) struct Apart {
    pub key: Key,
    pub from: Spot,
    pub bytes: u64,
    pub to: Grabbed,
    /// Where the block's own pages go along: what of it is copied.
    pub ends: Option<Ends>,
    /// Whether the program keeps its raw handle and has to agree.
    pub raw: bool,
    pub answer: Answer,
    /// The API object made at the new place.
    pub view: Option<View>,
}

/// A stretch in which blocks slide: its free parts are reserved.
#[derive(Debug)]
pub(super) struct Slides {
    pub up: bool,
    /// In the order of the slides: what lies in the stretch.
    pub items: Vec<Item>,
}

/// A part of a stretch.
#[derive(Debug)]
pub(super) enum Item {
    /// A reserved range.
    Gap { spot: Spot, points: Points },
    /// A block, with its slide if it has one.
    Block { key: Key, spot: Spot, slide: Option<Slide> },
}

impl Apart {
    /// Bytes of it that are copied.
    pub fn copied(&self) -> u64 {
        self.ends.map_or(self.bytes, |ends| ends.head + ends.tail)
    }
}

impl Batch {
    /// Blocks that are to move.
    pub fn blocks(&self) -> u64 {
        (self.apart.len() + self.slides().count()) as u64
    }

    /// Bytes that are to move.
    pub fn bytes(&self) -> u64 {
        let apart: u64 = self.apart.iter().map(|it| it.bytes).sum();
        apart + self.slides().map(|slide| slide.bytes).sum::<u64>()
    }

    fn slides(&self) -> impl Iterator<Item = &Slide> {
        self.chain.iter().flat_map(|chain| &chain.items).filter_map(|item| match item {
            Item::Block { slide, .. } => slide.as_ref(),
            Item::Gap { .. } => None,
        })
    }
}

impl Inner {
    /// Takes the places of a plan. Moves whose block or place has changed since the survey are
    /// left out.
    pub(super) fn reserve(
        &self,
        pool: u16,
        Leg { view, plan }: &Leg,
        segments: &[SegmentId],
        raw: bool,
    ) -> Batch {
        let ground = Ground { view, segments };
        let mut batch = Batch { apart: Vec::with_capacity(plan.moves.len()), chain: None };
        // The last range taken in each free part: the next place there lies behind it. Large enough
        // from the start, since it is filled with the lock held.
        let mut behind = FxHashMap::with_capacity_and_hasher(plan.moves.len(), FxBuildHasher);
        for moves in plan.moves.chunks(SLICE) {
            let mut state = self.lock();
            for it in moves {
                match state.reserve_apart(pool, ground, it, raw, &mut behind) {
                    Ok(apart) => batch.apart.push(apart),
                    Err(why) => state.note_refused(it.owner, it.bytes, why),
                }
            }
        }
        if let Some(chain) = &plan.chain {
            batch.chain = self.reserve_chain(pool, ground, chain);
        }
        batch
    }

    /// Takes the free parts of a stretch, in slices. The slides end where one can not be had.
    fn reserve_chain(&self, pool: u16, ground: Ground<'_>, chain: &Chain) -> Option<Slides> {
        let mut order: Vec<usize> = (chain.first..=chain.last).collect();
        if chain.up {
            order.reverse();
        }
        let mut slides = chain.slides.iter().peekable();
        let mut items = Vec::with_capacity(order.len());
        'all: for parts in order.chunks(SLICE) {
            let mut state = self.lock();
            for &part in parts {
                let is_gap = ground.view.segments[chain.segment].parts[part].is_free();
                if is_gap {
                    drop(state);
                    let whole =
                        self.reserve_gap(pool, ground, (chain.segment, part), &mut items, chain.up);
                    if !whole || slides.peek().is_none() {
                        break 'all;
                    }
                    state = self.lock();
                    continue;
                }
                let slide = slides.next_if(|slide| slide.part == part).copied();
                let Some(item) = state.block_item(pool, ground, (chain.segment, part), slide)
                else {
                    break 'all;
                };
                items.push(item);
            }
        }
        Some(Slides { up: chain.up, items })
    }

    /// Takes a free part as one gap or several side by side, a few ranges at a time. Tells whether
    /// all of it could be had.
    fn reserve_gap(
        &self,
        pool: u16,
        ground: Ground<'_>,
        at: (usize, usize),
        items: &mut Vec<Item>,
        up: bool,
    ) -> bool {
        let part = ground.view.segments[at.0].parts[at.1];
        let (first, mut behind, mut offset) = (items.len(), None, part.offset);
        while offset < part.end() {
            let mut state = self.lock();
            let Some(front) = state.reserve_front(pool, ground, at, offset, behind) else { break };
            offset += state.pools[usize::from(pool)].bytes(front.spot);
            behind = Some(front.spot);
            items.push(Item::Gap { spot: front.spot, points: front.points });
        }
        if up {
            items[first..].reverse();
        }
        offset == part.end()
    }
}

impl State {
    fn reserve_apart(
        &mut self,
        pool: u16,
        ground: Ground<'_>,
        it: &Move,
        offer_raw: bool,
        behind: &mut FxHashMap<(usize, usize), Spot>,
    ) -> Result<Apart, Why> {
        let from = (ground.segments[it.segment].index(), it.from, it.bytes);
        let (key, spot) = self.block_at(pool, it.owner, from).ok_or(Why::Freed)?;
        let block = *self.blocks.get(key).map_err(|_| Why::Freed)?;
        if let Some(why) = self.why_not(&block, offer_raw) {
            return Err(why);
        }
        let hole = (it.to.segment, it.to.part);
        let after = behind.get(&hole).copied();
        let after = after.or_else(|| self.block_before(pool, ground, hole.0, hole.1));
        let place = Behind { segment: ground.segments[it.to.segment], spot: after };
        let to = self.pools[usize::from(pool)]
            .reserve_at(place, it.to.offset, it.bytes)
            .ok_or(Why::PlaceTaken)?;
        behind.insert(hole, to.spot);
        self.note_held(pool, &to);
        let raw = block.has(flag::RAW | flag::HAS_VIEW);
        let (class, space) = self.class_and_space(pool, to.spot);
        let event = Event::new(EventKind::MoveReserved).handle(key.to_bits()).a(space).b(it.bytes);
        self.event(event.c(it.to.offset).of(class, block.tag.0).on(block.stream.0, block.site));
        let (answer, ends, view) = (Answer::default(), None, None);
        Ok(Apart { key, from: spot, bytes: it.bytes, to, ends, raw, answer, view })
    }

    /// Takes the front of a free part, from `offset` on and behind what was taken of it before.
    fn reserve_front(
        &mut self,
        pool: u16,
        ground: Ground<'_>,
        (segment, part): (usize, usize),
        offset: u64,
        behind: Option<Spot>,
    ) -> Option<Grabbed> {
        let at = ground.view.segments[segment].parts.get(part)?;
        let spot = behind.or_else(|| self.block_before(pool, ground, segment, part));
        let place = Behind { segment: ground.segments[segment], spot };
        let ranges = &mut self.pools[usize::from(pool)];
        let front = ranges.reserve_front(place, offset, at.end() - offset)?;
        self.note_held(pool, &front);
        Some(front)
    }

    /// A block of a stretch as an item, if it still lies there.
    fn block_item(
        &self,
        pool: u16,
        ground: Ground<'_>,
        (segment, part): (usize, usize),
        slide: Option<Slide>,
    ) -> Option<Item> {
        let at = ground.view.segments[segment].parts.get(part)?;
        let What::Movable { owner, .. } = at.what else { return None };
        let place = (ground.segments[segment].index(), at.offset, at.bytes);
        let (key, spot) = self.block_at(pool, owner, place)?;
        Some(Item::Block { key, spot, slide })
    }

    /// The block in a slot, if it still lies there: segment, offset and bytes.
    pub(super) fn block_at(
        &self,
        pool: u16,
        owner: u32,
        (segment, offset, bytes): (u32, u64, u64),
    ) -> Option<(Key, Spot)> {
        let (key, block) = self.blocks.at(owner)?;
        if block.pool != pool {
            return None;
        }
        let (ranges, spot) = (&self.pools[usize::from(pool)], block.spot);
        let is_there = ranges.segment_of(spot).is_some_and(|id| id.index() == segment)
            && ranges.offset(spot) == offset
            && ranges.bytes(spot) == bytes;
        is_there.then_some((key, spot))
    }

    /// The block right before a part of the view, if it still lies there.
    fn block_before(
        &self,
        pool: u16,
        ground: Ground<'_>,
        segment: usize,
        part: usize,
    ) -> Option<Spot> {
        let before = ground.view.segments[segment].parts.get(part.checked_sub(1)?)?;
        let (What::Movable { owner, .. } | What::Fixed { owner, .. }) = before.what else {
            return None;
        };
        let place = (ground.segments[segment].index(), before.offset, before.bytes);
        self.block_at(pool, owner, place).map(|(_, spot)| spot)
    }

    pub(super) fn class_and_space(&self, pool: u16, spot: Spot) -> (u8, u64) {
        let pool = &self.pools[usize::from(pool)];
        (pool.key.class.0, pool.place(spot).space.0)
    }

    pub(super) fn note_refused(&mut self, owner: u32, bytes: u64, why: Why) {
        let handle = self.blocks.at(owner).map_or(0, |(key, _)| key.to_bits());
        let event = Event::new(EventKind::MoveRefused).handle(handle).a(why as u64).b(bytes);
        self.event(event.c(1));
    }
}
