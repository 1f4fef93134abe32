//! What goes on between the lanes of streams: waits, and what pending blocks wait for.

use std::collections::{BTreeMap, HashMap};

use egui::{Align2, FontId, Painter, Pos2, Rect, Shape, Stroke, pos2};

use super::Stage;
use super::canvas::Canvas;
use super::streams::Lane;
use crate::units;
use crate::window::layout::TimeScale;
use crate::window::model::{Moment, PartState, PendingRow, Recording, WaitRow};

/// Where lanes are.
#[derive(Clone, Copy)]
pub struct Lanes<'a> {
    /// From the first to the last.
    pub lanes: &'a [Lane],
    /// All of them.
    pub area: Rect,
    /// Of one.
    pub height: f32,
}

/// Height of the strip in which a lane shows its work.
pub const STRIP: f32 = 7.0;

impl Lanes<'_> {
    /// A lane's room.
    pub fn band(&self, lane: usize) -> Rect {
        let top = self.area.top() + self.height * lane as f32;
        Rect::from_x_y_ranges(self.area.x_range(), top..=top + self.height)
    }

    /// The strip of a lane's work, at its foot.
    pub fn strip(&self, lane: usize) -> Rect {
        let foot = self.band(lane).bottom() - 3.0;
        Rect::from_x_y_ranges(self.area.x_range(), foot - STRIP..=foot)
    }

    fn of(&self, stream: u32) -> Option<usize> {
        self.lanes.iter().position(|lane| lane.stream == stream)
    }

    /// Where arrows begin and end: at a lane's work, where it has some.
    fn y(&self, lane: usize) -> f32 {
        let has_work = self.lanes.get(lane).is_some_and(|lane| lane.works > 0);
        if has_work { self.strip(lane).center().y } else { self.band(lane).center().y }
    }
}

/// Arrows between the same two lanes are at least so many points apart.
const APART: f32 = 9.0;

/// An arrow from the lane that is waited for to the one that waits; says so where not all are
/// drawn, above the lanes.
pub fn arrows(all: &Painter, stage: &Stage<'_>, scale: &TimeScale<'_>, lanes: Lanes<'_>) {
    let area = lanes.area;
    let (drawn, there) = draw_arrows(&all.with_clip_rect(area), stage, scale, lanes);
    if drawn < there {
        let (drawn, there) = (units::count(drawn as u64), units::count(there as u64));
        let text = format!("{drawn} of {there} waits are drawn; zoom in");
        let at = pos2(area.right() - 6.0, area.top());
        all.text(at, Align2::RIGHT_BOTTOM, text, FontId::proportional(10.5), stage.look.faint);
    }
}

fn draw_arrows(
    painter: &Painter,
    stage: &Stage<'_>,
    scale: &TimeScale<'_>,
    lanes: Lanes<'_>,
) -> (usize, usize) {
    let (waits, area) = (&scale.recording.waits, lanes.area);
    let (from, to) = (scale.moment_at(area.left()), scale.moment_at(area.right()));
    let first = waits.partition_point(|wait| wait.at < from);
    let after = waits.partition_point(|wait| wait.at <= to);
    let (mut last, mut drawn) = (HashMap::new(), 0);
    for wait in &waits[first..after] {
        let (Some(behind), Some(waiting)) = (lanes.of(wait.behind), lanes.of(wait.stream)) else {
            continue;
        };
        let x = scale.x_of(wait.at);
        if last.get(&(behind, waiting)).is_some_and(|before| x - before < APART) {
            continue;
        }
        last.insert((behind, waiting), x);
        drawn += 1;
        let ends = [pos2(x, lanes.y(behind)), pos2(x, lanes.y(waiting))];
        arrow(painter, ends, stage.look.select);
    }
    (drawn, after - first)
}

fn arrow(painter: &Painter, [tail, tip]: [Pos2; 2], ink: egui::Color32) {
    let back = if tip.y > tail.y { -1.0 } else { 1.0 };
    painter.line_segment([tail, tip], Stroke::new(1.0, ink.gamma_multiply(0.6)));
    painter.circle_filled(tail, 1.8, ink);
    let wing = |side: f32| tip + egui::vec2(3.5 * side, 6.0 * back);
    painter.add(Shape::convex_polygon(vec![tip, wing(-1.0), wing(1.0)], ink, Stroke::NONE));
}

/// Pending blocks of one stream that wait for the same other, at one moment.
pub struct Awaited {
    /// The stream that owns them.
    pub stream: u32,
    /// Their bytes.
    pub bytes: u64,
    /// How many.
    pub blocks: u64,
    /// What the last of them waits for.
    pub last: PendingRow,
}

impl Awaited {
    /// What the pending blocks of a moment wait for, by stream.
    pub fn at(recording: &Recording, moment: &Moment) -> Vec<Self> {
        let mut found: BTreeMap<(u32, u32), Self> = BTreeMap::new();
        let pending = moment.parts.iter().filter(|part| part.state == PartState::Pending);
        for part in pending {
            let Some(block) = recording.blocks.get(part.block as usize) else { continue };
            for row in recording.awaited_by(part.block) {
                let entry = found.entry((block.stream, row.behind)).or_insert(Self {
                    stream: block.stream,
                    bytes: 0,
                    blocks: 0,
                    last: *row,
                });
                entry.bytes += block.bytes;
                entry.blocks += 1;
                if row.value > entry.last.value {
                    entry.last = *row;
                }
            }
        }
        found.into_values().collect()
    }

    /// In words.
    pub fn text(&self, recording: &Recording) -> String {
        let blocks = crate::text::counted(self.blocks, "block", "blocks");
        let bytes = units::bytes(self.bytes);
        format!("{blocks} ({bytes}) pending on {}", self.last.text(recording))
    }
}

/// Dots from pending blocks of the moment to the work that they wait for.
pub fn awaited(
    painter: &Painter,
    stage: &Stage<'_>,
    scale: &TimeScale<'_>,
    lanes: Lanes<'_>,
    awaited: &[Awaited],
) {
    let ink = stage.look.pending.1;
    let x = scale.x_of(stage.document.sight.at);
    for one in awaited {
        let (Some(own), Some(behind)) = (lanes.of(one.stream), lanes.of(one.last.behind)) else {
            continue;
        };
        let works = &scale.recording.work;
        let is_it = |work: &&crate::window::model::WorkRow| {
            work.stream == one.last.behind && work.value >= one.last.value
        };
        let Some(work) = works.iter().find(is_it) else { continue };
        let from = pos2(x, lanes.strip(own).top() - 8.0);
        let to = pos2(scale.x_of(work.at), lanes.strip(behind).center().y);
        painter.extend(Shape::dotted_line(&[from, to], ink, 4.5, 1.4));
        painter.circle_filled(from, 3.0, ink);
        painter.circle_stroke(to, 4.5, Stroke::new(1.5, ink));
    }
}

/// What is under the pointer, in words.
pub fn tip(stage: &Stage<'_>, canvas: &Canvas, scale: &TimeScale<'_>, lanes: Lanes<'_>) {
    let area = lanes.area;
    let Some(at) = canvas.response.hover_pos().filter(|at| area.contains(*at)) else { return };
    let Some(lane) = lanes.lanes.get(((at.y - area.top()) / lanes.height) as usize) else { return };
    let column = ((at.x - area.left()) / area.width() * lane.columns.len() as f32) as usize;
    let Some((live, pending)) = lane.columns.get(column) else { return };
    let recording = &stage.document.recording;
    let moment = scale.moment_at(at.x);
    let mut text = format!(
        "{}, {}\nlive {} ({} bytes)\npending {} ({} bytes)",
        recording.stream(lane.stream),
        TimeScale::describe(recording, moment),
        units::bytes(*live),
        units::count(*live),
        units::bytes(*pending),
        units::count(*pending),
    );
    let near_work = |work: &&crate::window::model::WorkRow| {
        work.stream == lane.stream && (scale.x_of(work.at) - at.x).abs() < 4.0
    };
    for work in recording.work.iter().filter(near_work).take(3) {
        text += &format!("\nwork {} submitted, uses {}", work.value, units::bytes(work.bytes));
    }
    let near = |wait: &&WaitRow| {
        let ends = wait.stream == lane.stream || wait.behind == lane.stream;
        ends && (scale.x_of(wait.at) - at.x).abs() < 4.0
    };
    for wait in recording.waits.iter().filter(near).take(3) {
        let (who, behind) = (recording.stream(wait.stream), recording.stream(wait.behind));
        let what = if wait.by_work { "work on " } else { "a request of " };
        text += &format!("\n{what}{who} waits for {behind}");
    }
    canvas.response.clone().on_hover_text_at_pointer(text);
}
