//! What is kept between runs. A file that cannot be read is dropped, never fatal.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::layout::{Axis, Coloring};
use super::session::Kept;
use super::view::View;

/// Dark, light, or as the system says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Theme {
    #[default]
    System,
    Light,
    Dark,
}

/// What is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    pub theme: Theme,
    /// Scale of everything, 0.5 to 3.
    pub scale: f32,
    pub reduced_motion: bool,
    pub coloring: Coloring,
    pub axis: Axis,
    /// Files opened, last first.
    pub recent: Vec<PathBuf>,
    /// The dock as it was left.
    pub dock: Option<egui_tiles::Tree<View>>,
    /// The files that are open.
    #[serde(deserialize_with = "super::session::lenient")]
    pub session: Vec<Kept>,
    /// Width and height of the window in points.
    pub window: Option<(f32, f32)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            theme: Theme::System,
            scale: 1.0,
            reduced_motion: false,
            coloring: Coloring::Size,
            axis: Axis::Events,
            recent: Vec::new(),
            dock: None,
            session: Vec::new(),
            window: None,
        }
    }
}

/// Files remembered.
const RECENT: usize = 12;

impl Settings {
    /// Where they are kept: the user's folder for settings.
    pub fn path() -> Option<PathBuf> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let folder = set("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(set("HOME")?).join(".config")))?;
        Some(folder.join("terrane").join("inspector.json"))
    }

    /// Reads them; the second value says so if a file was there and was of no use.
    pub fn load(path: Option<&Path>) -> (Self, Option<String>) {
        let Some(text) = path.and_then(|path| std::fs::read_to_string(path).ok()) else {
            return (Self::default(), None);
        };
        match serde_json::from_str::<Self>(&text) {
            Ok(mut settings) => {
                settings.scale = if settings.scale.is_finite() { settings.scale } else { 1.0 };
                settings.scale = settings.scale.clamp(0.5, 3.0);
                (settings, None)
            }
            Err(error) => {
                let note =
                    format!("The saved settings could not be read ({error}); starting anew.");
                (Self::default(), Some(note))
            }
        }
    }

    /// Writes them, whole or not at all.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)?;
        let fresh = path.with_extension(format!("{}.new", std::process::id()));
        std::fs::write(&fresh, serde_json::to_vec_pretty(self).map_err(std::io::Error::other)?)?;
        std::fs::rename(fresh, path)
    }

    /// Remembers a file.
    pub fn opened(&mut self, path: &Path) {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        self.recent.retain(|known| *known != path);
        self.recent.insert(0, path);
        self.recent.truncate(RECENT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_and_corrupt_ones_are_dropped_with_a_note() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/inspector.json");
        let mut settings = Settings { scale: 1.5, ..Settings::default() };
        settings.opened(Path::new("/x/one.pickle"));
        settings.dock = Some(super::super::view::Arrangement::LeakHunt.tree());
        settings.save(&path).unwrap();
        let (read, note) = Settings::load(Some(&path));
        assert_eq!((read, note), (settings, None));
        std::fs::write(&path, "{\"scale\": \"large\"").unwrap();
        let (read, note) = Settings::load(Some(&path));
        assert_eq!(read, Settings::default());
        assert!(note.unwrap().contains("could not be read"));
        std::fs::write(&path, "{\"scale\": 1e9, \"unknown\": 3}").unwrap();
        assert_eq!(Settings::load(Some(&path)).0.scale, 3.0);
    }
}
