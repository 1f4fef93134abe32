//! What the program `conformance` does.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use terrane::core::device::DeviceInfo;
use terrane::core::device::sim::Sim;
use terrane::vulkan::VulkanDevice;
use terrane::{Choice, Opened};

use crate::expected::{self, Expected};
use crate::outcome::{Count, Report, Row, judge};
use crate::probe::Flaw;
use crate::{CallLog, Clause, Ending, Plan, Rig, Source, clauses, gate, native, run};

/// Runs Terrane's conformance suite on a device.
///
/// Exit code 0: all clauses hold, or fail as expected. 1: a clause failed, or passed although it
/// is expected to fail. 2: the device can not be opened, no clause was chosen, or a file can not be
/// read or written.
#[derive(Debug, Parser)]
#[command(name = "conformance", version)]
pub struct Options {
    /// The device: host, sim[:cuda|vulkan|slabs], vulkan[:NAME], cuda[:NAME or number], best.
    #[arg(long, default_value = "best", env = "TERRANE_DEVICE")]
    device: Choice,
    /// Print one JSON object instead of lines.
    #[arg(long)]
    json: bool,
    /// Only clauses whose id contains this text; may be given several times.
    #[arg(long, value_name = "ID")]
    filter: Vec<String>,
    /// The seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write JUnit's XML to this file.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// More known failures: lines of device,driver,clause,reason.
    #[arg(long, value_name = "FILE")]
    expected: Option<PathBuf>,
    /// Break the device or the allocator in one way, to see what the suite says of it.
    #[arg(long, value_name = "NAME", value_parser = flaw)]
    flaw: Option<Flaw>,
    /// List the clauses and run nothing.
    #[arg(long)]
    list: bool,
    /// The commit that the suite was built from, for the record.
    #[arg(long, env = "TERRANE_COMMIT")]
    commit: Option<String>,
}

/// Runs what the options say.
pub fn main(options: &Options) -> ExitCode {
    let chosen: Vec<&'static Clause> = clauses::all()
        .filter(|clause| {
            options.filter.is_empty() || options.filter.iter().any(|part| clause.id.contains(part))
        })
        .collect();
    if chosen.is_empty() {
        eprintln!("no clause's id contains {:?}: see --list", options.filter);
        return ExitCode::from(2);
    }
    if options.list {
        list(&chosen);
        return ExitCode::SUCCESS;
    }
    match source(&options.device) {
        Ok(source) => {
            let flaw = options.flaw.unwrap_or_default();
            let plan = Plan { seed: options.seed, flaw, ..Plan::new(source) };
            try_all(&chosen, &plan, options).unwrap_or_else(|why| {
                eprintln!("{why}");
                ExitCode::from(2)
            })
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

fn flaw(name: &str) -> Result<Flaw, String> {
    let found = Flaw::ALL.iter().copied().find(|flaw| format!("{flaw:?}") == name);
    found.ok_or_else(|| format!("no flaw is called {name}"))
}

fn list(chosen: &[&'static Clause]) {
    for clause in chosen {
        println!("{:<28} {} [{}]", clause.id, clause.sentence, clause.reference);
    }
    println!("{} clauses", chosen.len());
}

/// Where devices of a choice come from. Models and the CPU are opened anew for every clause.
fn source(choice: &Choice) -> Result<Source, String> {
    use terrane::Preset::{Cuda, Slabs, Vulkan};
    match choice {
        Choice::Host => Ok(Source::Host),
        Choice::Sim(Cuda) => Ok(Source::Model(Sim::cuda)),
        Choice::Sim(Vulkan) => Ok(Source::Model(Sim::vulkan)),
        Choice::Sim(Slabs) => Ok(Source::Model(Sim::slabs)),
        Choice::Best | Choice::Vulkan(_) | Choice::Cuda(_) => {
            let opened = terrane::open(choice).map_err(|error| error.to_string())?;
            if opened.choice == Choice::Host {
                return Ok(Source::Host);
            }
            Ok(shared(&opened))
        }
    }
}

/// One device for all clauses, with the way to keep it busy that it has.
pub fn shared(opened: &Opened) -> Source {
    match (&opened.vulkan, &opened.cuda) {
        (Some(device), _) => shared_vulkan(device),
        (None, Some(device)) => {
            let program = native::cuda::Program::new(Arc::clone(device));
            Source::kept(opened.device.clone(), Arc::new(program))
        }
        (None, None) => Source::shared(opened.device.clone()),
    }
}

/// The same for a Vulkan device, however it was opened.
pub fn shared_vulkan(device: &VulkanDevice) -> Source {
    let shared = Arc::new(device.clone());
    Source::kept(shared, gate::keeper(device))
}

fn try_all(chosen: &[&'static Clause], plan: &Plan, options: &Options) -> Result<ExitCode, String> {
    let expected = expected(options)?;
    let rig = Rig::open(plan).map_err(|stop| format!("the device does not open: {stop:?}"))?;
    let info = rig.device().info().clone();
    drop(rig);
    let rows = chosen.iter().map(|clause| try_one(clause, &info, plan, options, &expected));
    let commit = options.commit.as_deref();
    let report = Report { info: &info, commit, seed: options.seed, rows: rows.collect() };
    if let Some(path) = &options.junit {
        let written = std::fs::write(path, report.junit());
        written.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let failed = report.of(Count::Failed);
    if options.json {
        println!("{:#}", report.json());
    } else {
        println!(
            "{} on {}: {} passed, {failed} failed, {} expected failures, {} skipped",
            info.name,
            info.driver,
            report.of(Count::Passed),
            report.of(Count::ExpectedFailure),
            report.of(Count::Skipped)
        );
    }
    Ok(if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn expected(options: &Options) -> Result<Vec<Expected>, String> {
    let mut rows = expected::ours()?;
    if let Some(path) = &options.expected {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        rows.extend(expected::parse(&text)?);
    }
    Ok(rows)
}

/// Runs one clause, and where it fails once more to see its calls.
fn try_one(
    clause: &'static Clause,
    info: &DeviceInfo,
    plan: &Plan,
    options: &Options,
    expected: &[Expected],
) -> Row {
    let start = Instant::now();
    let verdict = run(clause, plan);
    let seconds = start.elapsed().as_secs_f64();
    let (count, reason) = judge(info, &verdict, expected);
    let mut calls = Vec::new();
    let again = again(options, clause);
    if !options.json {
        let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        println!("{:<16} {}{because}", count.name(), clause.id);
    }
    if count == Count::Failed {
        let log = CallLog::new();
        let logged = Plan { log: Some(log.clone()), ..plan.clone() };
        if verdict.ending != Ending::Passed {
            run(clause, &logged);
        }
        calls = log.lines();
        eprintln!("    {} ({:?} to blame: {})", clause.sentence, clause.blames, clause.reference);
        eprintln!("    again: {again}");
        calls.iter().for_each(|line| eprintln!("      {line}"));
    }
    Row { clause, count, reason, again, calls, seconds }
}

/// The line that runs one clause again.
fn again(options: &Options, clause: &Clause) -> String {
    format!(
        "cargo run -p terrane-tests --bin conformance -- --device {} --filter {} --seed {}",
        options.device, clause.id, options.seed
    )
}
