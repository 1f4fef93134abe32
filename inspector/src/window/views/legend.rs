//! What colours, patterns and forms mean, beside a chart: each as it is drawn there.

use egui::{Color32, FontId, Painter, Pos2, Rect, Role, Sense, Shape, Stroke, StrokeKind, Ui};
use egui::{WidgetInfo, pos2, vec2};
use terrane_core::event::MoveKind;

use super::Stage;
use super::moved::mark;
use crate::window::paint::{Cell, Cells, Pattern};

/// An area: back and lines, the pattern, and what it means.
pub type Key = ((Color32, Color32), Pattern, String);
/// A form, its colour, and what it means.
pub type SignKey = (Sign, Color32, String);

/// What is drawn as a line or a mark rather than as an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// A curve.
    Line,
    /// A curve of dashes.
    Dashed,
    /// A curve of dashes and dots.
    DashDot,
    /// A moment.
    Moment,
    /// A moment that was marked.
    Marked,
    /// A line from the top of a row to its bottom.
    Edge,
    /// A line to the middle of a row from below.
    LongTick,
    /// A shorter one.
    ShortTick,
    /// A triangle that points down.
    Tip,
    /// Two lines across each other.
    Cross,
    /// A line to a triangle.
    Arrow,
    /// A line to a dot.
    Way,
    /// The outline of a block.
    Frame,
    /// The mark of a move.
    Move(MoveKind),
}

/// Size of a key.
const SIZE: egui::Vec2 = vec2(15.0, 11.0);

/// Keys for a chart, areas first.
pub fn legend(ui: &mut Ui, stage: &mut Stage<'_>, areas: &[Key], signs: &[SignKey]) {
    let ink = stage.look.ink;
    let mut cells = Vec::new();
    ui.horizontal_wrapped(|ui| {
        ui.spacing_mut().item_spacing = vec2(10.0, 3.0);
        for (colors, pattern, text) in areas {
            let rect = key(ui, text, ink);
            cells.push((rect, Cell::new(rect, *colors, *pattern)));
        }
        for (sign, color, text) in signs {
            let rect = key(ui, text, ink);
            draw(ui.painter(), *sign, rect, *color);
        }
    });
    let drawn = cells.iter().map(|(_, cell)| *cell).collect();
    stage.surface.draw(ui.painter(), 1, &Cells::new(drawn));
    for (rect, _) in cells {
        let edge = Stroke::new(0.8, stage.look.faint);
        ui.painter().rect_stroke(rect, 1.0, edge, StrokeKind::Inside);
    }
}

/// Writes what a key means, and gives its room. One piece each, so that a line breaks between keys.
fn key(ui: &mut Ui, text: &str, ink: Color32) -> Rect {
    let words = ui.painter().layout_no_wrap(text.to_owned(), FontId::proportional(11.5), ink);
    let size = vec2(SIZE.x + 5.0 + words.size().x, words.size().y.max(SIZE.y));
    let (rect, response) = ui.allocate_exact_size(size, Sense::hover());
    response.widget_info(|| WidgetInfo::labeled(Role::Label, true, format!("colour key: {text}")));
    let at = pos2(rect.left() + SIZE.x + 5.0, rect.center().y - words.size().y / 2.0);
    ui.painter().galley(at, words, ink);
    Rect::from_center_size(rect.left_center() + vec2(SIZE.x / 2.0, 0.0), SIZE)
}

fn draw(painter: &Painter, sign: Sign, rect: Rect, ink: Color32) {
    let middle = rect.center();
    let across = [rect.left_center(), rect.right_center()];
    let upright = |top: f32| [pos2(middle.x, top), rect.center_bottom()];
    let line = |ends, width| Shape::line_segment(ends, Stroke::new(width, ink));
    let dashed = |ends: [Pos2; 2], dash, gap| {
        Shape::Vec(Shape::dashed_line(&ends, Stroke::new(1.8, ink), dash, gap))
    };
    let shape = match sign {
        Sign::Line => line(across, 2.0),
        Sign::Dashed => dashed(across, 6.0, 3.0),
        Sign::DashDot => {
            let stroke = Stroke::new(1.5, ink);
            let (dashes, gaps) = ([8.0, 2.0], [3.0, 3.0]);
            Shape::Vec(Shape::dashed_line_with_offset(&across, stroke, &dashes, &gaps, 0.0))
        }
        Sign::Moment => dashed(upright(rect.top() - 1.0), 5.0, 3.0),
        Sign::Marked => {
            let font = FontId::proportional(10.0);
            painter.text(middle, egui::Align2::LEFT_CENTER, "M", font, ink);
            let left = vec2(-2.0, 0.0);
            line([rect.center_top() + left, rect.center_bottom() + left], 1.0)
        }
        Sign::Edge => line(upright(rect.top()), 1.5),
        Sign::LongTick => line(upright(middle.y - 1.0), 1.5),
        Sign::ShortTick => line(upright(rect.bottom() - 3.5), 1.5),
        Sign::Tip => triangle(middle + vec2(0.0, 4.0), ink),
        Sign::Cross => {
            let arm = |dy: f32| [middle - vec2(3.5, dy), middle + vec2(3.5, dy)];
            Shape::Vec([3.5, -3.5].map(|dy| line(arm(dy), 1.5)).to_vec())
        }
        Sign::Arrow => {
            let tip = triangle(rect.center_bottom(), ink);
            Shape::Vec(vec![line(upright(rect.top()), 1.0), tip])
        }
        Sign::Way => {
            let dot = Shape::circle_filled(rect.right_center() - vec2(3.0, 0.0), 2.5, ink);
            Shape::Vec(vec![line(across.map(|end| end - vec2(3.0, 0.0)), 1.0), dot])
        }
        Sign::Frame => {
            let frame = rect.shrink(1.0);
            Shape::rect_stroke(frame, 0.0, Stroke::new(2.0, ink), StrokeKind::Inside)
        }
        Sign::Move(kind) => mark(kind, middle, ink),
    };
    painter.add(shape);
}

/// One that points down, with its tip here.
fn triangle(tip: Pos2, ink: Color32) -> Shape {
    let corners = vec![tip + vec2(-4.5, -8.0), tip + vec2(4.5, -8.0), tip];
    Shape::convex_polygon(corners, ink, Stroke::NONE)
}
