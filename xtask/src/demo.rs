//! `cargo xtask demo`: build the program and show it working on the best device of this machine.

use anyhow::{Context, Result};
use clap::Args;

use crate::{metadata, shell};

/// Options of `cargo xtask demo`.
#[derive(Args)]
pub struct Options {
    /// Passed on to `terrane demo` as they stand, e.g. `--device host`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

const PACKAGE: &str = "terrane-inspector";
const GUI: &str = "gui";

/// Build in release and run.
pub fn run(options: &Options) -> Result<()> {
    println!("This builds and runs `terrane demo`; it installs nothing.");
    println!("It takes a real GPU if there is one, else a Vulkan driver, else the CPU device.");
    let features = features_without_display()?;
    let mut command = shell::cargo(&["run", "--release", "--package", PACKAGE]);
    command.args(["--bin", "terrane"]).args(&features).args(["--", "demo"]).args(&options.args);
    shell::run(&mut command)
}

/// Without a display the window cannot open, so its crates need not be built: every default
/// feature but that one.
fn features_without_display() -> Result<Vec<String>> {
    let displays = ["DISPLAY", "WAYLAND_DISPLAY"];
    if displays.iter().any(|name| std::env::var_os(name).is_some_and(|v| !v.is_empty())) {
        return Ok(Vec::new());
    }
    let packages = metadata::packages()?;
    let inspector = packages.iter().find(|package| package.name == PACKAGE);
    let features = &inspector.with_context(|| format!("no package {PACKAGE}"))?.features;
    if !features.contains_key(GUI) {
        return Ok(Vec::new());
    }
    let default = features.get("default").into_iter().flatten();
    let kept: Vec<&str> = default.map(String::as_str).filter(|name| *name != GUI).collect();
    println!("No display: building without the window.");
    let mut args = vec!["--no-default-features".to_owned()];
    if !kept.is_empty() {
        args.extend(["--features".to_owned(), kept.join(",")]);
    }
    Ok(args)
}
