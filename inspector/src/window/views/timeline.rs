//! Requested, active and reserved bytes over the run.

use std::collections::HashMap;
use std::sync::Arc;

use egui::{Align2, Color32, FontId, Painter, Rangef, Rect, Shape, Stroke, Ui, pos2, vec2};

use super::canvas::Canvas;
use super::legend::{Sign, SignKey, legend};
use super::{Stage, bytes, empty, header, limits};
use crate::units;
use crate::window::layout::{Axis, Span, TimeScale};
use crate::window::model::{Column, EventOp, Recording, short_site};
use crate::window::paint::{Cell, Cells, Look, Pattern};
use crate::window::view::View;

/// What was worked out for the last frame, and for what.
#[derive(Default)]
pub struct TimePanel {
    columns: Option<(Key, Vec<Column>)>,
    stacked: Option<(Key, Stacked)>,
    by_site: bool,
    as_table: bool,
}

impl TimePanel {
    /// Drops what was worked out.
    pub fn forget(&mut self) {
        (self.columns, self.stacked) = (None, None);
    }
}

type Key = (*const Recording, Axis, Option<[u64; 2]>, usize);

/// Live bytes by site in each column.
#[derive(Default)]
struct Stacked {
    names: Vec<String>,
    /// Bytes of each name, column by column.
    bytes: Vec<[u64; 8]>,
}

/// Room at the left for the labels of the vertical axis.
pub const LEFT: f32 = 70.0;
/// Room below for the labels of the axis of time.
pub const BELOW: f32 = 22.0;

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    if stage.document.recording.events.is_empty() {
        let text = "This file has no history, only one moment. In PyTorch, call \
            torch.cuda.memory._record_memory_history() before the run.";
        empty(ui, "No timeline", text);
        return;
    }
    let (look, recording) = (stage.look, Arc::clone(&stage.document.recording));
    let most = recording.series.most;
    header(ui, |ui| {
        bytes(ui, &look, "peak requested", most[0]);
        bytes(ui, &look, "peak active", most[1]);
        bytes(ui, &look, "peak reserved", most[2]);
        axis_choice(ui, stage);
        let by_site = &mut stage.document.panels.time.by_site;
        ui.checkbox(by_site, "by site").on_hover_text("stack the live bytes by who asked for them");
        let as_table = &mut stage.document.panels.time.as_table;
        ui.checkbox(as_table, "table").on_hover_text("the figures, in equal parts of the run");
    });
    if stage.document.panels.time.as_table {
        super::rows::show(ui, stage, super::rows::Kind::Course);
        return;
    }
    let name = format!(
        "Timeline: {} events, peak active {} at event {}",
        units::count(recording.events.len() as u64),
        units::bytes(most[1]),
        units::count(u64::from(recording.peak()))
    );
    keys(ui, stage);
    let canvas = Canvas::new(ui, stage, View::Timeline, &name);
    move_span(stage, &canvas);
    draw(ui, stage, &canvas);
}

/// By clock or by events.
pub fn axis_choice(ui: &mut Ui, stage: &mut Stage<'_>) {
    if !stage.document.recording.has_times() {
        return;
    }
    let sight = &mut stage.document.sight;
    for (axis, text) in [(Axis::Events, "events"), (Axis::Clock, "clock")] {
        if ui.selectable_label(sight.axis == axis, text).clicked() && sight.axis != axis {
            (sight.axis, sight.span) = (axis, None);
        }
    }
}

fn keys(ui: &mut Ui, stage: &mut Stage<'_>) {
    let look = stage.look;
    let solid = |color: Color32, text: &str| ((color, color), Pattern::Solid, text.to_owned());
    let mut areas = Vec::new();
    if stage.document.panels.time.by_site {
        if let Some((_, stacked)) = &stage.document.panels.time.stacked {
            let names = stacked.names.iter().zip(look.kinds);
            areas.extend(names.map(|(name, color)| solid(color, short_site(name))));
        }
    } else {
        areas.push(solid(look.requested, "requested"));
    }
    let mut signs = vec![
        (Sign::Dashed, look.active, "active".to_owned()),
        (Sign::Line, look.reserved, "reserved".to_owned()),
    ];
    let (others, limit) = limits::keys(stage);
    areas.extend(others);
    signs.extend(limit);
    signs.extend(time_signs(stage));
    legend(ui, stage, &areas, &signs);
}

/// What is drawn over every chart of time by [`now`].
pub fn time_signs(stage: &Stage<'_>) -> Vec<SignKey> {
    let (look, document) = (stage.look, &*stage.document);
    let mut signs = vec![(Sign::Moment, look.now, "the moment shown".to_owned())];
    if !document.marks.is_empty() {
        signs.push((Sign::Marked, look.select, "marked".to_owned()));
    }
    if !document.recording.failures.is_empty() {
        signs.push((Sign::Tip, look.alarm, "failed requests".to_owned()));
    }
    if !document.recording.gaps.is_empty() {
        signs.push((Sign::Cross, look.alarm, "×: events were lost".to_owned()));
    }
    signs
}

/// Pans and zooms the axis of time that all charts share.
pub fn move_span(stage: &mut Stage<'_>, canvas: &Canvas) {
    let document = &mut *stage.document;
    if canvas.fit {
        document.sight.span = None;
    }
    let x = Rangef::new(canvas.rect.left() + LEFT, canvas.rect.right() - 8.0);
    let sight = document.sight;
    let mut scale = TimeScale::new(&document.recording, sight.axis, sight.span, x);
    if canvas.zoom != 1.0 {
        scale.span = scale.zoomed(canvas.about.x, canvas.zoom);
    }
    if canvas.pan.x != 0.0 {
        scale.span = scale.panned(canvas.pan.x);
    }
    if canvas.zoom != 1.0 || canvas.pan.x != 0.0 {
        document.sight.span = Some(scale.span);
    }
}

/// The axis of time, the moment shown, marks and failures.
pub fn time_axis(painter: &Painter, look: &Look, scale: &TimeScale<'_>, area: Rect) {
    for (x, text) in scale.ticks(110.0) {
        painter.vline(x, area.y_range(), Stroke::new(1.0, look.grid));
        let font = FontId::proportional(11.5);
        painter.text(pos2(x, area.bottom() + 5.0), Align2::CENTER_TOP, text, font, look.faint);
    }
}

/// The moment shown, marks and failures, and what a click does.
pub fn now(ui: &Ui, stage: &mut Stage<'_>, canvas: &Canvas, scale: &TimeScale<'_>, area: Rect) {
    let (look, document) = (stage.look, &mut *stage.document);
    let painter = ui.painter_at(area.expand2(vec2(4.0, 8.0)));
    for failure in &document.recording.failures {
        let x = scale.x_of(failure.at);
        if area.x_range().contains(x) {
            let tip = pos2(x, area.top() + 9.0);
            let corners = vec![tip + vec2(-4.5, -8.0), tip + vec2(4.5, -8.0), tip];
            painter.add(Shape::convex_polygon(corners, look.alarm, Stroke::NONE));
        }
    }
    for gap in &document.recording.gaps {
        let x = scale.x_of(gap.at);
        if area.x_range().contains(x) {
            let line = [pos2(x, area.top()), pos2(x, area.bottom())];
            painter.extend(Shape::dashed_line(&line, Stroke::new(1.0, look.alarm), 3.0, 3.0));
            let (corner, arm) = (pos2(x, area.top() - 3.0), 3.5);
            for side in [-1.0, 1.0] {
                let ends = [corner + vec2(-arm, -arm * side), corner + vec2(arm, arm * side)];
                painter.line_segment(ends, Stroke::new(1.5, look.alarm));
            }
        }
    }
    for mark in &document.marks {
        let x = scale.x_of(*mark);
        painter.vline(x, area.y_range(), Stroke::new(1.0, look.select));
        painter.text(
            pos2(x + 3.0, area.top() + 2.0),
            Align2::LEFT_TOP,
            "M",
            FontId::proportional(10.0),
            look.select,
        );
    }
    let x = scale.x_of(document.sight.at);
    painter.extend(Shape::dashed_line(
        &[pos2(x, area.top() - 5.0), pos2(x, area.bottom())],
        Stroke::new(1.8, look.now),
        5.0,
        3.0,
    ));
    let clicked =
        canvas.response.clicked() || canvas.response.dragged_by(egui::PointerButton::Secondary);
    if clicked && let Some(at) = canvas.response.interact_pointer_pos() {
        document.sight.at = scale.moment_at(at.x);
    }
}

fn key(stage: &Stage<'_>, columns: usize) -> Key {
    let sight = &stage.document.sight;
    let span = sight.span.map(|Span { from, to }| [from.to_bits(), to.to_bits()]);
    (Arc::as_ptr(&stage.document.recording), sight.axis, span, columns)
}

fn draw(ui: &Ui, stage: &mut Stage<'_>, canvas: &Canvas) {
    let recording = Arc::clone(&stage.document.recording);
    let look = stage.look;
    let painter = ui.painter_at(canvas.rect);
    painter.rect_filled(canvas.rect, 3.0, look.paper);
    let area = Rect::from_min_max(
        pos2(canvas.rect.left() + LEFT, canvas.rect.top() + 12.0),
        pos2(canvas.rect.right() - 8.0, canvas.rect.bottom() - BELOW),
    );
    let sight = stage.document.sight;
    let scale = TimeScale::new(&recording, sight.axis, sight.span, area.x_range());
    let columns = (area.width() * ui.pixels_per_point()).max(1.0) as usize;
    let key = key(stage, columns);
    let panel = &mut stage.document.panels.time;
    if panel.columns.as_ref().is_none_or(|(known, _)| *known != key) {
        let edges = scale.edges(columns);
        let made = recording.series.columns(&edges, &recording.events, &recording.blocks);
        panel.columns = Some((key, made));
    }
    if panel.by_site && panel.stacked.as_ref().is_none_or(|(known, _)| *known != key) {
        panel.stacked = Some((key, stacked(&recording, &scale.edges(columns))));
    }
    let most = recording.series.most.iter().max().copied().unwrap_or(1);
    let most = limits::top_of(&recording, limits::inferred(stage), most);
    let top = (most + most / 12).max(1);
    bytes_axis(&painter, &look, area, top);
    time_axis(&painter, &look, &scale, area);
    let clipped = painter.with_clip_rect(area);
    curves(stage, &clipped, area, top);
    let made = stage.document.panels.time.columns.iter().flat_map(|(_, made)| made);
    let reserved: Vec<u64> = made.map(|column| column.max[2]).collect();
    let shown = (&scale.edges(columns)[..], &reserved[..]);
    limits::over_bytes(stage, &clipped, limits::Frame { area, top }, shown);
    now(ui, stage, canvas, &scale, area);
    tip(stage, canvas, &scale, area);
}

/// Lines of bytes with their labels.
pub fn bytes_axis(painter: &Painter, look: &Look, area: Rect, top: u64) {
    let step = units::byte_step(top, (area.height() / 34.0).clamp(1.0, 6.0) as u64);
    let mut at = 0;
    while at <= top {
        let y = area.bottom() - area.height() * (at as f64 / top as f64) as f32;
        painter.hline(area.x_range(), y, Stroke::new(1.0, look.grid));
        let font = FontId::proportional(11.5);
        let text = units::bytes(at);
        painter.text(pos2(area.left() - 6.0, y), Align2::RIGHT_CENTER, text, font, look.faint);
        at += step;
    }
}

fn curves(stage: &mut Stage<'_>, painter: &Painter, area: Rect, top: u64) {
    let look = stage.look;
    let panel = &stage.document.panels.time;
    let Some((_, columns)) = &panel.columns else { return };
    let y = |bytes: u64| area.bottom() - area.height() * (bytes as f64 / top as f64) as f32;
    let width = area.width() / columns.len().max(1) as f32;
    let x = |column: usize| area.left() + width * column as f32;
    let mut cells = Vec::with_capacity(columns.len());
    if let Some((_, stacked)) = panel.stacked.as_ref().filter(|_| panel.by_site) {
        for (column, bytes) in stacked.bytes.iter().enumerate() {
            let mut below = 0;
            for (bytes, color) in bytes.iter().zip(look.kinds).filter(|(bytes, _)| **bytes > 0) {
                let (low, high) = (y(below), y(below + bytes));
                below += bytes;
                let rect = Rect::from_min_max(pos2(x(column), high), pos2(x(column + 1), low));
                cells.push(Cell::solid(rect, color));
            }
        }
    } else {
        for (column, values) in columns.iter().enumerate() {
            let high = y(values.max[0]);
            let rect =
                Rect::from_min_max(pos2(x(column), high), pos2(x(column + 1), area.bottom()));
            cells.push(Cell::solid(rect, look.requested));
        }
    }
    let line = |series: usize| -> Vec<egui::Pos2> {
        let columns = columns.iter().enumerate();
        columns
            .map(|(column, values)| pos2(x(column) + width / 2.0, y(values.max[series])))
            .collect()
    };
    let (active, reserved) = (line(1), line(2));
    stage.surface.draw(painter, 20, &Cells::new(cells));
    painter.extend(Shape::dashed_line(&active, Stroke::new(1.5, look.active), 6.0, 3.0));
    painter.add(Shape::line(reserved, Stroke::new(2.0, look.reserved)));
}

/// Live bytes by site: the seven largest at the peak, and the rest.
fn stacked(recording: &Recording, edges: &[u32]) -> Stacked {
    let mut at_peak: HashMap<u32, u64> = HashMap::new();
    let peak = recording.peak();
    for block in recording.blocks.iter().filter(|block| block.is_there(peak)) {
        *at_peak.entry(block.site).or_default() += block.requested;
    }
    let mut order: Vec<(u32, u64)> = at_peak.into_iter().collect();
    order.sort_unstable_by_key(|(site, bytes)| (std::cmp::Reverse(*bytes), *site));
    let mut slot = vec![7_u8; recording.places.sites.len()];
    let mut result = Stacked::default();
    for (number, (site, _)) in (0..7).zip(&order) {
        slot[*site as usize] = number;
        result.names.push(recording.places.sites[*site as usize].clone());
    }
    result.names.resize(7, String::new());
    result.names.push("others".to_owned());
    let mut now = [0_u64; 8];
    let mut edges = edges.iter().skip(1).peekable();
    let mut most = now;
    for (index, event) in recording.events.iter().enumerate() {
        while edges.next_if(|edge| **edge as usize <= index).is_some() {
            result.bytes.push(most);
            most = now;
        }
        let block = &recording.blocks[event.block as usize];
        let part = &mut now[slot[block.site as usize] as usize];
        match event.op {
            EventOp::Alloc => *part += block.requested,
            EventOp::Freed => {}
            EventOp::Done => *part = part.saturating_sub(block.requested),
        }
        if now.iter().sum::<u64>() > most.iter().sum() {
            most = now;
        }
    }
    for _ in edges {
        result.bytes.push(most);
        most = now;
    }
    result
}

fn tip(stage: &Stage<'_>, canvas: &Canvas, scale: &TimeScale<'_>, area: Rect) {
    let Some(at) = canvas.response.hover_pos().filter(|at| area.contains(*at)) else { return };
    let Some((_, columns)) = &stage.document.panels.time.columns else { return };
    let column = ((at.x - area.left()) / area.width() * columns.len() as f32) as usize;
    let Some(values) = columns.get(column) else { return };
    let recording = &stage.document.recording;
    let [requested, active, reserved] = values.max;
    let mut text = TimeScale::describe(recording, scale.moment_at(at.x));
    for (name, bytes) in [("requested", requested), ("active", active), ("reserved", reserved)] {
        text += &format!("\n{name} {} ({} bytes)", units::bytes(bytes), units::count(bytes));
    }
    let near = recording.failures.iter().filter(|f| (scale.x_of(f.at) - at.x).abs() < 5.0);
    for failure in near.take(3) {
        text += &format!("\nfailed: {} asked for", units::bytes(failure.bytes));
    }
    for gap in recording.gaps.iter().filter(|gap| (scale.x_of(gap.at) - at.x).abs() < 5.0).take(3) {
        text += &format!("\n{} events were lost here", units::count(gap.lost));
    }
    canvas.response.clone().on_hover_text_at_pointer(text);
}
