//! `terrane FILE` without a display: the verdict, and where to look next.

use std::path::Path;

use anyhow::Result;
use terrane_trace::diagnose::{Known, LeakOptions, Sidecar, leaks};
use terrane_trace::recording::Recording;

use super::failure::Failure;
use crate::exit::BadInput;
use crate::{source, units};

/// Prints the verdict on a file.
///
/// # Errors
/// Bad input.
pub fn run(file: &Path, quiet: bool) -> Result<()> {
    let is_name = file.components().count() == 1 && file.extension().is_none();
    if is_name && !file.exists() {
        let name = file.display();
        let text = format!("`{name}` is neither a command nor a file; see `terrane --help`");
        return Err(BadInput(text).into());
    }
    let recording = source::recording(file, quiet)?;
    let sidecar = Sidecar::beside(file).map_err(BadInput)?;
    let known = sidecar.as_ref().map(Sidecar::known).unwrap_or_default();
    super::print(&text(&recording, file, known))
}

fn text(recording: &Recording, file: &Path, known: Known) -> String {
    let name = file.display();
    let Some(history) = recording.history(None) else {
        return format!(
            "{name}: {}, one moment and no history. `terrane info {name}` shows it.\n",
            recording.format.describe()
        );
    };
    let figures = history.trace.figures();
    let mut text = format!(
        "{name}: {}, {} events, peak requested {}.\n\n",
        recording.format.describe(),
        units::count(figures.events),
        units::bytes(figures.peak_requested)
    );
    match Failure::of(recording, history, known) {
        Ok(Some(found)) => {
            text.push_str(&found.verdict());
            text.push_str(&format!("\n\nWhy, and what helps:  terrane explain {name}\n"));
        }
        Ok(None) => {
            let found = leaks(&recording.snapshot, history, LeakOptions::default());
            text.push_str("No request failed. Growth from step to step: ");
            text.push_str(&super::leaks::sentence(&found));
            text.push_str(&format!("\n\nMore on growth:       terrane leaks {name}\n"));
        }
        Err(why) => text.push_str(&format!("{why}\n\n")),
    }
    text.push_str(&format!(
        "Who holds the peak:   terrane peak {name}\n\
         Other allocators:     terrane whatif {name}\n\
         Which cards it fits:  terrane fit {name}\n"
    ));
    text
}
