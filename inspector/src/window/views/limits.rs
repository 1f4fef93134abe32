//! The limit, and what others hold, over the run: beside the bytes of the timeline, and alone as
//! headroom.

use egui::{Align2, Painter, Pos2, Rect, RichText, Shape, Stroke, Ui, pos2, vec2};

use super::Stage;
use super::legend::{Key, Sign, SignKey};
use super::timeline::{BELOW, LEFT, bytes_axis, time_axis};
use crate::units;
use crate::window::layout::TimeScale;
use crate::window::model::{LimitRow, Recording};
use crate::window::paint::{Cell, Cells, Look, Pattern};

/// The limits of a moment: those that the recording tells, else the one that was inferred from its
/// failures, if that has been done.
pub fn limit_at(recording: &Recording, inferred: Option<u64>, at: u32) -> Option<LimitRow> {
    let known = recording.limits_at(at).copied().unwrap_or_default();
    let limit = if known.limit > 0 { known.limit } else { inferred.unwrap_or(0) };
    (limit > 0 || known.device_total > 0).then_some(LimitRow { limit, ..known })
}

/// The limit that was inferred, if the explanation has been worked out.
pub fn inferred(stage: &mut Stage<'_>) -> Option<u64> {
    stage.document.panels.explain.limit().flatten().map(|limit| limit.at_least)
}

/// The largest limit of the run, where it is not so far above the bytes that they would be flat.
pub fn top_of(recording: &Recording, inferred: Option<u64>, most: u64) -> u64 {
    let limits = recording.limits.iter().map(|row| row.limit).chain(inferred);
    limits.filter(|limit| *limit <= most.saturating_mul(4)).max().unwrap_or(0).max(most)
}

/// Where a chart of bytes is.
#[derive(Clone, Copy)]
pub struct Frame {
    /// Its area.
    pub area: Rect,
    /// Bytes at its upper edge.
    pub top: u64,
}

impl Frame {
    fn y(&self, bytes: u64) -> f32 {
        let part = bytes as f64 / self.top.max(1) as f64;
        self.area.bottom() - self.area.height() * part as f32
    }
}

/// The limit as a line of dots and dashes, and above the reserved bytes what others hold.
pub fn over_bytes(
    stage: &mut Stage<'_>,
    painter: &Painter,
    frame: Frame,
    (edges, reserved): (&[u32], &[u64]),
) {
    let recording = std::sync::Arc::clone(&stage.document.recording);
    let inferred = inferred(stage);
    let (look, width) = (stage.look, frame.area.width() / reserved.len().max(1) as f32);
    let (mut line, mut bands): (Vec<Pos2>, Vec<Cell>) = (Vec::new(), Vec::new());
    for (column, (&at, &reserved)) in edges.iter().skip(1).zip(reserved).enumerate() {
        let Some(row) = limit_at(&recording, inferred, at) else { continue };
        let x = frame.area.left() + width * column as f32;
        if row.limit > 0 {
            line.push(pos2(x + width / 2.0, frame.y(row.limit)));
        }
        if let Some(others) = row.untracked(reserved).filter(|bytes| *bytes > 0) {
            let (low, high) = (frame.y(reserved), frame.y(reserved.saturating_add(others)));
            let rect = Rect::from_min_max(pos2(x, high), pos2(x + width, low));
            bands.push(Cell::new(rect, (look.paper, look.faint), Pattern::Dots));
        }
    }
    stage.surface.draw(painter, 21, &Cells::new(bands));
    painter.extend(Shape::dashed_line_with_offset(
        &line,
        Stroke::new(1.5, look.alarm),
        &[8.0, 2.0],
        &[3.0, 3.0],
        0.0,
    ));
}

/// What the curves are, for a legend.
pub fn keys(stage: &mut Stage<'_>) -> (Vec<Key>, Vec<SignKey>) {
    let look = stage.look;
    let inferred = inferred(stage);
    let limits = &stage.document.recording.limits;
    let (mut areas, mut signs) = (Vec::new(), Vec::new());
    if let Some(limit) = limits.iter().map(|row| row.limit).filter(|l| *l > 0).max() {
        let text = format!("limit, at most {}", units::bytes(limit));
        signs.push((Sign::DashDot, look.alarm, text));
    } else if let Some(limit) = inferred {
        let text = format!("limit, at least {} (inferred)", units::bytes(limit));
        signs.push((Sign::DashDot, look.alarm, text));
    }
    if limits.iter().any(|row| row.device_total > 0) {
        let text = "untracked: others and the driver".to_owned();
        areas.push(((look.paper, look.faint), Pattern::Dots, text));
    }
    (areas, signs)
}

/// Height of the chart of headroom.
const HEIGHT: f32 = 150.0;

/// Bytes between what is reserved and the limit, over the run.
pub fn headroom(ui: &mut Ui, stage: &mut Stage<'_>) {
    let recording = std::sync::Arc::clone(&stage.document.recording);
    let inferred = inferred(stage);
    let has_limit = inferred.is_some() || recording.limits.iter().any(|row| row.limit > 0);
    if recording.events.is_empty() || !has_limit {
        return;
    }
    ui.add_space(10.0);
    let title = ui.horizontal(|ui| ui.label(RichText::new("Headroom over the run").strong()));
    let size = vec2(ui.available_width(), HEIGHT);
    let (rect, response) = ui.allocate_exact_size(size, egui::Sense::click());
    let area = Rect::from_min_max(
        pos2(rect.left() + LEFT, rect.top() + 8.0),
        pos2(rect.right() - 8.0, rect.bottom() - BELOW),
    );
    let sight = stage.document.sight;
    let scale = TimeScale::new(&recording, sight.axis, sight.span, area.x_range());
    let columns = (area.width() * ui.pixels_per_point()).max(1.0) as usize;
    let edges = scale.edges(columns);
    let made = recording.series.columns(&edges, &recording.events, &recording.blocks);
    let rooms: Vec<u64> = edges
        .iter()
        .skip(1)
        .zip(&made)
        .map(|(&at, column)| {
            let limit = limit_at(&recording, inferred, at).map_or(0, |row| row.limit);
            limit.saturating_sub(column.max[2])
        })
        .collect();
    let (least, most) = (rooms.iter().min(), rooms.iter().max().copied().unwrap_or(0));
    let least = least.copied().unwrap_or(0);
    // Beside the title, where it covers nothing.
    let beside = title.response.rect.right_center() + vec2(10.0, 0.0);
    let text = format!("least: {}", units::bytes(least));
    let font = egui::TextStyle::Body.resolve(ui.style());
    ui.painter().text(beside, Align2::LEFT_CENTER, text, font, stage.look.faint);
    let words = format!("Headroom over the run: at least {}", units::bytes(least));
    response.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Image, true, &words));
    let painter = ui.painter_at(rect);
    painter.rect_filled(rect, 3.0, stage.look.paper);
    let frame = Frame { area, top: (most + most / 12).max(1) };
    bytes_axis(&painter, &stage.look, area, frame.top);
    time_axis(&painter, &stage.look, &scale, area);
    let cells = bars(&rooms, frame, &stage.look);
    stage.surface.draw(&painter.with_clip_rect(area), 61, &Cells::new(cells));
    let x = scale.x_of(sight.at);
    let now = Stroke::new(1.8, stage.look.now);
    painter.extend(Shape::dashed_line(
        &[pos2(x, area.top()), pos2(x, area.bottom())],
        now,
        5.0,
        3.0,
    ));
    if response.clicked()
        && let Some(at) = response.interact_pointer_pos()
    {
        stage.document.sight.at = scale.moment_at(at.x);
    }
}

fn bars(rooms: &[u64], frame: Frame, look: &Look) -> Vec<Cell> {
    let width = frame.area.width() / rooms.len().max(1) as f32;
    let bar = |(column, room): (usize, &u64)| {
        let left = frame.area.left() + width * column as f32;
        let (low, high) = (frame.area.bottom(), frame.y(*room));
        Cell::new(
            Rect::from_min_max(pos2(left, high), pos2(left + width, low)),
            (look.paper, look.active),
            Pattern::Hatch,
        )
    };
    rooms.iter().enumerate().map(bar).collect()
}
