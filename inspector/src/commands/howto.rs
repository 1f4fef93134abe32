//! `terrane howto`: what to put into a program so that its file tells everything.

use anyhow::Result;
use clap::ValueEnum;

/// Options of `howto`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The program's framework.
    #[arg(value_enum)]
    pub framework: Framework,
}

/// What a program is written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Framework {
    /// PyTorch 2.1 or newer.
    Pytorch,
}

const PYTORCH: &str = include_str!("howto_pytorch.py");

/// Prints the lines.
///
/// # Errors
/// The system's.
pub fn run(args: &Args) -> Result<()> {
    match args.framework {
        Framework::Pytorch => super::print(PYTORCH),
    }
}
