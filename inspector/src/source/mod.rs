//! Where the program's data comes from: devices and files. The only part that knows how devices
//! are opened; everything beyond sees recorded facts.

mod check;
mod snapshot;

use std::path::Path;

use anyhow::{Context, Result};
use terrane_trace::replay::Target;
use terrane_trace::{Limits, Trace, open_csv, read_csv};

use crate::exit::BadInput;

pub use check::{Check, checks};
pub use snapshot::segments;
pub use terrane::{Choice, Opened, survey};

/// Opens a device.
///
/// # Errors
/// Why it can not be opened; a name that nothing answers to is bad input.
pub fn open(choice: &Choice) -> Result<Opened> {
    terrane::open(choice).map_err(|error| match error {
        terrane::OpenError::Named { .. } => BadInput(error.to_string()).into(),
        error => anyhow::Error::new(error).context("see `terrane devices`"),
    })
}

/// What a replay runs on.
pub fn target(opened: &Opened) -> Target {
    match &opened.sim {
        Some(sim) => Target::Sim(sim.clone()),
        None => Target::Real(opened.device.clone()),
    }
}

/// Reads a recorded workload.
///
/// # Errors
/// [`BadInput`] with the line and the reason.
pub fn trace(path: &Path) -> Result<Trace> {
    let bad = |error| BadInput(format!("{}: {error}", path.display()));
    Ok(open_csv(path, Limits::default()).map_err(bad)?)
}

/// The workload that is built in: two steps of training a small language model on sequences of
/// varying length.
pub const BUILT_IN: &str = "gpt2_varlen";

/// Reads the workload that is built in.
///
/// # Errors
/// None in a sound build.
pub fn built_in() -> Result<Trace> {
    let bytes = include_bytes!("../../../tests/data/traces/gpt2_varlen.native.csv.gz");
    read_csv(&bytes[..], Limits::default()).context("the workload that is built in")
}

/// The name of a workload's file without its endings.
pub fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}
