//! What is done to a new block outside the lock: clearing.

use crate::error::Error;
use crate::id::Key;
use crate::point::{Points, StreamId};
use crate::request::Request;

use super::Inner;
use super::alloc::Asked;
use super::config::Scrub;
use super::handle::{Allocation, Resolved};

impl Inner {
    #[inline(always)]
    pub(super) fn is_to_clear(&self, request: &Request<'_>) -> bool {
        request.zeroed || self.config.scrub == Scrub::AcrossTags
    }

    /// Clears a new block if that was asked for.
    pub(super) fn finish(
        &self,
        asked: &Asked<'_>,
        made: Result<Allocation, Error>,
    ) -> Result<Allocation, Error> {
        if self.is_to_clear(asked.request) { self.finish_cleared(asked, made?) } else { made }
    }

    #[cold]
    fn finish_cleared(
        &self,
        asked: &Asked<'_>,
        allocation: Allocation,
    ) -> Result<Allocation, Error> {
        let request = asked.request;
        let scrub = self.config.scrub == Scrub::AcrossTags && self.touch(&allocation, request)?;
        if !request.zeroed && !scrub {
            return Ok(allocation);
        }
        if let Err(error) = self.clear(&allocation, request.stream) {
            // The caller never sees the handle: nothing else can have used or freed it.
            let _ = self.free(allocation.handle, &Points::NONE);
            return Err(error);
        }
        Ok(allocation)
    }

    fn touch(&self, allocation: &Allocation, request: &Request<'_>) -> Result<bool, Error> {
        let mut state = self.lock();
        let block = *state.block(allocation.handle.key)?;
        Ok(state.pool_mut(&block).touch(block.spot, request.tag))
    }

    fn clear(&self, allocation: &Allocation, stream: StreamId) -> Result<(), Error> {
        let key = allocation.handle.key;
        let (at, waits) = self.hold_new(key, stream)?;
        let waited = self.device.wait_on_stream(stream, waits.as_slice());
        let filled = waited.and_then(|()| self.device.fill(stream, at.place, allocation.bytes, 0));
        self.unhold(&[key], filled.ok());
        Ok(filled.map(|_| ())?)
    }

    /// Holds a block that nobody has used yet, so that no pass moves it before what is done to it
    /// is known as a use; a pass that slides it already is waited for, since the old place becomes
    /// another block's. Gives where it is and what work there has to wait for. That is not what the
    /// request was told: the block may have been moved since.
    pub(super) fn hold_new(&self, key: Key, stream: StreamId) -> Result<(Resolved, Points), Error> {
        let mut state = self.lock_still(key);
        let at = state.hold(key)?;
        Ok((at, state.waits_on(key, stream)))
    }
}

#[cfg(test)]
mod tests {
    use crate::compact::{Goal, Limits};
    use crate::device::sim::{Completion, Sim};
    use crate::device::{Device, StreamSpec, SyncPoint};
    use crate::{Allocator, Config, Growth, Limit, Request};

    const UNIT: u64 = 64 << 10;

    /// A pass moves a block that was handed out and not cleared yet, to where another stream still
    /// reads: the clearing has to wait for both.
    #[test]
    fn a_new_block_that_moved_meanwhile_is_cleared_behind_its_move() {
        let sim = Sim::slabs().completion(Completion::ByHand).bytes(true).open();
        let streams = [(); 2].map(|()| sim.create_stream(StreamSpec::default()).unwrap());
        let mut config = Config::for_device(sim.caps());
        config.small_max = 0;
        config.growth = Growth::Proportional { min_bytes: 16 * UNIT, max_bytes: 16 * UNIT };
        config.limits = vec![Limit::Bytes(16 * UNIT)];
        let alloc = Allocator::with_config(sim.shared(), config).unwrap();
        let ask = |units, stream| alloc.alloc(&Request::new(units * UNIT, stream)).unwrap();
        let fixed = Request::new(2 * UNIT, streams[1]).movable(false);
        let blocks = [3, 2, 8, 1].map(|units| match units {
            2 => alloc.alloc(&fixed).unwrap().handle,
            units => ask(units, streams[1]).handle,
        });
        alloc.free(blocks[2]).unwrap();
        sim.complete_all();
        alloc.inner.reap().unwrap();
        alloc.write(streams[1], blocks[0], 0, &[1; 256]).unwrap();
        alloc.free(blocks[0]).unwrap();
        // 3 free behind a write, 2 fixed, 8 free, 1 live, and 2 free, of which one is taken.
        let new = ask(1, streams[0]);
        let place = alloc.info(new.handle).unwrap().place;
        let goal = Goal::Contiguous { bytes: 11 * UNIT, align: 1 };
        let mut pass = alloc.begin_pass(goal, Limits::NONE).unwrap();
        pass.submit().unwrap();
        assert_ne!(alloc.info(new.handle).unwrap().place, place);
        alloc.inner.clear(&new, streams[0]).unwrap();
        sim.complete(SyncPoint { stream: streams[0], value: u64::MAX });
        sim.complete_all();
        assert_eq!(sim.violations(), []);
        drop(pass);
        for block in [blocks[1], blocks[3], new.handle] {
            alloc.free(block).unwrap();
        }
        sim.complete_all();
    }
}
