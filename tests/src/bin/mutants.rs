//! Tries every clause on every mutant: which mutants does each clause notice?
//!
//! `cargo run --release -p terrane-tests --bin mutants > table.csv` prints a row for each pair of
//! a clause and a mutant that it fails on, with the device and the milliseconds it took. From
//! that, `tests/src/mutants.rs` is chosen; `tests/tests/mutants.rs` runs what is chosen.

use std::io::Write as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use terrane_tests::probe::Flaw;
use terrane_tests::{Ending, clauses, mutants, run};

/// Mutants on which most clauses hang until their time is over.
const SLOW: &[Flaw] = &[
    Flaw::ReachedNever,
    Flaw::ReachedFallsBack,
    Flaw::WaitAnySaysNo,
    Flaw::WaitAnyWaitsForAll,
    Flaw::WaitOnStreamBlocks,
    Flaw::MarkGoesOn,
    Flaw::ValuesRepeat,
    Flaw::SameStreamTwice,
    Flaw::LostUnnoticed,
];

fn main() {
    let only: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |id: &str| only.is_empty() || only.iter().any(|part| id.contains(part.as_str()));
    let mut jobs = Vec::new();
    for device in mutants::DEVICES {
        for clause in clauses::all().filter(|clause| wanted(clause.id)) {
            let quick = Flaw::ALL.iter().filter(|flaw| !SLOW.contains(flaw));
            jobs.extend(quick.map(|&flaw| (device, clause, flaw)));
        }
    }
    jobs.reverse();
    let jobs = Mutex::new(jobs);
    // Many of them only wait: more threads than processors.
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                loop {
                    let next = jobs.lock().ok().and_then(|mut jobs| jobs.pop());
                    let Some((device, clause, flaw)) = next else { break };
                    let plan = mutants::plan(device, flaw, Duration::from_millis(500));
                    let Some(plan) = plan else { continue };
                    let start = Instant::now();
                    if let Ending::Failed(text) = run(clause, &plan).ending {
                        let ms = start.elapsed().as_millis();
                        let text: String = text.chars().take(80).collect();
                        let text = text.replace(['\n', ','], " ");
                        let row = format!("{},{device},{flaw:?},{ms},{text}\n", clause.id);
                        let _ = std::io::stdout().lock().write_all(row.as_bytes());
                    }
                }
            });
        }
    });
}
