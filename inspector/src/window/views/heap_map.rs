//! The heap by address, from the whole of it to one block.

use std::sync::Arc;

use egui::{Align2, FontId, Rect, Stroke, StrokeKind, Ui, pos2};

use super::canvas::Canvas;
use super::legend::{Sign, SignKey, legend};
use super::{Stage, bytes, empty, header};
use crate::units;
use crate::window::commands::Command;
use crate::window::document::Selected;
use crate::window::layout::{Camera, Coloring, Grid, HeapScene, Painted, Ticks, heap_scene, ticks};
use crate::window::model::{BlockRow, Hold, Moment, NEVER, Part, PartState, Recording, short_site};
use crate::window::paint::{Cells, Look};
use crate::window::view::View;

/// What was worked out for the last frame, and for what.
#[derive(Default)]
pub struct HeapPanel {
    drawn: Option<(Arc<Painted>, DrawKey, HeapScene, Cells)>,
}

type DrawKey = ([u32; 4], Option<[u64; 3]>, bool, u32);

const AXIS: f32 = 78.0;

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    figures(ui, stage);
    let painted = &stage.document.painted;
    let areas = painted.classes.legend(&stage.look, &painted.moment);
    let mut signs = vec![(Sign::Edge, stage.look.alarm, "a segment begins".to_owned())];
    signs.extend(tick_keys(stage));
    legend(ui, stage, &areas, &signs);
    ui.add_space(4.0);
    if stage.document.moment.reserved == 0 {
        let text = "No segment exists at this moment. Step on with the arrow keys, or press 1 \
            to go to the peak.";
        empty(ui, "Nothing is allocated", text);
        return;
    }
    chart(ui, stage);
}

/// What the ticks within segments mean, or how they come in sight.
fn tick_keys(stage: &Stage<'_>) -> Vec<SignKey> {
    let drawn = stage.document.panels.heap.drawn.as_ref();
    let ticks = drawn.map(|(_, _, scene, _)| scene.ticks).unwrap_or_default();
    let mut texts = Vec::new();
    match ticks {
        _ if stage.document.moment.pages.is_empty() => {}
        Ticks { pages: false, objects: false } => {
            texts.push((Sign::ShortTick, "pages: zoom in to see them"));
        }
        Ticks { pages, objects } => {
            let (long, short) = (Sign::LongTick, Sign::ShortTick);
            texts.extend(objects.then_some((long, "long tick: a memory object begins")));
            texts.extend(pages.then_some((short, "short tick: a page begins")));
        }
    }
    let ink = stage.look.ink;
    texts.into_iter().map(|(sign, text)| (sign, ink, text.to_owned())).collect()
}

/// The figures of the moment, and what colour stands for.
fn figures(ui: &mut Ui, stage: &mut Stage<'_>) {
    let (look, moment) = (stage.look, Arc::clone(&stage.document.moment));
    header(ui, |ui| {
        bytes(ui, &look, "reserved", moment.reserved);
        bytes(ui, &look, "live", moment.live);
        bytes(ui, &look, "free", moment.free());
        bytes(ui, &look, "largest hole", moment.largest_free);
        if moment.pending > 0 {
            bytes(ui, &look, "pending", moment.pending);
        }
        let fragmentation = format!("{:.0} %", moment.fragmentation() * 100.0);
        ui.weak("fragmentation").on_hover_text("of free bytes, the share outside the largest hole");
        ui.label(fragmentation);
        coloring(ui, stage);
    });
}

/// A choice of what colour stands for.
pub fn coloring(ui: &mut Ui, stage: &mut Stage<'_>) {
    let sight = &mut stage.document.sight;
    let shown = egui::ComboBox::from_id_salt("colour by")
        .selected_text(format!("colour by {}", sight.coloring.name()))
        .width(120.0)
        .show_ui(ui, |ui| {
            for coloring in Coloring::ALL {
                ui.selectable_value(&mut sight.coloring, coloring, coloring.name());
            }
        });
    shown.response.accessible_name("colour by");
}

fn chart(ui: &mut Ui, stage: &mut Stage<'_>) {
    let moment = Arc::clone(&stage.document.moment);
    let name = format!(
        "Heap map: {} blocks in {} segments, {} reserved",
        units::count(u64::from(moment.live_blocks)),
        units::count(moment.spaces.len() as u64),
        units::bytes(moment.reserved)
    );
    let canvas = Canvas::new(ui, stage, View::HeapMap, &name);
    let scale = ui.pixels_per_point();
    let mut area = canvas.rect.shrink2(egui::vec2(2.0, 2.0));
    area.min.x += AXIS;
    let grid = Grid::new(area, stage.document.sight.camera, moment.extent, scale);
    move_camera(stage, &canvas, &grid);
    let grid = Grid::new(area, stage.document.sight.camera, moment.extent, scale);
    let painter = ui.painter_at(canvas.rect);
    painter.rect_filled(canvas.rect, 3.0, stage.look.paper);
    draw(stage, &painter, &grid);
    axis(&painter, stage, &grid, canvas.rect);
    boundaries(&painter, stage, &grid, &moment);
    point(ui, stage, &canvas, &grid, &painter);
}

fn move_camera(stage: &mut Stage<'_>, canvas: &Canvas, grid: &Grid) {
    let sight = &mut stage.document.sight;
    if canvas.fit {
        sight.camera = None;
    }
    let mut grid = *grid;
    if canvas.zoom != 1.0 {
        grid.camera = grid.zoomed(canvas.about, canvas.zoom);
    }
    if canvas.pan != egui::Vec2::ZERO {
        grid.camera = grid.panned(canvas.pan);
    }
    if canvas.moved() {
        sight.camera = Some(grid.camera);
    }
    let zoom_to =
        stage.asked.contains(&Command::ZoomToSelection) || canvas.response.double_clicked();
    if zoom_to && let Some((start, bytes)) = selected_range(stage) {
        stage.document.sight.camera = Some(grid.showing(start, bytes));
    }
}

/// The selected block or range, counted over all segments one behind the other.
fn selected_range(stage: &Stage<'_>) -> Option<(u64, u64)> {
    let moment = &stage.document.moment;
    match stage.document.sight.selected? {
        Selected::Block(block) => {
            moment.part_of(&stage.document.recording, block).map(|part| (part.start, part.bytes))
        }
        Selected::Range(address, bytes) => {
            let end = address.checked_add(bytes)?;
            let space = moment
                .spaces
                .iter()
                .find(|space| space.address <= address && end <= space.address + space.bytes)?;
            Some((space.start + (address - space.address), bytes))
        }
        _ => None,
    }
}

fn draw(stage: &mut Stage<'_>, painter: &egui::Painter, grid: &Grid) {
    let document = &mut *stage.document;
    let painted = &document.painted;
    let camera = document.sight.camera.map(camera_key);
    let area = [grid.area.min.x, grid.area.min.y, grid.area.max.x, grid.area.max.y];
    let key = (area.map(f32::to_bits), camera, stage.look.dark, grid.scale.to_bits());
    let drawn = &mut document.panels.heap.drawn;
    let is_it = |of: &Arc<Painted>, known: &DrawKey| Arc::ptr_eq(of, painted) && *known == key;
    if drawn.as_ref().is_none_or(|(of, known, ..)| !is_it(of, known)) {
        let room = drawn.take().map(|(.., cells)| cells.into_room()).unwrap_or_default();
        let mut scene = heap_scene(painted, grid, (&stage.look, room));
        scene.ticks = ticks(&document.moment, grid, &stage.look, &mut scene.cells);
        let cells = Cells::new(std::mem::take(&mut scene.cells));
        *drawn = Some((Arc::clone(painted), key, scene, cells));
    }
    if let Some((.., scene, cells)) = drawn {
        let clipped = painter.with_clip_rect(grid.area);
        stage.surface.draw(&clipped, 10, cells);
        words(&clipped, document.recording.as_ref(), scene, &stage.look);
    }
}

fn camera_key(camera: Camera) -> [u64; 3] {
    [camera.per_row, camera.origin, camera.scroll].map(f64::to_bits)
}

/// Sizes and sites in blocks that have room for them.
fn words(painter: &egui::Painter, recording: &Recording, scene: &HeapScene, look: &Look) {
    for label in &scene.labels {
        let Some(block) = recording.blocks.get(label.block as usize) else { continue };
        let mut text = units::bytes(block.requested);
        if label.rect.width() > 190.0 && !recording.places.stacks.is_empty() {
            text = format!("{text}  {}", short_site(recording.site(block)));
        }
        let inside = painter.with_clip_rect(label.rect.intersect(painter.clip_rect()));
        let at =
            pos2(label.rect.left().max(painter.clip_rect().left()) + 4.0, label.rect.center().y);
        let font = FontId::proportional(11.5);
        let has_ticks = scene.ticks.pages || scene.ticks.objects;
        let (back, ink) = match label.is_striped {
            true => (look.paper, look.ink),
            false => (label.back, Look::on(label.back)),
        };
        let words = inside.layout_no_wrap(text, font, ink);
        let corner = at - egui::vec2(0.0, words.size().y / 2.0);
        if label.is_striped || has_ticks {
            // Letters over stripes or ticks cannot be read.
            let plate = Rect::from_min_size(corner, words.size()).expand2(egui::vec2(3.0, -1.0));
            inside.rect_filled(plate, 2.0, back);
        }
        inside.galley(corner, words, ink);
    }
}

/// Offsets at the left, or addresses where rows are so short that offsets look alike.
fn axis(painter: &egui::Painter, stage: &Stage<'_>, grid: &Grid, rect: Rect) {
    let moment = &stage.document.moment;
    let close = grid.camera.per_row < moment.extent as f64 / 4000.0;
    for (row, left) in grid.rows() {
        let y = grid.middle(row);
        let outside = left < -0.5 || left >= moment.extent as f64;
        if outside || y < rect.top() + 6.0 || y > rect.bottom() - 4.0 {
            continue;
        }
        let (text, size) = if close {
            let address = moment.address_at(left as u64).unwrap_or(0);
            (format!("{address:#x}"), 9.5)
        } else {
            (units::bytes(left.max(0.0).round() as u64), 11.5)
        };
        let at = pos2(grid.area.left() - 8.0, y);
        painter.text(at, Align2::RIGHT_CENTER, text, FontId::proportional(size), stage.look.faint);
    }
}

/// Where segments begin, unless they are as many as pixels.
fn boundaries(painter: &egui::Painter, stage: &Stage<'_>, grid: &Grid, moment: &Moment) {
    let visible = grid.camera.per_row * f64::from(grid.area.height() / grid.pitch);
    let average = moment.extent as f64 / moment.spaces.len().max(1) as f64;
    if visible / average > 400.0 {
        return;
    }
    let clipped = painter.with_clip_rect(grid.area);
    let stroke = Stroke::new(1.5, stage.look.alarm);
    for space in &moment.spaces {
        if let Some(rect) = grid.rects(space.start, 1).next() {
            clipped.vline(rect.left(), (rect.top() - 2.0)..=(rect.bottom() + 2.0), stroke);
        }
    }
}

/// What is under the pointer and what is selected.
fn point(ui: &Ui, stage: &mut Stage<'_>, canvas: &Canvas, grid: &Grid, painter: &egui::Painter) {
    let moment = Arc::clone(&stage.document.moment);
    let under = canvas.response.hover_pos().filter(|at| grid.area.contains(*at)).and_then(|at| {
        let byte = grid.byte_at(at);
        (byte >= 0.0).then(|| Some((byte as u64, moment.part_at(byte as u64)?.1))).flatten()
    });
    let clipped = painter.with_clip_rect(grid.area.expand(2.0));
    if let Some((byte, part)) = under {
        stage.document.hover_next = (part.block != NEVER).then_some(part.block);
        outline(&clipped, grid, (part.start, part.bytes), Stroke::new(1.5, stage.look.ink));
        if canvas.response.clicked() {
            stage.document.sight.selected = Some(pick(&moment, part));
        }
        let text = describe(stage, part) + &backing(&moment, byte);
        canvas.response.clone().on_hover_ui_at_pointer(|ui| {
            ui.set_max_width(420.0);
            ui.label(text);
        });
    } else if canvas.response.clicked() {
        stage.document.sight.selected = None;
    }
    let recording = &stage.document.recording;
    let hovered = stage.document.hover.and_then(|block| moment.part_of(recording, block));
    if let Some(part) = hovered {
        outline(&clipped, grid, (part.start, part.bytes), Stroke::new(1.5, stage.look.ink));
    }
    if let Some(range) = selected_range(stage) {
        outline(&clipped, grid, range, Stroke::new(2.5, stage.look.select));
    }
    let _ = ui;
}

fn pick(moment: &Moment, part: &Part) -> Selected {
    if part.block == NEVER {
        Selected::Range(moment.address_at(part.start).unwrap_or(0), part.bytes)
    } else {
        Selected::Block(part.block)
    }
}

fn outline(painter: &egui::Painter, grid: &Grid, (start, bytes): (u64, u64), stroke: Stroke) {
    for rect in grid.rects(start, bytes) {
        let rect = Rect::from_min_max(rect.min, pos2(rect.max.x.max(rect.min.x + 2.0), rect.max.y));
        painter.rect_stroke(rect, 0.0, stroke, StrokeKind::Outside);
    }
}

/// What memory is behind a byte, in words.
fn backing(moment: &Moment, byte: u64) -> String {
    if let Some(page) = moment.page_at(byte) {
        let bytes = units::bytes(page.bytes);
        return format!("\non a page of {bytes}, of memory object {}", page.object);
    }
    match moment.space_at(byte) {
        Some(space) if moment.pages.is_empty() && !space.implied => {
            format!("\nin a segment of {}", units::bytes(space.bytes))
        }
        _ => String::new(),
    }
}

/// A part in words.
fn describe(stage: &Stage<'_>, part: &Part) -> String {
    let (recording, moment) = (&stage.document.recording, &stage.document.moment);
    let address = moment.address_at(part.start).unwrap_or(0);
    let size = format!("{} ({} bytes)", units::bytes(part.bytes), units::count(part.bytes));
    let Some(block) = recording.blocks.get(part.block as usize) else {
        let what = match part.state {
            PartState::Unbacked => "no memory behind it",
            PartState::Stale => "stale: its pages are mapped elsewhere, and work may still use it",
            _ => "free",
        };
        return format!("{what}, {size}\n{address:#x}");
    };
    let state = match part.state {
        PartState::Pending => "pending, ",
        PartState::Unbacked => "paused, ",
        _ => "",
    };
    let asked = units::count(block.requested);
    format!(
        "{state}block of {size}\n{asked} bytes asked for, {}\n{address:#x}, allocated at event \
         {}\n{}{}",
        recording.stream(block.stream),
        units::count(u64::from(block.born)),
        recording.site(block),
        more(recording, block, recording.hold(part.block, moment.at))
    )
}

/// Its tag and whether it can be moved, where that is known.
fn more(recording: &Recording, block: &BlockRow, hold: Hold) -> String {
    let mut text = String::new();
    if block.tag > 0 {
        text += &format!("\ntag {}", recording.tag(block.tag));
    }
    if hold != Hold::Unknown {
        text += &format!("\n{}", hold.text());
    }
    text
}
