//! Every clause on every device that is here.

#![allow(clippy::unwrap_used)]

use terrane_core::device::sim::Sim;
use terrane_tests::{Ending, Plan, Source, clauses, run};

/// Runs all clauses and tells which failed.
fn all(name: &str, plan: &Plan) {
    let (mut passed, mut skipped, mut failed) = (0, 0, Vec::new());
    for clause in clauses::all() {
        let started = std::time::Instant::now();
        match run(clause, plan).ending {
            Ending::Passed => passed += 1,
            Ending::Skipped(why) => {
                skipped += 1;
                println!("{name}: {} skipped: {why}", clause.id);
            }
            Ending::Failed(text) => failed.push(format!("{}: {text}", clause.id)),
        }
        if started.elapsed().as_millis() > 500 {
            println!("{name}: {} took {:?}", clause.id, started.elapsed());
        }
    }
    println!("{name}: {passed} passed, {} failed, {skipped} skipped", failed.len());
    assert!(failed.is_empty(), "on {name}:\n{}", failed.join("\n"));
}

#[test]
fn every_clause_holds_on_the_model_of_cuda() {
    all("sim:cuda", &Plan::new(Source::Model(Sim::cuda)));
}

#[test]
fn every_clause_holds_on_the_model_of_vulkan() {
    all("sim:vulkan", &Plan::new(Source::Model(Sim::vulkan)));
}

#[test]
fn every_clause_holds_on_the_model_without_paging() {
    all("sim:slabs", &Plan::new(Source::Model(Sim::slabs)));
}

/// Sync values, generations of handles and numbers of events, all just below their ends. Sync
/// values are kept below it: a stream that submits a thousand times a second lasts 584 million
/// years.
#[test]
fn every_clause_holds_where_numbers_are_near_their_ends() {
    // Its mappings have values too.
    let source = Source::Model(|| Sim::vulkan().first_value(u64::MAX - 100_000));
    let plan = Plan { paging: Some(true), near_ends: true, ..Plan::new(source) };
    all("sim:vulkan, large numbers", &plan);
}

#[test]
fn every_clause_holds_on_the_cpu() {
    all("host", &Plan::new(Source::Host));
}

#[test]
fn every_clause_holds_on_the_cpu_page_by_page() {
    all("host, paged", &Plan { paging: Some(true), ..Plan::new(Source::Host) });
}

#[test]
fn every_clause_holds_on_the_model_of_vulkan_page_by_page() {
    all("sim:vulkan, paged", &Plan { paging: Some(true), ..Plan::new(Source::Model(Sim::vulkan)) });
}

/// The device named by TERRANE_VULKAN, or the best. Without a driver this is skipped, in words;
/// TERRANE_REQUIRE_VULKAN=1 makes that a failure.
#[cfg(feature = "program")]
#[test]
fn every_clause_holds_on_vulkan() {
    let name = std::env::var("TERRANE_VULKAN").unwrap_or_default();
    match terrane::open(&terrane::Choice::Vulkan(name)) {
        Ok(opened) => {
            let plan = Plan::new(terrane_tests::program::shared(&opened));
            all("vulkan", &plan);
            all("vulkan, paged", &Plan { paging: Some(true), ..plan });
        }
        Err(error) => {
            println!("skipped: {error}");
            assert!(std::env::var_os("TERRANE_REQUIRE_VULKAN").is_none(), "{error}");
        }
    }
}
