//! Two allocators replay the recorded requests side by side.

use std::sync::Arc;

use egui::{Rect, RichText, Shape, Stroke, Ui, pos2};
use terrane_trace::model::{ModelSpec, Outcome, replay_each};

use super::canvas::Canvas;
use super::leaks::as_trace;
use super::legend::{Sign, legend};
use super::timeline::{BELOW, LEFT, bytes_axis, move_span, now, time_axis, time_signs};
use super::{Stage, empty, header, waiting};
use crate::units;
use crate::window::job::Job;
use crate::window::layout::TimeScale;
use crate::window::model::Recording;
use crate::window::view::View;

/// Points kept of each replay.
const POINTS: usize = 4096;

/// The allocators asked for, and what they did.
pub struct WhatifPanel {
    specs: [String; 2],
    capacity: String,
    asked: Option<[String; 3]>,
    job: Job<Result<[Replayed; 2], String>>,
}

impl Default for WhatifPanel {
    fn default() -> Self {
        Self {
            specs: ["pytorch".to_owned(), "pytorch-expandable".to_owned()],
            capacity: String::new(),
            asked: None,
            job: Job::Idle,
        }
    }
}

impl WhatifPanel {
    /// Whether a thread works on it.
    pub fn is_busy(&mut self) -> bool {
        self.job.poll();
        self.job.is_running()
    }
}

/// What an allocator did.
#[derive(Clone, Debug)]
struct Replayed {
    /// Largest reserved bytes up to each point: (moment, bytes).
    points: Vec<(u32, u64)>,
    outcome: Outcome,
    validation: String,
}

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    let recording = Arc::clone(&stage.document.recording);
    if recording.events.is_empty() {
        let text = "A replay needs the requests of a run; this file has one moment.";
        empty(ui, "Nothing to replay", text);
        return;
    }
    choices(ui, stage);
    let panel = &mut stage.document.panels.whatif;
    let asked = [panel.specs[0].clone(), panel.specs[1].clone(), panel.capacity.clone()];
    if panel.asked.as_ref() != Some(&asked) && !panel.job.is_running() {
        panel.asked = Some(asked.clone());
        let work = Arc::clone(&recording);
        panel.job = Job::start(ui.ctx(), move || replay_both(&work, &asked));
    }
    match panel.job.poll().cloned() {
        None => waiting(ui, "replaying…"),
        Some(Err(error)) => empty(ui, "That cannot be replayed", &error),
        Some(Ok(both)) => {
            figures(ui, stage, &both);
            chart(ui, stage, &both);
        }
    }
}

/// A line without the points at which it goes straight on: dashes stay even.
fn corners(points: impl Iterator<Item = egui::Pos2>) -> Vec<egui::Pos2> {
    let mut line: Vec<egui::Pos2> = Vec::new();
    for point in points {
        if let [.., before, last] = line.as_mut_slice()
            && before.y == last.y
            && last.y == point.y
        {
            *last = point;
            continue;
        }
        line.push(point);
    }
    line
}

fn choices(ui: &mut Ui, stage: &mut Stage<'_>) {
    let colors = [stage.look.kinds[0], stage.look.kinds[1]];
    let panel = &mut stage.document.panels.whatif;
    header(ui, |ui| {
        for (at, color) in colors.into_iter().enumerate() {
            ui.label(RichText::new(["A", "B"][at]).strong().color(color));
            let shown = egui::ComboBox::from_id_salt(("allocator", at))
                .selected_text(panel.specs[at].clone())
                .width(150.0)
                .show_ui(ui, |ui| {
                    for name in ModelSpec::NAMES {
                        ui.selectable_value(&mut panel.specs[at], name.to_owned(), name);
                    }
                    for conf in ["max_split_size_mb=128", "roundup_power2_divisions=8"] {
                        let spec = format!("pytorch:{conf}");
                        ui.selectable_value(&mut panel.specs[at], spec.clone(), spec);
                    }
                });
            shown.response.accessible_name(["allocator A", "allocator B"][at]);
        }
        ui.weak("limit");
        let field =
            egui::TextEdit::singleline(&mut panel.capacity).hint_text("none").desired_width(70.0);
        ui.add(field)
            .on_hover_text("bytes that both may reserve: 8GiB, 23500000000; empty for no limit")
            .accessible_name("limit");
    });
}

fn replay_both(recording: &Recording, asked: &[String; 3]) -> Result<[Replayed; 2], String> {
    let capacity = match asked[2].trim() {
        "" => None,
        text => {
            let parsed: terrane_trace::replay::Capacity = text.parse()?;
            parsed.bytes(recording.series.most[1])
        }
    };
    let trace = as_trace(recording).ok_or("the events contradict each other")?;
    let one = |text: &str| -> Result<Replayed, String> {
        let spec = ModelSpec::parse(text).map_err(|error| error.to_string())?;
        let mut model = spec.build(capacity);
        let stride = trace.events().len().div_ceil(POINTS).max(1);
        let (mut points, mut most) = (Vec::with_capacity(POINTS), 0);
        let outcome = replay_each(&trace, &mut *model, |step, _| {
            most = most.max(step.reserved);
            if (step.event + 1).is_multiple_of(stride) || step.event + 1 == trace.events().len() {
                points.push((step.event as u32 + 1, most));
                most = 0;
            }
        });
        Ok(Replayed { points, outcome, validation: spec.validation().to_string() })
    };
    Ok([one(&asked[0])?, one(&asked[1])?])
}

fn figures(ui: &mut Ui, stage: &Stage<'_>, both: &[Replayed; 2]) {
    let specs = stage.document.panels.whatif.specs.clone();
    egui::Grid::new("outcomes").num_columns(6).striped(true).spacing([16.0, 3.0]).show(ui, |ui| {
        for title in ["", "allocator", "peak reserved", "of requested", "failures", "retries"] {
            ui.weak(title);
        }
        ui.end_row();
        for (at, replayed) in both.iter().enumerate() {
            let outcome = &replayed.outcome;
            ui.label(RichText::new(["A", "B"][at]).strong().color(stage.look.kinds[at]));
            ui.label(&specs[at]).on_hover_text(&replayed.validation);
            let exact = format!("{} bytes", units::count(outcome.peak_reserved));
            ui.label(units::bytes(outcome.peak_reserved)).on_hover_text(exact);
            let ratio = outcome.peak_reserved as f64 / outcome.peak_requested.max(1) as f64;
            ui.label(format!("{ratio:.4}×"));
            let failures = RichText::new(units::count(outcome.failures));
            let bad = outcome.failures > 0;
            ui.label(if bad { failures.color(stage.look.alarm).strong() } else { failures });
            ui.label(units::count(outcome.retries));
            ui.end_row();
        }
    });
    ui.weak(
        "The program is taken to make the same requests in the same order, also after one failed.",
    );
}

fn chart(ui: &mut Ui, stage: &mut Stage<'_>, both: &[Replayed; 2]) {
    let look = stage.look;
    let mut signs = vec![
        (Sign::Line, look.kinds[0], "A reserved".to_owned()),
        (Sign::Dashed, look.kinds[1], "B reserved (dashed)".to_owned()),
        (Sign::Line, look.reserved, "reserved as shown".to_owned()),
    ];
    signs.extend(time_signs(stage));
    legend(ui, stage, &[], &signs);
    let recording = Arc::clone(&stage.document.recording);
    let name = format!(
        "Reserved bytes of two allocators: A at most {}, B at most {}",
        units::bytes(both[0].outcome.peak_reserved),
        units::bytes(both[1].outcome.peak_reserved)
    );
    let canvas = Canvas::new(ui, stage, View::Whatif, &name);
    move_span(stage, &canvas);
    let area = Rect::from_min_max(
        pos2(canvas.rect.left() + LEFT, canvas.rect.top() + 12.0),
        pos2(canvas.rect.right() - 8.0, canvas.rect.bottom() - BELOW),
    );
    let painter = ui.painter_at(canvas.rect);
    painter.rect_filled(canvas.rect, 3.0, look.paper);
    let sight = stage.document.sight;
    let scale = TimeScale::new(&recording, sight.axis, sight.span, area.x_range());
    let peaks = both.iter().map(|replayed| replayed.outcome.peak_reserved);
    let most = peaks.max().unwrap_or(0).max(recording.series.most[2]);
    let top = (most + most / 12).max(1);
    bytes_axis(&painter, &look, area, top);
    time_axis(&painter, &look, &scale, area);
    let clipped = painter.with_clip_rect(area);
    let y = |bytes: u64| area.bottom() - area.height() * (bytes as f64 / top as f64) as f32;
    let columns = area.width().max(1.0) as usize;
    let edges = scale.edges(columns);
    let shown = recording.series.columns(&edges, &recording.events, &recording.blocks);
    let at = |column: usize| area.left() + area.width() * column as f32 / columns as f32;
    let points = shown.iter().enumerate().map(|(n, c)| pos2(at(n), y(c.max[2]))).collect();
    clipped.add(Shape::line(points, Stroke::new(1.2, look.reserved)));
    for (at, replayed) in both.iter().enumerate() {
        let point = |(moment, bytes): &(u32, u64)| pos2(scale.x_of(*moment), y(*bytes));
        let points = corners(replayed.points.iter().map(point));
        let stroke = Stroke::new(2.0, look.kinds[at]);
        if at == 0 {
            clipped.add(Shape::line(points, stroke));
        } else {
            clipped.extend(Shape::dashed_line(&points, stroke, 7.0, 4.0));
        }
    }
    now(ui, stage, &canvas, &scale, area);
}
