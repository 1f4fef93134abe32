//! Exports: what was recorded, in the forms that other tools read.
//!
//! [`pytorch`] writes PyTorch's memory snapshot (as a pickle of protocol 4, or as JSON), which
//! PyTorch's own viewer opens. [`perfetto`] writes a trace for ui.perfetto.dev, [`csv`] the
//! recorded workload, [`stacks`] collapsed stacks for flame graphs. None of them is a second
//! format: reading one back gives what was recorded, as far as that form can say it.

mod csv;
mod json;
mod perfetto;
mod pickle;
mod pytorch;
mod stacks;
mod tree;

pub use csv::csv;
pub use perfetto::perfetto;
pub use pytorch::{Encoding, pytorch};
pub use stacks::stacks;
