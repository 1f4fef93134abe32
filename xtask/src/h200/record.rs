//! Records of a run: what came out of each step, with the commit, the program's hash and the
//! device, as JSON for docs/conformance.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// One step of `run.sh`, as it was left in the folder.
struct Step {
    name: String,
    exit: i64,
    seconds: f64,
    command: String,
    /// Standard output: JSON where the program writes JSON, else its lines.
    output: Value,
    log: Vec<String>,
}

/// Which steps go into which record: the record's name and the beginning of the steps' names.
const RECORDS: &[(&str, &str)] = &[
    ("h200-devices", "devices"),
    ("h200-conformance-cuda", "conformance-cuda"),
    ("h200-conformance-vulkan", "conformance-vulkan"),
    ("h200-replays", "replay-"),
    ("h200-cuda-selftest", "selftest"),
    ("h200-vulkan-spike", "spike"),
    ("h200-vulkan-tests", "vulkan-tests-"),
    ("h200-sanitizer", "sanitizer-"),
];

/// Writes a record for each group of steps that was run; an error after that when a step failed.
pub fn write(out: &Path, into: &Path) -> Result<()> {
    let manifest: Value = serde_json::from_str(&text(out, "manifest.json")?)?;
    let about = About::of(out, &manifest)?;
    let steps = steps(out)?;
    let mut failed = Vec::new();
    for (name, begin) in RECORDS {
        let chosen: Vec<&Step> = steps.iter().filter(|step| step.name.starts_with(begin)).collect();
        if chosen.is_empty() {
            continue;
        }
        failed.extend(chosen.iter().filter(|step| step.exit != 0).map(|step| step.name.clone()));
        let path = into.join(format!("{name}.json"));
        let record = about.record(&chosen);
        fs::write(&path, format!("{record:#}\n"))
            .with_context(|| format!("writing {}", path.display()))?;
        println!("{}: {}", path.display(), summary(&record));
    }
    if failed.is_empty() { Ok(()) } else { bail!("these steps failed: {}", failed.join(", ")) }
}

fn text(out: &Path, name: &str) -> Result<String> {
    let path = out.join(name);
    fs::read_to_string(&path).with_context(|| format!("{}", path.display()))
}

fn steps(out: &Path) -> Result<Vec<Step>> {
    let mut names: Vec<String> = fs::read_dir(out)
        .with_context(|| format!("{}", out.display()))?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".meta").map(str::to_owned))
        .collect();
    names.sort();
    names.into_iter().map(|name| step(out, name)).collect()
}

fn step(out: &Path, name: String) -> Result<Step> {
    let meta = text(out, &format!("{name}.meta"))?;
    let mut lines = meta.lines();
    let mut next = || lines.next().unwrap_or_default();
    let (exit, seconds, command) = (next().parse()?, next().parse()?, next().to_owned());
    let printed = text(out, &format!("{name}.out"))?;
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let output = serde_json::from_str(&printed).unwrap_or_else(|_| json!(lines(&printed)));
    let log = lines(&text(out, &format!("{name}.log"))?);
    Ok(Step { name, exit, seconds, command, output, log })
}

/// What all records of a run have in common.
struct About {
    commit: Value,
    hashes: Value,
    clauses: Value,
    device: String,
    driver: String,
    host: String,
    date: String,
}

impl About {
    fn of(out: &Path, manifest: &Value) -> Result<Self> {
        let gpu = text(out, "gpu.csv")?;
        let row = gpu.lines().nth(1).context("nvidia-smi named no GPU")?;
        let mut fields = row.split(',').map(str::trim);
        let (device, driver) = (fields.next(), fields.next());
        let system = text(out, "system.txt")?;
        let mut system = system.lines();
        let (kernel, cores) = (system.next(), system.next());
        Ok(Self {
            commit: manifest["commit"].clone(),
            hashes: manifest["sha256"].clone(),
            clauses: manifest["clauses"].clone(),
            device: device.unwrap_or_default().to_owned(),
            driver: format!("NVIDIA {}", driver.unwrap_or_default()),
            host: format!("{} cores, {}", cores.unwrap_or("?"), kernel.unwrap_or("?")),
            date: text(out, "date.txt")?.trim().to_owned(),
        })
    }

    fn record(&self, steps: &[&Step]) -> Value {
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        for step in steps {
            let (p, f, s) = counts(step);
            passed += p;
            failed += f;
            skipped += s;
        }
        let runs: Vec<Value> = steps.iter().map(|step| self.run(step)).collect();
        json!({
            "commit": self.commit,
            "date": self.date,
            "device": self.device,
            "driver": self.driver,
            "host": self.host,
            "passed": passed,
            "failed": failed,
            "skipped": skipped,
            "clause_list": self.clauses,
            "runs": runs,
        })
    }

    fn run(&self, step: &Step) -> Value {
        let mut words = step.command.split_whitespace();
        let program = words.find(|word| self.hashes[*word].is_string()).unwrap_or_default();
        json!({
            "step": step.name,
            "command": step.command,
            "program": program,
            "sha256": self.hashes[program],
            "exit": step.exit,
            "seconds": step.seconds,
            "output": step.output,
            "log": step.log,
        })
    }
}

/// What passed, failed and was skipped in a step: by its own count where it has one.
fn counts(step: &Step) -> (u64, u64, u64) {
    let number = |key: &str| step.output[key].as_u64();
    if let (Some(passed), Some(failed)) = (number("passed"), number("failed")) {
        return (passed, failed, number("skipped").unwrap_or(0));
    }
    let lines = step.output.as_array().map(Vec::as_slice).unwrap_or_default();
    let tests = |word: &str| {
        let ends = |line: &&Value| line.as_str().is_some_and(|l| is_test(l, word));
        lines.iter().filter(ends).count() as u64
    };
    let (ok, bad, ignored) = (tests("ok"), tests("FAILED"), tests("ignored"));
    if ok + bad > 0 {
        return (ok, bad, ignored);
    }
    if step.exit == 0 { (1, 0, 0) } else { (0, 1, 0) }
}

/// Whether the line is libtest's verdict on one test. What the test prints may stand between.
fn is_test(line: &str, verdict: &str) -> bool {
    line == verdict || (line.starts_with("test ") && line.split(" ... ").nth(1) == Some(verdict))
}

fn summary(record: &Value) -> String {
    let of = |key: &str| record[key].as_u64().unwrap_or(0);
    format!("{} passed, {} failed, {} skipped", of("passed"), of("failed"), of("skipped"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &Path, name: &str, text: &str) {
        fs::write(folder.join(name), text).unwrap();
    }

    fn planted(conformance: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path();
        let manifest = r#"{"commit":"c0ffee","sha256":{"conformance":"5a","terrane":"5b"},
            "clauses":["a.b"]}"#;
        file(out, "manifest.json", manifest);
        file(out, "gpu.csv", "name, driver_version\nNVIDIA H200, 580.1, 1 MiB\n");
        file(out, "system.txt", "Linux 6.18\n16\n");
        file(out, "date.txt", "2026-11-30\n");
        file(out, "conformance-cuda.meta", "0\n2.500\nconformance --device cuda --json\n");
        file(out, "conformance-cuda.out", conformance);
        file(out, "conformance-cuda.log", "");
        file(out, "vulkan-tests-basics.meta", "0\n1.0\nenv A=1 vulkan-tests-basics\n");
        file(out, "vulkan-tests-basics.out", "test one ... ok\ntest two ... words\nok\n");
        file(out, "vulkan-tests-basics.log", "a word\n");
        folder
    }

    #[test]
    fn a_run_becomes_records_with_commit_hash_device_clauses_and_log() {
        let folder = planted(r#"{"passed":160,"failed":0,"skipped":3,"clauses":[]}"#);
        let into = tempfile::tempdir().unwrap();
        write(folder.path(), into.path()).unwrap();
        let read = |name: &str| -> Value {
            serde_json::from_str(&text(into.path(), name).unwrap()).unwrap()
        };
        let record = read("h200-conformance-cuda.json");
        assert_eq!((&record["commit"], &record["passed"]), (&json!("c0ffee"), &json!(160)));
        assert_eq!(record["device"], "NVIDIA H200");
        assert_eq!(record["driver"], "NVIDIA 580.1");
        assert_eq!(record["clause_list"], json!(["a.b"]));
        assert_eq!(record["runs"][0]["sha256"], "5a");
        let tests = read("h200-vulkan-tests.json");
        assert_eq!((&tests["passed"], &tests["failed"]), (&json!(2), &json!(0)));
        assert_eq!(tests["runs"][0]["log"], json!(["a word"]));
        assert!(!into.path().join("h200-replays.json").exists(), "not run, not recorded");
    }

    #[test]
    fn a_step_that_failed_is_recorded_and_reported() {
        let folder = planted("not JSON\n");
        file(folder.path(), "conformance-cuda.meta", "1\n2.5\nconformance --device cuda\n");
        let into = tempfile::tempdir().unwrap();
        let error = write(folder.path(), into.path()).unwrap_err();
        assert!(error.to_string().contains("conformance-cuda"), "{error}");
        let text = text(into.path(), "h200-conformance-cuda.json").unwrap();
        let record: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(record["failed"], 1);
    }
}
