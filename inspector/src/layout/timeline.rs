//! Requested, active and reserved over the run.

use super::legend::{self, Key};
use super::scene::{Anchor, Fill, Pen, Rect};
use super::{Measure, Theme};
use crate::model::{Sample, Timeline};
use crate::units;

const DASH: (f32, f32) = (7.0, 4.0);

/// Draws the chart with its axes and legend. `area` is the chart's own.
pub fn draw(pen: &mut Pen, theme: &Theme, line: &Timeline, area: Rect, measure: Measure<'_>) {
    let title = "The recorded run";
    pen.text((area.x, area.y - 20.0), 18.0, Anchor::Start, theme.ink, title);
    let keys = [
        (Key::Line(theme.reserved, None), "reserved".to_owned()),
        (Key::Line(theme.active, Some(DASH)), "active".to_owned()),
        (Key::Patch(Fill::Solid(theme.requested)), "requested".to_owned()),
        (Key::Line(theme.mark, Some((3.0, 3.0))), "the moment above".to_owned()),
    ];
    legend::draw(pen, theme, &keys, (area.right(), area.y - 20.0), measure);
    pen.rect(area, Fill::Solid(theme.panel));
    let scale = Scale::of(line, area);
    axes(pen, theme, &scale);
    let Some(first) = line.samples.first() else { return };
    let mut area_points = vec![(scale.x(first), area.bottom())];
    area_points.extend(line.samples.iter().map(|s| (scale.x(s), scale.y(s.requested))));
    let last = line.samples.last().unwrap_or(first);
    area_points.push((scale.x(last), area.bottom()));
    pen.area(area_points, theme.requested);
    // A peak between two samples that are far lower would be thinner than a pixel.
    for sample in &line.samples {
        let x = scale.x(sample);
        pen.line(vec![(x, area.bottom()), (x, scale.y(sample.requested))], 1.2, theme.requested);
    }
    let curve = |value: fn(&Sample) -> u64| -> Vec<(f32, f32)> {
        line.samples.iter().map(|s| (scale.x(s), scale.y(value(s)))).collect()
    };
    pen.dashed(curve(|s| s.active), theme.active, 1.6, DASH);
    pen.line(curve(|s| s.reserved), 2.2, theme.reserved);
    if let Some(marked) = line.samples.get(line.marked) {
        let x = scale.x(marked);
        let y = scale.y(marked.requested);
        pen.dashed(vec![(x, area.y - 6.0), (x, y)], theme.mark, 1.6, (3.0, 3.0));
        pen.area(vec![(x - 5.0, y - 9.0), (x + 5.0, y - 9.0), (x, y)], theme.mark);
    }
}

struct Scale {
    area: Rect,
    from_ms: f64,
    span_ms: f64,
    top: u64,
    step: u64,
}

impl Scale {
    fn of(line: &Timeline, area: Rect) -> Self {
        let peak = line.samples.iter().map(|s| s.reserved.max(s.active)).max().unwrap_or(0);
        let step = units::byte_step(peak.max(4), 4);
        let from_ms = line.samples.first().map_or(0.0, |s| s.time_ms);
        let to_ms = line.samples.last().map_or(1.0, |s| s.time_ms);
        let span_ms = (to_ms - from_ms).max(1e-3);
        Self { area, from_ms, span_ms, top: (peak + peak / 16).max(1), step }
    }

    fn x(&self, sample: &Sample) -> f32 {
        self.x_ms(sample.time_ms)
    }

    fn x_ms(&self, ms: f64) -> f32 {
        self.area.x + self.area.w * ((ms - self.from_ms) / self.span_ms) as f32
    }

    fn y(&self, bytes: u64) -> f32 {
        self.area.bottom() - self.area.h * (bytes as f64 / self.top as f64) as f32
    }
}

fn axes(pen: &mut Pen, theme: &Theme, scale: &Scale) {
    let area = scale.area;
    let mut bytes = 0;
    while bytes <= scale.top {
        let y = scale.y(bytes);
        pen.line(vec![(area.x, y), (area.right(), y)], 1.0, theme.grid);
        let label = units::bytes(bytes);
        pen.text((area.x - 12.0, y + 4.5), 13.0, Anchor::End, theme.faint, &label);
        bytes += scale.step;
    }
    let step = units::step(scale.span_ms, 6.0);
    let mut ms = (scale.from_ms / step).ceil() * step;
    while ms <= scale.from_ms + scale.span_ms {
        let x = scale.x_ms(ms);
        pen.line(vec![(x, area.bottom()), (x, area.bottom() + 6.0)], 1.0, theme.faint);
        let label = if step >= 1000.0 {
            format!("{:.0} s", ms / 1000.0)
        } else if scale.span_ms >= 2000.0 {
            format!("{:.1} s", ms / 1000.0)
        } else {
            format!("{ms:.0} ms")
        };
        pen.text((x, area.bottom() + 22.0), 13.0, Anchor::Middle, theme.faint, &label);
        ms += step;
    }
}
