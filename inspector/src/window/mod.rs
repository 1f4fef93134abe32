//! The inspector's window: heaps, streams and live compaction, for people to see.
//!
//! - `model` holds recorded facts and knows neither pixels nor widgets;
//! - `layout` turns facts into rectangles and draws nothing;
//! - `paint` turns rectangles and widgets into pixels, on a screen or in memory;
//! - `views` are the widgets, one file each;
//! - `commands` is the one table of everything that can be done.
//!
//! Files are read, and long work is done, on threads of their own; the window never waits.

mod act;
mod app;
mod attach;
mod attaching;
mod bars;
mod commands;
mod document;
mod job;
mod layout;
mod link;
mod load;
mod model;
mod overlays;
mod paint;
mod picker;
mod run;
mod running;
mod session;
mod settings;
mod view;
mod views;

#[cfg(test)]
mod tests;

pub use app::{Inspector, Moment as At};
pub use attach::Target;
pub use paint::{Renderer, Shot};
pub use picker::offered;
pub use view::View;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};

use crate::exit::BadInput;

/// Opens the window with files (of those that tell of several devices, the one named) and programs
/// to look on at, and returns when it is closed.
///
/// # Errors
/// No display, or no graphics driver; the message says what to do.
pub fn open(
    (files, device): (Vec<PathBuf>, Option<usize>),
    attached: Vec<(Target, String)>,
) -> Result<()> {
    let has = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !has("DISPLAY") && !has("WAYLAND_DISPLAY") {
        return Err(BadInput(
            "there is no display to open a window on (neither DISPLAY nor WAYLAND_DISPLAY is \
             set); draw a picture instead: terrane inspect FILE --view heap-map --screenshot \
             out.png"
                .to_owned(),
        )
        .into());
    }
    let path = settings::Settings::path();
    let (settings, note) = settings::Settings::load(path.as_deref());
    let size = settings.window.unwrap_or((1440.0, 900.0));
    let mut wgpu_options = egui_wgpu::WgpuConfiguration::default();
    if let egui_wgpu::WgpuSetup::CreateNew(setup) = &mut wgpu_options.wgpu_setup {
        // Layers for debugging belong to whoever debugs, not to a tool that is left open.
        setup.instance_descriptor.flags = wgpu::InstanceFlags::empty().with_env();
    }
    let options = eframe::NativeOptions {
        viewport: egui::ViewportBuilder::default()
            .with_title("Terrane")
            .with_app_id("terrane")
            .with_inner_size([size.0.clamp(400.0, 8000.0), size.1.clamp(300.0, 8000.0)])
            .with_min_inner_size([420.0, 300.0])
            .with_drag_and_drop(true),
        renderer: eframe::Renderer::Wgpu,
        wgpu_options,
        ..eframe::NativeOptions::default()
    };
    let make: eframe::AppCreator<'_> = Box::new(move |cc| {
        let format = cc.wgpu_render_state.as_ref().map(|state| state.target_format);
        let mut inspector = Inspector::new(settings, format);
        inspector.keep_settings_at(path, note);
        paint::apply(&cc.egui_ctx);
        if files.is_empty() && attached.is_empty() {
            inspector.resume_session(&cc.egui_ctx);
        }
        for file in files {
            inspector.load_device(&cc.egui_ctx, file, device);
        }
        for (target, control) in attached {
            inspector.start_run(&cc.egui_ctx, run::Work::Attach(target, control));
        }
        Ok(Box::new(inspector))
    });
    eframe::run_native("terrane", options, make).map_err(|error| {
        anyhow!(
            "the window could not be opened: {error}; it needs a graphics driver (Debian: apt \
             install libvulkan1 mesa-vulkan-drivers) and a display"
        )
    })
}

/// What is drawn without a window.
pub enum Source {
    /// A file, and which of its devices.
    File(PathBuf, Option<usize>),
    /// A running program, and how long it is looked on at before.
    Program(Target, Duration),
}

impl Source {
    fn recording(&self) -> Result<model::Recording, BadInput> {
        match self {
            Self::File(path, device) => {
                load::open_device(path, *device).map_err(|error| BadInput(error.to_string()))
            }
            Self::Program(target, time) => attach::look(target, *time).map_err(BadInput),
        }
    }
}

/// What to draw without a window.
pub struct Headless {
    /// Of what.
    pub source: Source,
    /// One view alone, or the whole window.
    pub view: Option<View>,
    /// The moment.
    pub at: At,
    /// What a difference is to: another file, or none for the same, and the moment there.
    pub before: Option<(Option<PathBuf>, At)>,
    /// What colour stands for.
    pub coloring: Coloring,
    /// How the picture is to be.
    pub shot: Shot,
}

pub use layout::Coloring;

/// Draws a picture of what the window would show, as a PNG.
///
/// # Errors
/// [`BadInput`] for a file that cannot be read; no driver where one was asked for.
pub fn picture(wanted: &Headless) -> Result<Vec<u8>> {
    let recording = wanted.source.recording()?;
    let settings =
        settings::Settings { coloring: wanted.coloring, ..settings::Settings::default() };
    let mut inspector = Inspector::new(settings, None);
    inspector.add(recording);
    inspector.show_only(wanted.view);
    inspector.go(wanted.at);
    if let Some((file, at)) = &wanted.before {
        let other = file.as_ref().map(|file| Source::File(file.clone(), None).recording());
        inspector.compare(other.transpose()?, *at);
    }
    paint::render(wanted.shot, |ui, format| {
        inspector.draw_on(format);
        inspector.frame(ui);
        inspector.is_busy()
    })
    .context("drawing the picture")
}

/// The table of commands as a page of the manual.
pub fn manual() -> String {
    commands::as_markdown()
}
