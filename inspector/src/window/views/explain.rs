//! Why a request failed: the verdict, then the chain of numbers, each with its place in the map.

use std::sync::Arc;

use egui::{RichText, ScrollArea, Ui};
use terrane_trace::diagnose::{Class, Explanation, Known, explain};

use super::{Stage, empty, waiting};
use crate::units;
use crate::window::document::Selected;
use crate::window::job::Job;
use crate::window::model::{Recording, short_site};
use crate::window::view::View;

/// The explanation, once it is there.
#[derive(Default)]
pub struct ExplainPanel {
    job: Job<Result<Option<Explanation>, String>>,
}

impl ExplainPanel {
    /// Whether a thread works on it.
    pub fn is_busy(&mut self) -> bool {
        self.job.poll();
        self.job.is_running()
    }

    /// The explanation, if it has been worked out.
    pub fn known(&mut self) -> Option<&Explanation> {
        self.job.poll()?.as_ref().ok()?.as_ref()
    }
}

/// Has the explanation worked out, if a request failed and nobody asked yet.
pub fn ask(ui: &Ui, stage: &mut Stage<'_>) {
    let panel = &mut stage.document.panels.explain;
    if panel.job.is_idle() && !stage.document.recording.failures.is_empty() {
        let work = Arc::clone(&stage.document.recording);
        panel.job = Job::start(ui.ctx(), move || work_out(&work));
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

fn work_out(recording: &Recording) -> Result<Option<Explanation>, String> {
    let Some(facts) = &recording.facts else { return Ok(None) };
    let Some(history) = facts.history() else { return Ok(None) };
    explain(facts.snapshot(), history, Known::default()).map_err(|reason| reason.to_string())
}

fn verdict(found: &Explanation) -> String {
    let asked = units::bytes(found.chain.asked);
    match found.class {
        Class::Capacity => format!(
            "{} too little: live blocks and the request for {asked} exceed the limit",
            units::bytes(found.short_bytes)
        ),
        Class::Fragmentation => {
            format!("There was room for {asked}, in pieces too small: fragmentation")
        }
        Class::Pending => format!("{asked} was there, behind work of other streams"),
        Class::OtherStream => format!("A free block of {asked} was there, on another stream"),
        Class::UserLimit => format!("{asked} is more than the limit that the process set itself"),
        Class::OtherProcess => "Other processes hold what is missing".to_owned(),
        Class::AbsurdRequest => format!("{asked} is more than the device has"),
    }
}

fn page(ui: &mut Ui, stage: &mut Stage<'_>, found: &Explanation) {
    ui.label(RichText::new(verdict(found)).heading().color(stage.look.alarm));
    ui.add_space(4.0);
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
    ui.horizontal_wrapped(|ui| {
        if ui.button("Show the moment").clicked() {
            let last = stage.document.recording.failures.len().saturating_sub(1);
            stage.document.go_to_failure(last as u32);
        }
        if let Some(window) = found.chain.window {
            let tip = "the stretch that would hold the request if its live blocks were elsewhere";
            if ui.button("Show the cheapest stretch").on_hover_text(tip).clicked() {
                let last = stage.document.recording.failures.len().saturating_sub(1);
                stage.document.go_to_failure(last as u32);
                let range = Selected::Range(window.address, found.chain.rounded);
                stage.document.sight.selected = Some(range);
                stage.commands.push(crate::window::commands::Command::ZoomToSelection);
            }
        }
    });
    ui.add_space(6.0);
    chain(ui, found);
    remedies(ui, found);
}

fn chain(ui: &mut Ui, found: &Explanation) {
    let chain = &found.chain;
    ui.label(RichText::new("The numbers").strong());
    let mut row = |what: &str, bytes: u64, meaning: &str| figure(ui, what, bytes, meaning);
    row("asked for", chain.asked, "by the program");
    row("segment", chain.segment_bytes, "that would have been made for it");
    row("allocated", chain.allocated, "in live blocks, after rounding");
    row("reserved", chain.reserved, "after the cache was given back");
    row("free", chain.free, "reserved and in no block");
    row("largest hole", chain.best_hole, "of this stream and pool");
    row("with pending", chain.best_hole_with_pending, "the same, once other streams are done");
    row("other streams'", chain.best_hole_other_stream, "largest hole that belongs to them");
    row("stealable", chain.stealable, "in whole free pages of 2 MiB: paging could gather them");
    if let Some(window) = chain.window {
        row("to move", window.live_bytes, "live bytes in the cheapest stretch: compaction");
    }
    row("given back", chain.released, "to the driver before it failed");
    row("driver's free", chain.device_free, "at that moment");
    row("limit at least", found.limit.at_least, "as much was reserved at some moment");
    if let Some(most) = found.limit.at_most {
        row("limit at most", most, "with one byte more it would have been served");
    }
}

/// What, how much, and what it means, in columns.
fn figure(ui: &mut Ui, what: &str, bytes: u64, meaning: &str) {
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
        column(ui, 96.0, left, &mut |ui| _ = ui.label(what));
        column(ui, 74.0, right, &mut |ui| {
            let exact = format!("{} bytes", units::count(bytes));
            ui.label(units::bytes(bytes)).on_hover_text(exact);
        });
        ui.add(egui::Label::new(RichText::new(meaning).weak()).truncate()).on_hover_text(meaning);
    });
}

fn remedies(ui: &mut Ui, found: &Explanation) {
    ui.add_space(8.0);
    ui.label(RichText::new("What would have helped").strong());
    if found.remedies.is_empty() {
        ui.weak(
            "No setting serves the request in a replay under this limit: hold less, or \
            move to a larger limit.",
        );
        return;
    }
    ui.weak("Each was replayed; the program is taken to make the same requests.");
    for remedy in &found.remedies {
        ui.horizontal_wrapped(|ui| {
            ui.label(RichText::new(&remedy.conf).monospace());
            let peak = units::bytes(remedy.peak_reserved);
            ui.weak(format!("reserves at most {peak}, {} retries", units::count(remedy.retries)));
            if ui.small_button("Copy command").on_hover_text(&remedy.command).clicked() {
                ui.copy_text(remedy.command.clone());
            }
        });
    }
}
