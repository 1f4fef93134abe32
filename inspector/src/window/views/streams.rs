//! One lane for each stream: what it holds, its work, and what it has freed that work still uses.

use std::sync::Arc;

use egui::{Align2, FontId, Painter, Rect, Stroke, Ui, pos2};

use super::canvas::Canvas;
use super::legend::{Sign, legend};
use super::links::{self, Awaited, Lanes, STRIP};
use super::timeline::{BELOW, LEFT, axis_choice, move_span, now, time_axis, time_signs};
use super::{Stage, empty, header, rows, waiting};
use crate::units;
use crate::window::document::Selected;
use crate::window::job::{Job, Later};
use crate::window::layout::{Axis, Span, TimeScale};
use crate::window::model::{Amount, Held, Moment, NEVER, OfStream, Recording, WorkRow};
use crate::window::paint::{Cell, Cells, Look, Pattern};
use crate::window::view::View;

/// What was worked out for the last frame, and for what.
#[derive(Default)]
pub struct StreamPanel {
    held: Job<Arc<Held>>,
    /// What was shown before, while a run's next figures are worked out.
    last: Option<(Arc<Recording>, Arc<Held>)>,
    lanes: Option<(Key, Vec<Lane>)>,
    awaited: Later<*const Moment, (Arc<Moment>, Vec<Awaited>)>,
    shown: Shown,
}

impl StreamPanel {
    /// Drops what was worked out, but for what of a live run is shown until there is something
    /// new.
    pub fn forget(&mut self) {
        (self.held, self.lanes) = (Job::default(), None);
        self.awaited.forget();
        self.last = self.last.take().filter(|(recording, _)| recording.is_live);
    }

    /// Whether a thread works on it.
    pub fn is_busy(&mut self) -> bool {
        self.held.poll();
        self.held.is_running() || self.awaited.is_busy()
    }
}

/// As what streams are shown.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Shown {
    #[default]
    Lanes,
    Streams,
    Pending,
    Work,
}

type Key = (*const Recording, *const Held, Axis, Option<[u64; 2]>, usize);

/// A stream over the time that is shown.
pub struct Lane {
    /// Its number.
    pub stream: u32,
    blocks: u64,
    most: u64,
    /// Live and pending bytes in each column.
    pub columns: Vec<(u64, u64)>,
    /// Pieces of work in the whole run.
    pub works: u64,
    /// Where work is under way, as shares of the width.
    under_way: Vec<[f32; 2]>,
    /// Where work was submitted, as shares of the width; as many as can be told apart.
    submitted: Vec<f32>,
}

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    let recording = Arc::clone(&stage.document.recording);
    if recording.blocks.is_empty() && recording.work.is_empty() {
        empty(ui, "No streams", "The file has no block on any stream, and no work.");
        return;
    }
    header(ui, |ui| {
        let shown = &mut stage.document.panels.streams.shown;
        for (value, text, tip) in [
            (Shown::Lanes, "lanes", "bytes, work and waits over time"),
            (Shown::Streams, "table", "the streams and what each holds"),
            (Shown::Pending, "pending", "freed blocks that work still uses, and which"),
            (Shown::Work, "work and waits", "all work that was submitted, and all waits"),
        ] {
            ui.selectable_value(shown, value, text).on_hover_text(tip);
        }
        axis_choice(ui, stage);
    });
    match stage.document.panels.streams.shown {
        Shown::Pending => rows::show(ui, stage, rows::Kind::Pending),
        Shown::Work => rows::show(ui, stage, rows::Kind::Work),
        Shown::Streams => rows::show(ui, stage, rows::Kind::Streams),
        Shown::Lanes if recording.events.is_empty() => {
            rows::show(ui, stage, rows::Kind::Streams);
        }
        Shown::Lanes => {
            keys(ui, stage, &recording);
            lanes(ui, stage, &recording);
        }
    }
}

fn keys(ui: &mut Ui, stage: &mut Stage<'_>, recording: &Recording) {
    let look = stage.look;
    let solid = |color, text: &str| ((color, color), Pattern::Solid, text.to_owned());
    let pending = "pending: freed, work still uses it".to_owned();
    let mut keys = vec![solid(look.active, "live"), (look.pending, Pattern::Stripes, pending)];
    if !recording.work.is_empty() {
        keys.push(solid(look.requested, "work, from its submission until it was known done"));
    }
    let mut signs = Vec::new();
    if !recording.waits.is_empty() {
        let text = "arrow: waits for the stream that it comes from";
        signs.push((Sign::Arrow, look.select, text.to_owned()));
    }
    signs.extend(time_signs(stage));
    if !recording.pending.is_empty() {
        let text = "dots: from blocks pending now to the work they wait for";
        keys.push(((look.paper, look.pending.1), Pattern::Dots, text.to_owned()));
    }
    legend(ui, stage, &keys, &signs);
}

/// What is drawn, for those who do not see it.
fn name(stage: &Stage<'_>, recording: &Recording) -> String {
    let panel = &stage.document.panels.streams;
    let lanes = panel.lanes.as_ref().map_or(0, |(_, lanes)| lanes.len());
    let mut name = format!("Lanes of {lanes} streams over time");
    let counts = [
        (recording.work.len(), "piece of work", "pieces of work"),
        (recording.waits.len(), "wait", "waits"),
    ];
    for (count, one, many) in counts.into_iter().filter(|(count, ..)| *count > 0) {
        name += &format!(", {}", crate::text::counted(count as u64, one, many));
    }
    let awaited = panel.awaited.last();
    for one in awaited.iter().flat_map(|it| &it.1).take(4) {
        name += &format!("; {}: {}", recording.stream(one.stream), one.text(recording));
    }
    name
}

fn lanes(ui: &mut Ui, stage: &mut Stage<'_>, recording: &Arc<Recording>) {
    prepare_awaited(ui, stage, recording);
    let name = name(stage, recording);
    let Some((of, held)) = prepare(ui, stage, recording) else {
        waiting(ui, "adding up what streams hold…");
        return;
    };
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
    let key = (Arc::as_ptr(recording), Arc::as_ptr(&held), sight.axis, span, columns);
    let panel = &mut stage.document.panels.streams;
    if panel.lanes.as_ref().is_none_or(|(known, _)| *known != key) {
        let mut lanes = lanes_of(&of, &held, &scale.edges(columns));
        work_in(&mut lanes, recording, &scale);
        panel.lanes = Some((key, lanes));
    }
    time_axis(&painter, &stage.look, &scale, area);
    let Some((key, made)) = panel.lanes.take() else { return };
    let awaited = panel.awaited.last();
    let height = (area.height() / made.len().max(1) as f32).min(230.0);
    let lanes = Lanes { lanes: &made, area, height };
    let mut cells = Vec::new();
    for (number, lane) in made.iter().enumerate() {
        fill(&mut cells, &stage.look, lane, (lanes.band(number), lanes.strip(number)));
    }
    let clipped = painter.with_clip_rect(area);
    stage.surface.draw(&clipped, 40, &Cells::new(cells));
    links::arrows(&painter, stage, &scale, lanes);
    let of_moment = awaited.as_ref().map_or(&[][..], |it| &it.1);
    links::awaited(&clipped, stage, &scale, lanes, of_moment);
    for (number, lane) in made.iter().enumerate() {
        let band = lanes.band(number).with_min_x(canvas.rect.left());
        words(&painter, stage, lane, (band, of_moment));
        let hit = canvas.response.interact_pointer_pos().is_some_and(|at| band.contains(at));
        if hit && canvas.response.clicked() {
            stage.document.sight.selected = Some(Selected::Stream(lane.stream));
        }
    }
    links::tip(stage, &canvas, &scale, lanes);
    stage.document.panels.streams.lanes = Some((key, made));
    now(ui, stage, &canvas, &scale, area);
}

/// Runs of more events are added up on a thread.
const LONG: usize = 1 << 20;

/// What streams hold over the run, and of which state of the run.
fn prepare(
    ui: &Ui,
    stage: &mut Stage<'_>,
    recording: &Arc<Recording>,
) -> Option<(Arc<Recording>, Arc<Held>)> {
    let panel = &mut stage.document.panels.streams;
    if panel.held.is_idle() {
        let work = Arc::clone(recording);
        panel.held = match recording.events.len() {
            0..=LONG => Job::Done(Arc::new(Held::of(&work))),
            _ => Job::start(ui.ctx(), move || Arc::new(Held::of(&work))),
        };
    }
    if let Some(held) = panel.held.poll() {
        panel.last = Some((Arc::clone(recording), Arc::clone(held)));
    }
    panel.last.clone()
}

/// A lane for each stream.
fn lanes_of(recording: &Recording, held: &Held, edges: &[u32]) -> Vec<Lane> {
    let lane = |(of, columns): (&OfStream, Vec<Amount>)| Lane {
        stream: of.stream,
        blocks: of.blocks,
        most: of.most,
        columns,
        works: 0,
        under_way: Vec::new(),
        submitted: Vec::new(),
    };
    held.streams.iter().zip(held.columns(recording, edges)).map(lane).collect()
}

/// What the pending blocks of the moment wait for.
fn prepare_awaited(ui: &Ui, stage: &mut Stage<'_>, recording: &Arc<Recording>) {
    let (recording, moment) = (Arc::clone(recording), Arc::clone(&stage.document.moment));
    let at_once = recording.is_small() || recording.pending.is_empty();
    let panel = &mut stage.document.panels.streams;
    panel.awaited.get(ui.ctx(), Arc::as_ptr(&moment), at_once, move || {
        let is_told = !recording.pending.is_empty();
        let found = if is_told { Awaited::at(&recording, &moment) } else { Vec::new() };
        (moment, found)
    });
}

fn fill(cells: &mut Vec<Cell>, look: &Look, lane: &Lane, (band, strip): (Rect, Rect)) {
    let room = Rect::from_min_max(
        pos2(band.left(), band.top() + band.height().min(16.0)),
        pos2(band.right(), if lane.works > 0 { strip.top() - 3.0 } else { band.bottom() - 3.0 }),
    );
    let width = room.width() / lane.columns.len().max(1) as f32;
    let tall = room.height().max(0.0);
    let y = |bytes: u64| {
        room.bottom() - (tall * (bytes as f64 / lane.most.max(1) as f64) as f32).round()
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
    let x = |share: f32| strip.left() + strip.width() * share;
    for [from, to] in &lane.under_way {
        let rect =
            Rect::from_x_y_ranges(x(*from)..=x(*to), strip.top() + 1.5..=strip.bottom() - 1.5);
        cells.push(Cell::solid(rect, look.requested));
    }
    for at in &lane.submitted {
        let rect = Rect::from_x_y_ranges(x(*at)..=x(*at) + 1.5, strip.y_range());
        cells.push(Cell::solid(rect, look.ink));
    }
}

fn words(painter: &Painter, stage: &Stage<'_>, lane: &Lane, (band, awaited): (Rect, &[Awaited])) {
    let (look, recording) = (stage.look, &stage.document.recording);
    painter.hline(band.x_range(), band.bottom(), Stroke::new(1.0, look.grid));
    let selected = stage.document.sight.selected == Some(Selected::Stream(lane.stream));
    let color = if selected { look.select } else { look.ink };
    let mut text = format!(
        "{}: {} blocks, at most {}",
        recording.stream(lane.stream),
        units::count(lane.blocks),
        units::bytes(lane.most)
    );
    if lane.works > 0 {
        text +=
            &format!(", {}", crate::text::counted(lane.works, "piece of work", "pieces of work"));
    }
    for one in awaited.iter().filter(|one| one.stream == lane.stream) {
        text += &format!("; {}", one.text(recording));
    }
    let at = pos2(band.left() + 6.0, band.top() + 1.0);
    let font = FontId::proportional(11.5);
    let mut job = egui::text::LayoutJob::simple_singleline(text, font, color);
    job.wrap = egui::text::TextWrapping::truncate_at_width(band.right() - at.x - 4.0);
    let shape = painter.layout_job(job);
    let back = Rect::from_min_size(at, shape.size()).expand2(egui::vec2(3.0, 0.0));
    painter.rect_filled(back, 2.0, look.paper.gamma_multiply(0.9));
    painter.galley(at, shape, color);
    if band.height() > 60.0 {
        let left = band.left() + LEFT - 6.0;
        let small = FontId::proportional(10.5);
        let label = |y: f32, text: &str| {
            painter.text(pos2(left, y), Align2::RIGHT_CENTER, text, small.clone(), look.faint);
        };
        let zero = if lane.works > 0 { 17.0 + STRIP / 2.0 } else { 7.0 };
        if lane.most > 0 {
            label(band.top() + 22.0, &units::bytes(lane.most));
            label(band.bottom() - zero, "0 B");
        }
        if lane.works > 0 {
            label(band.bottom() - 3.0 - STRIP / 2.0, "work");
        }
    }
}

/// Strokes of work are at least so many points apart.
const STROKES_APART: f32 = 3.0;

/// Adds where work is under way and where it was submitted.
fn work_in(lanes: &mut [Lane], recording: &Recording, scale: &TimeScale<'_>) {
    let width = scale.x.span().max(1.0);
    let share = |moment: u32| (scale.x_of(moment) - scale.x.min) / width;
    let point = 1.0 / width;
    for WorkRow { at, done, stream, .. } in &recording.work {
        let Some(lane) = lanes.iter_mut().find(|lane| lane.stream == *stream) else { continue };
        lane.works += 1;
        let from = share(*at);
        let to = if *done == NEVER { 1.0 } else { share(*done) };
        if from > 1.0 || to < 0.0 {
            continue;
        }
        let (shown, to) = (from.max(0.0), to.clamp(0.0, 1.0).max(from + point));
        match lane.under_way.last_mut() {
            Some(last) if shown <= last[1] + 0.5 * point => last[1] = last[1].max(to),
            _ => lane.under_way.push([shown, to]),
        }
        let before = lane.submitted.last().copied().unwrap_or(f32::MIN);
        if from >= 0.0 && from - before >= STROKES_APART * point {
            lane.submitted.push(from);
        }
    }
}
