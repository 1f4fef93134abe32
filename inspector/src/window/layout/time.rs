//! The axis of time, by events or by the clock.

use egui::Rangef;

use crate::units;
use crate::window::model::Recording;

/// What the axis counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Axis {
    /// Events.
    Events,
    /// Microseconds.
    Clock,
}

/// What is visible: from and to, in events or microseconds.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Span {
    /// At the left edge.
    pub from: f64,
    /// At the right edge.
    pub to: f64,
}

/// From moments to points and back.
#[derive(Clone, Copy)]
pub struct TimeScale<'a> {
    /// What is shown.
    pub recording: &'a Recording,
    /// What the axis counts.
    pub axis: Axis,
    /// What is visible.
    pub span: Span,
    /// Left and right edge in points.
    pub x: Rangef,
}

impl<'a> TimeScale<'a> {
    /// All of a recording, or a span of it.
    pub fn new(recording: &'a Recording, axis: Axis, span: Option<Span>, x: Rangef) -> Self {
        let axis = if recording.has_times() { axis } else { Axis::Events };
        let whole = Self::whole(recording, axis);
        Self { recording, axis, span: span.unwrap_or(whole), x }
    }

    /// The span of everything.
    pub fn whole(recording: &Recording, axis: Axis) -> Span {
        let to = match axis {
            Axis::Events => f64::from(recording.end()),
            Axis::Clock => recording.time_us(recording.end()) as f64,
        };
        Span { from: 0.0, to: to.max(1.0) }
    }

    /// Where a moment is on the axis, in events or microseconds.
    pub fn value(&self, moment: u32) -> f64 {
        match self.axis {
            Axis::Events => f64::from(moment),
            Axis::Clock => self.recording.time_us(moment) as f64,
        }
    }

    /// Where a value of the axis is.
    pub fn x_of_value(&self, value: f64) -> f32 {
        let part = (value - self.span.from) / (self.span.to - self.span.from).max(1e-9);
        self.x.min + (part * f64::from(self.x.span())) as f32
    }

    fn value_at(&self, x: f32) -> f64 {
        let part = f64::from((x - self.x.min) / self.x.span().max(1.0));
        self.span.from + part * (self.span.to - self.span.from)
    }

    /// Where a moment is.
    pub fn x_of(&self, moment: u32) -> f32 {
        self.x_of_value(self.value(moment))
    }

    /// The moment at a point.
    pub fn moment_at(&self, x: f32) -> u32 {
        let value = self.value_at(x).max(0.0);
        let end = self.recording.end();
        match self.axis {
            Axis::Events => (value.round() as u32).min(end),
            Axis::Clock => self.recording.moment_at(value as u64).min(end),
        }
    }

    /// Moments at the edges of columns, ascending; one more than there are columns.
    pub fn edges(&self, columns: usize) -> Vec<u32> {
        let step = self.x.span() / columns.max(1) as f32;
        let mut last = 0;
        let edge = |column: usize| {
            last = last.max(self.moment_at(self.x.min + step * column as f32));
            last
        };
        (0..=columns).map(edge).collect()
    }

    /// The span zoomed by a factor about a point.
    pub fn zoomed(&self, x: f32, factor: f64) -> Span {
        let at = self.value_at(x);
        let whole = Self::whole(self.recording, self.axis);
        let length = (self.span.to - self.span.from) / factor;
        let length = length.clamp(4.0_f64.min(whole.to), whole.to * 1.2);
        let part = (at - self.span.from) / (self.span.to - self.span.from).max(1e-9);
        let from = at - part * length;
        Span { from, to: from + length }.kept(whole)
    }

    /// The span dragged by so many points.
    pub fn panned(&self, by: f32) -> Span {
        let whole = Self::whole(self.recording, self.axis);
        let delta = f64::from(by / self.x.span().max(1.0)) * (self.span.to - self.span.from);
        Span { from: self.span.from - delta, to: self.span.to - delta }.kept(whole)
    }

    /// Marks on the axis: position and words.
    pub fn ticks(&self, apart: f32) -> Vec<(f32, String)> {
        let length = self.span.to - self.span.from;
        let parts = f64::from((self.x.span() / apart).max(1.0));
        let step =
            units::step(length, parts).max(if self.axis == Axis::Events { 1.0 } else { 0.0 });
        let mut at = (self.span.from / step).ceil() * step;
        let mut ticks = Vec::new();
        while at <= self.span.to && ticks.len() < 100 {
            ticks.push((self.x_of_value(at), self.text(at, step)));
            at += step;
        }
        ticks
    }

    fn text(&self, value: f64, step: f64) -> String {
        match self.axis {
            Axis::Events => units::count(value.max(0.0) as u64),
            Axis::Clock => micros(value, step),
        }
    }

    /// A moment in words: its event and, where there is one, its time.
    pub fn describe(recording: &Recording, moment: u32) -> String {
        let event = format!("event {}", units::count(u64::from(moment)));
        if recording.has_times() {
            format!("{event}, {}", micros(recording.time_us(moment) as f64, 1.0))
        } else {
            event
        }
    }
}

impl Span {
    /// Not beyond what there is, but for a little.
    fn kept(self, whole: Span) -> Self {
        let length = self.to - self.from;
        let from = self.from.clamp(-length * 0.1, (whole.to - length * 0.9).max(-length * 0.1));
        Self { from, to: from + length }
    }
}

/// Microseconds in words, with the digits that a step of an axis needs.
fn micros(us: f64, step: f64) -> String {
    let (unit, size) = if us.abs() >= 1e6 || step >= 1e5 {
        ("s", 1e6)
    } else if us.abs() >= 1e3 || step >= 1e2 {
        ("ms", 1e3)
    } else {
        ("us", 1.0)
    };
    let digits = (-(step / size).log10().floor()).clamp(0.0, 3.0) as usize;
    format!("{:.digits$} {unit}", us / size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_digits_that_their_step_needs() {
        assert_eq!(micros(1_500_000.0, 500_000.0), "1.5 s");
        assert_eq!(micros(2_000_000.0, 1_000_000.0), "2 s");
        assert_eq!(micros(1_234.0, 1.0), "1.234 ms");
        assert_eq!(micros(0.0, 1_000_000.0), "0 s");
    }
}
