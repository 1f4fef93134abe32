//! From recorded facts to shapes: decides where everything goes and in which colour, draws
//! nothing. The same shapes become a picture, a report, and later a window.

mod legend;
mod map;
mod scene;
mod theme;
mod timeline;

pub use scene::{Anchor, Color, Fill, Rect, Scene, Shape};

use crate::model::{Picture, State};
use crate::units;

use scene::Pen;
use theme::Theme;

/// Width of a text in pixels, given its size.
pub type Measure<'a> = &'a dyn Fn(&str, f32) -> f32;

const MARGIN: f32 = 48.0;
/// Room on the left of both charts for the labels of their vertical axis.
const AXIS: f32 = 92.0;

/// Lays a whole picture out.
pub fn picture(picture: &Picture, width: u32, height: u32, measure: Measure<'_>) -> Scene {
    let (w, h) = (width as f32, height as f32);
    let theme = Theme::light();
    let mut pen = Pen::new(w, h, theme.paper);
    pen.text((MARGIN, 62.0), 30.0, Anchor::Start, theme.ink, &picture.title);
    pen.text((MARGIN, 90.0), 16.0, Anchor::Start, theme.faint, &picture.subtitle);
    figures(&mut pen, &theme, picture, w);
    let chart_w = w - 2.0 * MARGIN - AXIS;
    let timeline_h = (h * 0.2).clamp(120.0, 320.0);
    let timeline = Rect::new(MARGIN + AXIS, h - MARGIN - 34.0 - timeline_h, chart_w, timeline_h);
    let map_top = 250.0;
    let map_h = (timeline.y - 118.0 - map_top).max(80.0);
    let map = Rect::new(MARGIN + AXIS, map_top, chart_w, map_h);
    map::draw(&mut pen, &theme, &picture.map, map, measure);
    timeline::draw(&mut pen, &theme, &picture.timeline, timeline, measure);
    pen.finish()
}

/// The figures of the moment, side by side.
fn figures(pen: &mut Pen, theme: &Theme, picture: &Picture, width: f32) {
    let map = &picture.map;
    let live = map.bytes_of(|state| matches!(state, State::Live { .. }));
    let free = map.bytes_of(|state| state == State::Free);
    let pending = map.bytes_of(|state| state == State::Pending);
    let entries = [
        ("Reserved", units::bytes(map.bytes())),
        ("In live blocks", units::bytes(live)),
        ("Free", units::bytes(free)),
        ("Largest free", units::bytes(map.largest_free())),
        ("Pending", units::bytes(pending)),
        ("Live blocks", units::count(map.blocks() as u64)),
        ("Segments", units::count(map.segments.len() as u64)),
    ];
    let step = (width - 2.0 * MARGIN) / entries.len() as f32;
    for (at, (label, value)) in entries.iter().enumerate() {
        let x = MARGIN + step * at as f32;
        pen.text((x, 132.0), 14.0, Anchor::Start, theme.faint, label);
        pen.text((x, 160.0), 24.0, Anchor::Start, theme.ink, value);
    }
}
