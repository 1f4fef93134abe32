//! Counters that are exact at every moment.

use std::fmt;

use crate::units::Bytes;

/// One counted quantity: how much now, at most, ever added and ever taken away.
///
/// `current = allocated - freed`, and `peak >= current`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Now.
    pub current: u64,
    /// The most since the start or the last reset of peaks.
    pub peak: u64,
    /// Ever added.
    pub allocated: u64,
    /// Ever taken away.
    pub freed: u64,
}

impl Counter {
    pub(crate) fn add(&mut self, amount: u64) {
        self.current += amount;
        self.allocated += amount;
        self.peak = self.peak.max(self.current);
    }

    pub(crate) fn sub(&mut self, amount: u64) {
        debug_assert!(self.current >= amount, "a counter would fall below zero");
        self.current = self.current.saturating_sub(amount);
        self.freed += amount;
    }

    pub(crate) fn reset_peak(&mut self) {
        self.peak = self.current;
    }
}

/// What compaction has done since the allocator was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveStats {
    /// Passes begun.
    pub passes: u64,
    /// Blocks whose copy was submitted and whose address has changed.
    pub moves: u64,
    /// Bytes of those blocks.
    pub bytes: u64,
    /// Moves whose copies are known to be done.
    pub committed: u64,
    /// Moves given up before the address changed.
    pub cancelled: u64,
    /// Moves of blocks that were freed meanwhile.
    pub dropped: u64,
    /// Moves whose checksums differ.
    pub corrupt: u64,
}

/// Live blocks: how many, and their bytes before and after rounding.
///
/// `requested <= allocated` at every moment; over a whole allocator or kind also
/// `allocated <= active <= reserved`, where *active* adds what is freed but still ordered behind
/// work, and *reserved* is what memory objects hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Live blocks.
    pub blocks: Counter,
    /// Bytes asked for.
    pub requested: Counter,
    /// Bytes of live blocks after rounding.
    pub allocated: Counter,
}

/// Four quantities that change together, as the allocator keeps them: what a [`Usage`] has, and
/// active bytes. What was ever added follows from what is there and what was taken away.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    current: Amounts,
    peak: Amounts,
    freed: Amounts,
}

/// Blocks, bytes requested, bytes allocated, bytes active.
pub(crate) type Amounts = [u64; 4];

impl Tally {
    #[inline(always)]
    pub fn add(&mut self, amounts: Amounts) {
        for (at, amount) in amounts.into_iter().enumerate() {
            self.current[at] += amount;
            // Mostly not: a comparison is cheaper than a store.
            if self.current[at] > self.peak[at] {
                self.peak[at] = self.current[at];
            }
        }
    }

    #[inline(always)]
    pub fn sub(&mut self, amounts: Amounts) {
        for (at, amount) in amounts.into_iter().enumerate() {
            debug_assert!(self.current[at] >= amount, "a counter would fall below zero");
            self.current[at] = self.current[at].wrapping_sub(amount);
            self.freed[at] += amount;
        }
    }

    /// Counts what was taken away and added again.
    pub fn pass(&mut self, amounts: Amounts) {
        for (at, amount) in amounts.into_iter().enumerate() {
            self.freed[at] += amount;
        }
    }

    const fn counter(&self, at: usize) -> Counter {
        let (current, freed) = (self.current[at], self.freed[at]);
        Counter { current, peak: self.peak[at], allocated: current + freed, freed }
    }

    /// Bytes allocated now.
    pub const fn allocated(&self) -> u64 {
        self.current[2]
    }

    pub const fn usage(&self) -> Usage {
        Usage { blocks: self.counter(0), requested: self.counter(1), allocated: self.counter(2) }
    }

    pub const fn active(&self) -> Counter {
        self.counter(3)
    }

    pub const fn reset_peaks(&mut self) {
        self.peak = self.current;
    }
}

/// A summary of one allocator at one moment. All sizes in bytes.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// All blocks.
    pub total: Usage,
    /// Live blocks, and freed ones still ordered behind work.
    pub active: Counter,
    /// Memory objects held; each counts once.
    pub reserved: Counter,
    /// Memory objects.
    pub memory_objects: Counter,
    /// By memory kind, in the order of [`MemoryKind::ALL`](crate::MemoryKind::ALL).
    pub kinds: [KindStats; 4],
    /// By tag, by number; tag 0 is memory without one.
    pub tags: Vec<TagStats>,
    /// By size class, smallest first; the last is everything beyond 256 MiB.
    pub size_classes: Vec<Usage>,
    /// Bytes freed but still ordered behind work.
    pub pending: u64,
    /// Free bytes, pending ones included.
    pub free: u64,
    /// The largest range of them, neighbours behind different waits joined.
    pub largest_free: u64,
    /// Free bytes in ranges too small for the average live block, in segments that are partly
    /// live: of use to few requests, and not to be given back.
    pub stranded: u64,
    /// Bytes of other memory that counts against the budget ([`Charge`](crate::Charge)).
    pub charged: u64,
    /// Requests that failed for want of memory.
    pub out_of_memory: u64,
    /// Requests that found nothing at once and were served by a remedy.
    pub retries: u64,
    /// Times a request returned points to wait for.
    pub waits: u64,
    /// Pages ever made.
    pub pages_created: u64,
    /// Pages ever taken from free ranges.
    pub pages_stolen: u64,
    /// Blocks moved by compaction.
    pub moves: MoveStats,
}

/// One memory kind's part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindStats {
    /// Blocks of the kind.
    pub usage: Usage,
    /// Live blocks of the kind, and freed ones still ordered behind work.
    pub active: Counter,
    /// Memory objects of the kind, in bytes.
    pub reserved: Counter,
}

/// One tag's part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TagStats {
    /// The tag's name.
    pub name: String,
    /// Blocks of the tag.
    pub usage: Usage,
    /// The most bytes that its blocks may have, after rounding.
    pub limit: Option<u64>,
}

impl Stats {
    /// External fragmentation, 0.0 to 1.0: 1 - largest free range / free bytes; 0 with none free.
    pub fn external_fragmentation(&self) -> f64 {
        if self.free == 0 { 0.0 } else { 1.0 - self.largest_free as f64 / self.free as f64 }
    }
}

/// A table to read: what is in use now, at most, ever allocated and ever freed.
impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = "-".repeat(76);
        writeln!(f, "{line}")?;
        writeln!(
            f,
            "Out of memory: {:<8}  served after a remedy: {:<8}  waits: {:<8}",
            self.out_of_memory, self.retries, self.waits
        )?;
        writeln!(f, "{line}")?;
        writeln!(
            f,
            "{:<20}{:>14}{:>14}{:>14}{:>14}",
            "Metric", "Current", "Peak", "Allocated", "Freed"
        )?;
        writeln!(f, "{line}")?;
        row(f, "Requested", &self.total.requested)?;
        row(f, "Allocated", &self.total.allocated)?;
        row(f, "Active", &self.active)?;
        row(f, "Reserved", &self.reserved)?;
        for (kind, part) in crate::kind::MemoryKind::ALL.iter().zip(&self.kinds) {
            if part.reserved.allocated > 0 {
                row(f, &format!("  {kind} reserved"), &part.reserved)?;
                row(f, &format!("  {kind} active"), &part.active)?;
            }
        }
        for tag in self.tags.iter().skip(1) {
            row(f, &format!("  tag {}", tag.name), &tag.usage.allocated)?;
        }
        writeln!(f, "{line}")?;
        count_row(f, "Blocks", &self.total.blocks)?;
        count_row(f, "Memory objects", &self.memory_objects)?;
        writeln!(f, "{line}")?;
        writeln!(
            f,
            "Free {} in all, largest {}, pending {}, stranded {}, external fragmentation {:.1} %",
            Bytes(self.free),
            Bytes(self.largest_free),
            Bytes(self.pending),
            Bytes(self.stranded),
            100.0 * self.external_fragmentation()
        )?;
        write!(f, "{line}")
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, counter: &Counter) -> fmt::Result {
    let Counter { current, peak, allocated, freed } = *counter;
    writeln!(
        f,
        "{name:<20}{:>14}{:>14}{:>14}{:>14}",
        Bytes(current),
        Bytes(peak),
        Bytes(allocated),
        Bytes(freed)
    )
}

fn count_row(f: &mut fmt::Formatter<'_>, name: &str, counter: &Counter) -> fmt::Result {
    let Counter { current, peak, allocated, freed } = *counter;
    writeln!(f, "{name:<20}{current:>14}{peak:>14}{allocated:>14}{freed:>14}")
}
