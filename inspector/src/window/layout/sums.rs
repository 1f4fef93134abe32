//! How many bytes of each class lie in any stretch of the heap, without walking over its parts.
//!
//! The heap is cut into [`CELLS`] cells; for each class the bytes before each cell are kept. The
//! class that covers most of a pixel is then found in constant time however many blocks the pixel
//! stands for, so a picture costs what it has pixels, not what the heap has blocks.

use super::coloring::CLASSES;
use crate::window::model::Part;

/// Cells that the heap is cut into.
const CELLS: u64 = 1 << 16;

/// Bytes by class before each cell.
#[derive(Debug, Default)]
pub struct Sums {
    /// Bytes of a cell.
    pub cell: u64,
    before: Vec<[u64; CLASSES]>,
}

impl Sums {
    /// Counts parts, which lie one behind the other; `class` gives the class of each by index.
    pub fn of(parts: &[Part], total: u64, class: impl Fn(usize) -> u8) -> Self {
        let cell = total.div_ceil(CELLS).max(1);
        let mut before = Vec::with_capacity(CELLS as usize + 1);
        let mut now = [0; CLASSES];
        let mut edge = cell;
        before.push(now);
        for (index, part) in parts.iter().enumerate() {
            let class = usize::from(class(index)).min(CLASSES - 1);
            let (mut at, end) = (part.start, part.start + part.bytes);
            while end >= edge {
                now[class] += edge - at;
                at = edge;
                edge += cell;
                before.push(now);
            }
            now[class] += end - at;
        }
        before.push(now);
        Self { cell, before }
    }

    /// The class that covers most of the cells that a stretch touches; `None` where nothing is.
    pub fn most(&self, from: f64, to: f64) -> Option<u8> {
        let last = self.before.len().checked_sub(1)?;
        let cell = self.cell as f64;
        let first = ((from / cell) as usize).min(last);
        let end = ((to / cell).ceil() as usize).clamp(first, last).max((first + 1).min(last));
        let (a, b) = (&self.before[first], &self.before[end]);
        let bytes = |class: usize| b[class] - a[class];
        let most = (0..CLASSES).max_by_key(|class| bytes(*class))?;
        (bytes(most) > 0).then_some(most as u8)
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
        let sums = Sums::of(&parts, 8 << 20, |index| index as u8);
        let mib = f64::from(1 << 20);
        assert_eq!(sums.most(0.0, mib), Some(0));
        assert_eq!(sums.most(0.0, 8.0 * mib), Some(2));
        assert_eq!(sums.most(0.0, 4.0 * mib), Some(1));
        assert_eq!(sums.most(3.9 * mib, 3.95 * mib), Some(1));
        assert_eq!(sums.most(9.0 * mib, 10.0 * mib), None);
    }

    #[test]
    fn an_empty_heap_has_no_class() {
        assert_eq!(Sums::of(&[], 0, |_| 0).most(0.0, 1.0), None);
    }
}
