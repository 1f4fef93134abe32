//! Guards that hold a block in place: for its address, and for the host to see it.

use std::time::Duration;

use crate::device::{HostView, SyncPoint, View};
use crate::error::{DeviceError, Error, Feature};
use crate::event::{Event, EventKind};
use crate::id::Key;
use crate::point::Points;

use super::handle::{Handle, Resolved};
use super::patience::Patience;
use super::state::{State, flag};
use super::{Allocator, Inner};

/// Holds a block in place while it lives: the address stays true, the block is not moved.
///
/// The interface says "held in place"; "pinned" alone means page-locked host memory to many.
#[derive(Debug)]
#[must_use = "the block may move as soon as the guard is dropped"]
pub struct Pin {
    alloc: Allocator,
    key: Key,
    at: Resolved,
}

impl Pin {
    /// Where the block is.
    pub const fn at(&self) -> Resolved {
        self.at
    }

    /// The block's device address.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] on a device without addresses.
    pub fn address(&self) -> Result<u64, Error> {
        self.at.address.ok_or(Error::Device(DeviceError::Unsupported(Feature::Addresses)))
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.alloc.inner.unhold(&[self.key], None);
    }
}

/// The bytes of a block as the host sees them. While it lives the block is held in place and no
/// submission through Terrane may use it.
#[must_use = "the bytes can only be seen through the guard"]
pub struct Mapped {
    // Dropped before the hold ends: writes have to be visible before others may use the block.
    view: Option<Box<dyn HostView>>,
    alloc: Allocator,
    key: Key,
}

impl std::ops::Deref for Mapped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.view.as_ref().map_or(&[], |view| view.bytes())
    }
}

impl std::ops::DerefMut for Mapped {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.view.as_mut().map_or(&mut [], |view| view.bytes_mut())
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.view = None;
        let mut state = self.alloc.inner.lock();
        if let Ok(block) = state.blocks.get_mut(self.key) {
            block.flags &= !flag::MAPPED;
        }
        drop(state);
        self.alloc.inner.unhold(&[self.key], None);
    }
}

impl Allocator {
    /// Holds a block in place and tells where it is.
    ///
    /// Points that the block waits for are the caller's to insert: see
    /// [`waits`](Self::waits_of).
    ///
    /// # Errors
    /// [`Error::UseAfterFree`], [`Error::StaleHandle`], [`Error::ForeignHandle`].
    pub fn pin(&self, handle: Handle) -> Result<Pin, Error> {
        let key = handle.key_for(self.inner.id)?;
        let mut state = self.inner.lock_still(key);
        let at = state.hold(key)?;
        state.tell_guard(key);
        drop(state);
        Ok(Pin { alloc: self.clone(), key, at })
    }

    /// What has to be reached before work on streams other than the block's own may use it.
    ///
    /// # Errors
    /// As [`pin`](Self::pin).
    pub fn waits_of(&self, handle: Handle) -> Result<Points, Error> {
        let key = handle.key_for(self.inner.id)?;
        let state = self.inner.lock();
        state.block(key)?;
        Ok(state.waits.get(key.index()).cloned().unwrap_or_default())
    }

    /// Lets the host see a block, once its last recorded use is over; waits for that, at most
    /// `time` on the device's clock.
    ///
    /// # Errors
    /// [`Error::Held`] while a submission is open on it or it is mapped already;
    /// [`Error::TimedOut`]; [`DeviceError::Unsupported`] for memory that the host can not see.
    pub fn map(&self, handle: Handle, time: Duration) -> Result<Mapped, Error> {
        let access = self.inner.device.host_access();
        let access = access.ok_or(DeviceError::Unsupported(Feature::HostMapping))?;
        let key = handle.key_for(self.inner.id)?;
        let (at, uses) = {
            let mut state = self.inner.lock_still(key);
            if state.block(key)?.holds > 0 {
                return Err(Error::Held);
            }
            let at = state.hold(key)?;
            let block = *state.block(key)?;
            state.block_mut(key)?.flags |= flag::MAPPED;
            state.tell_guard(key);
            let mut uses = state.pool(&block).uses(block.spot).clone();
            uses.merge(&state.waits.get(key.index()).cloned().unwrap_or_default());
            (at, uses)
        };
        let mut mapped = Mapped { view: None, alloc: self.clone(), key };
        self.inner.wait_all(&uses, time, at.bytes)?;
        mapped.view = Some(access.view(at.place, at.bytes)?);
        Ok(mapped)
    }

    /// Makes the API object over a block that the device offers (on Vulkan a `VkBuffer`), or
    /// gives the one that was made. It is retired with the block.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] where [`Caps::views`](crate::device::Caps) is false.
    pub fn view(&self, handle: Handle) -> Result<View, Error> {
        let pin = self.pin(handle)?;
        if let Some(view) = pin.at.view {
            return Ok(view);
        }
        let view = self.inner.device.create_view(pin.at.place, pin.at.bytes)?;
        let mut state = self.inner.lock();
        let made_meanwhile = state.views.get(&pin.key.index()).copied();
        if let Some(other) = made_meanwhile {
            drop(state);
            self.inner.device.destroy_view(view)?;
            return Ok(other);
        }
        state.views.insert(pin.key.index(), view);
        state.block_mut(pin.key)?.flags |= flag::HAS_VIEW;
        state.tell_hold(pin.key);
        Ok(view)
    }
}

impl Inner {
    /// Ends one hold of each block, recording `point` as a use, and completes frees that waited
    /// for it.
    pub(super) fn unhold(&self, keys: &[Key], point: Option<SyncPoint>) {
        self.end_use(keys, point, false);
    }

    /// The same for a submission; `is_told`: that it held them was told while it was open.
    pub(super) fn end_use(&self, keys: &[Key], point: Option<SyncPoint>, is_told: bool) {
        let (mut views, mut to_check) = (Vec::new(), Vec::new());
        let mut state = self.lock_shelved();
        if let Some(point) = point {
            state.tell_submitted(keys, point);
        }
        for &key in keys {
            let Ok(block) = state.blocks.get_mut(key) else { continue };
            block.holds = block.holds.saturating_sub(1);
            let block = *block;
            if let Some(point) = point {
                state.pool_mut(&block).add_use(block.spot, point);
            }
            if block.holds == 0 {
                state.tell_let_go(key, is_told);
            } else if is_told {
                state.tell_at_last(key);
            }
            let is_over = block.holds == 0 && !block.has(flag::MOVING | flag::SLIDING);
            if is_over && block.has(flag::FREE_LATER) {
                // The free of what a graph may still write to is put off, and not checked.
                if !block.has(flag::CAPTURED) && state.hold_for_check(key) {
                    to_check.push(key);
                } else {
                    views.extend(state.complete_free(key, Points::NONE));
                }
            }
        }
        self.unlock_and_tell(state);
        for view in views {
            self.destroy_views(Some(view));
        }
        for key in to_check {
            self.begin_check(key);
        }
    }

    /// Waits on the host until all of `points` are reached.
    pub(super) fn wait_all(
        &self,
        points: &Points,
        time: Duration,
        asked: u64,
    ) -> Result<(), Error> {
        let mut patience = Patience::new(&*self.device, time);
        for point in points.iter().filter(|point| point.value != SyncPoint::NEVER) {
            while self.device.reached(point.stream)? < point.value {
                if patience.wait(&*self.device, &[point], Duration::MAX)?.is_none() {
                    return Err(Error::TimedOut { asked });
                }
            }
        }
        Ok(())
    }
}

impl State {
    /// Tells of work that uses blocks.
    fn tell_submitted(&mut self, keys: &[Key], point: SyncPoint) {
        let (mut bytes, mut blocks) = (0_u64, 0);
        for block in keys.iter().filter_map(|key| self.blocks.get(*key).ok()) {
            bytes = bytes.saturating_add(self.pool(block).bytes(block.spot));
            blocks += 1;
        }
        if blocks > 0 {
            let event = Event::new(EventKind::Submitted).a(point.value).b(bytes).c(blocks);
            self.event(event.on(point.stream.0, 0));
        }
    }

    /// Adds a hold to a block and tells where it is.
    pub(super) fn hold(&mut self, key: Key) -> Result<Resolved, Error> {
        let block = *self.block(key)?;
        self.refuse_asleep(key, &block)?;
        let block = self.block_mut(key)?;
        if block.has(flag::MAPPED) || block.holds == u16::MAX {
            return Err(Error::Held);
        }
        block.holds += 1;
        if block.has(flag::MOVING) {
            // Its copy is on its way and may miss what the holder writes.
            block.flags |= flag::TOUCHED;
        }
        let block = *block;
        let pool = self.pool(&block);
        let at = Resolved {
            place: pool.place(block.spot),
            address: pool.address(block.spot),
            bytes: pool.bytes(block.spot),
            view: if block.has(flag::HAS_VIEW) {
                self.views.get(&key.index()).copied()
            } else {
                None
            },
        };
        Ok(self.checking.shown(key, at))
    }
}
