//! What was open when the window was closed, and how it was looked at: it is there again after a
//! restart.

use std::path::{Path, PathBuf};

use egui::Context;
use serde::{Deserialize, Deserializer, Serialize};

use super::app::Inspector;
use super::document::{Document, Selected, Sight};

/// An open file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    path: PathBuf,
    /// Its length: a file that changed is opened, but what was looked at may not be there.
    bytes: u64,
    sight: Sight,
    marks: Vec<u32>,
    /// Whether it was the one shown.
    shown: bool,
    /// The device that was shown, of several.
    #[serde(default)]
    device: Option<usize>,
}

/// Files kept at most.
const KEPT: usize = 20;

/// Reads what was kept; what cannot be read is left out, and takes no other setting with it.
pub fn lenient<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Kept>, D::Error> {
    let value = serde_json::Value::deserialize(from)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

impl Kept {
    fn of(document: &Document, shown: bool) -> Option<Self> {
        let path = &document.recording.path;
        if path.as_os_str().is_empty() {
            // A run: what it told is in no file.
            return None;
        }
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let bytes = document.file_bytes;
        let (sight, marks) = (document.sight, document.marks.clone());
        let device = document.chosen_device();
        Some(Self { path, bytes, sight, marks, shown, device })
    }

    fn is_as_it_was(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|meta| meta.len() == self.bytes)
    }

    /// Looks at a document as before.
    fn resume(&self, document: &mut Document) {
        let recording = std::sync::Arc::clone(&document.recording);
        let within = |number: u32, count: usize| (number as usize) < count;
        document.sight = self.sight;
        document.sight.selected = self.sight.selected.filter(|selected| match *selected {
            Selected::Block(block) => within(block, recording.blocks.len()),
            Selected::Site(site) => within(site, recording.places.sites.len()),
            Selected::Stream(stream) => within(stream, recording.streams.len()),
            Selected::Failure(failure) => within(failure, recording.failures.len()),
            Selected::Range(..) => true,
        });
        document.go(self.sight.at);
        let inside = |mark: &&u32| **mark <= recording.end();
        document.marks = self.marks.iter().filter(inside).copied().collect();
    }
}

impl Inspector {
    /// The files that are open, and how they are looked at.
    pub(super) fn session(&self) -> Vec<Kept> {
        // Those that are still on their way, of which the end may be shown, are as they were.
        let coming = self.resuming.iter();
        let is_coming = |kept: &Kept| self.resuming.iter().any(|it| it.path == kept.path);
        let there = self.documents.iter().enumerate();
        let there = there.filter_map(|(at, it)| Kept::of(it, at == self.current));
        there.filter(|kept| !is_coming(kept)).chain(coming.cloned()).take(KEPT).collect()
    }

    /// Opens the files again that were open when the window was closed.
    pub fn resume_session(&mut self, ctx: &Context) {
        self.resuming.clone_from(&self.settings.session);
        for kept in self.resuming.clone() {
            self.load_device(ctx, kept.path, kept.device);
        }
    }

    /// Looks at a file that has been opened as before, if it was open before; what was `shown`
    /// meanwhile still is, unless this one is to be.
    pub(super) fn resume(&mut self, path: &Path, shown: usize) {
        let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let Some(at) = self.resuming.iter().position(|kept| kept.path == full) else { return };
        let kept = self.resuming.remove(at);
        let Some(at) = self.documents.iter().rposition(|it| it.recording.path == path) else {
            return;
        };
        if kept.is_as_it_was() {
            kept.resume(&mut self.documents[at]);
        }
        self.current = if kept.shown { at } else { shown };
    }

    /// What could not be opened is not tried again at the next start.
    pub(super) fn give_up(&mut self, path: &Path) {
        let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        self.resuming.retain(|kept| kept.path != full);
    }
}
