//! Ranges cut into tiles, each within one window of a buffer. Pure functions.
//!
//! A window is what one binding can reach. Windows begin at multiples of their size, so that
//! their offsets are aligned; a tile is what one workgroup works on.

use terrane_core::device::{DeviceError, Region};

use crate::memory::space::{Range, Spaces};

/// The most bytes of a window: far from the 32-bit limits that drivers get wrong.
const MAX_WINDOW: u64 = 1 << 30;
const MIN_TILE: u64 = 32 << 10;
const MAX_TILE: u64 = 512 << 10;
/// The most tiles before they grow. Small tiles keep what runs at once close together in memory:
/// on an H200, tiles of 512 KiB reached a third of the speed that tiles of 32 and 64 KiB did.
const PLENTY: u64 = 1 << 21;

/// Bytes of a window where a binding can have `limit`.
pub fn window(limit: u64) -> u64 {
    let limit = limit.min(MAX_WINDOW);
    if limit >= MIN_TILE { limit / MIN_TILE * MIN_TILE } else { limit / 256 * 256 }
}

/// Bytes of a tile when `total` bytes are to be worked on; `wish` is taken unless it is 0.
pub fn tile(total: u64, wish: u64) -> u64 {
    if wish > 0 {
        return wish.clamp(4096, MAX_TILE).next_power_of_two();
    }
    (total / PLENTY).clamp(MIN_TILE, MAX_TILE).next_power_of_two()
}

/// Cuts `bytes` at `offset` into pieces of at most `most` bytes that stay within one of the
/// multiples of `window`: `(window number, offset in the window, bytes, bytes before)`.
pub fn cut(
    offset: u64,
    bytes: u64,
    window: u64,
    most: u64,
) -> impl Iterator<Item = (u64, u64, u64, u64)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done;
        let (number, inside) = (at / window, at % window);
        let piece = (bytes - done).min(window - inside).min(most);
        let before = done;
        done += piece;
        (piece > 0).then_some((number, inside, piece, before))
    })
}

/// A tile of a pattern kernel, as the kernel reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatternTile(pub [u32; 8]);

/// A window that tiles work in. The results of slots below `slots_from` lie in other chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window {
    pub space: u64,
    pub number: u64,
    /// The chunk of results.
    pub results: u64,
}

/// Tiles of regions, and what becomes of their results.
pub struct Plan {
    /// Tiles by the window they are in, sorted.
    pub tiles: Vec<(Window, PatternTile)>,
    /// The region of each slot.
    pub slots: Vec<u32>,
}

/// Cuts regions into tiles. A slot is for at most 2^32 words, so that counts can not overflow.
pub fn plan(
    spaces: &Spaces,
    regions: &[Region],
    window: u64,
    slots_per_chunk: u64,
    wish: u64,
) -> Result<Plan, DeviceError> {
    let mut plan = Plan { tiles: Vec::new(), slots: Vec::new() };
    let total: u64 = regions.iter().fold(0, |sum, r| sum.saturating_add(r.bytes));
    let most = tile(total, wish);
    for (region, number) in regions.iter().zip(0_u32..) {
        if region.bytes == 0 || !(region.bytes | region.place.offset).is_multiple_of(4) {
            return Err(DeviceError::InvalidCall(
                "a region's offset or bytes are no multiples of 4",
            ));
        }
        let range = spaces.range(region.place, region.bytes)?;
        add(&mut plan, &range, region.seed, number, window, most, slots_per_chunk);
    }
    plan.tiles.sort_by_key(|(window, _)| *window);
    Ok(plan)
}

fn add(
    plan: &mut Plan,
    range: &Range,
    seed: u64,
    region: u32,
    window: u64,
    most: u64,
    slots_per_chunk: u64,
) {
    // Tiles end at the next 2^32 words too; each such part has a slot of its own.
    const PART: u64 = 4 << 32;
    for part in (0..range.bytes).step_by(PART as usize) {
        let slot = plan.slots.len() as u64;
        plan.slots.push(region);
        let bytes = (range.bytes - part).min(PART);
        for (number, inside, piece, before) in cut(range.offset + part, bytes, window, most) {
            let index = (part + before) / 4;
            let tile = PatternTile([
                (inside / 4) as u32,
                (piece / 4) as u32,
                seed as u32,
                (seed >> 32) as u32,
                index as u32,
                (index >> 32) as u32,
                (slot % slots_per_chunk) as u32,
                0,
            ]);
            let results = slot / slots_per_chunk;
            plan.tiles.push((Window { space: range.space.0, number, results }, tile));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_range_once_and_stay_in_their_windows() {
        for (offset, bytes) in [(0, 1), (100, 1000), (96, 32), (5 << 30, (1 << 33) + 4), (7, 0)] {
            for (window, most) in [(64, 16), (1 << 30, 1 << 20), (100, 1000)] {
                if bytes / most > 100_000 {
                    continue;
                }
                let mut next = offset;
                for (number, inside, piece, before) in cut(offset, bytes, window, most) {
                    assert_eq!((number * window + inside, before), (next, next - offset));
                    assert!(inside + piece <= window && piece <= most && piece > 0);
                    next += piece;
                }
                assert_eq!(next, offset + bytes);
            }
        }
    }

    #[test]
    fn windows_are_aligned_and_within_the_binding_limit() {
        assert_eq!(window(128 << 20), 128 << 20);
        assert_eq!(window(u64::from(u32::MAX)), 1 << 30);
        assert_eq!(window((1 << 20) + 5), 1 << 20);
        assert_eq!(window(1000), 768);
    }

    #[test]
    fn tiles_grow_with_the_work() {
        assert_eq!(tile(0, 0), MIN_TILE);
        assert_eq!(tile(u64::MAX, 0), MAX_TILE);
        assert!(tile(100 << 30, 0).is_power_of_two());
        assert_eq!(tile(100 << 30, 10_000), 16_384);
    }
}
