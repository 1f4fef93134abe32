//! What changed between two moments, of one file or of two.

use std::collections::HashMap;
use std::sync::Arc;

use egui::{RichText, Ui};

use super::table::{Head, Key, Rows, Sort, TableState, found, head};
use super::{Stage, bytes, empty, header, waiting};
use crate::units;
use crate::window::document::Selected;
use crate::window::job::Later;
use crate::window::layout::TimeScale;
use crate::window::model::{Moment, PartState, Recording, short_site};

/// The two sides, and what was worked out.
#[derive(Default)]
pub struct DiffPanel {
    /// The other side; without one, the start of the run.
    before: Option<Side>,
    swapped: bool,
    table: TableState,
    made: Later<Wanted, Found>,
}

impl DiffPanel {
    /// Whether a thread works on it.
    pub fn is_busy(&mut self) -> bool {
        self.made.is_busy()
    }

    /// Compares with a moment of this recording.
    pub fn compare(&mut self, recording: Arc<Recording>, at: u32) {
        self.before = Some(Side { recording, at });
    }

    /// Makes what came before what comes after.
    pub fn swap(&mut self) {
        self.swapped = !self.swapped;
    }

    /// What it compares with, if that was chosen, and whether that is what comes after.
    pub fn compared(&self) -> Option<(&Recording, u32, bool)> {
        let side = self.before.as_ref()?;
        Some((&side.recording, side.at, self.swapped))
    }
}

/// Two moments, what is searched for, and by what it is ordered.
type Wanted = (Pair, String, Sort);
/// The two sides, which are kept, what differs, and the rows found in order.
type Found = ([Side; 2], Diff, Vec<u32>);

/// A file, by where it is kept, and a moment.
#[derive(Clone)]
struct Side {
    recording: Arc<Recording>,
    at: u32,
}

type Pair = [(*const Recording, u32); 2];

#[derive(Default)]
struct Diff {
    /// Site, bytes before and after, blocks before and after.
    rows: Vec<(String, [u64; 2], [u64; 2])>,
    total: [u64; 2],
}

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    let recording = Arc::clone(&stage.document.recording);
    let now = Side { recording: Arc::clone(&recording), at: stage.document.sight.at };
    let default = Side { recording: Arc::clone(&recording), at: quarter(&recording) };
    let before = stage.document.panels.diff.before.clone().unwrap_or(default);
    choose(ui, stage, &before, &now);
    let panel = &mut stage.document.panels.diff;
    let sides = if panel.swapped { [now, before] } else { [before, now] };
    let pair = [0, 1].map(|side: usize| (Arc::as_ptr(&sides[side].recording), sides[side].at));
    panel.table.sort = panel.table.sort.or(Some((0, true)));
    let (query, sort) = (panel.table.query.clone(), panel.table.sort);
    let at_once = sides.iter().all(|side| side.recording.is_small());
    let made = panel.made.get(ui.ctx(), (pair, query.clone(), sort), at_once, move || {
        let diff = work_out(&sides);
        let order = found(&diff, &query, sort);
        (sides, diff, order)
    });
    let look = stage.look;
    let Some(made) = made else {
        waiting(ui, "comparing two moments…");
        return;
    };
    let panel = &mut stage.document.panels.diff;
    let (_, diff, order) = &*made;
    let is_late = panel.made.is_busy();
    header(ui, |ui| {
        bytes(ui, &look, "before", diff.total[0]);
        bytes(ui, &look, "after", diff.total[1]);
        let (sign, size) = signed(diff.total);
        ui.label(RichText::new(format!("{sign}{}", units::bytes(size))).strong());
        panel.table.search(ui, diff.rows.len(), order.len(), "differences");
        if ui.button("Copy CSV").on_hover_text("copy the rows found, with all digits").clicked() {
            ui.copy_text(super::table::copy(diff, order, true));
        }
        if is_late {
            ui.weak("looking again…");
        }
    });
    if diff.rows.is_empty() {
        let text = "Nothing is live at either moment. Choose other moments.";
        empty(ui, "No difference", text);
        return;
    }
    let done = panel.table.show(ui, (diff, order), &look, "differences", None);
    if let Some(super::table::Done::Selected(Selected::Site(row))) = done {
        let site = &diff.rows[row as usize].0;
        let found = recording.places.sites.iter().position(|known| known == site);
        stage.document.sight.selected = found.map(|site| Selected::Site(site as u32));
    }
}

/// A moment early in the run.
fn quarter(recording: &Recording) -> u32 {
    recording.end() / 4
}

fn choose(ui: &mut Ui, stage: &mut Stage<'_>, before: &Side, now: &Side) {
    let swapped = stage.document.panels.diff.swapped;
    let name = |side: &Side| {
        format!("{} at {}", side.recording.name, TimeScale::describe(&side.recording, side.at))
    };
    header(ui, |ui| {
        ui.weak(if swapped { "after" } else { "before" });
        let mut chosen = None;
        let shown = egui::ComboBox::from_id_salt("before")
            .selected_text(name(before))
            .width(260.0)
            .show_ui(ui, |ui| {
                let mut sides: Vec<(String, Side)> = Vec::new();
                let here = &stage.document.recording;
                let side = |at| Side { recording: Arc::clone(here), at };
                sides.push(("the start".into(), side(0)));
                sides.push(("the peak".into(), side(here.peak())));
                sides.push(("the end".into(), side(here.end())));
                for mark in &stage.document.marks {
                    sides.push((
                        format!("mark at event {}", units::count((*mark).into())),
                        side(*mark),
                    ));
                }
                for other in stage.open.iter().filter(|other| !Arc::ptr_eq(other, here)) {
                    let at = other.first_look();
                    let side = Side { recording: Arc::clone(other), at };
                    sides.push((format!("{}, at its peak or failure", other.name), side));
                }
                for (text, side) in sides {
                    if ui.selectable_label(false, text).clicked() {
                        chosen = Some(side);
                    }
                }
            });
        shown.response.accessible_name("compare with");
        if let Some(side) = chosen {
            stage.document.panels.diff.before = Some(side);
        }
        if ui.button("Swap").on_hover_text("before becomes after").clicked() {
            stage.document.panels.diff.swap();
        }
        if ui
            .button("Take this moment")
            .on_hover_text("compare later moments with this one")
            .clicked()
        {
            stage.document.panels.diff.before = Some(now.clone());
        }
        ui.weak(format!(
            "{} this moment: {}",
            if swapped { "before:" } else { "after:" },
            name(now)
        ));
    });
}

fn signed([before, after]: [u64; 2]) -> (&'static str, u64) {
    if after >= before { ("+", after - before) } else { ("−", before - after) }
}

fn work_out(sides: &[Side; 2]) -> Diff {
    let mut rows: HashMap<String, ([u64; 2], [u64; 2])> = HashMap::new();
    let mut diff = Diff::default();
    for (at, side) in sides.iter().enumerate() {
        let moment = Moment::of(&side.recording, side.at);
        for part in moment.parts.iter().filter(|part| part.state == PartState::Live) {
            let Some(block) = side.recording.blocks.get(part.block as usize) else { continue };
            let row = rows.entry(side.recording.site(block).to_owned()).or_default();
            row.0[at] += block.requested;
            row.1[at] += 1;
            diff.total[at] += block.requested;
        }
    }
    diff.rows = rows.into_iter().map(|(site, (bytes, blocks))| (site, bytes, blocks)).collect();
    diff.rows.sort();
    diff
}

const HEADS: [Head; 5] = [
    head("change", "bytes after less bytes before", 100.0, true),
    head("before", "live bytes before", 90.0, true),
    head("after", "live bytes after", 90.0, true),
    head("blocks", "live blocks after less before", 70.0, true),
    head("site", "the line of the program", 240.0, false),
];

impl Rows for Diff {
    fn heads(&self) -> &'static [Head] {
        &HEADS
    }

    fn count(&self) -> usize {
        self.rows.len()
    }

    fn text(&self, row: usize, column: usize) -> String {
        let (site, bytes, blocks) = &self.rows[row];
        let (sign, size) = signed(*bytes);
        match column {
            0 if size == 0 => "0 B".to_owned(),
            0 => format!("{sign}{}", units::bytes(size)),
            1 => units::bytes(bytes[0]),
            2 => units::bytes(bytes[1]),
            3 => {
                let (sign, count) = signed(*blocks);
                if count == 0 { "0".to_owned() } else { format!("{sign}{}", units::count(count)) }
            }
            _ => short_site(site).to_owned(),
        }
    }

    fn exact(&self, row: usize, column: usize) -> String {
        let (site, bytes, blocks) = &self.rows[row];
        let difference = |pair: &[u64; 2]| i128::from(pair[1]) - i128::from(pair[0]);
        match column {
            0 => difference(bytes).to_string(),
            1 => bytes[0].to_string(),
            2 => bytes[1].to_string(),
            3 => difference(blocks).to_string(),
            _ => site.clone(),
        }
    }

    fn key(&self, row: usize, column: usize) -> Key {
        let (site, bytes, blocks) = &self.rows[row];
        // Shifted so that what shrinks comes before what grows.
        let shifted =
            |pair: &[u64; 2]| (1_u64 << 62).saturating_add(pair[1]).saturating_sub(pair[0]);
        match column {
            0 => Key::Number(shifted(bytes)),
            1 => Key::Number(bytes[0]),
            2 => Key::Number(bytes[1]),
            3 => Key::Number(shifted(blocks)),
            _ => Key::Text(site.clone()),
        }
    }

    fn range(&self, row: usize) -> Option<(u64, u64)> {
        Some((0, self.rows[row].1[1].abs_diff(self.rows[row].1[0])))
    }

    fn pick(&self, row: usize) -> Option<Selected> {
        Some(Selected::Site(row as u32))
    }
}
