//! What a pass is to reach and what it may spend.

/// What moving is to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Goal {
    /// A free range of this many bytes that begins at a multiple of `align`.
    Contiguous {
        /// Bytes.
        bytes: u64,
        /// A power of two; 1 for any.
        align: u64,
    },
    /// Wholly free segments of at least this many bytes together, so that they can be given
    /// back. `u64::MAX` empties as many as can be emptied.
    Release {
        /// Bytes.
        bytes: u64,
    },
    /// External fragmentation (1 - largest free range / free bytes) of at most `below`. Wholly
    /// free segments do not count: they can be given back.
    Fragmentation {
        /// From 0.0 to 1.0.
        below: f64,
    },
}

impl Goal {
    /// Whether it is met as a whole, by the number of pools in which it is met and in which it is
    /// not. Bytes suffice in one of them; else none may be left.
    pub(crate) const fn is_met_by(self, (met, unmet): (u32, u32)) -> bool {
        match self {
            Self::Release { bytes: u64::MAX } | Self::Fragmentation { .. } => met > 0 && unmet == 0,
            Self::Contiguous { .. } | Self::Release { .. } => met > 0,
        }
    }
}

/// How fast a pass may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// As fast as the device can: all copies of a pass at once.
    #[default]
    Full,
    /// Beside other work: on the device's copy engine where it has one, a few copies at a time,
    /// the next ones only when those are done (each [`poll`](crate::Compactor::poll) submits).
    Background,
}

/// What a pass may spend. The default limits nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The most bytes moved.
    pub bytes: u64,
    /// The most blocks moved.
    pub moves: u64,
    /// The most nanoseconds of the device's clock from the start of the pass; what is submitted
    /// by then is finished, nothing more is begun.
    pub ticks: u64,
    /// How fast.
    pub mode: Mode,
    /// Whether blocks whose raw handles the program keeps are offered (see
    /// [`Compactor::offers`](crate::Compactor::offers)). Without, they are refused.
    pub offer_raw: bool,
    /// Whether the device takes the time of the copies, for
    /// [`PassReport::device_ns`](crate::PassReport::device_ns).
    pub timed: bool,
}

impl Limits {
    /// No limit.
    pub const NONE: Self = Self {
        bytes: u64::MAX,
        moves: u64::MAX,
        ticks: u64::MAX,
        mode: Mode::Full,
        offer_raw: false,
        timed: false,
    };

    /// Whether bytes or blocks are limited at all. What is left of no limit counts as none.
    pub(crate) const fn is_limited(&self) -> bool {
        self.bytes < u64::MAX / 2 || self.moves < u64::MAX / 2
    }

    /// The most bytes moved.
    #[must_use]
    pub const fn bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    /// The most blocks moved.
    #[must_use]
    pub const fn moves(self, moves: u64) -> Self {
        Self { moves, ..self }
    }

    /// The most nanoseconds of the device's clock.
    #[must_use]
    pub const fn ticks(self, ticks: u64) -> Self {
        Self { ticks, ..self }
    }

    /// How fast.
    #[must_use]
    pub const fn mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Whether the device takes the time of the copies.
    #[must_use]
    pub const fn timed(self, timed: bool) -> Self {
        Self { timed, ..self }
    }

    /// Whether blocks whose raw handles the program keeps are offered to it.
    #[must_use]
    pub const fn offer_raw(self, offer: bool) -> Self {
        Self { offer_raw: offer, ..self }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::NONE
    }
}

/// Which moves are checked by comparing checksums of the old and the new place, computed by the
/// device right before and right after the copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// None.
    #[default]
    Never,
    /// Every so manieth, the first included. 0 means none.
    OneIn(u32),
    /// All. Blocks are then moved only to places that do not overlap their old one.
    Always,
}
