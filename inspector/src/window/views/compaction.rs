//! Moves of live blocks: where each was, where it goes, and what that gains.

use std::ops::Range;
use std::sync::Arc;

use egui::{Stroke, StrokeKind, Ui};
use terrane_core::event::MoveKind;
use terrane_trace::live::Compact;

use super::canvas::Canvas;
use super::heap_map::coloring;
use super::legend::{Sign, SignKey, legend};
use super::moved::{Moved, mark_text};
use super::{Stage, bytes, empty, header, waiting};
use crate::units;
use crate::window::commands::Command;
use crate::window::job::Later;
use crate::window::layout::{Camera, Coloring, Focus, Grid, Painted, heap_scene};
use crate::window::model::{
    Aim, Moment, PoolKind, Recording, Refusal, Shift, largest_hole_after, means, plan_for,
};
use crate::window::paint::{Cells, Look, Pattern};
use crate::window::view::View;

/// How the moves are looked at.
#[derive(Default)]
pub struct CompactionPanel {
    /// The pass shown, counted from the first; without one, the one at or after the moment.
    pass: Option<usize>,
    /// Plan here rather than show recorded moves; unless chosen, where none were recorded.
    planning: Option<bool>,
    as_table: bool,
    /// The most moves of a plan.
    most: Option<u64>,
    aim: Option<Aim>,
    /// The pass shown.
    made: Later<Of, Pass>,
    painted: Later<PaintKey, Ready>,
    /// The pass of which moves are shown done.
    shown_for: Option<Shown>,
    /// Moves done; the fraction is the one under way.
    pub done: f32,
    playing: bool,
    /// What "compact now" asks for.
    pub asked: Compact,
    /// The share of a pass's moves that are shown done at first, for pictures that do not play.
    pub shown_done: f32,
    /// Moves per second.
    speed: Option<f32>,
    camera: Option<Camera>,
    drawn: Option<(Drawn, Cells)>,
    /// What was drawn over it.
    over: Cells,
}

impl CompactionPanel {
    /// Whether a thread works on it.
    pub fn is_busy(&mut self) -> bool {
        self.made.is_busy() || self.painted.is_busy()
    }

    /// Drops what was worked out from a recording that has been replaced.
    pub fn forget(&mut self) {
        self.made.forget();
        self.painted.forget();
        self.drawn = None;
    }

    fn plans(&self, passes: usize) -> bool {
        passes == 0 || self.planning.unwrap_or(false)
    }

    fn rewind(&mut self) {
        (self.done, self.playing) = (0.0, false);
    }
}

type PaintKey = (*const Pass, Coloring, Option<Focus>);
/// Of what, in which area, from where and on which background the heap was drawn.
type Drawn = (Arc<Ready>, [u32; 4], [u64; 3], bool);

/// A pass, the heap before it sorted into classes, and the class of each block that moves.
struct Ready {
    pass: Arc<Pass>,
    painted: Painted,
    moved: Vec<Option<u8>>,
}

/// What a pass is: a plan for a moment, or one that was recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Plan(*const Moment, Aim, u64),
    Recorded(*const Recording, usize),
}

/// The same after more was recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// For the moment at this address.
    Plan(usize, Aim, u64),
    Recorded(usize),
}

/// Moves of a plan that is not limited.
const MOVES_MOST: u64 = 100_000;
/// Moves per second, unless chosen otherwise.
const SPEED: f32 = 4.0;

/// A pass: the heap before it and its moves in order.
struct Pass {
    /// For which moment it was planned, or how many passes came before it.
    of: Shown,
    recording: Arc<Recording>,
    before: Arc<Moment>,
    moves: Vec<Shift>,
    refused: Vec<Refusal>,
    text: &'static str,
    /// Bytes of its moves; not shown where the pass itself told how many it moved.
    moved: Option<u64>,
    /// The largest hole after them.
    gained: u64,
    /// How many of them are by what means.
    means: String,
    /// Those means.
    kinds: Vec<MoveKind>,
}

impl Pass {
    fn new(
        of: Shown,
        (recording, before): (Arc<Recording>, Arc<Moment>),
        (moves, refused): (Vec<Shift>, Vec<Refusal>),
        text: &'static str,
    ) -> Self {
        let moved = Some(moves.iter().map(|shift| shift.bytes).sum());
        let gained = largest_hole_after(&before, &moves);
        let means = means(moves.iter().map(|shift| shift.by));
        let used = |kind: &MoveKind| moves.iter().any(|shift| shift.by == *kind);
        let kinds = MoveKind::ALL.into_iter().filter(used).collect();
        Self { of, recording, before, moves, refused, text, moved, gained, means, kinds }
    }

    /// A plan for a moment.
    fn planned(recording: Arc<Recording>, moment: Arc<Moment>, aim: Aim, most: u64) -> Self {
        let plan = plan_for(&moment, aim, most);
        let text = match (plan.met, plan.reachable) {
            (true, _) => "The goal is met already: nothing has to move.",
            (_, false) => "The goal cannot be met by moving blocks here.",
            _ => "A plan: nothing of it was done.",
        };
        let of = Shown::Plan(Arc::as_ptr(&moment).addr(), aim, most);
        Self::new(of, (recording, moment), (plan.moves, plan.refused), text)
    }

    /// What a recording tells of a pass.
    fn recorded(recording: Arc<Recording>, number: usize, range: &Range<u32>) -> Self {
        let before = Arc::new(Moment::of(&recording, range.start));
        let moves = recording.shifts(&before, range);
        let note = recording.passes.iter().find(|note| note.at >= range.end);
        let refused = note.map(|note| note.refused.clone()).unwrap_or_default();
        let text = "The moves of this pass went to segments that did not exist before it.";
        let is_told = note.is_some();
        let of = Shown::Recorded(number);
        let pass = Self::new(of, (recording, before), (moves, refused), text);
        Self { moved: pass.moved.filter(|_| !is_told), ..pass }
    }
}

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    let recording = Arc::clone(&stage.document.recording);
    if stage.document.moment.parts.is_empty() {
        let text = "No segment exists at this moment. Press 1 to go to the peak.";
        empty(ui, "Nothing to move", text);
        return;
    }
    let ranges = recording.move_ranges();
    let planning = source(ui, stage, ranges.len());
    if !planning && stage.document.panels.compaction.as_table {
        super::rows::show(ui, stage, super::rows::Kind::Moves);
        return;
    }
    let pass = if planning { planned(ui, stage) } else { recorded(ui, stage, &recording, &ranges) };
    let Some(pass) = pass else {
        waiting(ui, if planning { "planning…" } else { "working out the heap before the pass…" });
        return;
    };
    let panel = &mut stage.document.panels.compaction;
    if panel.shown_for.replace(pass.of) != Some(pass.of) {
        panel.rewind();
        panel.done = (pass.moves.len() as f32 * panel.shown_done).floor();
    }
    refusals(ui, &pass);
    if pass.moves.is_empty() {
        empty(ui, "Nothing moves", pass.text);
        return;
    }
    controls(ui, stage, &pass, planning);
    map(ui, stage, &pass);
}

/// Recorded passes, or a plan for this moment.
fn source(ui: &mut Ui, stage: &mut Stage<'_>, passes: usize) -> bool {
    let largest = stage.document.moment.largest_free;
    let failed = stage.document.recording.failures.last().map(|failure| failure.bytes);
    header(ui, |ui| {
        let panel = &mut stage.document.panels.compaction;
        let before = panel.plans(passes);
        let text = format!("{passes} recorded passes");
        let button = egui::Button::selectable(!before, text);
        if ui.add_enabled(passes > 0, button).clicked() {
            panel.planning = Some(false);
        }
        if !before {
            ui.checkbox(&mut panel.as_table, "table").on_hover_text("all moves of the run");
        }
        let tip = "what Terrane's planner would move in this heap";
        if ui.selectable_label(before, "plan here").on_hover_text(tip).clicked() {
            panel.planning = Some(true);
        }
        if panel.plans(passes) {
            let room = failed.unwrap_or(largest.saturating_mul(2)).next_multiple_of(1 << 21);
            let aims = [Aim::Room(room), Aim::Release, Aim::Tidy];
            let aim = panel.aim.get_or_insert(if failed.is_some() { aims[0] } else { aims[2] });
            let shown = egui::ComboBox::from_id_salt("goal")
                .selected_text(format!("goal: {}", aim.text()))
                .width(230.0)
                .show_ui(ui, |ui| {
                    for choice in aims {
                        ui.selectable_value(aim, choice, choice.text());
                    }
                });
            shown.response.accessible_name("goal");
            let most = panel.most.get_or_insert(MOVES_MOST);
            let words = |most: f64, _| match most as u64 {
                MOVES_MOST => "no limit".to_owned(),
                most => format!("at most {} moves", units::count(most)),
            };
            let field = egui::DragValue::new(most).range(1..=MOVES_MOST).custom_formatter(words);
            let tip = "the limit of a pass: a plan with fewer moves goes less far";
            let shown = ui.add(field).on_hover_text(tip);
            shown.accessible_name("moves at most");
        }
        if panel.plans(passes) != before {
            panel.rewind();
        }
    });
    if stage.document.recording.is_live
        && super::asking::show(ui, &mut stage.document.panels.compaction.asked)
    {
        stage.commands.push(Command::CompactNow);
        stage.document.panels.compaction.planning = None;
        stage.document.panels.compaction.pass = None;
    }
    stage.document.panels.compaction.plans(passes)
}

fn planned(ui: &Ui, stage: &mut Stage<'_>) -> Option<Arc<Pass>> {
    let recording = Arc::clone(&stage.document.recording);
    let moment = Arc::clone(&stage.document.moment);
    let panel = &mut stage.document.panels.compaction;
    let aim = panel.aim.unwrap_or(Aim::Tidy);
    let most = panel.most.unwrap_or(MOVES_MOST);
    let of = Of::Plan(Arc::as_ptr(&moment), aim, most);
    panel.made.get(ui.ctx(), of, false, move || Pass::planned(recording, moment, aim, most))
}

fn recorded(
    ui: &mut Ui,
    stage: &mut Stage<'_>,
    recording: &Arc<Recording>,
    ranges: &[Range<u32>],
) -> Option<Arc<Pass>> {
    let at = stage.document.sight.at;
    let near = ranges.iter().rposition(|pass| pass.start <= at).unwrap_or(0);
    let panel = &mut stage.document.panels.compaction;
    let mut number = panel.pass.unwrap_or(near).min(ranges.len() - 1);
    header(ui, |ui| {
        if ui.add_enabled(number > 0, egui::Button::new("◀ pass")).clicked() {
            number -= 1;
            panel.pass = Some(number);
            panel.rewind();
        }
        ui.label(format!("pass {} of {}", number + 1, ranges.len()));
        if ui.add_enabled(number + 1 < ranges.len(), egui::Button::new("pass ▶")).clicked() {
            number += 1;
            panel.pass = Some(number);
            panel.rewind();
        }
        let note = recording.passes.iter().find(|note| note.at >= ranges[number].end);
        if let Some(note) = note {
            ui.weak(&note.text);
            ui.weak(&note.asked);
        }
    });
    let of = Of::Recorded(Arc::as_ptr(recording), number);
    let (of_run, range) = (Arc::clone(recording), ranges[number].clone());
    let at_once = recording.is_small();
    let panel = &mut stage.document.panels.compaction;
    panel.made.get(ui.ctx(), of, at_once, move || Pass::recorded(of_run, number, &range))
}

fn refusals(ui: &mut Ui, pass: &Pass) {
    if pass.refused.is_empty() {
        return;
    }
    header(ui, |ui| {
        ui.weak("did not move:");
        for refusal in &pass.refused {
            let blocks = crate::text::counted(refusal.blocks, "block", "blocks");
            let text = format!("{blocks} ({}) {}", units::bytes(refusal.bytes), refusal.why);
            ui.label(text);
        }
    });
}

fn controls(ui: &mut Ui, stage: &mut Stage<'_>, pass: &Pass, planning: bool) {
    let look = stage.look;
    let count = pass.moves.len();
    header(ui, |ui| {
        if let Some(moved) = pass.moved {
            bytes(ui, &look, if planning { "to move" } else { "moved" }, moved);
        }
        bytes(ui, &look, "largest hole before", pass.before.largest_free);
        bytes(ui, &look, "after", pass.gained);
        if !pass.means.is_empty() {
            ui.label(&pass.means).on_hover_text(super::charts::MEANS);
        }
        coloring(ui, stage);
        if stage.document.panels.compaction.is_busy() {
            ui.weak("working out what is asked for; this is what was before…");
        } else if planning {
            ui.weak(pass.text);
        }
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
        ui.weak(format!("{} of {count} moves", panel.done.floor()));
        advance(ui, panel, count, still);
    });
    ui.spacing_mut().slider_width = (ui.available_width() - 12.0).max(60.0);
    let done = &mut stage.document.panels.compaction.done;
    let slider = egui::Slider::new(done, 0.0..=count as f32).show_value(false);
    ui.add(slider).accessible_name("moves done");
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

/// The pass whose heap before it is drawn, which may be the one before; and its classes.
fn painted(ui: &Ui, stage: &mut Stage<'_>, pass: &Arc<Pass>) -> Option<Arc<Ready>> {
    let by = (stage.document.sight.coloring, stage.document.sight.focus());
    let panel = &mut stage.document.panels.compaction;
    let pass = Arc::clone(pass);
    let at_once = pass.recording.is_small();
    panel.painted.get(ui.ctx(), (Arc::as_ptr(&pass), by.0, by.1), at_once, move || {
        let painted = Painted::of(&pass.recording, &pass.before, by);
        let class = |block| painted.classes.class(&pass.recording, block, PoolKind::Unknown);
        let moved = pass.moves.iter().map(|shift| class(shift.block)).collect();
        Ready { pass, painted, moved }
    })
}

/// A key for each means by which blocks of the pass move.
fn marks(look: &Look, pass: &Pass) -> Vec<SignKey> {
    let kinds = pass.kinds.iter();
    kinds.map(|kind| (Sign::Move(*kind), look.select, mark_text(*kind))).collect()
}

fn map(ui: &mut Ui, stage: &mut Stage<'_>, pass: &Arc<Pass>) {
    let look = stage.look;
    let Some(shown) = painted(ui, stage, pass) else {
        waiting(ui, "sorting blocks into classes…");
        return;
    };
    let (pass, painted) = (&shown.pass, &shown.painted);
    let mut keys = painted.classes.legend(&look, &pass.before);
    keys.push(((look.paper, look.select), Pattern::Hatch, "was here".to_owned()));
    let going = "outlined: still to move, to the mark".to_owned();
    let mut signs = vec![(Sign::Frame, look.select, going)];
    signs.extend(marks(&look, pass));
    legend(ui, stage, &keys, &signs);
    let name = format!("Compaction: {} moves", pass.moves.len());
    let canvas = Canvas::new(ui, stage, View::Compaction, &name);
    let scale = ui.pixels_per_point();
    let area = canvas.rect.shrink(4.0);
    let total = pass.before.extent;
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
    let clipped = painter.with_clip_rect(area);
    let panel = &mut stage.document.panels.compaction;
    let is_it = |((of, at, from, dark), _): &(Drawn, Cells)| {
        Arc::ptr_eq(of, &shown) && (*at, *from, *dark) == (corners, camera, look.dark)
    };
    if !panel.drawn.as_ref().is_some_and(is_it) {
        let room = panel.drawn.take().map(|(_, cells)| cells.into_room()).unwrap_or_default();
        let scene = heap_scene(painted, &grid, (&look, room));
        let key = (Arc::clone(&shown), corners, camera, look.dark);
        panel.drawn = Some((key, Cells::new(scene.cells)));
    }
    if let Some((_, cells)) = &panel.drawn {
        stage.surface.draw(&clipped, 70, cells);
    }
    let moved = Moved { look, done: panel.done, still: stage.still, grid: &grid };
    let room = std::mem::take(&mut panel.over).into_room();
    let of = (&painted.classes, &shown.moved[..]);
    let drawn = moved.draw(&pass.moves, of, room);
    panel.over = Cells::new(drawn.cells);
    stage.surface.draw(&clipped, 71, &panel.over);
    for rect in drawn.outlined {
        clipped.rect_stroke(rect, 0.0, Stroke::new(2.0, look.select), StrokeKind::Outside);
    }
    clipped.extend(drawn.shapes);
}
