//! `cargo xtask test`: install what is missing, then run every test there is.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{install, metadata, shell};

/// Options of `cargo xtask test`.
#[derive(Args, Default)]
pub struct Options {
    /// Install nothing; tests that need a driver report themselves skipped if there is none.
    #[arg(long)]
    pub no_install: bool,
    /// Test only these packages (default: the whole workspace).
    #[arg(long, short)]
    pub package: Vec<String>,
}

/// Install, then test.
pub fn run(options: &Options) -> Result<()> {
    if options.no_install {
        println!("--no-install: using what is on this machine.");
    } else {
        install::driver_packages();
    }
    let driver = install::have_driver_packages();
    let result = run_tests(&options.package, driver);
    if !driver {
        println!("{NO_DRIVER}");
    }
    result
}

/// Set where the packages are installed: a test that finds no driver then fails instead of
/// reporting itself skipped.
const REQUIRE: &str = "TERRANE_REQUIRE_VULKAN";
const NO_DRIVER: &str = "Not all packages for Vulkan tests are installed: tests that found no driver skipped themselves.";

fn run_tests(packages: &[String], driver: bool) -> Result<()> {
    let cargo = |args: &[&str]| {
        let mut command = shell::cargo(args);
        if driver {
            command.env(REQUIRE, "1");
        }
        command
    };
    let scope = scope(packages);
    if !shell::on_path("cargo-nextest") {
        println!("cargo-nextest is not installed: using cargo test.");
        return run_and_tally(cargo(&["test", "--no-fail-fast"]).args(&scope));
    }
    // Doc tests first (nextest cannot run them), so that the last lines tell of the main run.
    if let Some(documented) = with_libraries(packages)? {
        shell::run(cargo(&["test", "--quiet", "--doc"]).args(&documented))?;
    }
    let nextest = ["nextest", "run", "--no-fail-fast", "--no-tests", "fail"];
    shell::run(cargo(&nextest).args(&scope))
}

fn scope(packages: &[String]) -> Vec<String> {
    let mut scope = vec!["--all-features".to_owned()];
    if packages.is_empty() {
        scope.push("--workspace".to_owned());
    }
    for package in packages {
        scope.extend(["--package".to_owned(), package.clone()]);
    }
    scope
}

/// The scope for doc tests: only libraries have them, and cargo refuses to look elsewhere.
fn with_libraries(asked: &[String]) -> Result<Option<Vec<String>>> {
    if asked.is_empty() {
        return Ok(Some(scope(asked)));
    }
    let packages = metadata::packages()?;
    let libraries = packages.into_iter().filter(|package| package.targets_of("lib").count() > 0);
    let libraries: Vec<String> =
        libraries.map(|package| package.name).filter(|name| asked.contains(name)).collect();
    Ok((!libraries.is_empty()).then(|| scope(&libraries)))
}

/// `cargo test` prints one result per binary; add them up, so that one closing line tells all.
fn run_and_tally(command: &mut Command) -> Result<()> {
    println!("$ {}", shell::show(command));
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start cargo test")?;
    let mut tally = Tally::default();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line.context("reading the output of cargo test")?;
            tally.add(&line);
            println!("{line}");
        }
    }
    let status = child.wait().context("waiting for cargo test")?;
    println!("{} passed, {} failed, {} skipped", tally.passed, tally.failed, tally.ignored);
    if !status.success() {
        bail!("cargo test ended with {status}");
    }
    if tally.passed == 0 {
        bail!("no test ran");
    }
    Ok(())
}

#[derive(Default, Debug, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Tally {
    /// Add the counts of a line like `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn add(&mut self, line: &str) {
        let Some(counts) = line.strip_prefix("test result: ") else { return };
        let counts = counts.split_once(". ").map_or(counts, |(_, counts)| counts);
        for count in counts.split("; ") {
            let Some((number, what)) = count.split_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_results_of_all_test_binaries_are_added_up() {
        let mut tally = Tally::default();
        tally.add("test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out");
        tally.add("test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured");
        tally.add("running 9 tests");
        assert_eq!(tally, Tally { passed: 7, failed: 2, ignored: 1 });
    }
}
