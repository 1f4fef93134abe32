//! What became of moves, and why blocks did not move.

/// Why a block did not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Why {
    /// The request said that it is not to move.
    Asked = 1,
    /// A guard or an open submission holds it in place.
    Held = 2,
    /// The host sees it through a guard.
    Mapped = 3,
    /// Other processes or APIs may have imported its memory.
    Exported = 4,
    /// A captured graph uses its address.
    Captured = 5,
    /// An API object was made over it.
    Viewed = 6,
    /// The program keeps its raw handle and was not asked, or said no.
    RawHandle = 7,
    /// It was freed already, behind a guard.
    Freed = 8,
    /// It is being moved by another pass.
    Moving = 9,
    /// The place that was planned is taken by now.
    PlaceTaken = 10,
    /// Its move has to be verified, which needs a place that does not overlap the old one.
    Verified = 11,
}

impl Why {
    /// All of them, in the order of their numbers.
    const ALL: [Self; 11] = [
        Self::Asked,
        Self::Held,
        Self::Mapped,
        Self::Exported,
        Self::Captured,
        Self::Viewed,
        Self::RawHandle,
        Self::Freed,
        Self::Moving,
        Self::PlaceTaken,
        Self::Verified,
    ];

    /// The reason with a number, as events have it; `None` for one that no reason has.
    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|why| *why as u8 == code)
    }

    /// The reason in a few words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Asked => "made not to move",
            Self::Held => "held in place",
            Self::Mapped => "mapped by the host",
            Self::Exported => "exported",
            Self::Captured => "used by a captured graph",
            Self::Viewed => "an API object is made over it",
            Self::RawHandle => "its raw handle is kept",
            Self::Freed => "freed behind a guard",
            Self::Moving => "moved by another pass",
            Self::PlaceTaken => "its new place was taken",
            Self::Verified => "to be verified, and no place apart",
        }
    }
}

/// What became of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The block is at its new place and the copy is done.
    Committed,
    /// Given up before the address changed; the block is where it was.
    Cancelled,
    /// The block was freed while it moved.
    Dropped,
    /// The checksums differ; the old place is kept.
    Corrupt,
}

/// Blocks and bytes of one verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Blocks.
    pub blocks: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Moves by verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// Committed.
    pub committed: u64,
    /// Given up before submission.
    pub cancelled: u64,
    /// Freed meanwhile.
    pub dropped: u64,
    /// Checksums differ.
    pub corrupt: u64,
}

impl Verdicts {
    /// Counts one.
    pub const fn add(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Committed => self.committed += 1,
            Verdict::Cancelled => self.cancelled += 1,
            Verdict::Dropped => self.dropped += 1,
            Verdict::Corrupt => self.corrupt += 1,
        }
    }
}
