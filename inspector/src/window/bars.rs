//! What is around the views: menus, files, the scrubber, the dock.

use egui::{Button, RichText, Ui, WidgetText};
use egui_tiles::{Behavior, SimplificationOptions, TileId, Tiles, UiResponse};

use super::app::{Inspector, Notice};
use super::commands::{Command, Menu, key_text};
use super::document::Document;
use super::layout::TimeScale;
use super::view::{Arrangement, View};
use super::views::{self, Stage};
use crate::units;

impl Inspector {
    /// Menus and files above, the scrubber below.
    pub(super) fn bars(&mut self, ui: &mut Ui, commands: &mut Vec<Command>) {
        egui::Panel::top("menus").show(ui, |ui| {
            egui::MenuBar::new().ui(ui, |ui| self.menus(ui, commands));
        });
        if !self.documents.is_empty() || !self.runs.is_empty() {
            egui::Panel::top("files").show(ui, |ui| self.files(ui, commands));
        }
        if !self.notices.is_empty() {
            egui::Panel::top("notices").show(ui, |ui| self.show_notices(ui));
        }
        if let Some(document) = self.documents.get_mut(self.current) {
            egui::Panel::bottom("scrubber").show(ui, |ui| scrubber(ui, document, commands));
        }
    }

    fn menus(&mut self, ui: &mut Ui, commands: &mut Vec<Command>) {
        for menu in Menu::ALL {
            ui.menu_button(menu.title(), |ui| {
                ui.set_min_width(230.0);
                if menu == Menu::File {
                    self.recent(ui);
                }
                for entry in self.table.iter().filter(|entry| entry.menu == menu) {
                    let mut button = Button::new(&entry.title);
                    if let Some(key) = &entry.key {
                        button = button.shortcut_text(key_text(key));
                    }
                    if ui.add(button).on_hover_text(entry.tip).clicked() {
                        commands.push(entry.command);
                        ui.close();
                    }
                }
            });
        }
        if ui.available_width() < arrangements_width(ui) {
            // They are in the menu, too; here they would lie over it.
            return;
        }
        ui.with_layout(egui::Layout::right_to_left(egui::Align::Center), |ui| {
            for arrangement in Arrangement::ALL.into_iter().rev() {
                let tip = "arrange the views for this";
                let button = Button::new(RichText::new(arrangement.title()).size(12.0));
                if ui.add(button.frame(false)).on_hover_text(tip).clicked() {
                    commands.push(Command::Arrange(arrangement));
                }
            }
        });
    }

    fn recent(&mut self, ui: &mut Ui) {
        let recent = self.settings.recent.clone();
        ui.add_enabled_ui(!recent.is_empty(), |ui| {
            ui.menu_button("Recent files", |ui| {
                for path in recent {
                    let name = path.file_name().unwrap_or_default().to_string_lossy();
                    let shown = ui.button(name.as_ref());
                    if shown.on_hover_text(path.display().to_string()).clicked() {
                        self.load(ui.ctx(), path.clone());
                        ui.close();
                    }
                }
            });
        });
    }

    fn files(&mut self, ui: &mut Ui, commands: &mut Vec<Command>) {
        ui.horizontal_wrapped(|ui| {
            for at in 0..self.documents.len() {
                self.tab(ui, at);
            }
            if let Some(document) = self.documents.get_mut(self.current) {
                choose_device(ui, document);
            }
            self.show_runs(ui, commands);
        });
    }

    /// The name of an open file, whether something goes on in it, and whether it lacks something.
    fn tab(&mut self, ui: &mut Ui, at: usize) {
        let recording = &self.documents[at].recording;
        let shown = ui.selectable_label(at == self.current, &recording.name);
        let mut tip = format!("{}\n{}", recording.kind, recording.path.display());
        let lost = self.lost(at);
        tip.extend(lost.map(|lost| format!("\n{lost}")));
        let is_lossy = lost.is_some();
        if shown.on_hover_text(tip).clicked() {
            self.current = at;
        }
        if self.runs.iter().any(|run| run.document == Some(at)) {
            // Nothing that turns: a silent program is to cost nothing.
            let (rect, dot) = ui.allocate_exact_size(egui::vec2(9.0, 12.0), egui::Sense::hover());
            let color = super::paint::Look::of(ui.visuals().dark_mode).active;
            ui.painter().circle_filled(rect.center(), 4.0, color);
            dot.widget_info(|| egui::WidgetInfo::labeled(egui::Role::Label, true, "goes on"));
            dot.on_hover_text("goes on");
        }
        if is_lossy && at != self.current {
            let alarm = super::paint::Look::of(ui.visuals().dark_mode).alarm;
            ui.colored_label(alarm, "events lost");
        }
    }

    fn show_notices(&mut self, ui: &mut Ui) {
        let mut gone = None;
        let alarm = super::paint::Look::of(ui.visuals().dark_mode).alarm;
        for (at, Notice { text, is_error }) in self.notices.iter().enumerate() {
            ui.horizontal_top(|ui| {
                if ui.small_button("×").on_hover_text("dismiss").clicked() {
                    gone = Some(at);
                }
                let text = RichText::new(text);
                ui.add(egui::Label::new(if *is_error { text.color(alarm) } else { text }).wrap());
            });
        }
        if let Some(at) = gone {
            self.notices.remove(at);
        }
    }

    /// The window before a file is open.
    pub(super) fn welcome(&mut self, ui: &mut Ui, commands: &mut Vec<Command>) {
        ui.add_space((ui.available_height() * 0.16).min(120.0));
        ui.vertical_centered(|ui| {
            ui.label(RichText::new("Terrane").size(34.0));
            ui.label(RichText::new("Open a recording to see its heap.").size(16.0));
            ui.weak(
                "PyTorch memory snapshots, recorded workloads (CSV), RMM logs, VMA and \
                D3D12MA dumps; plain or compressed. Drop one here.",
            );
            ui.add_space(10.0);
            for (title, command) in [
                ("Open file…", Command::Open),
                ("Type a path…", Command::OpenPath),
                ("Attach to a program…", Command::Attach),
                ("Run the demo workload", Command::RunDemo),
            ] {
                if ui.add(Button::new(title).min_size(egui::vec2(220.0, 28.0))).clicked() {
                    commands.push(command);
                }
            }
            if !self.settings.recent.is_empty() {
                ui.add_space(10.0);
                ui.weak("Opened before");
            }
            for path in self.settings.recent.clone() {
                if ui.link(path.display().to_string()).clicked() {
                    self.load(ui.ctx(), path);
                }
            }
            ui.add_space(10.0);
            ui.weak("Ctrl+K finds every command, ? shows all keys.");
        });
    }
}

/// What the names of all arrangements take beside each other.
fn arrangements_width(ui: &Ui) -> f32 {
    let apart = ui.spacing().item_spacing.x + 2.0 * ui.spacing().button_padding.x;
    let width = |arrangement: Arrangement| {
        let (font, color) = (egui::FontId::proportional(12.0), egui::Color32::WHITE);
        let words = ui.painter().layout_no_wrap(arrangement.title().to_owned(), font, color);
        words.size().x + apart
    };
    Arrangement::ALL.into_iter().map(width).sum()
}

/// A choice of the device, where the file tells of several.
fn choose_device(ui: &mut Ui, document: &mut Document) {
    let Some(mut device) = document.chosen_device() else { return };
    let recording = std::sync::Arc::clone(&document.recording);
    let name = |device: usize| format!("device {device}");
    let before = device;
    let shown =
        egui::ComboBox::from_id_salt("device").selected_text(name(device)).show_ui(ui, |ui| {
            for other in &recording.devices {
                ui.selectable_value(&mut device, *other, name(*other));
            }
        });
    let tip = format!("the file tells of {} devices", recording.devices.len());
    shown.response.on_hover_text(tip).accessible_name("device");
    if device != before {
        document.choose_device(ui.ctx(), device);
    }
}

/// The moment shown, and how to get to another.
fn scrubber(ui: &mut Ui, document: &mut Document, commands: &mut Vec<Command>) {
    let end = document.recording.end();
    if end == 0 {
        ui.weak("This file has one moment and no history.");
        return;
    }
    ui.horizontal(|ui| {
        let play = if document.playing { "❚❚" } else { "▶" };
        for (text, name, command) in [
            ("|◀", "To the start", Command::ToStart),
            ("◂", "One event back", Command::StepBack),
            (play, "Play or pause", Command::PlayPause),
            ("▸", "One event on", Command::StepForward),
            ("▶|", "To the end", Command::ToEnd),
        ] {
            let shown = ui.add(Button::new(text).min_size(egui::vec2(24.0, 20.0)));
            let shown = shown.on_hover_text(name);
            if shown.clicked() {
                commands.push(command);
            }
            shown.accessible_name(name);
        }
        let words = ["Peak", "Failure", "Mark"];
        let commands_of = [Command::ToPeak, Command::ToFailure, Command::Mark];
        for (text, command) in words.into_iter().zip(commands_of) {
            let possible = command != Command::ToFailure || !document.recording.failures.is_empty();
            if ui.add_enabled(possible, Button::new(text)).clicked() {
                commands.push(command);
            }
        }
        let text = TimeScale::describe(&document.recording, document.sight.at);
        let of = match document.is_late() {
            true => format!("{text} is on its way…"),
            false => format!("{text} of {}", units::count(u64::from(end))),
        };
        let width = 230.0_f32.min(ui.available_width() * 0.4);
        ui.spacing_mut().slider_width = (ui.available_width() - width - 16.0).max(60.0);
        let slider = egui::Slider::new(&mut document.sight.at, 0..=end).show_value(false);
        let shown = ui.add(slider).on_hover_text("the moment that all views show");
        shown.accessible_name("moment");
        ui.add(egui::Label::new(of).truncate());
    });
}

/// What a picture of one view says above it.
pub fn caption(ui: &mut Ui, document: &Document, view: View) {
    let (recording, moment) = (&document.recording, &document.moment);
    ui.horizontal_wrapped(|ui| {
        ui.label(RichText::new(view.title()).size(20.0));
        ui.add_space(6.0);
        let device = document.chosen_device();
        let device = device.map_or_else(String::new, |device| format!(", device {device}"));
        ui.weak(format!(
            "{} ({}){device}, {}",
            recording.name,
            recording.kind,
            TimeScale::describe(recording, moment.at)
        ));
    });
    ui.add_space(4.0);
}

/// The dock's tiles.
pub struct Dock<'a> {
    /// What views get.
    pub stage: Stage<'a>,
}

impl Behavior<View> for Dock<'_> {
    fn pane_ui(&mut self, ui: &mut Ui, _tile: TileId, view: &mut View) -> UiResponse {
        egui::Frame::new().inner_margin(6.0).show(ui, |ui| {
            ui.set_min_size(ui.available_size());
            views::show(*view, ui, &mut self.stage);
        });
        UiResponse::None
    }

    fn tab_title_for_pane(&mut self, view: &View) -> WidgetText {
        view.title().into()
    }

    fn is_tab_closable(&self, _tiles: &Tiles<View>, _tile: TileId) -> bool {
        false
    }

    fn simplification_options(&self) -> SimplificationOptions {
        SimplificationOptions { all_panes_must_have_tabs: true, ..Default::default() }
    }

    fn gap_width(&self, _style: &egui::Style) -> f32 {
        5.0
    }

    fn tab_bar_color(&self, visuals: &egui::Visuals) -> egui::Color32 {
        visuals.faint_bg_color
    }
}
