//! How an allocator behaves. Every knob says what zero or `None` means.

use crate::budget::Limit;
use crate::compact::Verify;
use crate::device::{Caps, ClassId};
use crate::event::RecorderMode;
use crate::kind::MemoryKind;
use crate::pages::Policy;
use crate::pool::{Growth, SMALL_MAX};
use crate::units::MIB;

use super::checks::Checks;

/// Which freed memory counts as ready for another stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// As soon as its work is seen to be done: the tightest, but placement depends on how fast
    /// the device is.
    #[default]
    AsSoonAsDone,
    /// Only behind declared waits: the same requests give the same placement on every run.
    DeclaredOrderOnly,
}

/// Which freed blocks are kept whole for the next request like the one that they were made for,
/// so that it costs next to nothing. Kept blocks are never missed: before the device is asked for
/// memory or anybody looks, they go back to where others find them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// None.
    Nothing,
    /// Those that the next such request would be given anyway: freed in the reverse order of their
    /// requests. Nothing is placed otherwise than with [`Nothing`](Self::Nothing).
    #[default]
    InOrder,
    /// The last few of each size that comes again, whatever lies between. For programs to which
    /// the host's time is dearer than memory: blocks stay where they are instead of moving to
    /// where they fit best, which costs the six recorded traces up to 4 % more reserved bytes and
    /// two to ten times the work of mapping.
    BySize,
}

/// Whether memory is cleared when it passes from one tag to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scrub {
    /// Contents of a new block are whatever the last owner left.
    #[default]
    Never,
    /// A block is zeroed, on its stream, if another tag may have left data in its segment.
    AcrossTags,
}

/// What to do first where no hole is ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefer {
    /// New memory from the device while the budget allows, then a hole behind a wait: keeps
    /// streams independent.
    #[default]
    NewMemory,
    /// A hole behind a wait, then new memory: holds less.
    Waiting,
}

/// The knobs of an allocator. [`Config::for_device`] gives defaults that need no tuning.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The most bytes of memory objects, per heap. Heap 0 is the first entry; heaps without an
    /// entry have no limit.
    pub limits: Vec<Limit>,
    /// Part (0.0 to 1.0) of what heap 0 may give that is taken from the device at opening, for
    /// device memory. 0 takes nothing.
    pub preallocate: f64,
    /// How segments grow.
    pub growth: Growth,
    /// Whether device memory is served page by page where the device can page: reserved bytes then
    /// follow what is in use, since free pages are mapped where they are needed. Off: segments are
    /// plain memory objects.
    pub paging: bool,
    /// How pages are made and stolen.
    pub pages: Policy,
    /// Bytes of wholly free segments kept by [`maintain`](crate::Allocator::maintain).
    /// `u64::MAX` keeps all; 0 keeps none.
    pub release_threshold: u64,
    /// Wholly free segments older than this many milliseconds are given back by
    /// [`maintain`](crate::Allocator::maintain). `None` keeps them for ever.
    pub max_idle_ms: Option<u32>,
    /// Bytes kept by [`trim`](crate::Allocator::trim) whatever it is asked. 0 keeps none.
    pub min_reserved: u64,
    /// What counts as ready.
    pub reuse: Reuse,
    /// What is tried first.
    pub prefer: Prefer,
    /// Which freed blocks are kept whole for the next request like theirs.
    pub keep: Keep,
    /// Clearing between tags.
    pub scrub: Scrub,
    /// Whether a kind's further classes (another memory type or heap) may serve it when the first
    /// is exhausted.
    pub fall_back: bool,
    /// What is kept of the events.
    pub recorder: RecorderMode,
    /// Guard mode: every block gets a memory object of its own, which goes back to the device as
    /// soon as the block is freed and its work is done. On a device that leaves unmapped pages
    /// around memory objects (`Options::guard` of the CUDA device) the device then faults at the
    /// first access past a block or after its free, and memory checkers see the bounds of blocks.
    /// Slow: driver calls at every request. The environment variable `TERRANE_CHECKS` switches it
    /// on by `pass-through`.
    pub guard: bool,
    /// Checks for the program's own writes outside of blocks and after frees. None, unless the
    /// environment variable `TERRANE_CHECKS` says so.
    pub checks: Checks,
    /// Requests of up to this many bytes have segments of their own, so that small blocks that
    /// live long do not split the room of large ones. 0 keeps all in common.
    pub small_max: u64,
    /// Whether blocks may be moved at all: the off switch of compaction.
    pub moves: bool,
    /// Whether a request that finds no room may have blocks moved for it, before the hooks are
    /// asked.
    pub compact_on_shortage: bool,
    /// External fragmentation above which [`maintain`](crate::Allocator::maintain) moves blocks
    /// in the background; `None` for never.
    pub idle_compaction: Option<f64>,
    /// The most bytes that one call of [`maintain`](crate::Allocator::maintain) moves.
    pub idle_bytes: u64,
    /// Workgroups of the gather kernel that copy at a time in the background, where the device can
    /// keep them to so few; 0, the default, for the copy engine. Each copies some 10 GB/s on an
    /// H200, beside work that only computes at next to no cost to it.
    pub background_groups: u32,
    /// Bytes that a pass in the background copies in a second, on the device's clock; 0 for as many
    /// as it can. A copy slows work that lives off the same memory by several times its share.
    pub background_rate: u64,
    /// Which moves are checked by checksums.
    pub verify_moves: Verify,
    /// The priority given to segments, 0.0 to 1.0, where the device knows priorities.
    pub priority: f32,
    /// The generation that handles start with: 1, or near 2^32 in tests of what comes after.
    pub first_generation: u32,
    /// The number after which events are numbered: 0, or near 2^64 in tests of large ones.
    pub first_sequence: u64,
}

impl Config {
    /// Defaults for a device: no limit, nothing preallocated, everything kept, segments by what
    /// its memory objects cost.
    pub fn for_device(caps: &Caps) -> Self {
        let slow = caps.costs.plain_create.ns(64 * MIB) > 500_000.0;
        let few = caps.max_memory_objects < 1 << 16;
        let growth = if slow || few || caps.few_large_objects {
            Growth::Proportional { min_bytes: 16 * MIB, max_bytes: 256 * MIB }
        } else {
            Growth::Fine
        };
        let checks = Checks::from_environment();
        Self {
            limits: Vec::new(),
            preallocate: 0.0,
            growth,
            // Mapping a page on the host's time is cheap where a page is a memory object (CUDA).
            // Elsewhere it is a submission: worth its time only to those who ask for it.
            paging: caps.paging.is_some_and(|paging| paging.whole_objects),
            pages: Policy::default(),
            release_threshold: u64::MAX,
            max_idle_ms: None,
            min_reserved: 0,
            reuse: Reuse::default(),
            prefer: Prefer::default(),
            keep: Keep::default(),
            scrub: Scrub::default(),
            fall_back: true,
            recorder: RecorderMode::default(),
            guard: checks.is_pass_through(),
            checks,
            small_max: SMALL_MAX,
            moves: true,
            compact_on_shortage: true,
            idle_compaction: None,
            idle_bytes: 64 * MIB,
            // The copy engine: beside kernels that write memory one workgroup costs more.
            background_groups: 0,
            background_rate: 4_000_000_000,
            verify_moves: Verify::default(),
            priority: 0.5,
            first_generation: 1,
            first_sequence: 0,
        }
    }

    /// The same with one limit for heap 0.
    #[must_use]
    pub fn limit(mut self, limit: Limit) -> Self {
        self.limits = vec![limit];
        self
    }
}

/// The classes of a kind, by bit.
pub(crate) fn classes_of(caps: &Caps, kind: MemoryKind) -> u32 {
    caps.classes_of(kind).filter(|id| id.0 < 32).fold(0, |bits, id| bits | 1 << id.0)
}

/// Which of a kind's classes a request may use: those of its mask, the first only where falling
/// back is off.
pub(crate) fn allowed_classes<'a>(
    caps: &'a Caps,
    config: &Config,
    request: &crate::request::Request<'_>,
) -> impl Iterator<Item = ClassId> + 'a {
    let mask = request.classes;
    let most = if config.fall_back { usize::MAX } else { 1 };
    caps.classes_of(request.kind).filter(move |id| mask >> id.0 & 1 == 1).take(most)
}
