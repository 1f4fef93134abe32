//! Pausing blocks: their memory goes back to the device, their addresses and handles stay.

use std::time::Duration;

use crate::device::{MemoryKind, Place, SpaceId, UnmapOp};
use crate::error::{DeviceError, Error};
use crate::event::{Event, EventKind};
use crate::id::Key;
use crate::pages::Pausing;
use crate::point::Points;
use crate::request::Tag;

use super::{Inner, State};
use crate::allocator::state::{Block, flag};
use crate::allocator::{Allocator, Handle};

/// Bytes that are copied between device and host at a time.
const CHUNK: u64 = 64 << 20;

/// How long a read whose wait failed is waited for once more.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// Work that takes longer than this to be done with a page that was taken elsewhere is hung.
const HUNG: Duration = Duration::from_secs(60);

/// Which blocks to pause or to resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Selection {
    /// One block.
    Block(Handle),
    /// All blocks with a tag.
    Tag(Tag),
    /// All blocks of a kind of memory: a pool of the device.
    Kind(MemoryKind),
}

/// What becomes of the bytes of paused blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// They are copied to the host's memory and back.
    Keep,
    /// They are undefined after resuming.
    Discard,
}

/// What a pause or a resumption did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PauseReport {
    /// Blocks that were paused or resumed.
    pub blocks: usize,
    /// Bytes of memory objects that went back to the device, or were taken from it again.
    pub bytes: u64,
    /// Blocks that were chosen and stay as they are: held, mapped, captured, moving, freed, with
    /// a view object, or not on pages of their own.
    pub refused: usize,
}

/// A paused block: its bytes, if they are kept.
#[derive(Debug, Default)]
pub(crate) struct Asleep {
    pub(super) contents: Option<Vec<u8>>,
    /// It is being resumed.
    pub(super) waking: bool,
}

impl Allocator {
    /// Gives the memory of blocks back to the device and keeps their handles and addresses, until
    /// [`resume`](Self::resume). Waits for their last uses, at most `time`.
    ///
    /// Blocks that can not be paused are left alone and counted. Only whole pages go back: what a
    /// block shares a page with stays with it. PauseReport blocks count as zero bytes; they can be
    /// freed, and any other use is refused with [`Error::Paused`].
    ///
    /// # Errors
    /// [`Error::TimedOut`]; the device's. Nothing is paused then, except whole spaces of other
    /// memory classes that were done before the device failed: they can be resumed.
    pub fn pause(
        &self,
        what: Selection,
        contents: Contents,
        time: Duration,
    ) -> Result<PauseReport, Error> {
        self.inner.refuse_in_capture()?;
        let (chosen, refused) = self.inner.shut_off(what)?;
        let mut done = PauseReport { refused, ..PauseReport::default() };
        let saved = match self.inner.save(&chosen, contents, time) {
            Ok(saved) => saved,
            Err(error) => {
                self.inner.let_go(&chosen);
                return Err(error);
            }
        };
        self.inner.pause_all(chosen, saved, &mut done)?;
        Ok(done)
    }

    /// Backs paused blocks again at the addresses they had; those of the selection that are not
    /// paused are left alone. Work on a block's own stream is ordered behind that; work on others
    /// has to wait for [`waits_of`](Self::waits_of), which submissions do by themselves.
    ///
    /// # Errors
    /// For want of memory as [`alloc`](Self::alloc); the device's. Blocks resumed before the
    /// error stay resumed, the others paused.
    pub fn resume(&self, what: Selection) -> Result<PauseReport, Error> {
        self.inner.refuse_in_capture()?;
        let keys = self.inner.asleep(what)?;
        let mut done = PauseReport::default();
        for key in keys {
            if let Some(bytes) = self.inner.resume_one(key)? {
                done.blocks += 1;
                done.bytes += bytes;
            }
        }
        Ok(done)
    }

    /// Whether a block is paused.
    ///
    /// # Errors
    /// [`Error::UseAfterFree`], [`Error::StaleHandle`], [`Error::ForeignHandle`].
    pub fn is_paused(&self, handle: Handle) -> Result<bool, Error> {
        let key = handle.key_for(self.inner.id)?;
        let state = self.inner.lock();
        state.block(key)?;
        Ok(state.asleep.contains_key(&key.index()))
    }
}

/// A block chosen for a pause: its name, itself, and what its uses are over with.
type Chosen = (Key, Block);

impl Inner {
    /// Chooses blocks and shuts them off. Tells how many of the selection have to stay.
    fn shut_off(&self, what: Selection) -> Result<(Vec<Chosen>, usize), Error> {
        let mut state = self.lock();
        let keys = state.selected(self.id, what)?;
        let (mut chosen, mut refused) = (Vec::new(), 0);
        for key in keys {
            if state.asleep.contains_key(&key.index()) {
                continue;
            }
            let Ok(&block) = state.block(key) else { continue };
            let busy = flag::FREE_LATER
                | flag::MAPPED
                | flag::CAPTURED
                | flag::MOVING
                | flag::SLIDING
                | flag::HAS_VIEW;
            if block.holds > 0 || block.has(busy) || !block.spot.is_paged() {
                refused += 1;
                continue;
            }
            let Ok(block_mut) = state.block_mut(key) else { continue };
            block_mut.flags |= flag::MAPPED;
            // A free meanwhile completes when this is over.
            block_mut.holds = 1;
            chosen.push((key, block));
        }
        Ok((chosen, refused))
    }

    /// Waits for the uses of blocks, and reads what is to be kept.
    fn save(
        &self,
        chosen: &[Chosen],
        contents: Contents,
        time: Duration,
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let mut uses = Points::NONE;
        for (key, block) in chosen {
            if block.has(flag::FOREIGN) {
                uses.insert(self.device.mark(block.stream)?);
            }
            let state = self.lock();
            uses.merge(state.pool(block).uses(block.spot));
            if let Some(waits) = state.waits.get(key.index()) {
                uses.merge(waits);
            }
        }
        self.wait_all(&uses, time, 0)?;
        if contents == Contents::Discard {
            return Ok(chosen.iter().map(|_| None).collect());
        }
        chosen.iter().map(|(_, block)| self.read_block(block, time).map(Some)).collect()
    }

    fn read_block(&self, block: &Block, time: Duration) -> Result<Vec<u8>, Error> {
        let (place, bytes) = {
            let state = self.lock();
            let pool = state.pool(block);
            (pool.place(block.spot), pool.bytes(block.spot))
        };
        let mut contents = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
        let mut offset = 0;
        while offset < bytes {
            let part = CHUNK.min(bytes - offset);
            let from = Place { offset: place.offset + offset, ..place };
            let ticket = self.device.read(block.stream, from, part)?;
            if let Err(error) = self.wait_all(&Points::one(ticket.point), time, 0) {
                // Taken if it is there, so that the device does not keep the bytes for ever.
                let _ = self.device.wait_any(&[ticket.point], LAST_WAIT);
                let _ = self.device.take_read(ticket);
                return Err(error);
            }
            contents.extend(self.device.take_read(ticket)?);
            offset += part;
        }
        Ok(contents)
    }

    /// Ends what [`shut_off`](Self::shut_off) began, the blocks as they were.
    fn let_go(&self, chosen: &[Chosen]) {
        let keys: Vec<Key> = chosen.iter().map(|chosen| chosen.0).collect();
        let mut state = self.lock();
        for &key in &keys {
            if let Ok(block) = state.blocks.get_mut(key) {
                block.flags &= !flag::MAPPED;
            }
        }
        drop(state);
        self.unhold(&keys, None);
    }

    fn pause_all(
        &self,
        chosen: Vec<Chosen>,
        saved: Vec<Option<Vec<u8>>>,
        done: &mut PauseReport,
    ) -> Result<(), Error> {
        let mut pools: Vec<u16> = chosen.iter().map(|(_, block)| block.pool).collect();
        pools.sort_unstable();
        pools.dedup();
        let mut left: Vec<(Chosen, Option<Vec<u8>>)> = chosen.into_iter().zip(saved).collect();
        for number in pools {
            let (here, others) = left.into_iter().partition(|((_, block), _)| block.pool == number);
            left = others;
            if let Err(error) = self.pause_pool(number, here, done) {
                let rest: Vec<Chosen> = left.into_iter().map(|(chosen, _)| chosen).collect();
                self.let_go(&rest);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Pauses blocks of one pool: all of them, or none when the device fails.
    fn pause_pool(
        &self,
        number: u16,
        blocks: Vec<(Chosen, Option<Vec<u8>>)>,
        done: &mut PauseReport,
    ) -> Result<(), Error> {
        let (mut going, mut stay) = (Vec::new(), Vec::new());
        let space = {
            let mut state = self.lock();
            let Some(paged) = &mut state.pools[usize::from(number)].paged else { return Ok(()) };
            for ((key, block), contents) in blocks {
                let crate::pool::SpotKind::Page(slot) = block.spot.kind() else { continue };
                match paged.pages.pause(slot) {
                    Ok(pausing) if pausing.pages.is_empty() => {
                        paged.pages.pause_failed(pausing);
                        stay.push((key, block));
                    }
                    Ok(pausing) => going.push((key, block, pausing, contents)),
                    Err(_) => stay.push((key, block)),
                }
            }
            let space = paged.space;
            state.in_flight += 1;
            space
        };
        done.refused += stay.len();
        self.let_go(&stay);
        let unmapped = self.unmap_pausing(space, going.iter().map(|part| &part.2));
        let mut state = self.lock();
        state.in_flight -= 1;
        let mut gone = Vec::new();
        let mut keys = Vec::new();
        for (key, block, pausing, contents) in going {
            keys.push((key, block));
            if unmapped.is_ok() {
                state.note_parted(number, &pausing);
            }
            let Some(paged) = &mut state.pools[usize::from(number)].paged else { continue };
            if unmapped.is_err() {
                paged.pages.pause_failed(pausing);
                continue;
            }
            gone.extend(paged.pages.pause_done(pausing));
            state.fall_asleep(key, &block, Asleep { contents, waking: false });
            done.blocks += 1;
        }
        drop(state);
        if let Err(error) = unmapped {
            self.let_go(&keys);
            return Err(error);
        }
        let keys: Vec<Key> = keys.into_iter().map(|(key, _)| key).collect();
        let released = gone.iter().try_for_each(|b| Ok(self.paging()?.release(b.object)?));
        let mut state = self.lock();
        let pool = &state.pools[usize::from(number)];
        let (heap, kind) = (pool.heap, pool.kind);
        for backing in &gone {
            state.give_object(number, heap, kind, backing.object, backing.object_bytes);
            done.bytes += backing.object_bytes;
        }
        self.unlock_and_tell(state);
        self.wake_freed(&keys);
        released
    }

    fn unmap_pausing<'a>(
        &self,
        space: SpaceId,
        pausing: impl Iterator<Item = &'a Pausing>,
    ) -> Result<(), Error> {
        let (mut ops, mut after) = (Vec::new(), Points::NONE);
        let at = |offset| Place { space, offset };
        for parting in pausing.flat_map(|pausing| &pausing.pages) {
            ops.push(UnmapOp { at: at(parting.at), bytes: parting.backing.bytes });
            for stale in &parting.stale {
                ops.push(UnmapOp { at: at(stale.at), bytes: stale.bytes });
                after.merge(&stale.after);
            }
        }
        if ops.is_empty() {
            return Ok(());
        }
        if !self.caps().paging.is_some_and(|paging| paging.stream_ordered) {
            self.wait_all(&after, HUNG, 0)?;
            after = Points::NONE;
        }
        self.paging()?.unmap(&ops, after.as_slice())?;
        Ok(())
    }

    /// Ends the holds of paused blocks; frees those that were freed meanwhile.
    fn wake_freed(&self, keys: &[Key]) {
        let mut freed = Vec::new();
        {
            let mut state = self.lock();
            for &key in keys {
                let Ok(block) = state.blocks.get_mut(key) else { continue };
                block.holds = block.holds.saturating_sub(1);
                if block.has(flag::FREE_LATER) {
                    freed.push(key);
                }
            }
        }
        for key in freed {
            let mut state = self.lock();
            state.release_asleep(key);
            self.unlock_and_tell(state);
        }
    }
}

impl State {
    /// The blocks of a selection.
    fn selected(&self, allocator: u32, what: Selection) -> Result<Vec<Key>, Error> {
        if let Selection::Block(handle) = what {
            let key = handle.key_for(allocator)?;
            self.block(key)?;
            return Ok(vec![key]);
        }
        let is_chosen = |block: &Block| match what {
            Selection::Tag(tag) => block.tag == tag,
            Selection::Kind(kind) => self.pool(block).kind == kind,
            Selection::Block(_) => false,
        };
        let chosen = self.blocks.iter().filter(|(_, block)| is_chosen(block));
        Ok(chosen.map(|(key, _)| key).collect())
    }

    /// Tells of the pages of a paused block, gone from all their places.
    fn note_parted(&mut self, number: u16, pausing: &Pausing) {
        let class = self.pools[usize::from(number)].key.class.0;
        for parting in &pausing.pages {
            let page = (parting.backing.object.0, parting.backing.bytes, parting.at);
            // Those whose page has moved on name no memory object.
            let stale = parting.stale.iter().map(|stale| (0, stale.bytes, stale.at));
            for (object, bytes, at) in std::iter::once(page).chain(stale) {
                let event = Event::new(EventKind::PageUnmapped).a(object).b(bytes).c(at);
                self.event(event.of(class, 0));
            }
        }
    }

    /// Counts a block as of no bytes from here on.
    fn fall_asleep(&mut self, key: Key, block: &Block, asleep: Asleep) {
        let pool = self.pool(block);
        let (kind, bytes) = (pool.kind, pool.bytes(block.spot));
        let requested = bytes.saturating_sub(u64::from(block.pad));
        self.count_free(kind, block.tag, (requested, bytes), true);
        self.count_alloc(kind, block.tag, 0, 0);
        self.waits.remove(key.index());
        if let Ok(block) = self.block_mut(key) {
            block.flags &= !flag::HAS_WAITS;
        }
        if asleep.contents.is_none() {
            self.checking.disarm(key);
        }
        self.asleep.insert(key.index(), asleep);
        self.event(Event::new(EventKind::Resized).handle(key.to_bits()));
    }

    /// Counts a block in full again.
    pub(super) fn wake(&mut self, key: Key, block: &Block) {
        let pool = self.pool(block);
        let (kind, bytes) = (pool.kind, pool.bytes(block.spot));
        let requested = bytes.saturating_sub(u64::from(block.pad));
        self.count_free(kind, block.tag, (0, 0), true);
        self.count_alloc(kind, block.tag, requested, bytes);
        if let Ok(block) = self.blocks.get_mut(key) {
            block.flags &= !flag::MAPPED;
        }
        self.asleep.remove(&key.index());
        let event = Event::new(EventKind::Resized).handle(key.to_bits());
        self.event(event.a(requested).b(bytes));
    }

    /// Frees a paused block. Nothing can be using it.
    pub(in crate::allocator) fn release_asleep(&mut self, key: Key) {
        let Ok(block) = self.blocks.remove(key) else { return };
        self.checking.forget(key);
        self.asleep.remove(&key.index());
        self.guests.remove(&key.index());
        let now = self.now();
        let pool = &mut self.pools[usize::from(block.pool)];
        let (kind, class) = (pool.kind, pool.key.class.0);
        pool.free(block.spot, Points::NONE, now);
        self.count_free(kind, block.tag, (0, 0), true);
        for kind in [EventKind::FreeRequested, EventKind::FreeCompleted] {
            let event = Event::new(kind).handle(key.to_bits()).of(class, block.tag.0);
            self.event(event.on(block.stream.0, block.site));
        }
        self.frees += 1;
    }

    /// Refuses what needs the memory of a paused block.
    pub(in crate::allocator) fn refuse_asleep(&self, key: Key, block: &Block) -> Result<(), Error> {
        let asleep = block.has(flag::MAPPED) && self.asleep.contains_key(&key.index());
        if asleep { Err(Error::Paused) } else { Ok(()) }
    }
}

impl Inner {
    fn asleep(&self, what: Selection) -> Result<Vec<Key>, Error> {
        let state = self.lock();
        let mut keys = state.selected(self.id, what)?;
        keys.retain(|key| state.asleep.contains_key(&key.index()));
        Ok(keys)
    }

    pub(super) fn lost_its_space(&self) -> Error {
        DeviceError::InvalidCall("a paged block without its space").into()
    }
}
