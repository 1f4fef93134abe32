//! What each command does.

use std::path::Path;
use std::sync::Arc;

use egui::Context;
use egui_tiles::{Container, Tile};

use super::app::{Inspector, Notice};
use super::commands::Command;
use super::document::Document;
use super::layout::Axis;
use super::model::Recording;
use super::picker::Picker;
use super::run::Work;
use super::settings::Theme;
use super::view::{Arrangement, View};

impl Inspector {
    /// Lets a person choose a file, on a thread: the desktop's dialog may take its time.
    fn choose_file(&mut self, ctx: &Context) {
        let (sender, receiver) = std::sync::mpsc::channel();
        let waker = ctx.clone();
        std::thread::spawn(move || {
            let chosen = rfd::FileDialog::new().set_title("Open a recording").pick_file();
            // The window may be gone.
            let _ = sender.send(chosen);
            waker.request_repaint();
        });
        self.picker = Some(receiver);
    }

    /// Does what a command says. What concerns one view is left to it.
    pub(super) fn act(&mut self, ctx: &Context, command: Command) {
        match command {
            Command::Open => self.choose_file(ctx),
            Command::OpenPath => self.typed_path = Some(String::new()),
            Command::Attach => self.attaching = Some(Picker::open(ctx)),
            Command::RunDemo => self.demo(ctx, "sim", false),
            Command::RunDemoOn => self.demo(ctx, "host", false),
            Command::RunVulkan => self.demo(ctx, "vulkan", false),
            Command::RunCompacting => self.demo(ctx, "sim:slabs", true),
            Command::RunVulkanCompacting => self.demo(ctx, "vulkan", true),
            Command::ReplaySim => self.replay(ctx, "sim"),
            Command::ReplayVulkan => self.replay(ctx, "vulkan"),
            Command::CompactNow => self.compact_now(),
            Command::StopRun => self.stop_run(),
            Command::CloseFile => self.close(self.current),
            Command::NextFile => self.current = (self.current + 1) % self.documents.len().max(1),
            Command::Quit => ctx.send_viewport_cmd(egui::ViewportCommand::Close),
            Command::CopyAsLine => self.copy_as_line(ctx),
            Command::CopyTable | Command::CopyCsv => {
                let csv = command == Command::CopyCsv;
                if let Some(document) = self.document() {
                    let of = (&document.recording, &document.moment);
                    document.panels.tables.start_copy(ctx, of, csv);
                }
            }
            Command::Palette => self.palette.open(),
            Command::Help => self.help = !self.help,
            Command::Find => {
                if let Some(view) = self.document().map(|document| document.panels.tables.find()) {
                    self.show_view(view);
                }
            }
            Command::Show(view) => self.show_view(view),
            Command::Arrange(arrangement) => self.dock = arrangement.tree(),
            Command::ThemeSystem => self.settings.theme = Theme::System,
            Command::ThemeLight => self.settings.theme = Theme::Light,
            Command::ThemeDark => self.settings.theme = Theme::Dark,
            Command::ReducedMotion => self.settings.reduced_motion = !self.settings.reduced_motion,
            Command::ClearSelection if self.help => self.help = false,
            Command::Larger => self.rescale(self.settings.scale + 0.1),
            Command::Smaller => self.rescale(self.settings.scale - 0.1),
            Command::NormalSize => self.rescale(1.0),
            other => self.act_on_document(other),
        }
    }

    fn act_on_document(&mut self, command: Command) {
        let settings = &mut self.settings;
        let Some(document) = self.documents.get_mut(self.current) else { return };
        let hundredth = i64::from(document.recording.end() / 100).max(1);
        match command {
            Command::Back => document.back(),
            Command::Forward => document.forward(),
            Command::StepBack => document.step(-1),
            Command::StepForward => document.step(1),
            Command::LeapBack => document.step(-hundredth),
            Command::LeapForward => document.step(hundredth),
            Command::ToStart => document.go(0),
            Command::ToEnd => document.go(u32::MAX),
            Command::ToPeak => document.go(document.recording.peak()),
            Command::ToFailure => {
                if let Some(failure) = document.next_failure() {
                    document.go_to_failure(failure);
                }
            }
            Command::ToMark => {
                if let Some(mark) = document.next_mark() {
                    document.go(mark);
                }
            }
            Command::Mark => document.mark(),
            Command::PlayPause => {
                let at_end = document.sight.at >= document.recording.end();
                document.playing = !document.playing;
                if document.playing && at_end {
                    document.go(0);
                }
            }
            Command::ClearSelection => document.sight.selected = None,
            Command::Color(coloring) => {
                document.sight.coloring = coloring;
                settings.coloring = coloring;
            }
            Command::ToggleAxis => {
                let axis = &mut document.sight.axis;
                *axis = if *axis == Axis::Clock { Axis::Events } else { Axis::Clock };
                (document.sight.span, settings.axis) = (None, document.sight.axis);
            }
            _ => {}
        }
    }

    fn rescale(&mut self, scale: f32) {
        self.settings.scale = ((scale * 10.0).round() / 10.0).clamp(0.5, 3.0);
    }

    fn demo(&mut self, ctx: &Context, device: &'static str, compacts: bool) {
        self.start_run(ctx, Work::Demo { device, compacts });
    }

    fn replay(&mut self, ctx: &Context, device: &'static str) {
        let shown = self.documents.get(self.current);
        let recording = shown.map(|document| Arc::clone(&document.recording));
        match recording.filter(|it| it.facts.as_ref().is_some_and(|it| it.history().is_some())) {
            Some(recording) => self.start_run(ctx, Work::Replay(recording, device)),
            None => self.warn("Open a file with a history of requests first."),
        }
    }

    pub(super) fn warn(&mut self, text: &str) {
        self.notices.push(Notice { text: text.to_owned(), is_error: true });
    }

    /// Closes a document, if it is there.
    pub(super) fn close(&mut self, closed: usize) {
        if closed < self.documents.len() {
            self.documents.remove(closed);
            for load in &mut self.loads {
                match load.document {
                    // Its first picture is closed: nobody waits for the rest.
                    Some(at) if at == closed => {
                        load.progress.cancel();
                        load.document = None;
                    }
                    Some(at) if at > closed => load.document = Some(at - 1),
                    _ => {}
                }
            }
            self.forget_runs_of(closed);
            let before = usize::from(closed < self.current);
            self.current = (self.current - before).min(self.documents.len().saturating_sub(1));
        }
    }

    /// Brings a view to the front, adding it if the dock has none.
    fn show_view(&mut self, view: View) {
        self.active = view;
        if self.dock.make_active(|_, tile| matches!(tile, Tile::Pane(pane) if *pane == view)) {
            return;
        }
        let pane = self.dock.tiles.insert_pane(view);
        let tabs = self.dock.tiles.iter().find_map(|(id, tile)| {
            matches!(tile, Tile::Container(Container::Tabs(_))).then_some(*id)
        });
        match (tabs, self.dock.root()) {
            (Some(tabs), _) => self.dock.move_tile_to_container(pane, tabs, usize::MAX, true),
            _ => self.dock = Arrangement::Overview.tree(),
        }
        self.dock.make_active(|_, tile| matches!(tile, Tile::Pane(pane) if *pane == view));
    }

    fn copy_as_line(&mut self, ctx: &Context) {
        let shown = self.documents.get(self.current);
        if shown.is_none_or(|document| is_in_a_file(&document.recording)) {
            ctx.copy_text(self.as_command(ctx));
            return;
        }
        self.warn(
            "What a run shows is in no file, so no command draws it. Record the program with \
             TERRANE_RECORD=run.terrane, and open that.",
        );
    }

    /// The command line that draws the view in use.
    pub fn as_command(&self, ctx: &Context) -> String {
        let document = self.documents.get(self.current);
        let mut path = document.map_or(Path::new("FILE"), |document| &document.recording.path);
        let mut at = document.map_or(0, |document| document.sight.at);
        let coloring = document.map_or(self.settings.coloring, |d| d.sight.coloring);
        let theme = if ctx.theme() == egui::Theme::Dark { "dark" } else { "light" };
        let device = document.and_then(Document::chosen_device);
        let device = device.map_or_else(String::new, |device| format!(" --device {device}"));
        let mut before = String::new();
        let compared = document.and_then(|document| document.panels.diff.compared());
        let is_drawn = |of: &Recording| self.active == View::Diff && is_in_a_file(of);
        if let Some((other, moment, is_swapped)) = compared.filter(|(of, ..)| is_drawn(of)) {
            let mut with = (other.path.as_path(), moment);
            if is_swapped {
                with = (std::mem::replace(&mut path, with.0), std::mem::replace(&mut at, with.1));
            }
            before = format!(" --before {}", with.1);
            if with.0 != path {
                before += &format!(" --before-file {}", quoted(with.0));
            }
        }
        format!(
            "terrane inspect {}{device} --view {} --at {at}{before} --color {} --theme {theme} \
             --screenshot {}.png",
            quoted(path),
            self.active.slug(),
            coloring.name(),
            self.active.slug()
        )
    }
}

fn is_in_a_file(recording: &Recording) -> bool {
    !recording.path.as_os_str().is_empty()
}

/// A path as a shell reads it.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}
