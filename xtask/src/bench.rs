//! `cargo xtask bench`: run the criterion benches and compare our figures with those of peers.
//!
//! A bench takes part by naming its function `terrane` (or `terrane-…` for a variant) and giving
//! peers their own names in the same group. What is compared is each group and input apart.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

use crate::{metadata, shell};

/// Options of `cargo xtask bench`.
#[derive(Args)]
pub struct Options {
    /// Write the table into docs/benchmarks.md, with this commit and machine.
    #[arg(long)]
    record: bool,
    /// Run only benches of these packages (default: all).
    #[arg(long, short)]
    package: Vec<String>,
    /// Passed on to criterion as a filter.
    filter: Option<String>,
}

const DOC: &str = "docs/benchmarks.md";
const BEGIN: &str = "<!-- bench table: written by cargo xtask bench --record -->";
const END: &str = "<!-- end of bench table -->";
const OURS: &str = "terrane";

/// Run the benches and print the table.
pub fn run(options: &Options) -> Result<()> {
    let results = shell::root().join("target/criterion");
    // Figures of an earlier run must not be mistaken for this one's.
    if results.exists() {
        fs::remove_dir_all(&results).context("removing earlier results")?;
    }
    let benches = run_benches(options)?;
    if benches == 0 {
        bail!("no package that was asked for has a bench target");
    }
    let mut figures = Vec::new();
    collect(&results, &mut figures)?;
    let table = table(&figures);
    println!("\n{table}");
    if options.record {
        record(&table)?;
    }
    Ok(())
}

fn run_benches(options: &Options) -> Result<usize> {
    let mut count = 0;
    for package in metadata::packages()? {
        if !options.package.is_empty() && !options.package.contains(&package.name) {
            continue;
        }
        for bench in package.targets_of("bench") {
            let names = ["bench", "--package", &package.name, "--bench", &bench.name];
            let mut command = shell::cargo(&names);
            if !bench.required_features.is_empty() {
                command.args(["--features", &bench.required_features.join(",")]);
            }
            command.args(["--", "--noplot"]).args(&options.filter);
            shell::run(&mut command)?;
            count += 1;
        }
    }
    Ok(count)
}

/// One measured function.
#[derive(Clone, Debug)]
struct Figure {
    group: String,
    function: String,
    input: String,
    median_ns: f64,
    /// Operations per iteration, where the bench states a throughput in elements.
    elements: Option<f64>,
}

impl Figure {
    /// Nanoseconds per operation.
    fn per_op_ns(&self) -> f64 {
        self.median_ns / self.elements.unwrap_or(1.0)
    }
}

/// Criterion leaves `GROUP/FUNCTION[/INPUT]/new/{benchmark,estimates}.json`.
fn collect(dir: &Path, figures: &mut Vec<Figure>) -> Result<()> {
    let Ok(entries) = fs::read_dir(dir) else { return Ok(()) };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths.into_iter().filter(|path| path.is_dir()) {
        if path.ends_with("new") {
            figures.extend(figure(&path)?);
        } else {
            collect(&path, figures)?;
        }
    }
    Ok(())
}

fn figure(dir: &Path) -> Result<Option<Figure>> {
    let read = |name: &str| -> Result<Value> {
        let path = dir.join(name);
        let text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{}", path.display()))
    };
    let (id, estimates) = (read("benchmark.json")?, read("estimates.json")?);
    let text = |key: &str| id[key].as_str().unwrap_or_default().to_owned();
    let median = estimates["median"]["point_estimate"].as_f64();
    Ok(median.map(|median_ns| Figure {
        group: text("group_id"),
        function: text("function_id"),
        input: text("value_str"),
        median_ns,
        elements: id["throughput"]["Elements"].as_f64(),
    }))
}

/// A Markdown table: one row per function, peers with their time over ours.
fn table(figures: &[Figure]) -> String {
    let mut groups: BTreeMap<(&str, &str), Vec<&Figure>> = BTreeMap::new();
    for figure in figures {
        groups.entry((&figure.group, &figure.input)).or_default().push(figure);
    }
    let mut text = String::from("| bench | input | who | ns per op | times ours |\n");
    text.push_str("|---|---|---|---:|---:|\n");
    for ((group, input), rows) in groups {
        let ours = rows.iter().find(|row| row.function == OURS).map(|row| row.per_op_ns());
        for row in rows {
            let ratio =
                ours.map_or_else(String::new, |ours| format!("{:.2}", row.per_op_ns() / ours));
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "| {group} | {input} | {} | {:.1} | {ratio} |",
                row.function,
                row.per_op_ns()
            );
        }
    }
    text
}

/// Put the table between the two marks of the document.
fn record(table: &str) -> Result<()> {
    let path = shell::root().join(DOC);
    let document = fs::read_to_string(&path).context(DOC)?;
    let text = replaced(&document, &format!("{}\n\n{table}", provenance()?))?;
    fs::write(&path, text).context(DOC)?;
    println!("written to {DOC}");
    Ok(())
}

fn replaced(document: &str, section: &str) -> Result<String> {
    let (before, rest) = document.split_once(BEGIN).with_context(|| format!("no `{BEGIN}`"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("no `{END}`"))?;
    Ok(format!("{before}{BEGIN}\n\n{section}\n{END}{after}"))
}

/// The commit and the machine that the figures belong to.
fn provenance() -> Result<String> {
    let commit = shell::output(&mut shell::command("git", &["rev-parse", "--short", "HEAD"]))?;
    let changed = shell::output(&mut shell::command("git", &["status", "--porcelain"]))?;
    let changed = if changed.trim().is_empty() { "" } else { " with uncommitted changes" };
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": ")).map_or("unknown CPU", |(_, m)| m);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Ok(format!("Commit {}{changed}, {model}, {cores} cores.", commit.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(function: &str, median_ns: f64, elements: Option<f64>) -> Figure {
        let (group, input) = ("pair".to_owned(), "4 KiB".to_owned());
        Figure { group, function: function.to_owned(), input, median_ns, elements }
    }

    #[test]
    fn peers_are_shown_as_multiples_of_our_time_per_operation() {
        let table = table(&[figure("terrane", 4000.0, Some(100.0)), figure("vma", 100.0, None)]);
        assert!(table.contains("| pair | 4 KiB | terrane | 40.0 | 1.00 |"), "{table}");
        assert!(table.contains("| pair | 4 KiB | vma | 100.0 | 2.50 |"), "{table}");
    }

    #[test]
    fn criterion_results_are_read_from_disk() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("pair/terrane/new");
        fs::create_dir_all(&new).unwrap();
        let id = r#"{"group_id":"pair","function_id":"terrane","value_str":null,
                     "throughput":{"Elements":2}}"#;
        fs::write(new.join("benchmark.json"), id).unwrap();
        fs::write(new.join("estimates.json"), r#"{"median":{"point_estimate":90.0}}"#).unwrap();
        let mut figures = Vec::new();
        collect(dir.path(), &mut figures).unwrap();
        assert_eq!(figures.len(), 1);
        assert!((figures[0].per_op_ns() - 45.0).abs() < 1e-9);
    }

    #[test]
    fn a_recorded_table_replaces_the_one_before_it() {
        let document = format!("# B\n{BEGIN}\nold\n{END}\nrest\n");
        let text = replaced(&document, "new").unwrap();
        assert_eq!(text, format!("# B\n{BEGIN}\n\nnew\n{END}\nrest\n"));
        assert!(replaced("# B\n", "new").is_err());
    }
}
