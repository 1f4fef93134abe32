//! Work on blocks: the only way, beside a guard, to learn where a block is.

use crate::device::{Access, Binding, Compute, CopyOp, KernelId, Place, Ticket};
use crate::error::{DeviceError, Error, Feature};
use crate::event::{Event, EventKind};
use crate::id::Key;
use crate::point::{Points, StreamId, SyncPoint};

use super::handle::{Handle, Resolved};
use super::state::{State, flag};
use super::{Allocator, Inner};

/// Work being put together on one stream. Blocks resolved in it are held in place until it is
/// closed; closing marks their use. Dropping it closes it.
///
/// Resolving puts the waits that a block needs into the stream, so work submitted afterwards is
/// ordered right. The first use of a block on another stream than its own waits for what its own
/// stream has done with it so far.
#[must_use = "work has to be submitted before the submission is closed"]
#[derive(Debug)]
pub struct Submission {
    alloc: Allocator,
    stream: StreamId,
    held: Vec<Key>,
    /// The graph that the work becomes part of.
    graph: Option<u32>,
    /// Whether it ends before its opener does: what it holds is not told.
    brief: bool,
    closed: bool,
}

/// A part of a block given to a kernel or a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The block.
    pub handle: Handle,
    /// First byte in the block.
    pub offset: u64,
    /// Bytes; `u64::MAX` for all that follow.
    pub bytes: u64,
    /// How it is used.
    pub access: Access,
}

impl Slice {
    /// A whole block, written.
    pub const fn write(handle: Handle) -> Self {
        Self { handle, offset: 0, bytes: u64::MAX, access: Access::Write }
    }

    /// A whole block, only read.
    pub const fn read(handle: Handle) -> Self {
        Self { handle, offset: 0, bytes: u64::MAX, access: Access::Read }
    }

    /// The part from `offset` of `bytes`.
    #[must_use]
    pub const fn part(self, offset: u64, bytes: u64) -> Self {
        Self { offset, bytes, ..self }
    }

    /// The range within a block of `block` bytes.
    fn within(&self, at: &Resolved) -> Result<(Place, u64), Error> {
        let rest = at.bytes.checked_sub(self.offset);
        let bytes = if self.bytes == u64::MAX { rest.unwrap_or(0) } else { self.bytes };
        if rest.is_none_or(|rest| bytes > rest) {
            return Err(Error::OutOfRange { offset: self.offset, bytes, block: at.bytes });
        }
        let place = Place { space: at.place.space, offset: at.place.offset + self.offset };
        Ok((place, bytes))
    }
}

impl Submission {
    /// The stream that the work goes to.
    pub const fn stream(&self) -> StreamId {
        self.stream
    }

    /// Where a block is, until the submission is closed.
    ///
    /// # Errors
    /// [`Error::UseAfterFree`], [`Error::StaleHandle`], [`Error::ForeignHandle`];
    /// [`Error::Held`] while the host has it mapped; the device's when a wait can not be put in.
    pub fn resolve(&mut self, handle: Handle) -> Result<Resolved, Error> {
        let key = handle.key_for(self.alloc.inner.id)?;
        let (at, waits) = {
            let mut state = self.alloc.inner.lock_still(key);
            let at = state.hold(key)?;
            if let Some(graph) = self.graph {
                // The graph replays with this address.
                state.note_captured(key, graph);
            }
            if !self.brief {
                state.tell_open(key);
            }
            (at, state.waits_on(key, self.stream))
        };
        self.held.push(key);
        let waiting = self.alloc.inner.device.wait_on_stream(self.stream, waits.as_slice());
        if let Err(error) = waiting {
            // The stream does not wait: its next use of the block has to.
            self.alloc.inner.lock().forget_guest(key, self.stream);
            return Err(error.into());
        }
        Ok(at)
    }

    /// Ends the submission: everything submitted to the stream so far counts as a use of the
    /// resolved blocks. Gives the point of that work.
    ///
    /// # Errors
    /// The device's for a stream that was retired meanwhile; the blocks are let go all the same.
    pub fn close(mut self) -> Result<SyncPoint, Error> {
        let point = self.alloc.inner.device.mark(self.stream);
        self.end(point.ok());
        Ok(point?)
    }

    /// Ends the submission whose work is done when `point` is reached.
    pub fn close_at(mut self, point: SyncPoint) {
        self.end(Some(point));
    }

    fn end(&mut self, point: Option<SyncPoint>) {
        if !self.closed {
            self.closed = true;
            self.alloc.inner.end_use(&self.held, point, !self.brief);
        }
    }
}

impl Drop for Submission {
    fn drop(&mut self) {
        // Work may have been submitted: what the stream has so far covers it.
        let point = self.alloc.inner.device.mark(self.stream).ok();
        self.end(point);
    }
}

impl Allocator {
    /// Opens a submission on a stream.
    pub fn submit(&self, stream: StreamId) -> Submission {
        // A graph too many to have a number is never released: what it uses stays for good.
        let graph = self.inner.graph_of(stream).unwrap_or(Some(u32::MAX));
        let (alloc, held) = (self.clone(), Vec::new());
        Submission { alloc, stream, held, graph, brief: false, closed: false }
    }

    /// One that ends before its opener does.
    fn submit_briefly(&self, stream: StreamId) -> Submission {
        let mut submission = self.submit(stream);
        submission.brief = true;
        submission
    }

    /// Runs a kernel over blocks: resolves them, puts the waits in, submits, marks their use.
    ///
    /// # Errors
    /// Those of [`Submission::resolve`]; [`Error::OutOfRange`]; [`Error::BindingTooLarge`];
    /// [`DeviceError::Unsupported`] on a device without compute; the device's.
    pub fn dispatch(
        &self,
        stream: StreamId,
        kernel: KernelId,
        bindings: &[Slice],
        push: &[u8],
        groups: [u32; 3],
    ) -> Result<SyncPoint, Error> {
        let compute = self.inner.compute()?;
        let limit = self.inner.caps().max_binding_bytes;
        let mut submission = self.submit_briefly(stream);
        let mut places = Vec::with_capacity(bindings.len());
        for slice in bindings {
            let at = submission.resolve(slice.handle)?;
            let (place, bytes) = slice.within(&at)?;
            if bytes > limit {
                return Err(Error::BindingTooLarge { bytes, limit });
            }
            places.push(Binding { place, bytes, access: slice.access });
        }
        let point = compute.dispatch(stream, kernel, &places, push, groups)?;
        submission.close_at(point);
        Ok(point)
    }

    /// Copies between blocks on a stream. The ranges must not overlap; offsets and bytes are
    /// multiples of 4.
    ///
    /// # Errors
    /// Those of [`Submission::resolve`]; [`Error::OutOfRange`]; the device's.
    pub fn copy(&self, stream: StreamId, from: Slice, to: Slice) -> Result<SyncPoint, Error> {
        let mut submission = self.submit_briefly(stream);
        let (from, available) = from.within(&submission.resolve(from.handle)?)?;
        let (to, bytes) = to.within(&submission.resolve(to.handle)?)?;
        let op = CopyOp { from, to, bytes: bytes.min(available) };
        let point = self.inner.device.copy(stream, &[op])?;
        submission.close_at(point);
        Ok(point)
    }

    /// Writes host bytes to a block on a stream.
    ///
    /// # Errors
    /// Those of [`Submission::resolve`]; [`Error::OutOfRange`]; the device's.
    pub fn write(
        &self,
        stream: StreamId,
        handle: Handle,
        offset: u64,
        data: &[u8],
    ) -> Result<SyncPoint, Error> {
        let mut submission = self.submit_briefly(stream);
        let slice = Slice::write(handle).part(offset, data.len() as u64);
        let (place, _) = slice.within(&submission.resolve(handle)?)?;
        let point = self.inner.device.write(stream, place, data)?;
        submission.close_at(point);
        Ok(point)
    }

    /// Starts reading a part of a block on a stream; [`take_read`](Self::take_read) gives the
    /// bytes once the ticket's point is reached.
    ///
    /// # Errors
    /// Those of [`Submission::resolve`]; [`Error::OutOfRange`]; the device's.
    pub fn read(&self, stream: StreamId, slice: Slice) -> Result<Ticket, Error> {
        let mut submission = self.submit_briefly(stream);
        let (place, bytes) = slice.within(&submission.resolve(slice.handle)?)?;
        let ticket = self.inner.device.read(stream, place, bytes)?;
        submission.close_at(ticket.point);
        Ok(ticket)
    }

    /// The bytes of a read that is done.
    ///
    /// # Errors
    /// [`DeviceError::InvalidCall`] when it is not done or was taken before.
    pub fn take_read(&self, ticket: Ticket) -> Result<Vec<u8>, Error> {
        Ok(self.inner.device.take_read(ticket)?)
    }

    /// Waits on the host until a point is reached, at most `time` on the device's clock.
    ///
    /// # Errors
    /// [`Error::TimedOut`] (with 0 bytes asked); the device's.
    pub fn wait(&self, point: SyncPoint, time: std::time::Duration) -> Result<(), Error> {
        self.inner.wait_all(&Points::one(point), time, 0)
    }
}

impl Inner {
    pub(super) fn compute(&self) -> Result<&dyn Compute, Error> {
        self.device.compute().ok_or(Error::Device(DeviceError::Unsupported(Feature::Compute)))
    }
}

impl State {
    /// What work on `stream` has to wait for before it uses a block.
    pub(super) fn waits_on(&mut self, key: Key, stream: StreamId) -> Points {
        let Ok(&block) = self.blocks.get(key) else { return Points::NONE };
        let mut waits = Points::NONE;
        if block.has(flag::HAS_WAITS)
            && let Some(points) = self.waits.get(key.index())
        {
            waits.merge(points);
        }
        if stream != block.stream && self.is_first_use(key, stream) {
            let uses = self.pool(&block).uses(block.spot);
            let own = uses.iter().find(|point| point.stream == block.stream);
            if let Some(own) = own {
                waits.insert(own);
                self.tell_work_waits(key, own, stream);
            }
        }
        waits.retain(|point| point.stream != stream && point.value != SyncPoint::NEVER);
        waits
    }

    /// Tells that work on a stream waits for what a block's own stream has done with it.
    fn tell_work_waits(&mut self, key: Key, own: SyncPoint, waiting: StreamId) {
        let SyncPoint { stream: owner, value } = own;
        let reached = self.reached.get(&owner).copied().unwrap_or(0);
        if value > reached && value != SyncPoint::NEVER {
            let event = Event::new(EventKind::WorkWaits).handle(key.to_bits()).a(value);
            self.event(event.c(u64::from(waiting.0)).on(owner.0, 0));
        }
    }

    /// Says that a stream does not wait yet for what a block's own stream has done with it.
    fn forget_guest(&mut self, key: Key, stream: StreamId) {
        if let Some(guests) = self.guests.get_mut(&key.index()) {
            guests.retain(|guest| *guest != stream);
        }
    }

    /// Notes that a block is used on a stream that is not its own; tells whether for the first
    /// time.
    fn is_first_use(&mut self, key: Key, stream: StreamId) -> bool {
        let guests = self.guests.entry(key.index()).or_default();
        if guests.contains(&stream) {
            return false;
        }
        guests.push(stream);
        if let Ok(block) = self.blocks.get_mut(key) {
            block.flags |= flag::HAS_GUESTS;
        }
        true
    }
}
