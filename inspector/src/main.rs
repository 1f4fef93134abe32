//! The program `terrane`: devices, replay, demo, and what files of GPU memory tell.
//!
//! Exit codes: 0 success; 1 the work was done and found something wrong (a failed check, contents
//! that differ, an allocation that failed without a limit), or the device or the system failed;
//! 2 the input is bad (arguments, a file).
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod exit;
mod layout;
mod model;
mod paint;
mod picture;
mod progress;
mod source;
mod text;
mod units;
#[cfg(feature = "gui")]
mod window;

use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = match cli::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    match commands::run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error),
    }
}
