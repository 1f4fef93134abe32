//! The heap by address, wrapped into rows like a text.

use egui::{Pos2, Rect, pos2};

use super::coloring::{CLASSES, Classes};
use super::pages::Ticks;
use super::{Painted, Sums};
use crate::window::model::{Moment, NEVER};
use crate::window::paint::{Cell, Look, Pattern};

/// Which stretch of the heap is shown: what one row holds, what the left edge of row 0 is, and how
/// far the rows are scrolled.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Camera {
    /// Bytes in a row.
    pub per_row: f64,
    /// Byte at the left edge of row 0.
    pub origin: f64,
    /// Rows above the view.
    pub scroll: f64,
}

/// Height of a row in points, gap included.
const PITCH: f32 = 24.0;
/// No less than this many bytes fill a row.
const LEAST_PER_ROW: f64 = 64.0;

/// A row: the byte at its left edge, and where it is.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    left: f64,
    top: f32,
    bottom: f32,
}

/// Where bytes are.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// The rows' area.
    pub area: Rect,
    /// Which stretch is shown.
    pub camera: Camera,
    /// Height of a row.
    pub pitch: f32,
    /// Bytes there are.
    pub total: u64,
    /// Pixels per point.
    pub scale: f32,
}

impl Grid {
    /// The whole heap, or what a camera shows.
    pub fn new(area: Rect, camera: Option<Camera>, total: u64, scale: f32) -> Self {
        let rows = (area.height() / PITCH).floor().max(1.0);
        let pitch = area.height() / rows;
        let per_row = (total.max(1) as f64 / f64::from(rows)).max(LEAST_PER_ROW);
        let camera = camera.unwrap_or(Camera { per_row, origin: 0.0, scroll: 0.0 });
        Self { area, camera, pitch, total, scale }
    }

    fn width(&self) -> f64 {
        f64::from(self.area.width().max(1.0))
    }

    /// Bytes of a pixel.
    pub fn pixel(&self) -> f64 {
        self.camera.per_row / (self.width() * f64::from(self.scale))
    }

    /// The byte under a point, outside the heap too.
    pub fn byte_at(&self, at: Pos2) -> f64 {
        let row = (f64::from((at.y - self.area.top()) / self.pitch) + self.camera.scroll).floor();
        let across = f64::from(at.x - self.area.left()) / self.width();
        self.camera.origin + (row + across) * self.camera.per_row
    }

    /// The camera zoomed by a factor with the byte under a point kept there.
    pub fn zoomed(&self, at: Pos2, factor: f64) -> Camera {
        let rows = (self.area.height() / self.pitch).max(1.0);
        let widest = (self.total.max(1) as f64 / f64::from(rows)).max(LEAST_PER_ROW) * 2.0;
        let per_row = (self.camera.per_row / factor).clamp(LEAST_PER_ROW, widest);
        let row = (f64::from((at.y - self.area.top()) / self.pitch) + self.camera.scroll).floor();
        let across = f64::from(at.x - self.area.left()) / self.width();
        let origin = self.byte_at(at) - (row + across) * per_row;
        Camera { per_row, origin, ..self.camera }.kept(self)
    }

    /// The camera dragged by so many points.
    pub fn panned(&self, by: egui::Vec2) -> Camera {
        let origin = self.camera.origin - f64::from(by.x) / self.width() * self.camera.per_row;
        let scroll = self.camera.scroll - f64::from(by.y / self.pitch);
        Camera { origin, scroll, ..self.camera }.kept(self)
    }

    /// A camera that shows a stretch with a little around it, in the middle of the view.
    pub fn showing(&self, start: u64, bytes: u64) -> Camera {
        let per_row = (bytes as f64 * 1.6).max(LEAST_PER_ROW);
        let middle = f64::from((self.area.height() / self.pitch / 2.0).floor());
        let origin = start as f64 - bytes as f64 * 0.3 - middle * per_row;
        Camera { per_row, origin, scroll: 0.0 }
    }

    /// The part of a stretch in each row that it touches and that is visible.
    pub fn rects(&self, start: u64, bytes: u64) -> impl Iterator<Item = Rect> + use<> {
        let grid = *self;
        let camera = self.camera;
        let row_of = move |byte: f64| ((byte - camera.origin) / camera.per_row).floor();
        let end = (start + bytes) as f64;
        let first = row_of(start as f64).max(camera.scroll.floor());
        let rows = f64::from(self.area.height() / self.pitch).ceil() + 1.0;
        let last = row_of(end).min(camera.scroll.floor() + rows);
        let count = if last < first { 0 } else { (last - first) as usize + 1 };
        (0..count).filter_map(move |number| {
            let row = first + number as f64;
            let left = camera.origin + row * camera.per_row;
            let from = (start as f64).max(left);
            let to = end.min(left + camera.per_row);
            (to > from).then(|| grid.rect(row, from - left, to - left))
        })
    }

    /// The rectangle of a stretch that lies in one row; most do. `near` is the row of the stretch
    /// before it, whose left edge and height need not be found again.
    pub fn one(&self, start: u64, bytes: u64, near: &mut Option<Row>) -> Option<Rect> {
        let Camera { per_row, origin, .. } = self.camera;
        let at = start as f64;
        let is_it = |row: &Row| row.left <= at && at < row.left + per_row;
        let Row { left, top, bottom } = *match near {
            Some(row) if is_it(row) => row,
            _ => {
                let number = ((at - origin) / per_row).floor();
                let (top, bottom) = self.row(number);
                near.insert(Row { left: origin + number * per_row, top, bottom })
            }
        };
        let (from, to) = (at - left, (start + bytes) as f64 - left);
        let x = |bytes: f64| self.x(bytes);
        let rect = || Rect::from_min_max(pos2(x(from), top), pos2(x(to), bottom));
        (to <= per_row).then(rect)
    }

    fn rect(&self, row: f64, from: f64, to: f64) -> Rect {
        let (top, bottom) = self.row(row);
        Rect::from_min_max(pos2(self.x(from), top), pos2(self.x(to), bottom))
    }

    /// Where so many bytes from the left edge are.
    fn x(&self, bytes: f64) -> f32 {
        self.snap(self.area.left() + (bytes / self.camera.per_row * self.width()) as f32)
    }

    /// Top and bottom of a row's bar.
    fn row(&self, row: f64) -> (f32, f32) {
        let top = self.area.top() + (row - self.camera.scroll) as f32 * self.pitch;
        let gap = (self.pitch * 0.18).min(4.0);
        (self.snap(top + gap / 2.0), self.snap(top + self.pitch - gap / 2.0))
    }

    fn snap(&self, at: f32) -> f32 {
        (at * self.scale).round() / self.scale
    }

    /// Visible rows: number and the byte at their left edge.
    pub fn rows(&self) -> impl Iterator<Item = (f64, f64)> + use<> {
        let camera = self.camera;
        let first = camera.scroll.floor();
        let count = (self.area.height() / self.pitch).ceil() as usize + 1;
        (0..count).map(move |number| {
            let row = first + number as f64;
            (row, camera.origin + row * camera.per_row)
        })
    }

    /// The first byte of the rows in sight, and the one behind them.
    pub fn in_sight(&self) -> (f64, f64) {
        let first = self.camera.origin + self.camera.scroll.floor() * self.camera.per_row;
        let rows = f64::from((self.area.height() / self.pitch).ceil()) + 1.0;
        (first, first + rows * self.camera.per_row)
    }

    /// The middle of a row, in points from the top.
    pub fn middle(&self, row: f64) -> f32 {
        let (top, bottom) = self.row(row);
        (top + bottom) / 2.0
    }
}

impl Camera {
    /// At least one row of the heap stays in view.
    fn kept(mut self, grid: &Grid) -> Self {
        let rows = f64::from(grid.area.height() / grid.pitch);
        let top = (-self.origin / self.per_row).floor() - rows + 2.0;
        let bottom = ((grid.total as f64 - self.origin) / self.per_row).ceil() - 2.0;
        self.scroll = self.scroll.clamp(top, bottom.max(top));
        self
    }
}

/// A word in a block.
pub struct Label {
    /// The block's rectangle.
    pub rect: Rect,
    /// The block.
    pub block: u32,
    /// The block's colour.
    pub back: egui::Color32,
    /// Whether stripes go over it.
    pub is_striped: bool,
}

/// What is to be drawn.
#[derive(Default)]
pub struct HeapScene {
    /// Parts, back to front.
    pub cells: Vec<Cell>,
    /// Blocks with room for words.
    pub labels: Vec<Label>,
    /// Which boundaries within segments were added to the parts.
    pub ticks: Ticks,
}

/// So many parts are laid out one by one at any zoom.
const FEW: usize = 20_000;
/// Blocks narrower than this have no words.
const LABEL_WIDTH: f32 = 56.0;
const LABELS_MOST: usize = 400;

/// Lays out what is visible, in place of what `room` held. Pixels that stand for many parts show
/// what covers most of them.
pub fn scene(painted: &Painted, grid: &Grid, (look, mut room): (&Look, Vec<Cell>)) -> HeapScene {
    let Painted { moment, classes, of_parts, sums, .. } = painted;
    room.clear();
    let mut scene = HeapScene { cells: room, ..HeapScene::default() };
    let pixel = grid.pixel();
    // Half a cell to a pixel is as sharp as a pixel is.
    if pixel * 2.0 >= sums.cell as f64 && moment.parts.len() > FEW {
        dense(&mut scene, grid, classes, sums, look, pixel);
    } else {
        exact(&mut scene, moment, grid, (classes, of_parts), look, pixel);
    }
    scene
}

fn dense(
    scene: &mut HeapScene,
    grid: &Grid,
    classes: &Classes,
    sums: &Sums,
    look: &Look,
    pixel: f64,
) {
    let columns = (grid.width() * f64::from(grid.scale)) as usize;
    for (row, left) in grid.rows() {
        let mut run: Option<(u8, usize)> = None;
        for column in 0..=columns {
            let from = left + column as f64 * pixel;
            let inside = column < columns && from >= 0.0 && from < grid.total as f64;
            let class = if inside { sums.most(from, from + pixel) } else { None };
            if run.map(|(class, _)| class) == class {
                continue;
            }
            if let Some((class, start)) = run {
                let rect = grid.rect(row, start as f64 * pixel, column as f64 * pixel);
                let (colors, pattern) = classes.paint(look, class);
                scene.cells.push(Cell::new(rect, colors, pattern));
            }
            run = class.map(|class| (class, column));
        }
    }
}

fn exact(
    scene: &mut HeapScene,
    moment: &Moment,
    grid: &Grid,
    (classes, of_parts): (&Classes, &[u8]),
    look: &Look,
    pixel: f64,
) {
    let rows: Vec<f64> = grid.rows().map(|(_, left)| left).collect();
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return };
    let (first, last) = (first.max(0.0) as u64, (last + grid.camera.per_row).max(0.0) as u64);
    let from = moment.parts.partition_point(|part| part.start + part.bytes <= first);
    let paints: [_; CLASSES] = std::array::from_fn(|class| classes.paint(look, class as u8));
    let mut near = None;
    // Parts narrower than a pixel: what was drawn in that pixel so far.
    let mut crowded: Option<(f64, u64)> = None;
    for (part, class) in moment.parts[from..].iter().zip(of_parts.iter().skip(from)) {
        if part.start >= last {
            break;
        }
        if (part.bytes as f64) < pixel {
            let at = (part.start as f64 / pixel).floor();
            if crowded.is_some_and(|(pixel, bytes)| pixel == at && bytes >= part.bytes) {
                continue;
            }
            crowded = Some((at, part.bytes));
        }
        let (colors, pattern) = paints[usize::from(*class).min(CLASSES - 1)];
        let one = grid.one(part.start, part.bytes, &mut near);
        let many = one.is_none().then(|| grid.rects(part.start, part.bytes));
        for mut rect in one.into_iter().chain(many.into_iter().flatten()) {
            let width = rect.width() * grid.scale;
            if width < 1.0 {
                rect.max.x = rect.min.x + 1.0 / grid.scale;
            } else if width >= 4.0 {
                // A line of paper between neighbours.
                rect.max.x -= 1.0 / grid.scale;
            }
            scene.cells.push(Cell::new(rect, colors, pattern));
            let room = rect.width() > LABEL_WIDTH && scene.labels.len() < LABELS_MOST;
            if room && part.block != NEVER {
                let is_striped = pattern != Pattern::Solid;
                scene.labels.push(Label { rect, block: part.block, back: colors.0, is_striped });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use egui::vec2;

    fn grid() -> Grid {
        let area = Rect::from_min_size(pos2(100.0, 50.0), vec2(1000.0, 480.0));
        Grid::new(area, None, 20_000_000, 1.0)
    }

    #[test]
    fn zooming_keeps_the_byte_under_the_cursor() {
        let mut grid = grid();
        let at = pos2(432.0, 200.0);
        let byte = grid.byte_at(at);
        for factor in [1.5, 3.0, 0.7, 40.0, 1000.0] {
            grid.camera = grid.zoomed(at, factor);
            assert!((grid.byte_at(at) - byte).abs() < 1.0, "{factor}: {}", grid.byte_at(at));
        }
    }

    #[test]
    fn a_stretch_that_wraps_has_one_rectangle_per_row() {
        let grid = grid();
        let rects: Vec<Rect> = grid.rects(900_000, 1_300_000).collect();
        assert_eq!(rects.len(), 3);
        assert_eq!((rects[0].left(), rects[0].right()), (1000.0, 1100.0));
        assert_eq!((rects[1].left(), rects[1].right()), (100.0, 1100.0));
        assert_eq!((rects[2].left(), rects[2].right()), (100.0, 300.0));
    }

    #[test]
    fn one_block_can_fill_a_row_and_panning_never_loses_the_heap() {
        let mut grid = grid();
        grid.camera = grid.showing(5_000_000, 512);
        let rect: Vec<Rect> = grid.rects(5_000_000, 512).collect();
        assert_eq!(rect.len(), 1);
        assert!(rect[0].width() > 500.0 && grid.area.contains_rect(rect[0]));
        for _ in 0..200 {
            grid.camera = grid.panned(vec2(0.0, -4000.0));
        }
        let visible = grid.rows().any(|(_, left)| left < 20_000_000.0);
        assert!(visible, "{:?}", grid.camera);
    }
}
