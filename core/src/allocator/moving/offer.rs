//! Moves of blocks whose raw handles the program keeps: it is asked first.

use crate::device::{DeviceError, Feature, View};
use crate::error::Error;
use crate::point::Points;

use super::super::Inner;
use super::super::handle::{Handle, Resolved};
use super::super::state::{State, flag};
use super::compactor::Compactor;
use super::reserve::Apart;

/// What a program says to a move that is offered to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    /// Leave the block where it is.
    #[default]
    Ignore,
    /// Copy it: the program has written the new place into its descriptors, and work that uses
    /// the old one is recorded as a use.
    Copy,
    /// Free it instead: its contents can be made anew.
    Destroy,
}

/// A move that the program is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The block.
    pub handle: Handle,
    /// Where it is, with its API object if it has one.
    pub old: Resolved,
    /// Where it would go, with an API object there if it has one now.
    pub new: Resolved,
    /// What the program has answered.
    pub answer: Answer,
}

impl Compactor {
    /// The moves of this pass that the program has to agree to: of blocks that were requested
    /// with [`raw_handle`](crate::Request::raw_handle) or have an API object. Only passes with
    /// [`offer_raw`](crate::compact::Limits::offer_raw) have any.
    ///
    /// What is not answered is left where it is.
    pub fn offers(&self) -> Vec<Offer> {
        let Some(batch) = &self.pass.batch else { return Vec::new() };
        let state = self.alloc.inner.lock();
        let mut offers = Vec::new();
        for it in batch.apart.iter().filter(|it| it.raw) {
            let Ok(block) = state.block(it.key) else { continue };
            let view = state.views.get(&it.key.index()).copied();
            let handle = Handle { key: it.key, allocator: self.alloc.inner.id };
            let shown = |at| state.checking.shown(it.key, at);
            let old = shown(state.resolved(block.pool, block.spot, view));
            let new = shown(state.resolved(self.pass.pool, it.to.spot, it.view));
            offers.push(Offer { handle, old, new, answer: it.answer });
        }
        offers
    }

    /// Answers an offer. The answer counts when the pass is submitted, by
    /// [`submit`](Self::submit) or [`poll`](Self::poll).
    ///
    /// # Errors
    /// [`Error::StaleHandle`] when no move of this block is offered (any more).
    pub fn answer(&mut self, handle: Handle, answer: Answer) -> Result<(), Error> {
        let key = handle.key_for(self.alloc.inner.id)?;
        let items = self.pass.batch.iter_mut().flat_map(|batch| &mut batch.apart);
        let mut offered = items.filter(|it| it.raw && it.key == key);
        offered.next().ok_or(Error::StaleHandle)?.answer = answer;
        Ok(())
    }
}

impl State {
    pub(in crate::allocator) fn resolved(
        &self,
        pool: u16,
        spot: crate::pool::Spot,
        view: Option<View>,
    ) -> Resolved {
        let pool = &self.pools[usize::from(pool)];
        let (place, address) = (pool.place(spot), pool.address(spot));
        Resolved { place, address, bytes: pool.bytes(spot), view }
    }
}

impl Inner {
    /// Makes API objects at the new places of blocks that have one. A block for which none can
    /// be made is not moved.
    pub(super) fn make_views(&self, apart: &mut [Apart], pool: u16) -> Result<(), Error> {
        for it in apart.iter_mut().filter(|it| it.raw) {
            let at = {
                let state = self.lock();
                if !state.block(it.key).is_ok_and(|block| block.has(flag::HAS_VIEW)) {
                    continue;
                }
                state.checking.shown(it.key, state.resolved(pool, it.to.spot, None))
            };
            match self.device.create_view(at.place, at.bytes) {
                Ok(view) => it.view = Some(view),
                Err(DeviceError::Unsupported(Feature::Views)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Frees the blocks that the program would rather make anew.
    pub(super) fn destroy_offered(&self, apart: &[Apart]) {
        for it in apart.iter().filter(|it| it.raw && it.answer == Answer::Destroy) {
            let handle = Handle { key: it.key, allocator: self.id };
            // Freed by the program meanwhile: that is what it asked for.
            let _ = self.free(handle, &Points::NONE);
        }
    }
}
