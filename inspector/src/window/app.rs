//! The window's state, and what commands do to it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use egui::{Context, Ui};
use egui_tiles::Tree;

use super::commands::{Command, Entry, pressed, table};
use super::document::Document;
use super::layout::Painted;
use super::load::{Came, Load, OpenError};
use super::model::Recording;
use super::overlays::Palette;
use super::paint::{Look, Surface};
use super::picker::Picker;
use super::run::Run;
use super::session::Kept;
use super::settings::{Settings, Theme};
use super::view::{Arrangement, View};
use super::views::{self, Stage};

/// A moment by name or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The fatal failure, else the peak.
    FirstLook,
    /// The most active bytes.
    Peak,
    /// The failure that came last.
    Failure,
    /// Before the first event.
    Start,
    /// After the last event.
    End,
    /// After so many events.
    Event(u32),
}

impl Moment {
    /// Events before it.
    fn of(self, recording: &Recording) -> u32 {
        match self {
            Self::FirstLook => recording.first_look(),
            Self::Peak => recording.peak(),
            Self::Failure => recording.failures.last().map_or(0, |failure| failure.at),
            Self::Start => 0,
            Self::End => recording.end(),
            Self::Event(at) => at.min(recording.end()),
        }
    }
}

impl std::str::FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "peak" => Ok(Self::Peak),
            "failure" => Ok(Self::Failure),
            "start" => Ok(Self::Start),
            "end" => Ok(Self::End),
            number => number.replace(',', "").parse().map(Self::Event).map_err(|_| {
                format!("`{text}` is no moment: say PEAK, FAILURE, START, END or an event's number")
            }),
        }
    }
}

/// Something the person should know.
pub struct Notice {
    /// In words.
    pub text: String,
    /// Whether something went wrong.
    pub is_error: bool,
}

/// The window.
pub struct Inspector {
    pub(super) documents: Vec<Document>,
    pub(super) current: usize,
    pub(super) loads: Vec<Load>,
    pub(super) runs: Vec<Run>,
    pub(super) settings: Settings,
    settings_path: Option<PathBuf>,
    saved: Settings,
    /// Files of the last time that are on their way.
    pub(super) resuming: Vec<Kept>,
    /// When settings were written last.
    kept_at: f64,
    pub(super) dock: Tree<View>,
    /// One view alone, without bars: what headless pictures show.
    only: Option<View>,
    pub(super) surface: Surface,
    pub(super) active: View,
    pub(super) table: Vec<Entry>,
    /// What charts are to do in the next frame: it was asked for after they were drawn in this one.
    for_charts: Vec<Command>,
    pub(super) palette: Palette,
    pub(super) help: bool,
    /// The path that is being typed.
    pub(super) typed_path: Option<String>,
    /// Whom to attach to, while that is being chosen.
    pub(super) attaching: Option<Picker>,
    pub(super) notices: Vec<Notice>,
    pub(super) picker: Option<Receiver<Option<PathBuf>>>,
    applied: Option<(Theme, u32, bool)>,
}

impl Inspector {
    /// A window without files. `format` is that of the wgpu target, if there is one.
    pub fn new(settings: Settings, format: Option<wgpu::TextureFormat>) -> Self {
        let dock = settings.dock.clone().unwrap_or_else(|| Arrangement::Overview.tree());
        Self {
            documents: Vec::new(),
            current: 0,
            loads: Vec::new(),
            runs: Vec::new(),
            saved: settings.clone(),
            settings,
            settings_path: None,
            resuming: Vec::new(),
            kept_at: f64::MIN,
            dock,
            only: None,
            surface: Surface::new(format),
            active: View::HeapMap,
            table: table(),
            for_charts: Vec::new(),
            palette: Palette::default(),
            help: false,
            typed_path: None,
            attaching: None,
            notices: Vec::new(),
            picker: None,
            applied: None,
        }
    }

    /// Where settings are kept, and what was wrong with them.
    pub fn keep_settings_at(&mut self, path: Option<PathBuf>, note: Option<String>) {
        self.settings_path = path;
        self.notices.extend(note.map(|text| Notice { text, is_error: false }));
    }

    /// Shows one view alone, or everything.
    pub fn show_only(&mut self, view: Option<View>) {
        self.only = view;
        self.active = view.unwrap_or(self.active);
    }

    /// Draws on a wgpu target of this format, or without one.
    pub fn draw_on(&mut self, format: Option<wgpu::TextureFormat>) {
        self.surface.format = format;
    }

    /// Starts to open a file.
    pub fn load(&mut self, ctx: &Context, path: PathBuf) {
        self.load_device(ctx, path, None);
    }

    /// The same; of a file that tells of several devices, the one named is shown.
    pub fn load_device(&mut self, ctx: &Context, path: PathBuf, device: Option<usize>) {
        let waker = ctx.clone();
        let coloring = self.settings.coloring;
        self.loads.push(Load::start((path, device), coloring, move || waker.request_repaint()));
    }

    /// Adds what was read.
    pub fn add(&mut self, recording: Recording) {
        let (coloring, axis) = (self.settings.coloring, self.settings.axis);
        self.push(Document::new(recording, coloring, axis));
    }

    /// Adds a document, and shows it.
    pub(super) fn push(&mut self, document: Document) {
        self.documents.push(document);
        self.current = self.documents.len() - 1;
    }

    /// The file shown.
    pub fn document(&mut self) -> Option<&mut Document> {
        self.documents.get_mut(self.current)
    }

    /// Goes to a moment of the file shown.
    pub fn go(&mut self, moment: Moment) {
        let Some(document) = self.document() else { return };
        let recording = Arc::clone(&document.recording);
        match (moment, recording.failures.len().checked_sub(1)) {
            (Moment::Failure, Some(last)) => document.go_to_failure(last as u32),
            (Moment::Failure, None) => {}
            _ => document.go(moment.of(&recording)),
        }
    }

    /// Compares the file shown with a moment of its own, or of another recording.
    pub fn compare(&mut self, other: Option<Recording>, moment: Moment) {
        let Some(document) = self.document() else { return };
        let other = other.map_or_else(|| Arc::clone(&document.recording), Arc::new);
        let at = moment.of(&other);
        document.panels.diff.compare(other, at);
    }

    /// Whether something is on its way that a picture should wait for.
    pub fn is_busy(&mut self) -> bool {
        !self.loads.is_empty() || self.documents.iter_mut().any(Document::is_busy)
    }

    /// Draws everything and takes in what the person did.
    pub fn frame(&mut self, ui: &mut Ui) {
        let ctx = ui.ctx().clone();
        self.apply_settings(&ctx);
        self.take_in(&ctx);
        let typing = self.typed_path.is_some() || self.attaching.is_some();
        let mut commands =
            if typing || self.palette.is_open() { Vec::new() } else { pressed(&ctx, &self.table) };
        self.take_up(&mut commands);
        let seen = if let Some(view) = self.only {
            let seen = commands.len();
            self.one_view(ui, view, &mut commands);
            seen
        } else {
            self.bars(ui, &mut commands);
            let seen = commands.len();
            self.middle(ui, &mut commands);
            self.overlays(&ctx, &mut commands);
            seen
        };
        self.put_off(&ctx, commands.get(seen..).unwrap_or_default());
        for command in commands {
            self.act(&ctx, command);
        }
        self.settle(&ctx);
    }

    /// Adds what charts were to do once they are drawn again; what is selected is zoomed to once
    /// the moment is there that it lies in.
    fn take_up(&mut self, commands: &mut Vec<Command>) {
        let is_late = self.documents.get(self.current).is_some_and(Document::is_late);
        if !(is_late && self.for_charts.contains(&Command::ZoomToSelection)) {
            commands.append(&mut self.for_charts);
        }
    }

    /// Keeps what views and the palette ask of charts, which are drawn by then, for the next frame.
    fn put_off(&mut self, ctx: &Context, late: &[Command]) {
        let before = self.for_charts.len();
        self.for_charts.extend(late.iter().filter(|command| command.is_for_charts()));
        if self.for_charts.len() > before {
            ctx.request_repaint();
        }
    }

    fn middle(&mut self, ui: &mut Ui, commands: &mut Vec<Command>) {
        egui::CentralPanel::default().show(ui, |ui| {
            if self.documents.is_empty() {
                self.welcome(ui, commands);
            } else {
                self.docked(ui, commands);
            }
        });
    }

    fn docked(&mut self, ui: &mut Ui, commands: &mut Vec<Command>) {
        let open: Vec<Arc<Recording>> =
            self.documents.iter().map(|document| Arc::clone(&document.recording)).collect();
        let asked = commands.clone();
        let Some(document) = self.documents.get_mut(self.current) else { return };
        let stage = Stage {
            document,
            open: &open,
            look: Look::of(ui.visuals().dark_mode),
            surface: &mut self.surface,
            asked: &asked,
            active: &mut self.active,
            still: self.settings.reduced_motion,
            commands,
        };
        self.dock.ui(&mut super::bars::Dock { stage }, ui);
    }

    fn one_view(&mut self, ui: &mut Ui, view: View, commands: &mut Vec<Command>) {
        let open: Vec<Arc<Recording>> =
            self.documents.iter().map(|document| Arc::clone(&document.recording)).collect();
        let asked = commands.clone();
        let Some(document) = self.documents.get_mut(self.current) else { return };
        egui::CentralPanel::default().show(ui, |ui| {
            super::bars::caption(ui, document, view);
            document.panels.compaction.shown_done = 0.5;
            let mut stage = Stage {
                document,
                open: &open,
                look: Look::of(ui.visuals().dark_mode),
                surface: &mut self.surface,
                asked: &asked,
                active: &mut self.active,
                still: true,
                commands,
            };
            views::show(view, ui, &mut stage);
        });
    }

    fn apply_settings(&mut self, ctx: &Context) {
        if self.only.is_some() || self.settings_path.is_none() {
            return;
        }
        let settings = &self.settings;
        let wanted = (settings.theme, settings.scale.to_bits(), settings.reduced_motion);
        if self.applied == Some(wanted) {
            return;
        }
        self.applied = Some(wanted);
        ctx.set_theme(match settings.theme {
            Theme::System => egui::ThemePreference::System,
            Theme::Light => egui::ThemePreference::Light,
            Theme::Dark => egui::ThemePreference::Dark,
        });
        ctx.set_zoom_factor(settings.scale);
        ctx.options_mut(|options| options.zoom_with_keyboard = false);
        let time = if settings.reduced_motion { 0.0 } else { 0.1 };
        ctx.all_styles_mut(|style| style.animation_time = time);
    }

    /// Files that arrived: read, chosen, dropped; and what a run recorded.
    fn take_in(&mut self, ctx: &Context) {
        let mut at = 0;
        while let Some(load) = self.loads.get(at) {
            match load.poll() {
                Some(Came::Whole(result)) => {
                    let load = self.loads.remove(at);
                    self.opened(result, load.document);
                }
                // What was cancelled is not shown any more.
                Some(Came::First(_)) if load.progress.stopped() => {}
                Some(Came::First(painted)) => {
                    let shown = self.first_picture(painted, load.document);
                    self.loads[at].document = Some(shown);
                    at += 1;
                }
                None => at += 1,
            }
        }
        let dropped: Vec<PathBuf> = ctx.input(|input| {
            input.raw.dropped_files.iter().map(|file| file.path().to_owned()).collect()
        });
        for path in dropped {
            self.load(ctx, path);
        }
        if let Some(answer) = self.picker.as_ref().and_then(|picker| picker.try_recv().ok()) {
            self.picker = None;
            if let Some(path) = answer {
                self.load(ctx, path);
            }
        }
        self.follow_runs();
    }

    /// Shows a moment of a file that is being read, in place of an earlier one. Gives its place
    /// among the documents.
    pub(super) fn first_picture(&mut self, painted: Arc<Painted>, earlier: Option<usize>) -> usize {
        let path = &painted.recording.path;
        let is_its = |shown: &Document| shown.recording.path == *path;
        match earlier.filter(|at| self.documents.get(*at).is_some_and(is_its)) {
            Some(at) => {
                self.documents[at].show(painted);
                at
            }
            None => {
                self.push(Document::of(painted, self.settings.axis));
                self.current
            }
        }
    }

    /// Shows a file that was read, in place of its first picture if there is one.
    pub(super) fn opened(&mut self, result: Result<Arc<Painted>, OpenError>, at: Option<usize>) {
        let first = at.and_then(|at| self.documents.get_mut(at));
        match result {
            Ok(painted) => {
                self.settings.opened(&painted.recording.path);
                let (opened, before) = (painted.recording.path.clone(), self.current);
                match first {
                    // Where the person looks by then is kept, but for the moment.
                    Some(document) if document.recording.path == opened => document.show(painted),
                    Some(_) => {}
                    None => self.push(Document::of(painted, self.settings.axis)),
                }
                self.resume(&opened, before);
            }
            Err(error) if error.cancelled => {
                // Its history is not being read any more, as its first picture says.
                let shown = first.is_some_and(|shown| shown.recording.path == error.path);
                self.give_up(&error.path);
                at.filter(|_| shown).into_iter().for_each(|at| self.close(at));
            }
            Err(error) => {
                self.give_up(&error.path);
                let text =
                    format!("{} could not be opened. {}", error.path.display(), error.reason);
                self.notices.push(Notice { text, is_error: true });
            }
        }
    }

    /// Takes in what this frame changed, and keeps what is to be kept.
    fn settle(&mut self, ctx: &Context) {
        let (now, dragging, step) =
            ctx.input(|input| (input.time, input.pointer.any_down(), f64::from(input.stable_dt)));
        if let Some(document) = self.documents.get_mut(self.current) {
            if document.playing {
                let rate = f64::from(document.recording.end()) / PLAYED_IN * step;
                document.step(rate.ceil().max(1.0) as i64);
                document.playing = document.sight.at < document.recording.end();
                ctx.request_repaint();
            }
            let hovered = document.hover;
            document.settle(ctx, now, dragging);
            if document.hover != hovered {
                // The other views show it too.
                ctx.request_repaint();
            }
        }
        self.save(ctx, now);
    }

    /// Writes the settings if they changed; where only the sight of a file did, now and then.
    fn save(&mut self, ctx: &Context, now: f64) {
        if self.settings_path.is_none() {
            return;
        }
        let due = self.kept_at + KEPT_EVERY - now;
        if due <= 0.0 {
            self.settings.session = self.session();
        } else if self.session() != self.settings.session {
            ctx.request_repaint_after(std::time::Duration::from_secs_f64(due));
        }
        self.write(now);
    }

    fn write(&mut self, now: f64) {
        let Some(path) = &self.settings_path else { return };
        if self.settings.dock.as_ref() != Some(&self.dock) {
            self.settings.dock = Some(self.dock.clone());
        }
        if self.settings == self.saved {
            return;
        }
        self.saved = self.settings.clone();
        self.kept_at = now;
        if let Err(error) = self.settings.save(path) {
            let text = format!("Settings could not be kept in {}: {error}.", path.display());
            self.notices.push(Notice { text, is_error: true });
            self.settings_path = None;
        }
    }
}

/// Seconds between two times that the sight of a file is kept.
const KEPT_EVERY: f64 = 2.0;
/// Seconds that a whole run takes when it is played.
const PLAYED_IN: f64 = 20.0;

impl eframe::App for Inspector {
    fn clear_color(&self, visuals: &egui::Visuals) -> [f32; 4] {
        visuals.panel_fill.to_normalized_gamma_f32()
    }

    fn on_exit(&mut self) {
        if self.settings_path.is_some() {
            self.settings.session = self.session();
        }
        self.write(f64::MAX);
    }

    fn ui(&mut self, ui: &mut Ui, _frame: &mut eframe::Frame) {
        self.frame(ui);
        let size = ui.ctx().content_rect().size() * self.settings.scale;
        self.settings.window = Some((size.x.round(), size.y.round()));
    }
}
