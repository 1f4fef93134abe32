//! How many bytes of each class lie in any stretch of the heap, without walking over its parts.
//!
//! The heap is cut into cells; for each class the bytes before each cell are kept. The
//! class that covers most of a pixel is then found in constant time however many blocks the pixel
//! stands for, so a picture costs what it has pixels, not what the heap has blocks.

use super::coloring::CLASSES;
use crate::window::model::Part;

/// Cells that the heap is cut into: at least, and at most.
const CELLS: std::ops::RangeInclusive<u64> = 1 << 12..=1 << 20;
/// A level has one of so many cells of the level below.
const COARSER: usize = 16;

/// Bytes by class before each cell, at several coarsenesses.
#[derive(Debug, Default)]
pub struct Sums {
    /// Bytes of a cell of the finest level.
    pub cell: u64,
    /// The classes that occur.
    classes: Vec<u8>,
    /// Of each level the sums before each cell, class by class.
    levels: Vec<Vec<u32>>,
}

impl Sums {
    /// Counts parts, which lie one behind the other, each of its class.
    pub fn of(parts: &[Part], total: u64, class_of: &[u8]) -> Self {
        let class = |index: usize| class_of.get(index).copied().unwrap_or(0);
        let wanted = (parts.len() as u64 / 2).clamp(*CELLS.start(), *CELLS.end());
        let cell = total.div_ceil(wanted).max(1);
        let mut place = [u8::MAX; CLASSES];
        let mut classes = Vec::new();
        for index in 0..parts.len() {
            let class = class(index).min(CLASSES as u8 - 1);
            if place[usize::from(class)] == u8::MAX {
                place[usize::from(class)] = classes.len() as u8;
                classes.push(class);
            }
        }
        // Sums are kept in units that let the whole heap fit.
        let shift = (64 - total.leading_zeros()).saturating_sub(31);
        let mut finest = Vec::with_capacity((wanted as usize + 2) * classes.len());
        let mut now = vec![0_u64; classes.len()];
        let keep = |finest: &mut Vec<u32>, now: &[u64]| {
            finest.extend(now.iter().map(|bytes| (bytes >> shift) as u32));
        };
        let mut edge = cell;
        keep(&mut finest, &now);
        for (index, part) in parts.iter().enumerate() {
            let class = usize::from(place[usize::from(class(index).min(CLASSES as u8 - 1))]);
            let (mut at, end) = (part.start, part.start + part.bytes);
            while end >= edge {
                now[class] += edge - at;
                at = edge;
                edge += cell;
                keep(&mut finest, &now);
            }
            now[class] += end - at;
        }
        keep(&mut finest, &now);
        Self { cell, levels: coarser(finest, classes.len()), classes }
    }

    /// The class that covers most of the cells that a stretch touches; `None` where nothing is.
    pub fn most(&self, from: f64, to: f64) -> Option<u8> {
        let count = self.classes.len();
        let mut cell = self.cell as f64;
        let mut level = 0;
        while level + 1 < self.levels.len() && cell * COARSER as f64 <= to - from {
            (level, cell) = (level + 1, cell * COARSER as f64);
        }
        let sums = self.levels.get(level)?;
        let last = (sums.len().checked_div(count)?).checked_sub(1)?;
        let first = ((from / cell) as usize).min(last);
        let end = ((to / cell).ceil() as usize).clamp(first, last).max((first + 1).min(last));
        let (a, b) = (&sums[first * count..][..count], &sums[end * count..][..count]);
        let (mut most, mut best) = (0, None);
        for (class, (a, b)) in a.iter().zip(b).enumerate() {
            if b - a > most {
                (most, best) = (b - a, Some(self.classes[class]));
            }
        }
        best
    }
}

/// The finest level and the coarser ones: every 16th sum of the one below, and the last.
fn coarser(finest: Vec<u32>, count: usize) -> Vec<Vec<u32>> {
    let mut levels = vec![finest];
    loop {
        let below = &levels[levels.len() - 1];
        let rows = below.len().checked_div(count).unwrap_or(0);
        if rows < COARSER * 64 {
            return levels;
        }
        let mut level: Vec<u32> =
            below.chunks_exact(count).step_by(COARSER).flatten().copied().collect();
        if !(rows - 1).is_multiple_of(COARSER) {
            level.extend(&below[(rows - 1) * count..]);
        }
        levels.push(level);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window::model::{NEVER, PartState};

    #[test]
    fn the_class_with_most_bytes_wins_in_any_stretch() {
        let part = |start, bytes| Part { start, bytes, block: NEVER, state: PartState::Free };
        let parts = [part(0, 1 << 20), part(1 << 20, 3 << 20), part(4 << 20, 4 << 20)];
        let sums = Sums::of(&parts, 8 << 20, &[0, 1, 2]);
        let mib = f64::from(1 << 20);
        assert_eq!(sums.most(0.0, mib), Some(0));
        assert_eq!(sums.most(0.0, 8.0 * mib), Some(2));
        assert_eq!(sums.most(0.0, 4.0 * mib), Some(1));
        assert_eq!(sums.most(3.9 * mib, 3.95 * mib), Some(1));
        assert_eq!(sums.most(9.0 * mib, 10.0 * mib), None);
    }

    #[test]
    fn an_empty_heap_has_no_class() {
        assert_eq!(Sums::of(&[], 0, &[]).most(0.0, 1.0), None);
    }
}
