//! Paged spaces: making one, backing a part of it ahead of need, growing a block in it.

use std::panic::Location;

use crate::device::{ClassId, DeviceError};
use crate::error::Error;
use crate::id::Key;
use crate::pages::Pages;
use crate::point::{Points, StreamId};
use crate::pool::{Grabbed, Paged, PoolKey, Spot, SpotKind};
use crate::request::{Layout, Request};
use crate::units::Align;

use super::{Inner, State, Want};
use crate::allocator::alloc::Asked;
use crate::allocator::ladder::is_shortage;
use crate::allocator::state::{Block, flag};

impl Inner {
    /// Enlarges a block of a paged space to `rounded` bytes, backing what follows it.
    pub(in crate::allocator) fn grow_by_pages(
        &self,
        key: Key,
        bytes: u64,
        rounded: u64,
        request: &Request<'_>,
    ) -> Result<Points, Error> {
        let (block, before) = {
            let mut state = self.lock();
            let block = *state.block(key)?;
            let before = state.pool(&block).bytes(block.spot);
            state.check_tag_limit(block.tag, rounded.saturating_sub(before))?;
            (block, before)
        };
        let SpotKind::Page(slot) = block.spot.kind() else { return Err(Error::NoRoomToGrow) };
        let more = rounded.checked_sub(before).filter(|&more| more > 0);
        let layout = Layout { bytes: more.ok_or(Error::NoRoomToGrow)?, align: Align::ONE };
        let site = Location::caller();
        let asked = Asked {
            request,
            layout,
            site,
            graph: None,
            paged: u32::MAX,
            small_max: self.config.small_max,
        };
        let done = match self.with_pages(block.pool, &asked, Want::After { slot }) {
            Err(error) if is_shortage(error) => None,
            outcome => outcome?,
        };
        let Some((mut state, range)) = done else { return Err(Error::NoRoomToGrow) };
        let Grabbed { spot, points, .. } = range.grabbed;
        // What is on its way elsewhere arrives there with the bytes that it had.
        let moves = flag::MOVING | flag::SLIDING;
        let same = state.block(key).is_ok_and(|now| now.spot == block.spot && !now.has(moves));
        let joined = same && state.join_pages(&block, spot);
        if !joined {
            // Freed or moved meanwhile: what was backed stays, free.
            let now = state.now();
            let pool = &mut state.pools[usize::from(block.pool)];
            let (kind, pending) = (pool.kind, pool.pending());
            pool.free(spot, points, now);
            let change = pool.pending() as i64 - pending as i64;
            state.count_pending(kind, change);
            return Err(Error::NoRoomToGrow);
        }
        let waits = points.without(block.stream);
        if !waits.is_empty() {
            state.add_waits(key, &waits);
        }
        self.note_resized(&mut state, key, before, rounded, bytes)?;
        Ok(waits)
    }

    /// Backs `bytes` of a class's paged space and leaves them free. Tells whether the class has
    /// one.
    pub(in crate::allocator) fn warm_pages(
        &self,
        class: ClassId,
        bytes: u64,
    ) -> Result<bool, Error> {
        let request = Request::new(bytes, StreamId(u32::MAX));
        let align = Align::new(self.caps().paging.map_or(1, |paging| paging.granularity));
        let align = align.unwrap_or_default();
        let layout = Layout { bytes: align.round_up(bytes).unwrap_or(bytes), align };
        let site = Location::caller();
        let paged = self.paged_classes(false, false, false);
        let asked = Asked {
            request: &request,
            layout,
            site,
            graph: None,
            paged,
            small_max: self.config.small_max,
        };
        if !asked.is_paged(class) {
            return Ok(false);
        }
        let Some(number) = self.paged_pool(asked.key(class))? else { return Ok(false) };
        let done = self.with_pages(number, &asked, Want::Block { behind: false })?;
        let Some((mut state, range)) = done else { return Ok(false) };
        let now = state.now();
        let points = range.grabbed.points;
        let pool = &mut state.pools[usize::from(number)];
        let (kind, before) = (pool.kind, pool.pending());
        pool.free(range.grabbed.spot, points, now);
        // Active until the device has made the mappings.
        let pending = pool.pending() as i64 - before as i64;
        state.count_pending(kind, pending);
        self.unlock_and_tell(state);
        Ok(true)
    }

    /// The pool under a key, with a paged space. `None` when the device has no addresses left.
    pub(super) fn paged_pool(&self, key: PoolKey) -> Result<Option<u16>, Error> {
        {
            let mut state = self.lock();
            let number = state.pool_number(key, &*self.device)?;
            let pool = &state.pools[usize::from(number)];
            if pool.paged.is_some() {
                return Ok(Some(number));
            }
        }
        let Some(paged) = self.reserve_space(key.class)? else { return Ok(None) };
        let mut state = self.lock();
        let number = state.pool_number(key, &*self.device)?;
        let pool = &mut state.pools[usize::from(number)];
        if pool.paged.is_none() {
            pool.paged = Some(Box::new(paged));
            return Ok(Some(number));
        }
        drop(state);
        // Another thread was faster.
        self.paging()?.unreserve(paged.space)?;
        Ok(Some(number))
    }

    /// Reserves addresses for a class: four times its heap, twice for either size of block, less
    /// where the device has not as many.
    fn reserve_space(&self, class: ClassId) -> Result<Option<Paged>, Error> {
        let caps = self.caps();
        let (Some(paging), Some(info)) = (caps.paging, caps.class(class)) else { return Ok(None) };
        let Some(granule) = Align::new(paging.granularity) else { return Ok(None) };
        let total = caps.heaps.get(usize::from(info.heap.0)).map_or(0, |heap| heap.total);
        // Other classes, other allocators and views on the device need some too.
        let most = paging.max_space_bytes.min(paging.space_bytes / 2);
        let wanted = total.saturating_mul(8).max(granule.get() * 64).min(most);
        let mut bytes = granule.round_down(wanted);
        while bytes >= granule.get() * 8 {
            match self.paging()?.reserve(class, bytes) {
                Ok(reserved) => {
                    let is_aligned = |address| granule.divides(address);
                    if !reserved.address.is_none_or(is_aligned) {
                        self.paging()?.unreserve(reserved.space)?;
                        let broken = "an address range is not aligned to its pages";
                        return Err(DeviceError::Contract(broken).into());
                    }
                    let pages = Pages::new(granule, bytes, self.config.pages);
                    let pages = pages.map_err(|_| Error::TableFull)?;
                    return Ok(Some(Paged::new(reserved.space, reserved.address, pages)));
                }
                Err(DeviceError::OutOfAddressSpace { .. } | DeviceError::TooLarge { .. }) => {
                    bytes = granule.round_down(bytes / 2);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}

impl State {
    /// Gives back a range that was mapped for a request and is not handed out.
    pub(in crate::allocator) fn give_pages_back(&mut self, number: u16, spot: Spot) {
        let now = self.now();
        let pool = &mut self.pools[usize::from(number)];
        let (kind, before) = (pool.kind, pool.pending());
        pool.free(spot, Points::NONE, now);
        let change = pool.pending() as i64 - before as i64;
        self.count_pending(kind, change);
    }

    /// Adds a taken range to the block before it.
    fn join_pages(&mut self, block: &Block, more: Spot) -> bool {
        let (SpotKind::Page(first), SpotKind::Page(second)) = (block.spot.kind(), more.kind())
        else {
            return false;
        };
        let Some(paged) = &mut self.pools[usize::from(block.pool)].paged else { return false };
        let pages = &mut paged.pages;
        match (pages.block_in(first), pages.block_in(second)) {
            (Some(first), Some(second)) => pages.join(first, second).is_ok(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::device::calls::CallKind;
    use crate::device::sim::Sim;
    use crate::device::wrap::Watched;
    use crate::device::{Device, StreamSpec};
    use crate::{Allocator, Config};

    /// An allocator and a block of it, for the moment of a call.
    type Chosen = Arc<Mutex<Option<(Allocator, Key)>>>;

    /// Marks the chosen block as one that is being moved, or not any more.
    fn mark(chosen: &Chosen, moves: bool) {
        let Some((alloc, key)) = chosen.lock().unwrap().clone() else { return };
        let mut state = alloc.inner.lock();
        let block = state.blocks.get_mut(key).unwrap();
        if moves {
            block.flags |= flag::MOVING;
        } else {
            block.flags &= !flag::MOVING;
        }
    }

    #[test]
    fn a_block_whose_move_begins_while_more_is_mapped_behind_it_does_not_grow() {
        let chosen = Chosen::default();
        let at_map = Arc::clone(&chosen);
        let device = Watched::new(Sim::cuda().open().shared(), move |ask| {
            if ask.kind == CallKind::Map {
                mark(&at_map, true);
            }
        });
        let config = Config::for_device(device.caps());
        let alloc = Allocator::with_config(device.clone(), config).unwrap();
        let stream = device.create_stream(StreamSpec::default()).unwrap();
        let bytes = 3 << 20;
        let block = alloc.alloc(&Request::new(bytes, stream)).unwrap().handle;
        *chosen.lock().unwrap() = Some((alloc.clone(), block.key));
        assert_eq!(alloc.grow(block, 64 << 20), Err(Error::NoRoomToGrow));
        assert_eq!(alloc.info(block).unwrap().requested, bytes);
        alloc.check().unwrap();
        // The move is over: now it grows.
        mark(&chosen, false);
        *chosen.lock().unwrap() = None;
        alloc.grow(block, 64 << 20).unwrap();
        assert_eq!(alloc.info(block).unwrap().requested, 64 << 20);
        alloc.check().unwrap();
    }
}
