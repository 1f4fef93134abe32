//! Address against time: one rectangle per block.

use std::sync::Arc;

use egui::{Align2, FontId, Rect, Stroke, StrokeKind, Ui, pos2};

use super::canvas::Canvas;
use super::heap_map::coloring;
use super::timeline::{BELOW, LEFT, axis_choice, move_span, now, time_axis};
use super::{Stage, empty, header, legend, waiting};
use crate::units;
use crate::window::document::Selected;
use crate::window::job::Job;
use crate::window::layout::{AddressTime, Classes, Coloring, Focus, Order, TimeScale};
use crate::window::model::{Moment, Recording};
use crate::window::paint::{Cells, Pattern};
use crate::window::view::View;

/// What was worked out for the last frame, and for what.
#[derive(Default)]
pub struct AddressPanel {
    order: Job<Arc<(Order, Moment)>>,
    /// The order before, shown while a run's next one is worked out.
    last: Option<Arc<(Order, Moment)>>,
    colors: Option<(ColorKey, Classes)>,
    drawn: Option<(DrawKey, Cells, usize)>,
}

impl AddressPanel {
    /// Drops what was worked out, but for what is shown until there is something new.
    pub fn forget(&mut self) {
        let last = self.order.poll().cloned().or(self.last.take());
        *self = Self { last, ..Self::default() };
    }

    /// Whether a thread works on it.
    pub fn is_busy(&mut self) -> bool {
        self.order.poll();
        self.order.is_running()
    }
}

type ColorKey = (*const Recording, Coloring, Option<Focus>);
type DrawKey = (ColorKey, [u32; 4], [u64; 4], bool, u32);

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    let recording = Arc::clone(&stage.document.recording);
    if recording.events.is_empty() {
        let text = "This file has no history, only one moment: look at the heap map.";
        empty(ui, "No time to show", text);
        return;
    }
    let Some(made) = prepare(ui, stage) else {
        waiting(ui, "ordering addresses…");
        return;
    };
    let left_out = stage.document.panels.address.drawn.as_ref().map_or(0, |drawn| drawn.2);
    header(ui, |ui| {
        ui.weak(format!("{} blocks", units::count(recording.blocks.len() as u64)));
        if left_out > 0 {
            let text = format!("{} too small to see; zoom in", units::count(left_out as u64));
            ui.weak(text).on_hover_text("blocks that cover less than a pixel are not drawn");
        }
        axis_choice(ui, stage);
        coloring(ui, stage);
    });
    let keys = stage.document.panels.address.colors.as_ref().map(|(_, classes)| {
        let mut keys = classes.legend(&stage.look, &Moment::default());
        keys.retain(|key| key.2 != "free");
        if !recording.moves.is_empty() {
            let ink = (stage.look.select, stage.look.select);
            keys.push((ink, Pattern::Solid, "moved, to the dot".to_owned()));
        }
        keys
    });
    legend(ui, stage, &keys.unwrap_or_default());
    let moves = match recording.moves.len() as u64 {
        0 => String::new(),
        moves => format!(", {}", crate::text::counted(moves, "move", "moves")),
    };
    let name = format!(
        "Address against time: {} blocks over {} events{moves}",
        units::count(recording.blocks.len() as u64),
        units::count(recording.events.len() as u64)
    );
    let canvas = Canvas::new(ui, stage, View::AddressTime, &name);
    draw(ui, stage, &canvas, &made.0);
}

/// The order of addresses and the fullest moment, worked out on a thread; the classes of blocks.
fn prepare(ui: &Ui, stage: &mut Stage<'_>) -> Option<Arc<(Order, Moment)>> {
    let document = &mut *stage.document;
    let recording = Arc::clone(&document.recording);
    let panel = &mut document.panels.address;
    if panel.order.is_idle() {
        let work = Arc::clone(&recording);
        panel.order = Job::start(ui.ctx(), move || {
            Arc::new((Order::of(&work), Moment::of(&work, work.peak())))
        });
    }
    let made = panel.order.poll().cloned().or_else(|| panel.last.clone())?;
    let key = (Arc::as_ptr(&recording), document.sight.coloring, document.sight.focus());
    if panel.colors.as_ref().is_none_or(|(known, _)| *known != key) {
        // Classes of the fullest moment hold for the whole run; ages do not.
        let coloring = if key.1 == Coloring::Age { Coloring::Size } else { key.1 };
        panel.colors = Some((key, Classes::of(&recording, &made.1, coloring, key.2)));
    }
    Some(made)
}

fn draw(ui: &Ui, stage: &mut Stage<'_>, canvas: &Canvas, order: &Order) {
    move_span(stage, canvas);
    let (recording, look) = (Arc::clone(&stage.document.recording), stage.look);
    let area = Rect::from_min_max(
        pos2(canvas.rect.left() + LEFT, canvas.rect.top() + 12.0),
        pos2(canvas.rect.right() - 8.0, canvas.rect.bottom() - BELOW),
    );
    let sight = stage.document.sight;
    let whole = (0.0, order.total.max(1) as f64 * 1.01);
    let mut chart = AddressTime {
        order,
        time: TimeScale::new(&recording, sight.axis, sight.span, area.x_range()),
        area,
        bytes: sight.addresses.unwrap_or(whole),
        scale: ui.pixels_per_point(),
    };
    move_addresses(stage, canvas, &mut chart, whole);
    let painter = ui.painter_at(canvas.rect);
    painter.rect_filled(canvas.rect, 3.0, look.paper);
    address_axis(&painter, &chart, stage);
    time_axis(&painter, &look, &chart.time, area);
    cells(stage, &painter.with_clip_rect(area), &chart);
    jumps(&painter.with_clip_rect(area), &chart, stage.look.select);
    point(stage, canvas, &painter.with_clip_rect(area), &chart);
    now(ui, stage, canvas, &chart.time, area);
}

fn move_addresses(
    stage: &mut Stage<'_>,
    canvas: &Canvas,
    chart: &mut AddressTime<'_>,
    whole: (f64, f64),
) {
    let sight = &mut stage.document.sight;
    if canvas.fit {
        sight.addresses = None;
        chart.bytes = whole;
    }
    if !canvas.moved() {
        return;
    }
    let about = chart.start_at(canvas.about.y);
    let length = (chart.bytes.1 - chart.bytes.0) / canvas.zoom;
    let length = length.clamp(4096.0_f64.min(whole.1), whole.1 * 1.2);
    let part = (about - chart.bytes.0) / (chart.bytes.1 - chart.bytes.0).max(1.0);
    let pan = f64::from(canvas.pan.y / chart.area.height().max(1.0)) * length;
    let from = (about - part * length + pan).clamp(-length * 0.1, whole.1 - length * 0.9);
    chart.bytes = (from, from + length);
    sight.addresses = Some(chart.bytes);
}

fn address_axis(painter: &egui::Painter, chart: &AddressTime<'_>, stage: &Stage<'_>) {
    let (look, area) = (stage.look, chart.area);
    let length = (chart.bytes.1 - chart.bytes.0).max(1.0);
    let step =
        units::byte_step(length as u64, (area.height() / 40.0).clamp(1.0, 8.0) as u64) as f64;
    let mut at = (chart.bytes.0.max(0.0) / step).ceil() * step;
    while at <= chart.bytes.1.min(chart.order.total as f64) {
        let y = chart.y_of(at);
        painter.hline(area.x_range(), y, Stroke::new(1.0, look.grid));
        let text = units::bytes(at as u64);
        let font = FontId::proportional(11.5);
        painter.text(pos2(area.left() - 6.0, y), Align2::RIGHT_CENTER, text, font, look.faint);
        at += step;
    }
}

fn cells(stage: &mut Stage<'_>, painter: &egui::Painter, chart: &AddressTime<'_>) {
    let Some((color_key, classes)) = &stage.document.panels.address.colors else { return };
    let area = [chart.area.min.x, chart.area.min.y, chart.area.max.x, chart.area.max.y];
    let span = chart.time.span;
    let view = [span.from, span.to, chart.bytes.0, chart.bytes.1].map(f64::to_bits);
    let axis = chart.time.axis as u32;
    let key = (*color_key, area.map(f32::to_bits), view, stage.look.dark, axis);
    let drawn = &stage.document.panels.address.drawn;
    if drawn.as_ref().is_none_or(|(known, ..)| *known != key) {
        let before = stage.document.panels.address.drawn.take();
        let room = before.map(|(_, cells, _)| cells.into_room()).unwrap_or_default();
        let (cells, left_out) = chart.cells(classes, &stage.look, room);
        stage.document.panels.address.drawn = Some((key, Cells::new(cells), left_out));
    }
    if let Some((_, cells, _)) = &stage.document.panels.address.drawn {
        stage.surface.draw(painter, 30, cells);
    }
}

/// Moves that are drawn at most; where more are in sight, every so many is.
const JUMPS: usize = 1500;

/// A line from the old place of every block that moved to its new one.
fn jumps(painter: &egui::Painter, chart: &AddressTime<'_>, ink: egui::Color32) {
    let recording = chart.time.recording;
    let (from, to) =
        (chart.time.moment_at(chart.area.left()), chart.time.moment_at(chart.area.right()));
    let moves = &recording.moves;
    let first = moves.partition_point(|one| one.at < from);
    let after = moves.partition_point(|one| one.at <= to);
    let every = (after - first).div_ceil(JUMPS).max(1);
    for one in moves[first..after].iter().step_by(every) {
        let y = |number: u32| {
            let block = recording.blocks.get(number as usize)?;
            let start = chart.order.start(block.address)?;
            Some(chart.y_of(start as f64 + block.bytes as f64 / 2.0))
        };
        if let (Some(old), Some(new)) = (y(one.from), y(one.to)) {
            let x = chart.time.x_of(one.at);
            painter.vline(x, old.min(new)..=old.max(new), Stroke::new(1.0, ink));
            painter.circle_filled(pos2(x, new), 2.5, ink);
        }
    }
}

fn point(stage: &mut Stage<'_>, canvas: &Canvas, painter: &egui::Painter, chart: &AddressTime<'_>) {
    let document = &mut *stage.document;
    let recording = Arc::clone(&document.recording);
    let outline = |block: u32, stroke: Stroke| {
        let block = recording.blocks.get(block as usize)?;
        let rect = chart.rect(block)?.expand(1.0);
        painter.rect_stroke(rect, 0.0, stroke, StrokeKind::Outside);
        Some(())
    };
    let at = canvas.response.hover_pos().filter(|at| chart.area.contains(*at));
    if let Some(number) = at.and_then(|at| chart.block_at(at)) {
        document.hover_next = Some(number);
        if canvas.response.clicked() {
            document.sight.selected = Some(Selected::Block(number));
        }
        let block = &recording.blocks[number as usize];
        let text = format!(
            "{} ({} bytes) at {:#x}\nevents {} to {}, {}\n{}",
            units::bytes(block.requested),
            units::count(block.requested),
            block.address,
            units::count(u64::from(block.born)),
            match block.gone {
                crate::window::model::NEVER => "the end".to_owned(),
                gone => units::count(u64::from(gone)),
            },
            recording.stream(block.stream),
            recording.site(block)
        );
        canvas.response.clone().on_hover_text_at_pointer(text);
    }
    if let Some(block) = document.hover {
        outline(block, Stroke::new(1.5, stage.look.ink));
    }
    if let Some(Selected::Block(block)) = document.sight.selected {
        outline(block, Stroke::new(2.5, stage.look.select));
    }
}
