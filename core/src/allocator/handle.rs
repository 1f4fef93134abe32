//! Names of blocks, and what can be asked about them.

use std::fmt;

use crate::compact::Why;
use crate::device::{MemoryKind, Place, View};
use crate::error::Error;
use crate::id::Key;
use crate::point::{Points, StreamId};
use crate::request::Tag;

/// The name of a block. It stays the same when the block moves, is never reused, and is checked
/// on every use: a handle of another allocator, of a freed block or of a reused slot is an error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    pub(crate) key: Key,
    pub(crate) allocator: u32,
}

impl Handle {
    /// The handle's number within its allocator, as in events and traces.
    pub const fn number(self) -> u64 {
        self.key.to_bits()
    }

    pub(crate) fn key_for(self, allocator: u32) -> Result<Key, Error> {
        if self.allocator == allocator { Ok(self.key) } else { Err(Error::ForeignHandle) }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:?} of allocator {})", self.key, self.allocator)
    }
}

/// What a request got.
#[derive(Clone, Debug)]
#[must_use = "a dropped allocation is leaked: free its handle, or ask for a Buffer"]
pub struct Allocation {
    /// The block's name.
    pub handle: Handle,
    /// Bytes that the block has, at least what was asked for.
    pub bytes: u64,
    /// What must be reached before work of other streams' making touches the block. Work that is
    /// submitted through Terrane waits by itself; see [`Allocator::insert_waits`] for the rest.
    ///
    /// [`Allocator::insert_waits`]: crate::Allocator::insert_waits
    pub waits: Points,
}

/// Where a held block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Its first byte.
    pub place: Place,
    /// Its device address, where the device has addresses.
    pub address: Option<u64>,
    /// Bytes that the block has.
    pub bytes: u64,
    /// The API object made over the block, if one was asked for.
    pub view: Option<View>,
}

/// What is known about a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// The block's name.
    pub handle: Handle,
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes that the block has.
    pub allocated: u64,
    /// The memory kind.
    pub kind: MemoryKind,
    /// The stream that its use is ordered on.
    pub stream: StreamId,
    /// Its tag.
    pub tag: Tag,
    /// Its name, or empty.
    pub name: String,
    /// File and line of the call that made it.
    pub site: String,
    /// Milliseconds since it was made.
    pub age_ms: u64,
    /// Where it is now.
    pub place: Place,
    /// Guards that hold it in place.
    pub holds: u32,
    /// Whether compaction may move it when nothing holds it.
    pub movable: bool,
    /// Why a pass would not move it now, copies under way and a pause apart; `None` if it would.
    pub held_by: Option<Why>,
    /// Whether it is paused: it keeps its addresses, its memory is with the device.
    pub paused: bool,
    /// What has to be reached before its last uses are over.
    pub uses: Points,
}

/// A block that was live when its allocator was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leak {
    /// Its name, or empty.
    pub name: String,
    /// File and line of the call that made it.
    pub site: String,
    /// Bytes asked for.
    pub bytes: u64,
    /// Milliseconds since it was made.
    pub age_ms: u64,
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() { "(unnamed)" } else { &self.name };
        let bytes = crate::units::Bytes(self.bytes);
        write!(f, "{bytes} {name} from {}, {} ms old", self.site, self.age_ms)
    }
}
