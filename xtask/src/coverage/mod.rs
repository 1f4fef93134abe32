//! `cargo xtask coverage`: which lines of the allocator (`core`) and of traces (`trace`) the tests
//! run. Their own tests, the whole-system tests that end within minutes and the program's command
//! tests are counted together; test code is not counted.

mod count;
mod tools;

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::shell;
use count::File;
use tools::Tools;

/// Options of `cargo xtask coverage`.
#[derive(Args)]
pub struct Options {
    /// Fail where less than this percentage of a crate's lines is run.
    #[arg(long, value_name = "PERCENT", default_value = "90")]
    at_least: f64,
    /// Print every file's figures and the lines that no test runs as JSON, on the last line.
    #[arg(long)]
    json: bool,
    /// Run nothing: count again what the last run left.
    #[arg(long)]
    no_run: bool,
    /// Install nothing; fail when a tool is missing.
    #[arg(long)]
    no_install: bool,
}

/// The crates whose lines are counted: their package and their folder.
const COUNTED: [(&str, &str); 2] = [("terrane-core", "core"), ("terrane-trace", "trace")];

/// Files below this percentage are listed.
const LOW: f64 = 60.0;

/// Whole-system tests. The others (every fault, every mutant, the soak, the programs) take many
/// minutes without optimisation and run the same code.
const SYSTEM_TESTS: [&str; 13] = [
    "conformance",
    "errors",
    "exit",
    "fork",
    "guard",
    "kept",
    "lies",
    "locks",
    "moving",
    "paged",
    "paging",
    "put_back",
    "scenarios",
];

/// The program's tests that need no window.
const COMMAND_TESTS: [&str; 6] = ["commands", "compact", "failures", "files", "parts", "top"];

/// Runs the tests, counts, prints, and fails below what is asked for.
pub fn run(options: &Options) -> Result<()> {
    let tools = Tools::find(!options.no_install)?;
    if !options.no_run {
        run_tests(&tools)?;
    }
    let output = shell::root().join("target/coverage.lcov");
    let mut command = tools.llvm_cov(&["report", "--lcov", "--output-path"]);
    command.arg(&output);
    for (package, _) in COUNTED {
        command.args(["--package", package]);
    }
    run_quietly(&mut command)?;
    let text = std::fs::read_to_string(&output)
        .with_context(|| format!("reading {}", output.display()))?;
    let folders = COUNTED.map(|(_, folder)| folder);
    let files = count::files(&text, &shell::root(), &folders)?;
    if options.json {
        println!("{}", as_json(&files));
    } else {
        print(&files);
    }
    judge(&files, options.at_least)
}

/// The instrumented build has a folder of its own, emptied of our crates first: objects of an
/// earlier state would be counted along.
fn run_tests(tools: &Tools) -> Result<()> {
    shell::run(&mut tools.llvm_cov(&["clean", "--workspace"]))?;
    for (package, _) in COUNTED {
        shell::run(&mut tests_of(tools, package, &["--all-features"], &[]))?;
    }
    shell::run(&mut tests_of(tools, "terrane-tests", &[], &SYSTEM_TESTS))?;
    // Without the window: a graphics stack that is built with counters has nothing to tell here.
    let features = ["--no-default-features"];
    shell::run(&mut tests_of(tools, "terrane-inspector", &features, &COMMAND_TESTS))
}

fn tests_of(tools: &Tools, package: &str, features: &[&str], targets: &[&str]) -> Command {
    let mut command = tools.llvm_cov(&["--no-report", "--package", package]);
    command.args(features);
    for target in targets {
        command.args(["--test", target]);
    }
    command
}

fn run_quietly(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| shell::show(command))?;
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        bail!("`{}` ended with {}", shell::show(command), output.status);
    }
    Ok(())
}

/// Lines that are run and lines in all, of each crate.
fn totals(files: &[File]) -> BTreeMap<&str, (usize, usize)> {
    let mut totals = BTreeMap::new();
    for file in files {
        let (run, all) = totals.entry(file.folder()).or_default();
        *run += file.run();
        *all += file.lines.len();
    }
    totals
}

fn percent(run: usize, all: usize) -> f64 {
    100.0 * run as f64 / all.max(1) as f64
}

fn print(files: &[File]) {
    for (folder, (run, all)) in totals(files) {
        println!("{folder:<6} {:>5.1} %  {run} of {all} lines", percent(run, all));
    }
    let low: Vec<&File> =
        files.iter().filter(|file| percent(file.run(), file.lines.len()) < LOW).collect();
    println!("{} files below {LOW} %", low.len());
    for file in low {
        let (run, all) = (file.run(), file.lines.len());
        println!("  {:>5.1} %  {run:>3} of {all:>3}  {}", percent(run, all), file.path);
    }
}

fn as_json(files: &[File]) -> Value {
    let figures =
        |run: usize, all: usize| json!({ "run": run, "lines": all, "percent": percent(run, all) });
    let crates: BTreeMap<_, _> =
        totals(files).into_iter().map(|(name, (run, all))| (name, figures(run, all))).collect();
    let rows = files.iter().map(|file| {
        let mut row = figures(file.run(), file.lines.len());
        row["path"] = json!(file.path);
        row["missing"] = json!(file.missing());
        row
    });
    json!({ "crates": crates, "files": rows.collect::<Vec<_>>() })
}

fn judge(files: &[File], at_least: f64) -> Result<()> {
    let totals = totals(files);
    for (_, folder) in COUNTED {
        let Some((run, all)) = totals.get(folder) else { bail!("no line of {folder} was counted") };
        let reached = percent(*run, *all);
        if reached < at_least {
            bail!("{folder}: {reached:.1} % of lines are run, wanted are {at_least} %");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, counts: &[u64]) -> File {
        let lines = (1..).zip(counts.iter().copied()).collect();
        File { path: path.to_owned(), lines }
    }

    #[test]
    fn a_crate_below_the_limit_or_without_a_line_fails() {
        let core = || file("core/src/a.rs", &[1; 10]);
        let trace = |run: &[u64]| file("trace/src/b.rs", run);
        assert!(judge(&[core(), trace(&[1; 10])], 90.0).is_ok());
        assert!(judge(&[core(), trace(&[1, 1, 1, 1, 1, 1, 1, 1, 1, 0])], 90.0).is_ok());
        let low = judge(&[core(), trace(&[1, 1, 0])], 90.0).unwrap_err();
        assert_eq!(low.to_string(), "trace: 66.7 % of lines are run, wanted are 90 %");
        assert!(judge(&[core()], 90.0).is_err(), "a crate that was not counted is not run at all");
    }

    #[test]
    fn the_tests_that_are_run_are_there() {
        let tests = SYSTEM_TESTS.iter().map(|name| format!("tests/tests/{name}"));
        let commands = COMMAND_TESTS.iter().map(|name| format!("inspector/tests/{name}"));
        for path in tests.chain(commands) {
            let path = shell::root().join(path);
            let there = path.with_extension("rs").is_file() || path.join("main.rs").is_file();
            assert!(there, "{}", path.display());
        }
    }
}
