//! The log of placements, as a hash: two runs that placed everything alike have the same.

use rustc_hash::FxHashMap;
use terrane_core::BlockInfo;

/// FNV-1a's start and multiplier for 64 bits: simple enough to be the same everywhere, for ever.
const START: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// One hand-out.
pub(super) struct Placed<'a> {
    pub event: usize,
    /// The number of the block's stream.
    pub lane: usize,
    pub info: &'a BlockInfo,
    /// The numbers of the streams that it is handed out behind.
    pub waits: &'a [usize],
    /// Bytes of memory objects after it.
    pub reserved: u64,
}

/// All placements of a replay so far.
pub(super) struct Placements {
    hash: u64,
    /// Numbers of spaces in order of appearance: the device's own differ from device to device.
    spaces: FxHashMap<u64, u64>,
}

impl Default for Placements {
    fn default() -> Self {
        Self { hash: START, spaces: FxHashMap::default() }
    }
}

impl Placements {
    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn handed_out(&mut self, placed: &Placed<'_>) {
        let Placed { event, lane, info, waits, reserved } = *placed;
        let next = self.spaces.len() as u64;
        let space = *self.spaces.entry(info.place.space.0).or_insert(next);
        let (event, lane) = (event as u64, lane as u64);
        for word in [event, lane, space, info.place.offset, info.requested, info.allocated] {
            self.take(word);
        }
        self.take(reserved);
        self.take(waits.len() as u64);
        waits.iter().for_each(|&wait| self.take(wait as u64));
    }

    pub fn refused(&mut self, event: usize) {
        self.take(event as u64);
        self.take(u64::MAX);
    }

    fn take(&mut self, word: u64) {
        for byte in word.to_le_bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(PRIME);
        }
    }
}
