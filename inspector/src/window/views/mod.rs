//! The views, one file each: they read the document, draw it and say what was done to it.

mod address_time;
mod asking;
mod budget;
mod canvas;
mod chain;
mod charts;
mod compaction;
mod details;
mod diff;
mod explain;
mod flame;
mod groups;
mod heap_map;
mod leaks;
mod legend;
mod limits;
mod links;
mod moved;
mod rows;
mod segments;
mod streams;
mod table;
mod timeline;
mod whatif;
mod work;

use std::sync::Arc;

use egui::{RichText, Ui};

use super::commands::Command;
use super::document::Document;
use super::model::Recording;
use super::paint::{Look, Surface};
use super::view::View;

/// What a view gets to work with.
pub struct Stage<'a> {
    /// The file shown.
    pub document: &'a mut Document,
    /// All open files, for comparisons.
    pub open: &'a [Arc<Recording>],
    /// Colours.
    pub look: Look,
    /// What cells are drawn on.
    pub surface: &'a mut Surface,
    /// Commands for the view that is in use: pans and zooms.
    pub asked: &'a [Command],
    /// The view that is in use.
    pub active: &'a mut View,
    /// Whether nothing is to slide.
    pub still: bool,
    /// Commands that buttons in views give.
    pub commands: &'a mut Vec<Command>,
}

/// What views keep.
#[derive(Default)]
pub struct Panels {
    heap: heap_map::HeapPanel,
    address: address_time::AddressPanel,
    time: timeline::TimePanel,
    streams: streams::StreamPanel,
    /// The tables.
    pub tables: rows::Tables,
    details: details::DetailsPanel,
    flame: flame::FlamePanel,
    /// What is compared.
    pub diff: diff::DiffPanel,
    leaks: leaks::LeaksPanel,
    explain: explain::ExplainPanel,
    whatif: whatif::WhatifPanel,
    /// Moves.
    pub compaction: compaction::CompactionPanel,
}

impl Panels {
    /// Drops what was worked out from a recording that has been replaced.
    pub fn forget(&mut self) {
        self.heap = heap_map::HeapPanel::default();
        self.address.forget();
        self.time.forget();
        self.streams.forget();
        self.compaction.forget();
        self.flame.forget();
        self.details = details::DetailsPanel::default();
        self.tables.forget();
    }

    /// Whether a thread works for a view.
    pub fn is_busy(&mut self) -> bool {
        self.leaks.is_busy()
            || self.explain.is_busy()
            || self.whatif.is_busy()
            || self.compaction.is_busy()
            || self.address.is_busy()
            || self.streams.is_busy()
            || self.details.is_busy()
            || self.flame.is_busy()
            || self.diff.is_busy()
            || self.tables.is_busy()
    }
}

/// The least height of a view that is a chart: less shows its words and no chart.
const fn least_height(view: View) -> Option<f32> {
    match view {
        View::Compaction => Some(350.0),
        View::HeapMap | View::AddressTime | View::Timeline | View::Streams | View::Flame => {
            Some(150.0)
        }
        _ => None,
    }
}

/// Draws a view. Where a chart has no room, it is scrolled to.
pub fn show(view: View, ui: &mut Ui, stage: &mut Stage<'_>) {
    let Some(least) = least_height(view).filter(|least| ui.available_height() < *least) else {
        return show_all(view, ui, stage);
    };
    egui::ScrollArea::vertical().id_salt(("view", view)).auto_shrink(false).show(ui, |ui| {
        let size = egui::vec2(ui.available_width(), least);
        ui.allocate_ui(size, |ui| {
            ui.set_min_size(size);
            show_all(view, ui, stage);
        });
    });
}

fn show_all(view: View, ui: &mut Ui, stage: &mut Stage<'_>) {
    match view {
        View::HeapMap => heap_map::show(ui, stage),
        View::AddressTime => address_time::show(ui, stage),
        View::Timeline => timeline::show(ui, stage),
        View::Streams => streams::show(ui, stage),
        View::Compaction => compaction::show(ui, stage),
        View::Allocations => rows::show(ui, stage, rows::Kind::Allocations),
        View::Segments => rows::show(ui, stage, rows::Kind::Segments),
        View::Sites => rows::show(ui, stage, rows::Kind::Sites),
        View::Events => rows::show(ui, stage, rows::Kind::Events),
        View::Flame => flame::show(ui, stage),
        View::Diff => diff::show(ui, stage),
        View::Leaks => leaks::show(ui, stage),
        View::Explain => explain::show(ui, stage),
        View::Whatif => whatif::show(ui, stage),
        View::Budget => budget::show(ui, stage),
        View::Details => details::show(ui, stage),
    }
}

/// A line of figures or choices above a view; wraps in narrow windows.
fn header(ui: &mut Ui, contents: impl FnOnce(&mut Ui)) {
    ui.horizontal_wrapped(|ui| {
        // As high as a choice from the first piece on, so that all stand on one line.
        let tall = ui.text_style_height(&egui::TextStyle::Button);
        let tall = tall + 2.0 * ui.spacing().button_padding.y;
        ui.spacing_mut().interact_size.y = ui.spacing().interact_size.y.max(tall);
        contents(ui);
    });
    ui.add_space(2.0);
}

/// A figure in binary units with the exact bytes on hover.
fn bytes(ui: &mut Ui, look: &Look, what: &str, bytes: u64) -> egui::Response {
    let text = format!("{what} {}", crate::units::bytes(bytes));
    let mut job = egui::text::LayoutJob::default();
    let font = egui::TextStyle::Body.resolve(ui.style());
    // On one line with plain labels, which stand in the middle of a row.
    let valign = egui::Align::Center;
    let style =
        |color| egui::TextFormat { valign, ..egui::TextFormat::simple(font.clone(), color) };
    job.append(what, 0.0, style(look.faint));
    job.append(&crate::units::bytes(bytes), 5.0, style(look.ink));
    let shown = ui.add(egui::Label::new(job).sense(egui::Sense::hover()));
    let exact = format!("{} bytes", crate::units::count(bytes));
    shown.accessible_name(text).on_hover_text(exact)
}

/// A page that says what would fill it.
fn empty(ui: &mut Ui, title: &str, text: &str) {
    ui.add_space((ui.available_height() * 0.28).min(140.0));
    ui.vertical_centered(|ui| {
        ui.set_max_width(460.0_f32.min(ui.available_width() - 16.0));
        ui.label(RichText::new(title).heading());
        ui.add_space(4.0);
        ui.label(RichText::new(text).weak());
    });
}

/// A page that says that something is being worked out.
fn waiting(ui: &mut Ui, text: &str) {
    ui.add_space((ui.available_height() * 0.28).min(140.0));
    ui.vertical_centered(|ui| {
        ui.spinner();
        ui.label(RichText::new(text).weak());
    });
    ui.request_repaint_after(std::time::Duration::from_millis(100));
}
