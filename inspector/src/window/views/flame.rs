//! Live memory by call stack.

use std::collections::HashMap;
use std::sync::Arc;

use egui::{Align2, FontId, Rect, Stroke, StrokeKind, Ui, pos2};

use super::canvas::Canvas;
use super::{Stage, bytes, empty, header, waiting};
use crate::units;
use crate::window::job::Later;
use crate::window::layout::{Flame, FlameBox};
use crate::window::model::{Moment, NEVER, Recording, short_site};
use crate::window::paint::{Cell, Cells, Look};
use crate::window::view::View;

/// How the graph is looked at, and what was worked out.
#[derive(Default)]
pub struct FlamePanel {
    made: Later<(*const Moment, bool), Made>,
    shown: Option<Arc<Made>>,
    /// Whether the innermost frame is the root.
    by_callee: bool,
    /// Whether the root is below.
    upwards: bool,
    /// The box that fills the width.
    zoomed: Option<(u32, usize, u64)>,
    scroll: f32,
}

/// What was worked out.
struct Made {
    /// Which is kept.
    _moment: Arc<Moment>,
    flame: Flame,
    /// Colours of files, in the order in which the graph has them.
    files: HashMap<String, usize>,
}

impl FlamePanel {
    /// Drops what was worked out.
    pub fn forget(&mut self) {
        self.made.forget();
        self.shown = None;
    }

    /// Whether a thread works on it.
    pub fn is_busy(&mut self) -> bool {
        self.made.is_busy()
    }
}

const ROW: f32 = 20.0;

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    let recording = Arc::clone(&stage.document.recording);
    if recording.places.stacks.is_empty() {
        let text = "This file has no call stacks. In PyTorch, record them with \
            _record_memory_history(stacks=\"python\" or \"all\").";
        empty(ui, "No call stacks", text);
        return;
    }
    let moment = Arc::clone(&stage.document.moment);
    let panel = &mut stage.document.panels.flame;
    let by_callee = panel.by_callee;
    let (at_once, of) = (recording.is_small(), Arc::clone(&recording));
    let key = (Arc::as_ptr(&moment), by_callee);
    let made = panel.made.get(ui.ctx(), key, at_once, move || {
        let flame = Flame::of(&of, &moment, by_callee);
        Made { files: files(&of, &flame), flame, _moment: moment }
    });
    let Some(made) = made else {
        waiting(ui, "adding up call stacks…");
        return;
    };
    if panel.shown.as_ref().is_none_or(|before| !Arc::ptr_eq(before, &made)) {
        panel.zoomed = None;
        panel.shown = Some(Arc::clone(&made));
    }
    let look = stage.look;
    let total = made.flame.boxes.first().map_or(0, |all| all.bytes);
    let without = made.flame.without;
    header(ui, |ui| {
        bytes(ui, &look, "by call stack", total);
        if without > 0 {
            bytes(ui, &look, "without one", without);
        }
        ui.selectable_value(&mut panel.by_callee, false, "from the program's start");
        ui.selectable_value(&mut panel.by_callee, true, "from the allocation")
            .on_hover_text("innermost frames first: who calls this?");
        ui.checkbox(&mut panel.upwards, "flames").on_hover_text("root below, not above");
        if panel.zoomed.is_some() && ui.button("Show all").clicked() {
            panel.zoomed = None;
        }
    });
    if total == 0 {
        let text = "No live block at this moment has a call stack. Press 1 to go to the peak.";
        empty(ui, "Nothing to show", text);
        return;
    }
    let canvas = Canvas::new(ui, stage, View::Flame, "Call stacks of live memory");
    let panel = std::mem::take(&mut stage.document.panels.flame);
    stage.document.panels.flame = draw(ui, stage, &canvas, panel, &recording);
}

fn draw(
    ui: &Ui,
    stage: &mut Stage<'_>,
    canvas: &Canvas,
    mut panel: FlamePanel,
    recording: &Recording,
) -> FlamePanel {
    let look = stage.look;
    let painter = ui.painter_at(canvas.rect);
    painter.rect_filled(canvas.rect, 3.0, look.paper);
    let Some(made) = panel.shown.clone() else { return panel };
    let Made { flame, files, .. } = &*made;
    let zoomed = panel.zoomed.and_then(|(frame, depth, from)| {
        let same = |b: &&FlameBox| b.frame == frame && b.depth == depth && b.from == from;
        flame.boxes.iter().find(same)
    });
    let Some(all) = zoomed.or(flame.boxes.first()) else { return panel };
    let most = (flame.depth as f32 * ROW - canvas.rect.height()).max(0.0);
    let turn = if panel.upwards { -1.0 } else { 1.0 };
    panel.scroll = (panel.scroll - canvas.pan.y * turn).clamp(0.0, most);
    let place = |b: &FlameBox| -> Option<Rect> {
        let (from, to) = (b.from.max(all.from), (b.from + b.bytes).min(all.from + all.bytes));
        let part = |at: u64| ((at - all.from) as f64 / all.bytes as f64) as f32;
        let x = |at: u64| canvas.rect.left() + canvas.rect.width() * part(at);
        let down = b.depth as f32 * ROW - panel.scroll;
        let top = match panel.upwards {
            true => canvas.rect.bottom() - down - ROW,
            false => canvas.rect.top() + down,
        };
        (to > from && x(to) - x(from) >= 0.7)
            .then(|| Rect::from_min_max(pos2(x(from), top), pos2(x(to) - 0.6, top + ROW - 1.0)))
    };
    let visible: Vec<(&FlameBox, Rect)> = flame
        .boxes
        .iter()
        .filter_map(|b| Some((b, place(b)?)))
        .filter(|(_, rect)| rect.intersects(canvas.rect))
        .collect();
    let cells =
        visible.iter().map(|(b, rect)| Cell::solid(*rect, color(&look, files, b, recording)));
    let cells = cells.collect();
    stage.surface.draw(&painter, 50, &Cells::new(cells));
    let hovered = canvas.response.hover_pos();
    for (b, rect) in &visible {
        let name = name(recording, b.frame);
        if rect.width() > 34.0 {
            let back = color(&look, files, b, recording);
            let inside =
                painter.with_clip_rect(rect.shrink2(egui::vec2(3.0, 0.0)).intersect(canvas.rect));
            let at = pos2(rect.left().max(canvas.rect.left()) + 4.0, rect.center().y);
            let font = FontId::proportional(11.5);
            inside.text(at, Align2::LEFT_CENTER, short_site(&name), font, Look::on(back));
        }
        if hovered.is_some_and(|at| rect.contains(at)) {
            painter.rect_stroke(*rect, 0.0, Stroke::new(1.5, look.ink), StrokeKind::Outside);
            let share = b.bytes as f64 / flame.boxes[0].bytes.max(1) as f64 * 100.0;
            canvas.response.clone().on_hover_text_at_pointer(format!(
                "{name}\n{} ({} bytes), {share:.1} %\n{} blocks",
                units::bytes(b.bytes),
                units::count(b.bytes),
                units::count(b.blocks)
            ));
            if canvas.response.clicked() {
                panel.zoomed = (b.depth > 0).then_some((b.frame, b.depth, b.from));
            }
        }
    }
    panel
}

fn name(recording: &Recording, frame: u32) -> String {
    if frame == NEVER {
        return "everything live".to_owned();
    }
    recording.places.frames.get(frame as usize).cloned().unwrap_or_default()
}

fn file_of(recording: &Recording, frame: u32) -> Option<&str> {
    recording.places.frames.get(frame as usize)?.split(':').next()
}

/// Numbers the files, those with the most memory first.
fn files(recording: &Recording, flame: &Flame) -> HashMap<String, usize> {
    let mut bytes: HashMap<&str, u64> = HashMap::new();
    for b in &flame.boxes {
        if let Some(file) = file_of(recording, b.frame) {
            *bytes.entry(file).or_default() += b.bytes;
        }
    }
    let mut order: Vec<(&str, u64)> = bytes.into_iter().collect();
    order.sort_unstable_by_key(|(file, bytes)| (std::cmp::Reverse(*bytes), *file));
    order.iter().enumerate().map(|(number, (file, _))| ((*file).to_owned(), number)).collect()
}

/// Frames of one file have one colour; the name is written on it.
fn color(
    look: &Look,
    files: &HashMap<String, usize>,
    b: &FlameBox,
    recording: &Recording,
) -> egui::Color32 {
    let number = file_of(recording, b.frame).and_then(|file| files.get(file));
    number.map_or(look.kinds[7], |number| look.kinds[number % 7])
}
