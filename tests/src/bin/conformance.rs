//! Runs the conformance suite on a device: `conformance --device vulkan --json`.

use std::process::ExitCode;

use clap::Parser;
use terrane_tests::program::{Options, main as run};

fn main() -> ExitCode {
    run(&Options::parse())
}
