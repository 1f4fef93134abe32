//! The window without a screen: what it says to those who do not see, what keys and the pointer do,
//! and that every view is a picture in both themes.

mod attached;
mod chain;
mod devices;
mod early;
mod habits;
mod keys;
mod motion;
mod opening;
mod own;
mod pictures;
mod scale;
mod several;
mod states;
mod story;

use std::path::PathBuf;
use std::sync::Arc;

use egui_kittest::Harness;

use super::app::Inspector;
use super::load::{Progress, open};
use super::model::Recording;
use super::settings::Settings;
use super::view::View;

pub fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data").join(name)
}

pub const OOM: &str = "snapshots/unet_multires.oom.pickle.gz";
pub const LEAK: &str = "snapshots/leak_accumulating.frames.pickle.gz";
pub const FRAGMENTED: &str = "snapshots/leak_fragmenting.frames.pickle.gz";
pub const STREAMS: &str = "traces/multistream.native.csv.gz";

/// The most memory that the program may take for a large file: 1.5 GB.
pub const MOST_KIB: u64 = 1_500_000;

/// The most memory that this process ever held.
pub fn most_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A window with a file of `tests/data` in it.
pub fn with_file(name: &str) -> Inspector {
    let recording = open(&data(name), &Progress::default()).unwrap();
    let mut inspector = Inspector::new(Settings::default(), None);
    inspector.add(recording);
    inspector
}

/// The window on a harness, drawn by lavapipe if `gpu`.
pub fn harness(mut inspector: Inspector, dark: bool, gpu: bool) -> Harness<'static, Inspector> {
    let theme = if dark { egui::Theme::Dark } else { egui::Theme::Light };
    let mut builder = Harness::builder()
        .with_size([1280.0, 800.0])
        .with_theme(theme)
        .with_max_steps(40)
        .with_context_setup(super::paint::apply);
    if gpu {
        inspector.draw_on(Some(wgpu::TextureFormat::Rgba8Unorm));
        builder = builder.wgpu();
    }
    builder.build_ui_state(|ui, inspector: &mut Inspector| inspector.frame(ui), inspector)
}

/// Runs until nothing is on its way any more.
pub fn settled(harness: &mut Harness<'_, Inspector>) {
    for _ in 0..600 {
        harness.run_steps(2);
        if !harness.state_mut().is_busy() {
            harness.run_steps(3);
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("still busy after 12 s");
}

/// A window with nothing in it.
pub fn empty() -> Inspector {
    Inspector::new(Settings::default(), None)
}

/// One view of a file alone.
pub fn one(name: &str, view: View) -> Inspector {
    let mut inspector = with_file(name);
    inspector.show_only(Some(view));
    inspector
}
