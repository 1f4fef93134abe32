//! Dropping stale mappings and giving pages back.

use crate::device::{MemoryId, Place, SpaceId, UnmapOp};
use crate::error::Error;
use crate::event::{Event, EventKind};
use crate::pages::{Departure, StaleMapping};
use crate::point::Points;
use crate::pool::{Paged, Pool};

use super::{Inner, State};

impl Inner {
    /// Unmaps the stale mappings that nothing uses any more, if more than `keep` stand.
    pub(in crate::allocator) fn drop_stale(&self, number: u16, keep: usize) -> Result<(), Error> {
        let ordered = self.caps().paging.is_some_and(|paging| paging.stream_ordered);
        let (stale, space) = {
            let mut state = self.lock();
            let Some(paged) = &mut state.pools[usize::from(number)].paged else { return Ok(()) };
            let many = paged.pages.usage().stale;
            if many <= keep {
                return Ok(());
            }
            let stale = if ordered {
                paged.pages.drop_stale(usize::MAX)
            } else {
                paged.pages.drop_settled(usize::MAX)
            };
            (stale, paged.space)
        };
        if stale.is_empty() {
            return Ok(());
        }
        let mut after = Points::NONE;
        let op = |stale: &StaleMapping| UnmapOp {
            at: Place { space, offset: stale.at },
            bytes: stale.bytes,
        };
        let ops: Vec<UnmapOp> = stale.iter().map(op).collect();
        stale.iter().for_each(|stale| after.merge(&stale.after));
        let unmapped = self.paging()?.unmap(&ops, after.as_slice());
        let mut state = self.lock();
        if let Some(paged) = &mut state.pools[usize::from(number)].paged {
            for stale in stale {
                match unmapped {
                    Ok(_) => paged.pages.unmap_ordered(&stale),
                    Err(_) => paged.pages.still_mapped(stale),
                }
            }
        }
        let class = state.pools[usize::from(number)].key.class;
        for op in ops.iter().filter(|_| unmapped.is_ok()) {
            let event = Event::new(EventKind::PageUnmapped).b(op.bytes).c(op.at.offset);
            state.event(event.of(class.0, 0));
        }
        self.unlock_and_tell(state);
        unmapped?;
        Ok(())
    }

    /// Gives wholly free pages of the chosen pools back, largest first, while `wanted` asks for
    /// bytes. Tells how many bytes of memory objects went.
    pub(in crate::allocator) fn release_pages(
        &self,
        wanted: &dyn Fn(&State) -> u64,
        idle_before_ns: u64,
        of: &dyn Fn(&Pool) -> bool,
    ) -> Result<u64, Error> {
        let (mut released, mut number) = (0, 0);
        loop {
            let (departures, space) = {
                let mut state = self.lock();
                let want = wanted(&state);
                let Some(pool) = state.pools.get_mut(usize::from(number)) else {
                    return Ok(released);
                };
                let chosen = of(pool);
                let Some(paged) = pool.paged.as_mut().filter(|_| chosen && want > 0) else {
                    number += 1;
                    continue;
                };
                let departures = paged.pages.trim(want, idle_before_ns);
                let space = paged.space;
                state.in_flight += u32::from(!departures.is_empty());
                (departures, space)
            };
            if !departures.is_empty() {
                released += self.depart(number, space, departures)?;
            }
            number += 1;
        }
    }

    fn depart(
        &self,
        number: u16,
        space: SpaceId,
        departures: Vec<Departure>,
    ) -> Result<u64, Error> {
        let (mut ops, mut after) = (Vec::new(), Points::NONE);
        let at = |offset| Place { space, offset };
        for departure in &departures {
            ops.push(UnmapOp { at: at(departure.at), bytes: departure.backing.bytes });
            for stale in &departure.stale {
                ops.push(UnmapOp { at: at(stale.at), bytes: stale.bytes });
                after.merge(&stale.after);
            }
        }
        let unmapped = self.paging().and_then(|paging| paging.unmap(&ops, after.as_slice()));
        let mut gone = Vec::new();
        let mut state = self.lock();
        if let Some(paged) = &mut state.pools[usize::from(number)].paged {
            for departure in departures {
                let backing = departure.backing;
                if unmapped.is_err() {
                    paged.pages.depart_failed(departure);
                } else if paged.pages.depart_done(departure).is_some() {
                    gone.push(backing);
                }
            }
        }
        drop(state);
        let mut outcome = unmapped.map(|_| ());
        for backing in &gone {
            let released = self.paging().and_then(|paging| paging.release(backing.object));
            outcome = outcome.and(released);
        }
        let mut state = self.lock();
        state.in_flight -= 1;
        let pool = &state.pools[usize::from(number)];
        let (heap, kind) = (pool.heap, pool.kind);
        for backing in &gone {
            state.give_object(number, heap, kind, backing.object, backing.object_bytes);
        }
        self.unlock_and_tell(state);
        outcome?;
        Ok(gone.iter().map(|backing| backing.object_bytes).sum())
    }

    /// Gives a paged space back with all that is mapped in it. Errors have nobody to go to: the
    /// allocator is gone.
    pub(in crate::allocator) fn tear_down(&self, paged: &mut Paged) {
        let Ok(paging) = self.paging() else { return };
        let space = paged.space;
        let mut ops: Vec<UnmapOp> = Vec::new();
        let mut objects: Vec<MemoryId> = Vec::new();
        for (_, backing, at) in paged.pages.pages() {
            ops.push(UnmapOp { at: Place { space, offset: at }, bytes: backing.bytes });
            objects.push(backing.object);
        }
        for stale in paged.pages.drop_stale(usize::MAX) {
            ops.push(UnmapOp { at: Place { space, offset: stale.at }, bytes: stale.bytes });
        }
        objects.sort_unstable();
        objects.dedup();
        let _ = paging.unmap(&ops, &[]);
        for object in objects {
            let _ = paging.release(object);
        }
        let _ = paging.unreserve(space);
    }
}
