//! Where pages and memory objects begin, as ticks over the heap.

use egui::{Rect, pos2};

use super::heap::Grid;
use crate::window::model::{Moment, Page};
use crate::window::paint::{Cell, Look};

/// Pages and memory objects narrower than this are not told apart, in pixels.
const APART: f64 = 5.0;
/// How far ticks of pages and of memory objects reach into their row from below; what goes all the
/// way is a block's or a segment's.
const TICKS: [f32; 2] = [0.25, 0.5];

/// Which ticks there are in sight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticks {
    /// Pages begin.
    pub pages: bool,
    /// Memory objects begin.
    pub objects: bool,
}

/// Adds a tick for every page and memory object that begins in sight and is some pixels long.
pub fn ticks(moment: &Moment, grid: &Grid, look: &Look, cells: &mut Vec<Cell>) -> Ticks {
    let mut ticks = Ticks::default();
    let rows: Vec<f64> = grid.rows().map(|(_, left)| left).collect();
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return ticks };
    let (first, last) = (first.max(0.0) as u64, (last + grid.camera.per_row).max(0.0) as u64);
    let pixel = grid.pixel();
    let from = moment.pages.partition_point(|page| page.start + page.bytes <= first);
    let inside = moment.pages[from..].iter().take_while(|page| page.start < last);
    let pages: Vec<&Page> = inside.collect();
    for run in pages.chunk_by(|a, b| a.object == b.object && a.start + a.bytes == b.start) {
        let bytes: u64 = run.iter().map(|page| page.bytes).sum();
        let whole = bytes as f64 / pixel >= APART;
        ticks.objects |= whole;
        for (number, page) in run.iter().enumerate() {
            let is_object = number == 0 && whole;
            if !is_object && (page.bytes as f64) / pixel < APART {
                continue;
            }
            ticks.pages |= !is_object;
            // The rest of an object whose beginning is out of sight.
            if page.start < first {
                continue;
            }
            if let Some(rect) = grid.rects(page.start, page.bytes).next() {
                tick(rect, is_object, grid, look, cells);
            }
        }
    }
    ticks
}

/// A line of ink with paper beside it: seen over any colour.
fn tick(rect: Rect, is_object: bool, grid: &Grid, look: &Look, cells: &mut Vec<Cell>) {
    let line = 1.0 / grid.scale;
    let top = rect.bottom() - rect.height() * TICKS[usize::from(is_object)];
    for (number, color) in [look.ink, look.paper].into_iter().enumerate() {
        let left = rect.left() + number as f32 * line;
        let stripe = Rect::from_min_max(pos2(left, top), pos2(left + line, rect.bottom()));
        cells.push(Cell::solid(stripe, color));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use egui::vec2;

    const MIB: u64 = 1 << 20;

    /// Eight pages of 2 MiB, four of one memory object and then one object each, and a hole.
    fn moment() -> Moment {
        let page = |at: u64| Page {
            start: at * 2 * MIB,
            bytes: 2 * MIB,
            object: if at < 4 { 1 } else { at },
        };
        let pages = (0..9).filter(|at| *at != 6).map(page).collect();
        Moment { pages, extent: 18 * MIB, ..Moment::default() }
    }

    /// Ticks of one row of so many points: the long ones and the short ones.
    fn drawn(points: f32) -> (usize, usize, Ticks) {
        let area = Rect::from_min_size(pos2(0.0, 0.0), vec2(points, 24.0));
        let grid = Grid::new(area, None, 18 * MIB, 1.0);
        let mut cells = Vec::new();
        let told = ticks(&moment(), &grid, &Look::of(true), &mut cells);
        let high = cells.iter().filter(|cell| cell.rect[3] - cell.rect[1] > 8.0).count();
        (high / 2, (cells.len() - high) / 2, told)
    }

    #[test]
    fn ticks_tell_pages_and_memory_objects_apart_where_they_are_some_pixels_long() {
        assert_eq!(drawn(900.0), (5, 3, Ticks { pages: true, objects: true }));
        // A page has 4 pixels, the object of four has 16.
        assert_eq!(drawn(36.0), (1, 0, Ticks { pages: false, objects: true }));
        assert_eq!(drawn(9.0), (0, 0, Ticks::default()));
    }
}
