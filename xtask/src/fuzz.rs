//! `cargo xtask fuzz`: random inputs against everything that reads what others wrote.

use anyhow::{Result, bail};
use clap::Args;

use crate::shell;

/// Options of `cargo xtask fuzz`.
#[derive(Args)]
pub struct Options {
    /// Minutes for each target.
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,
    /// The targets; all unless given.
    #[arg(value_parser = TARGETS)]
    targets: Vec<String>,
}

/// As fuzz/Cargo.toml has them.
const TARGETS: [&str; 8] =
    ["pickle", "json", "lines", "own", "wire", "texts", "range", "allocator"];

/// Runs each target from its seeds and what earlier runs found worth keeping.
pub fn run(options: &Options) -> Result<()> {
    if !shell::on_path("cargo-fuzz") {
        bail!(
            "cargo-fuzz is missing: `cargo install cargo-fuzz`, and `rustup toolchain add nightly`"
        );
    }
    let named: Vec<&str> = options.targets.iter().map(String::as_str).collect();
    let targets = if named.is_empty() { TARGETS.to_vec() } else { named };
    let fuzz = shell::root().join("fuzz");
    let mut failed = Vec::new();
    for target in targets {
        let (seconds, seeds) = (options.minutes * 60, format!("seeds/{target}"));
        let corpus = format!("corpus/{target}");
        std::fs::create_dir_all(fuzz.join(&corpus))?;
        let mut command = shell::command("cargo", &["+nightly", "fuzz", "run", "--fuzz-dir", "."]);
        // Our code has no unsafe here; without a sanitizer it runs several times as often.
        command.args(["--sanitizer", "none", target, &corpus, &seeds, "--"]);
        command.arg(format!("-max_total_time={seconds}"));
        command.args(["-timeout=20", "-rss_limit_mb=4096", "-print_final_stats=1", "-verbosity=0"]);
        for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION", "CARGO"] {
            command.env_remove(name);
        }
        if shell::run(command.env_remove("RUSTUP_TOOLCHAIN").current_dir(&fuzz)).is_err() {
            failed.push(target);
        }
    }
    if !failed.is_empty() {
        bail!("{} failed; see fuzz/artifacts", failed.join(", "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_targets_are_those_of_the_fuzz_package() {
        let manifest = std::fs::read_to_string(shell::root().join("fuzz/Cargo.toml")).unwrap();
        let paths = manifest.lines().filter_map(|line| line.strip_prefix("path = \"fuzz_targets/"));
        let found: Vec<&str> = paths.filter_map(|path| path.strip_suffix(".rs\"")).collect();
        assert_eq!(found, TARGETS);
    }
}
