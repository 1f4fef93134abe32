//! What counting lines needs: `cargo-llvm-cov`, and LLVM's own tools in the version of the compiler
//! (another version may not read what the compiler writes).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{install, shell};

/// The programs.
pub struct Tools {
    llvm_cov: PathBuf,
    /// `llvm-cov` and `llvm-profdata`, where they are not the toolchain's own.
    llvm: Option<(PathBuf, PathBuf)>,
}

impl Tools {
    /// Finds them; installs what is missing if that is allowed.
    pub fn find(may_install: bool) -> Result<Self> {
        Ok(Self { llvm: llvm(may_install)?, llvm_cov: cargo_llvm_cov(may_install)? })
    }

    /// `cargo llvm-cov ARGS`, in the workspace.
    pub fn llvm_cov(&self, args: &[&str]) -> Command {
        // Started without cargo, it takes the name of the subcommand first, as cargo gives it.
        let mut command = shell::command(&self.llvm_cov, &["llvm-cov"]);
        command.args(args).env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
        for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION"] {
            command.env_remove(name);
        }
        if let Some((cov, profdata)) = &self.llvm {
            command.env("LLVM_COV", cov).env("LLVM_PROFDATA", profdata);
        }
        command
    }
}

/// Where it is installed by us: inside the build folder, so that nothing of it stays elsewhere.
const OURS: &str = "target/tools";

fn cargo_llvm_cov(may_install: bool) -> Result<PathBuf> {
    const NAME: &str = "cargo-llvm-cov";
    if shell::on_path(NAME) {
        return Ok(PathBuf::from(NAME));
    }
    let program = shell::root().join(OURS).join("bin").join(NAME);
    if !program.is_file() {
        if !may_install {
            bail!("{NAME} is missing: `cargo install {NAME}`");
        }
        println!("Installing {NAME} into {OURS}: it builds and runs tests that count lines.");
        let args = ["install", "--locked", "--quiet", "--root", OURS, NAME];
        shell::run(&mut shell::cargo(&args))?;
    }
    Ok(program)
}

/// The toolchain's own tools (nothing to tell), or the system's of the same major version.
fn llvm(may_install: bool) -> Result<Option<(PathBuf, PathBuf)>> {
    let rustc = |args: &[&str]| shell::output(&mut shell::command("rustc", args));
    let library = rustc(&["--print", "target-libdir"])?;
    let in_toolchain =
        || Path::new(library.trim()).with_file_name("bin").join("llvm-cov").is_file();
    if in_toolchain() {
        return Ok(None);
    }
    let verbose = rustc(&["-vV"])?;
    let major = llvm_major(&verbose).context("rustc does not tell the version of its LLVM")?;
    let names = [format!("llvm-cov-{major}"), format!("llvm-profdata-{major}")];
    let of_system = || {
        let [cov, profdata] = &names;
        (shell::on_path(cov) && shell::on_path(profdata)).then(|| (cov.into(), profdata.into()))
    };
    if let Some(found) = of_system() {
        return Ok(Some(found));
    }
    if !may_install {
        bail!("llvm-cov {major} is missing: `rustup component add llvm-tools`");
    }
    println!("Installing LLVM's tools of version {major}: they read the counts that tests write.");
    let add = ["component", "add", "llvm-tools"];
    if shell::on_path("rustup") && shell::run(&mut shell::command("rustup", &add)).is_ok() {
        return Ok(None);
    }
    install::debian(&format!("llvm-{major}"))?;
    of_system().map(Some).with_context(|| format!("no {} after that", names[0]))
}

fn llvm_major(verbose: &str) -> Option<u32> {
    let version = verbose.lines().find_map(|line| line.strip_prefix("LLVM version: "))?;
    version.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_llvm_is_read_from_what_rustc_says() {
        let text = "rustc 1.95.0 (59807616e 2026-04-14)\nrelease: 1.95.0\nLLVM version: 22.1.2\n";
        assert_eq!(llvm_major(text), Some(22));
        assert_eq!(llvm_major("rustc 1.95.0\n"), None);
    }
}
