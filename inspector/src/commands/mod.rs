//! What the program does, one file per command.

mod demo;
mod devices;
mod replay;

use std::io::Write as _;

use anyhow::Result;
use clap::CommandFactory as _;

use crate::cli::{Cli, Command};

/// Runs the command that was asked for.
///
/// # Errors
/// Bad input, what was found wrong, or the device's and the system's.
pub fn run(cli: &Cli) -> Result<()> {
    match &cli.command {
        Command::Devices(args) => devices::run(args, cli.quiet),
        Command::Replay(args) => replay::run(args, cli.quiet),
        Command::Demo(args) => demo::run(args, cli.quiet),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "terrane", &mut script);
            print(&String::from_utf8_lossy(&script))
        }
    }
}

/// Writes a text to the output stream; a reader that went away is no panic.
fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
