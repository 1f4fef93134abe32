//! `cargo xtask soak`: everything at once for a long time, plain, under the address sanitizer or
//! under valgrind.

use anyhow::{Result, bail};
use clap::Args;

use crate::shell;

/// Options of `cargo xtask soak`.
#[derive(Args)]
pub struct Options {
    /// Minutes.
    #[arg(long, value_name = "N", default_value = "10")]
    minutes: f64,
    /// The device: `host`, `vulkan[:NAME]` or `cuda[:N]`.
    #[arg(long, default_value = "host")]
    device: String,
    /// The seed of the first round.
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Build and run with the address sanitizer, as far as the toolchain brings it.
    #[arg(long, conflicts_with = "valgrind")]
    asan: bool,
    /// Run under valgrind, some 50 times slower.
    #[arg(long)]
    valgrind: bool,
}

/// Where the address sanitizer's own build goes: it must not share code with others.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds the program and runs it.
pub fn run(options: &Options) -> Result<()> {
    if options.valgrind && !shell::on_path("valgrind") {
        bail!("valgrind is missing: install it, or use --asan");
    }
    let program = build(options)?;
    let program = shell::root().join(program);
    let mut command = if options.valgrind {
        let mut valgrind = shell::command("valgrind", &["--error-exitcode=9", "--quiet"]);
        // A block that is lost is a leak of ours; what a driver keeps to the end is reachable.
        valgrind.args(["--leak-check=full", "--errors-for-leak-kinds=definite"]);
        let known = shell::root().join("xtask/src/valgrind.supp");
        valgrind.arg(format!("--suppressions={}", known.display()));
        valgrind.arg("--show-leak-kinds=definite").arg(&program);
        valgrind
    } else {
        shell::command(&program, &[])
    };
    command.args(["--minutes", &options.minutes.to_string(), "--device", &options.device]);
    command.args(["--seed", &options.seed.to_string()]);
    if options.asan {
        // Drivers map what the sanitizer would put its shadow into, and keep memory to the end.
        command.env("ASAN_OPTIONS", "detect_leaks=0:protect_shadow_gap=0");
    }
    shell::run(&mut command)
}

/// Gives the program's path.
fn build(options: &Options) -> Result<String> {
    let mut command =
        shell::cargo(&["build", "--release", "--package", "terrane-tests", "--bin", "soak"]);
    if !options.asan {
        shell::run(&mut command)?;
        return Ok("target/release/soak".to_owned());
    }
    // The sanitizer's runtime is part of the stable toolchain; the flag is not.
    command.args(["--target", TARGET, "--target-dir", "target/asan"]);
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
    shell::run(&mut command)?;
    Ok(format!("target/asan/{TARGET}/release/soak"))
}
