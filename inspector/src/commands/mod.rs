//! What the program does, one file per command.

pub mod check;
mod demo;
mod demo_compact;
mod demo_work;
mod devices;
pub mod diff;
pub mod explain;
pub mod export;
pub mod failure;
pub mod fit;
pub mod howto;
pub mod info;
#[cfg(feature = "gui")]
pub mod inspect;
pub mod leaks;
mod replay;
pub mod report;
mod shared;
pub mod sites;
pub mod timeline;
pub mod top;
pub mod tune;
mod verdict;
pub mod whatif;
pub mod why;

use std::io::Write as _;

use anyhow::Result;
use clap::CommandFactory as _;

use crate::cli::{Cli, Command};

/// Runs the command that was asked for.
///
/// # Errors
/// Bad input, what was found wrong, or the device's and the system's.
pub fn run(cli: &Cli) -> Result<()> {
    let Some(command) = &cli.command else {
        #[cfg(feature = "gui")]
        if inspect::has_display() {
            return inspect::window(cli.file.iter().cloned().collect());
        }
        return match &cli.file {
            Some(file) => verdict::run(file, cli.quiet),
            None => print(&Cli::command().render_help().to_string()),
        };
    };
    match command {
        Command::Info(args) => info::run(args, cli.quiet),
        Command::Explain(args) => explain::run(args, cli.quiet),
        Command::Peak(args) => sites::peak(args, cli.quiet),
        Command::Sites(args) => sites::run(args, cli.quiet),
        Command::Timeline(args) => timeline::run(args, cli.quiet),
        Command::Leaks(args) => leaks::run(args, cli.quiet),
        Command::Why(args) => why::run(args, cli.quiet),
        Command::Whatif(args) => whatif::run(args, cli.quiet),
        Command::Tune(args) => tune::run(args, cli.quiet),
        Command::Fit(args) => fit::run(args, cli.quiet),
        Command::Diff(args) => diff::run(args, cli.quiet),
        Command::Check(args) => check::run(args, cli.quiet),
        Command::Howto(args) => howto::run(args),
        Command::Top(args) => top::run(args),
        Command::Export(args) => export::run(args, cli.quiet),
        Command::Report(args) => report::run(args, cli.quiet),
        #[cfg(feature = "gui")]
        Command::Inspect(args) => inspect::run(args, cli.quiet),
        Command::Devices(args) => devices::run(args, cli.quiet),
        Command::Replay(args) => replay::run(args, cli.quiet),
        Command::Demo(args) if args.compact => demo_compact::run(args, cli.quiet),
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
