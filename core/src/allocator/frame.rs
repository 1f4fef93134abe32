//! Frees in bulk, behind one piece of work: what replaces a program's deletion queue.

use crate::error::Error;
use crate::id::Key;
use crate::point::Points;

use super::{Allocator, Buffer, Handle};

/// Blocks that go with a piece of work that is still being put together, such as a frame.
///
/// A program that records commands by itself knows which blocks it needs for the last time long
/// before there is a sync point for the work. Into a frame they go at that moment; the point comes
/// with [`end`](Self::end), once the work is submitted. Until then the blocks stay where they are
/// and their memory goes to nobody; their handles can not be used any more.
///
/// Dropping a frame says that its work was never submitted: the blocks are then free behind the
/// uses that they had before.
///
/// ```
/// # use terrane_core::{Allocator, Request, device::{Device, StreamSpec, sim::Sim}, point::Points};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let device = Sim::vulkan().open().shared();
/// let alloc = Allocator::new(device.clone())?;
/// let stream = device.create_stream(StreamSpec::default())?;
/// let scratch = alloc.buffer(&Request::new(1 << 20, stream))?;
/// let mut frame = alloc.frame();
/// // ... record commands that use `scratch`, then:
/// frame.keep(scratch)?;
/// // ... submit them, then:
/// frame.end(&Points::one(device.mark(stream)?));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the blocks are freed as if the frame was never submitted"]
pub struct Frame {
    alloc: Allocator,
    held: Vec<Key>,
}

impl Allocator {
    /// Begins to collect the blocks that one piece of work uses for the last time.
    pub fn frame(&self) -> Frame {
        Frame { alloc: self.clone(), held: Vec::new() }
    }
}

impl Frame {
    /// Frees a block once the frame is over. Its address stays true until [`end`](Self::end).
    ///
    /// # Errors
    /// As [`Allocator::free`]; [`Error::Held`] while the host has the block mapped. Nothing
    /// changes then.
    pub fn free(&mut self, handle: Handle) -> Result<(), Error> {
        let inner = &self.alloc.inner;
        let key = handle.key_for(inner.id)?;
        let held = inner.lock().hold(key);
        held.map_err(|error| match error {
            Error::UseAfterFree => Error::DoubleFree,
            error => error,
        })?;
        // Held, so this only notes that the last hold's end is to free it.
        match inner.free(handle, &Points::NONE) {
            Ok(()) => self.held.push(key),
            Err(error) => {
                inner.unhold(&[key], None);
                return Err(error);
            }
        }
        Ok(())
    }

    /// As [`free`](Self::free), for an owned block.
    ///
    /// # Errors
    /// As [`free`](Self::free); the block is freed in stream order then.
    pub fn keep(&mut self, buffer: Buffer) -> Result<(), Error> {
        self.free(buffer.handle())?;
        let _ = buffer.into_handle();
        Ok(())
    }

    /// Blocks collected so far.
    pub const fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether there is no block in it.
    pub const fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Ends the frame: all its blocks are free once `points` are reached. Nothing waits.
    pub fn end(mut self, points: &Points) {
        let held = std::mem::take(&mut self.held);
        self.alloc.inner.add_uses(&held, points);
        self.alloc.inner.unhold(&held, None);
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        self.alloc.inner.unhold(&self.held, None);
    }
}

impl super::Inner {
    /// Notes uses of blocks, of freed ones that are still held too.
    fn add_uses(&self, keys: &[Key], points: &Points) {
        let mut state = self.lock();
        for &key in keys {
            let Ok(&block) = state.blocks.get(key) else { continue };
            state.pool_mut(&block).add_uses(block.spot, points);
        }
    }
}
