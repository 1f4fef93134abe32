//! Mutants: for every clause, a device or an allocator broken in one way, on which it fails. A
//! clause that nothing can fail says nothing.
//!
//! The table is `data/mutants.csv`; the program `mutants` finds candidates for it, and
//! `tests/mutants.rs` runs it.

use std::time::Duration;

use terrane_core::device::sim::Sim;

use crate::plan::{Plan, Source};
use crate::probe::Flaw;

/// The devices that mutants are made of.
pub const DEVICES: &[&str] = &["sim:cuda", "sim:vulkan", "sim:bound", "sim:views", "host"];

/// A clause and a mutant that it fails on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The clause's name.
    pub clause: &'static str,
    /// The device that is broken, of [`DEVICES`].
    pub device: &'static str,
    /// What is broken.
    pub flaw: Flaw,
}

/// The table: a row at least for every clause, and for every flaw.
///
/// # Errors
/// The first line that is no row.
pub fn table() -> Result<Vec<Row>, String> {
    let lines = include_str!("../data/mutants.csv").lines();
    lines.filter(|line| !line.starts_with('#')).map(row).collect()
}

fn row(line: &'static str) -> Result<Row, String> {
    let mut parts = line.split(',');
    let (Some(clause), Some(device), Some(name), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(format!("`{line}` is not clause,device,flaw"));
    };
    let flaw = Flaw::ALL.iter().copied().find(|flaw| format!("{flaw:?}") == name);
    let flaw = flaw.ok_or_else(|| format!("`{line}`: no such flaw"))?;
    Ok(Row { clause, device, flaw })
}

/// How to run a clause on a mutant; `None` for a device that there is not.
pub fn plan(device: &str, flaw: Flaw, patience: Duration) -> Option<Plan> {
    let source = match device {
        "sim:cuda" => Source::Model(Sim::cuda),
        "sim:vulkan" => Source::Model(Sim::vulkan),
        "sim:views" => Source::Model(|| Sim::vulkan().caps(|caps| caps.views = true)),
        // Bindings are shorter than segments.
        "sim:bound" => {
            Source::Model(|| Sim::vulkan().caps(|caps| caps.max_binding_bytes = 1 << 20))
        }
        "host" => Source::Host,
        _ => return None,
    };
    Some(Plan { flaw, patience, ..Plan::new(source) })
}
