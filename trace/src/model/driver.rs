//! The device below a model: a limit on bytes, and addresses for what it hands out.

use std::collections::{BTreeMap, VecDeque};

/// Memory handed out by a driver that has `capacity` bytes.
#[derive(Debug)]
pub(crate) struct Driver {
    capacity: u64,
    reserved: u64,
    recorded: VecDeque<Placed>,
    space: Space,
}

/// A segment whose address is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its first address.
    pub address: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

impl Driver {
    /// A driver with `capacity` bytes to give, `None` for no limit.
    pub(crate) fn new(capacity: Option<u64>) -> Self {
        Self {
            capacity: capacity.unwrap_or(u64::MAX),
            reserved: 0,
            recorded: VecDeque::new(),
            space: Space::default(),
        }
    }

    /// Segments get the addresses of a recording, in its order, as long as the sizes agree.
    pub(crate) fn with_addresses(mut self, placed: impl IntoIterator<Item = Placed>) -> Self {
        self.recorded = placed.into_iter().collect();
        self
    }

    /// Bytes handed out and not given back.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Bytes there are, `u64::MAX` for no limit.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Takes `bytes`, if they are there.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        let after = self.reserved.checked_add(bytes).filter(|sum| *sum <= self.capacity);
        self.reserved = after.unwrap_or(self.reserved);
        after.is_some()
    }

    /// Gives `bytes` back.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.reserved);
        self.reserved -= bytes;
    }

    /// Takes `bytes` as one segment and says where it lies.
    pub(crate) fn take_segment(&mut self, bytes: u64) -> Option<u64> {
        if !self.take(bytes) {
            return None;
        }
        match self.recorded.pop_front() {
            Some(next) if next.bytes == bytes => Some(next.address),
            _ => {
                self.recorded.clear();
                Some(self.space.place(bytes))
            }
        }
    }

    /// Gives a segment back with its addresses.
    pub(crate) fn give_back_segment(&mut self, address: u64, bytes: u64) {
        self.give_back(bytes);
        self.space.give_back(address, bytes);
    }

    /// An address range of `bytes`, backed by nothing, on a multiple of `align`.
    pub(crate) fn reserve_range(&mut self, bytes: u64, align: u64) -> u64 {
        self.space.descend(bytes, align)
    }
}

/// Where segments lie; it matters only where a rule breaks ties by address. As CUDA's driver
/// was seen to do: address space is taken downwards in multiples of 32 MiB, and what is left of
/// one piece serves later segments that fit, lowest first.
#[derive(Debug)]
struct Space {
    low: u64,
    /// Unused ranges of the pieces taken: address -> bytes.
    holes: BTreeMap<u64, u64>,
}

/// Address below which the first piece lies: any that leaves room on both sides.
const TOP: u64 = 1 << 62;
const PIECE_UNIT: u64 = 32 << 20;

impl Default for Space {
    fn default() -> Self {
        Self { low: TOP, holes: BTreeMap::new() }
    }
}

impl Space {
    fn place(&mut self, bytes: u64) -> u64 {
        let hole = self.holes.iter().find(|hole| *hole.1 >= bytes).map(|hole| (*hole.0, *hole.1));
        let (address, length) = hole.unwrap_or_else(|| {
            let piece = bytes.next_multiple_of(PIECE_UNIT);
            (self.descend(piece, PIECE_UNIT), piece)
        });
        self.holes.remove(&address);
        if length > bytes {
            self.holes.insert(address + bytes, length - bytes);
        }
        address
    }

    fn give_back(&mut self, address: u64, bytes: u64) {
        let (mut start, mut length) = (address, bytes);
        if let Some((&before, &size)) = self.holes.range(..address).next_back()
            && before.checked_add(size) == Some(address)
        {
            (start, length) = (before, size.saturating_add(length));
        }
        if let Some(after) = self.holes.remove(&address.wrapping_add(bytes)) {
            length = length.saturating_add(after);
        }
        self.holes.insert(start, length);
    }

    fn descend(&mut self, bytes: u64, align: u64) -> u64 {
        // What fits in memory never uses up this much address space; saturating keeps a
        // hostile trace from wrapping.
        let below = self.low.saturating_sub(bytes);
        self.low = below - below % align;
        self.low
    }
}
