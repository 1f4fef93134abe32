//! Moves of live blocks: where each was, where it goes, and what that gains.

use std::sync::Arc;

use egui::{Rect, Shape, Stroke, StrokeKind, Ui, pos2};

use super::canvas::Canvas;
use super::heap_map::coloring;
use super::{Stage, bytes, empty, header, legend};
use crate::window::layout::{Camera, Classes, Grid, Sums, heap_scene};
use crate::window::model::{Moment, PoolKind, Recording, Shift, largest_hole_after};
use crate::window::paint::{Cell, Cells, Pattern};
use crate::window::view::View;

/// How the moves are looked at.
#[derive(Default)]
pub struct CompactionPanel {
    /// The pass shown, counted from the first; without one, the one at or after the moment.
    pass: Option<usize>,
    /// Moves done; the fraction is the one under way.
    done: f32,
    playing: bool,
    /// Moves per second.
    speed: Option<f32>,
    camera: Option<Camera>,
    drawn: Option<(Key, Cells)>,
}

type Key = (*const Recording, usize, [u32; 4], [u64; 3], bool);

/// Moves per second, unless chosen otherwise.
const SPEED: f32 = 4.0;

/// A pass: the heap before it and its moves in order.
struct Pass {
    before: Arc<Moment>,
    moves: Vec<Shift>,
}

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    let recording = Arc::clone(&stage.document.recording);
    let passes = recording.passes();
    if passes.is_empty() {
        let text = "No block was moved in this recording. PyTorch and other allocators never \
            move live blocks; Terrane's own runs do once compaction is on.";
        empty(ui, "No moves", text);
        return;
    }
    let at = stage.document.sight.at;
    let near = passes.iter().position(|pass| pass.end >= at).unwrap_or(passes.len() - 1);
    let number = stage.document.panels.compaction.pass.unwrap_or(near).min(passes.len() - 1);
    let range = &passes[number];
    let before = Arc::new(Moment::of(&recording, range.start));
    let moves = recording.shifts(&before, range);
    let pass = Pass { before, moves };
    controls(ui, stage, &pass, (number, passes.len()));
    map(ui, stage, &recording, &pass, number);
}

fn controls(ui: &mut Ui, stage: &mut Stage<'_>, pass: &Pass, (number, passes): (usize, usize)) {
    let look = stage.look;
    let count = pass.moves.len();
    let moved: u64 = pass.moves.iter().map(|shift| shift.bytes).sum();
    let gained = largest_hole_after(&pass.before, &pass.moves);
    header(ui, |ui| {
        let panel = &mut stage.document.panels.compaction;
        if ui.add_enabled(number > 0, egui::Button::new("◀ pass")).clicked() {
            (panel.pass, panel.done) = (Some(number - 1), 0.0);
        }
        ui.label(format!("pass {} of {passes}", number + 1));
        if ui.add_enabled(number + 1 < passes, egui::Button::new("pass ▶")).clicked() {
            (panel.pass, panel.done) = (Some(number + 1), 0.0);
        }
        bytes(ui, &look, "moved", moved);
        bytes(ui, &look, "largest hole before", pass.before.largest_free);
        bytes(ui, &look, "after", gained);
        coloring(ui, stage);
    });
    header(ui, |ui| {
        let still = stage.still;
        let panel = &mut stage.document.panels.compaction;
        let play = if panel.playing { "❚❚" } else { "▶" };
        if ui.button(play).on_hover_text("play or pause").clicked() {
            panel.playing = !panel.playing;
            if panel.playing && panel.done >= count as f32 {
                panel.done = 0.0;
            }
        }
        if ui.button("one move back").clicked() {
            panel.done = (panel.done.ceil() - 1.0).max(0.0);
        }
        if ui.button("one move on").clicked() {
            panel.done = (panel.done.floor() + 1.0).min(count as f32);
        }
        let speed = panel.speed.get_or_insert(SPEED);
        let slider = egui::Slider::new(speed, 0.5..=200.0).logarithmic(true).text("moves a second");
        ui.add(slider);
        ui.spacing_mut().slider_width = (ui.available_width() - 130.0).clamp(60.0, 600.0);
        let slider = egui::Slider::new(&mut panel.done, 0.0..=count as f32).show_value(false);
        ui.add(slider).accessible_name("moves done");
        ui.weak(format!("{} of {count} moves", panel.done.floor()));
        advance(ui, panel, count, still);
    });
}

fn advance(ui: &Ui, panel: &mut CompactionPanel, count: usize, still: bool) {
    if !panel.playing {
        return;
    }
    let step = ui.input(|input| input.stable_dt) * panel.speed.unwrap_or(SPEED);
    panel.done = (panel.done + step).min(count as f32);
    if panel.done >= count as f32 {
        panel.playing = false;
    }
    if still {
        // Nothing slides: a block is here or there.
        ui.request_repaint_after(std::time::Duration::from_millis(100));
    } else {
        ui.request_repaint();
    }
}

fn map(ui: &mut Ui, stage: &mut Stage<'_>, recording: &Recording, pass: &Pass, number: usize) {
    let look = stage.look;
    let (coloring, focus) = (stage.document.sight.coloring, stage.document.sight.focus());
    let classes = Classes::of(recording, &pass.before, coloring, focus);
    let mut keys = classes.legend(&look, &pass.before);
    keys.push(((look.paper, look.select), Pattern::Hatch, "was here".to_owned()));
    keys.push(((look.select, look.select), Pattern::Solid, "moving".to_owned()));
    legend(ui, stage, &keys);
    let name = format!("Compaction: {} moves in pass {}", pass.moves.len(), number + 1);
    let canvas = Canvas::new(ui, stage, View::Compaction, &name);
    let scale = ui.pixels_per_point();
    let area = canvas.rect.shrink(4.0);
    let total = pass.before.reserved;
    let panel = &mut stage.document.panels.compaction;
    if canvas.fit {
        panel.camera = None;
    }
    let mut grid = Grid::new(area, panel.camera, total, scale);
    if canvas.zoom != 1.0 {
        grid.camera = grid.zoomed(canvas.about, canvas.zoom);
    }
    if canvas.pan != egui::Vec2::ZERO {
        grid.camera = grid.panned(canvas.pan);
    }
    if canvas.moved() {
        panel.camera = Some(grid.camera);
    }
    let painter = ui.painter_at(canvas.rect);
    painter.rect_filled(canvas.rect, 3.0, look.paper);
    let camera = [grid.camera.per_row, grid.camera.origin, grid.camera.scroll].map(f64::to_bits);
    let corners = [area.min.x, area.min.y, area.max.x, area.max.y].map(f32::to_bits);
    let key = (std::ptr::from_ref(recording), number, corners, camera, look.dark);
    let clipped = painter.with_clip_rect(area);
    if stage.document.panels.compaction.drawn.as_ref().is_none_or(|(known, _)| *known != key) {
        let sums = Sums::of(&pass.before.parts, total, |index| {
            let part = &pass.before.parts[index];
            classes.class_of(recording, part.state, part.block, PoolKind::Unknown)
        });
        let scene = heap_scene(recording, &pass.before, &grid, &classes, &sums, &look);
        stage.document.panels.compaction.drawn = Some((key, Cells::new(scene.cells)));
    }
    if let Some((_, cells)) = stage.document.panels.compaction.drawn.clone() {
        stage.surface.draw(&clipped, 70, &cells);
    }
    let moving = moved_cells(stage, recording, &classes, pass, &grid);
    stage.surface.draw(&clipped, 71, &Cells::new(moving.0));
    for rect in moving.1 {
        clipped.rect_stroke(rect, 0.0, Stroke::new(2.0, look.select), StrokeKind::Outside);
    }
    clipped.extend(moving.2);
}

/// Ghosts at old places, blocks at new ones, and the one that slides.
fn moved_cells(
    stage: &Stage<'_>,
    recording: &Recording,
    classes: &Classes,
    pass: &Pass,
    grid: &Grid,
) -> (Vec<Cell>, Vec<Rect>, Vec<Shape>) {
    let look = stage.look;
    let done = stage.document.panels.compaction.done;
    let (whole, part) = (done.floor() as usize, if stage.still { 0.0 } else { done.fract() });
    let (mut cells, mut outlined, mut arrows) = (Vec::new(), Vec::new(), Vec::new());
    for (number, shift) in pass.moves.iter().enumerate().take(whole + usize::from(part > 0.0)) {
        let Some(block) = recording.blocks.get(shift.block as usize) else { continue };
        let color = classes.paint(&look, classes.class(block, PoolKind::Unknown)).0.0;
        for rect in grid.rects(shift.from, shift.bytes) {
            cells.push(Cell::new(rect, (look.paper, look.select), Pattern::Hatch));
        }
        if number < whole {
            for rect in grid.rects(shift.to, shift.bytes) {
                cells.push(Cell::solid(rect, color));
            }
            continue;
        }
        let (from, to) = (grid.rects(shift.from, shift.bytes), grid.rects(shift.to, shift.bytes));
        let (Some(from), Some(to)) = (bounds(from), bounds(to)) else { continue };
        let slide = |a: f32, b: f32| a + (b - a) * part * part * (3.0 - 2.0 * part);
        let rect = Rect::from_min_max(
            pos2(slide(from.min.x, to.min.x), slide(from.min.y, to.min.y)),
            pos2(slide(from.max.x, to.max.x), slide(from.max.y, to.max.y)),
        );
        cells.push(Cell::solid(rect, color));
        outlined.push(rect);
        let line = [from.center(), to.center()];
        arrows.push(Shape::line_segment(line, Stroke::new(1.2, look.select)));
    }
    (cells, outlined, arrows)
}

fn bounds(rects: impl Iterator<Item = Rect>) -> Option<Rect> {
    rects.reduce(Rect::union)
}
