//! What a pass did.

use crate::compact::{Refused, Verdicts, Why};
use crate::device::Place;
use crate::event::MoveKind;

use super::super::handle::Handle;

/// A move whose checksums differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// The block.
    pub handle: Handle,
    /// Its old place, which is kept as it was.
    pub old: Place,
    /// Its new place.
    pub new: Place,
    /// Bytes.
    pub bytes: u64,
}

/// How a move in a paged space was made, and what it cost by the device's figures
/// ([`Costs`](crate::device::Costs)), for each byte of pages that it freed. What costs less was
/// taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoveChoice {
    /// The block's bytes.
    pub bytes: u64,
    /// Bytes of whole pages that are free by it.
    pub freed: u64,
    /// By a copy of all of it, or by a remap.
    pub by: MoveKind,
    /// Nanoseconds of a copy, with the pages mapped for it; `None` where it would free nothing,
    /// or found no room.
    pub copy_ns: Option<u64>,
    /// Nanoseconds of a remap, with the copies of the ends; `None` as above.
    pub remap_ns: Option<u64>,
}

/// What a pass did. Times are nanoseconds of the device's clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassReport {
    /// Whether the goal is met.
    pub reached: bool,
    /// Moves by verdict; those still under way are in `under_way`.
    pub verdicts: Verdicts,
    /// Moves submitted whose copies are not known to be done.
    pub under_way: u64,
    /// Blocks moved: submitted, whatever came after.
    pub moves: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Bytes that were copied, twice where a block went by way of another free range.
    pub copied_bytes: u64,
    /// Of the moves, those by remapping: the block's own pages went along, its ends were copied.
    pub remaps: u64,
    /// Bytes of theirs that were not copied.
    pub remapped_bytes: u64,
    /// How copy or remap was chosen in paged spaces, move by move; the first
    /// [`CHOICES_TOLD`](Self::CHOICES_TOLD) of them.
    pub choices: Vec<MoveChoice>,
    /// Blocks that are in the pool and may not move, by reason, with their bytes.
    pub refused: Vec<(Why, Refused)>,
    /// Moves whose checksums differ.
    pub corrupt: Vec<Corrupt>,
    /// Submissions of copies.
    pub submissions: u64,
    /// Copied by the gather kernel rather than the driver's copy.
    pub by_kernel: u64,
    /// Time spent planning, on the host.
    pub plan_ns: u64,
    /// Time spent reserving and submitting, on the host.
    pub submit_ns: u64,
    /// Time spent committing, on the host.
    pub commit_ns: u64,
    /// Time from the start of the pass to its end.
    pub total_ns: u64,
    /// Time on the device's own clock from the start of the first copy to the end of the last,
    /// where [`Limits::timed`](crate::compact::Limits::timed) asked for it and the device tells.
    pub device_ns: Option<u64>,
    /// Start and end of each submission of copies on that clock, from the start of the first on.
    pub batches: Vec<[u64; 2]>,
    /// External fragmentation before and after.
    pub fragmentation: (f64, f64),
    /// Largest free range before and after, in bytes.
    pub largest_free: (u64, u64),
    /// Free bytes of segments in use before and after.
    pub free: (u64, u64),
}

impl PassReport {
    /// Choices between copy and remap of which a report tells one by one.
    pub const CHOICES_TOLD: usize = 256;
}
