//! An owned block.

use crate::error::Error;
use crate::point::Points;

use super::Allocator;
use super::handle::{Allocation, BlockInfo, Handle};
use super::hold::Pin;

/// An owned block, freed in stream order when dropped.
///
/// Dropping never waits: the memory returns to its pool behind the block's last uses.
#[derive(Debug)]
pub struct Buffer {
    alloc: Allocator,
    handle: Handle,
    bytes: u64,
    waits: Points,
    owned: bool,
}

impl Buffer {
    pub(super) fn new(alloc: Allocator, allocation: &Allocation) -> Self {
        let Allocation { handle, bytes, ref waits } = *allocation;
        Self { alloc, handle, bytes, waits: waits.clone(), owned: true }
    }

    /// The block's name, for calls that take one.
    pub const fn handle(&self) -> Handle {
        self.handle
    }

    /// Bytes that the block has.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What had to be reached when the block was handed out; see [`Allocation::waits`].
    pub const fn waits(&self) -> &Points {
        &self.waits
    }

    /// The allocator that the block is from.
    pub const fn allocator(&self) -> &Allocator {
        &self.alloc
    }

    /// Holds the block in place and tells where it is.
    ///
    /// # Errors
    /// As [`Allocator::pin`].
    pub fn pin(&self) -> Result<Pin, Error> {
        self.alloc.pin(self.handle)
    }

    /// What is known about the block.
    ///
    /// # Errors
    /// [`Error::UseAfterFree`] when the handle was freed explicitly.
    pub fn info(&self) -> Result<BlockInfo, Error> {
        self.alloc.info(self.handle)
    }

    /// Enlarges the block where it is; see [`Allocator::grow`].
    ///
    /// # Errors
    /// As [`Allocator::grow`].
    pub fn grow(&mut self, bytes: u64) -> Result<Points, Error> {
        let waits = self.alloc.grow(self.handle, bytes)?;
        self.bytes = self.alloc.info(self.handle)?.allocated;
        Ok(waits)
    }

    /// Gives the block up without freeing it: its handle is to be freed explicitly.
    pub fn into_handle(mut self) -> Handle {
        self.owned = false;
        self.handle
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.owned {
            // Freed explicitly through its handle, or the device is lost: either way it is gone.
            let inner = &self.alloc.inner;
            let _ = if inner.checked {
                // A drop is called from nowhere that could be named.
                inner.free_checked(self.handle, &Points::NONE, None)
            } else {
                inner.free_now(self.handle, &Points::NONE)
            };
        }
    }
}
