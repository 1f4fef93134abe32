//! Resuming paused blocks: pages at the addresses that they kept, and what was saved of them.

use crate::device::{ClassId, HeapId, MapOp, MemoryId, MemoryKind, Place};
use crate::error::Error;
use crate::event::{Event, EventKind};
use crate::id::Key;
use crate::pages::{Backing, Resuming};
use crate::point::Points;
use crate::pool::SpotKind;

use super::Inner;
use super::pause::Asleep;
use super::perform::backings_in;
use crate::allocator::ladder::is_shortage;
use crate::allocator::state::{Block, flag};

/// Bytes written back at a time.
const CHUNK: usize = 64 << 20;

/// A block being backed again.
struct Waking {
    resuming: Resuming,
    place: Place,
    heap: HeapId,
    kind: MemoryKind,
    class: ClassId,
    /// Where each page goes, and its bytes.
    creates: Vec<(u64, u64)>,
    /// Bytes taken from the budget, object by object.
    taken: Vec<u64>,
}

impl Inner {
    /// Resumes a block. Gives the bytes taken from the device, `None` when it is not paused.
    pub(super) fn resume_one(&self, key: Key) -> Result<Option<u64>, Error> {
        let (block, contents) = {
            let mut state = self.lock();
            // A free meanwhile completes when this is over; that it sleeps keeps others out.
            let Ok(block) = state.block_mut(key) else { return Ok(None) };
            let block = *block;
            let Some(asleep) = state.asleep.get_mut(&key.index()) else { return Ok(None) };
            if asleep.waking || block.holds > 0 {
                return Ok(None);
            }
            asleep.waking = true;
            let contents = asleep.contents.take();
            state.block_mut(key)?.holds = 1;
            (block, contents)
        };
        let backed = self.back(&block).and_then(|bytes| {
            self.write_back(&block, contents.as_deref())?;
            Ok(bytes)
        });
        let mut state = self.lock();
        match backed {
            Ok(bytes) => {
                state.wake(key, &block);
                self.unlock_and_tell(state);
                self.unhold(&[key], None);
                Ok(Some(bytes))
            }
            Err(error) => {
                state.asleep.insert(key.index(), Asleep { contents, waking: false });
                let freed = state.blocks.get_mut(key).is_ok_and(|block| {
                    block.holds = 0;
                    block.has(flag::FREE_LATER)
                });
                if freed {
                    state.release_asleep(key);
                }
                self.unlock_and_tell(state);
                Err(error)
            }
        }
    }

    /// Backs a paused block, once more after idle memory of others was given back. Gives the bytes
    /// of the objects made; 0 when it is backed already and only its bytes were missing.
    fn back(&self, block: &Block) -> Result<u64, Error> {
        match self.try_back(block) {
            Err(error) if is_shortage(error) => {
                self.reap()?;
                let need = self.lock().pool(block).bytes(block.spot);
                let before = self.lock().counters.reserved.current;
                let wanted = |state: &super::State| {
                    need.saturating_sub(before.saturating_sub(state.counters.reserved.current))
                };
                self.release_idle(|state| wanted(state) > 0)?;
                self.release_pages(&wanted, u64::MAX, &|_| true)?;
                self.try_back(block)
            }
            outcome => outcome,
        }
    }

    fn try_back(&self, block: &Block) -> Result<u64, Error> {
        let Some(waking) = self.begin_waking(block)? else { return Ok(0) };
        let mut objects = Vec::new();
        let made = self.make(&waking, &mut objects);
        let mut state = self.lock();
        state.in_flight -= 1;
        let number = usize::from(block.pool);
        let Waking { resuming, heap, kind, class, taken, .. } = waking;
        let Some(paged) = &mut state.pools[number].paged else {
            return Err(self.lost_its_space());
        };
        let now = self.device.now_ns();
        let (backings, mapped) = match made {
            Ok(made) => made,
            Err(error) => {
                paged.pages.resume_failed(resuming);
                taken.iter().for_each(|&bytes| state.budget.give(heap, bytes));
                self.unlock_and_tell(state);
                for object in objects {
                    self.paging()?.release(object)?;
                }
                return Err(error);
            }
        };
        paged.pages.resume_done(&resuming, &backings, &mapped, now);
        state.note_objects(block.pool, class, kind, &objects, &taken);
        for (at, backing) in &backings {
            let event = Event::new(EventKind::PageMapped).a(backing.object.0).b(backing.bytes);
            state.event(event.c(*at).of(class.0, 0));
        }
        drop(state);
        // Whatever the block's own stream does next comes after the mapping; others ask for it.
        self.device.wait_on_stream(block.stream, mapped.as_slice())?;
        Ok(taken.iter().sum())
    }

    /// Marks the block as being backed, and takes its memory from the budget.
    fn begin_waking(&self, block: &Block) -> Result<Option<Waking>, Error> {
        let SpotKind::Page(slot) = block.spot.kind() else { return Ok(None) };
        let mut state = self.lock();
        let pool = &mut state.pools[usize::from(block.pool)];
        let (heap, kind, class) = (pool.heap, pool.kind, pool.key.class);
        let Some(paged) = &mut pool.paged else { return Err(self.lost_its_space()) };
        let Ok(resuming) = paged.pages.resume(slot) else { return Ok(None) };
        let place = Place { space: paged.space, offset: 0 };
        let policy = *paged.pages.policy();
        let granule = paged.pages.granule().get();
        let mut creates = Vec::new();
        for &(start, bytes) in &resuming.gaps {
            let large = bytes >= policy.large;
            let most = if large { policy.large_page } else { policy.small_page }.max(granule);
            let most = most / granule * granule;
            let mut offset = 0;
            while offset < bytes {
                let page = most.min(bytes - offset);
                creates.push((start + offset, page));
                offset += page;
            }
        }
        let sizes: Vec<u64> = creates.iter().map(|create| create.1).collect();
        match self.take_objects(&mut state, heap, &sizes) {
            Ok(taken) => {
                state.in_flight += 1;
                Ok(Some(Waking { resuming, place, heap, kind, class, creates, taken }))
            }
            Err(error) => {
                if let Some(paged) = &mut state.pools[usize::from(block.pool)].paged {
                    paged.pages.resume_failed(resuming);
                }
                Err(error)
            }
        }
    }

    /// Makes the memory objects and maps them. `objects` are those that exist when it fails.
    fn make(
        &self,
        waking: &Waking,
        objects: &mut Vec<MemoryId>,
    ) -> Result<(Vec<(u64, Backing)>, Points), Error> {
        let paging = self.paging()?;
        for &bytes in &waking.taken {
            objects.push(paging.create(waking.class, bytes, false)?);
        }
        let places = waking.creates.iter().map(|create| create.0);
        let sizes = waking.creates.iter().map(|create| create.1);
        let backings = backings_in(objects, &waking.taken, sizes);
        let backings: Vec<(u64, Backing)> = places.zip(backings).collect();
        let op = |&(at, backing): &(u64, Backing)| MapOp {
            at: Place { offset: at, ..waking.place },
            memory: backing.object,
            memory_offset: backing.offset,
            bytes: backing.bytes,
        };
        let ops: Vec<MapOp> = backings.iter().map(op).collect();
        let mapped = paging.map(&ops, &[])?;
        Ok((backings, self.unreached(mapped)?))
    }

    /// Writes the saved bytes of a block back, on its own stream.
    fn write_back(&self, block: &Block, contents: Option<&[u8]>) -> Result<(), Error> {
        let Some(contents) = contents else { return Ok(()) };
        let place = self.lock().pool(block).place(block.spot);
        let mut last = None;
        for (part, bytes) in contents.chunks(CHUNK).enumerate() {
            let offset = place.offset + (part * CHUNK) as u64;
            last = Some(self.device.write(block.stream, Place { offset, ..place }, bytes)?);
        }
        if let Some(point) = last {
            self.lock().pool_mut(block).add_use(block.spot, point);
        }
        Ok(())
    }
}
