//! Free address ranges that coalesce: the part that most models share.

use std::collections::{BTreeMap, BTreeSet};

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub address: u64,
    pub bytes: u64,
}

impl Extent {
    pub(super) fn end(self) -> u64 {
        self.address + self.bytes
    }
}

/// Free ranges, by address and by size. Ranges that touch are one range.
#[derive(Clone, Debug, Default)]
pub(super) struct Extents {
    by_address: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    bytes: u64,
}

impl Extents {
    /// One free range.
    pub(super) fn with(extent: Extent) -> Self {
        let mut extents = Self::default();
        extents.insert(extent);
        extents
    }

    /// Sum of all free bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Frees a range that is wholly taken; returns the free range that it is part of now.
    pub(super) fn insert(&mut self, extent: Extent) -> Extent {
        let Extent { mut address, mut bytes } = extent;
        self.bytes += bytes;
        if let Some((&before, &size)) = self.by_address.range(..address).next_back()
            && before + size == address
        {
            self.forget(before, size);
            (address, bytes) = (before, size + bytes);
        }
        if let Some(&size) = self.by_address.get(&extent.end()) {
            self.forget(extent.end(), size);
            bytes += size;
        }
        self.by_address.insert(address, bytes);
        self.by_size.insert((bytes, address));
        Extent { address, bytes }
    }

    /// The smallest range of at least `bytes`, the lowest of equals.
    pub(super) fn best_fit(&self, bytes: u64) -> Option<Extent> {
        let &(bytes, address) = self.by_size.range((bytes, 0)..).next()?;
        Some(Extent { address, bytes })
    }

    /// The lowest range of at least `bytes`.
    pub(super) fn first_fit(&self, bytes: u64) -> Option<Extent> {
        if !self.fits(bytes) {
            return None;
        }
        let found = self.by_address.iter().find(|range| *range.1 >= bytes)?;
        Some(Extent { address: *found.0, bytes: *found.1 })
    }

    /// True when some range has at least `bytes`.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        self.by_size.last().is_some_and(|largest| largest.0 >= bytes)
    }

    /// Takes the first `bytes` of a free range.
    pub(super) fn take(&mut self, extent: Extent, bytes: u64) -> Extent {
        self.forget(extent.address, extent.bytes);
        self.bytes -= bytes;
        if extent.bytes > bytes {
            let (address, rest) = (extent.address + bytes, extent.bytes - bytes);
            self.by_address.insert(address, rest);
            self.by_size.insert((rest, address));
        }
        Extent { address: extent.address, bytes }
    }

    /// All ranges in order of address.
    pub(super) fn iter(&self) -> impl Iterator<Item = Extent> {
        self.by_address.iter().map(|(&address, &bytes)| Extent { address, bytes })
    }

    fn forget(&mut self, address: u64, bytes: u64) {
        self.by_address.remove(&address);
        self.by_size.remove(&(bytes, address));
    }
}

/// Bytes between two ranges from a driver.
const GAP: u64 = 256;

/// Address ranges for memory from a driver that never touch each other.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    next: u64,
}

impl Ranges {
    /// A range of `bytes` apart from all earlier ones; `None` when addresses are used up.
    pub(super) fn new_range(&mut self, bytes: u64) -> Option<Extent> {
        let address = self.next;
        self.next = address.checked_add(bytes)?.checked_add(GAP)?;
        Some(Extent { address, bytes })
    }
}
