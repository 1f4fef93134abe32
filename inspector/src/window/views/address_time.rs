//! Address against time: one rectangle per block.

use std::sync::Arc;

use egui::{Align2, FontId, Rect, Stroke, StrokeKind, TextureHandle, TextureOptions, Ui, pos2};

use super::canvas::Canvas;
use super::heap_map::coloring;
use super::legend::{Sign, legend};
use super::timeline::{BELOW, LEFT, axis_choice, move_span, now, time_axis, time_signs};
use super::{Stage, empty, header, waiting};
use crate::units;
use crate::window::document::Selected;
use crate::window::job::{Job, Later};
use crate::window::layout::{
    AddressTime, Axis, ChartSight as Sight, Classes, Coloring, Entry, Focus, Layer, Order,
    TimeScale,
};
use crate::window::model::{Moment, Recording};
use crate::window::paint::Cells;
use crate::window::view::View;

/// What was worked out for the last frame, and for what.
#[derive(Default)]
pub struct AddressPanel {
    order: Job<Arc<Made>>,
    /// The order before, shown while a run's next one is worked out.
    last: Option<Arc<Made>>,
    colors: Later<ColorKey, Colored>,
    drawn: Option<Drawn>,
    /// All blocks in sight, where they are more than a frame can lay out.
    layer: Later<LayerKey, Shown>,
    /// The block at a byte and a moment, where it is none of those that are laid out.
    under: Later<(*const Made, u32, u64), Under>,
}

/// What is kept, and the block found in it.
type Under = (Arc<Made>, Option<u32>);

/// The order of addresses, and the fullest moment.
struct Made {
    recording: Arc<Recording>,
    order: Order,
    peak: Moment,
}

/// The classes of its blocks.
struct Colored {
    made: Arc<Made>,
    classes: Classes,
}

/// What was drawn of some blocks, and how many of them were left out.
struct Drawn {
    of: Arc<Colored>,
    key: DrawKey,
    cells: Cells,
    left_out: usize,
}

/// All blocks in sight: what is kept for them, and the picture where they are many.
struct Shown {
    of: Arc<Colored>,
    area: Area,
    layer: Layer,
    picture: Option<TextureHandle>,
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
        self.order.is_running() || self.colors.is_busy() || self.layer.is_busy()
    }
}

type ColorKey = (*const Made, Coloring, Option<Focus>);
/// Width, height and scale of a chart, and whether it is dark.
type Area = ([u32; 3], bool);
/// Of which classes, on which area, what of time and bytes, by which axis.
type LayerKey = (*const Colored, Area, [u64; 4], Axis);
/// The same, of which blocks and where on the screen.
type DrawKey = (LayerKey, *const Entry, [u32; 2]);

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    let recording = Arc::clone(&stage.document.recording);
    if recording.events.is_empty() {
        let text = "This file has no history, only one moment: look at the heap map.";
        empty(ui, "No time to show", text);
        return;
    }
    let Some(colored) = prepare(ui, stage) else {
        waiting(ui, "ordering addresses…");
        return;
    };
    header(ui, |ui| {
        how_many(ui, stage, &recording);
        axis_choice(ui, stage);
        coloring(ui, stage);
    });
    let mut keys = colored.classes.legend(&stage.look, &Moment::default());
    keys.retain(|key| key.2 != "free");
    let mut signs = Vec::new();
    if !recording.moves.is_empty() {
        signs.push((Sign::Way, stage.look.select, "moved, to the dot".to_owned()));
    }
    signs.extend(time_signs(stage));
    legend(ui, stage, &keys, &signs);
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
    draw(ui, stage, &canvas, &colored);
}

/// How many blocks there are, and how they are drawn.
fn how_many(ui: &mut Ui, stage: &mut Stage<'_>, recording: &Recording) {
    let panel = &mut stage.document.panels.address;
    let all = units::count(recording.blocks.len() as u64);
    let is_late = panel.layer.is_busy();
    let shown = panel.layer.last();
    let left_out = panel.drawn.as_ref().map_or(0, |drawn| drawn.left_out);
    match shown.as_deref().map(|shown| &shown.layer) {
        Some(Layer::Dense(_, _, count)) if panel.drawn.is_none() => {
            let text = format!("{all} blocks, {} in sight by density", units::count(*count as u64));
            ui.weak(text).on_hover_text(
                "each pixel has the colour of what covers most of it, paler where little of it is \
                 covered; zoom in to see blocks one by one",
            );
        }
        _ if left_out > 0 && is_late => {
            let left_out = units::count(left_out as u64);
            ui.weak(format!("{all} blocks, {left_out} of them on their way…"));
        }
        _ => {
            ui.weak(format!("{all} blocks"));
        }
    }
}

/// The order of addresses and the fullest moment, worked out on a thread; the classes of blocks.
fn prepare(ui: &Ui, stage: &mut Stage<'_>) -> Option<Arc<Colored>> {
    let document = &mut *stage.document;
    let panel = &mut document.panels.address;
    if panel.order.is_idle() {
        let recording = Arc::clone(&document.recording);
        panel.order = Job::start(ui.ctx(), move || {
            let peak = Moment::of(&recording, recording.peak());
            Arc::new(Made { order: Order::of(&recording), recording, peak })
        });
    }
    let made = panel.order.poll().cloned().or_else(|| panel.last.clone())?;
    let (coloring, focus) = (document.sight.coloring, document.sight.focus());
    let at_once = made.recording.is_small();
    panel.colors.get(ui.ctx(), (Arc::as_ptr(&made), coloring, focus), at_once, move || {
        // Classes of the fullest moment hold for the whole run; ages do not.
        let coloring = if coloring == Coloring::Age { Coloring::Size } else { coloring };
        let classes = Classes::of(&made.recording, &made.peak, coloring, focus);
        Colored { made, classes }
    })
}

fn draw(ui: &Ui, stage: &mut Stage<'_>, canvas: &Canvas, colored: &Arc<Colored>) {
    move_span(stage, canvas);
    let (recording, look) = (&colored.made.recording, stage.look);
    let area = Rect::from_min_max(
        pos2(canvas.rect.left() + LEFT, canvas.rect.top() + 12.0),
        pos2(canvas.rect.right() - 8.0, canvas.rect.bottom() - BELOW),
    );
    let sight = stage.document.sight;
    let order = &colored.made.order;
    let whole = (0.0, order.total.max(1) as f64 * 1.01);
    let mut chart = AddressTime {
        order,
        time: TimeScale::new(recording, sight.axis, sight.span, area.x_range()),
        area,
        bytes: sight.addresses.unwrap_or(whole),
        scale: ui.pixels_per_point(),
    };
    move_addresses(stage, canvas, &mut chart, whole);
    let painter = ui.painter_at(canvas.rect);
    painter.rect_filled(canvas.rect, 3.0, look.paper);
    address_axis(&painter, &chart, stage);
    time_axis(&painter, &look, &chart.time, area);
    blocks(stage, &painter.with_clip_rect(area), &chart, colored);
    jumps(&painter.with_clip_rect(area), &chart, stage.look.select);
    point(stage, canvas, &painter.with_clip_rect(area), (&chart, colored));
    now(ui, stage, canvas, &chart.time, area);
}

fn layer_key(chart: &AddressTime<'_>, colored: &Arc<Colored>, dark: bool) -> LayerKey {
    let size = [chart.area.width(), chart.area.height(), chart.scale].map(f32::to_bits);
    let Sight { time: [from, to], bytes: [low, high] } = chart.sight();
    let sight = [from, to, low, high].map(f64::to_bits);
    (Arc::as_ptr(colored), (size, dark), sight, chart.time.axis)
}

/// Draws all blocks in sight: one by one, or as a picture. Until a thread has found them, the
/// largest are drawn, and over them what was in sight before.
fn blocks(
    stage: &mut Stage<'_>,
    painter: &egui::Painter,
    chart: &AddressTime<'_>,
    colored: &Arc<Colored>,
) {
    let panel = &mut stage.document.panels.address;
    panel.layer.is_busy();
    let key = layer_key(chart, colored, stage.look.dark);
    let its = panel.layer.last().filter(|shown| Arc::ptr_eq(&shown.of, colored));
    match its.as_deref() {
        Some(Shown { layer: Layer::Few(wide, few), .. }) if wide.has(&chart.sight()) => {
            one_by_one(stage, painter, (chart, colored), (key, few, 0));
        }
        Some(Shown { layer: Layer::Dense(sight, ..), area, picture, .. })
            if *sight == chart.sight() && *area == key.1 =>
        {
            panel.drawn = None;
            picture_of(painter, chart, *sight, picture.as_ref());
        }
        other => {
            let order = &colored.made.order;
            one_by_one(stage, painter, (chart, colored), (key, order.largest(), order.others()));
            if let Some(Shown { layer: Layer::Dense(sight, ..), picture, .. }) = other {
                picture_of(painter, chart, *sight, picture.as_ref());
            }
            let drawn = &stage.document.panels.address.drawn;
            if drawn.as_ref().is_some_and(|drawn| drawn.left_out > 0) {
                find_all(stage, painter.ctx(), chart, (key, colored));
            }
        }
    }
}

/// Has a thread find all blocks in sight.
fn find_all(
    stage: &mut Stage<'_>,
    ctx: &egui::Context,
    chart: &AddressTime<'_>,
    (key, colored): (LayerKey, &Arc<Colored>),
) {
    let (of, look, waker) = (Arc::clone(colored), stage.look, ctx.clone());
    let (axis, span, area) = (chart.time.axis, chart.time.span, chart.area);
    let (bytes, scale) = (chart.bytes, chart.scale);
    let at_once = of.made.recording.is_small();
    stage.document.panels.address.layer.get(ctx, key, at_once, move || {
        let time = TimeScale::new(&of.made.recording, axis, Some(span), area.x_range());
        let chart = AddressTime { order: &of.made.order, time, area, bytes, scale };
        let mut layer = chart.layer(&of.classes, &look);
        let picture = match &mut layer {
            Layer::Few(..) => None,
            Layer::Dense(_, image, _) => {
                let image = std::mem::take(image);
                Some(waker.load_texture("blocks by density", image, TextureOptions::NEAREST))
            }
        };
        Shown { of, area: key.1, layer, picture }
    });
}

/// Draws a picture where what it shows is now.
fn picture_of(
    painter: &egui::Painter,
    chart: &AddressTime<'_>,
    sight: Sight,
    picture: Option<&TextureHandle>,
) {
    if let Some(picture) = picture {
        let whole = Rect::from_min_max(pos2(0.0, 0.0), pos2(1.0, 1.0));
        painter.image(picture.id(), chart.rect_of(sight), whole, egui::Color32::WHITE);
    }
}

/// Draws a rectangle for each of some blocks, beside which there are others.
fn one_by_one(
    stage: &mut Stage<'_>,
    painter: &egui::Painter,
    (chart, colored): (&AddressTime<'_>, &Arc<Colored>),
    (key, blocks, others): (LayerKey, &[Entry], usize),
) {
    let corner = [chart.area.min.x, chart.area.min.y].map(f32::to_bits);
    let key = (key, blocks.as_ptr(), corner);
    let drawn = &mut stage.document.panels.address.drawn;
    let is_it = |drawn: &Drawn| Arc::ptr_eq(&drawn.of, colored) && drawn.key == key;
    if !drawn.as_ref().is_some_and(is_it) {
        let room = drawn.take().map(|drawn| drawn.cells.into_room()).unwrap_or_default();
        let (cells, left_out) = chart.cells(blocks, &colored.classes, &stage.look, room);
        let (of, cells) = (Arc::clone(colored), Cells::new(cells));
        *drawn = Some(Drawn { of, key, cells, left_out: left_out + others });
    }
    if let Some(drawn) = drawn {
        stage.surface.draw(painter, 30, &drawn.cells);
    }
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

/// The block at a point of the chart.
fn block_at(
    stage: &mut Stage<'_>,
    ctx: &egui::Context,
    (chart, colored): (&AddressTime<'_>, &Arc<Colored>),
    at: egui::Pos2,
) -> Option<u32> {
    let panel = &mut stage.document.panels.address;
    let few = panel.layer.last();
    let few = match few.as_deref() {
        Some(Shown { layer: Layer::Few(_, few), of, .. }) if Arc::ptr_eq(of, colored) => few,
        _ => &Vec::new(),
    };
    let found = chart.block_at(few, at).or_else(|| chart.block_at(chart.order.largest(), at));
    if found.is_some() || chart.order.others() == 0 {
        return found;
    }
    let (moment, start) = (chart.time.moment_at(at.x), chart.start_at(at.y).max(0.0) as u64);
    let made = Arc::clone(&colored.made);
    let key = (Arc::as_ptr(&made), moment, start);
    let axis = chart.time.axis;
    let under = panel.under.get(ctx, key, made.recording.is_small(), move || {
        let time = TimeScale::new(&made.recording, axis, None, egui::Rangef::new(0.0, 1.0));
        let order = &made.order;
        let chart = AddressTime { order, time, area: Rect::NOTHING, bytes: (0.0, 1.0), scale: 1.0 };
        let found = chart.find(moment, start);
        (made, found)
    });
    under.filter(|_| panel.under.is_of(&key)).and_then(|under| under.1)
}

fn point(
    stage: &mut Stage<'_>,
    canvas: &Canvas,
    painter: &egui::Painter,
    (chart, colored): (&AddressTime<'_>, &Arc<Colored>),
) {
    let recording = Arc::clone(&colored.made.recording);
    let outline = |block: u32, stroke: Stroke| {
        let block = recording.blocks.get(block as usize)?;
        let rect = chart.rect(block)?.expand(1.0);
        painter.rect_stroke(rect, 0.0, stroke, StrokeKind::Outside);
        Some(())
    };
    let at = canvas.response.hover_pos().filter(|at| chart.area.contains(*at));
    let under = at.and_then(|at| block_at(stage, painter.ctx(), (chart, colored), at));
    let document = &mut *stage.document;
    if let Some(number) = under {
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
