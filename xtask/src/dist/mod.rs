//! `cargo xtask dist`: what is handed to people who do not build it themselves.
//!
//! - the program without window and without GPU drivers, linked statically against musl where
//!   that toolchain is there: it reads files on any Linux, whatever its C library;
//! - the program with the window and both GPU backends, for the C library of this machine;
//! - a Python wheel that carries the first of them and nothing else.
//!
//! What each program needs of the system is read out of the program and printed.

mod needs;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::shell;
use needs::Needs;

/// Options of `cargo xtask dist`.
#[derive(Args)]
pub struct Options {
    /// Where the archives go.
    #[arg(long, value_name = "DIR", default_value = "target/dist")]
    output: PathBuf,
    /// Leave out the program with the window, which takes longest to build.
    #[arg(long)]
    no_window: bool,
}

const PACKAGE: &str = "terrane-inspector";
/// A C library as old as this should do, so that the program runs on systems of 2020.
const GLIBC_WANTED: (u32, u32) = (2, 31);

/// Builds, packs, and tries the wheel where Python is.
pub fn run(options: &Options) -> Result<()> {
    let output = shell::root().join(&options.output);
    fs::create_dir_all(&output).with_context(|| format!("making {}", output.display()))?;
    let arch = std::env::consts::ARCH;
    let headless =
        Program::build("headless", headless_target().as_deref(), &["--no-default-features"])?;
    headless.pack(&output, arch)?;
    let wheel = wheel::build(&headless.path, &headless.needs, arch, &output)?;
    println!("{}: the program as a Python package", wheel.display());
    match try_wheel(&wheel)? {
        None => println!("The wheel was installed into a fresh environment, and runs there."),
        Some(reason) => println!("The wheel was not tried: {reason}."),
    }
    if !options.no_window {
        Program::build("window", None, &[])?.pack(&output, arch)?;
    }
    Ok(())
}

/// Makes a wheel of the program as the tests built it, installs it and runs it. Gives the reason
/// when it could not be tried.
pub fn check() -> Result<Option<String>> {
    let mut cargo = shell::cargo(&["build", "--package", PACKAGE, "--bin", "terrane"]);
    shell::run(cargo.env("CARGO_INCREMENTAL", "0"))?;
    let program = target().join("debug/terrane");
    let needs = Needs::of(&program)?;
    let folder = target().join("dist-check");
    fs::create_dir_all(&folder)?;
    try_wheel(&wheel::build(&program, &needs, std::env::consts::ARCH, &folder)?)
}

/// Where cargo builds.
fn target() -> PathBuf {
    let given = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    given.unwrap_or_else(|| shell::root().join("target"))
}

/// A program as built, stripped, and what it needs.
struct Program {
    name: &'static str,
    path: PathBuf,
    needs: Needs,
}

impl Program {
    fn build(name: &'static str, target: Option<&str>, args: &[&str]) -> Result<Self> {
        let mut cargo = shell::cargo(&["build", "--release", "--package", PACKAGE]);
        cargo.args(["--bin", "terrane"]).args(args);
        let mut built = self::target();
        if let Some(target) = target {
            cargo.args(["--target", target]);
            built.push(target);
        }
        shell::run(&mut cargo)?;
        let folder = self::target().join("dist-programs").join(name);
        fs::create_dir_all(&folder)?;
        let path = folder.join("terrane");
        let built = built.join("release/terrane");
        fs::copy(&built, &path).with_context(|| format!("copying {}", built.display()))?;
        shell::run(&mut shell::command("strip", &[&path.to_string_lossy()]))?;
        let needs = Needs::of(&path)?;
        println!("{name}: {needs}");
        if needs.glibc.is_some_and(|found| found > GLIBC_WANTED) {
            let (major, minor) = GLIBC_WANTED;
            println!("{name}: it does not run on systems with glibc {major}.{minor}.");
        }
        Ok(Self { name, path, needs })
    }

    /// Writes `terrane-VERSION-ARCH-linux-NAME.tar.gz` with the program, its licences and a note.
    fn pack(&self, output: &Path, arch: &str) -> Result<()> {
        let stem = format!("terrane-{}-{arch}-linux-{}", env!("CARGO_PKG_VERSION"), self.name);
        let parent = target().join("dist-programs");
        let folder = parent.join(&stem);
        fs::create_dir_all(&folder)?;
        fs::copy(&self.path, folder.join("terrane"))?;
        for name in ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "CHANGELOG.md"] {
            fs::copy(shell::root().join(name), folder.join(name))?;
        }
        fs::write(folder.join("NEEDS.txt"), format!("{}\n", self.needs))?;
        let archive = output.join(format!("{stem}.tar.gz"));
        let (to, from) = (archive.to_string_lossy(), parent.to_string_lossy());
        shell::run(&mut shell::command("tar", &["-czf", &to, "-C", &from, &stem]))?;
        fs::remove_dir_all(&folder)?;
        println!("{}: {}", archive.display(), self.needs);
        Ok(())
    }
}

/// The musl target of this machine, if it can be built for.
fn headless_target() -> Option<String> {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let has_std = || {
        let list = shell::output(&mut shell::command("rustup", &["target", "list", "--installed"]));
        list.is_ok_and(|list| list.lines().any(|line| line == target))
    };
    if !has_std() {
        println!("The target {target} is not installed: trying to add it.");
        let added = shell::run(&mut shell::command("rustup", &["target", "add", &target]));
        if added.is_err() || !has_std() {
            println!("Going on with the C library of this machine.");
            return None;
        }
    }
    if !shell::on_path("musl-gcc") {
        println!(
            "There is no musl-gcc, which compiles zstd for musl (Debian: apt-get install \
             musl-tools). Going on with the C library of this machine."
        );
        return None;
    }
    Some(target)
}

/// Installs a wheel into an environment of its own and runs the program there. Gives the reason
/// when this machine has no Python that can.
fn try_wheel(wheel: &Path) -> Result<Option<String>> {
    if !shell::on_path("python3") {
        return Ok(Some("there is no python3".to_owned()));
    }
    let folder = target().join("dist-venv");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let place = folder.to_string_lossy();
    if !shell::succeeds(&mut shell::command("python3", &["-m", "venv", &place])) {
        return Ok(Some("python3 makes no virtual environment (python3-venv)".to_owned()));
    }
    let wheel = wheel.to_string_lossy();
    let pip = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", &wheel];
    shell::run(&mut shell::command(folder.join("bin/python"), &pip))?;
    let program = folder.join("bin/terrane");
    let printed = shell::output(&mut shell::command(&program, &["--version"]))?;
    if printed.trim() != format!("terrane {}", env!("CARGO_PKG_VERSION")) {
        bail!("the installed program printed `{}`", printed.trim());
    }
    // It reads a file, too: nothing that it needs was left behind.
    let file = shell::root().join("tests/data/snapshots/leak_accumulating.frames.pickle.gz");
    let args = ["leaks", &file.to_string_lossy(), "--json"];
    let leaks = shell::output(&mut shell::command(&program, &args))?;
    if !leaks.contains("accumulating") {
        bail!("the installed program does not find the leak of {}", file.display());
    }
    fs::remove_dir_all(&folder)?;
    Ok(None)
}
