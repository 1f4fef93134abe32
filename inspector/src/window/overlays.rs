//! What comes over the views: the palette, the keys, a path to type, files on their way.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use egui::{Align2, Context, Key, RichText, ScrollArea, Ui};

use super::app::Inspector;
use super::commands::{Command, Entry, Menu, key_text};
use crate::units;

/// The list of all commands.
#[derive(Default)]
pub struct Palette {
    query: Option<String>,
    chosen: usize,
    fresh: bool,
}

impl Palette {
    /// Opens it, empty.
    pub fn open(&mut self) {
        *self = Self { query: Some(String::new()), chosen: 0, fresh: true };
    }

    /// Whether it is open.
    pub const fn is_open(&self) -> bool {
        self.query.is_some()
    }
}

impl Inspector {
    /// Draws what is open.
    pub(super) fn overlays(&mut self, ctx: &Context, commands: &mut Vec<Command>) {
        self.show_palette(ctx, commands);
        self.show_keys(ctx);
        self.show_path(ctx);
        self.show_attach(ctx);
        self.show_loads(ctx);
        if ctx.input(|input| !input.raw.hovered_files.is_empty()) {
            window(ctx, "drop", |ui| ui.heading("Drop to open"));
        }
    }

    fn show_palette(&mut self, ctx: &Context, commands: &mut Vec<Command>) {
        let Some(query) = self.palette.query.clone() else { return };
        let mut query = query;
        let found: Vec<&Entry> =
            self.table.iter().filter(|entry| matches(&entry.title, &query)).collect();
        let (up, down, enter, escape) = ctx.input(|input| {
            let key = |key| input.key_pressed(key);
            (key(Key::ArrowUp), key(Key::ArrowDown), key(Key::Enter), key(Key::Escape))
        });
        let last = found.len().saturating_sub(1);
        let mut chosen = self.palette.chosen.min(last);
        chosen = if down { (chosen + 1).min(last) } else { chosen.saturating_sub(up.into()) };
        let mut done = escape.then_some(None);
        if enter {
            done = Some(found.get(chosen).map(|entry| entry.command));
        }
        let fresh = std::mem::take(&mut self.palette.fresh);
        egui::Area::new(egui::Id::unique("palette"))
            .anchor(Align2::CENTER_TOP, [0.0, 60.0])
            .order(egui::Order::Foreground)
            .show(ctx, |ui| {
                egui::Frame::popup(ui.style()).show(ui, |ui| {
                    ui.set_width(440.0_f32.min(ctx.content_rect().width() - 40.0));
                    let field = egui::TextEdit::singleline(&mut query)
                        .hint_text("what do you want to do?")
                        .desired_width(f32::INFINITY);
                    let shown = ui.add(field);
                    if fresh {
                        shown.request_focus();
                    }
                    if shown.changed() {
                        chosen = 0;
                    }
                    shown.accessible_name("command");
                    ScrollArea::vertical().max_height(330.0).show(ui, |ui| {
                        for (at, entry) in found.iter().enumerate() {
                            let clicked = palette_row(ui, entry, at == chosen, up || down);
                            if clicked {
                                done = Some(Some(entry.command));
                            }
                        }
                        if found.is_empty() {
                            ui.weak("no command has these letters");
                        }
                    });
                });
            });
        (self.palette.query, self.palette.chosen) = (Some(query), chosen);
        if let Some(command) = done {
            self.palette.query = None;
            commands.extend(command);
        }
    }

    fn show_keys(&mut self, ctx: &Context) {
        if !self.help {
            return;
        }
        let mut open = true;
        egui::Window::new("Keys")
            .open(&mut open)
            .anchor(Align2::CENTER_CENTER, [0.0, 0.0])
            .collapsible(false)
            .resizable(false)
            .default_width(720.0)
            .show(ctx, |ui| {
                let height = (ctx.content_rect().height() - 140.0).max(120.0);
                ScrollArea::vertical().max_height(height).show(ui, |ui| self.keys(ui));
            });
        self.help = open;
    }

    fn keys(&self, ui: &mut Ui) {
        ui.weak(
            "In the charts: drag pans, Ctrl+wheel zooms at the cursor, a click selects, a \
            double click zooms to what is selected.",
        );
        for menu in Menu::ALL {
            let keyed = self.table.iter().filter(|e| e.menu == menu && e.key.is_some());
            let keyed: Vec<&Entry> = keyed.collect();
            if keyed.is_empty() {
                continue;
            }
            ui.add_space(6.0);
            ui.label(RichText::new(menu.title()).strong());
            egui::Grid::new(("keys", menu.title())).num_columns(3).spacing([18.0, 3.0]).show(
                ui,
                |ui| {
                    for entry in keyed {
                        ui.label(
                            RichText::new(entry.key.as_ref().map(key_text).unwrap_or_default())
                                .monospace(),
                        );
                        ui.label(&entry.title);
                        ui.weak(entry.tip);
                        ui.end_row();
                    }
                },
            );
        }
    }

    fn show_path(&mut self, ctx: &Context) {
        let Some(mut path) = self.typed_path.clone() else { return };
        let (enter, escape) =
            ctx.input(|i| (i.key_pressed(Key::Enter), i.key_pressed(Key::Escape)));
        let mut go = enter;
        window(ctx, "path", |ui| {
            ui.label(RichText::new("Open path").strong());
            let field = egui::TextEdit::singleline(&mut path)
                .hint_text("/path/to/snapshot.pickle")
                .desired_width(420.0_f32.min(ctx.content_rect().width() - 60.0));
            let shown = ui.add(field);
            shown.request_focus();
            shown.accessible_name("path");
            ui.horizontal(|ui| {
                go |= ui.button("Open").clicked();
                ui.weak("Escape closes");
            });
        });
        self.typed_path = Some(path.clone());
        if escape {
            self.typed_path = None;
        } else if go && !path.trim().is_empty() {
            self.typed_path = None;
            let home = std::env::var_os("HOME").map(PathBuf::from);
            let full = match (path.trim().strip_prefix("~/"), home) {
                (Some(rest), Some(home)) => home.join(rest),
                _ => PathBuf::from(path.trim()),
            };
            self.load(ctx, full);
        }
    }

    fn show_loads(&mut self, ctx: &Context) {
        if self.loads.is_empty() {
            return;
        }
        let contents = |ui: &mut Ui| {
            for load in &self.loads {
                let name = load.path.file_name().unwrap_or_default().to_string_lossy();
                let bytes = load.progress.bytes.load(Ordering::Relaxed);
                let total = load.progress.total.load(Ordering::Relaxed);
                ui.label(RichText::new(name.as_ref()).strong());
                let stage = load.progress.stage();
                let text = if stage == "reading" {
                    format!("{stage} {} of {}", units::bytes(bytes), units::bytes(total))
                } else {
                    stage.to_owned()
                };
                ui.horizontal(|ui| {
                    let part = bytes as f32 / total.max(1) as f32;
                    ui.add(egui::ProgressBar::new(part.min(1.0)).desired_width(240.0).text(text));
                    if ui.button("Cancel").clicked() {
                        load.progress.cancel();
                    }
                });
            }
        };
        // What can be seen already is not covered.
        let is_seen = self.loads.iter().all(|load| load.document.is_some());
        let (corner, by) = match is_seen {
            true => (Align2::RIGHT_BOTTOM, [-16.0, -44.0]),
            false => (Align2::CENTER_CENTER, [0.0, -40.0]),
        };
        popup(ctx, ("loads", is_seen), (corner, by), contents);
        ctx.request_repaint_after(std::time::Duration::from_millis(100));
    }
}

fn palette_row(ui: &mut Ui, entry: &Entry, chosen: bool, keyed: bool) -> bool {
    let mut button = egui::Button::selectable(chosen, &entry.title)
        .min_size(egui::vec2(ui.available_width(), 0.0));
    if let Some(key) = &entry.key {
        button = button.shortcut_text(key_text(key));
    }
    let shown = ui.add(button).on_hover_text(entry.tip);
    if chosen && keyed {
        shown.scroll_to_me(None);
    }
    shown.clicked()
}

/// A small window in the middle.
pub(super) fn window<R>(ctx: &Context, name: &str, contents: impl FnOnce(&mut Ui) -> R) {
    popup(ctx, name, (Align2::CENTER_CENTER, [0.0, -40.0]), contents);
}

fn popup<R>(
    ctx: &Context,
    name: impl std::hash::Hash + std::fmt::Debug,
    (corner, by): (Align2, [f32; 2]),
    contents: impl FnOnce(&mut Ui) -> R,
) {
    egui::Area::new(egui::Id::unique(name))
        .anchor(corner, by)
        .order(egui::Order::Foreground)
        .show(ctx, |ui| egui::Frame::popup(ui.style()).inner_margin(12.0).show(ui, contents));
}

/// Whether the letters of the query appear in the title in this order.
fn matches(title: &str, query: &str) -> bool {
    let mut title = title.chars().flat_map(char::to_lowercase);
    query.chars().flat_map(char::to_lowercase).all(|c| c.is_whitespace() || title.any(|t| t == c))
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn commands_are_found_by_letters_in_order() {
        assert!(matches("Colour by stream", "cbs") && matches("Zoom in", "zoom"));
        assert!(!matches("Zoom in", "mooz") && matches("anything", ""));
    }
}
