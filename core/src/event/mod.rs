//! Telemetry: what the allocator did, as fixed-size records.
//!
//! An event is written where the state changes, under the lock that guards that state, into a
//! [`Ring`]; readers take them out in bounded slices. Nothing flows back. Events of one allocator
//! carry consecutive sequence numbers, so a gap tells exactly how many were dropped.

mod ring;

pub use ring::{Drained, RecorderMode, Ring};

/// What happened. The numbers are part of the trace format and never change their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum EventKind {
    /// A block was handed out. `a` requested bytes, `b` allocated bytes, `c` offset in its
    /// space; `why` says where the memory came from, [`Event::hold_code`] what holds it in place.
    Alloc = 1,
    /// The user freed a block. `a` requested, `b` allocated bytes.
    FreeRequested = 2,
    /// The bytes of a freed block can be used by anybody without a wait. `b` bytes.
    FreeCompleted = 3,
    /// A block was enlarged or cut in place. `a` requested, `b` allocated bytes now.
    Resized = 4,
    /// A segment is being made. `b` bytes.
    SegmentBegin = 5,
    /// A segment is there. `a` the space's number, `b` bytes.
    SegmentEnd = 6,
    /// A segment was given back. `a` the space's number, `b` bytes.
    SegmentReleased = 7,
    /// A memory object for pages was made. `a` its number, `b` bytes.
    PageCreated = 8,
    /// A page was mapped. `a` its memory object, `b` bytes, `c` offset in the space.
    PageMapped = 9,
    /// A page was unmapped. Fields as in [`PageMapped`](Self::PageMapped).
    PageUnmapped = 10,
    /// A page was taken from a free range. Fields as in [`PageMapped`](Self::PageMapped), and
    /// `handle` is one more than the offset in the space where it was until now, or 0 in
    /// recordings from before that was told.
    PageStolen = 11,
    /// A memory object for pages was given back. `a` its number, `b` bytes.
    PageReleased = 12,
    /// A request has to wait for a point of `stream`. `a` the value.
    Wait = 13,
    /// The ladder was taken one rung up. `a` the [`Rung`], `b` bytes asked.
    Rung = 14,
    /// A request failed for want of memory. `a` bytes asked, `b` largest free, `c` what the budget
    /// and the device had left.
    OutOfMemory = 15,
    /// A stream was first used. `a` its number.
    Stream = 16,
    /// A name is given a number. `a` the number.
    Name = 17,
    /// A call site is given a number. `a` the number.
    Site = 18,
    /// A block's destination was reserved. `a` its space's number, `b` bytes, `c` new offset.
    MoveReserved = 19,
    /// A block's move was submitted and it is elsewhere from here on. `a` the new space's number,
    /// `b` bytes, `c` new offset; [`Event::by`] says by what means, a [`MoveKind`].
    MoveSubmitted = 20,
    /// A block's move is complete. `b` bytes.
    MoveCommitted = 21,
    /// A block's move was given up before submission. `b` bytes.
    MoveCancelled = 22,
    /// A block was freed while it moved. `b` bytes.
    MoveDropped = 23,
    /// A moved block's checksum differed; all moving stops. `b` bytes.
    MoveCorrupt = 24,
    /// Peaks were reset.
    PeaksReset = 25,
    /// The limit was changed. `b` bytes.
    LimitSet = 26,
    /// A pass of moves begins. `a` its number, `b` bytes planned, `c` blocks planned.
    PassBegin = 27,
    /// A pass of moves has ended. `a` its number, `b` bytes moved, `c` blocks moved.
    PassEnd = 28,
    /// Blocks were not moved. `a` the number of [`Why`](crate::compact::Why), `b` bytes; the block
    /// in `handle`, or 0 there and how many in `c`.
    MoveRefused = 29,
    /// The call stack of a request was taken. `a` its number, `b` nanoseconds that it cost.
    Stack = 30,
    /// A check found words written that nobody may write. `a` words of 4 bytes, `b` bytes that were
    /// compared, `c` their offset in the space; the site is the block's.
    Damage = 31,
    /// Work that uses blocks was submitted to `stream`. `a` the value of its sync point, `b` the
    /// blocks' bytes, `c` how many they are.
    Submitted = 32,
    /// A stream's work was found to be done. `a` the value that `stream` has reached.
    Reached = 33,
    /// Work still uses the block whose [`FreeRequested`](Self::FreeRequested) follows: its bytes
    /// are pending until `stream` reaches the value `a`.
    FreeWaits = 34,
    /// Work on another stream than the block's own uses it for the first time and waits for what
    /// its own stream has done with it. `a` the value of `stream` that is awaited, `c` the stream
    /// that waits.
    WorkWaits = 35,
    /// What holds a block in place has changed. `a` the number of [`Why`](crate::compact::Why), or
    /// 0 when nothing does. That an open submission holds it is told in recordings, not to the
    /// flight recorder; holds that end before the call which made them are told nowhere.
    Hold = 36,
    /// What the pass of moves that begins next is to reach. `a` its number; `b` bytes, or parts of
    /// a million for a fragmentation; `c` a [`GoalKind`].
    PassGoal = 37,
    /// What that pass may spend. `a` its number, `b` bytes, `c` blocks, `handle` nanoseconds; each
    /// `u64::MAX` for no limit.
    PassLimits = 38,
}

/// The kinds of goals that a pass of moves may have, with how fast it may go, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum GoalKind {
    /// A free range of some bytes.
    Contiguous = 1,
    /// Free segments of some bytes.
    Release = 2,
    /// A fragmentation.
    Fragmentation = 3,
}

impl GoalKind {
    /// Added to the number of a pass in the background.
    pub const BACKGROUND: u64 = 0x100;
}

/// By what means a block is moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum MoveKind {
    /// Not told: no move, or recorded before this was told.
    #[default]
    Untold = 0,
    /// Its bytes were copied to a free range.
    Copy = 1,
    /// It slid within a stretch, by copies that may overlap its old place.
    Slide = 2,
    /// The pages that are wholly its own are mapped at another place; at most its ends were copied.
    Remap = 3,
    /// It stays where it is, and other memory was bound there after a copy of what was in it.
    Rebind = 4,
}

impl MoveKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Untold, Self::Copy, Self::Slide, Self::Remap, Self::Rebind];

    /// The kind of a number; [`Untold`](Self::Untold) for numbers of later versions.
    pub const fn of_code(code: u8) -> Self {
        match code {
            1 => Self::Copy,
            2 => Self::Slide,
            3 => Self::Remap,
            4 => Self::Rebind,
            _ => Self::Untold,
        }
    }

    /// In words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Untold => "not told how",
            Self::Copy => "copied",
            Self::Slide => "slid",
            Self::Remap => "remapped",
            Self::Rebind => "rebound",
        }
    }
}

/// Where the memory of an [`EventKind::Alloc`] came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Why {
    /// Not an allocation.
    #[default]
    None = 0,
    /// A hole that the same stream freed.
    OwnHole = 1,
    /// A hole whose work was complete.
    CompletedHole = 2,
    /// A hole behind a wait.
    Wait = 3,
    /// Pages taken from free ranges elsewhere.
    StolenPage = 4,
    /// Memory new from the device.
    New = 5,
    /// Room made by moving blocks.
    Moved = 6,
}

/// A remedy for a shortage, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Rung {
    /// Take in completed frees and search again.
    Reap = 1,
    /// Take pages from free ranges.
    Steal = 2,
    /// Give free memory of other pools back to the device.
    TrimOthers = 3,
    /// Wait for just enough work.
    Wait = 4,
    /// Move blocks together.
    Compact = 5,
    /// Ask the user's hook.
    Hook = 6,
    /// Ask the device once more, after it refused although the budget allowed.
    AskAgain = 7,
}

/// One record: eight words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Consecutive number, from 1.
    pub sequence: u64,
    /// Device clock in nanoseconds, as of the last time that it was read: at most 32 events ago, or
    /// up to 128 where they come faster than one in 600 ns.
    pub time_ns: u64,
    /// Kind in bits 0..8, why in 8..16, class in 16..24, means of a move or hold of a block in
    /// 24..32, tag in 32..48, space in 48..64; see the methods.
    packed: u64,
    /// The block's handle, or 0.
    pub handle: u64,
    /// Stream in the low half, call site in the high half.
    stream_site: u64,
    /// See [`EventKind`].
    pub a: u64,
    /// See [`EventKind`].
    pub b: u64,
    /// See [`EventKind`].
    pub c: u64,
}

impl Event {
    /// A record of `kind` with everything else zero.
    pub const fn new(kind: EventKind) -> Self {
        Self {
            sequence: 0,
            time_ns: 0,
            packed: kind as u64,
            handle: 0,
            stream_site: 0,
            a: 0,
            b: 0,
            c: 0,
        }
    }

    /// The same record about a block.
    #[must_use]
    pub const fn handle(self, handle: u64) -> Self {
        Self { handle, ..self }
    }

    /// The same record with its first number.
    #[must_use]
    pub const fn a(self, a: u64) -> Self {
        Self { a, ..self }
    }

    /// The same record with its second number.
    #[must_use]
    pub const fn b(self, b: u64) -> Self {
        Self { b, ..self }
    }

    /// The same record with its third number.
    #[must_use]
    pub const fn c(self, c: u64) -> Self {
        Self { c, ..self }
    }

    /// The same record with where its memory came from.
    #[must_use]
    pub const fn why(mut self, why: Why) -> Self {
        self.packed |= (why as u64) << 8;
        self
    }

    /// The same record with the means of a move.
    #[must_use]
    pub const fn by(mut self, kind: MoveKind) -> Self {
        self.packed |= (kind as u64) << 24;
        self
    }

    /// The same record with what holds the block in place: 1 for nothing, else one more than the
    /// number of [`Why`](crate::compact::Why).
    #[must_use]
    pub const fn holding(mut self, code: u8) -> Self {
        self.packed = self.packed & !(0xff << 24) | (code as u64) << 24;
        self
    }

    /// The same record with a memory class and a tag.
    #[must_use]
    pub const fn of(mut self, class: u8, tag: u16) -> Self {
        self.packed |= (class as u64) << 16 | (tag as u64) << 32;
        self
    }

    /// The same record with the space that its offset is in: the low 16 bits of the number.
    #[must_use]
    pub const fn within(mut self, space: u64) -> Self {
        self.packed |= (space & 0xffff) << 48;
        self
    }

    /// The same record with the stream and the call site it belongs to.
    #[must_use]
    pub const fn on(mut self, stream: u32, site: u32) -> Self {
        self.stream_site = (site as u64) << 32 | stream as u64;
        self
    }

    /// The kind's number; see [`EventKind`].
    pub const fn kind_code(&self) -> u8 {
        self.packed as u8
    }

    /// Whether the record is of this kind.
    pub const fn is(&self, kind: EventKind) -> bool {
        self.kind_code() == kind as u8
    }

    /// The number of [`Why`].
    pub const fn why_code(&self) -> u8 {
        (self.packed >> 8) as u8
    }

    /// The means of a move.
    pub const fn move_kind(&self) -> MoveKind {
        MoveKind::of_code((self.packed >> 24) as u8)
    }

    /// What holds the block of an [`EventKind::Alloc`] in place, as in [`holding`](Self::holding);
    /// 0 where that is not told.
    pub const fn hold_code(&self) -> u8 {
        (self.packed >> 24) as u8
    }

    /// The memory class.
    pub const fn class(&self) -> u8 {
        (self.packed >> 16) as u8
    }

    /// The tag's number.
    pub const fn tag(&self) -> u16 {
        (self.packed >> 32) as u16
    }

    /// The low 16 bits of the number of the space that the offset is in.
    pub const fn space(&self) -> u16 {
        (self.packed >> 48) as u16
    }

    /// All fields, for files.
    pub const fn to_words(&self) -> [u64; 8] {
        let Self { sequence, time_ns, packed, handle, stream_site, a, b, c } = *self;
        [sequence, time_ns, packed, handle, stream_site, a, b, c]
    }

    /// The record of which [`to_words`](Self::to_words) gave the fields. Any numbers are taken:
    /// kinds that this version does not know are told by [`kind_code`](Self::kind_code).
    pub const fn from_words(words: [u64; 8]) -> Self {
        let [sequence, time_ns, packed, handle, stream_site, a, b, c] = words;
        Self { sequence, time_ns, packed, handle, stream_site, a, b, c }
    }

    /// The stream's number.
    pub const fn stream(&self) -> u32 {
        self.stream_site as u32
    }

    /// The call site's number; 0 for unknown.
    pub const fn site(&self) -> u32 {
        (self.stream_site >> 32) as u32
    }
}
