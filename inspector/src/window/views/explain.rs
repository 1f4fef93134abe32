//! Why a request failed: the verdict, then the chain of numbers, each with its place in the map.

use std::sync::Arc;

use egui::{RichText, ScrollArea, Ui};
use terrane_trace::diagnose::{Explanation, Limit, Remedy, Served, Sidecar, Sites};

use super::chain::{Link, Place, Places, go, links};
use super::{Stage, empty, waiting};
use crate::commands::explain::quoted;
use crate::commands::failure::Failure;
use crate::units;
use crate::window::job::Job;
use crate::window::model::{Recording, short_site};
use crate::window::view::View;

/// An explanation, and where its numbers are in the map.
type Found = Arc<(Failure, Places)>;

/// The explanation, once it is there.
#[derive(Default)]
pub struct ExplainPanel {
    job: Job<Result<Option<Found>, String>>,
}

impl ExplainPanel {
    /// Whether a thread works on it.
    pub fn is_busy(&mut self) -> bool {
        self.job.poll();
        self.job.is_running()
    }

    /// The limit that was inferred, once that has been worked out; inside, `None` where the file
    /// allows no inference.
    pub fn limit(&mut self) -> Option<Option<Limit>> {
        let found = self.job.poll()?.as_ref().ok().and_then(|found| found.as_deref());
        Some(match found {
            Some((Failure::Pytorch(found), _)) => Some(found.explanation.limit),
            _ => None,
        })
    }
}

/// Has the explanation worked out, if a request failed and nobody asked yet.
pub fn ask(ui: &Ui, stage: &mut Stage<'_>) {
    let panel = &mut stage.document.panels.explain;
    if panel.job.is_idle() && !stage.document.recording.failures.is_empty() {
        let work = Arc::clone(&stage.document.recording);
        panel.job = Job::start(ui.ctx(), move || Ok(work_out(&work)?.map(Arc::new)));
    }
}

pub fn show(ui: &mut Ui, stage: &mut Stage<'_>) {
    let recording = Arc::clone(&stage.document.recording);
    if recording.failures.is_empty() {
        let text = "No request failed in this recording. To see what another allocator or \
            setting would have needed, open What if.";
        empty(ui, "Nothing to explain", text);
        if ui.vertical_centered(|ui| ui.button("Open What if")).inner.clicked() {
            stage.commands.push(crate::window::commands::Command::Show(View::Whatif));
        }
        return;
    }
    ask(ui, stage);
    let Some(result) = stage.document.panels.explain.job.poll().cloned() else {
        waiting(ui, "replaying the run up to the failure…");
        return;
    };
    match result {
        Ok(Some(found)) => {
            ScrollArea::vertical().auto_shrink(false).show(ui, |ui| page(ui, stage, &found));
        }
        Ok(None) => empty(ui, "Nothing to explain", "No request failed in this recording."),
        Err(error) => empty(ui, "It cannot be explained", &error),
    }
}

/// The same as the command `explain` finds.
fn work_out(recording: &Recording) -> Result<Option<(Failure, Places)>, String> {
    let Some(facts) = &recording.facts else { return Ok(None) };
    let Some(history) = facts.history() else { return Ok(None) };
    let sidecar = Sidecar::beside(&recording.path)?;
    let known = sidecar.as_ref().map(Sidecar::known).unwrap_or_default();
    let found = Failure::of(facts.read(), history, known)?;
    Ok(found.map(|found| {
        let places = Places::of(recording, &found);
        (found.with_remedies(history), places)
    }))
}

fn page(ui: &mut Ui, stage: &mut Stage<'_>, (found, places): &(Failure, Places)) {
    let verdict = found.verdict();
    let (class, why) = verdict.split_once(": ").unwrap_or(("", &verdict));
    ui.label(RichText::new(class).heading().color(stage.look.alarm));
    let mut letters = why.chars();
    let first = letters.next().map(char::to_uppercase).into_iter().flatten();
    ui.label(first.chain(letters).collect::<String>());
    ui.add_space(4.0);
    if let Failure::Pytorch(found) = found {
        circumstances(ui, &found.explanation);
    }
    buttons(ui, stage, places);
    ui.add_space(6.0);
    ui.label(RichText::new("The numbers").strong());
    let mut chosen = None;
    for link in links(found, places) {
        chosen = figure(ui, &link).or(chosen);
    }
    if let Some(cut) = found.to_cut() {
        chosen = holders(ui, stage, cut).or(chosen);
    }
    if let Some(place) = chosen {
        go(stage, place);
    }
    ui.add_space(8.0);
    ui.label(RichText::new("What would have helped").strong());
    match found {
        Failure::Pytorch(found) => remedies(ui, &found.explanation, &stage.document.recording),
        found => served_by(ui, found, &stage.document.recording),
    }
}

/// What is known of the request beside the numbers.
fn circumstances(ui: &mut Ui, found: &Explanation) {
    if let Some(site) = &found.fault.site {
        ui.weak("asked for by");
        ui.label(RichText::new(short_site(site)).monospace()).on_hover_text(site);
    }
    let survived = found.survived.count;
    if survived > 0 {
        let text = format!("{} failed requests before it were survived.", units::count(survived));
        ui.weak(text);
    }
    if !found.exact {
        ui.weak("The replay differs from the recorded run: the numbers are estimates.");
    }
}

/// Ways from the verdict to its places in the map.
fn buttons(ui: &mut Ui, stage: &mut Stage<'_>, places: &Places) {
    ui.horizontal_wrapped(|ui| {
        if ui.button("Show the moment").clicked() {
            let last = stage.document.recording.failures.len().saturating_sub(1) as u32;
            stage.document.go_to_failure(last);
        }
        let Some(window) = places.window else { return };
        let tip = "the stretch that would hold the request if its live blocks were elsewhere";
        if ui.button("Show the cheapest stretch").on_hover_text(tip).clicked() {
            go(stage, window);
        }
    });
}

/// Sites that are shown of those that held the memory.
const HOLDERS: usize = 8;

fn holders(ui: &mut Ui, stage: &Stage<'_>, cut: &Sites) -> Option<Place> {
    ui.add_space(8.0);
    ui.label(RichText::new("Who held the memory").strong());
    let known = &stage.document.recording.places.sites;
    let mut chosen = None;
    for row in cut.rows.iter().take(HOLDERS) {
        let what = crate::text::counted(row.blocks, "block", "blocks");
        let at = known.iter().position(|site| *site == row.site);
        let place = at.map(|site| Place::Site(site as u32));
        let link = Link { what, bytes: row.bytes, meaning: row.site.clone(), place };
        chosen = figure(ui, &link).or(chosen);
    }
    chosen
}

/// What, how much, and what it means, in columns. Gives its place in the map if that is asked for.
fn figure(ui: &mut Ui, link: &Link) -> Option<Place> {
    let Link { what, bytes, meaning, place } = link;
    let mut chosen = None;
    ui.horizontal(|ui| {
        let line = ui.spacing().interact_size.y;
        let column = |ui: &mut Ui, width: f32, layout, contents: &mut dyn FnMut(&mut Ui)| {
            ui.allocate_ui_with_layout(egui::vec2(width, line), layout, |ui| {
                ui.set_min_width(width);
                contents(ui);
            });
        };
        let left = egui::Layout::left_to_right(egui::Align::Center);
        let right = egui::Layout::right_to_left(egui::Align::Center);
        column(ui, 96.0, left, &mut |ui| match place {
            Some(place) => {
                let color = ui.visuals().hyperlink_color;
                let shown = ui.link(RichText::new(what).color(color));
                if shown.on_hover_text(place.tip()).clicked() {
                    chosen = Some(*place);
                }
            }
            None => _ = ui.label(what),
        });
        column(ui, 74.0, right, &mut |ui| {
            let exact = format!("{} bytes", units::count(*bytes));
            ui.label(units::bytes(*bytes)).on_hover_text(exact);
        });
        ui.add(egui::Label::new(RichText::new(meaning).weak()).truncate()).on_hover_text(meaning);
    });
    chosen
}

fn remedies(ui: &mut Ui, found: &Explanation, recording: &Recording) {
    if found.remedies.is_empty() {
        ui.weak(
            "No setting serves the request in a replay under this limit: hold less, or \
            move to a larger limit.",
        );
        return;
    }
    ui.weak("Each was replayed; the program is taken to make the same requests.");
    for Remedy { conf, peak_reserved, retries, command, .. } in &found.remedies {
        let peak = units::bytes(*peak_reserved);
        let what = format!("reserves at most {peak}, {} retries", units::count(*retries));
        remedy(ui, conf, &what, command, recording);
    }
}

fn served_by(ui: &mut Ui, found: &Failure, recording: &Recording) {
    if found.to_cut().is_some() {
        ui.weak("Less at once: the peak has to shrink by what is missing.");
        return;
    }
    if found.served_by().is_empty() {
        ui.weak("Nothing that was replayed serves every request.");
        return;
    }
    ui.weak("Each was replayed; the program is taken to make the same requests.");
    for Served { model, peak_reserved, capacity, command } in found.served_by() {
        let (peak, capacity) = (units::bytes(*peak_reserved), units::bytes(*capacity));
        let what = format!("serves every request and reserves at most {peak} of {capacity}");
        remedy(ui, model, &what, command, recording);
    }
}

fn remedy(ui: &mut Ui, name: &str, what: &str, command: &str, recording: &Recording) {
    let command = command.replace("FILE", &quoted(&recording.path));
    ui.horizontal_wrapped(|ui| {
        ui.label(RichText::new(name).monospace());
        ui.weak(what);
        if ui.small_button("Copy command").on_hover_text(&command).clicked() {
            ui.copy_text(command);
        }
    });
}
