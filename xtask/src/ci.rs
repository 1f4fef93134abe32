//! `cargo xtask ci`: everything that must hold before a change lands, in the order that finds
//! mistakes soonest, each step timed. One profile (dev) only: a second one doubles time and disk.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::metadata::{self, Package, Target};
use crate::{dist, install, loom, shell, test, tidy};

/// Options of `cargo xtask ci`.
#[derive(Args)]
pub struct Options {
    /// Install nothing in the test step.
    #[arg(long)]
    no_install: bool,
    /// Go on after a failed step and report all failures at the end.
    #[arg(long)]
    keep_going: bool,
}

/// What became of a step.
enum Outcome {
    Passed,
    Skipped(String),
}

type Step = (&'static str, fn(&Options) -> Result<Outcome>);

const STEPS: [Step; 13] = [
    ("set-up", set_up),
    ("lock", lock),
    ("fmt", fmt),
    ("tidy", check_tidy),
    ("deny", deny),
    ("clippy", clippy),
    ("features", features),
    ("doc", doc),
    ("examples", examples),
    ("template", template),
    ("wheel", wheel),
    ("loom", loom),
    // Last, so that the test runner's own summary is among the closing lines.
    ("test", tests),
];

/// The exit code by which an example says that this machine lacks what it shows.
const EXAMPLE_SKIPS: i32 = 77;

/// Run every step and print the summary.
pub fn run(options: &Options) -> Result<()> {
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for (name, step) in STEPS {
        println!("\n== {name}");
        let start = Instant::now();
        let result = step(options);
        rows.push((name, start.elapsed(), note(&result)));
        if let Err(error) = result {
            println!("{name} failed: {error:#}");
            failed.push(name);
            if !options.keep_going {
                break;
            }
        }
    }
    summarise(&rows);
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

fn note(result: &Result<Outcome>) -> String {
    match result {
        Ok(Outcome::Passed) => "ok".to_owned(),
        Ok(Outcome::Skipped(reason)) => format!("skipped: {reason}"),
        Err(error) => format!("FAILED: {error}"),
    }
}

fn summarise(rows: &[(&str, Duration, String)]) {
    println!("\n== summary");
    for (name, took, note) in rows {
        println!("{name:<10} {:>7.1} s  {note}", took.as_secs_f64());
    }
    let total: Duration = rows.iter().map(|(_, took, _)| *took).sum();
    println!("{:<10} {:>7.1} s", "total", total.as_secs_f64());
}

fn cargo(args: &[&str]) -> Result<Outcome> {
    run_in_ci(&mut shell::cargo(args))
}

fn run_in_ci(command: &mut std::process::Command) -> Result<Outcome> {
    shell::run(command.env("CARGO_INCREMENTAL", "0"))?;
    Ok(Outcome::Passed)
}

/// What the tests would install, before the examples, which want it too.
fn set_up(options: &Options) -> Result<Outcome> {
    if options.no_install {
        return Ok(Outcome::Skipped("--no-install".to_owned()));
    }
    install::driver_packages();
    Ok(Outcome::Passed)
}

/// A lock file that lags behind the manifests would let each clone resolve versions anew.
fn lock(_: &Options) -> Result<Outcome> {
    let args = ["metadata", "--locked", "--quiet", "--format-version", "1"];
    shell::output(&mut shell::cargo(&args)).context("commit Cargo.lock")?;
    Ok(Outcome::Passed)
}

fn fmt(_: &Options) -> Result<Outcome> {
    cargo(&["fmt", "--all", "--check"])
}

fn clippy(_: &Options) -> Result<Outcome> {
    let scope = ["clippy", "--workspace", "--all-targets", "--all-features"];
    cargo(&[&scope[..], &["--", "-D", "warnings"]].concat())
}

fn check_tidy(_: &Options) -> Result<Outcome> {
    tidy::run()?;
    Ok(Outcome::Passed)
}

fn deny(_: &Options) -> Result<Outcome> {
    if !shell::on_path("cargo-deny") {
        return Ok(Outcome::Skipped("cargo-deny is not installed".to_owned()));
    }
    // Advisories need a database from the network, which a build must not depend on.
    cargo(&["deny", "--all-features", "check", "licenses", "bans", "sources"])
}

fn doc(_: &Options) -> Result<Outcome> {
    let mut command = shell::cargo(&["doc", "--workspace", "--no-deps", "--all-features"]);
    run_in_ci(command.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Orders of threads, tried by models.
fn loom(_: &Options) -> Result<Outcome> {
    loom::run()?;
    Ok(Outcome::Passed)
}

/// The Python package, made of the program as built for the tests, installed and run.
fn wheel(_: &Options) -> Result<Outcome> {
    Ok(dist::check()?.map_or(Outcome::Passed, Outcome::Skipped))
}

fn tests(options: &Options) -> Result<Outcome> {
    // The same function that `cargo xtask test` calls: the README's command is what CI runs.
    test::run(&test::Options { no_install: options.no_install, package: Vec::new() })?;
    Ok(Outcome::Passed)
}

/// Each library with no feature, with each of its features alone, and with its defaults.
/// (All features together are what clippy and the tests build.)
fn features(_: &Options) -> Result<Outcome> {
    for package in metadata::packages()? {
        for features in matrix(&package) {
            let mut args = vec!["check", "--quiet", "--package", &package.name];
            args.extend(features.iter().map(String::as_str));
            cargo(&args)?;
        }
    }
    Ok(Outcome::Passed)
}

fn matrix(package: &Package) -> Vec<Vec<String>> {
    let names = || package.features.keys().filter(|name| *name != "default");
    if names().next().is_none() {
        return Vec::new();
    }
    let none = || vec!["--no-default-features".to_owned()];
    let alone = names().map(|name| {
        let mut args = none();
        args.extend(["--features".to_owned(), name.clone()]);
        args
    });
    let mut rows = vec![none()];
    rows.extend(alone);
    if package.features.get("default").is_some_and(|on| !on.is_empty()) {
        rows.push(Vec::new());
    }
    rows
}

/// Run the examples that are numbered (others are programs to measure with). One that needs a
/// device that is not here exits with 77.
fn examples(_: &Options) -> Result<Outcome> {
    let mut skipped = Vec::new();
    let mut ran = 0_u32;
    for package in metadata::packages()? {
        for example in package.targets_of("example").filter(|example| is_numbered(example)) {
            if run_example(&package, example)? {
                ran += 1;
            } else {
                skipped.push(example.name.clone());
            }
        }
    }
    println!("{ran} examples ran");
    if skipped.is_empty() {
        return Ok(Outcome::Passed);
    }
    Ok(Outcome::Skipped(format!("no device for {}", skipped.join(", "))))
}

/// The backend outside of the workspace: it builds with the published interface only, and passes
/// the suite.
fn template(_: &Options) -> Result<Outcome> {
    let mut command = shell::cargo(&["test", "--quiet"]);
    command.current_dir(shell::root().join("examples/backend-template"));
    run_in_ci(command.env("CARGO_TARGET_DIR", shell::root().join("target/template")))
}

fn is_numbered(example: &Target) -> bool {
    example.name.starts_with(|c: char| c.is_ascii_digit())
}

/// True when it ran, false when it said that its device is missing.
fn run_example(package: &Package, example: &Target) -> Result<bool> {
    let names = ["run", "--quiet", "--package", &package.name, "--example", &example.name];
    let mut command = shell::cargo(&names);
    if !example.required_features.is_empty() {
        command.args(["--features", &example.required_features.join(",")]);
    }
    println!("$ {}", shell::show(&command));
    match command.env("CARGO_INCREMENTAL", "0").status()?.code() {
        Some(0) => Ok(true),
        Some(EXAMPLE_SKIPS) => Ok(false),
        code => bail!("example {} ended with {code:?}", example.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(features: &[(&str, &[&str])]) -> Package {
        let list = |on: &&[&str]| on.iter().map(|&name| name.to_owned()).collect();
        Package {
            name: "p".to_owned(),
            features: features.iter().map(|(name, on)| ((*name).to_owned(), list(on))).collect(),
            dependencies: Vec::new(),
            targets: Vec::new(),
        }
    }

    #[test]
    fn the_matrix_has_none_each_alone_and_the_defaults() {
        let rows = matrix(&package(&[("default", &["gui"]), ("gui", &[]), ("live", &[])]));
        let rows: Vec<String> = rows.iter().map(|row| row.join(" ")).collect();
        let none = "--no-default-features";
        let alone = |name| format!("{none} --features {name}");
        assert_eq!(rows, [none.to_owned(), alone("gui"), alone("live"), String::new()]);
    }

    #[test]
    fn a_package_without_features_needs_no_matrix() {
        assert!(matrix(&package(&[])).is_empty());
        assert!(matrix(&package(&[("default", &[])])).is_empty());
    }
}
