//! What the program `conformance` does.

use std::process::ExitCode;

use clap::Parser;
use serde_json::{Value, json};
use terrane::core::device::DeviceInfo;
use terrane::core::device::sim::Sim;
use terrane::{Choice, Opened};

use crate::expected::expected;
use crate::gate;
use crate::{Clause, Ending, Plan, Rig, Source, Verdict, clauses, run};

/// Runs Terrane's conformance suite on a device.
///
/// Exit code 0: all clauses hold, or fail as expected. 1: a clause failed, or passed although it
/// is expected to fail. 2: the device can not be opened, or no clause was chosen.
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
    /// List the clauses and run nothing.
    #[arg(long)]
    list: bool,
    /// The commit that the suite was built from, for the record.
    #[arg(long, env = "TERRANE_COMMIT")]
    commit: Option<String>,
}

/// How a clause ended, once the known failures are taken into account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Count {
    Passed,
    Failed,
    ExpectedFailure,
    Skipped,
}

impl Count {
    const fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::ExpectedFailure => "expected failure",
            Self::Skipped => "skipped",
        }
    }
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
            let plan = Plan { seed: options.seed, ..Plan::new(source) };
            try_all(&chosen, &plan, options)
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
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
    match opened.vulkan.as_ref().and_then(gate::keeper) {
        Some(keeper) => Source::kept(opened.device.clone(), keeper),
        None => Source::shared(opened.device.clone()),
    }
}

fn try_all(chosen: &[&'static Clause], plan: &Plan, options: &Options) -> ExitCode {
    let info = match Rig::open(plan) {
        Ok(rig) => rig.device().info().clone(),
        Err(stop) => {
            eprintln!("the device does not open: {stop:?}");
            return ExitCode::from(2);
        }
    };
    let mut rows = Vec::new();
    for clause in chosen {
        let verdict = run(clause, plan);
        let (count, reason) = judge(&info, &verdict);
        if !options.json {
            println!("{:<16} {}{}", count.name(), clause.id, because(&reason));
        }
        if count == Count::Failed {
            eprintln!(
                "    {} ({:?} to blame: {})",
                clause.sentence, clause.blames, clause.reference
            );
            eprintln!("    again: {}", again(options, clause));
        }
        rows.push((*clause, count, reason));
    }
    let of = |wanted| rows.iter().filter(|(_, count, _)| *count == wanted).count();
    let failed = of(Count::Failed);
    if options.json {
        println!("{:#}", report(&info, options, &rows));
    } else {
        println!(
            "{} on {}: {} passed, {failed} failed, {} expected failures, {} skipped",
            info.name,
            info.driver,
            of(Count::Passed),
            of(Count::ExpectedFailure),
            of(Count::Skipped)
        );
    }
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

/// The line that runs one clause again.
fn again(options: &Options, clause: &Clause) -> String {
    format!(
        "cargo run -p terrane-tests --bin conformance -- --device {} --filter {} --seed {}",
        options.device, clause.id, options.seed
    )
}

fn judge(info: &DeviceInfo, verdict: &Verdict) -> (Count, String) {
    let row = expected(info, verdict.clause.id);
    match (&verdict.ending, row) {
        (Ending::Passed, None) => (Count::Passed, String::new()),
        (Ending::Passed, Some(row)) => {
            (Count::Failed, format!("it holds, though a failure is expected: {}", row.reason))
        }
        (Ending::Failed(text), None) => (Count::Failed, text.clone()),
        (Ending::Failed(text), Some(row)) => {
            (Count::ExpectedFailure, format!("{} ({text})", row.reason))
        }
        (Ending::Skipped(why), _) => (Count::Skipped, why.clone()),
    }
}

fn report(info: &DeviceInfo, options: &Options, rows: &[(&Clause, Count, String)]) -> Value {
    let of = |wanted| rows.iter().filter(|(_, count, _)| *count == wanted).count();
    let clauses: Vec<Value> = rows
        .iter()
        .map(|(clause, count, reason)| {
            json!({ "id": clause.id, "outcome": count.name(), "reason": reason })
        })
        .collect();
    json!({
        "device": info.name,
        "backend": info.backend,
        "driver": info.driver,
        "commit": options.commit,
        "seed": options.seed,
        "passed": of(Count::Passed),
        "failed": of(Count::Failed),
        "expected_failures": of(Count::ExpectedFailure),
        "skipped": of(Count::Skipped),
        "clauses": clauses,
    })
}
