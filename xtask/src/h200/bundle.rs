//! The bundle: stripped release programs, the recorded workloads they replay, a script that runs
//! them, and a manifest that says what they were built from.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

use crate::shell;

/// Programs by package: the kind of target, and its name.
const PROGRAMS: &[(&str, &str, &str)] = &[
    ("terrane-tests", "--bin", "conformance"),
    ("terrane-inspector", "--bin", "terrane"),
    ("terrane-cuda", "--example", "cuda_selftest"),
    ("terrane-vulkan", "--example", "spike"),
];
/// All that is on by default but the window, which is of no use on a machine reached by a shell.
const FEATURES: &str = "terrane-tests/program,terrane-cuda/nvml,terrane-inspector/cuda,\
                        terrane-inspector/vulkan";
/// Tests of the Vulkan backend that make sense on a GPU.
const VULKAN_TESTS: &[&str] =
    &["allocator", "basics", "compute", "failures", "host_program", "paging"];
const TRACES: &[&str] = &["multistream", "gpt2_varlen", "lora_recompute_offload"];

/// Builds the bundle into a folder, which is made anew.
pub fn build(folder: &Path) -> Result<()> {
    let commit = commit()?;
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    fs::create_dir_all(folder.join("traces"))?;
    let release = shell::root().join("target/release");
    let mut programs: Vec<(String, PathBuf)> = Vec::new();
    // One build of them all, so that what they share is built once.
    let mut cargo = shell::cargo(&["build", "--release", "--no-default-features"]);
    cargo.args(["--features", FEATURES]);
    for (package, kind, name) in PROGRAMS {
        cargo.args(["--package", package, kind, name]);
    }
    shell::run(&mut cargo)?;
    for (_, kind, name) in PROGRAMS {
        let place = if *kind == "--example" { release.join("examples") } else { release.clone() };
        programs.push(((*name).to_owned(), place.join(name)));
    }
    for test in VULKAN_TESTS {
        programs.push((format!("vulkan-tests-{test}"), test_program(test)?));
    }
    let mut hashes = Map::new();
    for (name, path) in programs {
        let to = folder.join(&name);
        fs::copy(&path, &to).with_context(|| format!("copying {}", path.display()))?;
        shell::run(&mut shell::command("strip", &[&to.to_string_lossy()]))?;
        hashes.insert(name, Value::String(sha256(&to)?));
    }
    for trace in TRACES {
        let name = format!("{trace}.native.csv.gz");
        let from = shell::root().join("tests/data/traces").join(&name);
        fs::copy(&from, folder.join("traces").join(&name))
            .with_context(|| format!("copying {}", from.display()))?;
    }
    let clauses = clauses(&folder.join("conformance"))?;
    let manifest = json!({ "commit": commit, "sha256": hashes, "clauses": clauses });
    fs::write(folder.join("manifest.json"), format!("{manifest:#}\n"))?;
    script(&folder.join("run.sh"))
}

fn script(path: &Path) -> Result<()> {
    fs::write(path, include_str!("run.sh"))?;
    let mut mode = fs::metadata(path)?.permissions();
    #[cfg(unix)]
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
    #[cfg(not(unix))]
    mode.set_readonly(true);
    Ok(fs::set_permissions(path, mode)?)
}

/// The commit that is built. A record names it, so nothing may be uncommitted.
fn commit() -> Result<String> {
    let status = ["status", "--porcelain", "--untracked-files=no"];
    if !shell::output(&mut shell::command("git", &status))?.trim().is_empty() {
        bail!("commit first: the records name the commit that was run");
    }
    let head = shell::output(&mut shell::command("git", &["rev-parse", "HEAD"]))?;
    Ok(head.trim().to_owned())
}

/// The program that cargo makes of a test of the Vulkan backend.
fn test_program(test: &str) -> Result<PathBuf> {
    // Nothing is measured in them, so the profile that is built anyway does.
    let args = ["test", "--no-run", "--package", "terrane-vulkan", "--test", test];
    let mut command = shell::cargo(&args);
    let text = shell::output(command.args(["--message-format", "json"]))?;
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let programs = messages.filter(|message| message["target"]["name"] == *test);
    let mut program =
        programs.filter_map(|message| message["executable"].as_str().map(PathBuf::from));
    program.next_back().with_context(|| format!("cargo made no program of the test {test}"))
}

fn sha256(path: &Path) -> Result<String> {
    let path = path.to_string_lossy();
    let line = shell::output(&mut shell::command("sha256sum", &[&path]))?;
    Ok(line.split_whitespace().next().unwrap_or_default().to_owned())
}

/// The names of the clauses that the program tries.
fn clauses(conformance: &Path) -> Result<Vec<String>> {
    let text = shell::output(&mut shell::command(conformance, &["--list"]))?;
    let names = text.lines().filter_map(|line| line.split_whitespace().next());
    Ok(names.filter(|name| name.contains('.')).map(str::to_owned).collect())
}
