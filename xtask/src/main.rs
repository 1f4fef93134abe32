//! `cargo xtask`: set-up, tests, style, benches. Each task is one module; `shell` is the only one
//! that starts processes by hand.

mod bench;
mod ci;
mod coverage;
mod demo;
mod dist;
mod fuzz;
mod h200;
mod install;
mod loom;
mod metadata;
mod shell;
mod soak;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tasks of the Terrane workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what driver tests need (where that can be done), then run every test.
    Test(test::Options),
    /// Build and run `terrane demo` on the best device found. Installs nothing.
    Demo(demo::Options),
    /// Everything that CI checks, each step timed.
    Ci(ci::Options),
    /// The house style as a test: layers, sizes, reasons for unsafe, docs.
    Tidy,
    /// Run the benches and print how we compare to peers.
    Bench(bench::Options),
    /// Pack the program for others: without window, with it, and as a Python wheel.
    Dist(dist::Options),
    /// Random inputs against everything that reads what others wrote; needs cargo-fuzz.
    Fuzz(fuzz::Options),
    /// Every order of two threads at the allocator's lock.
    Loom,
    /// Threads, streams, passes, faults and recording at once, for a long time.
    Soak(soak::Options),
    /// Which lines of the allocator and of traces the tests run; needs some minutes.
    Coverage(coverage::Options),
    /// What needs an NVIDIA GPU: build a bundle, run it in one call, write records.
    H200(h200::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Test(options) => test::run(&options),
        Task::Demo(options) => demo::run(&options),
        Task::Ci(options) => ci::run(&options),
        Task::Tidy => tidy::run(),
        Task::Bench(options) => bench::run(&options),
        Task::Dist(options) => dist::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Loom => loom::run(),
        Task::Soak(options) => soak::run(&options),
        Task::Coverage(options) => coverage::run(&options),
        Task::H200(options) => h200::run(&options),
    };
    // Printed by hand: anyhow's own form adds a backtrace of xtask, which helps nobody.
    result.map_or_else(
        |error| {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}
