//! How moves are drawn: ghosts at the old places, blocks at the new ones, the one that slides, and
//! a mark at each new place that says by what means.

use egui::{Pos2, Rect, Shape, Stroke, StrokeKind, pos2, vec2};
use terrane_core::event::MoveKind;

use crate::window::layout::{Classes, Grid};
use crate::window::model::Shift;
use crate::window::paint::{Cell, Look, Pattern};

/// Moves to come that are drawn at most, and marks at places of those that are done.
const ARROWS: usize = 40;

/// How far a pass is, and where it is drawn.
pub struct Moved<'a> {
    /// Colours.
    pub look: Look,
    /// Moves done; the fraction is the one under way.
    pub done: f32,
    /// Whether nothing is to slide.
    pub still: bool,
    /// Where places lie.
    pub grid: &'a Grid,
}

/// What is drawn over the heap.
#[derive(Default)]
pub struct Drawn {
    /// Ghosts and blocks.
    pub cells: Vec<Cell>,
    /// Blocks that stand out.
    pub outlined: Vec<Rect>,
    /// Ways and marks.
    pub shapes: Vec<Shape>,
}

impl Moved<'_> {
    /// The moves over the heap before them, each of its class, in place of what `cells` held.
    pub fn draw(
        &self,
        moves: &[Shift],
        (classes, of_moves): (&Classes, &[Option<u8>]),
        mut cells: Vec<Cell>,
    ) -> Drawn {
        cells.clear();
        let color = |number: usize| {
            let class = of_moves.get(number).copied().flatten();
            class.map_or(self.look.paper, |class| classes.paint(&self.look, class).0.0)
        };
        let (whole, part) =
            (self.done.floor() as usize, if self.still { 0.0 } else { self.done.fract() });
        let mut drawn = Drawn { cells, ..Drawn::default() };
        // What is still to move: where it is, and which way it goes.
        for shift in moves.iter().skip(whole).take(ARROWS) {
            drawn.outlined.extend(self.grid.rects(shift.from, shift.bytes));
            self.way(shift, &mut drawn.shapes);
        }
        // Of many within a pixel the first is drawn.
        let mut seen = [Seen::of(self.grid), Seen::of(self.grid)];
        for (number, shift) in moves.iter().enumerate().take(whole + usize::from(part > 0.0)) {
            if seen[0].is_new(shift.from, shift.bytes) {
                let ghost = (self.look.paper, self.look.select);
                let cell = |rect| Cell::new(rect, ghost, Pattern::Hatch);
                self.add(&mut drawn.cells, (shift.from, shift.bytes), cell);
            }
            if number >= whole {
                self.slide(shift, part, color(number), &mut drawn);
            } else if seen[1].is_new(shift.to, shift.bytes) {
                let color = color(number);
                let cell = |rect| Cell::solid(rect, color);
                self.add(&mut drawn.cells, (shift.to, shift.bytes), cell);
            }
        }
        // Of those that are done, the last ones.
        let done = whole.min(moves.len());
        for (number, shift) in moves[..done].iter().enumerate().skip(done.saturating_sub(ARROWS)) {
            if let Some(to) = self.place(shift.to, shift.bytes).filter(|to| to.width() >= 12.0) {
                drawn.shapes.push(mark(shift.by, to.center(), Look::on(color(number))));
            }
        }
        drawn
    }

    /// Adds a stretch that is in sight, in each row that it touches.
    fn add(&self, cells: &mut Vec<Cell>, (at, bytes): (u64, u64), cell: impl Fn(Rect) -> Cell) {
        match self.grid.one(at, bytes, &mut None) {
            Some(rect) => cells.push(cell(rect)),
            None => cells.extend(self.grid.rects(at, bytes).map(cell)),
        }
    }

    /// The longest piece of a block that goes over the ends of rows: arrows and slides are of that.
    fn place(&self, at: u64, bytes: u64) -> Option<Rect> {
        self.grid.rects(at, bytes).max_by(|a, b| a.width().total_cmp(&b.width()))
    }

    /// From where a block is to where it will be.
    fn way(&self, shift: &Shift, shapes: &mut Vec<Shape>) {
        let (from, to) = (self.place(shift.from, shift.bytes), self.place(shift.to, shift.bytes));
        let (Some(from), Some(to)) = (from, to) else { return };
        let line = Stroke::new(1.0, self.look.select.gamma_multiply(0.7));
        shapes.push(Shape::line_segment([from.center(), to.center()], line));
        shapes.push(mark(shift.by, to.center(), self.look.select));
    }

    /// The block between its places.
    fn slide(&self, shift: &Shift, part: f32, color: egui::Color32, drawn: &mut Drawn) {
        let (from, to) = (self.place(shift.from, shift.bytes), self.place(shift.to, shift.bytes));
        let (Some(from), Some(to)) = (from, to) else { return };
        let between = |a: f32, b: f32| a + (b - a) * part * part * (3.0 - 2.0 * part);
        let rect = Rect::from_min_max(
            pos2(between(from.min.x, to.min.x), between(from.min.y, to.min.y)),
            pos2(between(from.max.x, to.max.x), between(from.max.y, to.max.y)),
        );
        drawn.cells.push(Cell::solid(rect, color));
        drawn.outlined.push(rect);
        let line = [from.center(), to.center()];
        drawn.shapes.push(Shape::line_segment(line, Stroke::new(1.2, self.look.select)));
    }
}

/// In which pixels something is drawn already: no more is laid out than there are.
struct Seen {
    first: f64,
    pixel: f64,
    pixels: Vec<bool>,
}

impl Seen {
    fn of(grid: &Grid) -> Self {
        let (first, end) = grid.in_sight();
        let pixel = grid.pixel().max(1.0);
        Self { first, pixel, pixels: vec![false; ((end - first) / pixel).max(0.0) as usize + 1] }
    }

    /// Whether any of a stretch is in sight and, where it is less than a pixel, the first there.
    fn is_new(&mut self, start: u64, bytes: u64) -> bool {
        let at = (start as f64 - self.first) / self.pixel;
        let long = bytes as f64 / self.pixel;
        if at + long < 0.0 || at >= self.pixels.len() as f64 {
            return false;
        }
        long >= 1.0 || !std::mem::replace(&mut self.pixels[at.max(0.0) as usize], true)
    }
}

/// What a mark is called in the key.
pub fn mark_text(kind: MoveKind) -> String {
    let form = match kind {
        MoveKind::Copy => "dot",
        MoveKind::Slide => "bar",
        MoveKind::Remap => "ring",
        MoveKind::Rebind => "square",
        _ => "cross",
    };
    format!("{form}: {}", kind.text())
}

/// A mark for each means, told apart by form.
pub fn mark(kind: MoveKind, at: Pos2, ink: egui::Color32) -> Shape {
    let stroke = Stroke::new(1.5, ink);
    match kind {
        MoveKind::Copy => Shape::circle_filled(at, 3.0, ink),
        MoveKind::Slide => {
            let bar = Rect::from_center_size(at, vec2(9.0, 2.5));
            Shape::rect_filled(bar, 0.0, ink)
        }
        MoveKind::Remap => Shape::circle_stroke(at, 4.0, stroke),
        MoveKind::Rebind => {
            let square = Rect::from_center_size(at, vec2(7.0, 7.0));
            Shape::rect_stroke(square, 0.0, stroke, StrokeKind::Middle)
        }
        _ => {
            let arm = |dx: f32| [at - vec2(dx, 3.5), at + vec2(dx, 3.5)];
            let lines = [3.5, -3.5].map(|dx| Shape::line_segment(arm(dx), stroke));
            Shape::Vec(lines.to_vec())
        }
    }
}
