//! Moves of blocks to where they would be placed now: a place is backed as for a request, by free
//! pages from anywhere, and the block is copied or remapped there, by which costs less. Where
//! blocks as long as tens of pages fit nowhere else, this brings together what is free beside them.

use std::panic::Location;

use crate::compact::Verify;
use crate::device::Line;
use crate::error::Error;
use crate::event::{Event, EventKind};
use crate::id::Key;
use crate::pages::{Anew, Means, Prices};
use crate::point::StreamId;
use crate::pool::{Grabbed, Spot, SpotKind};
use crate::request::{Layout, Request};
use crate::units::Align;

use super::super::Inner;
use super::super::alloc::Asked;
use super::super::paging::Want;
use super::super::state::{Block, State};
use super::compactor::Pass;
use super::look::Ground;
use super::offer::Answer;
use super::reserve::{Apart, Batch};

impl Ground {
    fn plan(&self, wanted: u64, stream: StreamId, prices: &Prices, may_remap: bool) -> Vec<Anew> {
        let movable = |owner: u32, _: u64| self.movable.get(&owner).copied();
        self.pages.place_anew(wanted, stream, self.now_ns, prices, may_remap, movable)
    }
}

impl Inner {
    /// Moves blocks so that `wanted` more bytes lie in wholly free pages. Tells whether any moved.
    pub(super) fn place_anew(&self, pass: &mut Pass, wanted: u64) -> Result<bool, Error> {
        let stream = self.copy_stream(false)?;
        let start = self.device.now_ns();
        let prices = self.prices();
        // What is verified is copied whole.
        let may_remap = self.config.verify_moves == Verify::Never;
        let Some(ground) = self.ground_of(pass.pool) else { return Ok(false) };
        let plan = ground.plan(wanted, stream, &prices, may_remap);
        pass.report.plan_ns += self.device.now_ns().saturating_sub(start);
        let mut any = false;
        for it in plan {
            let left = pass.left();
            if it.bytes > left.bytes || left.moves == 0 {
                break;
            }
            let moved = if let Means::Remap { at_end } = it.by {
                self.remap(pass, &it, at_end)?
            } else if let Some(apart) = self.back_anew(pass.pool, &it, stream)? {
                pass.batch = Some(Batch { apart: vec![apart], chain: None });
                self.submit_due(pass)?.is_some()
            } else {
                false
            };
            // What was planned after it builds on it.
            if !moved {
                break;
            }
            any = true;
            pass.note_choice(&it);
        }
        Ok(any)
    }

    /// What moves cost here; where the device's figures are not known, those of a large GPU.
    fn prices(&self) -> Prices {
        let costs = &self.caps().costs;
        let copy = if self.caps().prefer_gather { costs.gather } else { costs.copy };
        let known = |line: Line, fixed_ns: f64, ns_per_mib: f64| {
            if line.ns(1 << 20) > 0.0 { line } else { Line { fixed_ns, ns_per_mib } }
        };
        Prices {
            copy: known(copy, 5_000.0, 540.0),
            map: known(costs.page_map, 34_000.0, 41.0),
            unmap: known(costs.page_unmap, 20_000.0, 40.0),
        }
    }

    /// Backs a new place for a block, without making memory. `None` where there is none, or where
    /// the block can no longer move.
    fn back_anew(&self, number: u16, it: &Anew, stream: StreamId) -> Result<Option<Apart>, Error> {
        let Some((_, block)) = self.lock().still_there(number, it) else { return Ok(None) };
        let Some(align) = Align::new(block.align(it.at)) else { return Ok(None) };
        let request = Request::new(it.bytes, stream);
        let asked = Asked {
            request: &request,
            layout: Layout { bytes: it.bytes, align },
            site: Location::caller(),
            graph: None,
            paged: self.paged,
            small_max: 0,
        };
        // As for a request: at the cap nothing is stolen.
        let _ = self.drop_stale(number, self.config.pages.stale_max.saturating_sub(1));
        let backed =
            match self.with_pages(number, &asked, Want::Move { append: it.by == Means::Append }) {
                Ok(Some(backed)) => backed,
                Ok(None) => return Ok(None),
                Err(error) if error.is_transient() => return Ok(None),
                Err(error) => return Err(error),
            };
        let (mut state, range) = backed;
        let spot = range.grabbed.spot;
        let Some((key, block)) = state.still_there(number, it) else {
            state.give_pages_back(number, spot);
            self.unlock_and_tell(state);
            return Ok(None);
        };
        let apart = state.hold_anew(number, key, &block, range.grabbed);
        self.unlock_and_tell(state);
        Ok(Some(apart))
    }
}

impl State {
    /// The block, if it still lies there and may move.
    pub(super) fn still_there(&self, number: u16, it: &Anew) -> Option<(Key, Block)> {
        let (key, &block) = self.blocks.at(it.owner)?;
        let pool = &self.pools[usize::from(number)];
        let is_there = block.pool == number
            && block.spot.is_paged()
            && pool.offset(block.spot) == it.at
            && pool.bytes(block.spot) == it.bytes;
        (is_there && self.why_not(&block, false).is_none()).then_some((key, block))
    }

    /// Makes a range that was backed the place that a block is to move to.
    fn hold_anew(&mut self, number: u16, key: Key, block: &Block, backed: Grabbed) -> Apart {
        let pool = &mut self.pools[usize::from(number)];
        let points = match (backed.spot.kind(), &mut pool.paged) {
            // Given, not kept on the range.
            (SpotKind::Page(slot), Some(paged)) => {
                paged.pages.uses_mut(slot).map(std::mem::take).unwrap_or_default()
            }
            _ => backed.points,
        };
        let bytes = pool.bytes(backed.spot);
        let to = Grabbed { spot: backed.spot, points, pending: 0 };
        self.note_held(number, &to);
        self.note_reserved(number, key, block, to.spot);
        let (from, answer, ends, view) = (block.spot, Answer::default(), None, None);
        Apart { key, from, bytes, to, ends, raw: false, answer, view }
    }

    /// Tells of a place that was reserved for a block.
    pub(super) fn note_reserved(&mut self, number: u16, key: Key, block: &Block, to: Spot) {
        let pool = &self.pools[usize::from(number)];
        let (offset, bytes) = (pool.offset(to), pool.bytes(to));
        let (class, space) = self.class_and_space(number, to);
        let event = Event::new(EventKind::MoveReserved).handle(key.to_bits()).a(space).b(bytes);
        self.event(event.c(offset).of(class, block.tag.0).on(block.stream.0, block.site));
    }
}
