//! What a check found.

use std::fmt;

use crate::device::Place;
use crate::units::Bytes;

use super::super::handle::Handle;

/// Where something was written that nobody may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DamageKind {
    /// In the margin before a block.
    BeforeStart,
    /// In the margin behind a block.
    PastEnd,
    /// In a block that had been freed.
    AfterFree,
}

impl DamageKind {
    /// The kind in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BeforeStart => "before the start of",
            Self::PastEnd => "past the end of",
            Self::AfterFree => "after the free of",
        }
    }
}

/// A block that may have to do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// Its handle.
    pub handle: Handle,
    /// Its name, or empty.
    pub name: String,
    /// Bytes asked for.
    pub requested: u64,
    /// File and line of the call that made it.
    pub site: String,
}

impl fmt::Display for Suspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.name.is_empty() { "(unnamed)" } else { &self.name };
        write!(f, "{} {name} from {}", Bytes(self.requested), self.site)
    }
}

/// Something was written that nobody may write: see [`Checks`](crate::Checks).
///
/// What wrote it is unknown to any allocator. Either the block's own work did, or that of the
/// neighbour on that side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// What was written over.
    pub kind: DamageKind,
    /// The block that it belongs to.
    pub block: Suspect,
    /// File and line of the call that freed the block; `None` while it is live, or where a
    /// [`Buffer`](crate::Buffer) was dropped or a guard ended.
    pub freed: Option<String>,
    /// The nearest block on the damaged side at the time of the free (below it for
    /// [`DamageKind::AfterFree`], or above where there is none), if there is one.
    pub neighbour: Option<Suspect>,
    /// First byte of what was compared.
    pub place: Place,
    /// Bytes that were compared.
    pub bytes: u64,
    /// How many words of 4 bytes differ.
    pub words: u64,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, block, words, .. } = self;
        write!(f, "{words} words written {} {block}", kind.name())?;
        if let Some(freed) = &self.freed {
            write!(f, ", freed at {freed}")?;
        }
        match &self.neighbour {
            Some(neighbour) => write!(f, "; next to it {neighbour}"),
            None => write!(f, "; no block next to it"),
        }
    }
}
