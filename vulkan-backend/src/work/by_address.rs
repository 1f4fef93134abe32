//! Tables of the gather kernel that copies by device addresses: one entry for each range, however
//! long it is. Pure functions.
//!
//! The host writes a table while the device waits for it, so it must be short: with an entry for
//! each tile, 14 GB were 430,000 entries, and the host took longer over them than the device did
//! over the copies.

use terrane_core::device::DeviceError;

use super::transfer::Pair;

/// Bytes of one vector.
const UNIT: u64 = 16;
/// Tiles from one sign to the next; the same number is in `gather.comp`.
const STEP: u32 = 16;
/// The most vectors of an entry: what is indexed in the kernel stays far below 31 bits.
const MAX_VECTORS: u64 = 1 << 29;
/// The most entries of a part, and the most signs: so that both fit into one chunk.
const MAX_MOVES: usize = 64 << 10;
const MAX_SIGNS: usize = 256 << 10;

/// A range as the kernel reads it: source, target, vectors, first tile.
pub type Move = [u32; 8];

/// What one dispatch copies.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Part {
    pub moves: Vec<Move>,
    /// For every 16th tile, the entry that it is in; one more at the end.
    pub signs: Vec<u32>,
    pub tiles: u32,
}

impl Part {
    /// Entries and signs as they lie in memory, and where the signs begin.
    pub fn bytes(&self) -> (Vec<u8>, u64) {
        let words = self.moves.iter().flatten().chain(&self.signs);
        let bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
        (bytes, self.moves.len() as u64 * size_of::<Move>() as u64)
    }

    const fn is_full(&self) -> bool {
        self.moves.len() >= MAX_MOVES || self.signs.len() >= MAX_SIGNS
    }

    /// Adds a range, or as much of it as there is room for; vectors that were added.
    fn add(&mut self, source: u64, target: u64, vectors: u64, tile: u64) -> u64 {
        let room = (MAX_SIGNS - self.signs.len()) as u64 * u64::from(STEP) * tile;
        let vectors = vectors.min(MAX_VECTORS / tile * tile).min(room);
        let entry = self.moves.len() as u32;
        let [from, to] = [source, target].map(|at| [at as u32, (at >> 32) as u32]);
        self.moves.push([from[0], from[1], to[0], to[1], vectors as u32, self.tiles, 0, 0]);
        self.tiles += vectors.div_ceil(tile) as u32;
        while self.signs.len() as u64 * u64::from(STEP) < u64::from(self.tiles) {
            self.signs.push(entry);
        }
        vectors
    }

    fn end(mut self) -> Self {
        self.signs.push((self.moves.len() as u32).saturating_sub(1));
        self
    }
}

/// Tables for copies in tiles of `tile` bytes.
///
/// # Errors
/// [`DeviceError::InvalidCall`] for a space that has no address.
pub fn parts(pairs: &[Pair], tile: u64) -> Result<Vec<Part>, DeviceError> {
    let tile = tile / UNIT;
    let (mut parts, mut part) = (Vec::new(), Part::default());
    for (from, to) in pairs {
        let (Some(source), Some(target)) = (from.address, to.address) else {
            return Err(DeviceError::InvalidCall("a space without an address"));
        };
        let (all, mut done) = (from.bytes / UNIT, 0);
        while done < all {
            let at = done * UNIT;
            done += part.add(source + at, target + at, all - done, tile);
            if part.is_full() {
                parts.push(std::mem::take(&mut part).end());
            }
        }
    }
    if part.tiles > 0 {
        parts.push(part.end());
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use ash::vk;
    use terrane_core::device::SpaceId;

    use crate::memory::space::Range;

    use super::*;

    fn range(address: u64, bytes: u64) -> Range {
        Range {
            space: SpaceId(1),
            buffer: vk::Buffer::null(),
            offset: 0,
            bytes,
            address: Some(address),
        }
    }

    /// What the kernel does with a tile: from, to, vectors.
    fn copied(part: &Part, number: u32, tile: u32) -> (u64, u64, u32) {
        let sign = (number / STEP) as usize;
        let (mut low, mut high) = (part.signs[sign], part.signs[sign + 1]);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if part.moves[middle as usize][5] <= number {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        let [s0, s1, t0, t1, vectors, first, ..] = part.moves[low as usize];
        let begin = (number - first) * tile;
        let end = vectors.min(begin + tile);
        let at = |low: u32, high: u32, begin: u32| {
            (u64::from(high) << 32 | u64::from(low)) + u64::from(begin) * UNIT
        };
        (at(s0, s1, begin), at(t0, t1, begin), end - begin)
    }

    #[test]
    fn every_byte_is_copied_once_and_to_its_place() {
        let sizes = [16, 32 << 10, (32 << 10) + 16, 9 << 20, 64 << 10, 16, 16, 5 << 20, 700_000];
        let mut pairs = Vec::new();
        for (at, bytes) in (0_u64..).zip(sizes.into_iter().cycle().take(5_000)) {
            let bytes = bytes / UNIT * UNIT;
            pairs.push((range(0x7_0000_0000 + (at << 24), bytes), range(at << 25, bytes)));
        }
        let tile = 32 << 10;
        let mut seen = Vec::new();
        for part in parts(&pairs, tile).expect("addresses") {
            assert!(part.bytes().0.len() <= 4 << 20);
            for number in 0..part.tiles {
                seen.push(copied(&part, number, (tile / UNIT) as u32));
            }
        }
        let mut seen = seen.into_iter();
        for (from, to) in &pairs {
            let mut done = 0;
            while done < from.bytes {
                let (source, target, vectors) = seen.next().expect("a tile");
                let at = from.address.zip(to.address).map(|(s, t)| (s + done, t + done));
                assert_eq!(Some((source, target)), at);
                assert!(vectors > 0 && u64::from(vectors) * UNIT <= tile);
                done += u64::from(vectors) * UNIT;
            }
            assert_eq!(done, from.bytes);
        }
        assert_eq!(seen.next(), None);
    }

    #[test]
    fn long_ranges_and_many_are_cut_so_that_tables_fit_their_chunks() {
        let long = [(range(1 << 40, 200 << 30), range(2 << 40, 200 << 30))];
        let cut = parts(&long, 32 << 10).expect("addresses");
        assert!(cut.len() > 1);
        let vectors = cut.iter().flat_map(|part| &part.moves).map(|m| u64::from(m[4]));
        assert_eq!(vectors.sum::<u64>() * UNIT, 200 << 30);
        let many: Vec<_> =
            (0..150_000).map(|at| (range(at << 12, 16), range(at << 13, 16))).collect();
        let cut = parts(&many, 32 << 10).expect("addresses");
        assert_eq!(cut.iter().map(|part| part.moves.len()).sum::<usize>(), 150_000);
        assert!(cut.iter().all(|part| part.bytes().0.len() as u64 <= 4 << 20));
        assert_eq!(parts(&[], 32 << 10), Ok(Vec::new()));
    }

    #[test]
    fn a_space_without_an_address_is_told() {
        let bare = Range { address: None, ..range(0, 64) };
        assert!(parts(&[(bare, range(0, 64))], 32 << 10).is_err());
    }
}
