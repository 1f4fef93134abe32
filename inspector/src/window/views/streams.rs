//! One lane for each stream: what it holds, and what it has freed that others still use.

use std::collections::HashMap;
use std::sync::Arc;

use egui::{Align2, FontId, Painter, Rect, Shape, Stroke, Ui, pos2};

use super::canvas::Canvas;
use super::timeline::{BELOW, LEFT, axis_choice, move_span, now, time_axis};
use super::{Stage, empty, header, legend, rows};
use crate::units;
use crate::window::document::Selected;
use crate::window::layout::{Axis, Span, TimeScale};
use crate::window::model::{EventOp, Recording, WaitRow};
use crate::window::paint::{Cell, Cells, Look, Pattern};
use crate::window::view::View;

/// What was worked out for the last frame, and for what.
#[derive(Default)]
pub struct StreamPanel {
    lanes: Option<(Key, Vec<Lane>)>,
    as_table: bool,
}

type Key = (*const Recording, Axis, Option<[u64; 2]>, usize);

/// Bytes of a stream in each column: live, and pending.
struct Lane {
    stream: u32,
    blocks: u64,
    most: u64,
    columns: Vec<(u64, u64)>,
}

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    let recording = Arc::clone(&stage.document.recording);
    if recording.blocks.is_empty() {
        empty(ui, "No streams", "The file has no block on any stream.");
        return;
    }
    header(ui, |ui| {
        let panel = &mut stage.document.panels.streams;
        ui.selectable_value(&mut panel.as_table, false, "lanes");
        ui.selectable_value(&mut panel.as_table, true, "table");
        axis_choice(ui, stage);
    });
    if stage.document.panels.streams.as_table || recording.events.is_empty() {
        rows::show(ui, stage, rows::Kind::Streams);
        return;
    }
    let look = stage.look;
    let pending = "pending: freed, other streams still use it".to_owned();
    let mut keys = vec![
        ((look.active, look.active), Pattern::Solid, "live".to_owned()),
        (look.pending, Pattern::Stripes, pending),
    ];
    if !recording.waits.is_empty() {
        let text = "arrow: a request waits for the stream that it comes from".to_owned();
        keys.push(((look.select, look.select), Pattern::Solid, text));
    }
    legend(ui, stage, &keys);
    lanes(ui, stage, &recording);
}

fn lanes(ui: &mut Ui, stage: &mut Stage<'_>, recording: &Arc<Recording>) {
    let used = stage.document.panels.streams.lanes.as_ref().map_or(0, |(_, lanes)| lanes.len());
    let waits = match recording.waits.len() as u64 {
        0 => String::new(),
        waits => format!(", {}", crate::text::counted(waits, "wait", "waits")),
    };
    let name = format!("Lanes of {used} streams over time{waits}");
    let canvas = Canvas::new(ui, stage, View::Streams, &name);
    move_span(stage, &canvas);
    let area = Rect::from_min_max(
        pos2(canvas.rect.left() + LEFT, canvas.rect.top() + 12.0),
        pos2(canvas.rect.right() - 8.0, canvas.rect.bottom() - BELOW),
    );
    let painter = ui.painter_at(canvas.rect);
    painter.rect_filled(canvas.rect, 3.0, stage.look.paper);
    let sight = stage.document.sight;
    let scale = TimeScale::new(recording, sight.axis, sight.span, area.x_range());
    let columns = (area.width() * ui.pixels_per_point()).max(1.0) as usize;
    let span = sight.span.map(|Span { from, to }| [from.to_bits(), to.to_bits()]);
    let key = (Arc::as_ptr(recording), sight.axis, span, columns);
    let panel = &mut stage.document.panels.streams;
    if panel.lanes.as_ref().is_none_or(|(known, _)| *known != key) {
        panel.lanes = Some((key, work_out(recording, &scale.edges(columns))));
    }
    time_axis(&painter, &stage.look, &scale, area);
    let Some((key, lanes)) = panel.lanes.take() else { return };
    let height = (area.height() / lanes.len().max(1) as f32).min(230.0);
    let mut cells = Vec::new();
    for (number, lane) in lanes.iter().enumerate() {
        let top = area.top() + height * number as f32;
        let room = Rect::from_min_max(
            pos2(area.left(), top + height.min(16.0)),
            pos2(area.right(), top + height - 3.0),
        );
        fill(&mut cells, &stage.look, lane, room);
    }
    stage.surface.draw(&painter.with_clip_rect(area), 40, &Cells::new(cells));
    arrows(&painter.with_clip_rect(area), stage, &scale, &lanes, (area, height));
    for (number, lane) in lanes.iter().enumerate() {
        let top = area.top() + height * number as f32;
        let band =
            Rect::from_min_max(pos2(canvas.rect.left(), top), pos2(area.right(), top + height));
        words(&painter, stage, recording, lane, band);
        let hit = canvas.response.interact_pointer_pos().is_some_and(|at| band.contains(at));
        if hit && canvas.response.clicked() {
            stage.document.sight.selected = Some(Selected::Stream(lane.stream));
        }
    }
    tip(stage, &canvas, &scale, &lanes, (area, height));
    stage.document.panels.streams.lanes = Some((key, lanes));
    now(ui, stage, &canvas, &scale, area);
}

/// Arrows between the same two lanes are at least so many points apart.
const APART: f32 = 9.0;

/// An arrow from the lane that is waited for to the one that waits.
fn arrows(
    painter: &Painter,
    stage: &Stage<'_>,
    scale: &TimeScale<'_>,
    lanes: &[Lane],
    (area, height): (Rect, f32),
) {
    let waits = &scale.recording.waits;
    let (from, to) = (scale.moment_at(area.left()), scale.moment_at(area.right()));
    let first = waits.partition_point(|wait| wait.at < from);
    let after = waits.partition_point(|wait| wait.at <= to);
    let place = |stream: u32| lanes.iter().position(|lane| lane.stream == stream);
    let middle = |lane: usize| area.top() + height * (lane as f32 + 0.5);
    let ink = stage.look.select;
    let line = Stroke::new(1.0, ink.gamma_multiply(0.6));
    let (mut last, mut drawn) = (HashMap::new(), 0);
    for wait in &waits[first..after] {
        let (Some(behind), Some(waiting)) = (place(wait.behind), place(wait.stream)) else {
            continue;
        };
        let x = scale.x_of(wait.at);
        if last.get(&(behind, waiting)).is_some_and(|before| x - before < APART) {
            continue;
        }
        last.insert((behind, waiting), x);
        drawn += 1;
        let back = if waiting > behind { -1.0 } else { 1.0 };
        painter.line_segment([pos2(x, middle(behind)), pos2(x, middle(waiting))], line);
        painter.circle_filled(pos2(x, middle(behind)), 1.8, ink);
        let tip = pos2(x, middle(waiting));
        let wing = |side: f32| tip + egui::vec2(3.5 * side, 6.0 * back);
        painter.add(Shape::convex_polygon(vec![tip, wing(-1.0), wing(1.0)], ink, Stroke::NONE));
    }
    if drawn < after - first {
        let (drawn, all) = (units::count(drawn as u64), units::count((after - first) as u64));
        let text = format!("{drawn} of {all} waits are drawn; zoom in");
        let at = pos2(area.right() - 6.0, area.top() + 3.0);
        let font = FontId::proportional(10.5);
        painter.text(at, Align2::RIGHT_TOP, text, font, stage.look.faint);
    }
}

fn fill(cells: &mut Vec<Cell>, look: &Look, lane: &Lane, room: Rect) {
    let width = room.width() / lane.columns.len().max(1) as f32;
    let y = |bytes: u64| {
        room.bottom() - (room.height() * (bytes as f64 / lane.most.max(1) as f64) as f32).round()
    };
    for (column, (live, pending)) in lane.columns.iter().enumerate() {
        let (left, right) =
            (room.left() + width * column as f32, room.left() + width * (column + 1) as f32);
        let bar = |low: f32, high: f32| Rect::from_min_max(pos2(left, high), pos2(right, low));
        if *live > 0 {
            cells.push(Cell::solid(bar(room.bottom(), y(*live)), look.active));
        }
        if *pending > 0 {
            let high = y(live + pending).min(y(*live) - 1.0);
            cells.push(Cell::new(bar(y(*live), high), look.pending, Pattern::Stripes));
        }
    }
}

fn words(painter: &Painter, stage: &Stage<'_>, recording: &Recording, lane: &Lane, band: Rect) {
    let look = stage.look;
    painter.hline(band.x_range(), band.bottom(), Stroke::new(1.0, look.grid));
    let selected = stage.document.sight.selected == Some(Selected::Stream(lane.stream));
    let color = if selected { look.select } else { look.ink };
    let text = format!(
        "{}: {} blocks, at most {}",
        recording.stream(lane.stream),
        units::count(lane.blocks),
        units::bytes(lane.most)
    );
    let at = pos2(band.left() + 6.0, band.top() + 1.0);
    let font = FontId::proportional(11.5);
    let shape = painter.layout_no_wrap(text, font, color);
    let back = Rect::from_min_size(at, shape.size()).expand2(egui::vec2(3.0, 0.0));
    painter.rect_filled(back, 2.0, look.paper.gamma_multiply(0.9));
    painter.galley(at, shape, color);
    if band.height() > 60.0 {
        let most = units::bytes(lane.most);
        let at = pos2(band.left() + LEFT - 6.0, band.top() + 22.0);
        painter.text(at, Align2::RIGHT_CENTER, most, FontId::proportional(10.5), look.faint);
        let zero = pos2(band.left() + LEFT - 6.0, band.bottom() - 7.0);
        painter.text(zero, Align2::RIGHT_CENTER, "0 B", FontId::proportional(10.5), look.faint);
    }
}

/// The largest live and pending bytes of every stream in every column.
fn work_out(recording: &Recording, edges: &[u32]) -> Vec<Lane> {
    let streams = recording.streams.len();
    let columns = edges.len().saturating_sub(1);
    let lane = |stream: usize| Lane {
        stream: stream as u32,
        blocks: 0,
        most: 0,
        columns: vec![(0, 0); columns],
    };
    let mut lanes: Vec<Lane> = (0..streams).map(lane).collect();
    let mut now = vec![(0_u64, 0_u64); streams];
    for block in &recording.blocks {
        if let Some(lane) = lanes.get_mut(block.stream as usize) {
            lane.blocks += 1;
        }
    }
    let mut column = 0;
    for (index, event) in recording.events.iter().enumerate() {
        while column < columns && edges[column + 1] as usize <= index {
            column += 1;
            for (lane, now) in lanes.iter_mut().zip(&now).filter(|_| column < columns) {
                lane.columns[column] = *now;
            }
        }
        let block = &recording.blocks[event.block as usize];
        let Some(bytes) = now.get_mut(block.stream as usize) else { continue };
        match event.op {
            EventOp::Alloc => bytes.0 += block.requested,
            EventOp::Freed => {
                bytes.0 = bytes.0.saturating_sub(block.requested);
                bytes.1 += block.requested;
            }
            EventOp::Done => bytes.1 = bytes.1.saturating_sub(block.requested),
        }
        let lane = &mut lanes[block.stream as usize];
        lane.most = lane.most.max(bytes.0 + bytes.1);
        if let Some(shown) = lane.columns.get_mut(column).filter(|_| index >= edges[0] as usize) {
            // A free that completes at once is no time of waiting.
            let waits = event.op != EventOp::Freed || !completes_next(recording, index);
            if waits && bytes.0 + bytes.1 >= shown.0 + shown.1 {
                *shown = *bytes;
            } else if waits && bytes.1 > shown.1 {
                shown.1 = bytes.1;
                shown.0 = bytes.0.max(shown.0.saturating_sub(bytes.1));
            }
        }
    }
    let awaited = |stream: u32| recording.waits.iter().any(|wait| wait.behind == stream);
    lanes.retain(|lane| lane.blocks > 0 || awaited(lane.stream));
    lanes.truncate(64);
    lanes
}

fn completes_next(recording: &Recording, index: usize) -> bool {
    let block = recording.events[index].block;
    let next = recording.events.get(index + 1);
    next.is_some_and(|next| next.block == block && next.op == EventOp::Done)
}

fn tip(
    stage: &Stage<'_>,
    canvas: &Canvas,
    scale: &TimeScale<'_>,
    lanes: &[Lane],
    (area, height): (Rect, f32),
) {
    let Some(at) = canvas.response.hover_pos().filter(|at| area.contains(*at)) else { return };
    let Some(lane) = lanes.get(((at.y - area.top()) / height) as usize) else { return };
    let column = ((at.x - area.left()) / area.width() * lane.columns.len() as f32) as usize;
    let Some((live, pending)) = lane.columns.get(column) else { return };
    let recording = &stage.document.recording;
    let moment = scale.moment_at(at.x);
    let near = |wait: &&WaitRow| {
        let ends = wait.stream == lane.stream || wait.behind == lane.stream;
        ends && (scale.x_of(wait.at) - at.x).abs() < 4.0
    };
    let waits: Vec<String> = recording
        .waits
        .iter()
        .filter(near)
        .take(3)
        .map(|wait| {
            let (who, behind) = (recording.stream(wait.stream), recording.stream(wait.behind));
            format!("\n{who} waits for {behind}")
        })
        .collect();
    let text = format!(
        "{}, {}\nlive {} ({} bytes)\npending {} ({} bytes){}",
        recording.stream(lane.stream),
        TimeScale::describe(recording, moment),
        units::bytes(*live),
        units::count(*live),
        units::bytes(*pending),
        units::count(*pending),
        waits.concat()
    );
    canvas.response.clone().on_hover_text_at_pointer(text);
}
