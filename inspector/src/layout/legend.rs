//! Keys to colours and patterns, on one line, ending at the right.

use super::scene::{Anchor, Fill, Pen, Rect};
use super::{Measure, Theme};

const SIZE: f32 = 14.0;
const SWATCH: f32 = 22.0;
const BETWEEN: f32 = 20.0;

/// How a key is drawn.
pub enum Key {
    Patch(Fill),
    Line(super::Color, Option<(f32, f32)>),
    /// An upright bar.
    Bar(super::Color),
}

/// Draws the keys so that the last ends at `right`, on the baseline `y`.
pub fn draw(
    pen: &mut Pen,
    theme: &Theme,
    keys: &[(Key, String)],
    (right, y): (f32, f32),
    measure: Measure<'_>,
) {
    let width = |label: &str| SWATCH + 7.0 + measure(label, SIZE);
    let all: f32 = keys.iter().map(|(_, label)| width(label)).sum();
    let mut x = right - all - BETWEEN * keys.len().saturating_sub(1) as f32;
    for (key, label) in keys {
        match key {
            Key::Patch(fill) => {
                let rect = Rect::new(x, y - 12.0, SWATCH, 15.0);
                pen.rect(rect, *fill);
                let (r, b) = (rect.right(), rect.bottom());
                let edge = vec![(x, rect.y), (r, rect.y), (r, b), (x, b), (x, rect.y)];
                pen.line(edge, 0.7, theme.faint);
            }
            Key::Bar(color) => {
                let middle = x + SWATCH / 2.0;
                pen.line(vec![(middle, y - 13.0), (middle, y + 4.0)], 1.8, *color);
            }
            Key::Line(color, dash) => {
                let points = vec![(x, y - 4.5), (x + SWATCH, y - 4.5)];
                match dash {
                    Some(dash) => pen.dashed(points, *color, 2.5, *dash),
                    None => pen.line(points, 2.5, *color),
                }
            }
        }
        pen.text((x + SWATCH + 7.0, y), SIZE, Anchor::Start, theme.ink, label);
        x += width(label) + BETWEEN;
    }
}
