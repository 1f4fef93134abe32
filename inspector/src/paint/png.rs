//! A scene as a PNG file.

use anyhow::{Context, Result};
use tiny_skia::{
    FillRule, LineCap, LineJoin, Paint, Path, PathBuilder, Pixmap, PremultipliedColorU8, Shader,
    Stroke, StrokeDash, Transform,
};

use super::Font;
use crate::layout::{Anchor, Color, Fill, Rect, Scene, Shape};

/// Distance between the lines of a hatch, and of stripes, in pixels.
const HATCH: f32 = 6.0;
const STRIPES: f32 = 9.0;

/// Draws a scene.
///
/// # Errors
/// A size of zero or beyond what fits in memory.
pub fn png(scene: &Scene, font: &Font) -> Result<Vec<u8>> {
    let (width, height) = (scene.width as u32, scene.height as u32);
    let mut map = Pixmap::new(width, height).context("the picture's size is not possible")?;
    map.fill(color(scene.paper));
    for shape in &scene.shapes {
        draw(&mut map, shape, font);
    }
    map.encode_png().context("encoding the picture")
}

fn draw(map: &mut Pixmap, shape: &Shape, font: &Font) {
    match shape {
        Shape::Rect { rect, fill, .. } => fill_rect(map, *rect, *fill),
        Shape::Line { points, width, color, dash } => {
            let Some(path) = path_of(points, false) else { return };
            let dash = dash.and_then(|(on, off)| StrokeDash::new(vec![on, off], 0.0));
            let stroke = Stroke {
                width: *width,
                line_cap: LineCap::Butt,
                line_join: LineJoin::Round,
                dash,
                ..Stroke::default()
            };
            map.stroke_path(&path, &paint(*color), &stroke, Transform::identity(), None);
        }
        Shape::Area { points, color } => {
            let Some(path) = path_of(points, true) else { return };
            let rule = FillRule::Winding;
            map.fill_path(&path, &paint(*color), rule, Transform::identity(), None);
        }
        Shape::Text { at, size, anchor, color, text } => {
            let back = match anchor {
                Anchor::Start => 0.0,
                Anchor::Middle => font.width(text, *size) / 2.0,
                Anchor::End => font.width(text, *size),
            };
            let at = (at.0 - back, at.1);
            font.draw(text, *size, at, |x, y, coverage| blend(map, x, y, *color, coverage));
        }
    }
}

fn fill_rect(map: &mut Pixmap, rect: Rect, fill: Fill) {
    let (back, pattern) = match fill {
        Fill::Solid(back) => (back, None),
        Fill::Hatch { back, line } => (back, Some((line, HATCH, 1.0, false))),
        Fill::Stripes { back, line } => (back, Some((line, STRIPES, 3.5, true))),
    };
    solid(map, rect, back);
    if let Some((line, distance, width, falling)) = pattern {
        slanted(map, rect, (distance, width, falling), line);
    }
}

/// Every pixel by the part of it that is covered, so that blocks far narrower than a pixel add up
/// to the right shade.
fn solid(map: &mut Pixmap, rect: Rect, color: Color) {
    let covered = |from: f32, to: f32, pixel: i32| {
        let pixel = pixel as f32;
        (to.min(pixel + 1.0) - from.max(pixel)).max(0.0)
    };
    let right = rect.right().min(map.width() as f32);
    let bottom = rect.bottom().min(map.height() as f32);
    for y in rect.y.max(0.0).floor() as i32..bottom.ceil() as i32 {
        let part = covered(rect.y, bottom, y);
        for x in rect.x.max(0.0).floor() as i32..right.ceil() as i32 {
            blend(map, x, y, color, part * covered(rect.x, right, x));
        }
    }
}

/// Parallel lines at 45 degrees, cut to the rectangle. Their phase is the page's, so that
/// neighbours continue each other.
fn slanted(map: &mut Pixmap, rect: Rect, (distance, width, falling): (f32, f32, bool), c: Color) {
    let mut builder = PathBuilder::new();
    let sign = if falling { -1.0 } else { 1.0 };
    // Lines are x + sign * y = constant; the corners give the range of constants.
    let corners = [(rect.x, rect.y), (rect.right(), rect.bottom())];
    let mixed = [(rect.x, rect.bottom()), (rect.right(), rect.y)];
    let values = corners.iter().chain(&mixed).map(|(x, y)| x + sign * y);
    let (low, high) = values.fold((f32::MAX, f32::MIN), |(l, h), v| (l.min(v), h.max(v)));
    let mut at = (low / distance).floor() * distance;
    while at <= high {
        // Along the line from the top of the rectangle to its bottom, cut at the sides.
        let x_at = |y: f32| at - sign * y;
        let y_at = |x: f32| sign * (at - x);
        let mut ends = Vec::with_capacity(4);
        for y in [rect.y, rect.bottom()] {
            let x = x_at(y);
            if x >= rect.x && x <= rect.right() {
                ends.push((x, y));
            }
        }
        for x in [rect.x, rect.right()] {
            let y = y_at(x);
            if y > rect.y && y < rect.bottom() {
                ends.push((x, y));
            }
        }
        if let [from, to, ..] = ends[..] {
            builder.move_to(from.0, from.1);
            builder.line_to(to.0, to.1);
        }
        at += distance;
    }
    if let Some(path) = builder.finish() {
        let stroke = Stroke { width, line_cap: LineCap::Butt, ..Stroke::default() };
        map.stroke_path(&path, &paint(c), &stroke, Transform::identity(), None);
    }
}

fn path_of(points: &[(f32, f32)], closed: bool) -> Option<Path> {
    let (first, rest) = points.split_first()?;
    let mut builder = PathBuilder::new();
    builder.move_to(first.0, first.1);
    for point in rest {
        builder.line_to(point.0, point.1);
    }
    if closed {
        builder.close();
    }
    builder.finish()
}

fn color(Color(r, g, b): Color) -> tiny_skia::Color {
    tiny_skia::Color::from_rgba8(r, g, b, 255)
}

fn paint(c: Color) -> Paint<'static> {
    Paint { shader: Shader::SolidColor(color(c)), anti_alias: true, ..Paint::default() }
}

fn blend(map: &mut Pixmap, x: i32, y: i32, Color(r, g, b): Color, coverage: f32) {
    let (width, height) = (map.width() as i32, map.height() as i32);
    if x < 0 || y < 0 || x >= width || y >= height {
        return;
    }
    let pixel = &mut map.pixels_mut()[(y * width + x) as usize];
    let mix = |below: u8, above: u8| {
        (f32::from(below) + (f32::from(above) - f32::from(below)) * coverage.min(1.0)).round() as u8
    };
    // The paper is opaque, so every pixel is.
    let mixed = PremultipliedColorU8::from_rgba(
        mix(pixel.red(), r),
        mix(pixel.green(), g),
        mix(pixel.blue(), b),
        255,
    );
    if let Some(mixed) = mixed {
        *pixel = mixed;
    }
}
